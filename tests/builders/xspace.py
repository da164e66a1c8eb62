"""Builds XSpace files for tests, byte by byte, with a wire encoder of its own.

Two layers. The lower one mirrors the messages of an xplane.pb: `Space`, `Plane`, `Line`, `Event`,
`EventMetadata`, `StatMetadata`, `Stat`. A field that is None is not written, any other value is,
zero too: so "absent" and "explicit zero" are both at hand. `encode(message, arrange)` lets a test
reorder the fields of every message.

The upper layer takes a few lines a test:

    data = trace(
        [
            op("fusion.1", "loop fusion", 0, 100, flops=800, stack="model.py:7:3"),
            op("copy.2", "data formatting", 100, 50, opcode="copy"),
        ],
        steps=[("0", 0, 200)],
    )

No protobuf library is involved, so that what the tests feed in doesn't depend on what is tested.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Protocol

Arrange = Callable[[list[bytes]], list[bytes]]


# --- wire format ---------------------------------------------------------------------------------


# Most are: of fields, of lengths and of small values.
_OF_ONE_BYTE = [bytes([value]) for value in range(128)]


def varint(value: int) -> bytes:
    """A base-128 varint; negative numbers as their 64-bit two's complement."""
    if 0 <= value < 128:
        return _OF_ONE_BYTE[value]
    value &= 2**64 - 1
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def int_field(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def double_field(number: int, value: float) -> bytes:
    return varint(number << 3 | 1) + struct.pack("<d", value)


def bytes_field(number: int, value: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def text_field(number: int, value: str) -> bytes:
    return bytes_field(number, value.encode())


class Message(Protocol):
    def fields(self, arrange: Arrange) -> list[bytes]: ...


def encode(message: Message, arrange: Arrange = list) -> bytes:
    """The message's bytes; `arrange` may reorder the fields of it and of every message in it."""
    return b"".join(arrange(message.fields(arrange)))


def _ints(**numbered: tuple[int, int | None]) -> list[bytes]:
    return [int_field(number, value) for number, value in numbered.values() if value is not None]


def _texts(**numbered: tuple[int, str | None]) -> list[bytes]:
    return [text_field(number, value) for number, value in numbered.values() if value is not None]


def _messages(number: int, messages: Sequence[Message], arrange: Arrange) -> list[bytes]:
    return [bytes_field(number, encode(message, arrange)) for message in messages]


# --- the messages --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Value:
    """A stat's value and the variant it is written in; made by the functions below."""

    variant: str | None
    value: int | float | str | bytes = 0


def double(value: float) -> Value:
    return Value("double", value)


def uint64(value: int) -> Value:
    return Value("uint64", value)


def int64(value: int) -> Value:
    return Value("int64", value)


def string(value: str) -> Value:
    return Value("str", value)


def raw(value: bytes) -> Value:
    return Value("bytes", value)


def ref(value: int | str) -> Value:
    """The id of a stat_metadata; where stats go by name, the text that is to be its name."""
    return Value("ref", value)


def compressed(value: str) -> Value:
    return Value("compressed", value)


NO_VALUE = Value(None)


@dataclass
class Stat:
    metadata_id: int | None
    value: Value = NO_VALUE

    def fields(self, arrange: Arrange) -> list[bytes]:
        out = _ints(metadata_id=(1, self.metadata_id))
        match self.value.variant, self.value.value:
            case "double", (int() | float()) as number:
                out.append(double_field(2, number))
            case "uint64" | "int64" | "ref" as variant, int(number):
                out.append(int_field({"uint64": 3, "int64": 4, "ref": 7}[variant], number))
            case "str", str(text):
                out.append(text_field(5, text))
            case "bytes", bytes(blob):
                out.append(bytes_field(6, blob))
            case "compressed", str(text):
                # Without a time stamp, for equal bytes from equal input.
                out.append(bytes_field(8, gzip.compress(text.encode(), mtime=0)))
            case None, _:
                pass
            case other:
                raise ValueError(f"no such stat value: {other}")
        return out


@dataclass
class Event:
    metadata_id: int | None
    offset_ps: int | None = None
    duration_ps: int | None = None
    num_occurrences: int | None = None
    stats: list[Stat] = field(default_factory=list)
    extra: bytes = b""

    def fields(self, arrange: Arrange) -> list[bytes]:
        return [
            *_ints(
                metadata_id=(1, self.metadata_id),
                offset_ps=(2, self.offset_ps),
                duration_ps=(3, self.duration_ps),
            ),
            *_messages(4, self.stats, arrange),
            *_ints(num_occurrences=(5, self.num_occurrences)),
            self.extra,
        ]


@dataclass
class Line:
    name: str | None
    events: list[Event] = field(default_factory=list)
    timestamp_ns: int | None = None
    id: int | None = None
    display_name: str | None = None
    extra: bytes = b""

    def fields(self, arrange: Arrange) -> list[bytes]:
        return [
            *_ints(id=(1, self.id)),
            *_texts(name=(2, self.name)),
            *_ints(timestamp_ns=(3, self.timestamp_ns)),
            *_messages(4, self.events, arrange),
            *_texts(display_name=(11, self.display_name)),
            self.extra,
        ]


@dataclass
class EventMetadata:
    id: int | None
    name: str | None = None
    stats: list[Stat] = field(default_factory=list)
    display_name: str | None = None
    extra: bytes = b""

    def fields(self, arrange: Arrange) -> list[bytes]:
        return [
            *_ints(id=(1, self.id)),
            *_texts(name=(2, self.name), display_name=(4, self.display_name)),
            *_messages(5, self.stats, arrange),
            self.extra,
        ]


@dataclass
class StatMetadata:
    id: int | None
    name: str | None = None
    extra: bytes = b""

    def fields(self, arrange: Arrange) -> list[bytes]:
        return [*_ints(id=(1, self.id)), *_texts(name=(2, self.name)), self.extra]


@dataclass
class _MapEntry:
    value: EventMetadata | StatMetadata

    def fields(self, arrange: Arrange) -> list[bytes]:
        return [
            *_ints(key=(1, self.value.id)),
            bytes_field(2, encode(self.value, arrange)),
        ]


@dataclass
class Plane:
    name: str | None
    lines: list[Line] = field(default_factory=list)
    event_metadata: list[EventMetadata] = field(default_factory=list)
    stat_metadata: list[StatMetadata] = field(default_factory=list)
    stats: list[Stat] = field(default_factory=list)
    id: int | None = None
    extra: bytes = b""

    def fields(self, arrange: Arrange) -> list[bytes]:
        return [
            *_ints(id=(1, self.id)),
            *_texts(name=(2, self.name)),
            *_messages(3, self.lines, arrange),
            *_messages(4, [_MapEntry(m) for m in self.event_metadata], arrange),
            *_messages(5, [_MapEntry(m) for m in self.stat_metadata], arrange),
            *_messages(6, self.stats, arrange),
            self.extra,
        ]


@dataclass
class Space:
    planes: list[Plane] = field(default_factory=list)
    hostnames: list[str] = field(default_factory=list)
    extra: bytes = b""

    def fields(self, arrange: Arrange) -> list[bytes]:
        return [
            *_messages(1, self.planes, arrange),
            *(text_field(4, name) for name in self.hostnames),
            self.extra,
        ]


# --- stats by name -------------------------------------------------------------------------------

StatValue = int | float | str | bytes | Value


def as_value(value: StatValue) -> Value:
    """The variant that the profiler itself would choose."""
    match value:
        case Value():
            return value
        case int():
            return uint64(value) if value >= 2**63 else int64(value)
        case float():
            return double(value)
        case str():
            return string(value)
        case bytes():
            return raw(value)


class StatNames:
    """Hands out stat_metadata ids: one for every name asked for."""

    def __init__(self, first_id: int = 1) -> None:
        self.first_id = first_id
        self.names: list[str] = []

    def id_of(self, name: str) -> int:
        if name not in self.names:
            self.names.append(name)
        return self.first_id + self.names.index(name)

    def stat(self, name: str, value: StatValue) -> Stat:
        value = as_value(value)
        if value.variant == "ref" and isinstance(value.value, str):
            value = ref(self.id_of(value.value))
        return Stat(self.id_of(name), value)

    def metadata(self) -> list[StatMetadata]:
        return [StatMetadata(self.id_of(name), name) for name in self.names]


# --- a device plane in a few lines ---------------------------------------------------------------


@dataclass
class Op:
    """One execution of an op: its HLO text and named stats, its offset and duration."""

    text: str
    stats: dict[str, StatValue]
    start: int
    dur: int


def op(
    name: str,
    category: StatValue | None,
    start: int,
    dur: int = 0,
    *,
    shape: str = "f32[8,128]{1,0:T(8,128)}",
    operands: str | None = None,
    opcode: str | None = None,
    attributes: str = "",
    text: str | None = None,
    stack: StatValue | None = None,
    **stats: StatValue,
) -> Op:
    """An op named `%name`. The HLO text follows from the arguments unless `text` is given; the
    opcode is guessed from the category. `stack` is short for `source_stack`; every other keyword
    is the stat of that name. The stat shape_with_layout is `shape`, unless given."""
    if opcode is None:
        opcode = category if isinstance(category, str) else "fusion"
        opcode = "fusion" if opcode.endswith("fusion") else opcode.replace(" ", "-")
    if operands is None:
        operands = f"{shape} %operand.1"
    if text is None:
        text = f"%{name} = {shape} {opcode}({operands}){attributes}"
    named: dict[str, StatValue | None] = {
        "hlo_category": category,
        "source_stack": stack,
        "shape_with_layout": shape,
        **stats,
    }
    return Op(text, {k: v for k, v in named.items() if v is not None}, start, dur)


def tpu_plane(
    ops: Sequence[Op],
    steps: Sequence[tuple[str, int, int]] | None = None,
    *,
    name: str = "/device:TPU:0",
    ops_timestamp_ns: int | None = None,
    steps_timestamp_ns: int | None = None,
    stats: dict[str, StatValue] | None = None,
) -> Plane:
    """A device plane with an `XLA Ops` line and, unless `steps` is None, a `Steps` line of
    (name, start, duration). Ops of equal text and stats share one metadata entry."""
    names = StatNames()
    # By what they are told apart: the number of their entry, and one of them.
    kinds: dict[tuple[str, frozenset[tuple[str, StatValue]]], tuple[int, Op]] = {}
    lines = [Line("XLA Ops", timestamp_ns=ops_timestamp_ns)]
    for each in ops:
        key = each.text, frozenset(each.stats.items())
        metadata_id, _ = kinds.setdefault(key, (1 + len(kinds), each))
        # proto3 doesn't write a duration of 0; an offset of 0 it does, being in a oneof.
        lines[0].events.append(Event(metadata_id, each.start, each.dur or None))
    metadata = [
        EventMetadata(i, kind.text, [names.stat(k, v) for k, v in kind.stats.items()])
        for i, kind in kinds.values()
    ]
    if steps is not None:
        line = Line("Steps", timestamp_ns=steps_timestamp_ns)
        for step_name, start, dur in steps:
            metadata.append(EventMetadata(1 + len(metadata), step_name))
            line.events.append(Event(metadata[-1].id, start, dur or None))
        lines.insert(0, line)
    own_stats = [names.stat(k, v) for k, v in (stats or {}).items()]
    return Plane(name, lines, metadata, names.metadata(), own_stats)


def trace(ops: Sequence[Op], steps: Sequence[tuple[str, int, int]] | None = None) -> bytes:
    """A file of one device plane."""
    return encode(Space([tpu_plane(ops, steps)]))


def memory_access_breakdown(*accesses: tuple[int, int, int]) -> bytes:
    """The stat of that name: (operation: 1 read, 2 write; memory space: 1 HBM; bytes) each."""
    return b"".join(
        bytes_field(1, int_field(1, operation) + int_field(2, space) + int_field(3, size))
        for operation, space, size in accesses
    )
