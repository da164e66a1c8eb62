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
    """The regions of one name that are inside the same regions."""

    region: str
    """Name; `<none>` for a region without one."""
    depth: Count
    """Number of regions around it. A row is inside the last row before it of a smaller depth."""
    waits: bool
    """True if it, or a region around it, only waits for a copy. The self times of these rows add up
    to `waiting_ps`."""
    n: Count
    """Number of regions."""
    total_dur_ps: Picoseconds
    """Their time, including regions inside."""
    self_dur_ps: Picoseconds
    """Their time without regions inside."""
    pct_of_kernel: Percent
    """Time in percent of the kernel."""


class Inside(TypedDict):
    """The inside of a kernel, if the capture has it; otherwise all fields are null."""

    regions: list[Region] | None
    """The named regions as a tree, outer ones first, of those side by side the longest; ties by
    name. The self times and `outside_regions_ps` add up to `total_dur_ps`. Null if the capture has
    no region of this kernel."""
    waiting_ps: Picoseconds | None
    """Time in regions that only wait for a copy: `ep_wait_in`, `ep_wait_out`, and those with a name
    that begins with `wait` after the last `/`."""
    waiting_pct: Percent | None
    """`waiting_ps` in percent of the kernel."""
    computing_ps: Picoseconds | None
    """Time in `ep_run_kernel`, the body, less what is waiting inside it; null without such a
    region."""
    outside_regions_ps: Picoseconds | None
    """Time in no region."""


class Counter(TypedDict):
    """The values of a counter that begin during the kernel. They are the compiler's estimates of
    the code between two markers, not measurements: judge nothing by them."""

    name: str | None
    """Name of the events; null if they have none."""
    stat: str
    """Name of the stat that has the value, such as `% util`."""
    n: Count
    """Number of values."""
    min: int | float | str
    """Least value; an integer above 2**53 is a decimal text."""
    max: int | float | str
    """Largest value, likewise."""


KernelClassed = TypedDict("KernelClassed", {"class": OpClass | None})
"""Class, as in [bottleneck](#bottleneck)."""


class Kernel(KernelClassed, Line, Durations, CostOfRun, VmemFields, Inside):
    """A kernel; with `--kernel` one of its ops. A fact that differs between the ops of a row is
    null."""

    rank: Count
    """Place by time, from 1."""
    kernel: str
    """Name, as `--kernel` and `--kernel-cost` accept it. Example: `flash_attention`"""
    hlo_op: str
    """The op that takes most time."""
    n_ops: Count
    """Ops that run the kernel."""
    scope: str | None
    """Scope, as in [by_scope](#by_scope); null if unknown."""
    n_executions: Count
    """Executions."""
    pct_of_step: Percent | None
    """Time in percent of the step."""
    at_roof_ps: Picoseconds | None
    """Time that the chip needs at least for all executions; null if unknown for an op."""
    lost_ps: Picoseconds | None
    """Time beyond `at_roof_ps`."""
    shapes_in: list[str] | None
    """Operands."""
    shapes_out: list[str] | None
    """Result; a tuple is one entry."""
    counters: list[Counter]
    """What the line `_counters_` has during the executions, by name and stat."""


class KernelsTail(TypedDict):
    """The rows that the list leaves out."""

    n_kernels_omitted: Count
    """Kernels beyond `--top`; with `--kernel` its ops."""
    dur_ps: Picoseconds
    """Their time."""


class Fields(ChipFields):
    kernels: list[Kernel]
    """The kernels that take most time, at most `--top`; ties by name. Each custom call of the
    target `tpu_custom_call` is a kernel."""
    tail: KernelsTail
    """Sums of the omitted rows."""
    peaks_used: PeaksUsed
    """The peaks."""


class Answer(Lead, StepAnswer, Fields):
    pass
