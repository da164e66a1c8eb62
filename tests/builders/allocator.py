"""Events of the allocator on the host's plane, by hand or at random."""

from __future__ import annotations

import random

from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    Stat,
    StatNames,
    StatValue,
    encode,
)

KINDS = ("MemoryAllocation", "MemoryDeallocation", "ThreadpoolListener::Record")
SIZES = ("bytes_reserved", "bytes_allocated", "bytes_available")
# Different from ids of other metadata
FIRST_ID = 7
# The time, the device, and other stats
Said = tuple[int, int, dict[str, StatValue]]


def host_plane(*threads: list[Event], names: StatNames, timestamp_ns: int | None = None) -> Plane:
    lines = [Line(f"t/{i}", events, timestamp_ns=timestamp_ns) for i, events in enumerate(threads)]
    metadata = [EventMetadata(i, name) for i, name in enumerate(KINDS, FIRST_ID)]
    return Plane("/host:CPU", lines, metadata, names.metadata())


def allocator(*said: Said, timestamp_ns: int | None = None) -> Plane:
    """Return a thread with an allocation and a deallocation in turn."""
    names = StatNames()
    events = []
    for i, (at, device, stats) in enumerate(said):
        told: list[Stat] = [names.stat(k, v) for k, v in {"index_on_host": device, **stats}.items()]
        events.append(Event(FIRST_ID + i % 2, at, stats=told))
    return host_plane(events, names=names, timestamp_ns=timestamp_ns)


def with_host(data: bytes, host: Plane) -> bytes:
    """Append a plane to a file."""
    return data + encode(Space([host]))


def random_number(rng: random.Random) -> StatValue:
    if rng.random() < 0.1:
        return rng.choice((-1, -0.5, 0.25, float("inf"), float("nan"), "7", b"7", 2**63))
    return rng.choice((0, 1, 64, 128, 33_550_237_696))


def random_event(rng: random.Random, names: StatNames) -> Event:
    stats: dict[str, StatValue] = {"index_on_host": rng.choice((0, 0, 0, 1, "0"))}
    for name in (*SIZES, "fragmentation"):
        if rng.random() < 0.9:
            stats[name] = random_number(rng)
    pairs = rng.sample(list(stats.items()), len(stats))
    event = Event(
        rng.choice((None, 0, FIRST_ID, FIRST_ID + 1, FIRST_ID + 2)),
        rng.choice((None, 0, 10, 10, 20)),
        stats=[names.stat(name, value) for name, value in pairs],
    )
    if rng.random() < 0.1:
        event.offset_ps, event.num_occurrences = None, 3
    return event


def random_host(rng: random.Random) -> Plane:
    names = StatNames()
    n_events = [rng.choice((1, 2, 5)) for _ in range(rng.choice((0, 1, 2)))]
    threads = [[random_event(rng, names) for _ in range(n)] for n in n_events]
    plane = host_plane(*threads, names=names, timestamp_ns=rng.choice((None, 1, 10**13)))
    if rng.random() < 0.3:
        # This is the name of events without an id.
        plane.event_metadata.append(EventMetadata(0, KINDS[0]))
    plane.lines.append(Line("main/1", [Event(1, 5, 5)], timestamp_ns=10**18))
    return plane
