"""Compute hideable time: the part of a transfer's time that could overlap with math."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from _breakdown.analysis.roof.exposed import only_starts
from _breakdown.analysis.roof.ledger import COLLECTIVE, DATA_MOVEMENT, LedgerEntry, OpClass
from _breakdown.pipeline.groups import summed
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.vocabulary import COMPUTE, HOST
from _proto.hlo.program import Computation, Instruction

# Classes of ops that can overlap with math.
HIDEABLE = (COLLECTIVE, HOST, DATA_MOVEMENT)


def is_synchronous(entry: LedgerEntry) -> bool:
    """Return whether an entry is a collective that the core runs itself, instead of waiting for
    it."""
    op = entry.ran.op
    return entry.name == COLLECTIVE and not only_starts(op) and not op.is_wait


class Hideable:
    """Computes the hideable time of ledger entries."""

    def __init__(self, ledger: Sequence[LedgerEntry]) -> None:
        self._total_of = {entry.ran.metadata_id: entry.total for entry in ledger}
        math = [entry for entry in ledger if entry.ran.op.kind == COMPUTE]
        self._math_time = sum(entry.total for entry in math)
        self._time_of_class = summed((entry.name, entry.total) for entry in ledger)
        self._synchronous = self._times_of_synchronous(ledger, math)

    def _times_of_synchronous(
        self, ledger: Sequence[LedgerEntry], math: Iterable[LedgerEntry]
    ) -> dict[Instruction, int]:
        """Map each synchronous collective to the duration of the math that could overlap with
        it, if this is less than the collective itself takes, or else to a longer time."""
        moved_in = totals_in(filter(is_synchronous, ledger))
        math_in = totals_in(math) if moved_in else {}
        times: dict[Instruction, int] = {}
        for computation, totals in moved_in.items():
            times |= times_beside(computation, totals, math_in.get(computation, {}))
        return times

    def lacks_math(self, name: OpClass) -> bool:
        """Return whether a class takes more than twice as long as all math, so that math could hide
        less than half of it."""
        return self._time_of_class.get(name, 0) > 2 * self._math_time

    def time_of(self, name: OpClass, entries: Iterable[LedgerEntry]) -> int | None:
        """Return how much of a class's time could be hidden by math, according to the ledger.

        Return None if math cannot hide this class, or if the program of a synchronous collective is
        missing.
        """
        if name not in HIDEABLE:
            return None
        hidden = asynchronous = 0
        for entry in entries:
            total = self._total_of[entry.ran.metadata_id]
            if not is_synchronous(entry):
                asynchronous += total
                continue
            op: Op = entry.ran.op
            if op.instruction is None:
                return None
            hidden += min(total, self._synchronous[op.instruction])
        return hidden + min(asynchronous, self._math_time)


def totals_in(entries: Iterable[LedgerEntry]) -> dict[Computation, dict[Instruction, int]]:
    """Return the time of each instruction, by computation."""
    found: dict[Computation, dict[Instruction, int]] = {}
    for entry in entries:
        if here := entry.ran.op.instruction:
            totals = found.setdefault(here.computation, {})
            totals[here] = totals.get(here, 0) + entry.total
    return found


def times_beside(
    computation: Computation, moved: Mapping[Instruction, int], math: Mapping[Instruction, int]
) -> dict[Instruction, int]:
    """Map each instruction in `moved` to the time of the math that could overlap with it: math that
    neither uses its result nor computes its input. Stop adding at the time in `moved`.

    The math on which an instruction depends, and the math that depends on it, are the bits of two
    numbers, so one pass in each direction is enough.
    """
    bit_of = {instruction: 1 << i for i, instruction in enumerate(math)}
    up_to = dict(bit_of)
    for here in computation.instructions:
        bits = bit_of.get(here, 0)
        for operand in here.operands:
            bits |= up_to.get(operand, 0)
        up_to[here] = bits
    since = dict(bit_of)
    for here in reversed(computation.instructions):
        if bits := since.get(here, 0):
            for operand in here.operands:
                since[operand] = since.get(operand, 0) | bits
    durations = list(math.values())
    times = {}
    for here, enough in moved.items():
        time = 0
        beside = ((1 << len(durations)) - 1) & ~(up_to[here] | since.get(here, 0))
        while beside and time < enough:
            last = beside.bit_length() - 1
            time += durations[last]
            beside ^= 1 << last
        times[here] = time
    return times
