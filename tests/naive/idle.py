"""The mode idle: what the device waits for, and what its host does.

Time is cut wherever anything begins or ends; between two cuts nothing changes, and each piece is
asked for what holds where it begins.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from tests.naive.op import LineEvent, Plane, Span, distinct, grouped, length, union
from tests.naive.step import Clocks, Json, Picked

CAUSES = ("barrier", "dependency", "in_container", "between_programs", "in_program")
MICROSECOND = 10**6


# --- causes --------------------------------------------------------------------------------------


def nearest_delta(clocks: Clocks, time: int) -> int:
    """Return the clocks' difference at the start or end of an op nearest to a time."""
    marks = [
        mark
        for on_trace, on_device in clocks.timed
        for mark in ((on_trace.start, on_device.start), (on_trace.end, on_device.end))
    ]
    on_trace, on_device = min(marks, key=lambda m: (abs(m[0] - time), -m[0], -m[1]))
    return on_device - on_trace


def placed(step: Picked, event: LineEvent) -> Span | None:
    """Return when an event of another line ran, by the clock of the ops."""
    drawn = event.on_trace
    if drawn is None or not step.is_timed:
        return drawn
    if event.on_device is not None:
        return event.on_device
    start = drawn.start + nearest_delta(step.clocks, drawn.start)
    end = drawn.end + nearest_delta(step.clocks, drawn.end)
    if drawn.start == step.step.on_trace.start:
        start = step.window.start
    if drawn.end == step.step.on_trace.end:
        end = step.window.end
    return Span(start, max(start, end))


def all_placed(step: Picked, line: str, name: str | None = None) -> list[Span]:
    ops = step.plane.ops
    found = [
        placed(step, e)
        for e in step.plane.events_of(line)
        if name is None or (e.metadata_id in ops and ops[e.metadata_id].text == name)
    ]
    return [span for span in found if span is not None]


def pieces(span: Span, cuts: Iterable[int]) -> list[Span]:
    """Cut a span at times inside it."""
    edges = [span.start, *sorted({c for c in cuts if span.start < c < span.end}), span.end]
    return [Span(a, b) for a, b in pairwise(edges)]


class Causes:
    def __init__(self, step: Picked) -> None:
        self.programs = all_placed(step, "XLA Modules")
        self.barriers = all_placed(step, "XLA TraceMe", "barrier-cores")
        self.dependencies = all_placed(step, "XLA TraceMe", "dependency-wait")
        self.containers = [Span(e.start, e.end) for e in step.containers]

    def at(self, time: int) -> str:
        def within(spans: list[Span]) -> bool:
            return any(span.holds(time) for span in spans)

        if within(self.barriers):
            return "barrier"
        if within(self.dependencies):
            return "dependency"
        if within(self.containers):
            return "in_container"
        if self.programs and not within(self.programs):
            return "between_programs"
        return "in_program"

    def of(self, gaps: list[Span]) -> dict[str, int]:
        spans = [*self.programs, *self.barriers, *self.dependencies, *self.containers]
        cuts = {edge for span in spans for edge in (span.start, span.end)}
        parts = [(self.at(p.start), p.duration) for gap in gaps for p in pieces(gap, cuts)]
        return {cause: sum(ps for each, ps in parts if each == cause) for cause in CAUSES}


def idle_by_cause(step: Picked) -> dict[str, int]:
    return Causes(step).of(step.gaps())


# --- the host ------------------------------------------------------------------------------------


@dataclass(eq=False)
class HostEvent:
    name: str
    span: Span
    place: int  # its position in the file

    def encloses(self, other: HostEvent) -> bool:
        is_around = self.span.start <= other.span.start and other.span.end <= self.span.end
        is_equal = self.span == other.span
        return self is not other and is_around and (not is_equal or self.place < other.place)


def inwards(event: HostEvent) -> tuple[int, int, int]:
    """Return a key that is greater for inner events."""
    return event.span.start, -event.span.end, event.place


@dataclass
class Stretch:
    """A time in which one event of a line is the innermost."""

    event: HostEvent
    span: Span
    line: list[HostEvent]


def innermost(line: list[HostEvent], window: Span) -> list[Stretch]:
    found: list[Stretch] = []
    cuts = [edge for e in line for edge in (e.span.start, e.span.end)]
    for piece in pieces(window, cuts):
        around = [e for e in line if e.span.holds(piece.start)]
        if not around:
            continue
        event = max(around, key=inwards)
        if found and found[-1].event is event and found[-1].span.end == piece.start:
            found[-1].span = Span(found[-1].span.start, piece.end)
        else:
            found.append(Stretch(event, piece, line))
    return found


@dataclass
class Thread:
    name: str
    lines: list[list[HostEvent]]

    def is_still(self, window: Span) -> bool:
        edges = [t for line in self.lines for e in line for t in (e.span.start, e.span.end)]
        return not any(window.start < edge < window.end for edge in edges)

    def stretches(self, window: Span) -> list[Stretch]:
        return [stretch for line in self.lines for stretch in innermost(line, window)]


def time(stretches: list[Stretch]) -> int:
    return sum(stretch.span.duration for stretch in stretches)


def row_of(thread: Thread, window: Span, name: str, stretches: list[Stretch]) -> Json:
    # The first of the longest decides.
    longest = max(stretches, key=lambda stretch: stretch.span.duration)
    around = [e for e in longest.line if e.encloses(longest.event)]
    around.sort(key=inwards, reverse=True)
    return {
        "thread": thread.name,
        "event": name,
        "dur_ps": time(stretches),
        "still": thread.is_still(window),
        "within": [e.name for e in around[:8]],
    }


def decimal(number: int) -> int | str:
    return number if -(2**53) <= number <= 2**53 else str(number)


class Idle:
    def __init__(self, step: Picked) -> None:
        host, self.step = step.host, step
        self.is_known = host is not None and self.have_common_time(host)
        self.threads = self.threads_of(host) if host is not None else []

    def have_common_time(self, host: Plane) -> bool:
        of_host = [span for line in host.lines for e in line.events if (span := e.on_trace)]
        of_ops = [span for e in self.step.plane.events_of("XLA Ops") if (span := e.on_trace)]
        if not (of_host and of_ops):
            return False
        start = max(min(span.start for span in spans) for spans in (of_host, of_ops))
        end = min(max(span.end for span in spans) for spans in (of_host, of_ops))
        return start < end

    def threads_of(self, host: Plane) -> list[Thread]:
        names = distinct(line.name for line in host.lines)
        lines = [line for name in names for line in host.lines_named(name)]
        threads = grouped(lines, lambda line: (line.name, "" if line.name else str(line.id)))
        return [
            Thread(
                name or line_id,
                [
                    [
                        HostEvent(host.ops[e.metadata_id].text, span, place)
                        for place, e in enumerate(line.events)
                        if (span := e.on_trace) and e.metadata_id in host.ops
                    ]
                    for line in of_thread
                ],
            )
            for (name, line_id), of_thread in threads.items()
        ]

    def window(self, gap: Span) -> Span | None:
        """Return when a gap was, by the trace's clock."""
        before, behind = self.step.before(gap), self.step.behind(gap)
        start = self.step.step.on_trace.start if before is None else before.on_trace.end
        end = self.step.step.on_trace.end if behind is None else behind.on_trace.start
        return Span(start, end) if start < end else None

    def host(self, window: Span) -> list[Json]:
        rows = []
        for thread in self.threads:
            by_name = grouped(thread.stretches(window), lambda stretch: stretch.event.name)
            rows += [row_of(thread, window, name, by_name[name]) for name in by_name]
        rows.sort(key=lambda row: (row["still"], -row["dur_ps"], row["event"], row["thread"]))
        return rows[:8]

    def host_events(self) -> list[Json]:
        """Return the longest host events in gaps; windows that overlap count as one."""
        long = [gap for gap in self.step.gaps() if gap.duration >= MICROSECOND]
        windows = joined([window for gap in long if (window := self.window(gap))])
        seen = [
            (thread, stretch)
            for thread in self.threads
            for window in windows
            if not thread.is_still(window)
            for stretch in thread.stretches(window)
        ]
        rows = [
            {
                "event": name,
                "dur_ps": length(union((s.span.start, s.span.end) for _, s in found)),
                "n_threads": len({id(thread) for thread, _ in found}),
            }
            for name, found in grouped(seen, lambda each: each[1].event.name).items()
        ]
        return sorted(rows, key=lambda row: (-int(str(row["dur_ps"])), row["event"]))[:20]

    def gap_row(self, gap: Span) -> Json:
        window = self.window(gap)
        cause = Causes(self.step).of([gap])
        return {
            **self.step.gap_row(gap),
            "cause": {name: ps for name, ps in cause.items() if ps},
            "trace_window_ps": [decimal(window.start), decimal(window.end)] if window else None,
            "host": self.host(window) if window and self.is_known else None,
        }

    def answer(self) -> Json:
        top = 10 if self.step.options.top is None else self.step.options.top
        return {
            "idle_by_cause": idle_by_cause(self.step),
            "gaps": [self.gap_row(gap) for gap in self.step.gaps()[:top]],
            "host_events": self.host_events() if self.is_known else None,
        }


def joined(windows: list[Span]) -> list[Span]:
    """Join windows that overlap; windows that only touch stay apart."""
    found: list[Span] = []
    for window in sorted(windows, key=lambda w: (w.start, w.end)):
        if found and window.start < found[-1].end:
            found[-1] = Span(found[-1].start, max(found[-1].end, window.end))
        else:
            found.append(window)
    return found
