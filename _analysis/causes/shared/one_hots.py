"""Recognise one-hot arrays: comparisons of an index with the place along a dimension."""

from __future__ import annotations

from _analysis.arrays.graph import Value, is_layout, origins
from _light import NamedTuple
from _proto.hlo.program import Instruction

EQUAL, UNEQUAL = b"EQ", b"NE"
_OFFSET = frozenset("add subtract broadcast convert".split())
_SPREAD = frozenset(("broadcast", "convert"))


class Hot(NamedTuple):
    """A one-hot array: the number of its indices, and the number of places that each can have."""

    n_indices: int
    size: int


def is_one_hot(value: Value, direction: bytes = EQUAL) -> bool:
    """Return True if a value is a comparison for equality with the index along a dimension, or for
    another direction."""
    here = value.instruction
    return (
        here.opcode == "compare"
        and here.message.comparison_direction == direction
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


def _is_place(value: Value) -> bool:
    """Return True if an operand is an iota, possibly plus or minus a scalar."""
    return any(
        value.instruction.opcode == "iota" and value.array is not None and value.array.dims
        for value in origins(value, _is_shifted)
    )


def _is_shifted(value: Value) -> bool:
    return value.instruction.opcode in _OFFSET or is_layout(value.instruction)


def _is_spread(value: Value) -> bool:
    return value.instruction.opcode in _SPREAD or is_layout(value.instruction)
