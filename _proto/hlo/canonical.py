"""Put the fields of a program's messages in one order.

The order of fields in the bytes of a message has no meaning: a program that keeps fields which it
does not know appends them to the others. So equal instructions can have different bytes.
"""

from __future__ import annotations

from operator import itemgetter
from typing import TypeAlias

from _proto.trace.wire import FIXED32, FIXED64, LENGTH, VARINT

# Maps the numbers of the fields that are messages to the fields of these messages. The wire format
# does not distinguish messages from texts and packed numbers, whose order has a meaning.
Messages: TypeAlias = "dict[int, Messages]"

LAYOUT: Messages = {6: {}, 17: {}}
SHAPE: Messages = {5: LAYOUT}
SHAPE[4] = LAYOUT[10] = SHAPE
LITERAL: Messages = {1: SHAPE}
LITERAL[10] = LITERAL
MESH: Messages = {1: {}}
AXIS: Messages = {2: {}}
NAMED_SHARDING: Messages = {2: MESH, 3: {1: AXIS}, 4: AXIS, 5: AXIS, 6: {10: {}}}
NAMED_SHARDING[1] = NAMED_SHARDING
SHARDING: Messages = {2: SHAPE, 7: {10: {}}, 14: NAMED_SHARDING}
SHARDING[5] = SHARDING
DEVICES: Messages = {1: {}, 2: {}}
INSTRUCTION: Messages = {
    **{number: {} for number in (16, 17, 30, 33, 48, 49, 51, 52, 59, 61, 62, 74, 86, 92)},
    3: SHAPE,
    8: LITERAL,
    15: {1: {}},
    21: {1: {}},
    29: SHAPE,
    40: SHARDING,
    54: SHARDING,
    55: SHARDING,
    57: SHAPE,
    68: {1: {}},
    87: DEVICES,
    90: {1: {}},
    91: {2: {}},
    93: {1: MESH, 2: AXIS},
}
COMPUTATION: Messages = {2: INSTRUCTION}
# An entry of a map, and the list of the entries of `InputOutputAlias` or `BufferDonor`.
ENTRY: Messages = {}
ENTRIES: Messages = {1: ENTRY}

_FIXED_BYTES = {FIXED32: 4, FIXED64: 8}


class _NotAMessage(Exception):
    pass


class Canonical:
    """Puts the fields of messages in the order of their numbers. Repeated fields keep the order of
    their values. Bytes that are not a message stay unchanged."""

    def __init__(self) -> None:
        # Programs repeat most of their shapes, so each message is put in order only once.
        self._known: dict[tuple[int, bytes], bytes] = {}

    def __call__(self, data: bytes, messages: Messages) -> bytes:
        key = id(messages), data
        if key not in self._known:
            try:
                parts = self._parts(data, messages)
            except _NotAMessage:
                parts = [(0, data)]
            parts.sort(key=itemgetter(0))
            self._known[key] = b"".join(part for _, part in parts)
        return self._known[key]

    def _parts(self, data: bytes, messages: Messages) -> list[tuple[int, bytes]]:
        """Return the number and the bytes of each field."""
        parts = []
        at, end = 0, len(data)
        while at < end:
            start, inner = at, b""
            key, at = _varint(data, at)
            number, wire = key >> 3, key & 7
            if wire == LENGTH:
                length, at = _varint(data, at)
                if number in messages:
                    inner = self(data[at : at + length], messages[number])
            elif wire == VARINT:
                length = 0
                _, at = _varint(data, at)
            elif wire in _FIXED_BYTES:
                length = _FIXED_BYTES[wire]
            else:
                raise _NotAMessage
            stop = at + length
            if stop > end:
                raise _NotAMessage
            parts.append((number, data[start:at] + inner if inner else data[start:stop]))
            at = stop
        return parts


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position after it."""
    if at < len(data) and data[at] < 128:
        return data[at], at + 1
    value = shift = 0
    while at < len(data):
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
        shift += 7
    raise _NotAMessage
