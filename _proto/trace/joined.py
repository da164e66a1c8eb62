"""Join parts of planes and lines from several records of a continuous capture.

Each record has its own metadata tables and ids, so names, stats and references are resolved within
a record, and a joined plane assigns new ids. If metadata entries of different records have the same
content, they become one entry.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, islice
from operator import le

from _proto import xplane_pb2 as pb
from _proto.trace.events import Events
from _proto.trace.lines import Line, Spans
from _proto.trace.plane import Metadata, Plane, Stats
from _proto.trace.wire import parse

# Maximum number of events in each Events object from `take_until`.
_N_AT_ONCE = 1 << 13
# Joined id of all events that have no metadata in their record.
_NOTHING = 0
_PROGRAM_ID = "program_id"
# A value later than any 64-bit time.
_AFTER_ALL = 1 << 80


class _Ids(dict[int, int]):
    """Maps ids of one part to ids of the joined plane; entries are added on demand."""

    def __init__(self, plane: JoinedPlane, part: Plane) -> None:
        super().__init__()
        self._plane, self.part = plane, part

    def __missing__(self, part_id: int) -> int:
        joined_id = self._plane._id_of(self.part, part_id)
        self[part_id] = joined_id
        return joined_id

    def of(self, part_ids: Iterable[int]) -> list[int]:
        return list(map(self.__getitem__, part_ids))


class JoinedPlane:
    """A plane with parts in several records, with the same methods as `Plane`."""

    def __init__(self, parts: Sequence[Plane]) -> None:
        self.parts = parts
        self.name = parts[0].name
        self._ids = [_Ids(self, part) for part in parts]
        self._entries: list[Metadata | None] = [None]
        self._known: dict[object, int] = {}
        self._n_alike: dict[tuple[Plane, object], int] = {}
        self._programs: dict[Plane, dict[int, int]] = {}

    @property
    def line_names(self) -> list[str]:
        return list(dict.fromkeys(chain.from_iterable(part.line_names for part in self.parts)))

    def stats(self) -> Stats:
        """Return the plane's own stats, from the first part that has any."""
        return next((part for part in self.parts if part.has_stats), self.parts[0]).stats()

    def unknown(self, joined_ids: Iterable[int]) -> set[int]:
        """Return the ids without an entry in the event metadata."""
        return {_NOTHING}.intersection(joined_ids)

    def has_same_metadata(self, other: object, metadata_ids: Iterable[int]) -> bool:
        """Return False: entries of different planes come from different records."""
        return False

    def metadata(self, joined_id: int) -> Metadata | None:
        return self._entries[joined_id]

    def metadata_of_ops(self, joined_ids: Iterable[int]) -> dict[int, Metadata]:
        found = {joined_id: self._entries[joined_id] for joined_id in joined_ids}
        return {joined_id: metadata for joined_id, metadata in found.items() if metadata}

    def metadata_names(self) -> Iterator[tuple[int, str]]:
        for part, ids in zip(self.parts, self._ids, strict=True):
            for part_id, _ in part.metadata_names():
                ids[part_id]
        for joined_id, metadata in enumerate(self._entries):
            if metadata is not None:
                yield joined_id, metadata.name

    def lines(self, name: str) -> list[JoinedLine]:
        """Return the lines with the given name; parts with equal ids form one line."""
        parts: dict[int, list[tuple[Line, _Ids]]] = {}
        for part, ids in zip(self.parts, self._ids, strict=True):
            for line in part.lines(name):
                parts.setdefault(line.id, []).append((line, ids))
        return [JoinedLine(of_line) for of_line in parts.values()]

    def _id_of(self, part: Plane, part_id: int) -> int:
        found = part.metadata_and_content(part_id)
        if found is None:
            return _NOTHING
        metadata, content = found
        if _PROGRAM_ID not in metadata.stats:
            content = content, self._programs_on_events(part).get(part_id)
        # Entries of one record stay separate, even if their content is equal.
        n = self._n_alike[part, content] = self._n_alike.get((part, content), 0) + 1
        joined_id = self._known.setdefault((content, n), len(self._entries))
        if joined_id == len(self._entries):
            self._entries.append(metadata)
        return joined_id

    def _programs_on_events(self, part: Plane) -> dict[int, int]:
        """Return the program ids stored on events, by metadata id of the op; some captures from
        2026 have them."""
        if part not in self._programs:
            programs = self._programs[part] = {}
            stat_ids = part.stat_ids(_PROGRAM_ID)
            lines = chain.from_iterable(map(part.lines, part.line_names if stat_ids else ()))
            for data, _ in chain.from_iterable(line.pieces() for line in lines):
                events = parse(pb.LineEvents, data)
                for event in events.events if events else ():
                    for stat in event.stats:
                        if stat.metadata_id in stat_ids:
                            programs.setdefault(event.metadata_id, stat.uint64_value)
        return self._programs[part]


class _Columns:
    """Events of several records in columns, as in `Events`."""

    def __init__(self) -> None:
        # The columns are ids, offsets, durations, device offsets and device durations.
        self._columns = [array("q") for _ in range(5)]
        self._are_measured: list[bool] = []

    def add(self, events: Events, shift: int, ids: _Ids) -> None:
        offsets = [offset + shift for offset in events.offsets] if shift else events.offsets
        added = (
            *(ids.of(events.metadata_ids), offsets, events.durations),
            *(events.device_offsets, events.device_durations),
        )
        for column, numbers in zip(self._columns, added, strict=True):
            column.extend(list(numbers))
        self._are_measured += events.are_measured

    def sort(self) -> None:
        """Sort events by start; events with equal starts keep the file's order."""
        offsets = self._columns[1]
        if not all(map(le, offsets, islice(offsets, 1, None))):
            order = sorted(range(len(offsets)), key=offsets.__getitem__)
            self._columns = [array("q", map(column.__getitem__, order)) for column in self._columns]
            self._are_measured = list(map(self._are_measured.__getitem__, order))

    def take_until(self, border: int) -> Iterator[Events]:
        """Yield the events that start before the border, and remove them from the columns."""
        n = bisect_left(self._columns[1], border)
        for i in range(0, n, _N_AT_ONCE):
            j = min(i + _N_AT_ONCE, n)
            ids, offsets, durations, device_offsets, device_durations = (
                list(column[i:j]) for column in self._columns
            )
            yield Events(
                ids,
                offsets,
                durations,
                device_offsets,
                device_durations,
                [place for place, is_true in enumerate(self._are_measured[i:j]) if not is_true],
                # No stat ids are needed, because `JoinedLine.stat_names` reads them from the parts.
                frozenset(),
            )
        self._columns = [column[n:] for column in self._columns]
        self._are_measured = self._are_measured[n:]


class JoinedLine:
    """A line with parts in several records, with the same methods as `Line`.

    A record contains the events that ended while it was written, so a long event can be in a later
    record than an event that started after it. The joined line sorts events by start; events with
    equal starts keep the file's order.
    """

    def __init__(self, parts: Sequence[tuple[Line, _Ids]]) -> None:
        self._parts = parts
        first, _ = parts[0]
        self.name, self.id = first.name, first.id
        self.base_ps = min(line.base_ps for line, _ in parts)

    @property
    def n_events(self) -> int:
        return sum(line.n_events for line, _ in self._parts)

    @property
    def n_aggregated(self) -> int:
        return sum(line.n_aggregated for line, _ in self._parts)

    def starts(self) -> Iterator[list[int]]:
        for line, shift, _ in self.shifted():
            for offsets in line.starts():
                yield [offset + shift for offset in offsets]

    def index(self) -> None:
        for line, _ in self._parts:
            line.index()

    @property
    def span_of_starts(self) -> tuple[int, int] | None:
        spans = [
            (span[0] + shift, span[1] + shift)
            for line, shift, _ in self.shifted()
            if (span := line.span_of_starts)
        ]
        if not spans:
            return None
        return min(start for start, _ in spans), max(end for _, end in spans)

    def events(
        self, start: int, end: int, windows: Sequence[tuple[int, int]] = ()
    ) -> Iterator[Events]:
        """Yield the events with `start <= offset_ps < end`, sorted by start.

        Each event is held back until no later record can contain an event with an earlier start.
        """
        spans = [
            (line.span_of_starts or (_AFTER_ALL, 0))[0] + shift for line, shift, _ in self.shifted()
        ]
        # For each record, the earliest start in all later records.
        borders = [*accumulate(reversed(spans[1:]), min, initial=_AFTER_ALL)][::-1]
        held = _Columns()
        for (line, shift, ids), border in zip(self.shifted(), borders, strict=True):
            wanted = [(first - shift, last - shift) for first, last in windows]
            for events in line.events(start - shift, end - shift, wanted):
                held.add(events, shift, ids)
            held.sort()
            yield from held.take_until(border)

    def spans(self) -> Iterator[Spans]:
        for line, shift, ids in self.shifted():
            for part_ids, starts, durations in line.spans():
                yield ids.of(part_ids), [start + shift for start in starts], durations

    def stat_names(self) -> set[str]:
        return {name for line, _ in self._parts for name in line.stat_names()}

    def shifted(self) -> Iterator[tuple[Line, int, _Ids]]:
        """Yield each part with its time shift and its id map."""
        for line, ids in self._parts:
            yield line, line.base_ps - self.base_ps, ids


AnyPlane = Plane | JoinedPlane
AnyLine = Line | JoinedLine
