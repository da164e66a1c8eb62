"""Read kernel counters: events on the line `_counters_` that begin while a kernel runs.

The values are not measurements, but the compiler's estimates for the code between two markers.
Therefore we compute no mean and draw no conclusions from the values.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter

from _breakdown.analysis.kernel.kernel_regions import kernel_executions, starting_in
from _breakdown.analysis.tallies import Number, number_in
from _breakdown.light import NamedTuple
from _breakdown.pipeline.device import Event
from _breakdown.pipeline.normalize import Step
from _proto.trace.event_stats import stats_on_line
from _proto.trace.events import INT64_END
from _proto.trace.plane import Stats

# Name of an event, and name of its stat.
Key = tuple[str | None, str]

COUNTERS_LINE = "_counters_"
DEVICE_TIMES = ("device_offset_ps", "device_duration_ps")


class Extent(NamedTuple):
    """Number of values of a counter, and their minimum and maximum."""

    n: int
    least: Number
    most: Number


def add(found: dict[Key, Extent], key: Key, extent: Extent) -> None:
    known = found.get(key, extent)
    n = extent.n + known.n if key in found else extent.n
    found[key] = Extent(n, min(known.least, extent.least), max(known.most, extent.most))


# The range of each counter, by metadata id of the kernel's op.
Counters = dict[int, dict[Key, Extent]]


def counters_of(metadata_ids: Iterable[int], counters: Counters) -> dict[Key, Extent]:
    """Return the counters of several ops; counters with equal keys are merged."""
    found: dict[Key, Extent] = {}
    for metadata_id in metadata_ids:
        for key, extent in counters.get(metadata_id, {}).items():
            add(found, key, extent)
    return found


def kernel_counters(step: Step) -> Counters:
    """Read the counter events that begin during an execution of a kernel."""
    executions = kernel_executions(step)
    found: Counters = {}
    if not executions:
        return found
    events: list[Event] = []
    numbers: list[dict[Key, Number]] = []
    for name, at, stats in stats_on_line(step.device.plane, COUNTERS_LINE):
        start = at - step.device.base
        measured = start_by_core(stats)
        events.append(Event(name, start, start, None if measured is None else (measured, measured)))
        numbers.append(
            {
                (name, stat): number
                for stat, value in stats.items()
                if stat not in DEVICE_TIMES and (number := number_in(value)) is not None
            }
        )
    (spans,) = step.on_clock([events])
    starts = (start for start, _, _ in spans)
    in_order = sorted(zip(starts, numbers, strict=True), key=itemgetter(0))
    for execution, _, values_of_event in starting_in(executions, in_order):
        for key, value in values_of_event.items():
            of_kernel = found.setdefault(execution.metadata_id, {})
            add(of_kernel, key, Extent(1, value, value))
    return found


def start_by_core(stats: Stats) -> int | None:
    """Return the start of an event on the device clock; None unless the event has both device
    times."""
    times = [stats.get(name) for name in DEVICE_TIMES]
    if not all(isinstance(time, int) and 0 <= time < INT64_END for time in times):
        return None
    start = times[0]
    assert isinstance(start, int)
    return start
