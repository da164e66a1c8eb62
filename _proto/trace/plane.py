"""Read a plane of a trace: lines, metadata and stats.

`Plane` walks through a plane and stores the positions of lines and metadata. Lines are read
in pieces and metadata entry by entry, both on demand, so memory use does not depend on the file
size.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from operator import eq
from typing import Any, TypeVar

from google.protobuf.message import Message

from _breakdown.light import NamedTuple
from _proto import columns_pb2 as columns, xplane_pb2 as pb
from _proto.errors import Damage
from _proto.trace.lines import Line
from _proto.trace.source import Source
from _proto.trace.wire import decode, explain, known_fields, parse, signed, text

# Maximum size of a decompressed string in bytes.
_TEXT_LIMIT = 4 << 20
# Maximum total size of metadata entries whose keys are decoded together.
_KEYS_BYTES = 1 << 18
# Number of bytes of metadata entries that are read at once.
_READ_BYTES = 1 << 16
# A stat that differs between all ops, and that no answer about ops needs.
_UNREAD = "symbol_id"

M = TypeVar("M", bound=Message)
Value = float | int | str | bytes
Span = tuple[int, int]


class _Values(dict[bytes, "tuple[str, Value] | None"]):
    """Names and values of encoded stats, each decoded once, because nine in ten stats of an op
    repeat a stat of another op. A stat without a name or a value is None."""

    def __init__(self, stat_names: Mapping[int, str], unread: str = "") -> None:
        self._stat_names = stat_names
        ids = [i for i, name in stat_names.items() if i and name == unread]
        # A stat begins with its id.
        self._unread = tuple(pb.XStat(metadata_id=i).SerializeToString() for i in ids)

    def __missing__(self, encoded: bytes) -> tuple[str, Value] | None:
        if encoded.startswith(self._unread):
            return None
        found = self[encoded] = self.of(decode(pb.XStat, encoded, 0))
        return found

    def of(self, stat: pb.XStat) -> tuple[str, Value] | None:
        """Return the name and the value of a stat."""
        name, kind = self._stat_names.get(stat.metadata_id), stat.WhichOneof("value")
        if name is None or kind is None:
            return None
        value = getattr(stat, kind)
        if kind == "ref_value":
            text_of_ref = self._stat_names.get(value)
            return None if text_of_ref is None else (name, text_of_ref)
        return name, _inflated(value) if kind == "compressed_str_value" else value


class Stats(dict[str, Value]):
    """Stats that have a name and a value. If several stats have the same name, the last one is
    used.

    Messages are decoded on demand, so the trace must still be open. `span` is the part of the file
    that contains them. `found` has None for stats to be left out.
    """

    __slots__ = ("_plane", "_span")

    def __init__(self, plane: Plane, found: Iterable[tuple[str, Value] | None], span: Span) -> None:
        try:
            super().__init__(filter(None, found))
        except Damage as damage:
            raise Damage(span[0], damage.what) from None
        self._plane = plane
        self._span = span

    def adopt(self, name: str, other: Stats) -> None:
        """Add a stat from another object of the same plane, such as an event."""
        self[name] = value = other[name]
        if isinstance(value, bytes):
            self._span = other._span

    def message(self, name: str, kind: type[M]) -> M | None:
        """Decode the message that a stat contains; return None if the value is not bytes."""
        data = self.get(name)
        if not isinstance(data, bytes):
            return None
        message = parse(kind, data)
        return decode(kind, data, self._offset_of(data)) if message is None else message

    def damage(self, name: str, what: str) -> Damage:
        """Return a Damage at the position of a stat that contains a message."""
        data = self[name]
        assert isinstance(data, bytes)
        return Damage(self._offset_of(pb.XStat(bytes_value=data).SerializeToString()), what)

    def _offset_of(self, data: bytes) -> int:
        start, end = self._span
        return start + max(0, self._plane.source.read(start, end - start).find(data))


class Metadata(NamedTuple):
    """An op's HLO text and stats, which apply to all its executions."""

    name: str
    stats: Stats

    @property
    def accesses(self) -> list[tuple[int, int]] | None:
        """Return the memory space and the bytes of each memory access in one execution, or None if
        unknown."""
        breakdown = self.stats.message("memory_access_breakdown", pb.MemoryAccessBreakdown)
        if breakdown is None:
            return None
        accesses = [(access.memory_space, access.bytes) for access in breakdown.accesses]
        if any(n_bytes < 0 for _, n_bytes in accesses):
            raise self.stats.damage("memory_access_breakdown", "a negative number of bytes")
        return accesses


class Plane:
    """A plane of a trace. Lines, metadata and stats are decoded on demand."""

    def __init__(self, name: str, source: Source, start: int, end: int) -> None:
        self.name = name
        self.source = source
        self.n_bytes = end - start
        # JoinedPlane has one part for each record.
        self.parts = [self]
        self.stat_names: dict[int, str] = {}
        self._lines: dict[str, list[Span]] = {}
        self._event_metadata: dict[int, Span] = {}
        self._stats: list[Span] = []
        self._index(start, end)
        self._values = _Values(self.stat_names)
        self._values_of_ops = _Values(self.stat_names, _UNREAD)

    def _index(self, start: int, end: int) -> None:
        """Store the positions of lines and metadata, and read the stat names."""
        source = self.source
        entries: list[tuple[int, int, int]] = []
        of_plane = known_fields(pb.XPlane, source, start, end)
        for at, field_name, start, end in of_plane:
            if field_name == "lines":
                name = _name_of(pb.XLine, source, start, end)
                self._lines.setdefault(name, []).append((start, end))
            elif field_name == "event_metadata":
                entries.append((at, start, end))
            elif field_name == "stat_metadata":
                data = source.read(start, end - start)
                entry = decode(pb.StatMetadataEntry, data, start)
                self.stat_names[entry.key] = entry.value.name
            elif field_name == "stats":
                self._stats.append((start, end))
        for neighbours in _neighbours(entries):
            spans = ((start, end) for _, start, end in neighbours)
            keys = _keys_of(source, neighbours)
            self._event_metadata.update(zip(keys, spans, strict=True))

    @property
    def line_names(self) -> list[str]:
        return list(self._lines)

    def lines(self, name: str) -> list[Line]:
        spans = self._lines.get(name, [])
        # Lines are read in up to three passes.
        self.source.expect(3 * sum(end - start for start, end in spans))
        return [Line(self.source, *span, self.stat_names) for span in spans]

    def all_lines(self) -> Iterator[Line]:
        """Yield the lines in the file's order."""
        for start, end in sorted(chain.from_iterable(self._lines.values())):
            yield Line(self.source, start, end, self.stat_names)

    @property
    def n_event_metadata(self) -> int:
        return len(self._event_metadata)

    def stat_ids(self, stat_name: str) -> frozenset[int]:
        return frozenset(i for i, name in self.stat_names.items() if name == stat_name)

    def unknown(self, metadata_ids: Iterable[int]) -> set[int]:
        """Return the ids without an entry in the event metadata."""
        return {i for i in metadata_ids if i not in self._event_metadata}

    def entry(self, metadata_id: int) -> pb.XEventMetadata | None:
        span = self._event_metadata.get(metadata_id)
        if span is None:
            return None
        start, end = span
        return decode(pb.EventMetadataEntry, self.source.read(start, end - start), start).value

    def has_same_metadata(self, other: object, metadata_ids: Iterable[int]) -> bool:
        """Return whether another plane's entries have the same bytes and the same meaning."""
        return other is self or (
            isinstance(other, Plane)
            and self.stat_names == other.stat_names
            and self._has_same_bytes(other, metadata_ids)
        )

    def _has_same_bytes(self, other: Plane, metadata_ids: Iterable[int]) -> bool:
        ordered = sorted(metadata_ids, key=self._event_metadata.__getitem__)
        return all(map(eq, self._bytes_of(ordered), other._bytes_of(ordered)))

    def _bytes_of(self, metadata_ids: Iterable[int]) -> Iterator[bytes]:
        """Yield the bytes of entries. Several are read at once if they are in the file's order."""
        window, base = b"", 0
        for start, end in map(self._event_metadata.__getitem__, metadata_ids):
            if not base <= start <= end <= base + len(window):
                length = min(max(end - start, _READ_BYTES), self.source.size - start)
                window, base = self.source.read(start, length), start
            yield window[start - base : end - base]

    def metadata(self, metadata_id: int) -> Metadata | None:
        found = self._entry(metadata_id)
        return found[0] if found else None

    def metadata_of_ops(self, metadata_ids: Iterable[int]) -> dict[int, Metadata]:
        """Return entries by id, in the given order. None of them may be missing."""
        found: dict[int, Any] = dict.fromkeys(metadata_ids)
        ordered = sorted(found, key=self._event_metadata.__getitem__)
        for metadata_id, data in zip(ordered, self._bytes_of(ordered), strict=True):
            span = self._event_metadata[metadata_id]
            found[metadata_id], _ = self._decoded(data, span, self._values_of_ops)
        return found

    def metadata_and_content(self, metadata_id: int) -> tuple[Metadata, object] | None:
        """Return an entry, and a key that is the same for all entries with equal content."""
        found = self._entry(metadata_id)
        if found is None:
            return None
        metadata, value = found
        # Compare `repr` of stats, because NaN does not equal itself.
        content = frozenset((name, repr(stat)) for name, stat in metadata.stats.items())
        return metadata, (metadata.name, value.display_name, content)

    def _entry(self, metadata_id: int) -> tuple[Metadata, pb.OpMetadataEntry.Value] | None:
        span = self._event_metadata.get(metadata_id)
        if span is None:
            return None
        return self._decoded(self.source.read(span[0], span[1] - span[0]), span, self._values)

    def _decoded(
        self, data: bytes, span: Span, values: _Values
    ) -> tuple[Metadata, pb.OpMetadataEntry.Value]:
        value = decode(pb.OpMetadataEntry, data, span[0], pb.EventMetadataEntry).value
        try:
            stats = Stats(self, map(values.__getitem__, value.stats[:]), span)
        except Damage:
            explain(pb.EventMetadataEntry.DESCRIPTOR, data, span[0])
            raise
        return Metadata(value.name, stats), value

    def stats_of(self, stats: Iterable[pb.XStat], span: Span) -> Stats:
        """Return stats at `span` in the file, such as those of an event."""
        return Stats(self, map(self._values.of, stats), span)

    def metadata_names(self) -> Iterator[tuple[int, str]]:
        """Yield the ids and names of all entries."""
        for metadata_id in self._event_metadata:
            entry = self.entry(metadata_id)
            assert entry is not None
            yield metadata_id, entry.name

    @property
    def has_stats(self) -> bool:
        return len(self._stats) > 0

    def stats(self) -> Stats:
        """Return the plane's own stats."""
        stats = [
            decode(pb.XStat, self.source.read(start, end - start), start)
            for start, end in self._stats
        ]
        hull = (self._stats[0][0], self._stats[-1][1]) if self._stats else (0, 0)
        return self.stats_of(stats, hull)


def _inflated(data: bytes) -> str:
    """Decompress a string; raise Damage, without the position, if it is damaged."""
    inflater = zlib.decompressobj(wbits=31)
    try:
        plain = inflater.decompress(data, _TEXT_LIMIT)
    except zlib.error as error:
        raise Damage(0, f"a compressed string is damaged: {error}") from None
    if not inflater.eof or inflater.unused_data:
        raise Damage(0, "a compressed string is cut off, too large, or followed by garbage")
    return text(plain, 0, "a compressed string")


def plane_name(source: Source, start: int, end: int) -> str:
    return _name_of(pb.XPlane, source, start, end)


def _name_of(kind: type[Message], source: Source, start: int, end: int) -> str:
    """Return the name of a plane or a line. Profilers write the name as the first field."""
    for at, name, value, stop in known_fields(kind, source, start, end):
        if name == "name":
            return text(source.read(value, stop - value), at, "a name")
    return ""


# The following functions read the keys of the event metadata, without decoding the large values.


def _neighbours(
    entries: Sequence[tuple[int, int, int]],
) -> Iterator[Sequence[tuple[int, int, int]]]:
    """Split entries into groups that are contiguous in the file, so that each group can be decoded
    at once."""
    first = 0
    for i, (before, entry) in enumerate(pairwise(entries), 1):
        if before[2] != entry[0] or entry[2] - entries[first][0] > _KEYS_BYTES:
            yield entries[first:i]
            first = i
    if entries:
        yield entries[first:]


def _keys_of(source: Source, neighbours: Sequence[tuple[int, int, int]]) -> Sequence[int]:
    """Return the keys of entries that are contiguous in the file.

    If there are as many keys as entries, assume that each entry has one key, because protobuf
    writes the key of a map entry once.
    """
    start, end = neighbours[0][0], neighbours[-1][2]
    if end - start <= _KEYS_BYTES:
        column = parse(columns.MetadataKeys, source.read(start, end - start))
        if column is not None and len(column.event_metadata.key) == len(neighbours):
            return column.event_metadata.key
    return [key_of(source, *entry) for _, *entry in neighbours]


def key_of(source: Source, start: int, end: int) -> int:
    """Return an entry's key without decoding its value."""
    key = 0
    for _, name, value, _ in known_fields(pb.EventMetadataEntry, source, start, end):
        if name == "key":
            key = signed(value)
    return key
