"""Build a host plane with events of the memory allocator."""

from __future__ import annotations

from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    StatNames,
    StatValue,
    encode,
)

KINDS = ("MemoryAllocation", "MemoryDeallocation", "ThreadpoolListener::Record")
SIZES = ("bytes_reserved", "bytes_allocated", "bytes_available")
# The allocator's metadata ids start here, above those of other metadata.
FIRST_ID = 7
# An event's time, its device, and its stats by name.
Said = tuple[int, int, dict[str, StatValue]]


def host_plane(*threads: list[Event], names: StatNames, timestamp_ns: int | None = None) -> Plane:
    lines = [Line(f"t/{i}", events, timestamp_ns=timestamp_ns) for i, events in enumerate(threads)]
    metadata = [EventMetadata(i, name) for i, name in enumerate(KINDS, FIRST_ID)]
    return Plane("/host:CPU", lines, metadata, names.metadata())


def allocator(*result: Said, timestamp_ns: int | None = None) -> Plane:
    """Return a host plane with one thread, on which allocations and deallocations alternate."""
    names = StatNames()
    events = []
    for i, (at, device, values) in enumerate(result):
        stats = [names.stat(k, v) for k, v in {"index_on_host": device, **values}.items()]
        events.append(Event(FIRST_ID + i % 2, at, stats=stats))
    return host_plane(events, names=names, timestamp_ns=timestamp_ns)


def with_host(data: bytes, host: Plane) -> bytes:
    """Append the host plane to a file."""
    return data + encode(Space([host]))
