"""Fields of `roofline`."""

from typing import Literal, TypedDict

from .common import Lead, StepAnswer
from .rows import ChipFields, DtypeFields, PeaksUsed, SourceKey
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
    """Bytes that are compared with the HBM peak, where `accessed` counts the bytes of all memories,
    and `hbm` counts only the bytes of HBM."""


class OverRoof(TypedDict):
    """Groups with a `roofline_util` above 1. A utilization above 1 is impossible, so a dtype, a
    peak or a flop count is wrong."""

    n_groups: Count
    """Number of groups with a `roofline_util` above 1."""
    total_dur_ps: Picoseconds
    """Total duration of the groups above their roof."""
    weighted_avg_mfu_without: Fraction | None
    """Time-weighted average MFU of all groups that are not above their roof; null without such
    groups."""


class Shortfall(TypedDict):
    """A group with a large shortfall."""

    agg_key: str
    """Key of the group."""
    source_inner: str | None
    """Source line of the group."""
    tf_op: str | None
    """Path of the group's first op."""
    total_dur_ps: Picoseconds
    """Time of the group."""
    shortfall_ps: Picoseconds
    """Time by which the group exceeds its roof."""
    bound: Bound
    """The resource that limits the group: compute or memory, whichever needs more time at the peak
    rate."""


class StepSummary(TypedDict):
    """Averages and sums over the groups."""

    weighted_avg_mfu: Fraction | None
    """Average MFU of the groups with a verdict, weighted by time; null without such groups."""
    weighted_avg_hbm_util: Fraction | None
    """Average HBM utilization of the groups with a verdict, weighted by time."""
    weighted_avg_roofline_util: Fraction | None
    """Average roofline utilization of the groups with a verdict, weighted by time."""
    over_roof: OverRoof
    """Groups above their roof."""
    step_shortfall_ps: Picoseconds
    """Time by which all groups together exceed their roofs."""
    t_roofline_per_op_ps: Picoseconds | None
    """Sum of the groups' `t_roofline_per_op_ps`."""
    shortfall_per_op_ps: Picoseconds | None
    """Sum of the groups' `shortfall_per_op_ps`."""
    rooflined_dur_ps: Picoseconds
    """Total duration of the groups with a verdict."""
    step_compute_dur_ps_total: Picoseconds
    """Compute time of the step."""
    rooflined_pct_of_compute: Percent | None
    """Coverage: `rooflined_dur_ps` as a percentage of `step_compute_dur_ps_total`."""
    skipped_pct_of_compute: Percent | None
    """Compute time of groups without a verdict, as a percentage of the step's compute time."""
    top_shortfall_groups: list[Shortfall]
    """The ten groups with the largest shortfalls."""


class RooflineGroup(SourceKey, DtypeFields):
    """A group with a verdict. F is the flops, B the bytes and T the total duration of the group."""

    kernel: str | None
    """Name of the kernel, if the group is a kernel with a given or declared cost."""
    cost_source: CostSource
    """Origin of flops and bytes, which is `user` for `--kernel-cost`, `xla` for the compiler, and
    `declared` for the kernel's author. Declared costs of causal kernels are about twice as high as
    the true costs."""
    hlo_categories: dict[str, Count]
    """Number of executions by category."""
    n_executions: Count
    """Number of executions."""
    total_dur_ps: Picoseconds
    """Total duration of the group (T), without executions of unknown cost."""
    flops_sum: Flops
    """Flops of all executions (F)."""
    flops_known_pct: Percent | None
    """Total duration of the executions with known flops, as a percentage of `total_dur_ps`; null if
    `total_dur_ps` is 0."""
    model_flops_sum: Flops | None
    """Flops that the model's code asks for; the compiler can add or remove flops."""
    bytes_accessed_sum: Bytes | None
    """Bytes read and written in all memories; null if only `hbm_bytes_sum` is known."""
    hbm_bytes_sum: Bytes | None
    """Bytes to and from HBM."""
    dtype: Dtype
    """Dtype that decides the peak: the dtype of the ops that take most of the group's time."""
    dtype_source: DtypeSource
    """Origin of `dtype`. `program` is the dtype of the wider operand of the dots in the program;
    fp32 at default precision counts as bf16, and a `pred` operand (a one-hot matrix) counts with
    the dtype of the other operand. `output` is the dtype of the output, used for kernels and if
    there is no program or no dot; for kernels that work in fp8 with wider outputs, this dtype is
    wrong. `user` is the dtype in `--kernel-cost`."""
    arithmetic_intensity: FlopsPerByte | None
    """Flops per byte of the group (F / B); null if B is zero."""
    ridge_point: FlopsPerByte
    """Flops per byte above which the group is compute-bound."""
    bound: Bound
    """The resource that limits the group: compute or memory, whichever needs more time at the peak
    rate."""
    t_compute_theory_ps: Picoseconds
    """t_compute: Flops of the group (F) divided by the peak of the dtype."""
    t_hbm_theory_ps: Picoseconds
    """t_hbm: Bytes of the group (B) divided by the HBM peak."""
    t_roofline_theory_ps: Picoseconds
    """t_roofline: the larger of t_compute and t_hbm."""
    t_roofline_per_op_ps: Picoseconds | None
    """Sum of the roofs of the single ops. An op of a dtype without a peak in the table has only a
    roof for bytes; null if a peak is unknown. For a line that mixes matmuls with elementwise ops
    this sum is fairer than `t_roofline_theory_ps`."""
    mfu: Fraction | None
    """t_compute / T."""
    hbm_util: Fraction | None
    """t_hbm / T."""
    roofline_util: Fraction | None
    """t_roofline / T."""
    shortfall_ps: Picoseconds
    """T - t_roofline; a negative value means that flops, bytes or a peak are wrong."""
    shortfall_pct: Percent | None
    """`shortfall_ps` as a percentage of `total_dur_ps`."""
    shortfall_per_op_ps: Picoseconds | None
    """T - `t_roofline_per_op_ps`."""
    opaque_dur_ps: Picoseconds
    """Total duration of the group's executions of unknown cost. The duration T does not include
    this time."""


class RooflineTail(TypedDict):
    """The groups that `--top` leaves out."""

    n_groups_omitted: Count
    """Number of omitted groups."""
    dur_ps: Picoseconds
    """Total duration of the omitted groups."""
    shortfall_ps: Picoseconds
    """Time by which the omitted groups exceed their roofs."""


class SkippedGroup(TypedDict):
    """A group without a verdict."""

    agg_key: str
    """Key of the group."""
    source_inner: str | None
    """Source line of the group."""
    source_user: str | None
    """Innermost line of the user's own code."""
    tf_op: str | None
    """Path of the group's first op."""
    total_dur_ps: Picoseconds
    """Time of the group."""
    hbm_util: Fraction | None
    """Share of the HBM peak, if the bytes are known. A group that only lacks a flop peak may run
    close to the HBM peak."""
    reason: SkipReason
    """Reason why the group has no verdict."""
    top_signature: str
    """Signature of the ops that take most of the group's time."""
    example_hlo_op: str
    """HLO text of the longest execution."""


class SkippedGroups(TypedDict):
    """Groups without a verdict."""

    n_no_flops: Count
    """Number of groups with no known flops, including groups of unknown cost."""
    n_no_bytes: Count
    """Number of groups with no known bytes."""
    n_dtype_other: Count
    """Number of groups with a dtype that is not a float in the table of peaks."""
    n_peak_unknown_for_dtype: Count
    """Number of groups with a dtype without a known peak."""
    total_dur_ps_skipped: Picoseconds
    """Total duration of the groups without a verdict. This time and `rooflined_dur_ps` add up to
    the compute time of the step."""
    top_skipped: list[SkippedGroup]
    """The ten groups without a verdict that take most time."""


class TailIfAsked(TypedDict, total=False):
    tail: RooflineTail
    """Sums of the omitted groups; only with `--top`."""


class Fields(TailIfAsked, ChipFields):
    peaks_used: RooflinePeaks
    """Peak rates of the chip."""
    step_summary: StepSummary
    """Averages and sums over the groups."""
    groups: list[RooflineGroup]
    """Groups with a verdict, in order of appearance; with `--top` the groups with the largest
    `shortfall_ps`."""
    skipped_groups: SkippedGroups
    """Groups without a verdict."""


class Answer(Lead, StepAnswer, Fields):
    pass
