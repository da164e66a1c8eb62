"""Find collectives that move numbers in a wider dtype than the ops before or after them use."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.arrays.graph import (
    STRUCTURE,
    Value,
    consumers,
    inputs_of_chain,
    is_same,
    origins,
    producers,
    walk,
)
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of_longest, total_of
from _breakdown.units import time
from _proto.hlo.program import Instruction

REMEDY = (
    "Cast to the narrow dtype before the collective: before a gather, so that the gradients are"
    " added up in this dtype, too, or before a reduction of your own."
)
_PARTS = frozenset(("concatenate", "dynamic-slice", "slice"))
_WIDE = "f32"
_BYTES_OF = {_WIDE: 4, "bf16": 2, "f16": 2}


def find(of: StepProgram) -> Iterator[Cause]:
    found = {
        ran: part
        for ran in of.long_collectives
        if (here := ran.op.instruction)
        and any(array.dtype == _WIDE for array in here.arrays or ())
        and (part := _part_needed(here)) < 1
    }
    if found:
        yield Cause(
            f"{time(total_of(list(found)))} of collectives, most of it at <line>, go to numbers in"
            " a wider dtype than the ops beside them use. Casting first would save <gain>.",
            REMEDY,
            LIKELY,
            list(found),
            [Retime(ran, ran.total * part) for ran, part in found.items()],
            place=place_of_longest(list(found)),
        )


def _part_needed(here: Instruction) -> float:
    """Return the part of a collective's bytes that it would move in the narrow dtype, or 1."""
    done = here.chain[-1]
    made = walk([Value(done, path) for path, _ in done.leaves or ()], consumers, _keeps)
    return min(
        _largest(_part_before(Value(source)) for source in inputs_of_chain(here)),
        _largest(_cast(value) for value, is_passed in made if not is_passed),
    )


def _largest(parts: Iterable[float]) -> float:
    """Return the largest part, or 1 as soon as one is whole, because then nothing is narrower."""
    found = 0.0
    for part in parts:
        found = max(found, part)
        if found >= 1:
            break
    return min(found or 1.0, 1.0)


def _part_before(value: Value) -> float:
    """Return the largest part that an array had on one of the ways to a value, before it was
    widened."""
    ends = [
        end
        for end in origins(value, _keeps)
        if not _keeps(end) and (end.instruction.opcode not in STRUCTURE or not producers(end))
    ]
    return max((1 / max(1.0, _cast(end)) for end in ends), default=1.0)


def _keeps(value: Value) -> bool:
    """Return whether a value has elements of its operands, in the same width."""
    is_part = value.instruction.opcode in _PARTS or value.instruction.is_asynchronous
    return is_part or (is_same(value) and _cast(value) == 1)


def _cast(value: Value) -> float:
    """Return how many bytes a cast between floats makes of one byte; 1 for other values."""
    here = value.instruction
    source = Value(here.operands[0]).array if here.opcode == "convert" and here.operands else None
    if source is None or value.array is None:
        return 1.0
    before, after = (_BYTES_OF.get(array.dtype) for array in (source, value.array))
    return after / before if before and after else 1.0
