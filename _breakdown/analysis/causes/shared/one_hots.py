"""Recognise one-hot arrays, which are comparisons of an index with the places along a dimension,
and what arrays keep where a one-hot array is 0."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

from _breakdown.analysis.arrays.graph import (
    STRUCTURE,
    Value,
    consumers,
    is_layout,
    is_same,
    origins,
    producers,
    reach,
)
from _breakdown.light import NamedTuple
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Path

_EQUAL, _UNEQUAL = b"EQ", b"NE"
_OFFSET = frozenset("add subtract broadcast convert".split())


class Hot(NamedTuple):
    """A one-hot array: the number of its indices, and the number of places that each can have."""

    n_indices: int
    size: int


class Kept(NamedTuple):
    """A value that an instruction changes only where a comparison is true."""

    value: Value
    update: Instruction
    compare: Instruction


def is_one_hot(value: Value, direction: bytes = _EQUAL) -> bool:
    """Return True if a value is a comparison for equality with the index along a dimension, or for
    another direction."""
    here = value.instruction
    return (
        here.opcode == "compare"
        and here.message.comparison_direction == direction
        and len({*here.operands}) > 1
        and any(_is_place(Value(source)) for source in here.operands)
    )


def hot_of(compare: Instruction) -> Hot | None:
    """Return the indices that a comparison compares with places; None if the comparison is none of
    indices, such as that of rows with columns in a diagonal matrix."""
    sides = [Value(each) for each in compare.operands]
    indices = [side for side in sides if not _is_place(side)]
    places = [side.array for side in sides if side not in indices]
    whole = Value(compare).array
    if len(indices) != 1 or len(places) != 1 or not places[0] or not whole:
        return None
    spread = (value.array for value in origins(indices[0], _is_spread))
    n_indices = min((array.n_elements for array in spread if array), default=0)
    dims = [size for size in places[0].dims if size > 1]
    if n_indices == 1 and dims:
        return Hot(1, min(dims))
    size = whole.n_elements // max(1, n_indices)
    return Hot(n_indices, size) if size in dims else None


def is_consecutive(compare: Instruction) -> bool:
    """Return whether a comparison is one of indices that count from an offset."""
    return all(any(map(_counts, origins(Value(side), _is_spread))) for side in compare.operands)


def _counts(value: Value) -> bool:
    """Return whether a value is an iota, possibly plus what is the same along its dimension."""
    here = value.instruction
    pairs = permutations(here.operands, 2) if here.opcode == "add" else ()
    return here.opcode == "iota" or any(
        one.opcode == "iota"
        and other.opcode == "broadcast"
        and set(one.message.dimensions).isdisjoint(other.message.dimensions)
        for one, other in pairs
    )


def _is_place(value: Value) -> bool:
    """Return True if an operand is an iota, possibly plus or minus a scalar."""
    return any(
        value.instruction.opcode == "iota" and value.array is not None and value.array.dims
        for value in origins(value, _is_shifted)
    )


def _is_shifted(value: Value) -> bool:
    return value.instruction.opcode in _OFFSET or is_layout(value.instruction)


def _is_spread(value: Value) -> bool:
    return value.instruction.opcode == "broadcast" or is_same(value)


def near_one_hots(compares: Iterable[Instruction]) -> set[Value]:
    """Return the values that are computed with a one-hot array, also by way of a product, if
    `compares` are the comparisons of a program."""
    hot = [each for each in map(Value, compares) if is_one_hot(each) or is_one_hot(each, _UNEQUAL)]
    reached = reach(hot, consumers, _stays_hot)
    return reached.passed | reached.stopped


def _stays_hot(value: Value) -> bool:
    here = value.instruction
    is_masked = here.opcode == "select" and len(here.operands) == 3
    return (
        here.opcode in ("multiply", "subtract")
        or _is_spread(value)
        or (is_masked and _is_constant(Value(here.operands[2])))
    )


def unchanged(here: Instruction, path: Path) -> Kept | None:
    """Return the operand from which a result of an op has all elements but those that one-hot
    arrays select; None for other results."""
    value, kept = Value(here, path), None
    seen: set[Value] = set()
    while value not in seen:
        seen.add(value)
        opened = value.instruction
        if opened is not here and opened.computation is here.computation:
            return kept._replace(value=value) if kept else None
        found = _kept_by(opened)
        if found:
            # The last update is at the line that makes the new buffer.
            value, kept = found.value, kept or found
        elif opened.opcode in STRUCTURE or is_same(value):
            value = next(iter(producers(value)), value)
    return None


def _kept_by(here: Instruction) -> Kept | None:
    """Return the operand whose elements an instruction keeps unless a one-hot array selects
    others."""
    values = [Value(source) for source in here.operands]
    if here.opcode == "select" and len(values) == 3:
        mask, chosen, other = values
        if compare := _hot_in(mask):
            return Kept(other, here, compare)
        compare = _hot_in(mask, _UNEQUAL)
        return Kept(chosen, here, compare) if compare else None
    if here.opcode in ("add", "multiply") and len(values) == 2:
        for kept, factor in (values, reversed(values)):
            parts = origins(factor, _is_spread)
            found = (_neutral(value.instruction, here.opcode) for value in parts)
            if compare := next(filter(None, found), None):
                return Kept(kept, here, compare)
    return None


def _neutral(here: Instruction, opcode: str) -> Instruction | None:
    """Return the comparison that selects the only elements that are not 0, in a sum, or not 1, in
    a product."""
    values = [Value(source) for source in here.operands]
    if opcode == "multiply":
        is_rest = here.opcode == "subtract" and _is_constant(values[0])
        return _hot_in(values[1]) if is_rest and len(values) == 2 else None
    if here.opcode == "multiply":
        return next(filter(None, map(_hot_in, values)), None)
    if here.opcode == "select" and len(values) == 3 and _is_constant(values[2]):
        return _hot_in(values[0])
    return None


def _hot_in(value: Value, direction: bytes = _EQUAL) -> Instruction | None:
    values = origins(value, _is_spread)
    return next((each.instruction for each in values if is_one_hot(each, direction)), None)


def _is_constant(value: Value) -> bool:
    return any(each.instruction.opcode == "constant" for each in origins(value, _is_spread))
