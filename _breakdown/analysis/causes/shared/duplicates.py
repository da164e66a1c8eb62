"""Find ops that several devices run on the same data, and what it takes to divide their work."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.arrays.equal_copies import EqualCopies
from _breakdown.analysis.arrays.of_step import StepArray, Use
from _breakdown.analysis.causes.shared.step_program import StepProgram, collective_name_of, total_of
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.vocabulary import COMPUTE
from _proto.hlo.parameters import n_partitions
from _proto.hlo.text import HBM

# Collecting an array from other devices takes this many times as long as reading it from HBM: on
# chips from v4 to TPU7x, one link has a tenth to a thirtieth of the bandwidth of HBM.
_SLOWER = 16
# The time of a collective that moves only a few bytes, in picoseconds.
_LATENCY = 5_000_000
# Smaller arrays, such as statistics and biases, do not decide how work is divided.
_SMALL_BYTES = 1 << 20
# Phase of the optimizer's ops in a program with a backward pass.
_OPTIMIZER = "other"
_LOOKUP, _SLICE = "gather", "dynamic-slice"


class Duplicates:
    """The ops whose work several devices do in the same way, although they could divide it.

    `n_of` has the number of devices for each such op. Dividing an op must save more time than it
    takes to collect its results where they are needed whole. Ops whose inputs other ops need whole
    do not count, such as norms in tensor parallelism, whose inputs are whole for the matmuls.
    """

    def __init__(self, of: StepProgram) -> None:
        self._of = of
        self.n_of: dict[Executions, int] = {}
        if n_partitions(of.program) < 2 or not of.roofs.hbm:
            return
        equal = of.equal_copies
        # Look at long ops first, because most programs have nothing to divide.
        if self._saved(self._alike(of.long_ops, equal)) >= of.floor:
            self.n_of = self._alike(of.leaves, equal)
        # Without an op, others that feed it may not pay.
        while lost := [ran for group in self.groups() for ran in self._lost_in(group)]:
            for ran in lost:
                del self.n_of[ran]

    def _alike(self, ops: Sequence[Executions], equal: EqualCopies) -> dict[Executions, int]:
        return {
            ran: n
            for ran in ops
            # Dividing the optimizer is a choice: parameters then have to be gathered.
            if not (self._of.trains and ran.op.phase == _OPTIMIZER)
            if collective_name_of(ran.op) is None
            if ran.op.instruction and (n := equal.n_alike(ran.op.instruction)) > 1
        }

    @staticmethod
    def _saved(n_of: Mapping[Executions, int]) -> float:
        """Return the time that dividing math saves if no results have to be collected."""
        return sum(ran.total - ran.total / n for ran, n in n_of.items() if ran.op.kind == COMPUTE)

    def groups(self) -> list[list[Executions]]:
        """Group the ops that share arrays."""
        group_of: dict[Executions, list[Executions]] = {ran: [ran] for ran in self.n_of}
        for array in dict.fromkeys(array for ran in self.n_of for array, _ in self._uses(ran)):
            first, *others = (r for use in array.uses if (r := use.ran) in self.n_of)
            for other in others:
                small, large = sorted((group_of[first], group_of[other]), key=len)
                if small is not large:
                    large += small
                    group_of.update(dict.fromkeys(small, large))
        return list({id(group): group for group in group_of.values()}.values())

    def divided(self, members: Sequence[Executions]) -> list[Retime]:
        """Return the changes that divide the work of ops."""
        changes = [Retime(ran, self._time(ran)) for ran in members]
        for array, makers in self.inputs(members):
            for ran in makers:
                is_gather = collective_name_of(ran.op) == "all-gather"
                n = max(self.n_of[use.ran] for use in array.reads if use.ran in self.n_of)
                # Devices exchange parts (all-to-all), or add up only their parts (reduce-scatter).
                changes.append(Retime(ran, ran.total / (n if is_gather else 2)))
        return changes

    def inputs(self, members: Sequence[Executions]) -> Iterator[tuple[StepArray, list[Executions]]]:
        """Yield the arrays that collectives make whole only for these ops, and the collectives."""
        arrays = {
            array: None for ran in members for array, use in self._uses(ran) if not use.is_write
        }
        for array in arrays:
            makers = [use.ran for use in array.writes]
            are_collectives = makers and all(collective_name_of(ran.op) for ran in makers)
            if are_collectives and _is_large(array) and not self._is_needed_whole(array):
                yield array, makers

    def _uses(self, ran: Executions) -> Sequence[tuple[StepArray, Use]]:
        return self._of.arrays.uses_of.get(ran, ())

    def _lost_in(self, group: Sequence[Executions]) -> list[Executions]:
        """Return the ops of a group that should not be divided."""
        if self._saved({ran: self.n_of[ran] for ran in group}) < self._of.floor:
            return list(group)
        shared = [
            ran
            for ran in group
            if any(not use.is_write and self._is_shared(array) for array, use in self._uses(ran))
        ]
        if shared or sum(map(self._time, group)) < total_of(group):
            return shared
        return [ran for ran in group if self._time(ran) >= ran.total]

    def _is_shared(self, array: StepArray) -> bool:
        if array.is_parameter or not _is_large(array):
            return False
        is_inner = all(use.ran in self.n_of for use in array.writes)
        return not is_inner and self._is_needed_whole(array)

    def _is_needed_whole(self, array: StepArray) -> bool:
        """Return whether the program returns an array, or other ops read more of it than the part
        of one device."""
        if array.is_result:
            return True
        n = min(self.n_of[use.ran] for use in array.uses if use.ran in self.n_of)
        written = sum(use.n_bytes for use in array.writes) or array.shape.n_bytes or 0
        return any(
            4 * use.n_bytes * n > 5 * written
            or _has(use.ran, _LOOKUP)
            or (array.shape.memory_space != HBM and not _has(use.ran, _SLICE))
            for use in array.reads
            if use.ran not in self.n_of
        )

    def _time(self, ran: Executions) -> float:
        """Return the time that an op takes if its work is divided, with the time to collect its
        results."""
        peak = float(self._of.roofs.hbm or 1)
        collected = 0.0
        for array, use in self._uses(ran):
            if use.is_write and self._is_needed_whole(array):
                n_bytes = use.n_bytes or (array.shape.n_bytes or 0) * ran.n
                collected += max(ran.n * _LATENCY, _SLOWER * n_bytes / peak)
        return ran.total / self.n_of[ran] + collected


def _is_large(array: StepArray) -> bool:
    return (array.shape.n_bytes or 0) >= _SMALL_BYTES


def _has(ran: Executions, opcode: str) -> bool:
    here = ran.op.instruction
    return here is not None and any(opcode in part.opcodes for part in here.chain)
