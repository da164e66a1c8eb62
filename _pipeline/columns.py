"""Columns of times, of any size and that may grow: 8 bytes each, since there may be millions."""

from __future__ import annotations

from array import array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    # What doesn't fit into 64 bits, as only a hostile trace has it, stands in a list.
    Column = array[int] | list[int]


def growing(numbers: Iterable[int] = ()) -> Column:
    numbers = numbers if isinstance(numbers, list) else list(numbers)
    try:
        return array("q", numbers)
    except OverflowError:
        return numbers


def extended(column: Column, numbers: Iterable[int]) -> Column:
    """A column with more in it, which may be another one than it was."""
    more = growing(numbers)
    if isinstance(column, array) and isinstance(more, array):
        column.extend(more)
        return column
    return [*column, *more]


def rearranged(column: Column, order: Iterable[int]) -> Column:
    """A list stays one: what is put beside its times later may be larger than they are."""
    numbers = list(map(column.__getitem__, order))
    return numbers if isinstance(column, list) else growing(numbers)
