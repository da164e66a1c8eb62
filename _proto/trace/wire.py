"""Read the protobuf wire format: decode messages, walk through fields, locate damaged bytes.

The protobuf package decodes messages and decides which bytes are valid. `fields` can also skip a
payload without reading it, and reports the position of damage; protobuf does neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Protocol, TypeVar

from google.protobuf.message import DecodeError, Message

from _proto.errors import Damage

# Wire types. The types between LENGTH and FIXED32 delimit groups, which no profiler writes.
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5

FIXED_BYTES = {FIXED64: 8, FIXED32: 4}
_VARINT_BYTES = 10
_HEADER_BYTES = 2 * _VARINT_BYTES
_WINDOW = 4096

# Values of FieldDescriptor.TYPE_* that the schemas in this package use.
_DOUBLE, _STRING, _MESSAGE, _BYTES = 1, 9, 11, 12
_WIRE_TYPES: dict[int, tuple[int, ...]] = {
    _DOUBLE: (FIXED64,),
    _STRING: (LENGTH,),
    _MESSAGE: (LENGTH,),
    _BYTES: (LENGTH,),
}

M = TypeVar("M", bound=Message)
# Protobuf's type stubs declare the descriptor of a class and the descriptor of a field's message as
# different types, so use Any.
Descriptor = Any


class Readable(Protocol):
    """Bytes that can be read by position."""

    def read(self, start: int, length: int, /) -> bytes: ...


class HeldBytes:
    """Bytes in memory; the first byte is at offset `base`."""

    def __init__(self, data: bytes, base: int = 0) -> None:
        self._data = data
        self._base = base

    def read(self, start: int, length: int) -> bytes:
        start -= self._base
        return self._data[start : start + length]


def fields(source: Readable, start: int, end: int) -> Iterator[tuple[int, int, int, int, int]]:
    """Walk through the fields of a message: yield (offset, number, wire type, value, end of the
    field).

    The value of a VARINT is the number itself. For other wire types, the value is the offset of the
    payload, which ends at the end of the field and is not read.
    """
    window, base = b"", start
    at = start
    while at < end:
        i = at - base
        if i + _HEADER_BYTES > len(window) and base + len(window) < end:
            base, i = at, 0
            window = source.read(at, min(_WINDOW, end - at))
        try:
            number, wire, value, i = header_at(window, i)
        except IndexError:
            raise Damage(at, "the message ends inside a field") from None
        except ValueError as error:
            raise Damage(at, str(error)) from None
        stop = base + i
        if wire == LENGTH:
            if stop + value > end:
                what = (
                    f"field {number} has {value} bytes, but only {end - stop} are left; if the file"
                    " was cut off, copy it again"
                )
                raise Damage(at, what)
            value, stop = stop, stop + value
        elif wire != VARINT:
            value, stop = stop, stop + FIXED_BYTES[wire]
            if stop > end:
                raise Damage(at, "the message ends inside a field")
        yield at, number, wire, value, stop
        at = stop


def header_at(data: bytes, i: int) -> tuple[int, int, int, int]:
    """Decode the header of the field at data[i].

    Return the field number, the wire type, the value or length (0 for fields without either), and
    the index after the header.
    """
    tag = data[i]
    i += 1
    if tag > 127:
        tag, i = varint_at(data, i - 1)
    number, wire = tag >> 3, tag & 7
    if number == 0 or tag >> 32:
        raise ValueError(f"invalid field number {number}")
    if wire in (VARINT, LENGTH):
        value = data[i]
        i += 1
        if value > 127:
            value, i = varint_at(data, i - 1)
        return number, wire, value, i
    if wire not in FIXED_BYTES:
        raise ValueError(f"invalid wire type {wire}")
    return number, wire, 0, i


def varint_at(data: bytes, i: int) -> tuple[int, int]:
    """Return the number at data[i] and the index after it; raise IndexError if the data ends inside
    the number."""
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES, 7):
        byte = data[i]
        value |= (byte & 127) << shift
        i += 1
        if byte < 128:
            return value & (1 << 64) - 1, i
    raise ValueError(f"a number has more than {_VARINT_BYTES} bytes")


def signed(value: int) -> int:
    """Convert an unsigned varint to int64."""
    return value - (1 << 64) if value >> 63 else value


def known_fields(
    kind: type[Message], source: Readable, start: int, end: int
) -> Iterator[tuple[int, str, int, int]]:
    """Walk through the fields of a message, skipping those that its type does not declare: yield
    (offset, name, value, end of the field).

    A field with a wrong wire type counts as damage. After a damaged length, the following bytes
    often look like fields, so only wrong wire types show the damage.
    """
    return _known_fields(kind.DESCRIPTOR, source, start, end)


def _known_fields(
    descriptor: Descriptor, source: Readable, start: int, end: int
) -> Iterator[tuple[int, str, int, int]]:
    known = _names_and_wire_types(descriptor)
    for at, number, wire, value, stop in fields(source, start, end):
        if number in known:
            name, wire_types = known[number]
            if wire not in wire_types:
                raise Damage(at, f"{descriptor.name}.{name} has the wrong wire type {wire}")
            yield at, name, value, stop


@cache
def _names_and_wire_types(descriptor: Descriptor) -> dict[int, tuple[str, tuple[int, ...]]]:
    known = {}
    for field in descriptor.fields:
        wire_types = _WIRE_TYPES.get(field.type, (VARINT,))
        # Numbers in a repeated field, whose default value is a list, may be packed.
        if wire_types == (VARINT,) and field.default_value == []:
            wire_types = (VARINT, LENGTH)
        known[field.number] = field.name, wire_types
    return known


def text(data: bytes, at: int, what: str) -> str:
    """Decode UTF-8 text at the offset `at`."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Damage(at, f"{what} is not UTF-8") from None


def parse(kind: type[M], data: bytes) -> M | None:
    """Decode a message; return None if protobuf rejects it."""
    try:
        return kind.FromString(data)
    except (DecodeError, UnicodeDecodeError, RecursionError):
        # Protobuf's pure Python parser raises UnicodeDecodeError and RecursionError.
        return None


def decode(kind: type[M], data: bytes, at: int, whole: type[Message] | None = None) -> M:
    """Decode a message at offset `at` of a file; raise Damage if protobuf rejects it.

    If `kind` declares only some of the fields, `whole` is the type that declares them all.
    """
    message = parse(kind, data)
    if message is None:
        explain((whole or kind).DESCRIPTOR, data, at)
        raise Damage(at, "the protobuf parser rejects the message")
    return message


def explain(descriptor: Descriptor, data: bytes, base: int) -> None:
    """Raise Damage at the first field that cannot be read; return if all fields can be read."""
    _explain(descriptor, HeldBytes(data, base), base, base + len(data))


def _explain(descriptor: Descriptor, held: HeldBytes, start: int, end: int) -> None:
    for at, name, value, stop in _known_fields(descriptor, held, start, end):
        field = descriptor.fields_by_name[name]
        if field.type == _STRING:
            text(held.read(value, stop - value), at, f"{descriptor.name}.{name}")
        elif field.type == _MESSAGE:
            _explain(field.message_type, held, value, stop)
