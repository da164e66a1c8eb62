"""Columns of numbers: of a million events each fact is held as small as it can be."""

from __future__ import annotations

from array import array
from contextlib import suppress


def column_of(numbers: list[int]) -> array[int]:
    """As small as can be: a step has up to a million events, and what lasts 4 ms fits in 4 bytes.

    Unsigned ones are made in a third of the time.
    """
    for typecode in "IL":
        with suppress(OverflowError):
            return array(typecode, numbers)
    return array("q", numbers)


def has_negative(column: array[int]) -> bool:
    # In most columns are none, by their type.
    return column.typecode == "q" and min(column, default=0) < 0
