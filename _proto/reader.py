"""Reads one plane of an xplane.pb: its lines, its metadata, its stats. Nothing else.

Planes and lines that aren't asked for are skipped by their length. A line is decoded in pieces,
and metadata one entry at a time, so memory does not depend on the file.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from . import xplane_pb2 as pb
from .errors import Damage
from .lines import DeviceStats, Line, read_line
from .source import Source
from .wire import LENGTH, VARINT, Schema, decode, fields, known_fields, parse, text

_TEXT_LIMIT = 4 << 20
_SPACE, _PLANE, _LINE, _STAT, _ENTRY, _METADATA = (
    Schema(kind.DESCRIPTOR)
    for kind in (
        *(pb.XSpace, pb.XPlane, pb.XLine, pb.XStat),
        *(pb.EventMetadataEntry, pb.XEventMetadata),
    )
)

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

    def read(self, start: int, length: int) -> bytes:
        """The file's bytes, for what `attachments` found."""
        return self._source.read(start, length)

    def attachments(self, plane: str, stat: str, damage: list[Damage]) -> list[Attachment]:
        """The entries of a plane's event metadata, and where each has that stat's bytes.

        These may be large and stay unread. What is damaged is left out and told in `damage`.
        """
        source = self._source
        entries: dict[str, list[tuple[int, int]]] = {"event_metadata": [], "stat_metadata": []}
        span = self._planes.get(plane, (0, 0))
        try:
            for _, name, start, end in known_fields(_PLANE, source.read, *span):
                if name in entries:
                    entries[name].append((start, end))
        except Damage as error:
            damage.append(error)
        stat_ids = set()
        for start, end in entries["stat_metadata"]:
            try:
                entry = decode(pb.StatMetadataEntry, source.read(start, end - start), start)
            except Damage as error:
                damage.append(error)
            else:
                if entry.value.name == stat:
                    stat_ids.add(entry.key)
        attachments = []
        for start, end in entries["event_metadata"]:
            try:
                attachments.append(_attachment(source, start, end, stat_ids))
            except Damage as error:
                damage.append(error)
        return attachments


@dataclass(slots=True)
class Attachment:
    """An entry of event metadata, and where the bytes of one of its stats lie, if it has it."""

    key: int
    name: str
    span: tuple[int, int] | None


@dataclass(slots=True)
class Metadata:
    """What is known of all executions of one op: its HLO text, and its stats by name."""

    name: str
    stats: dict[str, Value]

    @property
    def accesses(self) -> list[tuple[int, int]] | None:
        """How many bytes an execution moves to or from which memory; None where it isn't told."""
        breakdown = self.stats.get("memory_access_breakdown")
        message = None
        if isinstance(breakdown, bytes):
            message = parse(pb.MemoryAccessBreakdown, breakdown)
        if message is None:
            return None
        return [(access.memory_space, access.bytes) for access in message.accesses]


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
        device_stats = DeviceStats(
            self._ids_of("device_offset_ps"), self._ids_of("device_duration_ps")
        )
        spans = self._lines.get(name, [])
        return [read_line(self._source, *span, device_stats) for span in spans]

    def _ids_of(self, stat_name: str) -> frozenset[int]:
        return frozenset(i for i, name in self._stat_names.items() if name == stat_name)

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
            return read_line(source, start, end, DeviceStats(frozenset(), frozenset())).name
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


def _attachment(source: Source, start: int, end: int, stat_ids: set[int]) -> Attachment:
    attachment = Attachment(_key(source, start, end), "", None)
    for _, of_entry, value, stop in known_fields(_ENTRY, source.read, start, end):
        if of_entry == "value":
            for at, of_value, inner, inner_end in known_fields(_METADATA, source.read, value, stop):
                if of_value == "name":
                    attachment.name = text(source.read(inner, inner_end - inner), at, "a name")
                elif of_value == "stats" and attachment.span is None:
                    attachment.span = _bytes_of(source, inner, inner_end, stat_ids)
    return attachment


def _bytes_of(source: Source, start: int, end: int, stat_ids: set[int]) -> tuple[int, int] | None:
    """Where the bytes of a stat lie, if it is one of these and has some."""
    metadata_id, span = 0, None
    for _, name, value, stop in known_fields(_STAT, source.read, start, end):
        if name == "metadata_id":
            metadata_id = value - (1 << 64) if value >> 63 else value
        else:
            span = (value, stop) if name == "bytes_value" else None
    return span if metadata_id in stat_ids else None
