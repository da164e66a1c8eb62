"""Read the named regions inside Pallas kernels, and compute how long a kernel waits.

If kernel tracing is on, the line `XLA TraceMe` has an event each time a region of a kernel runs. A
region is a stage of the Pallas pipeline (`ep_wait_in`, `ep_run_kernel`, …), or a scope that the
kernel's author named with `jax.named_scope`. A region belongs to the execution in which it begins,
and is nested in the innermost region that is open at that time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar

from _breakdown.light import NamedTuple
from _breakdown.pipeline.clocks import ON_DEVICE
from _breakdown.pipeline.device import Event
from _breakdown.pipeline.idle_causes import AT_BARRIER, FOR_INPUTS, WAITS_LINE
from _breakdown.pipeline.intervals import Nested
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.timeline import events_of

T = TypeVar("T")

NO_NAME = "<none>"
# Stages of the Pallas pipeline: one runs the kernel's body, the others wait for copies.
RUN = "ep_run_kernel"
WAITS = ("ep_wait_in", "ep_wait_out")


def is_wait(name: str) -> bool:
    """Return whether a region with this name only waits for a copy."""
    own = name.rpartition("/")[2]
    return own in WAITS or own.startswith("wait")


class Region:
    """All regions that have the same name and the same enclosing regions, with their total time."""

    __slots__ = ("inner", "n", "name", "total")

    def __init__(self, name: str) -> None:
        self.name = name
        self.n = self.total = 0
        self.inner: dict[str, Region] = {}

    @property
    def self_time(self) -> int:
        return self.total - sum(region.total for region in self.inner.values())

    @property
    def only_waits(self) -> bool:
        return is_wait(self.name)

    @property
    def is_body(self) -> bool:
        return self.name.rpartition("/")[2] == RUN


class RegionRow(NamedTuple):
    """A region in the tree; `depth` is the number of enclosing regions."""

    region: Region
    depth: int
    # True if this region or an enclosing region only waits for copies.
    waits: bool


class Regions:
    """The regions of one or more kernels, as a tree."""

    def __init__(self) -> None:
        self.outermost: dict[str, Region] = {}

    @classmethod
    def sum_of(cls, parts: Iterable[Regions]) -> Regions:
        whole = cls()
        pending = [(whole.outermost, part.outermost) for part in parts]
        while pending:
            into, regions = pending.pop()
            for name, region in regions.items():
                same = into.setdefault(name, Region(name))
                same.n += region.n
                same.total += region.total
                pending.append((same.inner, region.inner))
        return whole

    @property
    def total(self) -> int:
        """Return the time during which at least one region is open."""
        return sum(region.total for region in self.outermost.values())

    def rows(self) -> Iterator[RegionRow]:
        """Yield the tree in depth-first order; siblings are sorted by time, longest first."""
        pending = [
            RegionRow(region, 0, region.only_waits) for region in _ranked(self.outermost)[::-1]
        ]
        while pending:
            row = pending.pop()
            yield row
            pending += [
                RegionRow(inner, row.depth + 1, row.waits or inner.only_waits)
                for inner in _ranked(row.region.inner)[::-1]
            ]

    @property
    def waiting(self) -> int:
        """Return the time in regions that only wait for copies."""
        return sum(row.region.self_time for row in self.rows() if row.waits)

    @property
    def computing(self) -> int | None:
        """Return the time in the kernel's body, excluding waits; None if no region is a body."""
        computing = None
        # Depth of the body that contains the row; None outside of bodies.
        body = None
        for region, depth, waits in self.rows():
            if body is not None and depth <= body:
                body = None
            if region.is_body:
                body = depth if body is None else body
                computing = computing or 0
            if body is not None and not waits:
                computing = (computing or 0) + region.self_time
        return computing


def _ranked(regions: dict[str, Region]) -> list[Region]:
    return sorted(regions.values(), key=lambda region: (-region.total, region.name))


class Inside(NamedTuple):
    """The regions of a step's kernels, by metadata id; kernels without regions are omitted."""

    of_kernel: dict[int, Regions]

    def of(self, metadata_ids: Iterable[int]) -> Regions | None:
        """Return the merged regions of several ops; None if the ops have no regions."""
        found = [self.of_kernel[i] for i in metadata_ids if i in self.of_kernel]
        return Regions.sum_of(found) if found else None


class KernelExecution:
    """An execution of a kernel. `opened` is the stack of open regions, each with its end and its
    inner regions."""

    __slots__ = ("end", "metadata_id", "opened", "start")

    def __init__(self, start: int, duration: int, metadata_id: int) -> None:
        self.start, self.end, self.metadata_id = start, start + duration, metadata_id
        self.opened: list[tuple[int, dict[str, Region]]] = []


def kernel_executions(step: Step) -> list[KernelExecution]:
    """Return the executions of kernels, sorted by start; ties are sorted by duration, longest
    first."""
    kernels = {ran.metadata_id for ran in step.leaves if ran.op.kernel}
    events = events_of(step.admitted.pieces, step.clock, kernels) if kernels else ()
    return [
        KernelExecution(*event) for event in sorted(events, key=lambda event: (event[0], -event[1]))
    ]


def starting_in(
    executions: Sequence[KernelExecution], events: Iterable[tuple[int, T]]
) -> Iterator[tuple[KernelExecution, int, T]]:
    """Yield each event that starts during an execution, with that execution. If several executions
    run at that time, the one that began last is used.

    `events` are pairs of a start and the event's data.
    """
    nested = Nested([ran.start for ran in executions], [ran.end for ran in executions])
    for start, event in events:
        for place in islice(nested.around(start), 1):
            yield executions[place], start, event


def region_events(step: Step) -> Iterator[Event]:
    return (
        event
        for event in step.device.events_on(WAITS_LINE)
        if event.name not in (AT_BARRIER, FOR_INPUTS)
    )


def inside_kernels(step: Step) -> Inside:
    """Read the regions of the step's kernels."""
    if not any(ran.op.kernel for ran in step.leaves):
        # Without kernels, skip the line with the regions: it can have as many events as the step
        # itself.
        return Inside({})
    events = region_events(step)
    first = next(events, None)
    # Search for kernels only if there are regions: the search takes milliseconds, and most captures
    # have no regions.
    executions = kernel_executions(step) if first else []
    spans = spans_in(step, executions, chain(filter(None, [first]), events))
    found: dict[int, Regions] = {}
    for execution, start, (end, name) in starting_in(executions, spans):
        opened = execution.opened
        while opened and opened[-1][0] <= start:
            opened.pop()
        if opened:
            limit, siblings = opened[-1]
        else:
            limit = execution.end
            siblings = found.setdefault(execution.metadata_id, Regions()).outermost
        # A region ends at the latest with the region or execution in which it begins.
        inner_end = min(end, limit)
        region = siblings.get(name)
        if region is None:
            region = siblings[name] = Region(name)
        region.n += 1
        region.total += inner_end - start
        opened.append((inner_end, region.inner))
    return Inside(found)


def spans_in(
    step: Step, executions: Sequence[KernelExecution], events: Iterable[Event]
) -> Iterator[tuple[int, tuple[int, str]]]:
    """Yield start, end and name of each event that can begin during one of the executions, sorted
    by start.

    Ties are sorted by duration, longest first. Events outside all executions are discarded early,
    because a capture of many steps can have millions of events.
    """
    if not executions:
        return
    first, last = executions[0].start, max(execution.end for execution in executions)
    is_on_device = step.clock.name == ON_DEVICE

    def can_begin(event: Event) -> bool:
        if is_on_device:
            # Keep events without times measured by the core, because their times are shifted later.
            return event.measured is None or first <= event.measured[0] < last
        return first <= event.start < last

    (spans,) = step.on_clock([list(filter(can_begin, events))])
    for start, end, name in sorted(spans, key=lambda span: (span[0], -span[1])):
        yield start, (end, NO_NAME if name is None else name)
