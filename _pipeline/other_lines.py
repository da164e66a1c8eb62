"""What a device's other lines draw, on the clock that tells when the ops of a step ran."""

from __future__ import annotations

from _pipeline.clocks import ON_DEVICE, shifts_nearby
from _pipeline.device import AFTER_ALL, BEFORE_ALL
from _proto.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

    from _pipeline.device import Device
    from _pipeline.normalize import Step

    # From when to when, and what.
    Drawn = tuple[int, int, str | None]


@record
class Event:
    """An event of a line: by the trace's clock, and if the core measured it by the device's."""

    name: str | None
    start: int
    end: int
    measured: tuple[int, int] | None


def drawn_beside(
    step: Step, lines: Iterable[tuple[str, Container[str] | None]]
) -> list[list[Drawn]]:
    """Tell when the events of other lines were under way: of each line all, or those of some names.

    The core may have measured them or not, as ops. One that it did not belongs to what is nearest
    to it, as a barrier to the op that waited behind it; so its ends are as far from the core's
    clock as the nearest start or end of an op is. Those at an edge of the step move with that.
    """
    of_lines = [list(events_on(step.device, line, names)) for line, names in lines]
    if step.clock.name != ON_DEVICE:
        return [[(each.start, each.end, each.name) for each in events] for events in of_lines]
    first, last = step.edges
    unmeasured = [event for events in of_lines for event in events if not event.measured]
    asked = {event.start for event in unmeasured if event.start != first}
    asked |= {event.end for event in unmeasured if event.end != last}
    shifts = shifts_nearby(step.admitted.pieces, asked)

    def moved(event: Event) -> tuple[int, int]:
        start, end = step.timeline.start, step.timeline.end
        if event.start != first:
            start = event.start + shifts[event.start]
        if event.end != last:
            end = event.end + shifts[event.end]
        return start, max(start, end)

    return [
        [(*(event.measured or moved(event)), event.name) for event in events] for events in of_lines
    ]


def events_on(device: Device, line: str, names: Container[str] | None) -> Iterator[Event]:
    """The events of a line that have a valid time."""
    plane = device.plane
    name_of: dict[int, str | None] = {}
    for each in plane.lines(line):
        shift = each.base_ps - device.base
        for events in each.events(BEFORE_ALL, AFTER_ALL):
            for metadata_id, offset, duration, measured in events.rows():
                if metadata_id not in name_of:
                    metadata = plane.metadata(metadata_id)
                    name_of[metadata_id] = metadata.name if metadata else None
                name = name_of[metadata_id]
                if duration >= 0 and (names is None or name in names):
                    start = offset + shift
                    span = (measured[0], sum(measured)) if measured else None
                    yield Event(name, start, start + duration, span)
