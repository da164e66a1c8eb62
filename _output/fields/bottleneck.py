"""Fields of `bottleneck`."""

from typing import Literal, TypedDict

from .common import Lead, StepFields, Totals
from .rows import (
    ChipFields,
    Declared,
    IdleByCause,
    InLoop,
    Line,
    Pauses,
    PeaksUsed,
    PeersOfStep,
    PeriodFields,
    RecomputeTotal,
    ScopeFields,
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
    """Minimum time that the chip needs for the step."""

    at_roof_ps: Picoseconds
    """Minimum time that the chip needs for the step, assuming that the declared costs of kernels
    are correct."""
    unknown_ps: Picoseconds
    """Total duration of the classes `kernel` and `unjudged`, plus the time above the roof of ops
    for which only flops or only bytes are known. The time above the roof is also part of
    `lost_ps`."""
    at_least_ps: Picoseconds
    """Lower bound of the minimum time, computed like `at_roof_ps` but excluding kernels of declared
    cost and ops that are faster than their roof."""
    at_most_ps: Picoseconds
    """Upper bound of the minimum time: the sum of `at_roof_ps` and `unknown_ps`. The upper bound
    assumes that ops of unknown cost run at their roof, and that declared costs are correct."""
    pct_at_least: Percent | None
    """`at_least_ps` as a percentage of the step's duration."""
    pct_at_most: Percent | None
    """`at_most_ps` as a percentage of the step's duration."""


class OverRoof(TypedDict):
    """Ops that are more than 1 % faster than their roof. No op can be faster than a correct roof,
    so a dtype, a peak or a count of flops or bytes is wrong (often for slices that are updated in
    place)."""

    n_ops: Count
    """Number of distinct ops that are faster than their roof. In the budget, these ops are assumed
    to run at their roof."""
    dur_ps: Picoseconds
    """Total duration of the ops that are faster than their roof."""


class Capture(TypedDict):
    """Hosts, devices and steps in the capture."""

    hosts: list[str]
    """Host names, as `--host` accepts them. Example: `["t1v-n-0"]`"""
    devices: list[str]
    """Names of the devices in the file, as `--device` accepts them."""
    n_steps: Count
    """Number of steps of the analysed device in the capture."""


class Steps(TypedDict):
    """Durations of the steps with the picked step's name, on the clock in `clock`, as in `steps` of
    [summary](#summary)."""

    n: Count
    """Number of steps."""
    min_ps: Picoseconds
    """Duration of the shortest step."""
    median_ps: Picoseconds
    """Median duration; for an even number of steps, the lower of the two middle durations."""
    max_ps: Picoseconds
    """Duration of the longest step."""


BudgetClassed = TypedDict("BudgetClassed", {"class": BudgetClass})
"""One of the eight classes above, or `idle` for time without a leaf op, or `overlap` for the busy
time minus the total duration of all leaf ops. `overlap` is 0, or negative if ops overlap or end
after the step."""


class BudgetRow(BudgetClassed):
    """The time of one class. The times of all classes add up to the step's duration."""

    dur_ps: Picoseconds
    """Total duration of the class."""
    pct_of_step: Percent | None
    """`dur_ps` as a percentage of the step's duration."""
    at_roof_ps: Picoseconds | None
    """Minimum time that the chip needs for the class; null if unknown."""
    lost_ps: Picoseconds | None
    """Lost time: `dur_ps` minus `at_roof_ps`; null if unknown."""
    hideable_ps: Picoseconds | None
    """Estimate of the time that math could hide; null for all classes but `collective`, `host` and
    `data_movement`. For a collective that stops the core, this is the collective's own duration or
    the duration of independent math in the same computation, whichever is smaller. For the other
    ops of the class together, it is their total duration or the duration of the step's math,
    whichever is smaller. Null if the program of a collective that stops the core is missing.
    If devices were compared, time spent waiting for a late device is not hideable. To reduce
    `lost_ps` further, move fewer bytes."""
    n_executions: Count | None
    """Number of executions; null for `idle` and `overlap`."""


FindingClassed = TypedDict("FindingClassed", {"class": OpClass})
"""Class of the line's ops; see the table of classes. Kernels of unknown cost are listed in
`kernels_of_unknown_cost` instead."""


class FindingFields(Line, ScopeFields, InLoop):
    hlo_op: str
    """Name of the op that takes the most time, as `--op` of by_op accepts it. Example:
    `flash_attention.3`"""
    shape: str | None
    """Output shape that takes the most time, without layout. For a tuple, up to three
    parts are shown. Null if unknown. Example: `bf16[4,2048,4,128]`"""
    agg_key: str
    """Key of the group that the line's first op belongs to."""
    dur_ps: Picoseconds
    """Total duration of the line's ops in this class."""
    pct_of_step: Percent | None
    """`dur_ps` as a percentage of the step's duration."""
    n_executions: Count
    """Number of executions."""
    waiting_ps: Picoseconds | None
    """For a kernel, the time in its regions that only wait for copies, as in [kernel](#kernel).
    Null for ops other than kernels, and if the capture has no region of the kernel."""


class Finding(FindingClassed, FindingFields):
    """The lost time of one source line in one class."""

    rank: Count
    """Rank in the list, from 1."""
    at_roof_ps: Picoseconds | None
    """Minimum time that the chip needs for the line's ops; null if unknown."""
    lost_ps: Picoseconds | None
    """Lost time: `dur_ps` minus `at_roof_ps`; null if unknown."""
    hideable_ps: Picoseconds | None
    """Estimate of the line's time that math could hide, as in `budget`. The same math may be able
    to hide several lines, so do not add up their `hideable_ps`."""
    kernel: str | None
    """Name of the kernel, if its cost is declared or set by `--kernel-cost`; null for other ops."""
    waits_for: dict[str, Picoseconds] | None
    """Total duration by the operation that the core runs or waits for, named as in `comm_rollup` of
    summary. Empty if the line's ops only start such operations. Null in classes other than
    `collective` and `host`. Example: `{"all-gather": 83870, …, "all-to-all": 1526751862, …}`"""
    top_signature: str
    """The signature that takes the most time on this line. Example: `all-to-all [all-to-all]`"""
    what_helps: str | None
    """Advice on what to change, chosen by the class and by what the op that takes the most time
    does; null if there is no advice. The table of classes and ops lists all advice."""


class LineOfFindings(FindingClassed, Line, ScopeFields):
    """All findings of one source line. Names and class come from the finding that loses most."""

    agg_key: str
    """Key of the group that the line's first op belongs to."""
    dur_ps: Picoseconds
    """Total duration of the line's ops in all classes."""
    pct_of_step: Percent | None
    """`dur_ps` as a percentage of the step's duration."""
    lost_ps: Picoseconds
    """Sum of the `lost_ps` of the line's findings, as far as it is known."""
    n_findings: Count
    """Number of findings."""
    mostly: str
    """Kernel or `top_signature` of the finding."""


class UnknownKernel(FindingFields, VmemFields):
    """A Pallas kernel with unknown flops, called at one source line. The lost time of such kernels
    is unknown, so they are not among the findings."""

    kernel: str
    """Name of the kernel."""
    declared: Declared | None
    """Cost of one execution as declared by the kernel's author, who did not declare the flops; null
    if nothing is declared."""


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
    """Time of the recomputation inside `depth` nested checkpoints."""

    depth: Count
    """Number of nested checkpoints that enclose the ops."""
    dur_ps: Picoseconds
    """Total duration of the ops at this depth."""


class EvidenceIfKnown(TypedDict, total=False):
    shape: str
    """Shape of the array that is widened, copied, multiplied or written; omitted for causes without
    an array. `shape` and the following seven fields are printed only if they are known for the
    cause."""
    collective: str
    """Opcode of the collective; omitted if there are several opcodes, and for causes without a
    collective."""
    n_participants: Count
    """For `resharding`: number of devices in each replica group of the collectives."""
    trips: Count
    """For `collective_in_loop`: number of iterations of the loop."""
    by_depth: list[TimeOfDepth]
    """For `recompute` and `recomputed_repeatedly`: time of the recomputation by number of enclosing
    checkpoints."""
    device: str
    """For `slow_device`: name of the slow device."""
    hbm_free_bytes: Bytes
    """For `recompute`: HBM that was never allocated during the capture; omitted if the capture has
    no allocator reports."""
    pauses: Pauses
    """For `pause_between_steps`: number and lengths of the pauses."""


class CauseEvidence(EvidenceIfKnown):
    """Executions and figures that support a cause."""

    ops: list[str]
    """Names of the affected ops that take the most time, at most ten.
    Example: `["flash_attention.3", …]`"""
    n_ops: Count
    """Number of ops that the cause affects."""
    n_executions: Count
    """Number of executions of the affected ops."""
    dur_ps: Picoseconds
    """Total duration of the affected ops, without time spent waiting for late devices."""


class Cause(TypedDict):
    """A pattern in the program or the trace that costs time or memory. Ops are not a cause merely
    because they take a large share of the time. Causes can overlap, so do not add up their
    gains."""

    rank: Count
    """Rank in the list, from 1. Causes are sorted by gain, largest first, but `recompute` comes
    after them, and causes that cost memory but no time come last."""
    cause: CauseName
    """Name of the pattern; see the table of causes."""
    gain_ps: Picoseconds
    """Estimate of the time that removing the cause saves, computed from the executions in
    `evidence` alone. The true gain can be larger or smaller. For `pause_between_steps`, the gain is
    the time of all pauses with this reason, divided by the number of periods."""
    gain_pct_of_step: Percent
    """`gain_ps` as a percentage of the step's duration; for `pause_between_steps` as a percentage
    of `period_ps`."""
    unknown_ps: Picoseconds | None
    """Total duration of kernels that the cause slows by an unknown amount; null if there are
    none."""
    gain_bytes: Bytes | None
    """Bytes of HBM that removing the cause frees on each device; null for causes that cost time."""
    source_inner: str | None
    """Innermost source line of the cause, which can be in a library; null if unknown."""
    source_user: str | None
    """Line of the user's own code to change; null if unknown. For `pause_between_steps`:
    file (without its folder) and line of the innermost Python function in own code that covers at
    least half of the pause. If functions of the same file call it, it is the outermost of these
    that launches no step."""
    scope: str | None
    """Scope of the line, as in [by_scope](#by_scope); null if unknown."""
    says: str
    """Description of the pattern and its cost: two sentences and 300 characters at most."""
    what_helps: str
    """Change that would remove the cause."""
    evidence: CauseEvidence
    """Executions and figures that support the cause; for `pause_between_steps`, there are no
    executions."""
    confidence: Confidence
    """`seen` if the pattern is unambiguous, `likely` if another explanation is possible."""


class FindingsTail(TypedDict):
    """Findings and kernels that `--top` omits."""

    n_findings_omitted: Count
    """Number of omitted findings."""
    dur_ps: Picoseconds
    """Total duration of the omitted findings."""
    lost_ps: Picoseconds
    """Total lost time of the omitted findings, as far as it is known."""
    n_lines_omitted: Count
    """Number of lines omitted from `lines`."""
    lines_dur_ps: Picoseconds
    """Total duration of the omitted lines."""
    lines_lost_ps: Picoseconds
    """Total lost time of the omitted lines, as far as it is known."""
    n_kernels_omitted: Count
    """Number of kernels omitted from `kernels_of_unknown_cost`."""
    kernels_dur_ps: Picoseconds
    """Total duration of the omitted kernels."""


class RecomputedMath(TypedDict):
    recompute_dur_ps: Picoseconds
    """Compute time of phase `recompute`. This time is not a separate class: `budget` counts it in
    the classes of the recomputing ops."""
    recompute_pct_of_step: Percent | None
    """`recompute_dur_ps` as a percentage of the step's duration."""


class Fields(ChipFields, RecomputedMath, RecomputeTotal, PeriodFields):
    causes: list[Cause]
    """Patterns in the program or the trace that cost memory, or at least 0.5 % of the step. Most
    causes can be found only if the capture contains the program; if it does not, a note reports
    that."""
    bottleneck: Bottleneck
    """Class with the most lost time. All time of `kernel` and `unjudged` counts as lost. Idle time
    counts as class `idle`, including `between_steps_ps`. The value is `at_roof` if the total lost
    time is less than 10 % of the step and the pause after it."""
    speed_of_light: SpeedOfLight
    """Minimum time that the chip needs for the step."""
    mfu_at_least: Fraction | None
    """Lower bound of the MFU: time that the matrix units need for the known flops at the peak rate,
    divided by the step's duration. Recomputation, declared costs and ops that are faster than their
    roof are excluded. Null if the bound is below 0.05 %, because such a bound says nothing, or if
    the step's duration is zero."""
    hfu_at_least: Fraction | None
    """Lower bound of the hardware flops utilization, computed like `mfu_at_least` but including
    recomputation."""
    mfu: Fraction | None
    """Useful flops divided by the product of bf16 peak and step duration. The useful flops come
    from `--model-flops`, or from `--tokens` with `--flops-per-token` or `--params`; null without
    these options. With megacore (the plane's stat `has_megacore` is 1), the peak is the sum over
    both cores."""
    tokens_per_s: TokensPerSecond | None
    """`--tokens` divided by the step's duration in seconds; null without `--tokens`."""
    over_roof: OverRoof
    """Ops that are more than 1 % faster than their roof. `pct_at_least`, `mfu_at_least` and
    `hfu_at_least` exclude these ops; a note lists the ops' source lines."""
    capture: Capture
    """Hosts, devices and steps in the capture."""
    steps: Steps | None
    """Durations of the steps with the picked step's name; null with `--step all`, and if the
    capture has no steps."""
    budget: list[BudgetRow]
    """Time of each of the eight classes, of `idle` and of `overlap`. The rows add up to the step's
    duration."""
    idle_by_cause: IdleByCause
    """Idle time by cause; see [idle](#idle)."""
    findings: list[Finding]
    """Lost time by class, source line and kernel: up to `--top` rows, most lost time first. The
    full duration of ops of unknown cost counts as lost. An op without a stack is assigned to its
    likely line. A line that is called from two places has two findings. If
    `totals.common_line` suggests `--mode by_scope`, findings and `lines` are also grouped by
    scope, with layers merged."""
    lines: list[LineOfFindings]
    """Sums of all findings by source line: up to `--top` rows, most lost time first. `--top` does
    not change the sums."""
    kernels_of_unknown_cost: list[UnknownKernel]
    """Time of class `kernel` by source line and kernel: up to `--top` rows, most time first."""
    tail: FindingsTail
    """Sums of the omitted findings and kernels."""
    peaks_used: PeaksUsed
    """Peak rates of the chip that ops are compared with."""


class OwnTotals(TypedDict):
    peers: PeersOfStep | None
    """Time spent waiting for late devices; null if the devices were not compared (see
    `--peers`)."""


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
