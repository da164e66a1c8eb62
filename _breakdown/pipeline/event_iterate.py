"""Read the events that start in a window on the trace's clock (the stage event-iterate)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

from _breakdown.light import cached_property
from _breakdown.pipeline.clocks import Piece
from _breakdown.pipeline.device import AFTER_ALL, BEFORE_ALL, Device
from _breakdown.pipeline.step_event import StepEvent
from _breakdown.units import counted
from _proto.trace.events import Events


class Admitted:
    """A window's events, and how many events were left out for each reason."""

    def __init__(self, window: tuple[int, int]) -> None:
        self.window = window
        self.pieces: list[Piece] = []
        self.n_unresolved = 0
        self.n_negative = 0
        # Aggregated events have no start time, so they are counted in every window.
        self.n_aggregated = 0

    @property
    def n_dropped(self) -> int:
        return self.n_unresolved + self.n_negative + self.n_aggregated

    @property
    def n_started(self) -> int:
        """Count the events that start in the window, including those without metadata or with a
        negative duration."""
        n_kept = sum(len(piece.starts) for piece in self.pieces)
        return n_kept + self.n_unresolved + self.n_negative

    @property
    def notes(self) -> list[str]:
        return [
            f"left out {counted(n, 'event')} of the XLA Ops line ({what})"
            for n, what in (
                (self.n_unresolved, "no metadata"),
                (self.n_negative, "negative duration"),
                (self.n_aggregated, "no time, only a number of occurrences"),
            )
            if n
        ]

    @cached_property
    def span(self) -> tuple[int, int]:
        """Return the first start and the last end of the events, on the trace's clock."""
        if not self.pieces:
            return 0, 0
        return min(piece.first for piece in self.pieces), max(piece.last for piece in self.pieces)

    def add(self, events: Events, shift: int, device: Device) -> None:
        """Keep events with metadata and a valid duration, and count the others."""
        unknown = device.plane.unknown(events.distinct_ids)
        resolved = events
        if unknown:
            resolved = events.where([i not in unknown for i in events.metadata_ids])
            self.n_unresolved += len(events) - len(resolved)
        valid = resolved.lasting()
        self.n_negative += len(resolved) - len(valid)
        if len(valid):
            self.pieces.append(Piece(valid, shift))


ALWAYS = BEFORE_ALL, AFTER_ALL


def read_events(device: Device, picked: StepEvent | None) -> Admitted:
    """Return the events of a step; without a step, those of the whole line, except for programs
    that the capture cuts off."""
    if picked:
        # Reading only the starts takes a sixth of the time of decoding the events.
        for line in device.lines:
            line.index()
    window = (picked.start, picked.end) if picked else device.whole or ALWAYS
    (admitted,) = admit(device, [window])
    return admitted


def admit(device: Device, windows: Sequence[tuple[int, int]]) -> list[Admitted]:
    """Read the device's lines once, and return the events of each window. Windows must be sorted by
    start."""
    admitted = [Admitted(window) for window in windows]
    starts = [start for start, _ in windows]
    # For each window, the latest end among it and all windows before it.
    reach = list(accumulate((end for _, end in windows), max))
    for line in device.lines:
        shift = line.base_ps - device.base
        wanted = [(start - shift, end - shift) for start, end in zip(starts, reach, strict=True)]
        for events in line.events(wanted[0][0], wanted[-1][1], wanted):
            first = bisect_right(reach, events.first + shift)
            last = bisect_right(starts, events.last + shift)
            spans = [(start - shift, end - shift) for start, end in windows[first:last]]
            for within, of_window in zip(events.among(spans), admitted[first:last], strict=True):
                of_window.add(within, shift, device)
    # Count aggregated events last, because counting them on an unread line takes an extra pass.
    n_aggregated = sum(line.n_aggregated for line in device.lines)
    for of_window in admitted:
        of_window.n_aggregated = n_aggregated
    return admitted
