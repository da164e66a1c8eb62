"""Read the elements of constants."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import lru_cache
from typing import TypeAlias

from _proto import hlo_pb2 as pb
from _proto.trace.wire import parse

Number: TypeAlias = "float | int | bool"


# Cache results, because several searches come to the same few constants.
@lru_cache(maxsize=16)
def elements_of(literal: bytes) -> Sequence[Number]:
    """Return the elements of a constant of a type that masks and zeros have."""
    message = parse(pb.Literal, literal)
    if message is None:
        return ()
    # A bf16 is the upper half of an f32.
    halves = (message.bf16s[i : i + 2] for i in range(0, len(message.bf16s) - 1, 2))
    return (
        message.preds
        or message.s32s
        or message.u32s
        or message.f32s
        or [struct.unpack("<f", b"\0\0" + half)[0] for half in halves]
    )
