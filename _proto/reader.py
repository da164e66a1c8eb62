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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from google.protobuf.message import Message
from google.protobuf.unknown_fields import UnknownFieldSet

from . import xplane_pb2 as pb
from .errors import Damage
from .source import Source
from .wire import LENGTH, decode, explain, fields, known_fields, parse, text

_PIECE_BYTES = 1 << 16
_TAIL_BYTES = 1 << 12
_TEXT_LIMIT = 64 << 20
_EVENT_TAG = 4 << 3 | LENGTH
_HBM = 1

M = TypeVar("M", bound=Message)
Value = float | int | str | bytes


class Trace:
    """A file's planes. Making one walks the whole file, from plane to plane."""

    def __init__(self, source: Source) -> None:
        if not source.size:
            raise Damage(0, "the file is empty")
        self._source = source
        self._planes: dict[str, tuple[int, int]] = {}
        for _, field_name, start, end in known_fields(
            pb.XSpace.DESCRIPTOR, source.read, 0, source.size
        ):
            if field_name == "planes":
                # Of two planes of one name, the first.
                self._planes.setdefault(_name(pb.XPlane, source, start, end), (start, end))

    @property
    def plane_names(self) -> list[str]:
        return list(self._planes)

    def plane(self, name: str) -> Plane:
        """Index a plane: where its lines and metadata lie, and what its stats are called."""
        source = self._source
        plane = Plane(name, source)
        for _, field_name, start, end in known_fields(
            pb.XPlane.DESCRIPTOR, source.read, *self._planes[name]
        ):
            if field_name == "lines":
                line_name = _name(pb.XLine, source, start, end)
                plane._lines.setdefault(line_name, []).append((start, end))
            elif field_name == "event_metadata":
                plane._event_metadata[_key(source, start, end)] = start, end
            elif field_name == "stat_metadata":
                entry = decode(pb.StatMetadataEntry, source.read(start, end - start), start)
                plane._stat_names[entry.key] = entry.value.name
            elif field_name == "stats":
                plane._stats.append((start, end))
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
    _stats: list[tuple[int, int]] = field(default_factory=list)

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
        return Metadata(entry.value.name, self._named(entry.value.stats, start))

    def stats(self) -> dict[str, Value]:
        stats = [
            decode(pb.XStat, self._source.read(start, end - start), start)
            for start, end in self._stats
        ]
        return self._named(stats, self._stats[0][0] if stats else 0)

    def _named(self, stats: Sequence[pb.XStat], at: int) -> dict[str, Value]:
        """The stats that have a name and a value; of two of one name, the first."""
        named: dict[str, Value] = {}
        for stat in stats:
            name = self._stat_names.get(stat.metadata_id)
            kind = stat.WhichOneof("value")
            if name is None or kind is None or name in named:
                continue
            value: Value | None = getattr(stat, kind)
            if kind == "ref_value":
                value = self._stat_names.get(stat.ref_value)
            elif kind == "compressed_str_value":
                value = _inflate(stat.compressed_str_value, at)
            if value is not None:
                named[name] = value
        return named


def _inflate(data: bytes, at: int) -> str:
    inflater = zlib.decompressobj(wbits=31)
    try:
        plain = inflater.decompress(data, _TEXT_LIMIT)
    except zlib.error as error:
        raise Damage(at, f"a compressed string is damaged: {error}") from None
    if not inflater.eof:
        raise Damage(at, "a compressed string is cut off, or too large")
    return text(plain, at, "a compressed string")


def _name(kind: type[pb.XPlane] | type[pb.XLine], source: Source, start: int, end: int) -> str:
    for at, name, value, stop in known_fields(kind.DESCRIPTOR, source.read, start, end):
        if name == "name":
            return text(source.read(value, stop - value), at, "a name")
        if name == "events":
            # The line's name comes behind its events, or not at all; there may be millions.
            return _read_line(source, start, end).name
    return ""


def _key(source: Source, start: int, end: int) -> int:
    """The key of an entry of the map of event metadata, whose value stays unopened."""
    for _, number, _, value, _ in fields(source.read, start, end):
        if number == 1:
            return value - (1 << 64) if value >> 63 else value
    return 0


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


@dataclass(slots=True)
class Line:
    """One timeline. Its events stand at `timestamp_ns * 1000 + offset_ps`."""

    name: str
    timestamp_ns: int
    _source: Source
    _pieces: list[_Piece]

    @property
    def base_ps(self) -> int:
        return self.timestamp_ns * 1000

    @property
    def n_events(self) -> int:
        return sum(piece.n_events for piece in self._pieces)

    @property
    def n_aggregated(self) -> int:
        """How many events tell how often something occurred, not when. (After `starts`.)"""
        return sum(piece.n_aggregated for piece in self._pieces)

    def starts(self) -> Iterator[list[int]]:
        """The offset_ps of all events that have one, sorted within each list."""
        for piece in self._pieces:
            # Merging the events into columns loses which value belongs to which. For offsets
            # alone that does no harm, as long as there is one for each event.
            message = self._decode(pb.LineColumns, piece)
            columns = message.events
            if len(UnknownFieldSet(columns)):
                data = self._read(piece)
                explain(pb.LineEvents.DESCRIPTOR, data, piece.start)
            offsets = columns.offset_ps[:]
            piece.n_aggregated = len(columns.num_occurrences)
            if len(offsets) + piece.n_aggregated != piece.n_events:
                events = self._decode(pb.LineEvents, piece).events
                timed = [event for event in events if not event.HasField("num_occurrences")]
                piece.n_aggregated = len(events) - len(timed)
                offsets = [event.offset_ps for event in timed]
            if offsets:
                offsets.sort()
                piece.first, piece.last = offsets[0], offsets[-1]
                yield offsets

    def events(self, start: int, end: int) -> Iterator[list[tuple[int, int, int]]]:
        """The (metadata id, offset_ps, duration_ps) of the events in `start <= offset_ps < end`.

        In the file's order, and only after `starts`.
        """
        for piece in self._pieces:
            if not (piece.first < end and start <= piece.last):
                continue
            events: Iterable[pb.LineEvents.Event] = self._decode(pb.LineEvents, piece).events
            if piece.n_aggregated:
                events = (e for e in events if not e.HasField("num_occurrences"))
            yield [
                (e.metadata_id, offset, e.duration_ps)
                for e in events
                if start <= (offset := e.offset_ps) < end
            ]

    def _read(self, piece: _Piece) -> bytes:
        return self._source.read(piece.start, piece.end - piece.start)

    def _decode(self, kind: type[M], piece: _Piece) -> M:
        data = self._read(piece)
        message = parse(kind, data)
        if message is None:
            explain(pb.LineEvents.DESCRIPTOR, data, piece.start)
            raise Damage(piece.start, "the protobuf parser refuses it")
        return message


def _read_line(source: Source, start: int, end: int) -> Line:
    line = Line("", 0, source, [])
    while start < end:
        data = source.read(start, min(_PIECE_BYTES, end - start))
        size = len(data) if start + len(data) == end else _guess_boundary(data)
        frame = parse(pb.LineFrame, data[:size]) if size else None
        if frame is None or len(UnknownFieldSet(frame)):
            size = _walk_boundary(source, start, end) - start
            frame = decode(pb.LineFrame, source.read(start, size), start)
        if frame.HasField("name"):
            line.name = frame.name
        if frame.HasField("timestamp_ns"):
            line.timestamp_ns = frame.timestamp_ns
        line._pieces.append(_Piece(start, start + size, len(frame.events)))
        start += size
    return line


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
