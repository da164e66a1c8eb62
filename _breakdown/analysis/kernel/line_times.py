"""Divide the time of kernels among their source lines.

A marker of a traced kernel tells when the core was at a bundle of the schedule. Between two markers
it ran the bundles on the way from one to the other. So the time between markers is measured, and
only its division among these bundles, in equal parts, is an estimate. Without markers, the kernel's
time is divided among the bundles as often as the loops run them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import accumulate

from _breakdown.analysis.kernel.kernel_regions import (
    KernelExecution,
    is_wait,
    kernel_executions,
    region_events,
    spans_in,
    starting_in,
)
from _breakdown.pipeline.normalize import Step
from _proto.llo import Schedule, Span

MARKERS_LINE = "Tensor Core"
# A way that takes this many times as long as is usual for its bundles contains something else.
TOO_LONG = 2
# Kinds of points in time, in the order in which they count if they have the same time.
_REGION_END, _MARKER, _REGION_START = range(3)


class Marked:
    """Times of an op's executions, as the markers show them."""

    def __init__(self) -> None:
        # The times between two markers, by the bundles of the markers.
        self.ways: dict[Span, list[int]] = {}
        # The time in regions that only wait for copies, by name.
        self.waits: Counter[str] = Counter()
        # The time of executions without markers.
        self.unmarked = 0


class MarkedRun:
    """An execution on its way through the schedule, at a time and, since the last marker, at a
    bundle."""

    def __init__(self, execution: KernelExecution, schedule: Schedule, marked: Marked) -> None:
        self._schedule, self._marked, self._end = schedule, marked, execution.end
        self._time, self._bundle = execution.start, 0
        # The time since the last marker, without waits.
        self._since = 0
        self._marker: tuple[int, str] | None = None
        # The open regions: name and last bundle.
        self._opened: list[tuple[str, int | None]] = []

    def reach(self, time: int, kind: int, value: str) -> None:
        self._advance(time)
        if kind == _MARKER:
            number = value.removeprefix("bundle.")
            bundle = self._schedule.bundle_of(int(number)) if is_number(number) else None
            self._pass(bundle, (kind, value))
        elif kind == _REGION_START:
            places = sorted(self._schedule.named.get(value, ()))
            after = [place for place in places if place[0] >= self._bundle]
            first, last = next(iter(after or places), (None, None))
            self._pass(first, (kind, value))
            self._opened.append((value, last))
        else:
            same = [i for i, (name, _) in enumerate(self._opened) if name == value]
            if same:
                self._pass(self._opened.pop(same[-1])[1], (kind, value))

    def finish(self) -> None:
        self._advance(self._end)
        if self._marker:
            self._pass(self._schedule.n_bundles, (_MARKER, ""))
        else:
            self._marked.unmarked += self._since

    def _advance(self, time: int) -> None:
        elapsed = time - self._time
        waits = [name for name, _ in self._opened if is_wait(name)]
        if waits:
            self._marked.waits[waits[-1]] += elapsed
        else:
            self._since += elapsed
        self._time = time

    def _pass(self, bundle: int | None, marker: tuple[int, str]) -> None:
        if bundle is None:
            return
        # Only the same marker in the same bundle shows that a loop went around.
        if bundle != self._bundle or marker == self._marker:
            self._marked.ways.setdefault((self._bundle, bundle), []).append(self._since)
            self._since = 0
        self._bundle, self._marker = bundle, marker


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 10


def marked_executions(step: Step, schedules: Mapping[int, Schedule]) -> dict[int, Marked]:
    """Read the markers of ops with schedules, by metadata id. Ops without any marker are
    omitted."""
    every = kernel_executions(step)
    points: list[tuple[int, tuple[int, str]]] = []
    for start, (_, name) in spans_in(step, every, step.device.events_on(MARKERS_LINE)):
        points.append((start, (_MARKER, name)))
    if not points:
        return {}
    for start, (end, name) in spans_in(step, every, region_events(step)):
        points += [(start, (_REGION_START, name)), (end, (_REGION_END, name))]
    # Points at the same time stay in the order in which they are listed.
    points.sort(key=lambda point: (point[0], point[1][0]))
    found: dict[int, Marked] = {}
    runs = {
        execution: MarkedRun(execution, schedule, found.setdefault(execution.metadata_id, Marked()))
        for execution in every
        if (schedule := schedules.get(execution.metadata_id))
    }
    for execution, time, (kind, value) in starting_in(every, points):
        if execution in runs:
            runs[execution].reach(time, kind, value)
    for run in runs.values():
        run.finish()
    return {metadata_id: marked for metadata_id, marked in found.items() if marked.ways}


def way(schedule: Schedule, first: int, last: int) -> list[Span]:
    """Return the bundles from one marker to the next; nothing if there is no way."""
    if first < last:
        return [(first, last)]
    around = [loop for loop in schedule.loops if loop.start <= last <= first < loop.end]
    if around:
        innermost = min(around, key=lambda loop: loop.end - loop.start)
        return [(first, innermost.end), (innermost.start, last)]
    return [(first, first + 1)] if first == last else []


def inside(spans: Iterable[Span], way_of: Sequence[Span]) -> list[Span]:
    """Return the spans that lie wholly on a way, longest first. The core has already entered a span
    that begins at the way's start."""
    found = [
        (start, end)
        for start, end in spans
        if any(first < start and end <= last for first, last in way_of)
    ]
    return sorted(found, key=lambda span: (span[0] - span[1], span))


def length(spans: Iterable[Span]) -> int:
    return sum(end - start for start, end in spans)


class Divided:
    """The time of an op, divided among the bundles of its schedule, waits, and what is unknown."""

    def __init__(self, schedule: Schedule, marked: Marked) -> None:
        self._schedule = schedule
        # The bundles of markers that were seen.
        self._markers = sorted({bundle for ends in marked.ways for bundle in ends})
        self.waits = Counter(marked.waits)
        self.unknown = marked.unmarked
        self._changes = [0.0] * (schedule.n_bundles + 1)
        ways = [(way(schedule, *ends), times) for ends, times in marked.ways.items()]
        self._pace = _pace(schedule, ways)
        for way_of, times in ways:
            bodies = inside(schedule.bodies, way_of)
            passed_by = {body for body in bodies if self._markers_inside([body], bodies)}
            by_skipped: dict[tuple[Span, ...], list[int]] = {}
            for time in times:
                skipped = self._skipped(bodies, passed_by, length(way_of), time)
                by_skipped.setdefault(skipped, []).append(time)
            for skipped, alike in by_skipped.items():
                self._divide(way_of, bodies, skipped, alike)

    @property
    def weights(self) -> list[float]:
        """Return the time of each bundle."""
        return list(accumulate(self._changes[:-1]))

    def _markers_inside(self, spans: Iterable[Span], bodies: Iterable[Span]) -> list[int]:
        """Return the markers inside spans, but not inside smaller bodies of ifs."""
        found = []
        for start, end in spans:
            inner = [
                (a, b) for a, b in bodies if start <= a and b <= end and (a, b) != (start, end)
            ]
            first, last = bisect_right(self._markers, start), bisect_left(self._markers, end)
            found += [at for at in self._markers[first:last] if not _in(inner, [at])]
        return found

    def _skipped(
        self, bodies: Iterable[Span], passed_by: Container[Span], n: int, time: int
    ) -> tuple[Span, ...]:
        """Return the bodies of ifs that were not taken: they would have passed a marker, or the
        time is nearer to that without them."""
        skipped: list[Span] = []
        for start, end in bodies:
            is_left = any(a <= start and end <= b for a, b in skipped)
            is_short = time < (n - (end - start) / 2) * self._pace
            if not is_left and (is_short or (start, end) in passed_by):
                skipped.append((start, end))
                n -= end - start
        return tuple(skipped)

    def _divide(
        self,
        way_of: Sequence[Span],
        bodies: Sequence[Span],
        skipped: Sequence[Span],
        times: Sequence[int],
    ) -> None:
        """Divide the times of a way. If it passes other markers, and takes too long, markers were
        lost. Otherwise, what it takes beyond its usual time belongs to the loops on the way, or is
        the wait for a copy, if there is one."""
        total = sum(times)
        n = length(way_of) - length(skipped)
        if not n:
            self.unknown += total
            return
        usual = n * self._pace
        loops = inside(((loop.start, loop.end) for loop in self._schedule.loops), way_of)
        beyond = round(sum(time - usual for time in times if time > TOO_LONG * usual))
        if beyond and self._markers_inside(way_of, bodies):
            self.unknown += beyond
        elif loops:
            self._spread(loops, beyond)
        elif _in(way_of, self._schedule.dma_waits) - _in(skipped, self._schedule.dma_waits):
            # Nothing waits in the shortest of several runs, unless that is too long, too.
            if usual < min(times) <= TOO_LONG * usual:
                usual = min(times)
            beyond = round(sum(max(0, time - usual) for time in times))
            self.waits[""] += beyond
        else:
            beyond = 0
        self._spread([*way_of, *((end, start) for start, end in skipped)], total - beyond)

    def _spread(self, spans: Iterable[Span], time: int) -> None:
        """Divide a time among bundles. A span whose end comes first is left out."""
        each = time / length(spans)
        for start, end in spans:
            self._changes[start] += each
            self._changes[end] -= each


def _in(spans: Iterable[Span], bundles: Iterable[int]) -> set[int]:
    return {bundle for start, end in spans for bundle in bundles if start <= bundle < end}


def _pace(schedule: Schedule, ways: Iterable[tuple[Sequence[Span], Sequence[int]]]) -> float:
    """Return the usual time of a bundle: the median over the bundles on ways without waits and ifs,
    or over all bundles if there are none."""
    plain: list[tuple[float, int]] = []
    others: list[tuple[float, int]] = []
    for way_of, times in ways:
        n = length(way_of) * len(times)
        if n:
            is_plain = not _in(way_of, schedule.dma_waits) and not inside(schedule.bodies, way_of)
            (plain if is_plain else others).append((sum(times) / n, n))
    samples = sorted(plain or others)
    reached = accumulate(n for _, n in samples)
    half = sum(n for _, n in samples) / 2
    return next((pace for (pace, _), n in zip(samples, reached, strict=True) if n >= half), 0.0)
