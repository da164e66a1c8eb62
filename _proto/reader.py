"""Reads one plane of an xplane.pb: its lines' events, its metadata, its stats. Nothing else.

Planes and lines that aren't asked for are skipped by their length. A line is decoded in pieces
of bounded size (any slice of its payload that holds whole events is itself a valid line), and
metadata one entry at a time, so memory depends neither on the file nor on the line.

A line is read in three passes, each looking closer at less:

1. `_read_line` cuts it into pieces and counts the events of each, without opening one.
2. `Line.starts` decodes all events in columns, for who wants to know when they begin.
3. `Line.events` decodes events one by one, in the pieces that reach into a window.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from . import xplane_pb2 as pb
from .errors import Damage
from .source import Source
from .wire import LENGTH, VARINT, Schema, decode, explain, fields, known_fields, parse, text

_PIECE_BYTES = 1 << 16
_TAIL_BYTES = 1 << 12
_TEXT_LIMIT = 4 << 20
_EVENT_TAG = 4 << 3 | LENGTH
_HBM = 1
_SPACE, _PLANE, _LINE, _EVENT, _STAT, _ENTRY, _METADATA = (
    Schema(kind.DESCRIPTOR)
    for kind in (
        *(pb.XSpace, pb.XPlane, pb.XLine, pb.XEvent, pb.XStat),
        *(pb.EventMetadataEntry, pb.XEventMetadata),
    )
)

M = TypeVar("M", bound=Message)
Value = float | int | str | bytes


class Trace:
    """A file's planes. Making one walks the whole file, from plane to plane."""

    def __init__(self, source: Source) -> None:
        if not source.size:
            raise Damage(0, "the file is empty")
        self._source = source
        self._planes: dict[str, tuple[int, int]] = {}
        for _, field_name, start, end in known_fields(_SPACE, source.read, 0, source.size):
            if field_name == "planes":
                # Of two planes of one name, the first.
                self._planes.setdefault(_name(_PLANE, source, start, end), (start, end))

    @property
    def plane_names(self) -> list[str]:
        return list(self._planes)

    def plane(self, name: str) -> Plane:
        """Index a plane: where its lines and metadata lie, and what its stats are called."""
        source = self._source
        plane = Plane(name, source)
        for _, field_name, start, end in known_fields(_PLANE, source.read, *self._planes[name]):
            if field_name == "lines":
                line_name = _name(_LINE, source, start, end)
                plane._lines.setdefault(line_name, []).append((start, end))
            elif field_name == "event_metadata":
                plane._event_metadata[_key(source, start, end)] = start, end
            elif field_name == "stat_metadata":
                entry = decode(pb.StatMetadataEntry, source.read(start, end - start), start)
                plane._stat_names[entry.key] = entry.value.name
            elif field_name == "stats":
                plane._stats.extend((start, end))
        return plane


@dataclass(slots=True)
class Metadata:
    """What is known of all executions of one op: its HLO text, and its stats by name."""

    name: str
    stats: dict[str, Value]

    @property
    def hbm_bytes(self) -> int | None:
        """Bytes that an execution moves to and from HBM; None where that isn't told."""
        breakdown = self.stats.get("memory_access_breakdown")
        message = None
        if isinstance(breakdown, bytes):
            message = parse(pb.MemoryAccessBreakdown, breakdown)
        if message is None:
            return None
        return sum(access.bytes for access in message.accesses if access.memory_space == _HBM)


@dataclass(slots=True)
class Plane:
    """A plane's index; what it points at is decoded when asked for."""

    name: str
    _source: Source
    _lines: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    _event_metadata: dict[int, tuple[int, int]] = field(default_factory=dict)
    _stat_names: dict[int, str] = field(default_factory=dict)
    # Start, end, start, end, …
    _stats: array[int] = field(default_factory=lambda: array("q"))

    @property
    def line_names(self) -> list[str]:
        return list(self._lines)

    def lines(self, name: str) -> list[Line]:
        return [_read_line(self._source, *span) for span in self._lines.get(name, [])]

    def metadata(self, metadata_id: int) -> Metadata | None:
        span = self._event_metadata.get(metadata_id)
        if span is None:
            return None
        start, end = span
        entry = decode(pb.EventMetadataEntry, self._source.read(start, end - start), start)
        stats: dict[str, Value] = {}
        try:
            for stat in entry.value.stats:
                self._add(stat, start, stats)
        except Damage:
            for stat_start, stat_end in _stats_of(self._source, start, end):
                _blame_compressed(self._source, stat_start, stat_end)
            raise
        return Metadata(entry.value.name, stats)

    def stats(self) -> dict[str, Value]:
        """The plane's own stats."""
        named: dict[str, Value] = {}
        for start, end in zip(self._stats[::2], self._stats[1::2], strict=True):
            stat = decode(pb.XStat, self._source.read(start, end - start), start)
            try:
                self._add(stat, start, named)
            except Damage:
                _blame_compressed(self._source, start, end)
                raise
        return named

    def _add(self, stat: pb.XStat, at: int, named: dict[str, Value]) -> None:
        """Add a stat that has a name and a value; of two of one name, the first."""
        name = self._stat_names.get(stat.metadata_id)
        kind = stat.WhichOneof("value")
        if name is None or kind is None or name in named:
            return
        value: Value | None = getattr(stat, kind)
        if kind == "ref_value":
            value = self._stat_names.get(stat.ref_value)
        elif kind == "compressed_str_value":
            value = _inflate_text(stat.compressed_str_value, at)
        if value is not None:
            named[name] = value


def _stats_of(source: Source, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Where the stats of an entry of event metadata stand."""
    for _, of_entry, value, stop in known_fields(_ENTRY, source.read, start, end):
        if of_entry == "value":
            for _, of_value, stat, stat_end in known_fields(_METADATA, source.read, value, stop):
                if of_value == "stats":
                    yield stat, stat_end


def _blame_compressed(source: Source, start: int, end: int) -> None:
    """Raise Damage at the field of a stat that holds a compressed string and can't be read."""
    for at, name, packed, stop in known_fields(_STAT, source.read, start, end):
        if name == "compressed_str_value":
            _inflate_text(source.read(packed, stop - packed), at)


def _inflate_text(data: bytes, at: int) -> str:
    inflater = zlib.decompressobj(wbits=31)
    try:
        plain = inflater.decompress(data, _TEXT_LIMIT)
    except zlib.error as error:
        raise Damage(at, f"a compressed string is damaged: {error}") from None
    if not inflater.eof or inflater.unused_data:
        raise Damage(at, "a compressed string is cut off, too large, or followed by garbage")
    return text(plain, at, "a compressed string")


def _name(schema: Schema, source: Source, start: int, end: int) -> str:
    for at, name, value, stop in known_fields(schema, source.read, start, end):
        if name == "name":
            return text(source.read(value, stop - value), at, "a name")
        if name == "events":
            # The line's name comes behind its events, or not at all; there may be millions.
            return _read_line(source, start, end).name
    return ""


def _key(source: Source, start: int, end: int) -> int:
    """The key of an entry of the map of event metadata, whose value stays unopened."""
    key = 0
    for at, number, wire, value, _ in fields(source.read, start, end):
        if wire != {1: VARINT, 2: LENGTH}.get(number, wire):
            raise Damage(at, f"field {number} of a map entry has wire type {wire}")
        if number == 1:
            key = value - (1 << 64) if value >> 63 else value
    return key


@dataclass(slots=True)
class _Piece:
    """A slice of a line's payload that holds whole fields."""

    start: int
    end: int
    n_events: int
    # Known once `Line.starts` has been here.
    first: int = 0
    last: int = -1
    n_aggregated: int = 0
    has_column: bool = False


@dataclass(slots=True)
class Line:
    """One timeline. Its events stand at `timestamp_ns * 1000 + offset_ps`."""

    name: str
    timestamp_ns: int
    _source: Source
    _pieces: list[_Piece]
    # Whether `starts` has been through, and the pieces know what they hold.
    _is_indexed: bool = False

    @property
    def base_ps(self) -> int:
        return self.timestamp_ns * 1000

    @property
    def n_events(self) -> int:
        return sum(piece.n_events for piece in self._pieces)

    @property
    def n_aggregated(self) -> int:
        """How many events tell how often something occurred, not when."""
        self._index()
        return sum(piece.n_aggregated for piece in self._pieces)

    def starts(self) -> Iterator[list[int]]:
        """The offset_ps of all events that have one, sorted within each list."""
        for piece in self._pieces:
            data = self._read(piece)
            column = _parse_events(pb.LineOffsets, data, piece.start).events
            if len(UnknownFieldSet(column)):
                explain(pb.LineEvents.DESCRIPTOR, data, piece.start)
            offsets = column.offset_ps[:]
            # A column doesn't tell which value is whose. For offsets alone that does no harm, as
            # long as there are as many as events; in a short line it isn't worth wondering.
            piece.has_column = (
                len(self._pieces) > 1
                and len(offsets) == piece.n_events
                and not column.HasField("num_occurrences")
            )
            if not piece.has_column:
                merged = _parse_events(pb.LineMerged, data, piece.start).events
                if len(UnknownFieldSet(merged)):
                    explain(pb.LineEvents.DESCRIPTOR, data, piece.start)
                events = _parse_events(pb.LineEvents, data, piece.start).events
                offsets = [e.offset_ps for e in events if not e.HasField("num_occurrences")]
                piece.n_aggregated = piece.n_events - len(offsets)
            if offsets:
                offsets.sort()
                piece.first, piece.last = offsets[0], offsets[-1]
                yield offsets
        self._is_indexed = True

    def _index(self) -> None:
        if not self._is_indexed:
            for _ in self.starts():
                pass

    def events(self, start: int, end: int) -> Iterator[list[tuple[int, int, int]]]:
        """The events in `start <= offset_ps < end`, in the file's order.

        Each is its metadata id, offset_ps and duration_ps.
        """
        self._index()
        for piece in self._pieces:
            if not (piece.first < end and start <= piece.last):
                continue
            data = self._read(piece)
            events = list(_parse_events(pb.LineEvents, data, piece.start).events)
            if piece.n_aggregated:
                events = [e for e in events if not e.HasField("num_occurrences")]
            offsets = [e.offset_ps for e in events]
            if piece.has_column:
                column = _parse_events(pb.LineOffsets, data, piece.start).events
                if offsets != column.offset_ps[:]:
                    explain(pb.LineEvents.DESCRIPTOR, data, piece.start)
                    raise Damage(piece.start, "an event starts twice, another not at all")
            yield [
                (e.metadata_id, offset, e.duration_ps)
                for e, offset in zip(events, offsets, strict=True)
                if start <= offset < end
            ]

    def _read(self, piece: _Piece) -> bytes:
        return _read_slice(self._source, piece.start, piece.end)


def _parse_events(kind: type[M], data: bytes, at: int) -> M:
    message = parse(kind, data)
    if message is None:
        explain(pb.LineEvents.DESCRIPTOR, data, at)
        raise Damage(at, "the protobuf parser refuses it")
    return message


def _read_line(source: Source, start: int, end: int) -> Line:
    line = Line("", 0, source, [])
    while start < end:
        data = source.read(start, min(_PIECE_BYTES, end - start))
        size = len(data) if start + len(data) == end else _guess_boundary(data)
        frame = parse(pb.LineFrame, data[:size]) if size else None
        if frame is None or len(UnknownFieldSet(frame)):
            size = _walk_boundary(source, start, end) - start
            frame = decode(pb.LineFrame, _read_slice(source, start, start + size), start)
        if frame.HasField("name"):
            line.name = frame.name
        if frame.HasField("timestamp_ns"):
            line.timestamp_ns = frame.timestamp_ns
        line._pieces.append(_Piece(start, start + size, len(frame.events)))
        start += size
    return line


def _read_slice(source: Source, start: int, end: int) -> bytes:
    """Read whole fields of a line; of an event that is too large for a piece, all but its stats."""
    if end - start > _PIECE_BYTES:
        for _, of_line, value, stop in known_fields(_LINE, source.read, start, end):
            if of_line == "events":
                slim = [
                    source.read(at, field_end - at)
                    for at, of_event, _, field_end in known_fields(_EVENT, source.read, value, stop)
                    if of_event != "stats"
                ]
                return pb.LineFrame(events=[b"".join(slim)]).SerializeToString()
    return source.read(start, end - start)


def _guess_boundary(data: bytes) -> int:
    """Guess where the last whole event of a slice ends, without walking it from its start.

    From any byte that looks like an event's tag, hop from length to length: a chain of hops that
    reaches the end of the slice has, almost surely, joined the chain of the real events. Whether
    it has is for the parser to say: it accepts a slice only if the fields end exactly with it.
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
    """Where the last whole field within a piece's size ends, or else the first field."""
    boundary = start
    for _, _, _, _, stop in fields(source.read, start, end):
        if stop > start + _PIECE_BYTES and boundary > start:
            break
        boundary = stop
    return boundary
