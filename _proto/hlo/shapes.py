"""The shapes of a HloProto: arrays, and tuples of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import zip_longest
from typing import NamedTuple

from _proto import hlo_pb2 as pb
from _proto.hlo.text import bits_of, size_of
from _proto.trace.wire import parse

# The names that HLO texts give to the PrimitiveTypes, in the order of their numbers.
_ELEMENT_TYPES = (
    "invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 tuple opaque c64 bf16 token c128 "
    "f8e5m2 f8e4m3fn s4 u4 f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz s2 u2 f8e4m3 f8e3m4 s1 u1 "
    "f4e2m1fn f8e8m0fnu"
).split()
_TUPLE, _OPAQUE, _TOKEN = (_ELEMENT_TYPES.index(name) for name in ("tuple", "opaque", "token"))
# What no compiler writes, and what would cost more than it can be worth.
_MAX_RANK = 64
_MAX_BYTES = 1 << 20


class Array(NamedTuple):
    """The shape of an array. `memory_space` is 0 for HBM, 1 for VMEM, 5 for the host's memory.

    Of one that is dynamic some dims are bounds, and only a run knows the size.
    """

    dtype: str
    dims: tuple[int, ...]
    memory_space: int = 0
    is_dynamic: bool = False

    @property
    def text(self) -> str:
        return self.text_of(self.dims)

    def text_of(self, dims: Sequence[int]) -> str:
        """The same with other dims."""
        return f"{self.dtype}[{','.join(map(str, dims))}]"

    @property
    def bits(self) -> int | None:
        """Of one element; None for a dtype that isn't known."""
        return bits_of(self.dtype)

    @property
    def n_elements(self) -> int:
        return math.prod(self.dims)

    @property
    def n_bytes(self) -> int | None:
        """Of all elements, without padding; None where that can't be told."""
        if self.is_dynamic or min(self.dims, default=0) < 0:
            return None
        return size_of(self.dtype, self.n_elements)


def read_arrays(shape: bytes) -> list[Array] | None:
    """The arrays of a serialized ShapeProto; None where the bytes can't be read.

    Tuples are flattened; tokens and opaque values have no data and are left out.
    """
    message = _read(shape)
    if message is None:
        return None
    arrays = []
    todo = [message]
    while todo:
        each = todo.pop()
        if each.element_type == _TUPLE:
            todo.extend(reversed(each.tuple_shapes))
        elif len(each.dimensions) > _MAX_RANK:
            return None
        elif each.element_type not in (_OPAQUE, _TOKEN):
            arrays.append(_array(each))
    return arrays


def read_leaves(shape: bytes) -> list[tuple[tuple[int, ...], Array | None]] | None:
    """All that a ShapeProto is made of, tuples opened: the places to take in these, and the
    array, or None for what has no data; None where the bytes can't be read."""
    message = _read(shape)
    if message is None:
        return None
    leaves: list[tuple[tuple[int, ...], Array | None]] = []
    todo: list[tuple[tuple[int, ...], pb.Shape]] = [((), message)]
    while todo:
        path, each = todo.pop()
        if each.element_type == _TUPLE:
            parts = list(enumerate(each.tuple_shapes))
            todo.extend(((*path, i), part) for i, part in reversed(parts))
        elif len(each.dimensions) > _MAX_RANK:
            return None
        else:
            has_data = each.element_type not in (_OPAQUE, _TOKEN)
            leaves.append((path, _array(each) if has_data else None))
    return leaves


def read_arrays_at(shape: bytes, paths: Iterable[Sequence[int]]) -> list[Array | None]:
    """The arrays at paths, the places to take in nested tuples; None where there is none."""
    message = _read(shape)
    return [_array_at(message, path) for path in paths]


def _array_at(message: pb.Shape | None, path: Sequence[int]) -> Array | None:
    for place in path:
        if message is None or not 0 <= place < len(message.tuple_shapes):
            return None
        message = message.tuple_shapes[place]
    if message is None or message.element_type in (_TUPLE, _OPAQUE, _TOKEN):
        return None
    return _array(message) if len(message.dimensions) <= _MAX_RANK else None


def shape_text(shape: bytes) -> str | None:
    """A serialized ShapeProto as HLO texts write it, without layouts: `(f32[8,128], s32[])`."""
    message = _read(shape) if shape else None
    return None if message is None else _text(message)


def _text(message: pb.Shape) -> str:
    # No deeper than what the parser takes.
    if message.element_type == _TUPLE:
        return f"({', '.join(map(_text, message.tuple_shapes))})"
    array = _array(message)
    dims = zip_longest(array.dims, message.is_dynamic_dimension[: len(array.dims)])
    return f"{array.dtype}[{','.join('<=' * bool(bound) + str(dim) for dim, bound in dims)}]"


def _read(shape: bytes) -> pb.Shape | None:
    return parse(pb.Shape, shape) if len(shape) <= _MAX_BYTES else None


def _array(message: pb.Shape) -> Array:
    known = 0 < message.element_type < len(_ELEMENT_TYPES)
    dtype = _ELEMENT_TYPES[message.element_type if known else 0]
    is_dynamic = any(message.is_dynamic_dimension)
    return Array(dtype, tuple(message.dimensions), message.layout.memory_space, is_dynamic)
