"""Why nothing runs: idle time by what else the device's plane knows of it."""

from __future__ import annotations

from _pipeline.device import MODULES_LINE
from _pipeline.intervals import Cover, complement, union
from _pipeline.other_lines import drawn_beside
from _pipeline.timeline import events_of
from _proto.record import cached_property

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pipeline.normalize import Step

WAITS_LINE = "XLA TraceMe"
# For the other cores to arrive; for what the program takes.
AT_BARRIER, FOR_INPUTS = "barrier-cores", "dependency-wait"
# Of several that hold the first; what none of them explains is the last.
BARRIER, DEPENDENCY, IN_CONTAINER, BETWEEN_PROGRAMS, IN_PROGRAM = CAUSES = (
    *("barrier", "dependency", "in_container", "between_programs"),
    "in_program",
)


class Causes:
    """The causes of a step's idle time: what else goes on in it."""

    def __init__(self, step: Step) -> None:
        self._gaps = step.timeline.gaps
        containers = {each.metadata_id for each in step.containers}
        enclosing = events_of(step.admitted.pieces, step.clock, containers)
        window = step.timeline.start, step.timeline.end
        programs, waits = drawn_beside(
            step, [(MODULES_LINE, None), (WAITS_LINE, (AT_BARRIER, FOR_INPUTS))]
        )
        of_cause = (
            [(start, end) for start, end, name in waits if name == AT_BARRIER],
            [(start, end) for start, end, name in waits if name == FOR_INPUTS],
            [(start, start + duration) for start, duration, _ in enclosing],
            # Without any event the line doesn't tell.
            complement(union((start, end) for start, end, _ in programs), window)
            if programs
            else [],
            [window],
        )
        # The time of each cause and of those before it: what the next adds is its own.
        self._covers: list[Cover] = []
        stretches: list[tuple[int, int]] = []
        for spans in of_cause:
            stretches = union([*stretches, *spans])
            self._covers.append(Cover.of(stretches))

    def of_span(self, start: int, end: int) -> dict[str, int]:
        """The time of each cause between two times, if nothing runs there."""
        return self._by_cause([cover.within(start, end) for cover in self._covers])

    @cached_property
    def of_step(self) -> dict[str, int]:
        """Add up the idle time of the whole step by cause."""
        gaps = self._gaps
        return self._by_cause(
            [sum(gaps.within(*stretch) for stretch in cover) for cover in self._covers]
        )

    def _by_cause(self, until: Iterable[int]) -> dict[str, int]:
        """From what each and those before it take to what each takes."""
        before = 0
        times = {}
        for cause, time in zip(CAUSES, until, strict=True):
            times[cause] = time - before
            before = time
        return times
