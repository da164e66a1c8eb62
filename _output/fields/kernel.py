"""Fields of `kernel`."""

from typing import TypedDict

from .common import Lead, StepAnswer
from .rows import ChipFields, Durations, Line, PeaksUsed, VmemFields
from .units import (
    Bytes,
    CostSource,
    Count,
    Flops,
    OpClass,
    Percent,
    Picoseconds,
)


class CostOfRun(TypedDict):
    """The cost of one execution of a kernel."""

    flops: Flops | None
    """Flops of one execution, as in [by_op](#by_op)."""
    bytes_accessed: Bytes | None
    """Bytes that one execution reads and writes, in all memories."""
    cost_source: CostSource | None
    """Origin of flops and bytes, as in [roofline](#roofline); null if the cost is unknown."""


class Region(TypedDict):
    """Regions that have the same name and the same enclosing regions."""

    region: str
    """Name of the regions; `<none>` for regions without a name."""
    depth: Count
    """Number of regions around this region. The closest preceding row with a smaller depth is the
    region that contains this region."""
    waits: bool
    """True if the region, or a region around it, only waits for a copy. `waiting_ps` is the sum of
    `self_dur_ps` over all rows in which `waits` is true."""
    n: Count
    """Number of regions."""
    total_dur_ps: Picoseconds
    """Total duration of the regions, including the regions inside them."""
    self_dur_ps: Picoseconds
    """Total duration of the regions, without the regions inside them."""
    pct_of_kernel: Percent
    """`total_dur_ps` as a percentage of the kernel's time."""


class Inside(TypedDict):
    """Regions inside a kernel. All fields are null if the capture has no regions of the kernel."""

    regions: list[Region] | None
    """The named regions as a tree. Each region comes before the regions inside it; regions at the
    same depth are sorted by time, then by name. All `self_dur_ps` and `outside_regions_ps` add up
    to the kernel's `total_dur_ps`. Null if the capture has no region of this kernel."""
    waiting_ps: Picoseconds | None
    """Time in regions that only wait for a copy, which are `ep_wait_in`, `ep_wait_out`, and regions
    with a name in which the part after the last `/` begins with `wait`."""
    waiting_pct: Percent | None
    """`waiting_ps` as a percentage of the kernel's time."""
    computing_ps: Picoseconds | None
    """Time in the regions `ep_run_kernel`, which run the kernel's body, without the waiting inside
    these regions; null without such a region."""
    outside_regions_ps: Picoseconds | None
    """Time of the kernel outside of all regions."""


class Counter(TypedDict):
    """The values of a counter that begin during the kernel. The values are not measurements, but
    the compiler's estimates for the code between two markers. Draw no conclusions from the values
    of counters."""

    name: str | None
    """Name of the counter's events; null for events without a name."""
    stat: str
    """Name of the stat that has the value, such as `% util`."""
    n: Count
    """Number of values."""
    min: int | float | str
    """Smallest value; an integer above 2**53 is printed as decimal text."""
    max: int | float | str
    """Largest value; an integer above 2**53 is printed as decimal text."""


KernelClassed = TypedDict("KernelClassed", {"class": OpClass | None})
"""Class, as in [bottleneck](#bottleneck)."""


class Kernel(KernelClassed, Line, Durations, CostOfRun, VmemFields, Inside):
    """A kernel; with `--kernel`, an op of the kernel. A fact is null if the ops of the row differ
    in this fact."""

    rank: Count
    """Rank among the rows by total duration, from 1."""
    kernel: str
    """Name of the kernel, as `--kernel` and `--kernel-cost` accept it. Example:
    `flash_attention`"""
    hlo_op: str
    """Name of the op that takes most time."""
    n_ops: Count
    """Number of ops that run the kernel."""
    scope: str | None
    """Scope, as in [by_scope](#by_scope); null if unknown."""
    n_executions: Count
    """Number of executions."""
    pct_of_step: Percent | None
    """`total_dur_ps` as a percentage of the step's duration."""
    at_roof_ps: Picoseconds | None
    """Least time that the chip needs for all executions; null if unknown for an op."""
    lost_ps: Picoseconds | None
    """Lost time, by which `total_dur_ps` exceeds `at_roof_ps`; null if unknown."""
    shapes_in: list[str] | None
    """Shapes of the operands; null if the ops of the row have different operands."""
    shapes_out: list[str] | None
    """Shape of the result; a tuple is one entry. Null if the ops of the row have different
    results."""
    counters: list[Counter]
    """Counters on the line `_counters_` during the executions, by name and stat."""


class KernelsTail(TypedDict):
    """The rows that `--top` leaves out."""

    n_kernels_omitted: Count
    """Number of omitted kernels; with `--kernel`, number of omitted ops."""
    dur_ps: Picoseconds
    """Total duration of the omitted rows."""


class Fields(ChipFields):
    kernels: list[Kernel]
    """The kernels that take most time, at most `--top`; kernels of equal time are sorted by name.
    Each custom call with the target `tpu_custom_call` runs a kernel."""
    tail: KernelsTail
    """Sums of the omitted rows."""
    peaks_used: PeaksUsed
    """Peak rates of the chip."""


class Answer(Lead, StepAnswer, Fields):
    pass
