"""The field runtime of the mode memory, from the allocator's events on the host's plane."""

from __future__ import annotations

from math import isfinite

from tests.naive.step import Json
from tests.naive.wire import (
    Message,
    StatValue,
    decode_map,
    decode_stats,
    every,
    fields,
    last,
    signed,
)

PARTS = ("bytes_reserved", "bytes_allocated", "bytes_available")


def known(stats: dict[str, StatValue], name: str) -> float | None:
    """Return a stat that can be a number of bytes or a share."""
    value = stats.get(name)
    if not isinstance(value, int | float) or not isfinite(value) or value < 0:
        return None
    return None if name in PARTS and value != int(value) else value


def sizes(events: list[tuple[int, dict[str, StatValue]]], *names: str) -> list[list[int]]:
    """Return time and sizes of the events that have all of these stats."""
    told = [
        (at, [int(size) for name in names if (size := known(stats, name)) is not None])
        for at, stats in events
    ]
    return [[at, *of_one] for at, of_one in told if len(of_one) == len(names)]


def runtime(planes: list[Message], device: str) -> Json | None:
    hosts = [plane for plane in planes if last(plane, 2, b"") == b"/host:CPU"]
    number = device.removeprefix("/device:TPU:")
    if not hosts or number == device or not number.isdecimal():
        return None
    stat_names = {i: last(m, 2, b"").decode() for i, m in decode_map(hosts[0], 5).items()}
    names = {i: last(m, 2, b"") for i, m in decode_map(hosts[0], 4).items()}
    events = []
    for line in map(fields, every(hosts[0], 3)):
        for event in map(fields, every(line, 4)):
            is_placed = [(2, 0), *((n, v) for n, v in event if n in (2, 5))][-1]
            stats = decode_stats(every(event, 4), stat_names)
            if (
                names.get(signed(last(event, 1, 0))) in (b"MemoryAllocation", b"MemoryDeallocation")
                and is_placed[0] == 2
                and stats.get("index_on_host") == int(number)
            ):
                events.append((signed(last(line, 3, 0)) * 1000 + signed(is_placed[1]), stats))
    if not events:
        return None
    taken = sizes(events, *PARTS[:2])
    most = max((reserved + allocated for _, reserved, allocated in taken), default=None)
    first = min(
        (row for row in taken if sum(row[1:]) == most), key=lambda row: row[0], default=None
    )
    shares = [share for _, stats in events if (share := known(stats, "fragmentation")) is not None]
    at = first[0] if first else None
    return {
        "capacity_bytes": max((sum(parts) for _, *parts in sizes(events, *PARTS)), default=None),
        "peak_bytes": most,
        "peak_at_ps": str(at) if at is not None and abs(at) > 2**53 else at,
        "peak_reserved_bytes": first[1] if first else None,
        "peak_allocated_bytes": first[2] if first else None,
        "min_available_bytes": min((size for _, size in sizes(events, PARTS[2])), default=None),
        "max_fragmentation": max(shares, default=None),
        "n_events": len(events),
    }
