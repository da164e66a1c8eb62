"""Find the causes of idle time, using the other lines of the device's plane."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from operator import attrgetter

from _breakdown.light import cached_property
from _breakdown.pipeline.device import AFTER_ALL, Device, Event
from _breakdown.pipeline.intervals import Cover, complement, union
from _breakdown.pipeline.timeline import Span, Timeline

# Start and end of an event on the step's clock, and the event's name.
NamedSpan = tuple[int, int, str | None]

WAITS_LINE = "XLA TraceMe"
# Names of events during which the core waits at a barrier for other cores, or waits for the
# program's inputs.
AT_BARRIER, FOR_INPUTS = "barrier-cores", "dependency-wait"
# If several causes apply at the same time, the first one in CAUSES counts. The last cause is for
# time that no other cause explains.
BARRIER, DEPENDENCY, IN_CONTAINER, BETWEEN_PROGRAMS, IN_PROGRAM = CAUSES = (
    *("barrier", "dependency", "in_container", "between_programs"),
    "in_program",
)


def barriers_of(device: Device) -> list[Event]:
    """Return the events during which the core waits for other cores, in order of time."""
    return sorted(device.events_on(WAITS_LINE, (AT_BARRIER,)), key=attrgetter("start"))


class IdleCauses:
    """Idle time of a step by cause."""

    def __init__(
        self,
        timeline: Timeline,
        programs: Sequence[NamedSpan],
        waits: Sequence[NamedSpan],
        # Executions of containers.
        enclosing: Iterable[Span],
    ) -> None:
        self._gaps = timeline.gaps
        window = timeline.start, timeline.end
        spans_of_causes = (
            [(start, end) for start, end, name in waits if name == AT_BARRIER],
            [(start, end) for start, end, name in waits if name == FOR_INPUTS],
            [(start, start + duration) for start, duration, _ in enclosing],
            # If the line has no events, it is unknown when programs ran.
            complement(union((start, end) for start, end, _ in programs), window)
            if programs
            else [],
            [window],
        )
        # Each cover includes the time of a cause and of all preceding causes, so the cause's own
        # time is the difference between two covers.
        self._covers: list[Cover] = []
        stretches: list[tuple[int, int]] = []
        for spans in spans_of_causes:
            stretches = union([*stretches, *spans])
            self._covers.append(Cover.of(stretches))

    def of_span(self, start: int, end: int) -> dict[str, int]:
        """Return the time of each cause within a span of idle time."""
        return self._by_cause([cover.within(start, end) for cover in self._covers])

    @cached_property
    def of_step(self) -> dict[str, int]:
        """Return the step's total idle time by cause."""
        gaps = self._gaps
        return self._by_cause([gaps.within_all(cover.starts, cover.ends) for cover in self._covers])

    def stretches(self) -> Iterator[tuple[int, int, str]]:
        """Yield the start, end and cause of each stretch of idle time, in order of start."""
        upcoming = [chain(cover, [(AFTER_ALL, AFTER_ALL)]) for cover in self._covers]
        current = [next(spans) for spans in upcoming]
        for time, end_of_gap in self._gaps:
            start = time
            while start < end_of_gap:
                end = end_of_gap
                # The last cover spans the whole step, so at least one cover contains the start.
                for i, cause in enumerate(CAUSES):
                    while current[i][1] <= start:
                        current[i] = next(upcoming[i])
                    first, last = current[i]
                    if first <= start:
                        end = min(end, last)
                        yield start, end, cause
                        break
                    end = min(end, first)
                start = end

    def _by_cause(self, cumulative: Iterable[int]) -> dict[str, int]:
        before = 0
        times = {}
        for cause, time in zip(CAUSES, cumulative, strict=True):
            times[cause] = time - before
            before = time
        return times
