"""Fields of `roofline`."""

from typing import Literal, TypedDict

from .common import Lead, StepAnswer
from .rows import ChipFields, DtypeFields, PeaksUsed, ScopeFields, SourceKey
from .units import (
    Bound,
    Bytes,
    CostSource,
    Count,
    Dtype,
    DtypeSource,
    Flops,
    FlopsPerByte,
    Fraction,
    Percent,
    Picoseconds,
)

SkipReason = Literal["opaque", "no_flops", "no_bytes", "dtype_other", "peak_unknown_for_dtype"]


class RooflinePeaks(PeaksUsed):
    """Peak rates, and the bytes that are compared with the HBM peak."""

    bytes: Literal["accessed", "hbm"]
    """Bytes that are compared with the HBM peak, where `accessed` means the bytes of all memories,
    and `hbm` means only the bytes of HBM."""


class OverRoof(TypedDict):
    """Groups with a `roofline_util` above 1. A utilization above 1 is impossible, so a dtype, a
    peak or a flop count is wrong."""

    n_groups: Count
    """Number of groups with a `roofline_util` above 1."""
    total_dur_ps: Picoseconds
    """Total duration of the groups with a `roofline_util` above 1."""
    weighted_avg_mfu_without: Fraction | None
    """Time-weighted average MFU of the groups with a `roofline_util` of at most 1; null if there
    are none."""


class Shortfall(TypedDict):
    """A group with a large shortfall."""

    agg_key: str
    """Key of the group."""
    source_inner: str | None
    """Source line of the group; null if unknown."""
    tf_op: str | None
    """Path of the group's first op; null if it has none."""
    total_dur_ps: Picoseconds
    """Total duration of the group."""
    shortfall_ps: Picoseconds
    """Shortfall of the group: its total duration minus t_roofline."""
    bound: Bound
    """Resource that limits the group: compute or memory, whichever needs more time at its peak
    rate."""


class PerOp(TypedDict):
    """The ops of a group, each compared with its own roof, as in `bottleneck` and `by_op`."""

    t_roofline_per_op_ps: Picoseconds | None
    """Time that the ops with a known roof would take at it, at most their duration; null if all
    roofs are unknown. The roof of an op is the longer of the times for its flops and for its bytes
    in HBM; if one of these is unknown, it is the other. With or without a verdict of the group,
    this is the sum of `at_roof_ps` in `by_op`."""
    shortfall_per_op_ps: Picoseconds | None
    """Duration of the ops with a known roof minus `t_roofline_per_op_ps`, which is the sum of
    `lost_ps` in `by_op`; null if all roofs are unknown."""


class StepSummary(PerOp):
    """Averages and sums over the groups with a verdict. The times per op are of all groups."""

    weighted_avg_mfu: Fraction | None
    """Time-weighted average MFU of the groups with a verdict; null if there are none."""
    weighted_avg_hbm_util: Fraction | None
    """Time-weighted average HBM utilization of the groups with a verdict; null if there are
    none."""
    weighted_avg_roofline_util: Fraction | None
    """Time-weighted average roofline utilization of the groups with a verdict; null if there are
    none."""
    over_roof: OverRoof
    """Groups with a `roofline_util` above 1."""
    step_shortfall_ps: Picoseconds
    """Sum of the groups' `shortfall_ps`."""
    without_roof_ps: Picoseconds
    """Compute time of ops whose roof is unknown, because both flops and bytes are unknown or zero,
    or lack a peak."""
    rooflined_dur_ps: Picoseconds
    """Total duration of the groups with a verdict."""
    step_compute_dur_ps_total: Picoseconds
    """Compute time of the step."""
    rooflined_pct_of_compute: Percent | None
    """Coverage: `rooflined_dur_ps` as a percentage of `step_compute_dur_ps_total`."""
    skipped_pct_of_compute: Percent | None
    """Total duration of the groups without a verdict, as a percentage of
    `step_compute_dur_ps_total`."""
    top_shortfall_groups: list[Shortfall]
    """The ten groups with the largest shortfalls."""


class RooflineGroup(SourceKey, ScopeFields, DtypeFields, PerOp):
    """A group with a verdict. F stands for the flops, B for the bytes and T for the total duration
    of the group."""

    kernel: str | None
    """Name of the kernel, if the group is a kernel whose cost is declared or set by
    `--kernel-cost`; null for other groups."""
    cost_source: CostSource
    """Origin of flops and bytes: `user` for `--kernel-cost`, `xla` for the compiler, and `declared`
    for the kernel's author. Declared costs of causal kernels are about twice as high as the actual
    costs."""
    hlo_categories: dict[str, Count]
    """Number of executions by category."""
    n_executions: Count
    """Number of executions."""
    total_dur_ps: Picoseconds
    """Total duration of the group (T), excluding executions of unknown cost."""
    flops_sum: Flops
    """Flops of all executions (F)."""
    flops_known_pct: Percent | None
    """Total duration of the executions with known flops, as a percentage of `total_dur_ps`; null if
    `total_dur_ps` is 0."""
    model_flops_sum: Flops | None
    """Flops of all executions that the model's code requires; the compiler can add or remove flops.
    Null if unknown."""
    bytes_accessed_sum: Bytes | None
    """Bytes that all executions read and write in all memories; null if only `hbm_bytes_sum` is
    known."""
    hbm_bytes_sum: Bytes | None
    """Bytes that all executions move to and from HBM; null if unknown for any op that reads or
    writes memory."""
    dtype: Dtype
    """Dtype that decides which peak applies: the dtype that takes the most time in the group."""
    dtype_source: DtypeSource
    """Origin of `dtype`. `program`: the dtype of the wider operand of the dots in the program. An
    fp32 operand at default precision counts as bf16, and a `pred` operand (a one-hot matrix) counts
    as the dtype of the other operand. `output`: the dtype of the output, used for kernels and if
    there is no program or no dot. This dtype is wrong for kernels that compute in fp8 and have
    wider outputs. `user`: the dtype in `--kernel-cost`."""
    arithmetic_intensity: FlopsPerByte | None
    """Flops per byte of the group (F / B); null if B is zero."""
    ridge_point: FlopsPerByte
    """Flops per byte above which the group is compute-bound."""
    bound: Bound
    """Resource that limits the group: compute or memory, whichever needs more time at its peak
    rate."""
    t_compute_theory_ps: Picoseconds
    """t_compute: flops of the group (F) divided by the peak of the dtype."""
    t_hbm_theory_ps: Picoseconds
    """t_hbm = B / H: the group's bytes divided by the HBM peak."""
    t_roofline_theory_ps: Picoseconds
    """t_roofline: the larger of t_compute and t_hbm."""
    mfu: Fraction | None
    """Model flops utilization: t_compute / T; null if T is 0."""
    hbm_util: Fraction | None
    """HBM utilization: t_hbm / T; null if T is 0."""
    roofline_util: Fraction | None
    """Roofline utilization: t_roofline / T; null if T is 0."""
    shortfall_ps: Picoseconds
    """Shortfall of the group: T - t_roofline. A negative value means that flops, bytes or a peak
    are wrong."""
    shortfall_pct: Percent | None
    """`shortfall_ps` as a percentage of `total_dur_ps`."""
    opaque_dur_ps: Picoseconds
    """Total duration of the group's executions of unknown cost; T excludes this time."""


class RooflineTail(TypedDict):
    """Groups that `--top` omits."""

    n_groups_omitted: Count
    """Number of omitted groups."""
    dur_ps: Picoseconds
    """Total duration of the omitted groups."""
    shortfall_ps: Picoseconds
    """Sum of `shortfall_ps` of the omitted groups."""


class SkippedGroup(PerOp):
    """A group without a verdict on its sums of flops and bytes. Its ops can have known roofs."""

    agg_key: str
    """Key of the group."""
    source_inner: str | None
    """Source line of the group; null if unknown."""
    source_user: str | None
    """Innermost line of the user's own code; null if there is none."""
    tf_op: str | None
    """Path of the group's first op; null if it has none."""
    total_dur_ps: Picoseconds
    """Total duration of the group."""
    hbm_util: Fraction | None
    """HBM utilization; null if the bytes are unknown. If the group has no verdict only because a
    peak is unknown, it may run close to the HBM peak."""
    reason: SkipReason
    """Reason why the group has no verdict."""
    top_signature: str
    """The signature that takes the most time in the group."""
    example_hlo_op: str
    """HLO text of the longest execution."""


class SkippedGroups(TypedDict):
    """Groups without a verdict."""

    n_no_flops: Count
    """Number of groups whose flops are zero or unknown, including groups of unknown cost."""
    n_no_bytes: Count
    """Number of groups whose bytes are unknown or, without `--bytes hbm`, zero."""
    n_dtype_other: Count
    """Number of groups whose dtype is not one of the floats in the table of peaks."""
    n_peak_unknown_for_dtype: Count
    """Number of groups whose dtype has no known peak."""
    total_dur_ps_skipped: Picoseconds
    """Total duration of the groups without a verdict. This time and `rooflined_dur_ps` add up to
    `step_compute_dur_ps_total`."""
    top_skipped: list[SkippedGroup]
    """The ten groups without a verdict that take the most time."""


class RooflineTailIfAsked(TypedDict, total=False):
    tail: RooflineTail
    """Sums of the omitted groups; printed only with `--top`."""


class Fields(RooflineTailIfAsked, ChipFields):
    peaks_used: RooflinePeaks
    """Peak rates of the chip that groups are compared with."""
    step_summary: StepSummary
    """Averages and sums over the groups."""
    groups: list[RooflineGroup]
    """Groups with a verdict, in order of appearance; with `--top`, the groups with the largest
    `shortfall_ps`."""
    skipped_groups: SkippedGroups
    """Groups without a verdict."""


class Answer(Lead, StepAnswer, Fields):
    pass
