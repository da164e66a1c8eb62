"""Convert op times from the trace's clock to the device's clock.

A profiler records an op's time on two clocks. `offset_ps` and `duration_ps` are fitted to the
host's clock. The times that the core measured are stats of the event.

Steps have times only on the host's clock, so this clock decides which ops belong to a step. But the
fit is uneven: times jump, and some ops are stretched over following ops, whose durations shrink to
zero. Therefore the durations and the order of ops come from the core's times.

Some ops, often loops, have no measured time. The start and the end of such an op are each shifted
by the clock offset at the latest preceding measured time.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate, compress
from operator import add
from typing import Final, Literal

from _breakdown.light import NamedTuple
from _proto.trace.events import Events

ClockName = Literal["device", "trace"]
ON_DEVICE: Final = "device"
ON_TRACE: Final = "trace"
# A value later than any 64-bit time.
_AFTER_ALL = 1 << 80

# A time on the trace's clock, and the same time on the device's clock.
Mark = tuple[int, int]


class Piece:
    """A line's events as columns, with times on both clocks. Device times that the core did not
    measure are 0."""

    def __init__(self, events: Events, base: int) -> None:
        self._events = events
        # Start times on the trace's clock are relative to this time.
        self.base = base
        self.metadata_ids = events.metadata_ids
        self.starts = events.offsets
        self.durations = events.durations
        self.device_starts = events.device_offsets
        self.device_durations = events.device_durations
        # Indices of the events that the core did not measure.
        self.unmeasured = events.unmeasured
        # On the trace's clock: the first start, and a time after which no event ends.
        self.first = base + events.first
        self.reach = base + events.last + events.longest

    @property
    def distinct_ids(self) -> set[int]:
        return self._events.distinct_ids

    @property
    def last(self) -> int:
        """Return the last end on the trace's clock."""
        last: int = max(map(add, self.starts, self.durations))
        return last + self.base

    def on_trace(self) -> tuple[list[int], list[int]]:
        """Return the starts and the ends on the trace's clock."""
        starts = [start + self.base for start in self.starts] if self.base else list(self.starts)
        return starts, list(map(add, starts, self.durations))

    def marks(self) -> list[tuple[int, int]]:
        """Return the marks of all measured starts, followed by the marks of all measured ends."""
        starts, ends = self.on_trace()
        device_ends = map(add, self.device_starts, self.device_durations)
        marks = [*zip(starts, self.device_starts), *zip(ends, device_ends)]  # noqa: B905
        if self.unmeasured:
            measured = [True] * len(starts)
            for i in self.unmeasured:
                measured[i] = False
            marks = list(compress(marks, measured * 2))
        return marks


class Clock(NamedTuple):
    """The clock used for a step: the device's clock if the core measured any op, else the trace's
    clock."""

    name: ClockName
    # Offset from the trace's clock to the device's clock, by time on the trace's clock.
    shifts: dict[int, int]

    def times(self, piece: Piece) -> tuple[Sequence[int], Sequence[int]]:
        """Return the starts and the durations of a piece's events, converted to this clock."""
        if self.name == ON_TRACE:
            return piece.on_trace()[0], piece.durations
        if not piece.unmeasured:
            return piece.device_starts, piece.device_durations
        # A shifted time may exceed 64 bits, which an array cannot hold.
        starts, durations = list(piece.device_starts), list(piece.device_durations)
        for i in piece.unmeasured:
            start = piece.base + piece.starts[i]
            end = start + piece.durations[i]
            starts[i] = self.shifted(start)
            durations[i] = max(0, self.shifted(end) - starts[i])
        return starts, durations

    def shifted(self, time: int) -> int:
        return time if self.name == ON_TRACE else time + self.shifts[time]


def clock_of(pieces: Sequence[Piece], times: Iterable[int]) -> Clock:
    """Return a clock that can convert all times in `pieces` and the additional `times`."""
    if all(len(piece.unmeasured) == len(piece.starts) for piece in pieces):
        return Clock(ON_TRACE, {})
    to_shift = set(times)
    for piece in pieces:
        for i in piece.unmeasured:
            start = piece.base + piece.starts[i]
            to_shift |= {start, start + piece.durations[i]}
    return Clock(ON_DEVICE, _shifts(pieces, to_shift))


def _shifts(pieces: Sequence[Piece], times: Iterable[int]) -> dict[int, int]:
    """Return the offset from the trace's clock to the device's clock at each time. It is the offset
    of the latest measured start or end up to that time, or of the first measured start if all are
    later.
    """
    ordered = sorted(set(times))
    shifts = {}
    for time, mark in zip(ordered, _latest(pieces, ordered), strict=True):
        on_trace, on_device = mark or _first_start(pieces)
        shifts[time] = on_device - on_trace
    return shifts


def shifts_nearby(pieces: Sequence[Piece], times: Iterable[int]) -> dict[int, int]:
    """Return the offset from the trace's clock to the device's clock at each time.

    Use the offset of the nearest measured start or end, or of the later one if two are equally
    near. At least one op must be measured.
    """
    ordered = sorted(set(times))
    # With all times on the trace's clock negated, the first mark after a time is the latest mark.
    following = _latest(pieces, [-time for time in reversed(ordered)], sign=-1)
    shifts = {}
    for time, before, after in zip(
        ordered, _latest(pieces, ordered), reversed(following), strict=True
    ):
        nearest = before
        if after and not (before and time - before[0] < -after[0] - time):
            nearest = -after[0], after[1]
        assert nearest is not None  # The caller passes at least one measured op.
        shifts[time] = nearest[1] - nearest[0]
    return shifts


def _latest(
    pieces: Sequence[Piece], ordered: Sequence[int], sign: Literal[1, -1] = 1
) -> list[Mark | None]:
    """Return the latest mark up to each of the sorted times, or None where all marks are later.

    If `sign` is -1, the times on the trace's clock are negated, in marks as well as in `ordered`.
    """
    # Entry k is the latest mark between ordered[k - 1] (exclusive) and ordered[k] (inclusive). The
    # last entry is the latest mark after ordered[-1].
    latest: list[Mark | None] = [None] * (len(ordered) + 1)
    # Read later pieces first: an earlier piece can be skipped if a later one contains the latest
    # mark.
    for piece in pieces[::-sign]:
        first, reach = sorted((sign * piece.first, sign * piece.reach))
        i, j = bisect_left(ordered, first), bisect_left(ordered, reach)
        bound = reach, _AFTER_ALL
        if i == len(ordered) or (i == j and _later(latest[j], bound) is latest[j]):
            continue
        marks = piece.marks()
        if sign == -1:
            marks = [(-time, device_time) for time, device_time in marks]
        if i < j:
            marks.sort()
        for k in range(i, j):
            before = bisect_right(marks, (ordered[k], _AFTER_ALL))
            latest[k] = _later(latest[k], marks[before - 1] if before else None)
        latest[j] = _later(latest[j], max(marks, default=None))
    return list(accumulate(latest[:-1], _later))


def _first_start(pieces: Sequence[Piece]) -> Mark:
    """Return the mark of the first measured start on the trace's clock. If several starts are
    equal, return the earliest on the device's clock."""
    marks_of_pieces = (piece.marks() for piece in pieces)
    return min(mark for marks in marks_of_pieces for mark in marks[: len(marks) // 2])


def _later(mark: Mark | None, other: Mark | None) -> Mark | None:
    return other if mark is None or (other is not None and other > mark) else mark
