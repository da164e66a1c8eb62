"""Fields of `summary`."""

from typing import TypedDict

from .common import Lead, StepAnswer
from .rows import Durations, Gap, GroupFields, GroupTail, PeriodFields, RecomputeTotal
from .units import (
    Count,
    Kind,
    KindOrContainer,
    Percent,
    Picoseconds,
)


class KindIfAsked(TypedDict, total=False):
    kind: Kind
    """Kind of the group's ops; printed only with `--include-comm`."""


class ComputeGroup(GroupFields, KindIfAsked):
    """Ops that share a kind and a key."""

    rank: Count
    """Rank among the groups by total duration, from 1."""


class KindRow(TypedDict):
    """The ops of one kind."""

    n: Count
    """Number of executions."""
    dur_ps: Picoseconds
    """Total duration of the ops of this kind."""
    pct_of_step: Percent | None
    """`dur_ps` as a percentage of the step's duration."""


class PhaseRow(TypedDict):
    """The compute ops of one phase."""

    n: Count
    """Number of executions."""
    dur_ps: Picoseconds
    """Total duration of the compute ops of this phase."""
    pct_of_compute: Percent | None
    """`dur_ps` as a percentage of the step's compute time."""


class CategoryRow(TypedDict):
    """The ops of one category."""

    hlo_category: str
    """HLO category as in the trace; `convert` for casts outside of fusions, `<none>` for ops
    without a category. Example: `convolution fusion`"""
    kind: KindOrContainer
    """Kind of the ops."""
    n_executions: Count
    """Number of executions."""
    total_dur_ps: Picoseconds
    """Total duration of the ops of this category."""
    pct_of_step: Percent | None
    """`total_dur_ps` as a percentage of the step's duration."""


class CommRow(TypedDict):
    """Communication and waits that belong to the same operation."""

    waits_for: str
    """Operation that the core runs or waits for: a collective, `send` or `recv`. `host`: transfers
    to and from the host, infeed, outfeed, and copies from or to host memory. `sparse_core`:
    offloaded work. `dma`: local transfers, such as from HBM to VMEM."""
    n: Count
    """Number of executions."""
    sync_dur_ps: Picoseconds
    """Time of communication that runs synchronously on the core."""
    wait_dur_ps: Picoseconds
    """Time spent waiting for asynchronous operations. The values of all rows add up to
    `wait_duration_ps`."""
    pct_of_step: Percent | None
    """`sync_dur_ps` plus `wait_dur_ps`, as a percentage of the step's duration."""
    longest_hlo_op: str
    """HLO text of the longest execution.
    Example: `%all-to-all.4 = bf16[2,4,2048,1024]{3,2,1,0:T(8,128)(2,1)} all-to-all(…`"""


class Kernel(Durations):
    """A custom (Pallas) kernel."""

    kernel: str
    """Name of the kernel, as `--kernel-cost` accepts it. Example: `flash_attention`"""
    n_executions: Count
    """Number of executions."""
    pct_of_step: Percent | None
    """`total_dur_ps` as a percentage of the step's duration."""
    source_inner: str | None
    """Source line of the kernel's first execution, or its likely line; null if unknown."""
    source_user: str | None
    """Innermost line of the user's own code at the kernel's first execution; null if there is
    none."""
    tf_op: str | None
    """Path of the kernel's first execution; null if it has none."""
    phases: dict[str, Picoseconds]
    """Total duration by phase."""
    shapes_in: list[str]
    """Shapes of the operands of the longest execution.
    Example: `["bf16[4,4,2048,128]{3,2,1,0:T(8,128)(2,1)S(1)}", …]`"""
    shapes_out: list[str]
    """A list with one entry: the shape of the longest execution's result, which can be a tuple.
    Example: `["(bf16[4,4,2048,128]{…}, f32[4,4,2048,128]{…}, f32[4,4,2048,128]{…})"]`"""


class StepNameRow(TypedDict):
    """Steps that share a name. All steps that the profiler numbered are in one row."""

    name: str | None
    """Name of the steps; null for numbered steps."""
    n: Count
    """Number of steps."""
    total_dur_ps: Picoseconds
    """Total of the durations in `steps`."""
    median_dur_ps: Picoseconds
    """Median duration of the steps; for an even number of steps, the lower of the two middle
    durations."""
    min_dur_ps: Picoseconds
    """Duration of the shortest step."""
    max_dur_ps: Picoseconds
    """Duration of the longest step."""


class StepsRollup(TypedDict):
    """Figures over all steps."""

    n: Count
    """Number of steps."""
    n_without_ops: Count
    """Number of steps in which no op starts. Every mode of one step reports such steps in a
    note."""
    between_steps_ps: Picoseconds
    """Time on the trace's clock that belongs to no step, between the start of the first step and
    the end of the last step. The figures of a step never include this time; a note reports it if
    `between_steps_pct` exceeds 1."""
    between_steps_pct: Percent | None
    """`between_steps_ps` as a percentage of the time from the start of the first step to the end of
    the last step; null without steps."""
    by_name: list[StepNameRow]
    """Steps by name, most time first."""


class PickedIfPicked(TypedDict, total=False):
    picked: bool
    """Always true; printed only for the analysed step."""


class Step(PickedIfPicked):
    """A step of the trace."""

    index: Count
    """Index of the step, as `--step` accepts it."""
    name: str | None
    """Name of the step, as `--step-id` accepts it."""
    duration_ps: Picoseconds
    """Duration of the step on the clock in `clock`. Steps without measured ops have only a duration
    on the trace's clock."""
    n_xla_ops_events: Count
    """Number of events that start in the step, including containers."""


class Fields(RecomputeTotal, PeriodFields):
    top_compute_groups: list[ComputeGroup]
    """The groups of compute ops that take the most time, up to `--top` rows."""
    tail_compute: GroupTail
    """Sums of the omitted groups."""
    by_kind_rollup: dict[str, KindRow]
    """Number of executions and total duration by kind: compute, data_move, comm, other."""
    by_phase_rollup: dict[str, PhaseRow]
    """Number of executions and total duration of compute ops by phase: forward, backward,
    recompute, other, unknown."""
    by_hlo_category: list[CategoryRow]
    """Number of executions and total duration by category, including containers, most time
    first."""
    comm_rollup: list[CommRow]
    """Communication and waits, by the operation that the core runs or waits for, most time
    first."""
    kernels: list[Kernel]
    """Custom (Pallas) kernels, most time first."""
    steps_rollup: StepsRollup
    """Figures over all steps."""
    idle_gaps: list[Gap]
    """The ten longest gaps without a leaf op, longest first."""
    steps: list[Step]
    """Every step of the trace; empty if the trace has no steps."""


class Answer(Lead, StepAnswer, Fields):
    pass
