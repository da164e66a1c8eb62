"""Reads the keys of a plane's event metadata, whose values stay unopened."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from google.protobuf.unknown_fields import UnknownFieldSet

from _proto import columns_pb2 as columns
from _proto.errors import Damage
from _proto.trace.source import Source
from _proto.trace.wire import LENGTH, VARINT, fields, parse

# How many bytes of entries are looked into at once.
_AT_ONCE = 1 << 18

Span = tuple[int, int]


class Keys:
    """The keys of entries, many at once: `on_keys` is told them and where these entries lie."""

    def __init__(
        self, source: Source, on_keys: Callable[[Sequence[int], Sequence[Span]], None]
    ) -> None:
        self._source = source
        self._on_keys = on_keys
        # Of entries that stand one behind the other, and where the first begins.
        self._at = 0
        self._entries: list[Span] = []

    def add(self, at: int, start: int, end: int) -> None:
        """An entry that begins at `at`, and what is in it."""
        is_next = self._entries and self._entries[-1][1] == at
        if not is_next or end - self._at > _AT_ONCE:
            self.look()
            self._at = at
        self._entries.append((start, end))

    def look(self) -> None:
        """Into all that were added, at once if they are as all writers write them: a key each.

        That one has two and another none isn't looked for; what writes a map never does that.
        """
        entries, self._entries = self._entries, []
        if not entries:
            return
        size = entries[-1][1] - self._at
        keys: Sequence[int] = ()
        if size <= _AT_ONCE:
            column = parse(columns.MetadataKeys, self._source.read(self._at, size))
            if column is not None and not len(UnknownFieldSet(column.event_metadata)):
                keys = column.event_metadata.key
        if len(keys) != len(entries):
            keys = [key_of(self._source, *entry) for entry in entries]
        self._on_keys(keys, entries)


def key_of(source: Source, start: int, end: int) -> int:
    """The key of an entry of the map of event metadata, whose value stays unopened."""
    key = 0
    for at, number, wire, value, _ in fields(source, start, end):
        if wire != {1: VARINT, 2: LENGTH}.get(number, wire):
            raise Damage(at, f"field {number} of a map entry has wire type {wire}")
        if number == 1:
            key = signed(value)
    return key


def signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value
