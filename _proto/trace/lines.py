"""Read a line's events in pieces of limited size, mostly as columns.

A slice of a line is itself a valid line if it contains only whole events, so a line of any length
is read piece by piece, in up to three passes:

1. `Line` cuts the line into pieces and counts the events of each piece.
2. `Line.starts` decodes the starts of events.
3. `Line.events` decodes ids and times in the pieces that overlap a window.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import compress
from typing import TypeVar

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from _proto import columns_pb2 as columns, xplane_pb2 as pb
from _proto.errors import Damage
from _proto.trace.events import DeviceStats, Events, has_negative
from _proto.trace.source import Source
from _proto.trace.wire import LENGTH, VARINT, HeldBytes, decode, explain, fields, parse

_PIECE_BYTES = 1 << 16
_TAIL_BYTES = 1 << 9
# Lines with at most this many pieces keep their events, because the steps of a short line share
# pieces.
_KEPT_PIECES = 16
_EVENT_NUMBER = 4
_EVENT_TAG = _EVENT_NUMBER << 3 | LENGTH
# The bytes of a varint, except its last byte.
_FOLLOWED = bytes(range(1 << 7, 1 << 8))
# Tags of integers that no known event or stat has. Newer profilers can add such fields.
_FOREIGN_TAGS = bytes(number << 3 | VARINT for number in range(9, 16))
# Signs of events with and without a duration, and of stats.
_LASTING, _INSTANT, _STAT = b"l", b"i", b"s"
# The tags of a stat, which are those of its id and of its unsigned value, and of an event. The
# signs are also tags, but only of fields of fixed length and of groups, which no event has: their
# contents result in other bytes.
_SIGNS = (
    (bytes((_EVENT_TAG, 1 << 3, 3 << 3)), _STAT),
    (bytes((_EVENT_TAG, 1 << 3, 2 << 3, 3 << 3)), _LASTING),
    (bytes((_EVENT_TAG, 1 << 3, 2 << 3)), _INSTANT),
)
# Field numbers of an event. If protobuf reads a field with one of these numbers as an unknown field
# of LineColumns, the field has the wrong wire type or contains the number of occurrences.
_OF_TIME = range(1, 6)

M = TypeVar("M", bound=Message)
# Columns of metadata ids, starts (`offset_ps`) and durations.
Spans = tuple[Sequence[int], Sequence[int], Sequence[int]]


class _Piece:
    """A slice of a line's bytes that contains only whole fields."""

    def __init__(self, start: int, end: int, n_events: int) -> None:
        self.start = start
        self.end = end
        self.n_events = n_events
        # Lowest and highest offset, and number of aggregated events. `Line.starts` and
        # `Line.events` set these three numbers.
        self.first = 0
        self.last = -1
        self.n_aggregated = 0
        # A superset of the stat ids on the piece's events; set when the events are decoded.
        self.stat_ids: frozenset[int] = frozenset()
        self.kept_events: Events | None = None


class Line:
    """A line: one timeline of a plane. An event begins at `base_ps + offset_ps`.

    The constructor cuts the line into pieces. `stat_names` maps the plane's stat ids to names.
    """

    def __init__(self, source: Source, start: int, end: int, stat_names: Mapping[int, str]) -> None:
        self.id = 0
        self.name = ""
        self.display_name = ""
        self.timestamp_ns = 0
        self.n_bytes = end - start
        self._source = source
        self._stat_names = stat_names
        self._device_stats = DeviceStats(
            frozenset(i for i, name in stat_names.items() if name == "device_offset_ps"),
            frozenset(i for i, name in stat_names.items() if name == "device_duration_ps"),
        )
        self._pieces: list[_Piece] = []
        for begin, stop, frame in cut_into_pieces(source, start, end):
            if frame.HasField("id"):
                self.id = frame.id
            if frame.HasField("name"):
                self.name = frame.name
            if frame.HasField("timestamp_ns"):
                self.timestamp_ns = frame.timestamp_ns
            self.display_name = frame.display_name or self.display_name
            self._pieces.append(_Piece(begin, stop, len(frame.events)))
        # True if the first and the last offset of each piece are known.
        self._is_indexed = False

    @property
    def base_ps(self) -> int:
        return self.timestamp_ns * 1000

    @property
    def n_events(self) -> int:
        return sum(piece.n_events for piece in self._pieces)

    @property
    def n_aggregated(self) -> int:
        """Count the aggregated events, which have a number of occurrences instead of a time."""
        self.index()
        return sum(piece.n_aggregated for piece in self._pieces)

    def starts(self) -> Iterator[list[int]]:
        """Yield sorted lists that together contain the `offset_ps` of all events that have a
        time."""
        for piece in self._pieces:
            data = self._read(piece)
            offsets = _starts_in_column(data, piece)
            if offsets is None:
                offsets = [event.offset_ps for event in _timed_events(data, piece.start)]
                piece.n_aggregated = piece.n_events - len(offsets)
            if offsets:
                offsets.sort()
                piece.first, piece.last = offsets[0], offsets[-1]
                yield offsets
        self._is_indexed = True

    @property
    def span_of_starts(self) -> tuple[int, int] | None:
        """Return the first and the last `offset_ps`, or None if no event has an offset."""
        self.index()
        pieces = [piece for piece in self._pieces if piece.first <= piece.last]
        if not pieces:
            return None
        return min(piece.first for piece in pieces), max(piece.last for piece in pieces)

    def index(self) -> None:
        """Read the starts of all events, unless they were read before. Afterwards, `events` skips
        the pieces outside its window."""
        if not self._is_indexed:
            for _ in self.starts():
                pass

    def events(
        self, start: int, end: int, windows: Sequence[tuple[int, int]] = ()
    ) -> Iterator[Events]:
        """Yield the events with `start <= offset_ps < end`, in the file's order. If there are
        `windows`, which must be sorted, events outside all of them can be omitted.

        If `starts` has already read the line, pieces outside the windows are skipped. But if the
        first window contains 0, all pieces are read, because events without an offset begin at 0
        and `starts` can miss them.
        """
        pieces = self._pieces
        n_bytes = sum(piece.end - piece.start for piece in pieces)
        if self._is_indexed:
            if not start <= 0 < end:
                wanted = [*zip(*(windows or [(start, end)]), strict=True)]
                pieces = [piece for piece in pieces if _overlaps(piece, *wanted)]
            self._source.expect(sum(piece.end - piece.start for piece in pieces))
        self._source.expect(-n_bytes)
        for piece in pieces:
            yield self._decoded(piece).between(start, end)
        self._is_indexed = True

    def spans(self) -> Iterator[Spans]:
        """Yield ids, starts and durations of the events that have a time, in the file's order.

        Stats are not decoded, so a million events of a host thread take only a third of a second.
        """
        for piece in self._pieces:
            spans = _spans_in_columns(self._read(piece), piece.n_events)
            if spans is None:
                events = self._decoded(piece)
                spans = events.metadata_ids, events.offsets, events.durations
            yield spans

    def pieces(self) -> Iterator[tuple[bytes, int]]:
        """Yield the bytes and the offset of each piece."""
        for piece in self._pieces:
            yield self._read(piece), piece.start

    def pieces_with(self, stat_ids: Set[int]) -> Iterator[tuple[bytes, int]]:
        """Yield the bytes and the offset of each previously decoded piece that can contain events
        with a wanted stat."""
        for piece in self._pieces:
            if not stat_ids.isdisjoint(piece.stat_ids):
                yield self._read(piece), piece.start

    def stat_names(self) -> set[str]:
        """Return the names of all stats that decoded events have, and possibly other names."""
        stat_ids = frozenset().union(*(piece.stat_ids for piece in self._pieces))
        return {self._stat_names[i] for i in stat_ids if i in self._stat_names}

    def _decoded(self, piece: _Piece) -> Events:
        if piece.kept_events is not None:
            return piece.kept_events
        data = self._read(piece)
        events = _events_in_columns(data, piece.start, self._device_stats)
        if events is None or len(events) != piece.n_events:
            events = _events_one_by_one(data, piece.start, self._device_stats)
            piece.n_aggregated = piece.n_events - len(events)
        piece.first, piece.last = events.first, events.last
        piece.stat_ids = events.stat_ids
        if len(self._pieces) <= _KEPT_PIECES:
            piece.kept_events = events
        return events

    def _read(self, piece: _Piece) -> bytes:
        return self._source.read(piece.start, piece.end - piece.start)


def _decode(kind: type[M], data: bytes, at: int) -> M:
    """Decode a piece as one of the partial message types."""
    return decode(kind, data, at, pb.LineEvents)


def _overlaps(piece: _Piece, starts: Sequence[int], ends: Sequence[int]) -> bool:
    """Return whether a piece overlaps a window; windows are given by their sorted starts and
    ends."""
    n = bisect_right(ends, piece.first)
    return n < len(ends) and starts[n] <= piece.last


# The following functions cut a line into pieces.


def cut_into_pieces(
    source: Source, start: int, end: int
) -> Iterator[tuple[int, int, pb.LineFrame]]:
    """Yield the start, the end and the fields of each piece; events remain undecoded."""
    while start < end:
        data = source.read(start, min(_PIECE_BYTES, end - start))
        size = len(data) if start + len(data) == end else _guess_boundary(data)
        frame = parse(pb.LineFrame, data[:size]) if size else None
        if frame is None:
            size = _walk_boundary(source, start, end) - start
            frame = decode(pb.LineFrame, source.read(start, size), start)
        if _has_misfits(frame):
            explain(pb.XLine.DESCRIPTOR, source.read(start, size), start)
        yield start, start + size, frame
        start += size


def _guess_boundary(data: bytes) -> int:
    """Guess where the last whole event of a slice ends, without reading the slice from the start.

    Start at a byte that looks like an event's tag, and hop from event to event by their lengths. If
    the hops reach the end of the slice, they almost certainly follow real events. The parser
    detects a wrong guess, because it accepts a slice only if the last field ends exactly at the
    slice's end.
    """
    size = len(data)
    candidate = data.find(_EVENT_TAG, max(0, size - _TAIL_BYTES))
    while candidate >= 0:
        at = boundary = candidate
        while at + 3 < size and data[at] == _EVENT_TAG:
            boundary = at
            length = data[at + 1]
            at += 2 + length
            if length > 127:
                at += 1 - 128 + (data[boundary + 2] << 7)
        if at + 3 >= size and boundary > candidate:
            return boundary
        candidate = data.find(_EVENT_TAG, candidate + 1)
    return 0


def _walk_boundary(source: Source, start: int, end: int) -> int:
    """Return the end of the last field that fits completely into a piece, or the end of the first
    field if none fits."""
    boundary = start
    for _, _, _, _, stop in fields(source, start, end):
        if stop > start + _PIECE_BYTES and boundary > start:
            break
        boundary = stop
    return boundary


# The following functions decode the events of a piece in columns.


def _starts_in_column(data: bytes, piece: _Piece) -> list[int] | None:
    """Return the starts of a piece's events, or None if the column does not contain all of them.

    If there are as many offsets as events, assume that each event has one offset. This is wrong if
    one event has two offsets and another has none. No profiler writes such events, and a check
    would take as long as reading all starts. `events` checks the events of a step, and a note says
    so if their number differs.
    """
    column = _decode(columns.LineStarts, data, piece.start).events
    if len(column.offset_ps) == piece.n_events and not column.HasField("num_occurrences"):
        return column.offset_ps[:]
    return None


def _spans_in_columns(data: bytes, n_events: int) -> Spans | None:
    """Return the spans of a piece, or None if any event lacks an id or a start, which is rare.

    Assume that no event has a field twice, because no profiler writes such events.
    """
    line = parse(columns.LineColumns, data)
    if line is None:
        return None
    column = line.events
    ids, offsets, durations = column.metadata_id[:], column.offset_ps[:], column.duration_ps[:]
    unknown = UnknownFieldSet(column)
    if not len(ids) == len(offsets) == n_events or any(
        unknown[i].field_number in _OF_TIME for i in range(len(unknown))
    ):
        return None
    if len(durations) < n_events:
        durations = [event.duration_ps for event in _decode(columns.LineShapes, data, 0).events]
    return ids, offsets, durations


def _events_in_columns(data: bytes, at: int, device: DeviceStats) -> Events | None:
    """Return a piece's events, or None if they cannot be read in columns, for example because a
    stat is not an unsigned integer.

    The layout shows whether each event and each stat has every field once, and which events have no
    duration or no stats, so it shows which event a value belongs to.
    """
    column = _decode(columns.LineColumns, data, at).events
    ids, offsets, durations = column.metadata_id[:], column.offset_ps[:], column.duration_ps[:]
    stat_ids, values = column.stats.metadata_id[:], column.stats.uint64_value[:]
    layout = _layout_of(data)
    n, n_lasting, n_stats = len(ids), len(durations), len(stat_ids)
    n_signs = tuple(map(layout.count, (_LASTING, _INSTANT, _STAT)))
    if (
        not len(offsets) == n == len(layout) - n_stats
        or len(values) != n_stats
        or n_signs != (n_lasting, n - n_lasting, n_stats)
    ):
        return None
    if n_lasting < n:
        durations = _with_instants(durations, layout)
    # Most events have the same two stats in the same order, or none.
    first_two = stat_ids[:2]
    are_alike = stat_ids == first_two * (n_stats // 2)
    measured = _measured_times(stat_ids, values, device, are_alike=are_alike)
    if measured is None:
        return None
    device_offsets, device_durations = measured
    n_measured = len(device_offsets)
    unmeasured: list[int] = []
    if not n_measured:
        unmeasured = list(range(n))
    elif n_measured != n:
        # Some events, such as loops, have no stats.
        stats_of_events = layout.replace(_INSTANT, _LASTING).split(_LASTING)[1:]
        unmeasured = [i for i, stats in enumerate(stats_of_events) if not stats]
        if len(unmeasured) != n - n_measured:
            return None
    for i in unmeasured:
        device_offsets.insert(i, 0)
        device_durations.insert(i, 0)
    events = Events(
        ids,
        offsets,
        durations,
        device_offsets,
        device_durations,
        unmeasured,
        frozenset(first_two if are_alike else stat_ids),
    )
    # If some values are not valid times, the events must be checked one by one.
    is_odd = has_negative(events.device_offsets) or has_negative(events.device_durations)
    return None if is_odd else events


def _layout_of(data: bytes) -> bytes:
    """Return a sign for each event of a piece, followed by a sign for each of its stats. If an
    event or a stat has any other fields, the result also has other bytes, or lacks signs.

    The fields are integers, or messages of integers, so tags alternate with values and lengths. All
    of these are varints, of which only the last byte is below 128.
    """
    # The first piece of a line begins with fields of the line, such as its name.
    of_line = fields(HeldBytes(data), 0, len(data))
    try:
        at = next((at for at, number, *_ in of_line if number == _EVENT_NUMBER), len(data))
    except Damage:
        # Protobuf skips what cannot be read here, such as a group.
        return b""
    tags = data[at:].translate(None, _FOLLOWED)[::2].translate(None, _FOREIGN_TAGS)
    for of_tags, sign in _SIGNS:
        tags = tags.replace(of_tags, sign)
    return tags


def _with_instants(durations: list[int], layout: bytes) -> list[int]:
    """Insert 0 for each event without a duration."""
    found = []
    first = 0
    for lasting in layout.translate(None, _STAT).split(_INSTANT):
        found += durations[first : first + len(lasting)]
        found.append(0)
        first += len(lasting)
    return found[:-1]


def _measured_times(
    stat_ids: list[int], values: list[int], device: DeviceStats, *, are_alike: bool
) -> tuple[list[int], list[int]] | None:
    """Return the offsets and durations that the core measured, or None if they do not alternate,
    because an event lacks one that another event has twice. `are_alike` is True if two stats
    alternate."""
    if are_alike and device.are_offset_and_duration(stat_ids[:2]):
        return values[::2], values[1::2]
    if are_alike and device.are_offset_and_duration(stat_ids[1::-1]):
        return values[1::2], values[::2]
    is_offset = [i in device.offset_ids for i in stat_ids]
    is_duration = [i in device.duration_ids for i in stat_ids]
    offsets, durations = list(compress(values, is_offset)), list(compress(values, is_duration))
    are_offsets = [is_one for i, is_one in enumerate(is_offset) if is_one or is_duration[i]]
    if are_offsets not in ([True, False] * len(offsets), [False, True] * len(offsets)):
        return None
    return offsets, durations


# The following functions decode the events of a piece one by one.


def _events_one_by_one(data: bytes, at: int, device: DeviceStats) -> Events:
    events = _timed_events(data, at)
    # Protobuf may omit an id that is 0.
    stat_ids = frozenset((0, *_decode(columns.LineStatIds, data, at).events.stats.metadata_id))
    # Skip the stats if possible: reading them takes most of the time, and few lines except those of
    # ops have times that the core measured.
    has_times = not stat_ids.isdisjoint(device.offset_ids)
    times = [device.times(_integers(event.stats)) if has_times else None for event in events]
    return Events(
        [event.metadata_id for event in events],
        [event.offset_ps for event in events],
        [event.duration_ps for event in events],
        [measured[0] if measured else 0 for measured in times],
        [measured[1] if measured else 0 for measured in times],
        [i for i, measured in enumerate(times) if measured is None],
        stat_ids,
    )


def _timed_events(data: bytes, at: int) -> list[pb.LineEvents.Event]:
    """Decode the events that have a time; raise Damage for a field with a wrong wire type.

    Protobuf ignores a field with a wrong wire type, so a flipped bit would silently remove an
    event's time.
    """
    line = _decode(pb.LineMerged, data, at)
    if any(map(_has_misfits, (line, line.events, line.events.stats))):
        explain(pb.LineEvents.DESCRIPTOR, data, at)
    events = _decode(pb.LineEvents, data, at).events
    return [event for event in events if not event.HasField("num_occurrences")]


def _has_misfits(message: Message) -> bool:
    """Return whether the parser ignored a known field because of its wrong wire type."""
    known = message.DESCRIPTOR.fields_by_number
    ignored = UnknownFieldSet(message)
    return any(ignored[i].field_number in known for i in range(len(ignored)))


def _integers(stats: Iterable[pb.LineEvents.Stat]) -> Iterator[tuple[int, int | None]]:
    """Yield the id and the value of each stat that has a value, or None for a value that is not an
    integer."""
    for stat in stats:
        kind = stat.WhichOneof("value")
        if kind is not None:
            is_integer = kind in ("uint64_value", "int64_value")
            yield stat.metadata_id, getattr(stat, kind) if is_integer else None
