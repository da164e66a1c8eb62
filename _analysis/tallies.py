"""Count the events of a trace line, and add up their times by name."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Sequence
from heapq import merge, nsmallest
from typing import NamedTuple

from _proto.errors import Damage

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re

    from _analysis.counters import Counters
    from _proto.trace.plane import Value
    from _proto.trace.survey import PlanePart
    from _proto.xplane_pb2 import XEvent

N_NAMES = 20
INT64_END = 1 << 63


class Union:
    """The time during which at least one of the added events runs."""

    def __init__(self) -> None:
        # Sorted sequences of starts and durations, in which overlapping events are merged. Most
        # lines are sorted, so they have a single sequence, and a million events take only a few
        # megabytes.
        self._runs: list[tuple[array[int], array[int]]] = []

    def add(self, spans: Iterable[tuple[int, int]]) -> None:
        """Add events, each a pair of start and duration."""
        for start, duration in sorted(spans):
            if not self._runs or start < self._runs[-1][0][-1]:
                self._runs.append((array("q", [start]), array("q", [duration])))
                continue
            starts, durations = self._runs[-1]
            joined = max(durations[-1], start + duration - starts[-1])
            if start <= starts[-1] + durations[-1] and joined < INT64_END:
                durations[-1] = joined
            else:
                starts.append(start)
                durations.append(duration)

    def duration(self) -> int:
        total = 0
        until = -INT64_END
        for start, duration in merge(*(zip(*run, strict=True) for run in self._runs)):
            end = max(until, start + duration)
            total += end - max(start, until)
            until = end
        return total


class Name(NamedTuple):
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


class PartCounts(NamedTuple):
    """For one part of a plane, by metadata id: whether the name matches, number of events, and
    total time."""

    matches: dict[int, bool]
    ns: Counter[int]
    totals: Counter[int]


class Tally:
    """Figures of all events of a line, or only of events with a matching name. Times are
    offsets."""

    def __init__(
        self, grep: re.Pattern[str] | None, n_sampled: int, counters: Counters | None
    ) -> None:
        self._grep = grep
        self._n_sampled = n_sampled
        self.n_events = 0
        # Number of events that have a number of occurrences instead of a time, and number of events
        # with a negative duration.
        self.n_timeless = self.n_negative = 0
        self.first: int | None = None
        self.end: int | None = None
        self.busy = Union()
        self.event_stats: Counter[str] = Counter()
        self.counters = counters
        self.sampled: list[Sampled] = []
        # Counts are kept per part, because each part has its own metadata ids.
        self._of_parts: dict[PlanePart, PartCounts] = {}

    def add(self, part: PlanePart, shift: int, at: int, events: Sequence[XEvent]) -> None:
        """Add the events of a piece; `at` is the piece's offset in the file, and `shift` is added
        to all times."""
        if part not in self._of_parts:
            self._of_parts[part] = PartCounts({}, Counter(), Counter())
        of_part = self._of_parts[part]
        if self._grep is not None:
            events = [event for event in events if self._is_wanted(part, event.metadata_id)]
        self.n_events += len(events)
        spans: list[tuple[int, int]] = []
        stats: Counter[tuple[int, ...]] = Counter()
        for event in events:
            metadata_id, duration = event.metadata_id, event.duration_ps
            if duration < 0:
                self.n_negative += 1
                duration = 0
            of_part.ns[metadata_id] += 1
            of_part.totals[metadata_id] += duration
            stats[tuple([stat.metadata_id for stat in event.stats])] += 1
            if not event.HasField("num_occurrences"):
                spans.append((event.offset_ps + shift, duration))
        try:
            self._add_spans(spans)
        except OverflowError:
            raise Damage(at, "a time of an event exceeds 64 bits") from None
        self.n_timeless += len(events) - len(spans)
        for stat_ids, n in stats.items():
            for name in dict.fromkeys(map(part.stat_name, stat_ids)):
                self.event_stats[name] += n
        if self.counters is not None:
            for event in events:
                self.counters.add(part, shift, at, event)
        self.sampled += [
            self._sample(part, shift, at, event)
            for event in events[: self._n_sampled - len(self.sampled)]
        ]

    def _is_wanted(self, part: PlanePart, metadata_id: int) -> bool:
        known = self._of_parts[part].matches
        if metadata_id not in known:
            name = part.event_name(metadata_id)
            matches = self._grep is not None and name is not None and self._grep.search(name)
            known[metadata_id] = bool(matches)
        return known[metadata_id]

    def _add_spans(self, spans: list[tuple[int, int]]) -> None:
        if not spans:
            return
        first, end = min(spans)[0], max(map(sum, spans))
        self.first = first if self.first is None else min(first, self.first)
        self.end = end if self.end is None else max(end, self.end)
        self.busy.add(spans)

    def _sample(self, part: PlanePart, shift: int, at: int, event: XEvent) -> Sampled:
        return Sampled(
            part.event_name(event.metadata_id),
            None if event.HasField("num_occurrences") else event.offset_ps + shift,
            event.duration_ps,
            part.resolved(event.stats, at),
            part.metadata_stats(event.metadata_id),
        )

    def names(self) -> tuple[list[Name], int]:
        """Return the event names with the most total time, and the number of different names.

        Names are read on demand, because all HLO texts of a plane together can take a gigabyte.
        """
        from hashlib import sha1

        pooled: dict[bytes | None, tuple[PlanePart, int, int, int]] = {}
        for part, of_part in self._of_parts.items():
            for metadata_id, n in of_part.ns.items():
                name = part.event_name(metadata_id)
                key = None if name is None else sha1(name.encode(), usedforsecurity=False).digest()
                first, its_id, n_before, total = pooled.get(key, (part, metadata_id, 0, 0))
                total += of_part.totals[metadata_id]
                pooled[key] = first, its_id, n_before + n, total
        rows = (
            Name(part.event_name(metadata_id), n, total)
            for part, metadata_id, n, total in pooled.values()
        )
        return nsmallest(N_NAMES, rows, key=rank), len(pooled)


def rank(name: Name) -> tuple[int, bool, str]:
    """Return the sort key of a name: largest total first, ties in order of name."""
    return -name.total, name.name is None, name.name or ""
