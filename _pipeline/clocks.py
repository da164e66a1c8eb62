"""The two clocks by which a trace times an op.

A profiler writes two times of an op. `offset_ps` and `duration_ps` are fitted to the host's
clock; only there do steps and ops meet, so they decide what belongs to a step. But the fit bends:
it jumps, ops are stretched over their successors and these shrink to nothing. How long an op
took, and where it lies among the others, is what the core measured, and the event's stats tell.

Where one of them is not measured, as loops often are not, its start and its end are as far from
the core's clock as the measured time before them.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress
from operator import add

from _proto.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final, Literal

    from _proto.trace.events import Events

ON_DEVICE: Final = "device"
ON_TRACE: Final = "trace"
# Beyond any int64.
_AFTER_ALL = 1 << 80

# A time by the trace's clock, and the same by the device's.
Mark = tuple[int, int]


@record
class Piece:
    """Events of a line, by the trace's clock and by the device's; where not measured, 0 and 0."""

    # The trace's times count from here.
    base: int
    metadata_ids: array[int]
    starts: array[int]
    durations: array[int]
    device_starts: array[int]
    device_durations: array[int]
    # Which of them the core did not measure, by their places in the columns.
    unmeasured: list[int]
    # The first start by the trace's clock, and a time that no end lies behind.
    first: int
    reach: int

    @property
    def last(self) -> int:
        """The last end by the trace's clock."""
        _, ends = self.on_trace()
        return max(ends)

    def on_trace(self) -> tuple[list[int], list[int]]:
        """When each starts, and when each ends."""
        starts = [start + self.base for start in self.starts] if self.base else list(self.starts)
        return starts, list(map(add, starts, self.durations))

    def marks(self) -> list[tuple[int, int]]:
        """The starts, then the ends, of what was measured."""
        starts, ends = self.on_trace()
        device_ends = map(add, self.device_starts, self.device_durations)
        marks = [*zip(starts, self.device_starts), *zip(ends, device_ends)]  # noqa: B905
        if self.unmeasured:
            measured = [True] * len(starts)
            for i in self.unmeasured:
                measured[i] = False
            marks = list(compress(marks, measured * 2))
        return marks


def piece_of(events: Events, base: int) -> Piece:
    measured = events.are_measured
    return Piece(
        base,
        events.metadata_ids,
        events.offsets,
        events.durations,
        events.device_offsets,
        events.device_durations,
        [] if all(measured) else [i for i, is_measured in enumerate(measured) if not is_measured],
        base + events.first,
        base + events.last + max(events.durations),
    )


@record
class Clock:
    """Tells when ops ran: by the device's clock if the core measured any of them."""

    name: Literal["device", "trace"]
    # From the trace's clock to the device's, at the times where it is asked for.
    shifts: dict[int, int]

    def times(self, piece: Piece) -> tuple[Sequence[int], Sequence[int]]:
        """When each event of a piece starts, and how long it lasts."""
        if self.name == ON_TRACE:
            return piece.on_trace()[0], piece.durations
        if not piece.unmeasured:
            return piece.device_starts, piece.device_durations
        # What is moved may lie beyond what an array holds.
        starts, durations = list(piece.device_starts), list(piece.device_durations)
        for i in piece.unmeasured:
            start = piece.base + piece.starts[i]
            end = start + piece.durations[i]
            starts[i] = self.moved(start)
            durations[i] = max(0, self.moved(end) - starts[i])
        return starts, durations

    def moved(self, time: int) -> int:
        return time if self.name == ON_TRACE else time + self.shifts[time]


def clock_of(pieces: Sequence[Piece], times: Iterable[int]) -> Clock:
    """Return the clock of these events; it can also move these times of the trace's clock."""
    if all(len(piece.unmeasured) == len(piece.starts) for piece in pieces):
        return Clock(ON_TRACE, {})
    asked = set(times)
    for piece in pieces:
        for i in piece.unmeasured:
            start = piece.base + piece.starts[i]
            asked |= {start, start + piece.durations[i]}
    return Clock(ON_DEVICE, _shifts(pieces, asked))


def _shifts(pieces: Sequence[Piece], times: Iterable[int]) -> dict[int, int]:
    """How far each of these times of the trace's clock is from the device's.

    As far as the latest start or end of a measured op at or before it; before all of them as the
    first start.
    """
    asked = sorted(set(times))
    found = {}
    for moment, mark in zip(asked, _latest(pieces, asked), strict=True):
        by_trace, by_device = mark or _first_start(pieces)
        found[moment] = by_device - by_trace
    return found


def shifts_nearby(pieces: Sequence[Piece], times: Iterable[int]) -> dict[int, int]:
    """Return how far each of these times of the trace's clock is from the device's.

    As far as the nearest start or end of a measured op, of which there is at least one; of two
    equally near as the later.
    """
    asked = sorted(set(times))
    # At k, the latest mark that is after asked[k - 1] and not after asked[k].
    latest: list[Mark | None] = [None] * (len(asked) + 1)
    # At k, the first mark that is not before asked[k - 1] but before asked[k]; its time negated.
    first: list[Mark | None] = [None] * (len(asked) + 1)

    def look(piece: Piece, i: int, j: int) -> None:
        # Several marks at one time count as the latest of them by the device's clock.
        marks = list(dict(sorted(piece.marks())).items())
        if not marks:
            return
        moments = [moment for moment, _ in marks]
        first[i] = _later(first[i], _mirrored(marks[0]))
        latest[j] = _later(latest[j], marks[-1])
        for k in range(i, j):
            n, m = bisect_right(moments, asked[k]), bisect_left(moments, asked[k])
            if n:
                latest[k] = _later(latest[k], marks[n - 1])
            if m < len(marks):
                first[k + 1] = _later(first[k + 1], _mirrored(marks[m]))

    # A piece between two times is looked at only if it can have a nearer mark than others have.
    for piece in reversed(pieces):
        i, j = bisect_left(asked, piece.first), bisect_right(asked, piece.reach)
        bound = piece.reach, _AFTER_ALL
        if i < j or _later(latest[j], bound) is bound:
            look(piece, i, j)
    for piece in pieces:
        i, j = bisect_left(asked, piece.first), bisect_right(asked, piece.reach)
        bound = -piece.first, _AFTER_ALL
        if i == j and _later(first[i], bound) is bound:
            look(piece, i, j)
    found = {}
    following = [*accumulate(reversed(first[1:]), _later)][::-1]
    for moment, mark, after in zip(asked, accumulate(latest, _later), following, strict=False):
        nearest = mark
        if after and not (mark and moment - mark[0] < -after[0] - moment):
            nearest = _mirrored(after)
        assert nearest is not None  # or else there is none at all
        found[moment] = nearest[1] - nearest[0]
    return found


def _mirrored(mark: Mark) -> Mark:
    return -mark[0], mark[1]


def _latest(pieces: Sequence[Piece], asked: Sequence[int]) -> list[Mark | None]:
    """Of the starts and ends of measured ops the latest at or before each of these times, which
    are sorted; None before all of them."""
    # At each time, the latest of the marks since the time before; what lies behind all, last.
    latest: list[Mark | None] = [None] * (len(asked) + 1)
    # From the end, since a later mark makes the earlier ones needless.
    for piece in reversed(pieces):
        i, j = bisect_left(asked, piece.first), bisect_left(asked, piece.reach)
        behind = piece.reach, _AFTER_ALL
        if i == len(asked) or (i == j and _later(latest[j], behind) is latest[j]):
            continue
        marks = piece.marks()
        if i < j:
            marks.sort()
        for k in range(i, j):
            before = bisect_right(marks, (asked[k], _AFTER_ALL))
            latest[k] = _later(latest[k], marks[before - 1] if before else None)
        latest[j] = _later(latest[j], max(marks, default=None))
    return list(accumulate(latest[:-1], _later))


def _first_start(pieces: Sequence[Piece]) -> Mark:
    """Of the measured ops' starts, by the trace's clock; of several the first by the device's."""
    marks = (piece.marks() for piece in pieces)
    return min(mark for each in marks for mark in each[: len(each) // 2])


def _later(mark: Mark | None, other: Mark | None) -> Mark | None:
    return other if mark is None or (other is not None and other > mark) else mark
