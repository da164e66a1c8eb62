"""Hold events of a line as columns of numbers: ids, times, and times that the core measured."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import compress
from typing import NamedTuple

INT64_END = 1 << 63


def column_of(numbers: list[int]) -> array[int]:
    """Return numbers in the smallest possible array, because a step can have a million events."""
    # Try unsigned types first, because they take a third of the time of type `q`.
    for typecode in "IL":
        with suppress(OverflowError):
            return array(typecode, numbers)
    return array("q", numbers)


def has_negative(column: array[int]) -> bool:
    """Return whether an array that `column_of` made has negative numbers. Only type `q` can have
    negative numbers."""
    return column.typecode == "q" and min(column, default=0) < 0


def with_zeros(durations: Sequence[int], places: Iterable[int]) -> list[int]:
    """Insert zeros into durations; `places` are the indices of the zeros in the result."""
    # Inserting zeros one by one takes 3 % of the time of the mode `record`.
    found: list[int] = []
    begin = 0
    for n_before, place in enumerate(places):
        end = place - n_before
        found += durations[begin:end]
        found.append(0)
        begin = end
    found += durations[begin:]
    return found


class Events:
    """Events of a line in columns, in the file's order, without aggregated events.

    The device columns hold times that the core measured, and 0 where `are_measured` is False.
    """

    def __init__(
        self,
        metadata_ids: list[int],
        offsets: list[int],
        durations: list[int],
        device_offsets: list[int],
        device_durations: list[int],
        are_measured: list[bool],
        stat_ids: frozenset[int],
    ) -> None:
        self.metadata_ids = column_of(metadata_ids)
        self.offsets = column_of(offsets)
        self.durations = column_of(durations)
        self.device_offsets = column_of(device_offsets)
        self.device_durations = column_of(device_durations)
        self.are_measured = are_measured
        # Offsets are mostly in order, so sorting takes only a third of the time that `min` and
        # `max` take.
        in_order = sorted(offsets) or [0, -1]
        # The lowest and the highest offset.
        self.first, self.last = in_order[0], in_order[-1]
        # A superset of the ids of all stats that the events have.
        self.stat_ids = stat_ids

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
        """Return the events in `start <= offset < end`."""
        if start <= self.first and self.last < end:
            return self
        return self.where([start <= offset < end for offset in self.offsets])

    def among(self, windows: Sequence[tuple[int, int]]) -> Iterator[Events]:
        """Yield the events of each window, without scanning all events for every window."""
        if len(windows) == 1:
            yield self.between(*windows[0])
            return
        order = sorted(range(len(self)), key=self.offsets.__getitem__)
        offsets = list(map(self.offsets.__getitem__, order))
        for start, end in windows:
            first, last = bisect_left(offsets, start), bisect_left(offsets, end)
            yield self._at(sorted(order[first:last]))

    def lasting(self) -> Events:
        """Return the events without a negative duration."""
        if not has_negative(self.durations):
            return self
        return self.where([duration >= 0 for duration in self.durations])

    def where(self, keep: Sequence[bool]) -> Events:
        """Return the events with a True value in `keep`."""
        return self._at(list(compress(range(len(self)), keep)))

    def _at(self, indices: Sequence[int]) -> Events:
        return Events(
            list(map(self.metadata_ids.__getitem__, indices)),
            list(map(self.offsets.__getitem__, indices)),
            list(map(self.durations.__getitem__, indices)),
            list(map(self.device_offsets.__getitem__, indices)),
            list(map(self.device_durations.__getitem__, indices)),
            list(map(self.are_measured.__getitem__, indices)),
            self.stat_ids,
        )


class DeviceStats(NamedTuple):
    """Ids of the stats that hold the times measured by the core."""

    offset_ids: frozenset[int]
    duration_ids: frozenset[int]

    def are_offset_and_duration(self, ids: Sequence[int]) -> bool:
        return len(ids) == 2 and ids[0] in self.offset_ids and ids[1] in self.duration_ids

    def times(self, stats: Iterable[tuple[int, int | None]]) -> tuple[int, int] | None:
        """Return offset and duration, or None if the offset or the duration is missing or not a
        valid time.

        If several stats have the same name, the last stat counts.
        """
        offset = duration = None
        for stat_id, value in stats:
            time = value if value is not None and 0 <= value < INT64_END else None
            if stat_id in self.offset_ids:
                offset = time
            elif stat_id in self.duration_ids:
                duration = time
        return None if offset is None or duration is None else (offset, duration)
