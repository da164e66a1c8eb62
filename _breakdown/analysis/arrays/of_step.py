"""Find what a step moves through HBM, by array: bytes, times, and the ops that read and write each
array."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from operator import sub
from typing import Final, Literal

from _breakdown.analysis.arrays.graph import Value
from _breakdown.analysis.arrays.traffic import Access, accesses_of, copied_by, moves_parts
from _breakdown.analysis.arrays.values import Arrays, arrays_of
from _breakdown.analysis.roof.ledger import DATA_MOVEMENT, MEMORY_BOUND, LedgerEntry
from _breakdown.analysis.roof.roofs import Roofs
from _breakdown.light import NamedTuple, cached_property
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.pipeline.normalize import Step
from _proto.hlo.parameters import read_parameters
from _proto.hlo.program import Instruction, Program
from _proto.hlo.shapes import Array, Path

Kind = Literal["parameter", "optimizer_state", "cache", "constant", "result", "temporary"]
PARAMETER: Final = "parameter"
OPTIMIZER_STATE: Final = "optimizer_state"
CACHE: Final = "cache"
CONSTANT: Final = "constant"
RESULT: Final = "result"
TEMPORARY: Final = "temporary"

# Phases in which the forward pass is used for gradients.
_AFTER_FORWARD = ("backward", "recompute")
# Instructions that fill an array before others write its contents.
_FILLS = ("broadcast", "iota", "copy")
# Two figures agree if they differ by at most 1 / `_TOLERANCE`.
_TOLERANCE = 10
# An op that takes more than this many times as long as its bytes take at the peak bandwidth is not
# limited by HBM: with fewer bytes, it would hardly be faster.
_SLOWEST = 10
# An array is wider than what made it if an operand with at least 1 / `_LARGE` of its elements has a
# narrower type, and no such operand is as wide.
_LARGE = 4


class Use(NamedTuple):
    """All executions of an op that read or write an array. `path` is the place of a written array
    in the op's output."""

    ran: Executions
    path: Path
    is_write: bool
    # The bytes that all executions move to or from HBM.
    n_bytes: int
    # The array's share of the op's time, if HBM limits the op.
    time: int

    @property
    def instruction(self) -> Instruction:
        found = self.ran.op.instruction
        assert found is not None  # Ops that the program does not have are not read.
        return found

    @property
    def is_filling(self) -> bool:
        """Return whether the use writes the array, and is no update in place."""
        return self.is_write and not moves_parts(self.instruction)


class StepArray:
    """An array, and the ops of the step that read and write it. The class has slots because a step
    can have many arrays."""

    __slots__ = ("_arrays", "_origin", "moved", "reads", "shape", "time", "value", "writes")

    def __init__(self, value: Value, shape: Array, arrays: Arrays) -> None:
        self.value, self.shape, self._arrays = value, shape, arrays
        self.reads: list[Use] = []
        self.writes: list[Use] = []
        # The bytes and the time of all uses.
        self.moved = self.time = 0
        self._origin: tuple[Value | None] | None = None

    @property
    def name(self) -> str | None:
        """Return the path of a parameter in the user's code."""
        here = self.value.instruction
        return here.op_name if self.is_parameter and not self.value.path else None

    @property
    def is_parameter(self) -> bool:
        here = self.value.instruction
        entry = self._arrays.program.message.entry_computation_id
        return here.opcode == "parameter" and here.computation.message.id == entry

    @property
    def is_result(self) -> bool:
        return self._arrays.is_result(self.value)

    @property
    def uses(self) -> list[Use]:
        return [*self.reads, *self.writes]

    @property
    def written(self) -> int:
        return sum(use.n_bytes for use in self.writes)

    @property
    def read(self) -> int:
        return sum(use.n_bytes for use in self.reads)

    @property
    def moved_by_bound_ops(self) -> int:
        """Return the bytes that the ops move whose time is in `time`."""
        return sum(use.n_bytes for use in self.uses if use.time)

    @property
    def makers(self) -> Sequence[Executions]:
        """Return the executions that write the array's contents, the largest write first."""
        writes = sorted(self.writes, key=lambda use: -use.n_bytes)
        computed = [use for use in writes if use.instruction.opcode not in _FILLS]
        return [use.ran for use in computed or writes]

    @property
    def origin(self) -> Value | None:
        """Return the array of which this array is a copy, or None."""
        if self._origin is None:
            self._origin = (self._copied_by(self.writes),)
        return self._origin[0]

    @property
    def filled_from(self) -> Value | None:
        """Return the array of which this array was a copy before updates in place changed parts of
        it, or None."""
        return self._copied_by(use for use in self.writes if use.is_filling)

    def _copied_by(self, writes: Iterable[Use]) -> Value | None:
        """Return the array that all writes copy, or None."""
        found = None
        for use in writes:
            source = copied_by(use.instruction, use.path, self._arrays)
            if source is None or source == self.value:
                return None
            found = source
        return found

    @property
    def widened_from(self) -> str | None:
        """Return the dtype of the operands from which a wider array is made, or None."""
        makers = self.makers
        here = makers[0].op.instruction if makers else None
        if here is None or not is_float(self.shape.dtype):
            return None
        sources = [
            array
            for arrays in here.operand_arrays
            for array in arrays or ()
            if _LARGE * array.n_elements >= self.shape.n_elements and is_float(array.dtype)
        ]
        widest = max(sources, key=lambda array: array.bits or 0, default=None)
        if widest is None or not widest.bits or widest.bits >= (self.shape.bits or 0):
            return None
        return widest.dtype


def arrays_of_step(step: Step, ledger: Sequence[LedgerEntry], roofs: Roofs) -> StepArrays:
    """Return the arrays of a step. On a page, causes and `by_array` ask for the same ledger."""
    # Keep the ledger, so that no other list can get its id.
    found, _ = step.once((arrays_of_step, id(ledger)), lambda: (StepArrays(ledger, roofs), ledger))
    return found


class StepArrays:
    """The arrays of all programs of a step."""

    def __init__(self, ledger: Iterable[LedgerEntry], roofs: Roofs) -> None:
        # Bytes per picosecond; infinite if unknown, so that no op is limited by HBM.
        self._peak = math.inf if roofs.hbm is None else float(roofs.hbm)
        self.by_value: dict[Value, StepArray] = {}
        self._programs: dict[Program, Arrays] = {}
        # Time of ops whose bytes are known from both the program and the profiler, and the part of
        # it for which the two agree.
        self.compared_time = self.agreeing_time = 0
        # Bytes that the profiler counts for ops of which the program shows no array in HBM.
        self.unattributed = 0
        # Ops whose time HBM limits.
        self.bound_time = 0
        self.bound_ops: set[Executions] = set()
        for entry in ledger:
            here = entry.ran.op.instruction
            if here is not None:
                self._add(entry, here)

    def __iter__(self) -> Iterator[StepArray]:
        return iter(self.by_value.values())

    def _add(self, entry: LedgerEntry, here: Instruction) -> None:
        program = here.program
        if program not in self._programs:
            self._programs[program] = arrays_of(program)
        arrays = self._programs[program]
        accesses = accesses_of(here, arrays)
        if not accesses and here.is_asynchronous:
            # The last part has the accesses of all parts.
            return
        ran = entry.ran
        n_bytes = self._corrected(ran, accesses)
        total = sum(n_bytes)
        times = [0] * len(accesses)
        if total > 0 and self._is_bound_by_hbm(entry, total):
            self.bound_ops.add(ran)
            self.bound_time += ran.total
            times = shares(ran.total, n_bytes)
        for (value, path, _, is_write), of_each, time in zip(accesses, n_bytes, times, strict=True):
            array = self.by_value.get(value)
            if array is None:
                shape = value.array
                if shape is None:
                    continue
                array = self.by_value[value] = StepArray(value, shape, arrays)
            moved = of_each * ran.n
            uses = array.writes if is_write else array.reads
            uses.append(Use(ran, path, is_write, moved, time))
            array.moved += moved
            array.time += time

    def _corrected(self, ran: Executions, accesses: Sequence[Access]) -> list[int]:
        """Return the bytes of each access, scaled to the bytes that the profiler counts for the op.

        The profiler knows nothing about kernels, counts both ends of an asynchronous op, and counts
        whole arrays for some ops that only read or update slices.
        """
        op = ran.op
        found = [n_bytes for _, _, n_bytes, _ in accesses]
        assert op.instruction is not None
        if op.instruction.is_asynchronous or op.is_opaque or op.hbm_bytes is None:
            return found
        total, counted = sum(found), op.hbm_bytes
        self.compared_time += ran.total
        if _TOLERANCE * abs(total - counted) <= counted:
            self.agreeing_time += ran.total
        if counted > total and moves_parts(op.instruction):
            return found
        if total == 0:
            self.unattributed += counted * ran.n
        return shares(counted, found)

    def _is_bound_by_hbm(self, entry: LedgerEntry, n_bytes: int) -> bool:
        """Return whether HBM limits an op: memory-bound math, or data movement."""
        if entry.name not in (MEMORY_BOUND, DATA_MOVEMENT):
            return False
        return _SLOWEST * n_bytes * entry.ran.n >= self._peak * entry.total

    @cached_property
    def uses_of(self) -> dict[Executions, list[tuple[StepArray, Use]]]:
        """Map ops to the arrays that they read and write."""
        return grouped((use.ran, (array, use)) for array in self for use in array.uses)

    def array_at(self, value: Value) -> StepArray | None:
        """Return the array of a value, if an op of the step reads or writes it."""
        arrays = self._programs.get(value.instruction.program)
        return self.by_value.get(arrays.array_of(value)) if arrays else None

    def source_of(self, array: StepArray) -> StepArray:
        """Return the array of which an array is a copy, possibly through other copies; without
        copies, return the array itself."""
        seen = {array}
        while (origin := self.by_value.get(array.origin) if array.origin else None) is not None:
            if origin in seen:
                break
            seen.add(origin)
            array = origin
        return array

    def effective_reads(self, array: StepArray) -> Iterator[Use]:
        """Yield the reads of an array. Reads by ops that only copy the array are followed by the
        reads of the copy."""
        seen, to_do = {array.value}, [array]
        while to_do:
            here = to_do.pop()
            yield from here.reads
            for read in here.reads:
                for made, use in self.uses_of[read.ran]:
                    if use.is_write and made.value not in seen and made.origin == here.value:
                        seen.add(made.value)
                        to_do.append(made)

    @cached_property
    def _has_backward(self) -> bool:
        return any(use.ran.op.phase == "backward" for array in self for use in array.uses)

    def is_saved(self, array: StepArray) -> bool:
        """Return whether the forward pass writes an array that the backward pass reads."""
        return any(use.ran.op.phase == "forward" for use in array.writes) and any(
            use.ran.op.phase in _AFTER_FORWARD for use in self.effective_reads(array)
        )

    def is_never_whole(self, array: StepArray) -> bool:
        """Return whether the step writes an array and reads less than half of it."""
        return bool(array.written) and not array.is_result and 2 * array.read < array.written

    def kind_of(self, array: StepArray) -> Kind:
        if array.value.instruction.opcode == "constant":
            return CONSTANT
        if not array.is_parameter:
            return RESULT if array.is_result else TEMPORARY
        if not self._has_backward:
            return CACHE if array.written and array.is_result else PARAMETER
        phases = {
            use.ran.op.phase
            for use in self.effective_reads(array)
            # The ops that make copies have no phase of their own.
            if use.ran.op.phase != "unknown" or not self._copies(use.ran)
        }
        # The compiler fuses updates with the backward pass, but the forward pass reads weights.
        is_state = phases and phases <= {"other", "backward"} and self.is_donated(array)
        return OPTIMIZER_STATE if is_state else PARAMETER

    def _copies(self, ran: Executions) -> bool:
        """Return whether an op copies an array, or a slice of one."""
        return any(array.origin for array, use in self.uses_of[ran] if use.is_write)

    def is_donated(self, array: StepArray) -> bool:
        """Return whether the caller lets the step reuse the memory of a parameter."""
        here = array.value.instruction
        return (here.message.parameter_number, array.value.path) in self._donated[here.program]

    @cached_property
    def _donated(self) -> dict[Program, set[tuple[int, tuple[int, ...]]]]:
        return {
            program: {
                (parameter.number, parameter.shape_index)
                for parameter in read_parameters(program) or ()
                if parameter.is_aliased or parameter.is_donor
            }
            for program in self._programs
        }


def is_float(dtype: str) -> bool:
    return dtype.startswith(("f", "bf"))


def shares(whole: int, parts: Sequence[int]) -> list[int]:
    """Divide a whole number in proportion to `parts`. The results add up to the whole."""
    total = sum(parts)
    if not total:
        return [0] * len(parts)
    ends = [whole * so_far // total for so_far in accumulate(parts)]
    return list(map(sub, ends, [0, *ends]))
