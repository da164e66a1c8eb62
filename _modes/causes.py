"""Why nothing runs: idle time by what else the device's plane knows of it."""

from __future__ import annotations

from _pipeline.beside import drawn_beside
from _pipeline.device import MODULES_LINE
from _pipeline.timeline import Cover, events_of, merged

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from _pipeline.normalize import Step
    from _pipeline.timeline import Gaps

WAITS_LINE = "XLA TraceMe"
# For the other cores to arrive; for what the program takes.
AT_BARRIER, FOR_INPUTS = "barrier-cores", "dependency-wait"
# Of several that hold the first; what none of them explains is the last.
BARRIER, DEPENDENCY, IN_CONTAINER, BETWEEN_PROGRAMS, IN_PROGRAM = CAUSES = (
    *("barrier", "dependency", "in_container", "between_programs"),
    "in_program",
)


class Causes:
    """What else goes on in a step."""

    def __init__(self, step: Step) -> None:
        containers = {each.metadata_id for each in step.containers}
        enclosing = events_of(step.admitted.pieces, step.clock, containers)
        window = step.timeline.start, step.timeline.end
        programs = [(start, end) for start, end, _ in drawn_beside(step, MODULES_LINE)]
        waits = drawn_beside(step, WAITS_LINE, (AT_BARRIER, FOR_INPUTS))
        of_cause = (
            [(start, end) for start, end, name in waits if name == AT_BARRIER],
            [(start, end) for start, end, name in waits if name == FOR_INPUTS],
            [(start, start + duration) for start, duration, _ in enclosing],
            # Without any event the line doesn't tell.
            between(merged(programs), window) if programs else [],
            [window],
        )
        # The time of each cause and of those before it: what the next adds is its own.
        self._until: list[list[tuple[int, int]]] = []
        stretches: list[tuple[int, int]] = []
        for spans in of_cause:
            stretches = merged([*stretches, *spans])
            self._until.append(stretches)
        self._covers = list(map(Cover, self._until))

    def of_span(self, start: int, end: int) -> dict[str, int]:
        """The time of each cause between two times, if nothing runs there."""
        return self._by_cause([cover.within(start, end) for cover in self._covers])

    def of_gaps(self, gaps: Gaps) -> dict[str, int]:
        idle = Cover(gaps)
        return self._by_cause(
            [sum(idle.within(*stretch) for stretch in until) for until in self._until]
        )

    def _by_cause(self, until: Iterable[int]) -> dict[str, int]:
        """From what each and those before it take to what each takes."""
        before = 0
        times = {}
        for cause, time in zip(CAUSES, until, strict=True):
            times[cause] = time - before
            before = time
        return times


def between(stretches: Iterable[tuple[int, int]], window: tuple[int, int]) -> list[tuple[int, int]]:
    """What of a window lies outside of stretches that are in order and apart."""
    start, end = window
    outside = []
    for first, last in stretches:
        if start < min(first, end):
            outside.append((start, min(first, end)))
        start = max(start, last)
    if start < end:
        outside.append((start, end))
    return outside


def idle_by_cause(step: Step) -> dict[str, int]:
    return Causes(step).of_gaps(step.gaps())
