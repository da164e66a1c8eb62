"""Find arrays in memory that repeat a smaller array."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Change, Remove, Resize
from _breakdown.analysis.arrays.graph import STRUCTURE, Value, is_same, origins, producers
from _breakdown.analysis.arrays.of_step import TEMPORARY, StepArray, Use
from _breakdown.analysis.arrays.values import output_at
from _breakdown.analysis.causes.shared.cause import SEEN, Cause
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.light import NamedTuple
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.units import size
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Array

REMEDY = (
    "Let ops read the small array: broadcast where it is used, split the other operand of an einsum"
    " into groups, or use a kernel that shares keys and values between heads (splash attention)."
)


class _Repeated(NamedTuple):
    """An array that repeats a smaller one, and the instruction that repeats it."""

    array: StepArray
    small: Array
    broadcast: Instruction


def find(of: StepProgram) -> Iterator[Cause]:
    uses_of = of.arrays.uses_of
    found = [
        repeated
        for ran in of.long_ops
        for array, use in uses_of.get(ran, ())
        # Most arrays are computed, which their last instruction shows in less time than a walk.
        if use.is_write and _passes(_last(use)) and (repeated := _repeated(of, array, use))
    ]
    for rows in grouped((each.array.shape.dims, each) for each in found).values():
        biggest = max(rows, key=lambda each: each.array.moved)
        factor = biggest.array.shape.n_elements // biggest.small.n_elements
        makers = list(dict.fromkeys(ran for each in rows for ran in each.array.makers))
        readers = [use.executions for each in rows for use in each.array.reads]
        changes: list[Change] = [
            Resize(each.array.value, each.small.n_elements / each.array.shape.n_elements)
            for each in rows
        ]
        changes.append(Remove([ran for ran in makers if _only_repeats(ran)]))
        yield Cause(
            f"<line> writes {biggest.array.shape.text}"
            f" ({size(biggest.array.shape.n_bytes or 0)}) to memory, which repeats an array"
            f" {factor} times. Reading the small array instead would save <gain>.",
            REMEDY,
            SEEN,
            list(dict.fromkeys([*makers, *readers])),
            changes,
            place=of.place_at(biggest.broadcast),
            evidence={"shape": biggest.array.shape.text},
        )


def _last(write: Use) -> Instruction | None:
    """Return the instruction that computes an array, also inside a fusion."""
    here = write.executions.op.instruction
    return output_at(here, write.path) if here and here.opcode == "fusion" else here


def _repeated(of: StepProgram, array: StepArray, write: Use) -> _Repeated | None:
    here = write.executions.op.instruction
    # Other writes update parts of a buffer that the first one only fills.
    if here is None or len(array.writes) != 1 or not array.reads:
        return None
    passed = origins(Value(here, write.path), _repeats)
    broadcasts = [value.instruction for value in passed if value.instruction.opcode == "broadcast"]
    if not broadcasts:
        return None
    sources = [v for v in passed if not _passes(v.instruction) or not producers(v)]
    small = sources[0].array if len(sources) == 1 else None
    if not small or not small.dims or not 0 < small.n_elements < array.shape.n_elements:
        return None
    if _fills_lanes(array, small) or of.arrays.kind_of(array) != TEMPORARY:
        return None
    return _Repeated(array, small, broadcasts[0])


def _fills_lanes(array: StepArray, small: Array) -> bool:
    """Return whether a kernel reads numbers that are repeated along the last dimension."""
    whole, part = ([n for n in each.dims if n > 1] for each in (array.shape, small))
    return whole[:-1] == part and all(use.executions.op.kernel for use in array.reads)


def _repeats(value: Value) -> bool:
    return value.instruction.opcode == "broadcast" or is_same(value)


def _passes(here: Instruction | None) -> bool:
    return here is not None and (here.opcode in STRUCTURE or _repeats(Value(here)))


def _only_repeats(ran: Executions) -> bool:
    here = ran.op.instruction
    return here is not None and all(map(_passes, (here, *here.inside())))
