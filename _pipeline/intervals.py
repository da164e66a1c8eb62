"""Compute unions and complements of intervals, and the part of a span that intervals cover.

Stretches are sorted pairs (start, end) that do not touch or overlap.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from itertools import accumulate
from operator import sub

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    Stretch = tuple[int, int]


def union(spans: Iterable[Stretch]) -> list[Stretch]:
    """Return the stretches that spans cover. Spans may overlap and be in any order."""
    stretches: list[Stretch] = []
    for start, end in sorted(spans):
        if stretches and start <= stretches[-1][1]:
            stretches[-1] = stretches[-1][0], max(stretches[-1][1], end)
        else:
            stretches.append((start, end))
    return stretches


def complement(stretches: Iterable[Stretch], window: Stretch) -> list[Stretch]:
    """Return the parts of a window that no stretch covers."""
    start, end = window
    outside = []
    for first, last in stretches:
        if start < min(first, end):
            outside.append((start, min(first, end)))
        start = max(start, last)
    if start < end:
        outside.append((start, end))
    return outside


def length_of(stretches: Iterable[Stretch]) -> int:
    return sum(end - start for start, end in stretches)


class Cover:
    """Stretches, stored in columns because a step can have a million stretches."""

    def __init__(self, starts: Sequence[int], ends: Sequence[int]) -> None:
        self.starts = array("q", starts)
        self.ends = array("q", ends)
        # Time covered before each stretch.
        self._before: array[int] = array(
            "q", accumulate(map(sub, self.ends, self.starts), initial=0)
        )

    @classmethod
    def of(cls, stretches: Sequence[Stretch]) -> Cover:
        return cls([start for start, _ in stretches], [end for _, end in stretches])

    def __iter__(self) -> Iterator[Stretch]:
        return zip(self.starts, self.ends, strict=True)

    @property
    def total(self) -> int:
        return self._before[-1]

    def within(self, start: int, end: int) -> int:
        """Return the length of the covered part of a span."""
        return max(0, self._until(end) - self._until(start))

    def _until(self, time: int) -> int:
        n = bisect_right(self.starts, time)
        return self._before[n] - max(0, self.ends[n - 1] - time) if n else 0
