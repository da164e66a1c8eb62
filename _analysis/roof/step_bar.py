"""Divide the step into bins, and find the time by class, the idle time and the longest op for each
bin."""

from __future__ import annotations

from collections.abc import Mapping
from operator import mul, sub
from typing import NamedTuple

from _pipeline.normalize import Step
from _pipeline.ops import Op
from _pipeline.timeline import leaves_of

N_BINS = 1000


class Strip(NamedTuple):
    """The step, divided into bins of equal length."""

    n_bins: int
    # For each class that ran, its time in each bin, in picoseconds.
    by_class: dict[str, list[int]]
    idle: list[int]
    # For each bin, the index in `ops` of the op with the longest execution within the bin.
    longest: list[int | None]
    ops: list[tuple[Op, str]]


class Bins:
    """A window divided into bins whose lengths differ by at most one picosecond."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.n = min(N_BINS, end - start)
        self.edges = [start + (end - start) * i // self.n for i in range(self.n + 1)]

    def place(self, time: int) -> int:
        """Return the index of the bin that contains a time inside the window."""
        return ((time - self.start + 1) * self.n - 1) // (self.end - self.start)


class Row:
    """The time that spans take in each bin. Adding a span takes constant time, however many bins it
    covers."""

    def __init__(self, bins: Bins) -> None:
        self._bins = bins
        # For each bin, the time of spans that cover only part of it.
        self.parts = [0] * bins.n
        # For each bin, the number of spans that cover it completely, minus this number for the
        # preceding bin.
        self._fills = [0] * (bins.n + 1)

    def add(self, start: int, end: int, first: int, last: int) -> None:
        """Add a span inside the window; `first` and `last` are the bins in which it starts and
        ends."""
        if first == last:
            self.parts[first] += end - start
        else:
            edges = self._bins.edges
            self.parts[first] += edges[first + 1] - start
            self.parts[last] += end - edges[last]
            self._fills[first + 1] += 1
            self._fills[last] -= 1

    def times(self) -> list[int]:
        widths = list(map(sub, self._bins.edges[1:], self._bins.edges))
        n, filled = 0, []
        for more in self._fills[:-1]:
            n += more
            filled.append(n)
        return [a + b for a, b in zip(self.parts, map(mul, filled, widths), strict=True)]


class Longest:
    """For each bin, the metadata id of the op with the longest execution within the bin."""

    def __init__(self, bins: Bins) -> None:
        self._bins = bins
        self.stretch = [0] * bins.n
        self._who: list[int | None] = [None] * bins.n
        # For each bin, the op that fills the most consecutive bins from this bin onwards. Each
        # entry is a pair: the index after the last filled bin, and the op's metadata id.
        self._until: list[tuple[int, int]] = [(0, 0)] * (bins.n + 1)

    def add(self, start: int, end: int, first: int, last: int, who: int) -> None:
        edges = self._bins.edges
        if first == last:
            self.see(first, end - start, who)
        else:
            self.see(first, edges[first + 1] - start, who)
            self.see(last, end - edges[last], who)
            if last > self._until[first + 1][0]:
                self._until[first + 1] = last, who

    def see(self, place: int, stretch: int, who: int) -> None:
        if stretch > self.stretch[place]:
            self.stretch[place], self._who[place] = stretch, who

    def of_bins(self) -> list[int | None]:
        until, filler = 0, 0
        found = []
        for place, who in enumerate(self._who):
            if self._until[place][0] > until:
                until, filler = self._until[place]
            found.append(filler if until > place else who)
        return found


def strip_of(step: Step, class_of: Mapping[int, str]) -> Strip:
    """Divide the step into bins; `class_of` maps metadata ids to the classes of ops."""
    start, end = step.timeline.start, step.timeline.end
    if start == end:
        return Strip(0, {}, [], [], [])
    bins = Bins(start, end)
    rows = {name: Row(bins) for name in class_of.values()}
    row_of = {metadata_id: rows[name] for metadata_id, name in class_of.items()}
    parts_of = {metadata_id: row.parts for metadata_id, row in row_of.items()}
    longest = Longest(bins)
    containers = {executions.metadata_id for executions in step.containers}
    # Remember the bin of the last span: in a long step, most ops are in the same bin as the
    # preceding op. Adding such an op is three times as fast without a search for its bin.
    place, stretch = 0, longest.stretch
    left, right = bins.edges[:2]
    for columns in leaves_of(step.admitted.pieces, step.clock, containers):
        for begin, duration, metadata_id in zip(*columns, strict=True):
            if left <= begin and begin + duration <= right:
                parts_of[metadata_id][place] += duration
                if duration > stretch[place]:
                    longest.see(place, duration, metadata_id)
                continue
            first, last = max(begin, start), min(begin + duration, end)
            if first < last:
                place = bins.place(last - 1)
                left, right = bins.edges[place : place + 2]
                span = first, last, bins.place(first), place
                row_of[metadata_id].add(*span)
                longest.add(*span, metadata_id)
    idle = Row(bins)
    for first, last in step.timeline.gaps:
        idle.add(first, last, bins.place(first), bins.place(last - 1))
    of_bins = longest.of_bins()
    named = list(dict.fromkeys(who for who in of_bins if who is not None))
    index_of = {who: i for i, who in enumerate(named)}
    ops = {executions.metadata_id: executions.op for executions in step.leaves}
    times = {name: row.times() for name, row in rows.items()}
    return Strip(
        bins.n,
        {name: row for name, row in times.items() if any(row)},
        idle.times(),
        [None if who is None else index_of[who] for who in of_bins],
        [(ops[who], class_of[who]) for who in named],
    )
