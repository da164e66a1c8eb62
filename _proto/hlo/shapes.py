"""Read the shapes of a program's instructions: arrays, and nested tuples of arrays."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import zip_longest

from _breakdown.light import NamedTuple
from _proto import hlo_pb2 as pb
from _proto.hlo.text import bits_of, size_of
from _proto.trace.wire import parse

# Names of PrimitiveType values in HLO texts, ordered by number.
_ELEMENT_TYPES = (
    "invalid pred s8 s16 s32 s64 u8 u16 u32 u64 f16 f32 f64 tuple opaque c64 bf16 token c128 "
    "f8e5m2 f8e4m3fn s4 u4 f8e4m3b11fnuz f8e5m2fnuz f8e4m3fnuz s2 u2 f8e4m3 f8e3m4 s1 u1 "
    "f4e2m1fn f8e8m0fnu"
).split()
_TUPLE, _OPAQUE, _TOKEN = (_ELEMENT_TYPES.index(name) for name in ("tuple", "opaque", "token"))

# A position in nested tuples: the index in the outermost tuple, then in the next tuple, and so on.
Path = tuple[int, ...]


class Array(NamedTuple):
    """The shape of an array. `memory_space` is 0 for HBM, 1 for VMEM, and 5 for host memory.

    Some dimensions of a dynamic array are upper bounds, because its size is known only at run time.
    """

    dtype: str
    dims: tuple[int, ...]
    memory_space: int = 0
    is_dynamic: bool = False

    @property
    def text(self) -> str:
        return self.text_of(self.dims)

    def text_of(self, dims: Sequence[int]) -> str:
        """Return the text of an array with the same dtype and the given dimensions."""
        return f"{self.dtype}[{','.join(map(str, dims))}]"

    @property
    def bits(self) -> int | None:
        """Return the number of bits per element, or None for an unknown dtype."""
        return bits_of(self.dtype)

    @property
    def n_elements(self) -> int:
        return math.prod(self.dims)

    @property
    def n_bytes(self) -> int | None:
        """Return the size of all elements without padding, or None if the size is unknown."""
        if self.is_dynamic or min(self.dims, default=0) < 0:
            return None
        return size_of(self.dtype, self.n_elements)


# The following functions are recursive; protobuf's limit on nested messages bounds their depth.


# Cache results, because the instructions of a program have few different shapes.
@lru_cache(maxsize=1 << 12)
def order_of(shape: bytes) -> tuple[int, ...]:
    """Return the dimensions of a shape in the order of its memory, the outermost first."""
    message = parse(pb.Shape, shape) or pb.Shape()
    return tuple(message.layout.minor_to_major)[::-1] or tuple(range(len(message.dimensions)))


@lru_cache(maxsize=1 << 12)
def layout_of(shape: bytes) -> bytes | None:
    """Encode the order of an array's dimensions in memory, and its tiles, as bytes.

    Return None for tuples and unreadable shapes. Equal layouts have equal encodings.
    """
    message = parse(pb.Shape, shape)
    if message is None or not message.HasField("layout"):
        return None
    return pb.Layout(
        minor_to_major=message.layout.minor_to_major, tiles=message.layout.tiles
    ).SerializeToString()


@lru_cache(maxsize=1 << 12)
def read_leaves(shape: bytes) -> Sequence[tuple[Path, Array | None]] | None:
    """Return the leaves of a ShapeProto with their paths, or None if the message is unreadable.

    The array of a token or of an opaque value is None, because they have no data.
    """
    message = parse(pb.Shape, shape)
    if message is None:
        return None
    leaves: list[tuple[Path, Array | None]] = []
    _add_leaves(message, (), leaves)
    return leaves


@lru_cache(maxsize=1 << 12)
def read_arrays(shape: bytes) -> Sequence[tuple[Path, Array]]:
    """Return the leaves that are arrays; none if the message is unreadable."""
    return [(path, array) for path, array in read_leaves(shape) or () if array is not None]


def _add_leaves(shape: pb.Shape, path: Path, leaves: list[tuple[Path, Array | None]]) -> None:
    if shape.element_type == _TUPLE:
        for i, part in enumerate(shape.tuple_shapes):
            _add_leaves(part, (*path, i), leaves)
    else:
        has_data = shape.element_type not in (_OPAQUE, _TOKEN)
        leaves.append((path, _array(shape) if has_data else None))


def shape_text(shape: bytes) -> str | None:
    """Return a ShapeProto in the notation of HLO texts, without layouts: `(f32[8,128], s32[])`."""
    message = parse(pb.Shape, shape) if shape else None
    return None if message is None else _text(message)


def _text(shape: pb.Shape) -> str:
    if shape.element_type == _TUPLE:
        return f"({', '.join(map(_text, shape.tuple_shapes))})"
    array = _array(shape)
    dims = zip_longest(array.dims, shape.is_dynamic_dimension[: len(array.dims)])
    return f"{array.dtype}[{','.join('<=' * bool(bound) + str(dim) for dim, bound in dims)}]"


def _array(shape: pb.Shape) -> Array:
    known = 0 < shape.element_type < len(_ELEMENT_TYPES)
    dtype = _ELEMENT_TYPES[shape.element_type if known else 0]
    is_dynamic = any(shape.is_dynamic_dimension)
    return Array(dtype, tuple(shape.dimensions), shape.layout.memory_space, is_dynamic)
