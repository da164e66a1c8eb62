"""Build XSpace files for tests, byte by byte, without the protobuf library.

The lower layer mirrors the messages of an xplane.pb: `Space`, `Plane`, `Line`, `Event`,
`EventMetadata`, `StatMetadata`, `Stat`. A field with the value None is not written; zeros are
written. `encode(message, arrange)` lets a test reorder the fields of every message.

The upper layer describes a trace in a few lines:

    data = trace(
        [
            op("fusion.1", "loop fusion", 0, 100, flops=800, stack="model.py:7:3"),
            op("copy.2", "data formatting", 100, 50, opcode="copy"),
        ],
        steps=[("0", 0, 200)],
    )

The encoder is separate, so the tests' input does not depend on the code under test.
"""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Annotated, get_origin, get_type_hints

Arrange = Callable[[list[bytes]], list[bytes]]


# Most field numbers, lengths and values fit in one byte.
_OF_ONE_BYTE = [bytes([value]) for value in range(128)]


def varint(value: int) -> bytes:
    """Encode a base-128 varint; a negative number is encoded as 64-bit two's complement."""
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


# The fields of each message type, in the order of writing: name, number, and True for a map.
_NUMBERS: dict[type[Message], list[tuple[str, int, bool]]] = {}


def _numbers(kind: type[Message]) -> list[tuple[str, int, bool]]:
    if kind not in _NUMBERS:
        hints = get_type_hints(kind, include_extras=True).items()
        known = ((name, hint.__metadata__) for name, hint in hints if get_origin(hint) is Annotated)
        found = [(name, numbers[0], "map" in numbers) for name, numbers in known]
        _NUMBERS[kind] = sorted(found, key=lambda field: field[1])
    return _NUMBERS[kind]


class Message:
    """Represent a message; the class annotations specify the field numbers."""

    def fields(self, arrange: Arrange) -> list[bytes]:
        out: list[bytes] = []
        for name, number, is_map in _numbers(type(self)):
            value = getattr(self, name)
            if is_map:
                value = [_MapEntry(entry.id, entry) for entry in value]
            elif isinstance(value, list) and value and isinstance(value[0], int):
                value = b"".join(map(varint, value))
            if isinstance(value, list):
                out += [field_of(number, item, arrange) for item in value]
            elif value is not None:
                out.append(field_of(number, value, arrange))
        return [*out, getattr(self, "extra", b"")]


def field_of(number: int, value: int | str | bytes | Message, arrange: Arrange = list) -> bytes:
    match value:
        case int():
            return int_field(number, value)
        case str():
            return text_field(number, value)
        case bytes():
            return bytes_field(number, value)
        case _:
            return bytes_field(number, encode(value, arrange))


def encode(message: Message, arrange: Arrange = list) -> bytes:
    """Encode a message; `arrange` may reorder the fields of the message and of nested messages."""
    return b"".join(arrange(message.fields(arrange)))


@dataclass(frozen=True)
class Value:
    """Hold a stat's value and the oneof field that stores it."""

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
    """Return a value that refers to a stat_metadata: by name if stats are given by name, else by
    id."""
    return Value("ref", value)


def compressed(value: str) -> Value:
    return Value("compressed", value)


NO_VALUE = Value(None)


@dataclass
class Stat(Message):
    metadata_id: Annotated[int | None, 1] = None
    value: Value = NO_VALUE

    def fields(self, arrange: Arrange) -> list[bytes]:
        out = [] if self.metadata_id is None else [int_field(1, self.metadata_id)]
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
                # The fixed timestamp makes the compressed bytes reproducible.
                out.append(bytes_field(8, gzip.compress(text.encode(), mtime=0)))
            case None, _:
                pass
            case other:
                raise ValueError(f"no such stat value: {other}")
        return out


@dataclass
class Event(Message):
    metadata_id: Annotated[int | None, 1] = None
    offset_ps: Annotated[int | None, 2] = None
    duration_ps: Annotated[int | None, 3] = None
    num_occurrences: Annotated[int | None, 5] = None
    stats: Annotated[list[Stat], 4] = field(default_factory=list)
    extra: bytes = b""


@dataclass
class Line(Message):
    name: Annotated[str | None, 2] = None
    events: Annotated[list[Event], 4] = field(default_factory=list)
    timestamp_ns: Annotated[int | None, 3] = None
    id: Annotated[int | None, 1] = None
    display_name: Annotated[str | None, 11] = None
    extra: bytes = b""


@dataclass
class EventMetadata(Message):
    id: Annotated[int | None, 1] = None
    name: Annotated[str | None, 2] = None
    stats: Annotated[list[Stat], 5] = field(default_factory=list)
    display_name: Annotated[str | None, 4] = None
    extra: bytes = b""


@dataclass
class StatMetadata(Message):
    id: Annotated[int | None, 1] = None
    name: Annotated[str | None, 2] = None
    extra: bytes = b""


@dataclass
class _MapEntry(Message):
    key: Annotated[int | None, 1]
    value: Annotated[EventMetadata | StatMetadata, 2]


@dataclass
class Plane(Message):
    name: Annotated[str | None, 2] = None
    lines: Annotated[list[Line], 3] = field(default_factory=list)
    event_metadata: Annotated[list[EventMetadata], 4, "map"] = field(default_factory=list)
    stat_metadata: Annotated[list[StatMetadata], 5, "map"] = field(default_factory=list)
    stats: Annotated[list[Stat], 6] = field(default_factory=list)
    id: Annotated[int | None, 1] = None
    extra: bytes = b""


@dataclass
class Space(Message):
    planes: Annotated[list[Plane], 1] = field(default_factory=list)
    hostnames: Annotated[list[str], 4] = field(default_factory=list)
    extra: bytes = b""


StatValue = int | float | str | bytes | Value


def as_value(value: StatValue) -> Value:
    """Choose the oneof field that the profiler would use."""
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
    """Assign stat_metadata ids to stat names."""

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


@dataclass
class Op:
    """Represent one execution of an op: its HLO text, stats by name, offset and duration."""

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
    """Return an execution of an op named `%name`.

    By default, the opcode comes from the category, the stat shape_with_layout is `shape`, and the
    HLO text is built from the other arguments. `stack` is short for `source_stack`; every other
    keyword is the stat of that name.
    """
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
    """Return a device plane with an `XLA Ops` line and, unless `steps` is None, a `Steps` line.

    A step is (name, start, duration). Ops with equal texts and stats share one metadata entry.
    """
    names = StatNames()
    # For each distinct op, its metadata id and its first execution.
    kinds: dict[tuple[str, frozenset[tuple[str, StatValue]]], tuple[int, Op]] = {}
    lines = [Line("XLA Ops", timestamp_ns=ops_timestamp_ns)]
    for executed in ops:
        key = executed.text, frozenset(executed.stats.items())
        metadata_id, _ = kinds.setdefault(key, (1 + len(kinds), executed))
        # Like a proto3 encoder, omit a duration of 0, but write an offset of 0, which is in a
        # oneof.
        lines[0].events.append(Event(metadata_id, executed.start, executed.dur or None))
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
    """Encode a file with a single device plane."""
    return encode(Space([tpu_plane(ops, steps)]))


def memory_access_breakdown(*accesses: tuple[int, int, int]) -> bytes:
    """Encode the stat `memory_access_breakdown`. Each access is (operation, memory space, number of
    bytes); operation 1 is a read, 2 a write, and memory space 1 is HBM."""
    return b"".join(
        bytes_field(1, int_field(1, operation) + int_field(2, space) + int_field(3, size))
        for operation, space, size in accesses
    )
