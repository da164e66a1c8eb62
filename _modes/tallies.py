"""What the events of a line come down to: when they run, how long, named how, with what stats."""

from __future__ import annotations

from array import array
from collections import Counter
from heapq import merge, nsmallest

from _proto.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Sequence

    from _modes.counters import Counters
    from _proto.trace.reader import Value
    from _proto.trace.survey import SurveyedPlane
    from _proto.xplane_pb2 import XEvent

N_NAMES = 20
INT64_END = 1 << 63


class Union:
    """The time in which at least one of some events runs."""

    def __init__(self) -> None:
        # Starts and durations, sorted within each run; what overlaps is joined. Lines are mostly in
        # order, so that is one run, and for a million events some megabytes.
        self._runs: list[tuple[array[int], array[int]]] = []

    def add(self, spans: Iterable[tuple[int, int]]) -> None:
        """Starts and durations of some events."""
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


@record
class Name:
    """Of events; None where they have none."""

    name: str | None
    n: int
    total: int


@record
class Sampled:
    name: str | None
    # None where the event tells how often something occurred, not when.
    start: int | None
    duration: int
    stats: dict[str, Value | None]
    metadata_stats: dict[str, Value | None]


class Tally:
    """A line counted through, or those of its events whose name matches. Times are offsets."""

    def __init__(
        self,
        plane: SurveyedPlane,
        grep: re.Pattern[str] | None,
        n_sampled: int,
        counters: Counters | None,
    ) -> None:
        self._plane = plane
        self._grep = grep
        self._n_sampled = n_sampled
        self.n_events = 0
        # Those that tell how often something occurred, not when; and that end before they begin.
        self.n_timeless = self.n_negative = 0
        self.first: int | None = None
        self.end: int | None = None
        self.busy = Union()
        self.event_stats: Counter[str] = Counter()
        self.counters = counters
        self.sampled: list[Sampled] = []
        # By id of the metadata.
        self._matches: dict[int, bool] = {}
        self._ns: Counter[int] = Counter()
        self._totals: Counter[int] = Counter()

    def add(self, at: int, events: Sequence[XEvent]) -> None:
        """The events of a piece of the line that stands at that offset of the file."""
        if self._grep is not None:
            events = [event for event in events if self._is_wanted(event.metadata_id)]
        self.n_events += len(events)
        spans: list[tuple[int, int]] = []
        stats: Counter[tuple[int, ...]] = Counter()
        for event in events:
            metadata_id, duration = event.metadata_id, event.duration_ps
            if duration < 0:
                self.n_negative += 1
                duration = 0
            self._ns[metadata_id] += 1
            self._totals[metadata_id] += duration
            stats[tuple([stat.metadata_id for stat in event.stats])] += 1
            if not event.HasField("num_occurrences"):
                spans.append((event.offset_ps, duration))
        self._add_spans(spans)
        self.n_timeless += len(events) - len(spans)
        for stat_ids, n in stats.items():
            for name in dict.fromkeys(map(self._plane.stat_name, stat_ids)):
                self.event_stats[name] += n
        if self.counters is not None:
            for event in events:
                self.counters.add(at, event)
        self.sampled += [
            self._sample(at, event) for event in events[: self._n_sampled - len(self.sampled)]
        ]

    def _is_wanted(self, metadata_id: int) -> bool:
        if metadata_id not in self._matches:
            name = self._plane.event_name(metadata_id)
            matches = self._grep is not None and name is not None and self._grep.search(name)
            self._matches[metadata_id] = bool(matches)
        return self._matches[metadata_id]

    def _add_spans(self, spans: list[tuple[int, int]]) -> None:
        if not spans:
            return
        first, end = min(spans)[0], max(map(sum, spans))
        self.first = first if self.first is None else min(first, self.first)
        self.end = end if self.end is None else max(end, self.end)
        self.busy.add(spans)

    def _sample(self, at: int, event: XEvent) -> Sampled:
        return Sampled(
            self._plane.event_name(event.metadata_id),
            None if event.HasField("num_occurrences") else event.offset_ps,
            event.duration_ps,
            self._plane.resolved(event.stats, at),
            self._plane.metadata_stats(event.metadata_id),
        )

    def names(self) -> tuple[list[Name], int]:
        """The longest by total, and how many there are.

        Each is read when it is looked at, since all HLO texts of a plane can be a gigabyte.
        """
        from hashlib import sha1

        pooled: dict[bytes | None, tuple[int, int, int]] = {}
        for metadata_id, n in self._ns.items():
            name = self._plane.event_name(metadata_id)
            key = None if name is None else sha1(name.encode(), usedforsecurity=False).digest()
            any_id, n_before, total = pooled.get(key, (metadata_id, 0, 0))
            pooled[key] = any_id, n_before + n, total + self._totals[metadata_id]
        rows = (
            Name(self._plane.event_name(any_id), n, total) for any_id, n, total in pooled.values()
        )
        return nsmallest(N_NAMES, rows, key=rank), len(pooled)


def rank(name: Name) -> tuple[int, bool, str]:
    """The longest first, then by name."""
    return -name.total, name.name is None, name.name or ""
