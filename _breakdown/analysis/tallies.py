"""Count the events of a trace line, and add up their times by name."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Sequence
from heapq import nsmallest
from itertools import islice
from operator import le

from _breakdown.light import NamedTuple
from _breakdown.pipeline.texts import digest_of
from _proto.errors import Damage
from _proto.trace.plane import Plane, Value
from _proto.xplane_pb2 import XEvent, XStat

N_NAMES = 20


class NameTally(NamedTuple):
    """Number and total time of the events of one name; `name` is None for events without a name."""

    name: str | None
    n: int
    total: int


class Sampled(NamedTuple):
    """An event with its stats."""

    name: str | None
    # None if the event has a number of occurrences instead of a time.
    start: int | None
    duration: int
    stats: dict[str, Value | None]
    metadata_stats: dict[str, Value | None]


class EntryTally:
    """Number and total time of the events that share an entry of the event metadata."""

    def __init__(self, *, is_wanted: bool) -> None:
        self.is_wanted = is_wanted
        self.n = self.total = 0


class Tally:
    """Figures of all events of a line, or only of events with a matching name. Times are
    offsets."""

    def __init__(self, grep: re.Pattern[str] | None, n_sampled: int) -> None:
        self._grep = grep
        self._n_sampled = n_sampled
        self.n_events = 0
        # Number of events that have a number of occurrences instead of a time, and number of events
        # with a negative duration.
        self.n_timeless = self.n_negative = 0
        self._starts, self._durations = array("q"), array("q")
        self.event_stats: Counter[str] = Counter()
        self.sampled: list[Sampled] = []
        # Each part of a plane has its own metadata ids.
        self._entries: dict[Plane, dict[int, EntryTally]] = {}

    def add(self, plane: Plane, shift: int, at: int, events: Sequence[XEvent]) -> None:
        """Add the events of a piece; `at` is the piece's offset in the file, and `shift` is added
        to all times."""
        entries = self._entries.setdefault(plane, {})
        stats: Counter[tuple[int, ...]] = Counter()
        for event in events:
            metadata_id = event.metadata_id
            if metadata_id not in entries:
                entries[metadata_id] = EntryTally(is_wanted=self._is_wanted(plane, metadata_id))
            entry = entries[metadata_id]
            if not entry.is_wanted:
                continue
            duration = max(0, event.duration_ps)
            entry.n += 1
            entry.total += duration
            self.n_negative += event.duration_ps < 0
            stats[tuple([stat.metadata_id for stat in event.stats])] += 1
            start = None if event.HasField("num_occurrences") else event.offset_ps + shift
            if start is None:
                self.n_timeless += 1
            else:
                self._add_span(start, duration, at)
            if len(self.sampled) < self._n_sampled:
                self.sampled.append(sampled(plane, event, start, at))
        for stat_ids, n in stats.items():
            self.n_events += n
            for name in dict.fromkeys(plane.stat_names.get(i) or str(i) for i in stat_ids):
                self.event_stats[name] += n

    def _is_wanted(self, plane: Plane, metadata_id: int) -> bool:
        if self._grep is None:
            return True
        name = event_name(plane, metadata_id)
        return name is not None and self._grep.search(name) is not None

    def _add_span(self, start: int, duration: int, at: int) -> None:
        try:
            self._starts.append(start)
        except OverflowError:
            raise Damage(at, "a time of an event exceeds 64 bits") from None
        self._durations.append(duration)

    @property
    def first(self) -> int | None:
        return min(self._starts, default=None)

    def busy(self) -> int:
        """Return the time during which at least one event runs."""
        spans = zip(self._starts, self._durations, strict=True)
        # Most lines are sorted, and sorting a million pairs takes a hundred megabytes.
        is_sorted = all(map(le, self._starts, islice(self._starts, 1, None)))
        total, until = 0, self.first or 0
        for start, duration in spans if is_sorted else sorted(spans):
            end = max(until, start + duration)
            total += end - max(start, until)
            until = end
        return total

    def names(self) -> tuple[list[NameTally], int]:
        """Return the event names with the most total time, and the number of different names.

        Names are read on demand, because all HLO texts of a plane together can take a gigabyte.
        """
        alike: dict[str | None, list[tuple[Plane, int]]] = {}
        for plane, entries in self._entries.items():
            for metadata_id, entry in entries.items():
                if entry.n:
                    name = event_name(plane, metadata_id)
                    key = None if name is None else digest_of(name)
                    alike.setdefault(key, []).append((plane, metadata_id))
        return nsmallest(N_NAMES, map(self._named, alike.values()), key=rank), len(alike)

    def _named(self, places: Sequence[tuple[Plane, int]]) -> NameTally:
        entries = [self._entries[plane][metadata_id] for plane, metadata_id in places]
        total = sum(entry.total for entry in entries)
        return NameTally(event_name(*places[0]), sum(entry.n for entry in entries), total)


def sampled(plane: Plane, event: XEvent, start: int | None, at: int) -> Sampled:
    metadata = plane.metadata(event.metadata_id)
    return Sampled(
        event_name(plane, event.metadata_id),
        start,
        event.duration_ps,
        stats_by_name(plane, event.stats, at),
        dict(metadata.stats.items()) if metadata else {},
    )


def stats_by_name(plane: Plane, stats: Sequence[XStat], at: int) -> dict[str, Value | None]:
    """Return stats by name, or by id if they have no name."""
    nameless = {
        str(stat.metadata_id): getattr(stat, kind)
        for stat in stats
        if stat.metadata_id not in plane.stat_names and (kind := stat.WhichOneof("value"))
    }
    return dict(plane.stats_of(stats, (at, at)).items()) | nameless


def event_name(plane: Plane, metadata_id: int) -> str | None:
    """Return the name of an event, or None if the event has no name."""
    entry = plane.entry(metadata_id)
    return entry.name or None if entry else None


def rank(name: NameTally) -> tuple[int, bool, str]:
    """Return the sort key of a name: largest total first, ties in order of name."""
    return -name.total, name.name is None, name.name or ""
