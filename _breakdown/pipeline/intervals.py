"""Compute unions and complements of intervals, how much of a span they cover, and which of them
contain a time.

Stretches are sorted pairs (start, end) that do not touch or overlap.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, compress, repeat
from operator import gt, le, sub

Stretch = tuple[int, int]

# Index that means "no span".
NONE = -1


def union(spans: Iterable[Stretch]) -> list[Stretch]:
    """Return the stretches covered by spans, which may overlap and be in any order."""
    ordered = sorted(spans)
    return list(zip(*unite(*zip(*ordered, strict=True)), strict=True)) if ordered else []


def unite(starts: Sequence[int], ends: Sequence[int]) -> tuple[Iterable[int], Iterable[int]]:
    """Return the starts and the ends of the stretches covered by spans. Spans must be sorted by
    start."""
    # Ends of spans outside a step can exceed 64 bits, so use a list.
    reach = list(accumulate(ends, max))
    opens = list(map(gt, starts[1:], reach))
    return compress(starts, [True, *opens]), compress(reach, [*opens, True])


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
    """Stretches, stored in columns because a step can have a million of them."""

    def __init__(self, starts: Iterable[int], ends: Iterable[int]) -> None:
        self.starts = array("q", starts)
        self.ends = array("q", ends)
        # For each stretch, the total length of all earlier stretches.
        self._before: array[int] = array(
            "q", accumulate(map(sub, self.ends, self.starts), initial=0)
        )

    @classmethod
    def of(cls, stretches: Sequence[Stretch]) -> Cover:
        return cls([start for start, _ in stretches], [end for _, end in stretches])

    @classmethod
    def spanning(cls, starts: Sequence[int], ends: Sequence[int]) -> Cover:
        """Return the cover of spans, which may overlap and be in any order."""
        if not starts:
            return cls((), ())
        if not all(map(le, starts, starts[1:])):
            starts, ends = zip(*sorted(zip(starts, ends, strict=True)), strict=True)
        return cls(*unite(starts, ends))

    def __iter__(self) -> Iterator[Stretch]:
        return zip(self.starts, self.ends, strict=True)

    @property
    def total(self) -> int:
        return self._before[-1]

    def within(self, start: int, end: int) -> int:
        """Return the length of the covered part of a span."""
        return max(0, self._until(end) - self._until(start))

    def within_all(self, starts: Sequence[int], ends: Sequence[int]) -> int:
        """Return the sum of `within` over many spans, none of which may end before it starts."""
        # Lists are twice as fast to search as arrays, which create an int at each access.
        columns = list(self.starts), list(self.ends), list(self._before)
        return sum_until(ends, *columns) - sum_until(starts, *columns)

    def _until(self, time: int) -> int:
        n = bisect_right(self.starts, time)
        return self._before[n] - max(0, self.ends[n - 1] - time) if n else 0


def sum_until(
    times: Sequence[int], starts: Sequence[int], ends: Sequence[int], before: Sequence[int]
) -> int:
    """Return the sum, over all `times`, of the covered time before each of them."""
    return sum(
        before[n] - ends[n - 1] + time if time < ends[n - 1] else before[n]
        for n, time in zip(map(bisect_right, repeat(starts), times), times, strict=True)
        if n
    )


class Nested:
    """Spans that can enclose each other. They must be sorted by start, and spans with the same
    start by end, latest first."""

    def __init__(self, starts: Sequence[int], ends: Sequence[int]) -> None:
        self._starts = starts
        self._ends = ends
        # For each span: the index of the innermost span in which it starts, or NONE.
        self._parents: list[int] = []
        open_spans = [NONE]
        for i, start in enumerate(starts):
            while open_spans[-1] != NONE and ends[open_spans[-1]] <= start:
                open_spans.pop()
            self._parents.append(open_spans[-1])
            open_spans.append(i)

    def around(self, time: int) -> Iterator[int]:
        """Yield the indices of the spans that contain a time, innermost first."""
        place = bisect_right(self._starts, time) - 1
        while place != NONE:
            if self._ends[place] > time:
                yield place
            place = self._parents[place]
