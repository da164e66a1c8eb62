"""Read what a device's memory allocator reported during the capture.

The profiler writes an event to the host's plane whenever an array is allocated or deallocated. Each
event reports the bytes reserved for programs, allocated for arrays, and still available.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from _breakdown.light import NamedTuple
from _breakdown.pipeline.context import Context
from _proto.errors import Damage
from _proto.trace.event_stats import EventNumbers
from _proto.trace.ranks import TPU_RE, Rank
from _proto.trace.trace import Trace

EVENTS = ("MemoryAllocation", "MemoryDeallocation")
DEVICE = "index_on_host"
RESERVED, ALLOCATED, AVAILABLE = SIZES = ("bytes_reserved", "bytes_allocated", "bytes_available")
FRAGMENTATION = "fragmentation"


class Runtime(NamedTuple):
    """Minima and maxima over the allocator's events; None for a number that no event reports."""

    capacity: int | None
    # Reserved and allocated bytes at the earliest peak.
    peak: tuple[int, int] | None
    min_available: int | None
    # Part of the free memory at this peak that is not in the largest free block.
    fragmentation: float | None


def runtime_of(trace: Trace, device: str, context: Context) -> Runtime | None:
    """Summarise the allocator's events for a device; return None if they are missing or damaged."""
    # Import late: these modules import protobuf, which may be missing.
    from _proto.trace.event_stats import numbers_of_events
    from _proto.trace.trace import thread_planes

    plane = trace.device_named(device)
    rank = trace.rank_of(plane) if plane else None
    if plane is None or rank is None or not TPU_RE.match(plane):
        return None
    try:
        index = index_on_host(trace, rank, plane)
        if index is None:
            return None
        stats = (DEVICE, *SIZES, FRAGMENTATION)
        reports = (
            report
            for name in thread_planes(rank)
            for report in numbers_of_events(trace.plane(name), EVENTS, stats)
        )
        return summed((at, numbers) for at, numbers in reports if numbers.get(DEVICE) == index)
    except (Damage, OSError) as error:
        where = trace.in_file(error) if isinstance(error, Damage) else error
        context.warn(f"runtime is null, because the host's plane cannot be read: {where}")
        return None


def index_on_host(trace: Trace, rank: Rank, device: str) -> int | None:
    """Return the index by which the allocator identifies a device, or None if unknown.

    The index is the number in the device's name, unless a merged capture renumbered the devices.
    """
    match = TPU_RE.match(device)
    if not trace.is_merged and match:
        return int(match["number"])
    ordinal = trace.device_ordinal(device)
    if ordinal is not None:
        return ordinal
    devices = list(filter(TPU_RE.match, rank.names))
    return devices.index(device) if device in devices else None


def summed(reports: Iterable[EventNumbers]) -> Runtime | None:
    """Return minima and maxima over the allocator's events. A missing number is skipped, not
    counted as zero."""
    is_reported = False
    capacity: list[int] = []
    available: list[int] = []
    # Negated used bytes, time, reserved and allocated bytes, and fragmentation of each event.
    used: list[tuple[int, int, tuple[int, int], float | None]] = []
    for at, numbers in reports:
        is_reported = True
        sizes = {name: int(numbers[name]) for name in SIZES if is_size(numbers.get(name))}
        if AVAILABLE in sizes:
            available.append(sizes[AVAILABLE])
        if len(sizes) == len(SIZES):
            capacity.append(sum(sizes.values()))
        if RESERVED in sizes and ALLOCATED in sizes:
            reserved, allocated = sizes[RESERVED], sizes[ALLOCATED]
            peak = reserved, allocated
            share = numbers.get(FRAGMENTATION, math.nan)
            used.append((-sum(peak), at, peak, share if 0 <= share <= 1 else None))
    if not is_reported:
        return None
    first = min(used, key=lambda of_event: of_event[:3], default=None)
    return Runtime(
        max(capacity, default=None),
        first[2] if first else None,
        min(available, default=None),
        first[3] if first else None,
    )


def is_size(value: float | None) -> bool:
    return value is not None and 0 <= value < math.inf and value == int(value)
