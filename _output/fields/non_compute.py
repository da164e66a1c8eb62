"""Fields of `non_compute`."""

from typing import Literal, TypedDict

from .common import Lead, StepFields, Totals
from .rows import Durations, LeftOut, LikelySource, ScopeFields, StackKey, TailIfAsked
from .units import Count, Percent, Picoseconds

MovementKind = Literal["data_move", "comm"]


class Category(Durations):
    """Data movement or waits of one category."""

    hlo_category: str
    """HLO category of the ops."""
    kind: MovementKind
    """Kind of the ops."""
    n_executions: Count
    """Number of executions."""
    n_groups: Count
    """Number of groups in this category."""
    agg_key_coverage: dict[str, Count]
    """Number of executions by kind of group key: `stack`, `tf_op` or `no_source`."""


class Movement(StackKey, ScopeFields, Durations):
    """Data movement or waits of one category and source."""

    hlo_category: str
    """HLO category of the ops."""
    kind: MovementKind
    """Kind of the group's ops."""
    likely_sources: list[LikelySource] | None
    """For a group without a stack: the source lines of the data that the group's ops move or wait
    for. The rows add up to the group's duration; if there is a rest, the last row contains it and
    has no line. Null for groups with a stack, and if the program is unknown."""
    n_executions: Count
    """Number of executions."""
    shapes_in: list[str]
    """Distinct shapes of the moved data, up to four. Example:
    `["bf16[4,2048,4,128]{3,1,2,0:T(16,128)(2,1)S(1)}", …]`"""
    shapes_out: list[str]
    """Distinct shapes of the result, up to four."""
    dtype_change: bool | None
    """True if at least one execution changes the dtype; null if no execution has both a known input
    dtype and a known output dtype, as for every `-start`."""
    dtype_change_dur_ps: Picoseconds | None
    """Total duration of the executions that change the dtype; null if `dtype_change` is null."""
    layout_change: bool | None
    """True if at least one execution changes the order of dimensions or the tiling. A move to
    another memory space is not in itself a layout change."""
    layout_change_dur_ps: Picoseconds | None
    """Total duration of the executions that change the layout; null if `layout_change` is null."""
    example_hlo_op: str
    """HLO text of the longest execution."""


class OwnTotals(TypedDict):
    non_compute_duration_ps: Picoseconds
    """Total duration of all data movement and waits; the rows of each list add up to this time."""
    non_compute_pct_of_step: Percent | None
    """`non_compute_duration_ps` as a percentage of the step's duration."""
    non_compute_pct_of_compute: Percent | None
    """`non_compute_duration_ps` as a percentage of the step's compute time; the value can exceed
    100."""
    left_out_ps: LeftOut
    """Time of ops other than math that the lists omit. `comm` is the time of communication
    other than waits (0 with `--include-comm`); with `--no-comm-stalls`, `comm` also includes the
    time of the waits."""


class NonComputeTotals(Totals, OwnTotals):
    """Sums over the step, and over the lists of this mode."""


class Fields(TailIfAsked):
    by_category: list[Category]
    """Data movement and waits by category, in order of appearance."""
    by_source_within_category: list[Movement]
    """Data movement and waits by source within each category; with `--top`, the groups that take
    the most time."""


class Returned(Fields):
    """The fields of the mode, and the mode's additions to the totals."""

    totals: OwnTotals


class WithTotals(TypedDict):
    totals: NonComputeTotals
    """Sums over the step."""


class Answer(Lead, StepFields, WithTotals, Fields):
    pass
