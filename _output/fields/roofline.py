"""Fields of `roofline`."""

from typing import Literal, TypedDict

from _output.fields.common import StepAnswer
from _output.fields.rows import DtypeFields, PeaksUsed, SourceKey
from _output.fields.units import (
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
    """The bytes that count: `accessed`, in all memories, or `hbm`, in HBM alone."""


class OverRoof(TypedDict):
    """Rows with a `roofline_util` above 1, which is impossible: a dtype, a peak or a flop count is
    wrong."""

    n_groups: Count
    """Rows above their roof."""
    total_dur_ps: Picoseconds
    """Their time."""
    weighted_avg_mfu_without: Fraction | None
    """Average over all other rows; null if there are none."""


class Shortfall(TypedDict):
    """A group with a large shortfall."""

    agg_key: str
    """Key of the group."""
    source_inner: str | None
    """Source line."""
    tf_op: str | None
    """Path."""
    total_dur_ps: Picoseconds
    """Time of the group."""
    shortfall_ps: Picoseconds
    """Time above the roof."""
    bound: Bound
    """The resource that limits the group: the one that needs more time at its peak."""


class StepSummary(TypedDict):
    """Averages and sums over the groups."""

    weighted_avg_mfu: Fraction | None
    """Average MFU of the groups with a verdict, weighted by time; null if there are none."""
    weighted_avg_hbm_util: Fraction | None
    """Average HBM utilization, weighted likewise."""
    weighted_avg_roofline_util: Fraction | None
    """Average roofline utilization, weighted likewise."""
    over_roof: OverRoof
    """Rows above their roof."""
    step_shortfall_ps: Picoseconds
    """Time above the roof, of all groups."""
    t_roofline_per_op_ps: Picoseconds | None
    """Sum of the groups' `t_roofline_per_op_ps`."""
    shortfall_per_op_ps: Picoseconds | None
    """Sum of the groups' `shortfall_per_op_ps`."""
    rooflined_dur_ps: Picoseconds
    """Time of groups with a verdict."""
    step_compute_dur_ps_total: Picoseconds
    """Compute time of the step."""
    rooflined_pct_of_compute: Percent | None
    """Coverage: `rooflined_dur_ps` in percent of `step_compute_dur_ps_total`."""
    skipped_pct_of_compute: Percent | None
    """The rest of the compute time, in percent."""
    top_shortfall_groups: list[Shortfall]
    """The ten largest shortfalls."""


class RooflineGroup(SourceKey, DtypeFields):
    """A group with a verdict. F is its flops, B its bytes, T its time."""

    kernel: str | None
    """Name of the kernel, for a row of a kernel with a given or declared cost."""
    cost_source: CostSource
    """Origin of flops and bytes: `user`, given by `--kernel-cost`; `xla`, the compiler;
    `declared`, the kernel's author. Declared costs of causal kernels are about twice too high."""
    hlo_categories: dict[str, Count]
    """Executions by category."""
    n_executions: Count
    """Number of executions."""
    total_dur_ps: Picoseconds
    """T: their time, without opaque executions."""
    flops_sum: Flops
    """F: flops of all executions."""
    model_flops_sum: Flops | None
    """Flops that the model asked for."""
    bytes_accessed_sum: Bytes | None
    """Bytes in all memories; null if only `hbm_bytes_sum` is known."""
    hbm_bytes_sum: Bytes | None
    """Bytes to and from HBM."""
    dtype: Dtype
    """Dtype that decides the peak: the one that takes most of the time."""
    dtype_source: DtypeSource
    """Origin of `dtype`: `program`, the wider operand of the dots (fp32 at default precision
    counts as bf16, and `pred`, a one-hot matrix, as the other operand); `output`, without a program
    or a dot and for kernels, which is wrong for kernels that work in fp8 with wider outputs;
    `user`, given by `--kernel-cost`."""
    arithmetic_intensity: FlopsPerByte | None
    """F / B; null if no byte counts."""
    ridge_point: FlopsPerByte
    """Intensity from which on the group is compute-bound."""
    bound: Bound
    """The resource that limits the group: the one that needs more time at its peak."""
    t_compute_theory_ps: Picoseconds
    """t_compute: F over the peak of the dtype."""
    t_hbm_theory_ps: Picoseconds
    """t_hbm: B over the HBM peak."""
    t_roofline_theory_ps: Picoseconds
    """t_roofline: the larger of the two."""
    t_roofline_per_op_ps: Picoseconds | None
    """Sum of each op's own roof. For ops of a dtype without a peak in the table the bytes are the
    roof; null if a peak is unknown. For a line that mixes matmuls with elementwise ops this is the
    fairer roof."""
    mfu: Fraction | None
    """t_compute / T."""
    hbm_util: Fraction | None
    """t_hbm / T."""
    roofline_util: Fraction | None
    """t_roofline / T."""
    shortfall_ps: Picoseconds
    """T - t_roofline; negative if a figure is wrong."""
    shortfall_pct: Percent | None
    """`shortfall_ps` in percent of T."""
    shortfall_per_op_ps: Picoseconds | None
    """T - `t_roofline_per_op_ps`."""
    opaque_dur_ps: Picoseconds
    """Time of the group's opaque executions, which this row leaves out."""


class RooflineTail(TypedDict):
    """The groups that the list leaves out."""

    n_groups_omitted: Count
    """Groups beyond `--top`."""
    dur_ps: Picoseconds
    """Their time."""
    shortfall_ps: Picoseconds
    """The part of it above the roof."""


class SkippedGroup(TypedDict):
    """A group without a verdict."""

    agg_key: str
    """Key of the group."""
    source_inner: str | None
    """Source line."""
    source_user: str | None
    """The user's own line."""
    tf_op: str | None
    """Path."""
    total_dur_ps: Picoseconds
    """Time of the group."""
    hbm_util: Fraction | None
    """Share of the HBM peak, if the bytes are known: a group that only lacks a flop peak may be
    close to it."""
    reason: SkipReason
    """Why there is no verdict."""
    top_signature: str
    """Signature that takes most of the time."""
    example_hlo_op: str
    """HLO text of the longest execution."""


class SkippedGroups(TypedDict):
    """The groups without a verdict."""

    n_no_flops: Count
    """Groups without flops, opaque ones included."""
    n_no_bytes: Count
    """Groups without bytes."""
    n_dtype_other: Count
    """Groups of a dtype that is not a float of the table of peaks."""
    n_peak_unknown_for_dtype: Count
    """Groups of a dtype without a known peak."""
    total_dur_ps_skipped: Picoseconds
    """Their time; with `rooflined_dur_ps` it is the compute time."""
    top_skipped: list[SkippedGroup]
    """The ten that take most time."""


class TailIfAsked(TypedDict, total=False):
    tail: RooflineTail
    """Sums of the omitted groups; only with `--top`."""


class Fields(TailIfAsked):
    chip: str
    """The chip that the peaks belong to."""
    peaks_used: RooflinePeaks
    """The peaks."""
    step_summary: StepSummary
    """Averages and sums over the groups."""
    groups: list[RooflineGroup]
    """Groups with a verdict, in order of appearance; with `--top` those with the largest
    `shortfall_ps`."""
    skipped_groups: SkippedGroups
    """Groups without a verdict."""


class Answer(StepAnswer, Fields):
    pass
