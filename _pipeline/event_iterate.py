"""Event-iterate: the events that start in a window, by the trace's clock."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate, chain

from _pipeline.clocks import piece_of
from _pipeline.device import AFTER_ALL, BEFORE_ALL
from _pipeline.event_facts import complete_ops
from _proto.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from _pipeline.clocks import Piece
    from _pipeline.device import Device
    from _proto.trace.events import Events
    from _proto.trace.joined import AnyLine


@record
class Admitted:
    """The events of a window, and how many of them had to be left out."""

    pieces: list[Piece]
    n_unresolved: int = 0
    n_negative: int = 0
    # These have no time, so they are of the whole line.
    n_aggregated: int = 0

    @property
    def n_dropped(self) -> int:
        return self.n_unresolved + self.n_negative + self.n_aggregated

    @property
    def n_started(self) -> int:
        """How many events start in the window, whether they are left out or not."""
        n_kept = sum(len(piece.starts) for piece in self.pieces)
        return n_kept + self.n_unresolved + self.n_negative

    @property
    def notes(self) -> list[str]:
        return [
            f"{n} XLA Ops events left out: they {what}"
            for n, what in (
                (self.n_unresolved, "have a metadata id that resolves to nothing"),
                (self.n_negative, "have a negative duration"),
                (self.n_aggregated, "tell how often something occurred instead of when"),
            )
            if n
        ]

    @property
    def span(self) -> tuple[int, int]:
        """From the first start to the last end, by the trace's clock."""
        if not self.pieces:
            return 0, 0
        return min(piece.first for piece in self.pieces), max(piece.last for piece in self.pieces)

    def add(self, events: Events, shift: int, device: Device) -> None:
        """Take the events that can be taken."""
        unknown = device.plane.unknown(set(events.metadata_ids))
        resolved = events
        if unknown:
            resolved = events.where([i not in unknown for i in events.metadata_ids])
            self.n_unresolved += len(events) - len(resolved)
        valid = resolved.lasting()
        self.n_negative += len(resolved) - len(valid)
        if len(valid):
            self.pieces.append(piece_of(valid, shift))


ALWAYS = BEFORE_ALL, AFTER_ALL


def admit(device: Device, windows: Sequence[tuple[int, int]]) -> list[Admitted]:
    """The events that start in each of the windows, which are sorted by start; read once."""
    admitted = [Admitted([]) for _ in windows]
    starts = [start for start, _ in windows]
    # Up to where each window and those before it reach.
    reach = list(accumulate((end for _, end in windows), max))
    for line in device.lines:
        shift = line.base_ps - device.base
        for events in line.events(starts[0] - shift, reach[-1] - shift):
            first = bisect_right(reach, events.first + shift)
            last = bisect_right(starts, events.last + shift)
            spans = [(start - shift, end - shift) for start, end in windows[first:last]]
            for within, of_window in zip(events.among(spans), admitted[first:last], strict=True):
                of_window.add(within, shift, device)
    n_aggregated = sum(line.n_aggregated for line in device.lines)
    for of_window in admitted:
        of_window.n_aggregated = n_aggregated

    def is_admitted(line: AnyLine, offset: int) -> bool:
        start = offset + line.base_ps - device.base
        n = bisect_right(starts, start)
        return n > 0 and start < reach[n - 1]

    pieces = chain.from_iterable(of_window.pieces for of_window in admitted)
    complete_ops(device, pieces, is_admitted)
    return admitted
