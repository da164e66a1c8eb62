"""Fields of `bottleneck`."""

from typing import Literal, TypedDict

from .common import Lead, StepFields, Totals
from .rows import (
    ChipFields,
    Declared,
    IdleByCause,
    InLoop,
    Line,
    PeaksUsed,
    PeersOfStep,
    PeriodFields,
    RecomputeTotal,
    VmemFields,
)
from .units import (
    Bytes,
    Count,
    Fraction,
    OpClass,
    Percent,
    Picoseconds,
    TokensPerSecond,
)

Bottleneck = Literal[OpClass, "idle", "at_roof"]
BudgetClass = Literal[OpClass, "idle", "overlap"]


class SpeedOfLight(TypedDict):
    """Least time that the chip needs for the step."""

    at_roof_ps: Picoseconds
    """Least time that the chip needs for the step, assuming that declared costs of kernels are
    true."""
    unknown_ps: Picoseconds
    """Total duration of the classes `kernel` and `unjudged`, plus the time above the roof of ops
    for which only the flops or only the bytes are known. This time above the roof is also part of
    `lost_ps`."""
    at_least_ps: Picoseconds
    """Lower bound of the least time that the chip needs, which is `at_roof_ps` without kernels of
    declared cost and without ops that are faster than their roof."""
    at_most_ps: Picoseconds
    """Upper bound of the least time that the chip needs, which is `at_roof_ps` plus `unknown_ps`:
    ops of unknown cost are assumed to be at their roof, and declared costs to be true."""
    pct_at_least: Percent | None
    """`at_least_ps` as a percentage of the step's duration."""
    pct_at_most: Percent | None
    """`at_most_ps` as a percentage of the step's duration."""


class OverRoof(TypedDict):
    """Ops that are faster than the roof by more than 1 %. No op can be faster than a correct roof,
    so a count of flops or bytes (often of slices that are updated in place), a dtype or a peak is
    wrong."""

    n_ops: Count
    """Number of different ops that are too fast. The budget counts an op that is too fast as
    running at the roof."""
    dur_ps: Picoseconds
    """Total duration of the ops that are too fast."""


class Capture(TypedDict):
    """Hosts, devices and steps in the capture."""

    hosts: list[str]
    """Names of hosts, as `--host` accepts them. Example: `["t1v-n-0"]`"""
    devices: list[str]
    """Names of the devices in this file, as `--device` accepts them."""
    n_steps: Count
    """Number of steps of the analysed device."""


BudgetClassed = TypedDict("BudgetClassed", {"class": BudgetClass})
"""One of the eight classes above; `idle` for time without a leaf op; `overlap` for the busy time
minus all durations, which is 0, or negative if ops overlap or end after the step."""


class BudgetRow(BudgetClassed):
    """The time of one class. The times of all classes add up to the step's duration."""

    dur_ps: Picoseconds
    """Total duration of the class."""
    pct_of_step: Percent | None
    """`dur_ps` as a percentage of the step's duration."""
    at_roof_ps: Picoseconds | None
    """Least time that the chip needs for the class; null if unknown."""
    lost_ps: Picoseconds | None
    """Lost time, by which `dur_ps` exceeds `at_roof_ps`; null if unknown."""
    hideable_ps: Picoseconds | None
    """The most time that overlapping with math can save; null for all classes but `collective`,
    `host` and `data_movement`. A collective that stops the core can save its own time or the time
    of independent math in the same computation, whichever is smaller; the row is null if such a
    collective has no program. All other ops of a class can save `dur_ps` or the duration of the
    step's math, whichever is smaller. To save more of `lost_ps`, move fewer bytes."""
    n_executions: Count | None
    """Number of executions; null for `idle` and `overlap`."""


FindingClassed = TypedDict("FindingClassed", {"class": OpClass})
"""The class of the line's ops; see the table of classes. Kernels of unknown cost are not
findings."""


class FindingFields(Line, InLoop):
    scope: str | None
    """Scope that takes most of the time, as in [by_scope](#by_scope); null if unknown."""
    hlo_op: str
    """Name of the costliest op, for `by_op --op`. Example: `flash_attention.3`"""
    shape: str | None
    """Output of the costliest op, without layout; at most three parts of a tuple.
    Example: `bf16[4,2048,1024]`"""
    agg_key: str
    """Key of the line's group of ops, or of the first op."""
    tf_op: str | None
    """The last 200 characters of the first op's path."""
    dur_ps: Picoseconds
    """Total duration of the line's ops in this class."""
    pct_of_step: Percent | None
    """`dur_ps` as a percentage of the step's duration."""
    n_executions: Count
    """Number of executions."""
    phases: dict[str, Picoseconds]
    """Total duration by phase. Example: `{"forward": 2263430715, "recompute": 2272238509}`"""
    waiting_ps: Picoseconds | None
    """For a kernel, the time in its regions that only wait for copies, as in [kernel](#kernel).
    Null for ops other than kernels, and if the capture has no region of the kernel."""


class Finding(FindingClassed, FindingFields):
    """The time that one line loses in one class."""

    rank: Count
    """Rank in the list, from 1."""
    at_roof_ps: Picoseconds | None
    """Least time that the chip needs for the line's ops; null if unknown."""
    lost_ps: Picoseconds | None
    """Lost time, by which `dur_ps` exceeds `at_roof_ps`; null if unknown."""
    hideable_ps: Picoseconds | None
    """The most time that overlapping this line with math can save, as in `budget`. Lines share the
    math that could hide them, so do not add up `hideable_ps` of several lines."""
    kernel: str | None
    """Name of a kernel with a given or declared cost; null for other ops."""
    waits_for: dict[str, Picoseconds] | None
    """Total duration by the operation that the core waits for, as in `comm_rollup` of summary;
    empty if no op of the line waits. Null in classes other than `collective` and `host`.
    Example: `{"all-gather": 83870, …, "all-to-all": 1526751862, …}`"""
    top_signature: str
    """Signature of the ops that take most of the line's time. Example: `all-to-all [all-to-all]`"""
    what_helps: str | None
    """Advice on what to change, by the class and kind of the costliest op; null if nothing is known
    to help. All advice is in the table of classes and ops above."""


class UnknownKernel(FindingFields, VmemFields):
    """A Pallas kernel with unknown flops, called at one source line. The lost time is unknown, so
    the kernel has no rank among the findings."""

    kernel: str
    """Name of the kernel."""
    declared: Declared | None
    """Cost of one execution as the kernel's author declares it, although the flops are not
    declared; null if nothing is declared."""


CauseName = Literal[
    "collective_in_loop",
    "kernel_waits_for_input",
    "large_intermediate",
    "layout_change",
    "not_donated",
    "one_hot_matmul",
    "pause_between_steps",
    "recompute",
    "recomputed_repeatedly",
    "resharding",
    "slow_device",
    "synchronous_collective",
    "widened_dtype",
]


Confidence = Literal["seen", "likely"]


class TimeOfDepth(TypedDict):
    """Recomputed work inside `depth` checkpoints."""

    depth: Count
    """Number of checkpoints that enclose the ops."""
    dur_ps: Picoseconds
    """Total duration of the ops at this depth."""


class CauseEvidence(TypedDict):
    """Executions and figures that show a cause; empty for `pause_between_steps`."""

    ops: list[str]
    """Names of the ops that take most of the time, at most ten. Example: `["flash_attention.3",
    …]`"""
    n_ops: Count
    """Number of ops that the cause affects."""
    n_executions: Count
    """Number of executions of the affected ops."""
    dur_ps: Picoseconds
    """Total duration of the affected ops."""
    shape: str | None
    """Shape of the array that is widened, copied, multiplied or written; null for causes without an
    array."""
    collective: str | None
    """Opcode of the collective; null if there are several opcodes, and for causes without a
    collective."""
    n_participants: Count | None
    """Number of devices in each replica group of the collectives of `resharding`; null for other
    causes, and if unknown."""
    trips: Count | None
    """Number of iterations of the loop of `collective_in_loop`; null for other causes."""
    by_depth: list[TimeOfDepth] | None
    """Recomputed work by number of enclosing checkpoints, for `recompute` and
    `recomputed_repeatedly`; null for other causes."""
    device: str | None
    """The slow device of `slow_device`; null for other causes."""
    hbm_free_bytes: Bytes | None
    """For `recompute`: the HBM that the allocator never gave out during the capture. Null for
    causes other than `recompute`, and if the capture has no reports of the allocator."""


class Cause(TypedDict):
    """A pattern in the program or the trace that costs time or memory. No cause is inferred from a
    share of the time alone. Causes can overlap, so do not add up the gains of several causes."""

    rank: Count
    """Rank in the list, from 1. Causes with the most gain come first, then recomputation, then
    causes that cost only memory."""
    cause: CauseName
    """Name of the pattern; see the table of causes."""
    gain_ps: Picoseconds
    """The most time that removing the cause can save, computed from the executions in `evidence`
    alone; for `pause_between_steps`, `between_steps_ps`."""
    gain_pct_of_step: Percent
    """`gain_ps` as a percentage of the step's duration; for `pause_between_steps` as a percentage
    of `period_ps`."""
    unknown_ps: Picoseconds | None
    """Total duration of kernels that the cause slows by an unknown amount; null without such
    kernels."""
    gain_bytes: Bytes | None
    """Bytes of HBM that removing the cause frees on each device; null for causes that cost time."""
    source_inner: str | None
    """Innermost source line, which can be in a library; null if unknown."""
    source_user: str | None
    """The line of your code to change; null if unknown. For `pause_between_steps`, the outermost
    Python function that the host runs during the pause, without the folder of the function's
    file."""
    scope: str | None
    """Scope of the line, as in [by_scope](#by_scope); null if unknown."""
    says: str
    """One or two sentences that describe the pattern and the cost."""
    what_helps: str
    """Change that removes the cause."""
    evidence: CauseEvidence
    """Executions and figures that show the cause."""
    confidence: Confidence
    """`seen` if the pattern is unambiguous, `likely` if there can be another explanation."""


class FindingsTail(TypedDict):
    """The findings and kernels that `--top` leaves out."""

    n_findings_omitted: Count
    """Number of omitted findings."""
    dur_ps: Picoseconds
    """Total duration of the omitted findings."""
    lost_ps: Picoseconds
    """Known part of the lost time of the omitted findings."""
    n_kernels_omitted: Count
    """Number of omitted rows of `kernels_of_unknown_cost`."""
    kernels_dur_ps: Picoseconds
    """Total duration of the omitted kernels."""


class RecomputedMath(TypedDict):
    recompute_dur_ps: Picoseconds
    """Compute time of phase `recompute`. The budget counts this time in other classes, not as a
    class."""
    recompute_pct_of_step: Percent | None
    """`recompute_dur_ps` as a percentage of the step's duration."""


class Fields(ChipFields, RecomputedMath, RecomputeTotal, PeriodFields):
    causes: list[Cause]
    """Reasons why time is lost: patterns in the program that cost at least 0.5 % of the step, or
    memory. Most patterns need the program in the capture; a note says if the capture lacks the
    program."""
    bottleneck: Bottleneck
    """The class that loses most time, counting all time of `kernel` and `unjudged` as lost, and
    idle time as class `idle`. The value is `at_roof` if all lost time together is less than 10 % of
    the step."""
    speed_of_light: SpeedOfLight
    """Least time that the chip needs for the step."""
    mfu_at_least: Fraction | None
    """Lower bound of the MFU: time that the matrix units need for the known flops at the peak rate,
    divided by the step's duration. Recomputation, declared costs and ops that are faster than their
    roof are left out. Null if none of the counted ops has known flops, or if the step's duration is
    zero."""
    hfu_at_least: Fraction | None
    """Lower bound of the hardware flops utilization, which is `mfu_at_least` with recomputation
    included."""
    mfu: Fraction | None
    """Useful flops divided by the product of bf16 peak and step duration. The flops come from
    `--model-flops`, or from `--tokens` with `--flops-per-token` or `--params`; null without these
    options. With megacore (`has_megacore` of the plane is 1) the peak is the sum of both cores."""
    tokens_per_s: TokensPerSecond | None
    """`--tokens` divided by the step's duration in seconds; null without `--tokens`."""
    over_roof: OverRoof
    """Ops that are faster than their roof. `pct_at_least`, `mfu_at_least` and `hfu_at_least` leave
    these ops out, and a note names the source lines."""
    capture: Capture
    """Hosts, devices and steps in the capture."""
    budget: list[BudgetRow]
    """Time of the eight classes, `idle` and `overlap`. The rows add up to the step's duration."""
    idle_by_cause: IdleByCause
    """Idle time by cause; see [idle](#idle)."""
    findings: list[Finding]
    """Lost time by class and line (and kernel), at most `--top` rows, most lost time first; all
    time of unknown cost counts as lost. Ops without a stack count at their likely line. A line that
    is called from two places has two findings."""
    kernels_of_unknown_cost: list[UnknownKernel]
    """The time of class `kernel` by line and kernel, at most `--top` rows, most time first."""
    tail: FindingsTail
    """Sums of the omitted findings and kernels."""
    peaks_used: PeaksUsed
    """Peak rates of the chip."""


class OwnTotals(TypedDict):
    peers: PeersOfStep | None
    """Time spent waiting for late devices; null without `--peers`."""


class BottleneckTotals(Totals, OwnTotals):
    """Sums over the step."""


class Returned(Fields):
    """The fields of the mode, and the mode's additions to the totals."""

    totals: OwnTotals


class WithTotals(TypedDict):
    totals: BottleneckTotals
    """Sums over the step."""


class Answer(Lead, StepFields, WithTotals, Fields):
    pass
