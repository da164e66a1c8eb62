"""Store a line's events as columns of numbers: ids, and times on the trace and device clocks."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import compress

from _breakdown.light import NamedTuple, cached_property

INT64_END = 1 << 63


def column_of(numbers: Sequence[int]) -> array[int]:
    """Store numbers in the smallest possible array, because a step can have a million events."""
    # Try unsigned types first, because they take a third of the time of type `q`.
    for typecode in "IL":
        with suppress(OverflowError):
            return array(typecode, numbers)
    return array("q", numbers)


def taken(column: array[int], places: Sequence[int]) -> array[int]:
    """Return the numbers at these places; a `range` of places is taken at once."""
    if isinstance(places, range):
        return column[places.start : places.stop]
    return array(column.typecode, map(column.__getitem__, places))


def has_negative(column: array[int]) -> bool:
    """Return whether an array from `column_of` contains negative numbers. Only type `q` can contain
    them."""
    return column.typecode == "q" and min(column, default=0) < 0


class Events:
    """A line's events as columns, in the file's order, without aggregated events.

    The device columns contain the times that the core measured, and 0 for unmeasured events.
    """

    def __init__(
        self,
        metadata_ids: Sequence[int],
        offsets: Sequence[int],
        durations: Sequence[int],
        device_offsets: Sequence[int],
        device_durations: Sequence[int],
        # Indices of the events that the core did not measure.
        unmeasured: list[int],
        # A superset of the stat ids on the events.
        stat_ids: frozenset[int],
    ) -> None:
        self.metadata_ids = column_of(metadata_ids)
        self.offsets = column_of(offsets)
        self.durations = column_of(durations)
        self.longest = max(durations, default=0)
        self.device_offsets = column_of(device_offsets)
        self.device_durations = column_of(device_durations)
        self.unmeasured = unmeasured
        # Offsets are mostly in order, so sorting is three times as fast as `min` and `max`.
        in_order = sorted(offsets) or [0, -1]
        # The lowest and the highest offset.
        self.first, self.last = in_order[0], in_order[-1]
        self.stat_ids = stat_ids

    @cached_property
    def distinct_ids(self) -> set[int]:
        return set(self.metadata_ids)

    @property
    def are_measured(self) -> list[bool]:
        """Return, for each event, whether the core measured it."""
        are_measured = [True] * len(self)
        for i in self.unmeasured:
            are_measured[i] = False
        return are_measured

    def __len__(self) -> int:
        return len(self.offsets)

    def rows(self) -> Iterator[tuple[int, int, int, tuple[int, int] | None]]:
        """Yield the metadata id, offset, duration and measured times of each event."""
        device_times = zip(self.device_offsets, self.device_durations, strict=True)
        measured = (
            times if is_measured else None
            for times, is_measured in zip(device_times, self.are_measured, strict=True)
        )
        return zip(self.metadata_ids, self.offsets, self.durations, measured, strict=True)

    def between(self, start: int, end: int) -> Events:
        """Return the events with `start <= offset < end`."""
        (events,) = self.among([(start, end)])
        return events

    def among(self, windows: Sequence[tuple[int, int]]) -> Iterator[Events]:
        """Yield the events of each window, without scanning all events for every window."""
        for start, end in windows:
            if start <= self.first and self.last < end:
                yield self
                continue
            order, offsets = self._by_offset
            indices = order[bisect_left(offsets, start) : bisect_left(offsets, end)]
            yield self._at(indices if isinstance(indices, range) else sorted(indices))

    @cached_property
    def _by_offset(self) -> tuple[Sequence[int], Sequence[int]]:
        """Return the indices of the events in order of offset, and the offsets in this order."""
        order = sorted(range(len(self)), key=self.offsets.__getitem__)
        if order == list(range(len(self))):
            return range(len(self)), self.offsets
        return order, list(map(self.offsets.__getitem__, order))

    def lasting(self) -> Events:
        """Return the events, except those with a negative duration."""
        if not has_negative(self.durations):
            return self
        return self.where([duration >= 0 for duration in self.durations])

    def where(self, keep: Sequence[bool]) -> Events:
        """Return the events whose value in `keep` is True."""
        return self._at(list(compress(range(len(self)), keep)))

    def _at(self, indices: Sequence[int]) -> Events:
        unmeasured = set(self.unmeasured)
        return Events(
            taken(self.metadata_ids, indices),
            taken(self.offsets, indices),
            taken(self.durations, indices),
            taken(self.device_offsets, indices),
            taken(self.device_durations, indices),
            [place for place, i in enumerate(indices) if i in unmeasured] if unmeasured else [],
            self.stat_ids,
        )


class DeviceStats(NamedTuple):
    """Ids of the stats that contain the times measured by the core."""

    offset_ids: frozenset[int]
    duration_ids: frozenset[int]

    def are_offset_and_duration(self, ids: Sequence[int]) -> bool:
        return len(ids) == 2 and ids[0] in self.offset_ids and ids[1] in self.duration_ids

    def times(self, stats: Iterable[tuple[int, int | None]]) -> tuple[int, int] | None:
        """Return offset and duration, or None if either is missing or not a valid time.

        If several stats have the same name, the last one is used.
        """
        offset = duration = None
        for stat_id, value in stats:
            time = value if value is not None and 0 <= value < INT64_END else None
            if stat_id in self.offset_ids:
                offset = time
            elif stat_id in self.duration_ids:
                duration = time
        return None if offset is None or duration is None else (offset, duration)
