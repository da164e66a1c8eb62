"""Build Riegeli files for tests, and split traces into records as continuous profiling does.

Chunks are uncompressed by default, so most tests do not need brotli. The hashes in headers are
computed by the program itself; tests/proto/test_riegeli.py checks them against captures that JAX
wrote.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterable, Sequence

from _proto import xplane_pb2 as pb
from _proto.trace.riegeli import BLOCK, BLOCK_HEADER, highway_hash
from tests.builders.xspace import varint

SIGNATURE_CHUNK = (b"", "s", 0, 0)
# A chunk's data, type, number of records, and size of the decoded data.
Chunk = tuple[bytes, str, int, int]


def chunk_of(records: Sequence[bytes], compress: Callable[[bytes], bytes] | None = None) -> Chunk:
    """Return a chunk of the type `simple` that contains the given records."""
    sizes, values = b"".join(map(varint, map(len, records))), b"".join(records)
    n_bytes = len(values)
    if compress:
        sizes = varint(len(sizes)) + compress(sizes)
        values = varint(len(values)) + compress(values)
    compression = b"b" if compress else b"\0"
    return compression + varint(len(sizes)) + sizes + values, "r", len(records), n_bytes


def riegeli(chunks: Sequence[Chunk], padded: bool = True) -> bytes:
    """Return a file with the given chunks, padded to whole blocks as JAX does."""
    out = bytearray()
    for chunk in (SIGNATURE_CHUNK, *chunks):
        append(out, chunk)
    left = -len(out) % BLOCK
    if padded and left:
        append(out, (bytes(left - 40), "p", 0, 0))
    return bytes(out)


def append(out: bytearray, chunk: Chunk) -> None:
    """Append a chunk, with a block header wherever a block begins."""
    data, kind, n_records, decoded_size = chunk
    rest = struct.pack("<QQQQ", len(data), 0, n_records << 8 | ord(kind), decoded_size)
    left = hashed(rest) + data
    begin = len(out)
    blocks = []
    while left or len(out) - begin < n_records or 0 < len(out) % BLOCK <= BLOCK_HEADER:
        if len(out) % BLOCK == 0:
            blocks.append(len(out))
            out += bytes(BLOCK_HEADER)
        n = BLOCK - len(out) % BLOCK
        out += left[:n] or b"\0"
        left = left[n:]
    for block in blocks:
        header = hashed(struct.pack("<QQ", block - begin, len(out) - block))
        out[block : block + BLOCK_HEADER] = header


def hashed(rest: bytes) -> bytes:
    return highway_hash(rest).to_bytes(8, "little") + rest


def records_of(trace: bytes, n: int, seed: int = 0) -> list[bytes]:
    """Split a trace into `n` records at ends of events; each record has its own ids.

    As in continuous profiling, the records contain neither host names nor programs.
    """
    rng = random.Random(seed)
    space = pb.XSpace.FromString(trace)
    ends = sorted(
        line.timestamp_ns * 1000 + event.offset_ps + event.duration_ps
        for plane in space.planes
        for line in plane.lines
        for event in line.events
    )
    borders = [ends[len(ends) * i // n] for i in range(1, n)]
    records = [pb.XSpace() for _ in range(n)]
    for plane in space.planes:
        if plane.name != "/host:metadata":
            for record, part in zip(records, parts_of(plane, borders, rng), strict=True):
                record.planes.append(part)
    return [record.SerializeToString() for record in records]


def parts_of(plane: pb.XPlane, borders: list[int], rng: random.Random) -> list[pb.XPlane]:
    parts = [pb.XPlane(id=plane.id, name=plane.name) for _ in range(len(borders) + 1)]
    for number, part in enumerate(parts):
        # Each record has its own ids, so references to stat names are renumbered, too.
        event_ids, stat_ids = ids_for(plane.event_metadata, rng), ids_for(plane.stat_metadata, rng)
        for old, stat_metadata in plane.stat_metadata.items():
            part.stat_metadata[stat_ids[old]].CopyFrom(stat_metadata)
        for stat in plane.stats:
            part.stats.append(renumbered(stat, stat_ids))
        for line in plane.lines:
            add_line(part, number, line, borders, event_ids, stat_ids)
        used = {event.metadata_id for line in part.lines for event in line.events}
        for old, metadata in plane.event_metadata.items():
            if event_ids[old] in used:
                copy = part.event_metadata[event_ids[old]]
                copy.CopyFrom(metadata)
                del copy.stats[:]
                copy.stats.extend(renumbered(stat, stat_ids) for stat in metadata.stats)
    return parts


def ids_for(entries: Iterable[int], rng: random.Random) -> dict[int, int]:
    old = list(entries)
    return dict(zip(old, rng.sample(range(1, 3 * len(old) + 2), len(old)), strict=True))


def place(event: pb.XEvent, line: pb.XLine, borders: list[int]) -> int:
    end = line.timestamp_ns * 1000 + event.offset_ps + event.duration_ps
    return sum(border <= end for border in borders)


def add_line(
    part: pb.XPlane,
    number: int,
    line: pb.XLine,
    borders: list[int],
    event_ids: dict[int, int],
    stat_ids: dict[int, int],
) -> None:
    events = [event for event in line.events if place(event, line, borders) == number]
    if not events:
        return
    # In each record, times are relative to a different moment.
    later_ns = min(event.offset_ps for event in events) // 1000
    copy = part.lines.add(id=line.id, name=line.name, timestamp_ns=line.timestamp_ns + later_ns)
    for event in events:
        copy.events.append(
            pb.XEvent(
                metadata_id=event_ids[event.metadata_id],
                offset_ps=event.offset_ps - later_ns * 1000,
                duration_ps=event.duration_ps,
                stats=[renumbered(stat, stat_ids) for stat in event.stats],
            )
        )


def renumbered(stat: pb.XStat, stat_ids: dict[int, int]) -> pb.XStat:
    copy = pb.XStat()
    copy.CopyFrom(stat)
    # If an id has no metadata, its replacement must not have any, either.
    copy.metadata_id = stat_ids.get(stat.metadata_id, 10**6)
    if stat.WhichOneof("value") == "ref_value":
        copy.ref_value = stat_ids[stat.ref_value]
    return copy
