"""Fields of `kernel`."""

from typing import TypedDict

from .common import Lead, StepAnswer
from .rows import ChipFields, Durations, Line, PeaksUsed, ScopeFields, VmemFields
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
    """Flops of one execution, as in [by_op](#by_op); null if unknown."""
    bytes_accessed: Bytes | None
    """Bytes that one execution reads and writes in all memories; null if unknown."""
    cost_source: CostSource | None
    """Origin of flops and bytes, as in [roofline](#roofline); null if the cost is unknown."""


class Region(TypedDict):
    """Regions that have the same name and the same enclosing regions."""

    region: str
    """Name of the regions; `<none>` for regions without a name."""
    depth: Count
    """Number of enclosing regions. The innermost enclosing region is the closest preceding row with
    a smaller depth."""
    waits: bool
    """True if the region or an enclosing region only waits for a copy. `waiting_ps` is the sum of
    `self_dur_ps` over all rows in which `waits` is true."""
    n: Count
    """Number of regions that this row combines."""
    total_dur_ps: Picoseconds
    """Total duration of the regions, including the regions inside them."""
    self_dur_ps: Picoseconds
    """Total duration of the regions, excluding the regions inside them."""
    pct_of_kernel: Percent
    """`total_dur_ps` as a percentage of the kernel's time."""


class Inside(TypedDict):
    """Regions inside a kernel. All fields are null if the capture has no regions of the kernel."""

    regions: list[Region] | None
    """The named regions as a tree, with one row for all regions that have the same name and the
    same enclosing regions. Each region comes before the regions inside it; siblings are sorted by
    time, longest first, then by name. The sum of all `self_dur_ps` plus `outside_regions_ps` is the
    kernel's `total_dur_ps`. Null if the capture has no region of this kernel."""
    waiting_ps: Picoseconds | None
    """Time in regions that only wait for a copy: `ep_wait_in`, `ep_wait_out`, and regions whose
    name begins with `wait` after the last `/`."""
    waiting_pct: Percent | None
    """`waiting_ps` as a percentage of the kernel's time."""
    computing_ps: Picoseconds | None
    """Time in the regions `ep_run_kernel`, which run the kernel's body, excluding the waiting
    inside them; null if there is no such region."""
    outside_regions_ps: Picoseconds | None
    """Time of the kernel outside of all regions."""


class Counter(TypedDict):
    """Values of a counter, from events that begin during the kernel. The values are not
    measurements but the compiler's estimates for the code between two markers, so draw no
    conclusions from them."""

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
"""Class of the kernel's ops, as in [bottleneck](#bottleneck); null if the row's ops differ in
class."""


class Kernel(KernelClassed, Line, ScopeFields, Durations, CostOfRun, VmemFields, Inside):
    """A kernel or, with `--kernel`, an op of the kernel. A property is null if the row's ops differ
    in it."""

    rank: Count
    """Rank among the rows by total duration, from 1."""
    kernel: str
    """Name of the kernel, as `--kernel` and `--kernel-cost` accept it. Example:
    `flash_attention`"""
    hlo_op: str
    """Name of the op that takes the most time."""
    n_ops: Count
    """Number of ops that run the kernel."""
    n_executions: Count
    """Number of executions."""
    pct_of_step: Percent | None
    """`total_dur_ps` as a percentage of the step's duration."""
    at_roof_ps: Picoseconds | None
    """Minimum time that the chip needs for all executions, as in [bottleneck](#bottleneck); null if
    unknown for any execution."""
    lost_ps: Picoseconds | None
    """Lost time: `total_dur_ps` minus `at_roof_ps`; null if unknown."""
    shapes_in: list[str] | None
    """Shapes of the operands; null if the row's ops have different operands."""
    shapes_out: list[str] | None
    """A list with one entry: the shape of the result, which can be a tuple. Null if the row's ops
    have different results."""
    counters: list[Counter]
    """Counters by name and stat, with the values from events on the line `_counters_` that begin
    during the executions."""


class KernelsTail(TypedDict):
    """Rows that `--top` omits."""

    n_kernels_omitted: Count
    """Number of omitted kernels; with `--kernel`, number of omitted ops."""
    dur_ps: Picoseconds
    """Total duration of the omitted rows."""


class Fields(ChipFields):
    kernels: list[Kernel]
    """The kernels (with `--kernel`, the ops of the kernel) that take the most time, up to `--top`
    rows; ties are in order of name. Each custom call with the target `tpu_custom_call` runs a
    kernel."""
    tail: KernelsTail
    """Sums of the omitted rows."""
    peaks_used: PeaksUsed
    """Peak rates of the chip that ops are compared with."""


class Answer(Lead, StepAnswer, Fields):
    pass
