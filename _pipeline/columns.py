"""Columns of numbers that are few bytes each: a trace has millions of times."""

from __future__ import annotations

from array import array

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    # What doesn't fit into 64 bits, as only a hostile trace has it, stands in a list.
    Column = array[int] | list[int]


def column_of(numbers: Iterable[int] = ()) -> Column:
    if isinstance(numbers, array):
        return numbers
    numbers = list(numbers)
    try:
        return array("q", numbers)
    except OverflowError:
        return numbers


def extended(column: Column, numbers: Iterable[int]) -> Column:
    """A column with more in it, which may be another one than it was."""
    more = column_of(numbers)
    if isinstance(column, array) and isinstance(more, array):
        column.extend(more)
        return column
    return [*column, *more]
