"""What the allocator of a device's memory said while the capture ran.

The profiler writes an event on the host's plane whenever an array is allocated or freed: how much
programs have reserved, how much arrays take, and how much is left.
"""

from __future__ import annotations

import math

from _pipeline.device import TPU_RE
from _pipeline.texts import exact
from _proto.errors import Damage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from _pipeline.context import Context
    from _proto.trace.event_stats import EventNumbers
    from _proto.trace.ranks import Rank
    from _proto.trace.trace import Trace

    Json = dict[str, Any]

EVENTS = ("MemoryAllocation", "MemoryDeallocation")
DEVICE, FRAGMENTATION = "index_on_host", "fragmentation"
RESERVED, ALLOCATED, AVAILABLE = SIZES = ("bytes_reserved", "bytes_allocated", "bytes_available")


def runtime_of(trace: Trace, device: str, context: Context) -> Json | None:
    """Return what is told of the device; None where nothing is, or it can't be read."""
    # These import protobuf, which may be missing when this module is loaded.
    from _proto.trace.event_stats import numbers_of_events
    from _proto.trace.trace import thread_planes

    rank = trace.rank_of(device) if device in trace.plane_names else None
    if rank is None or not TPU_RE.match(device):
        return None
    try:
        index = index_on_host(trace, rank, device)
        if index is None:
            return None
        stats = (DEVICE, *SIZES, FRAGMENTATION)
        told = (
            each
            for name in thread_planes(rank)
            for each in numbers_of_events(trace.plane(name), EVENTS, stats)
        )
        return runtime_fields((at, says) for at, says in told if says.get(DEVICE) == index)
    except (Damage, OSError) as error:
        where = trace.in_file(error) if isinstance(error, Damage) else error
        context.note(f"the host's plane can't be read: {where}; answered without it")
        return None


def index_on_host(trace: Trace, rank: Rank, device: str) -> int | None:
    """Return the number by which the allocator knows a device; None if that isn't known.

    That is the number in its name, unless the capture was merged and the devices were renumbered.
    """
    match = TPU_RE.match(device)
    if not trace.is_merged and match:
        return int(match["number"])
    ordinal = trace.device_ordinal(device)
    if ordinal is not None:
        return ordinal
    devices = list(filter(TPU_RE.match, rank.names))
    return devices.index(device) if device in devices else None


def runtime_fields(told: Iterable[EventNumbers]) -> Json | None:
    """A number that is missing is not zero: what needs it is told by other events."""
    n_events = 0
    capacity: list[int] = []
    available: list[int] = []
    fragmentation: list[float] = []
    # The most that is taken, since when, of what parts.
    peak: tuple[int, int, int, int] | None = None
    for at, says in told:
        n_events += 1
        sizes = {name: int(says[name]) for name in SIZES if is_size(says.get(name))}
        if AVAILABLE in sizes:
            available.append(sizes[AVAILABLE])
        if len(sizes) == len(SIZES):
            capacity.append(sum(sizes.values()))
        if RESERVED in sizes and ALLOCATED in sizes:
            taken = sizes[RESERVED] + sizes[ALLOCATED]
            if peak is None or (-taken, at) < peak[:2]:
                peak = -taken, at, sizes[RESERVED], sizes[ALLOCATED]
        if 0 <= says.get(FRAGMENTATION, math.nan) < math.inf:
            fragmentation.append(says[FRAGMENTATION])
    if not n_events:
        return None
    return {
        "capacity_bytes": max(capacity, default=None),
        "peak_bytes": -peak[0] if peak else None,
        "peak_at_ps": exact(peak[1]) if peak else None,
        "peak_reserved_bytes": peak[2] if peak else None,
        "peak_allocated_bytes": peak[3] if peak else None,
        "min_available_bytes": min(available, default=None),
        "max_fragmentation": max(fragmentation, default=None),
        "n_events": n_events,
    }


def is_size(value: float | None) -> bool:
    return value is not None and 0 <= value < math.inf and value == int(value)
