"""Decode the protobuf wire format, maps and stats, slowly."""

from __future__ import annotations

import gzip
import struct
from typing import Any

StatValue = int | float | str | bytes
Message = list[tuple[int, Any]]


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(data):
            raise ValueError("truncated")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value % 2**64, at


def fields(data: bytes) -> Message:
    """Return (number, value) of each field: an int for a varint, otherwise bytes."""
    out: Message = []
    at = 0
    while at < len(data):
        key, at = (data[at], at + 1) if data[at] < 128 else read_varint(data, at)
        value: int | bytes
        if key % 8 == 0:
            value, at = read_varint(data, at)
        else:
            if key % 8 == 2:
                length, at = read_varint(data, at)
            elif key % 8 in (1, 5):
                length = 8 if key % 8 == 1 else 4
            else:
                raise ValueError(f"wire type {key % 8}")
            if at + length > len(data):
                raise ValueError("truncated")
            value = data[at : at + length]
            at += length
        out.append((key // 8, value))
    return out


def signed(value: int) -> int:
    return value - 2**64 if value >= 2**63 else value


def every(message: Message, number: int) -> list[Any]:
    return [value for n, value in message if n == number]


def last(message: Message, number: int, default: Any) -> Any:
    """Return the last value of a singular field, or the default."""
    return [default, *every(message, number)][-1]


def decode_map(plane: Message, number: int) -> dict[int, Message]:
    entries = [fields(entry) for entry in every(plane, number)]
    return {signed(last(e, 1, 0)): fields(last(e, 2, b"")) for e in entries}


def decode_stats(messages: list[bytes], names: dict[int, str]) -> dict[str, StatValue]:
    """Return the stats that have a name and a value; the last of several with the same name is
    used."""
    stats: dict[str, StatValue] = {}
    for message in messages:
        stat = fields(message)
        name = names.get(signed(last(stat, 1, 0)))
        variants = [(n, v) for n, v in stat if 2 <= n <= 8]
        if name is None or not variants:
            continue
        variant, value = variants[-1]
        if variant == 2:
            stats[name] = struct.unpack("<d", value)[0]
        elif variant == 3:
            stats[name] = value
        elif variant == 4:
            stats[name] = signed(value)
        elif variant == 5:
            stats[name] = value.decode()
        elif variant == 6:
            stats[name] = value
        elif variant == 7 and signed(value) in names:
            stats[name] = names[signed(value)]
        elif variant == 8:
            stats[name] = gzip.decompress(value).decode()
    return stats


def text_in(message: Message, number: int) -> str:
    value = last(message, number, b"")
    return value.decode() if isinstance(value, bytes) else ""
