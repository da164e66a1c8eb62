"""Read the events of a line, in pieces of bounded size and mostly in columns.

A slice of a line that holds whole events is itself a valid line. So a line of any length is read
piece by piece, in three passes that look at less and less, more and more closely:

1. `Line` cuts it into pieces and counts the events of each.
2. `Line.starts` decodes when the events begin.
3. `Line.events` decodes ids and times in the pieces that reach into a window.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from functools import lru_cache
from itertools import chain
from typing import NamedTuple, TypeVar

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from _proto import columns_pb2 as columns
from _proto import xplane_pb2 as pb
from _proto.errors import Damage
from _proto.trace.events import DeviceStats, Events, has_negative
from _proto.trace.source import Source
from _proto.trace.wire import LENGTH, decode, explain, fields, parse

_PIECE_BYTES = 1 << 16
_TAIL_BYTES = 1 << 9
_EVENT_TAG = 4 << 3 | LENGTH
# Bytes that stand for the shapes of events. They occur in no shape of small ids.
_SIGNS = frozenset(range(0xE0, 0x100))
# Some traces have dozens of shapes.
_N_SHAPES = 256
# The fields of a stat that a shape shows.
_SHAPED = columns.LineShapes.Stat.DESCRIPTOR.fields_by_number
# The fields of an event. If LineColumns does not know one of them, it has a wrong wire type or is
# the number of occurrences.
_OF_TIME = range(1, 6)

M = TypeVar("M", bound=Message)
# Metadata ids, starts as `offset_ps`, durations.
Spans = tuple[Sequence[int], Sequence[int], Sequence[int]]


class _Piece:
    """A slice of a line's bytes that holds whole fields."""

    def __init__(self, start: int, end: int, n_events: int) -> None:
        self.start = start
        self.end = end
        self.n_events = n_events
        # The lowest and highest offset, and the number of events without one; set by `Line.starts`.
        self.first = 0
        self.last = -1
        self.n_aggregated = 0
        # A superset of the ids of all stats of its events; set when these are decoded.
        self.stat_ids: frozenset[int] = frozenset()


class Line:
    """One timeline. Its events begin at `base_ps + offset_ps`.

    Making one cuts it into pieces. `stat_names` are the names of the plane's stats by id.
    """

    def __init__(self, source: Source, start: int, end: int, stat_names: Mapping[int, str]) -> None:
        self.id = 0
        self.name = ""
        self.timestamp_ns = 0
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
            self._pieces.append(_Piece(begin, stop, len(frame.events)))
        # True once all pieces know their first and last offset.
        self._is_indexed = False

    @property
    def base_ps(self) -> int:
        return self.timestamp_ns * 1000

    @property
    def n_events(self) -> int:
        return sum(piece.n_events for piece in self._pieces)

    @property
    def n_aggregated(self) -> int:
        """The number of events that say how often something occurred, not when."""
        self._index()
        return sum(piece.n_aggregated for piece in self._pieces)

    def starts(self) -> Iterator[list[int]]:
        """Yield the offset_ps of all events that have a time, sorted within each list."""
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
        """The first and the last offset_ps; None if no event has one."""
        self._index()
        pieces = [piece for piece in self._pieces if piece.first <= piece.last]
        if not pieces:
            return None
        return min(piece.first for piece in pieces), max(piece.last for piece in pieces)

    def _index(self) -> None:
        if not self._is_indexed:
            for _ in self.starts():
                pass

    def events(self, start: int, end: int) -> Iterator[Events]:
        """Yield the events in `start <= offset_ps < end`, in the file's order.

        Pieces outside the window are skipped if `starts` has read the line before. A window around
        0 takes all pieces, because events without an offset begin at 0 and `starts` can miss them.
        """
        pieces = self._pieces
        n_bytes = sum(piece.end - piece.start for piece in pieces)
        if self._is_indexed:
            if not start <= 0 < end:
                pieces = [piece for piece in pieces if piece.first < end and start <= piece.last]
            self._source.expect(sum(piece.end - piece.start for piece in pieces))
        self._source.expect(-n_bytes)
        for piece in pieces:
            yield self._decoded(piece, self._read(piece)).between(start, end)
        self._is_indexed = True

    def spans(self) -> Iterator[Spans]:
        """Yield ids, starts and durations of the events that have a time, in the file's order.

        Stats are not looked at: a million events of a host's thread take a third of a second.
        """
        for piece in self._pieces:
            data = self._read(piece)
            spans = _spans_in_columns(data, piece.n_events)
            if spans is None:
                events = self._decoded(piece, data)
                spans = events.metadata_ids, events.offsets, events.durations
            yield spans

    def pieces(self) -> Iterator[tuple[bytes, int]]:
        """Yield the bytes of each piece and where it begins."""
        for piece in self._pieces:
            yield self._read(piece), piece.start

    def pieces_with(self, stat_ids: Set[int]) -> Iterator[tuple[bytes, int]]:
        """Yield the decoded pieces with events that may have one of these stats."""
        for piece in self._pieces:
            if not stat_ids.isdisjoint(piece.stat_ids):
                yield self._read(piece), piece.start

    def stat_names(self) -> set[str]:
        """Return the names of all stats that decoded events have, and maybe others."""
        stat_ids = frozenset().union(*(piece.stat_ids for piece in self._pieces))
        return {self._stat_names[i] for i in stat_ids if i in self._stat_names}

    def _decoded(self, piece: _Piece, data: bytes) -> Events:
        events = _events_in_columns(data, piece.start, self._device_stats)
        if events is None or len(events) != piece.n_events:
            events = _events_one_by_one(data, piece.start, self._device_stats)
            piece.n_aggregated = piece.n_events - len(events)
        piece.first, piece.last = events.first, events.last
        piece.stat_ids = events.stat_ids
        return events

    def _read(self, piece: _Piece) -> bytes:
        return self._source.read(piece.start, piece.end - piece.start)


def _decode(kind: type[M], data: bytes, at: int) -> M:
    """Decode a view of a line; on damage, report where a reader of its events finds it."""
    message = parse(kind, data)
    if message is None:
        explain(pb.LineEvents.DESCRIPTOR, data, at)
        raise Damage(at, "the protobuf parser refuses it")
    return message


# Cut a line into pieces.


def cut_into_pieces(
    source: Source, start: int, end: int
) -> Iterator[tuple[int, int, pb.LineFrame]]:
    """Yield where each piece begins and ends, and the fields in it, with events unopened."""
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
    """Guess where the last whole event of a slice ends, without walking it from its start.

    From any byte that looks like an event's tag, hop from length to length. A chain of hops that
    reaches the end of the slice has almost surely joined the chain of the real events. The parser
    has the last word: it accepts a slice only if the fields end exactly with it.
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
    """Return where the last whole field within a piece's size ends, or else the first field."""
    boundary = start
    for _, _, _, _, stop in fields(source, start, end):
        if stop > start + _PIECE_BYTES and boundary > start:
            break
        boundary = stop
    return boundary


# Decode the events of a piece in columns.


def _starts_in_column(data: bytes, piece: _Piece) -> list[int] | None:
    """Return when the events of a piece begin; None if a column can't tell.

    As many offsets as events are taken to be one each. That is wrong if one event has two and
    another none, which no writer does: checking for it would take as long as counting all starts.
    `_events_in_columns` does check it, and `events` decides which events are in a step.
    """
    column = _decode(columns.LineStarts, data, piece.start).events
    if len(column.offset_ps) == piece.n_events and not column.HasField("num_occurrences"):
        return column.offset_ps[:]
    return None


def _spans_in_columns(data: bytes, n_events: int) -> Spans | None:
    """Return the spans of a piece if all its events have an id and a start, as nearly all do.

    No writer gives one of them twice.
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
        # An event without a duration is an instant.
        shapes = parse(columns.LineShapes, data)
        written = iter(durations)
        lasting = [event.HasField("duration_ps") for event in shapes.events] if shapes else []
        if sum(lasting) != len(durations):
            return None
        durations = [next(written) if lasts else 0 for lasts in lasting]
    return ids, offsets, durations


class _Shape(NamedTuple):
    """The fields that an event has besides an id and an offset; each stat has one value."""

    has_duration: bool
    stat_ids: list[int]


def _events_in_columns(data: bytes, at: int, device: DeviceStats) -> Events | None:
    """Return the events of a piece; None unless all their stats are unsigned integers.

    A column has the numbers of all events in a row, and the shapes say which event has which
    fields. An event has at least what its shape shows. So if the columns are as long as all shapes
    together, no event has a field twice, and each number has its place.
    """
    column = _decode(columns.LineColumns, data, at).events
    shapes = _decode(columns.LineShapes, data, at)
    found = _shapes_of(shapes.SerializeToString())
    if found is None and _has_only_foreign_fields(_decode(pb.LineMerged, data, at).events):
        shapes.DiscardUnknownFields()
        found = _shapes_of(shapes.SerializeToString())
    if found is None:
        return None
    signs, shape_of = found
    durations, values = column.duration_ps[:], column.stats.uint64_value
    n_of = {sign: signs.count(sign) for sign in shape_of}
    if not (
        len(column.metadata_id) == len(column.offset_ps) == len(signs)
        and len(durations) == sum(n for sign, n in n_of.items() if shape_of[sign].has_duration)
        and len(values) == sum(n * len(shape_of[sign].stat_ids) for sign, n in n_of.items())
    ):
        return None
    # A duration of 0 is not written.
    instants = {sign for sign, shape in shape_of.items() if not shape.has_duration}
    if instants:
        durations = _with_zeros(durations, _indices(signs, instants))
    events = Events(
        column.metadata_id[:],
        column.offset_ps[:],
        durations,
        *_device_columns(signs, shape_of, values, device),
        frozenset(chain.from_iterable(shape.stat_ids for shape in shape_of.values())),
    )
    # Values that are no times have to be told from times one by one.
    is_odd = has_negative(events.device_offsets) or has_negative(events.device_durations)
    return None if is_odd else events


def _with_zeros(durations: Sequence[int], places: Iterable[int]) -> list[int]:
    """Insert zeros so that they get these places in the result."""
    # Inserting one by one takes 3 % of the time of a record.
    found: list[int] = []
    begin = 0
    for n_before, place in enumerate(places):
        end = place - n_before
        found += durations[begin:end]
        found.append(0)
        begin = end
    found += durations[begin:]
    return found


def _has_only_foreign_fields(merged: pb.LineMerged.Event) -> bool:
    """Check that all fields that shapes leave out are foreign, as newer profilers may add them."""
    return not (
        merged.HasField("num_occurrences")
        or any(field.number not in _SHAPED for field, _ in merged.stats.ListFields())
        or _has_misfits(merged)
        or _has_misfits(merged.stats)
    )


def _shapes_of(data: bytes) -> tuple[bytes, dict[int, _Shape]] | None:
    """Return one sign for each event, and the shape of each sign; None if a shape is odd.

    The first shape without a sign is given one, and all its occurrences are replaced. One that
    occurs inside another shape spoils nothing: signs occur in no shape, so the other one, which
    has a sign in it now, is refused.
    """
    signs = data
    shape_of: dict[int, _Shape] = {}
    unused = _SIGNS
    while True:
        rest = signs.lstrip(bytes(shape_of))
        if not rest or rest[0] != _EVENT_TAG:
            # The line's other fields follow its events.
            return signs[: len(signs) - len(rest)], shape_of
        encoded = rest[: 2 + rest[1]]
        shape = _shape_of(encoded)
        unused -= set(encoded)
        if shape is None or not unused or not shape_of.keys().isdisjoint(encoded):
            return None
        sign = min(unused)
        unused -= {sign}
        shape_of[sign] = shape
        signs = signs.replace(encoded, bytes([sign]))


def _indices(signs: bytes, wanted: Set[int]) -> list[int]:
    """Return the indices of the events that have one of these signs."""
    if not wanted:
        return []
    # Signs have no meaning in a regular expression.
    return [match.start() for match in re.finditer(b"[" + bytes(wanted) + b"]", signs)]


@lru_cache(maxsize=_N_SHAPES)
def _shape_of(encoded: bytes) -> _Shape | None:
    """Return the shape of an event; None if it lacks a number or has other fields."""
    line = parse(columns.LineShapes, encoded)
    if line is None or len(line.events) != 1:
        return None
    (event,) = line.events
    line.DiscardUnknownFields()
    if not (
        line.SerializeToString() == encoded
        and event.HasField("metadata_id")
        and event.HasField("offset_ps")
        and all(stat.HasField("uint64_value") for stat in event.stats)
    ):
        return None
    return _Shape(event.HasField("duration_ps"), [stat.metadata_id for stat in event.stats])


def _device_columns(
    signs: bytes, shape_of: Mapping[int, _Shape], values: Sequence[int], device: DeviceStats
) -> tuple[list[int], list[int], list[bool]]:
    """Return the offsets and durations that the core measured, and which events have them.

    Nearly all events have exactly these two stats. The few others, such as loops without stats and
    reductions with more, are read one by one; the stretches between them are taken as a whole.
    """
    others = {
        sign
        for sign, shape in shape_of.items()
        if not device.are_offset_and_duration(shape.stat_ids)
    }
    offsets: list[int] = []
    durations: list[int] = []
    are_measured: list[bool] = []
    begin = at = 0
    for i in (*_indices(signs, others), len(signs)):
        end = at + 2 * (i - begin)
        offsets += values[at:end:2]
        durations += values[at + 1 : end : 2]
        are_measured += [True] * (i - begin)
        if i < len(signs):
            stat_ids = shape_of[signs[i]].stat_ids
            at, end = end, end + len(stat_ids)
            times = device.times(zip(stat_ids, values[at:end], strict=True))
            offsets.append(times[0] if times else 0)
            durations.append(times[1] if times else 0)
            are_measured.append(times is not None)
        at, begin = end, i + 1
    return offsets, durations, are_measured


# Decode the events of a piece one by one.


def _events_one_by_one(data: bytes, at: int, device: DeviceStats) -> Events:
    events = _timed_events(data, at)
    times = [device.times(_integers(event.stats)) for event in events]
    return Events(
        [event.metadata_id for event in events],
        [event.offset_ps for event in events],
        [event.duration_ps for event in events],
        [measured[0] if measured else 0 for measured in times],
        [measured[1] if measured else 0 for measured in times],
        [measured is not None for measured in times],
        # An id of 0 need not be written.
        frozenset((0, *_decode(columns.LineStatIds, data, at).events.stats.metadata_id)),
    )


def _timed_events(data: bytes, at: int) -> list[pb.LineEvents.Event]:
    """Decode the events that have a time; raise Damage for a field of a wrong wire type.

    Protobuf ignores such a field. After a flipped bit that would leave an event without its time.
    """
    line = _decode(pb.LineMerged, data, at)
    if any(map(_has_misfits, (line, line.events, line.events.stats))):
        explain(pb.LineEvents.DESCRIPTOR, data, at)
    events = _decode(pb.LineEvents, data, at).events
    return [event for event in events if not event.HasField("num_occurrences")]


def _has_misfits(message: Message) -> bool:
    """Check whether a known field was ignored because of its wire type."""
    known = message.DESCRIPTOR.fields_by_number
    ignored = UnknownFieldSet(message)
    return any(ignored[i].field_number in known for i in range(len(ignored)))


def _integers(stats: Iterable[pb.LineEvents.Stat]) -> Iterator[tuple[int, int | None]]:
    """Yield id and value of the stats that have a value; None if it is not an integer."""
    for stat in stats:
        kind = stat.WhichOneof("value")
        if kind is not None:
            is_integer = kind in ("uint64_value", "int64_value")
            yield stat.metadata_id, getattr(stat, kind) if is_integer else None
