"""The step as a strip: in each of its bins the time by class, idle time, and who ran longest."""

from __future__ import annotations

from operator import mul, sub

from _analysis.rows import op_name
from _pipeline.timeline import leaves_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from _pipeline.normalize import Step
    from _pipeline.ops import Op

    Json = dict[str, Any]

N_BINS = 1000


class Bins:
    """A window cut into bins that are equal but for a picosecond."""

    def __init__(self, start: int, end: int) -> None:
        self.start, self.end = start, end
        self.n = min(N_BINS, end - start)
        self.edges = [start + (end - start) * i // self.n for i in range(self.n + 1)]

    def place(self, time: int) -> int:
        """The bin of a moment inside the window."""
        return ((time - self.start + 1) * self.n - 1) // (self.end - self.start)


class Row:
    """How much of each bin some spans take. A span costs the same however long it is."""

    def __init__(self, bins: Bins) -> None:
        self._bins = bins
        self._parts = [0] * bins.n
        # How many more spans fill this bin than filled the one before.
        self._fills = [0] * (bins.n + 1)

    def add(self, start: int, end: int, first: int, last: int) -> None:
        """A span that lies in the window, and the bins of its first and last moment."""
        if first == last:
            self._parts[first] += end - start
        else:
            edges = self._bins.edges
            self._parts[first] += edges[first + 1] - start
            self._parts[last] += end - edges[last]
            self._fills[first + 1] += 1
            self._fills[last] -= 1

    def times(self) -> list[int]:
        widths = list(map(sub, self._bins.edges[1:], self._bins.edges))
        n, filled = 0, []
        for more in self._fills[:-1]:
            n += more
            filled.append(n)
        return [a + b for a, b in zip(self._parts, map(mul, filled, widths), strict=True)]


class Longest:
    """Which op has the longest stretch in each bin."""

    def __init__(self, bins: Bins) -> None:
        self._bins = bins
        self._stretch = [0] * bins.n
        self._who: list[int | None] = [None] * bins.n
        # By the bin in which it begins to fill bins, up to which one who does so the longest.
        self._until: list[tuple[int, int]] = [(0, 0)] * (bins.n + 1)

    def add(self, start: int, end: int, first: int, last: int, who: int) -> None:
        edges = self._bins.edges
        if first == last:
            self._see(first, end - start, who)
        else:
            self._see(first, edges[first + 1] - start, who)
            self._see(last, end - edges[last], who)
            if last > self._until[first + 1][0]:
                self._until[first + 1] = last, who

    def _see(self, place: int, stretch: int, who: int) -> None:
        if stretch > self._stretch[place]:
            self._stretch[place], self._who[place] = stretch, who

    def of_bins(self) -> list[int | None]:
        until, filler = 0, 0
        found = []
        for place, who in enumerate(self._who):
            if self._until[place][0] > until:
                until, filler = self._until[place]
            found.append(filler if until > place else who)
        return found


def strip_of(step: Step, class_of: Mapping[int, str]) -> Json:
    """`class_of` tells the class of each op by its metadata id."""
    start, end = step.timeline.start, step.timeline.end
    if start == end:
        return {"n_bins": 0, "by_class": {}, "idle": [], "longest": [], "ops": []}
    bins = Bins(start, end)
    rows = {name: Row(bins) for name in class_of.values()}
    row_of = {metadata_id: rows[name] for metadata_id, name in class_of.items()}
    longest = Longest(bins)
    containers = {each.metadata_id for each in step.containers}
    for columns in leaves_of(step.admitted.pieces, step.clock, containers):
        for begin, duration, metadata_id in zip(*columns, strict=True):
            first, last = max(begin, start), min(begin + duration, end)
            if first < last:
                span = first, last, bins.place(first), bins.place(last - 1)
                row_of[metadata_id].add(*span)
                longest.add(*span, metadata_id)
    idle = Row(bins)
    for first, last in step.timeline.gaps:
        idle.add(first, last, bins.place(first), bins.place(last - 1))
    of_bins = longest.of_bins()
    named = list(dict.fromkeys(who for who in of_bins if who is not None))
    number = {who: i for i, who in enumerate(named)}
    ops = {each.metadata_id: each.op for each in step.leaves}
    times = {name: row.times() for name, row in rows.items()}
    return {
        "n_bins": bins.n,
        "by_class": {name: row for name, row in times.items() if any(row)},
        "idle": idle.times(),
        # Of each bin, where among the ops.
        "longest": [None if who is None else number[who] for who in of_bins],
        "ops": [op_row(ops[who], class_of[who]) for who in named],
    }


def op_row(op: Op, name: str) -> Json:
    return {
        "hlo_op": op_name(op),
        "program_id": None if op.program_id is None else str(op.program_id),
        "class": name,
        "source_inner": op.source_inner,
        "source_user": op.source_user,
    }
