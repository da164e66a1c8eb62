"""Divide the step into bins, and find the time by class, the idle time and the longest op for each
bin."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from _breakdown.light import NamedTuple
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.timeline import leaves_of

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

    def parts(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield each bin that a span inside the window touches, and the span's time in the bin."""
        place = self.place(start)
        while start < end:
            until = min(end, self.edges[place + 1])
            yield place, until - start
            start, place = until, place + 1


def strip_of(step: Step, class_of: Mapping[int, str]) -> Strip:
    """Divide the step into bins; `class_of` maps metadata ids to the classes of ops."""
    start, end = step.timeline.start, step.timeline.end
    if start == end:
        return Strip(0, {}, [], [], [])
    bins = Bins(start, end)
    rows = {name: [0] * bins.n for name in class_of.values()}
    row_of = {metadata_id: rows[name] for metadata_id, name in class_of.items()}
    idle = [0] * bins.n
    # For each bin, the op with the longest execution within the bin, and the time of the execution.
    longest: list[int | None] = [None] * bins.n
    most = [0] * bins.n
    containers = {ran.metadata_id for ran in step.containers}
    # Remember the bin of the last span: in a long step, most ops are in the same bin as the
    # preceding op. Adding such an op is three times as fast without a search for its bin.
    left = right = place = 0
    for columns in leaves_of(step.admitted.pieces, step.clock, containers):
        for begin, duration, metadata_id in zip(*columns, strict=True):
            if left <= begin and begin + duration <= right:
                row_of[metadata_id][place] += duration
                if duration > most[place]:
                    longest[place], most[place] = metadata_id, duration
                continue
            first, last = max(begin, start), min(begin + duration, end)
            if first >= last:
                continue
            for place, time in bins.parts(first, last):
                row_of[metadata_id][place] += time
                if time > most[place]:
                    longest[place], most[place] = metadata_id, time
            left, right = bins.edges[place : place + 2]
    for first, last in step.timeline.gaps:
        for place, time in bins.parts(first, last):
            idle[place] += time
    named = list(dict.fromkeys(who for who in longest if who is not None))
    index_of = {who: i for i, who in enumerate(named)}
    ops = {ran.metadata_id: ran.op for ran in step.leaves}
    return Strip(
        bins.n,
        {name: row for name, row in rows.items() if any(row)},
        idle,
        [None if who is None else index_of[who] for who in longest],
        [(ops[who], class_of[who]) for who in named],
    )
