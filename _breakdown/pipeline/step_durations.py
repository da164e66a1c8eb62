"""Measure the durations of all steps on the clock of the picked step.

A step can have times only on the trace's clock, which is fitted and can jump between the step's
start and its end. Then the device's clock is known from the ops near both ends.
"""

from __future__ import annotations

from collections.abc import Sequence

from _breakdown.pipeline.clocks import ON_DEVICE, Piece, clock_of
from _breakdown.pipeline.event_iterate import Admitted, admit
from _breakdown.pipeline.normalize import Step, window_of
from _breakdown.pipeline.step_event import StepEvent

# Read steps with at most this many ops whole, because they fit into few pieces of the file.
_FEW = 2000
# Parts of a step that are searched for ops at its start and at its end.
_PARTS = (256, 16, 1)


def durations_of(step: Step) -> dict[int, int]:
    """Return the durations of the device's steps by index. Steps without measured ops have only a
    duration on the trace's clock."""
    return step.once(durations_of, lambda: _durations_of(step))


def _durations_of(step: Step) -> dict[int, int]:
    steps = step.device.steps
    durations = {event.index: event.duration for event in steps}
    if step.picked:
        durations[step.picked.index] = step.duration
    if step.clock.name != ON_DEVICE:
        return durations
    others = [event for event in steps if event is not step.picked and event.n_events]
    for event in others:
        if event.device_span:
            durations[event.index] = event.device_span[1] - event.device_span[0]
    fitted = [event for event in others if not event.device_span]
    for part in _PARTS:
        found = ops_at_ends(step, fitted, part)
        for event, pieces in found:
            clock = clock_of(pieces, [event.end])
            near = Admitted((event.start, event.end))
            near.pieces = pieces
            start, end = window_of(event, near, clock)
            durations[event.index] = end - start
        # Search a larger part of steps without ops near one of their ends.
        measured = {event.index for event, _ in found}
        fitted = [event for event in fitted if event.index not in measured]
    return durations


def ops_at_ends(
    step: Step, events: Sequence[StepEvent], part: int
) -> list[tuple[StepEvent, list[Piece]]]:
    """Return the steps that have ops near both ends, each with these ops."""
    windows = sorted(
        (*span, event.index)
        for event in events
        for span in spans_of(event, 1 if event.n_events <= _FEW else part)
    )
    found: dict[int, list[list[Piece]]] = {event.index: [] for event in events}
    if windows:
        admitted = admit(step.device, [(start, end) for start, end, _ in windows])
        for (_, _, index), of_window in zip(windows, admitted, strict=True):
            found[index].append(of_window.pieces)
    return [
        (event, [piece for pieces in found[event.index] for piece in pieces])
        for event in events
        if all(found[event.index])
    ]


def spans_of(event: StepEvent, part: int) -> list[tuple[int, int]]:
    if part == 1:
        return [(event.start, event.end)]
    length = event.duration // part
    return [(event.start, event.start + length), (event.end - length, event.end)]
