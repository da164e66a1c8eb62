"""Unpack the records of a Riegeli file (`*.xplane.riegeli`). Each record is one serialized XSpace.

A file is a sequence of chunks: a signature, chunks of records, and padding. At every multiple of 64
KiB, a block header interrupts the chunk at this position. The header contains the start and the end
of the interrupted chunk, so a reader can find the next chunk after damage.

JAX writes plain ("simple") chunks compressed with brotli. The format also has transposed chunks and
other compressions. This module rejects them, and reports which one it found.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from types import ModuleType

from _breakdown.light import NamedTuple
from _proto.errors import Damage, MissingPackage
from _proto.trace.wire import varint_at

BLOCK, BLOCK_HEADER, CHUNK_HEADER = 1 << 16, 24, 40
_USABLE = BLOCK - BLOCK_HEADER
# Every file begins with a block header and the signature chunk, which the block header interrupts.
SIGNATURE = bytes.fromhex(
    "83af70d10d884a3f00000000000000004000000000000000"
    "91bac23c9287e1a90000000000000000e19f13c0e9b1c3727300000000000000"
    "0000000000000000"
)
_RECORDS, _TRANSPOSED, _SIGNATURE, _METADATA, _PADDING = b"rtsmp"
_KINDS_WITHOUT_RECORDS = (_SIGNATURE, _METADATA, _PADDING)
_NOT_COMPRESSED, _BROTLI = 0, ord("b")
_COMPRESSIONS = {ord("z"): "zstd", ord("s"): "snappy"}

Read = Callable[[int, int], bytes]


class RiegeliRecord(NamedTuple):
    """The span of a record in the unpacked copy, and the offset of its chunk in the file."""

    start: int
    end: int
    chunk: int


class Unpacked(NamedTuple):
    records: list[RiegeliRecord]
    # The first damage that was found. Intact chunks after it are unpacked, too.
    damage: Damage | None


class _Chunk(NamedTuple):
    begin: int
    end: int
    data: int
    data_size: int
    kind: int
    n_records: int
    decoded_size: int


def unpack(read: Read, size: int, write: Callable[[bytes], object]) -> Unpacked:
    """Write the records of all intact chunks, one after another.

    `read` takes an offset and a length. Raise MissingPackage if the file requires brotli, but it is
    not installed.
    """
    records: list[RiegeliRecord] = []
    first_damage: Damage | None = None
    written = 0
    for chunk in _chunks(read, size):
        try:
            if isinstance(chunk, Damage):
                raise chunk
            values, sizes = _decoded(read, chunk)
        except Damage as damage:
            first_damage = first_damage or damage
            continue
        write(values)
        for length in sizes:
            records.append(RiegeliRecord(written, written + length, chunk.begin))
            written += length
    return Unpacked(records, first_damage)


def _chunks(read: Read, size: int) -> Iterator[_Chunk | Damage]:
    """Yield the chunks in order, with a Damage in place of a chunk that is damaged or cut off."""
    at = 0
    while at < size:
        chunk = _chunk_at(read, size, at)
        yield chunk
        following = _chunk_after_damage(read, size, at) if isinstance(chunk, Damage) else chunk.end
        if following is None:
            return
        at = following


def _chunk_at(read: Read, size: int, begin: int) -> _Chunk | Damage:
    data = _end_of(begin, CHUNK_HEADER)
    if data > size:
        return Damage(begin, f"the file ends inside a chunk header ({size - begin} bytes are left)")
    header = _without_block_headers(read, begin, data)
    if not _is_sound(header):
        return Damage(begin, "the chunk header is damaged: the hash does not match")
    data_size, _, kind_and_number, decoded_size = struct.unpack_from("<4Q", header, 8)
    n_records = kind_and_number >> 8
    # A chunk has at least as many bytes as records, and ends neither inside a block header nor
    # right after it.
    end = max(_end_of(begin, CHUNK_HEADER + data_size), begin + n_records)
    if 0 < end % BLOCK <= BLOCK_HEADER:
        end += BLOCK_HEADER + 1 - end % BLOCK
    if end > size:
        what = f"this chunk has {end - begin} bytes, but the file ends after {size - begin} of them"
        return Damage(begin, what)
    kind = kind_and_number & 0xFF
    return _Chunk(begin, end, data, data_size, kind, n_records, decoded_size)


def _chunk_after_damage(read: Read, size: int, begin: int) -> int | None:
    """Return the start of the next chunk after `begin` according to the block headers."""
    for block in range(begin - begin % BLOCK + BLOCK, size - BLOCK_HEADER + 1, BLOCK):
        header = read(block, BLOCK_HEADER)
        if _is_sound(header):
            to_begin, to_end = struct.unpack_from("<2Q", header, 8)
            interrupted: int = block - to_begin
            following: int = block + to_end
            return interrupted if interrupted > begin else following
    return None


def _decoded(read: Read, chunk: _Chunk) -> tuple[bytes, list[int]]:
    """Return the concatenated records of a chunk, and the size of each record."""
    if chunk.kind in _KINDS_WITHOUT_RECORDS:
        return b"", []
    if chunk.kind != _RECORDS:
        kind = "transposed" if chunk.kind == _TRANSPOSED else str(chunk.kind)
        raise Damage(chunk.begin, f"the chunk has type {kind}; only simple chunks can be read")
    data = _without_block_headers(read, chunk.data, _end_of(chunk.data, chunk.data_size))
    try:
        sizes_size, at = varint_at(data, 1)
        if at + sizes_size > len(data):
            raise ValueError("the list of sizes is cut off")
        sizes_bytes = _decompressed(data[0], data[at : at + sizes_size])
        values = _decompressed(data[0], data[at + sizes_size :])
        sizes = list(_varints(sizes_bytes))
    except IndexError:
        raise Damage(chunk.begin, "the chunk is damaged: the data ends inside a number") from None
    except ValueError as error:
        raise Damage(chunk.begin, f"the chunk is damaged: {error}") from None
    if len(sizes) != chunk.n_records or not sum(sizes) == len(values) == chunk.decoded_size:
        raise Damage(
            chunk.begin,
            f"the chunk is damaged: its header declares {chunk.n_records} records with"
            f" {chunk.decoded_size} bytes, but the chunk has {len(sizes)} records with"
            f" {sum(sizes)} bytes in {len(values)} bytes of data",
        )
    return values, sizes


def _decompressed(compression: int, data: bytes) -> bytes:
    """Decompress data; raise ValueError with a description if the data is damaged."""
    if compression == _NOT_COMPRESSED:
        return data
    if compression != _BROTLI:
        name = _COMPRESSIONS.get(compression, f"type {compression}")
        raise ValueError(f"the compression {name} is not supported; only brotli is")
    brotli = _brotli()
    size, at = varint_at(data, 0)
    try:
        plain: bytes = brotli.decompress(data[at:])
    except brotli.error as error:
        raise ValueError(str(error)) from None
    if len(plain) != size:
        raise ValueError(f"got {len(plain)} bytes of decompressed data, expected {size}")
    return plain


def _brotli() -> ModuleType:
    for name in ("brotli", "brotlicffi"):
        try:
            return import_module(name)
        except ImportError:
            pass
    raise MissingPackage(
        "this capture is compressed with brotli, and the Python package brotli is missing; install"
        " it:"
        f" {sys.executable} -m pip install brotli"
    )


def _varints(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = varint_at(data, at)
        yield value


def _end_of(begin: int, size: int) -> int:
    """Return the position after `size` bytes that begin at `begin`, including the block headers
    that interrupt them."""
    n_block_headers = (size + (begin + _USABLE - 1) % BLOCK) // _USABLE
    return begin + size + n_block_headers * BLOCK_HEADER


def _without_block_headers(read: Read, start: int, end: int) -> bytes:
    data = read(start, end - start)
    first = -start % BLOCK
    if first >= len(data):
        return data
    parts = [data[:first]]
    for at in range(first, len(data), BLOCK):
        parts.append(data[at + BLOCK_HEADER : at + BLOCK])
    return b"".join(parts)


# Compute the 64-bit HighwayHash, which protects chunk headers and block headers. The code follows
# the description of the algorithm; all numbers have 64 bits.

_MASK = (1 << 64) - 1
_MUL0 = (0xDBE6D5D5FE4CCE2F, 0xA4093822299F31D0, 0x13198A2E03707344, 0x243F6A8885A308D3)
_MUL1 = (0x3BD39E10CB0EF593, 0xC0ACF169B5F18A8C, 0xBE5466CF34E90C6C, 0x452821E638D01377)
_KEY = struct.unpack("<4Q", b"Riegeli/records\nRiegeli/records\n")


def _is_sound(header: bytes) -> bool:
    """Return whether the hash at the start of a block header or a chunk header is correct."""
    return highway_hash(header[8:]) == int.from_bytes(header[:8], "little")


def highway_hash(data: bytes) -> int:
    """Return the HighwayHash of the 16 hashed bytes of a block header, or of the 32 hashed bytes of
    a chunk header."""
    v0 = [mul ^ key for mul, key in zip(_MUL0, _KEY, strict=True)]
    v1 = [mul ^ _halves_swapped(key) for mul, key in zip(_MUL1, _KEY, strict=True)]
    state = v0, v1, list(_MUL0), list(_MUL1)
    if len(data) == 16:
        # An incomplete last packet is mixed with its size and padded.
        for i in range(4):
            v0[i] = (v0[i] + (16 << 32) + 16) & _MASK
            v1[i] = _halves_rotated_by_16(v1[i])
        data += bytes(12) + data[12:16]
    _update(state, struct.unpack("<4Q", data))
    for _ in range(4):
        _update(state, [_halves_swapped(v0[i]) for i in (2, 3, 0, 1)])
    return sum(lanes[0] for lanes in state) & _MASK


def _update(
    state: tuple[list[int], list[int], list[int], list[int]], packet: list[int] | tuple[int, ...]
) -> None:
    v0, v1, mul0, mul1 = state
    for i, lane in enumerate(packet):
        v1[i] = (v1[i] + mul0[i] + lane) & _MASK
        mul0[i] ^= (v1[i] & 0xFFFFFFFF) * (v0[i] >> 32)
        v0[i] = (v0[i] + mul1[i]) & _MASK
        mul1[i] ^= (v0[i] & 0xFFFFFFFF) * (v1[i] >> 32)
    for source, target in ((v1, v0), (v0, v1)):
        for i in (0, 2):
            low, high = _zipper_merged(source[i], source[i + 1])
            target[i] = (target[i] + low) & _MASK
            target[i + 1] = (target[i + 1] + high) & _MASK


def _zipper_merged(low: int, high: int) -> tuple[int, int]:
    """Permute the bytes of two numbers in the order that HighwayHash defines."""
    a, b = low.to_bytes(8, "little"), high.to_bytes(8, "little")
    first = bytes((a[3], b[4], a[2], a[5], b[6], a[1], b[7], a[0]))
    second = bytes((b[3], a[4], b[2], b[5], b[1], a[6], b[0], a[7]))
    return int.from_bytes(first, "little"), int.from_bytes(second, "little")


def _halves_swapped(number: int) -> int:
    return (number >> 32) | (number & 0xFFFFFFFF) << 32


def _halves_rotated_by_16(number: int) -> int:
    low, high = number & 0xFFFFFFFF, number >> 32
    low, high = (half << 16 & 0xFFFFFFFF | half >> 16 for half in (low, high))
    return high << 32 | low
