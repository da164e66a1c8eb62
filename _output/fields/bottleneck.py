"""Fields of `bottleneck`."""

from typing import Literal, TypedDict

from _output.fields.common import StepAnswer
from _output.fields.rows import IdleByCause, Line, PeaksUsed
from _output.fields.units import (
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
    """The least time that the chip needs for the step."""

    at_roof_ps: Picoseconds
    """Time that the chip needs at least, declared costs included."""
    unknown_ps: Picoseconds
    """Time of `kernel` and `unjudged`, and the time above roofs that are made of one part only
    because the other is unknown. The latter is also part of `lost_ps`."""
    pct_at_least: Percent | None
    """Time at the roof in percent of the step, without roofs that rest on declared costs and
    without ops that are over their roof."""
    pct_at_most: Percent | None
    """Time at the roof in percent of the step if everything unknown were at its roof and the
    declared costs were true."""


class OverRoof(TypedDict):
    """Ops that are faster than their roof by more than 1 %, which is impossible: a count of flops
    or bytes (often of slices that are updated in place), a dtype or a peak is wrong."""

    n_ops: Count
    """Different ops. They stay in the budget, at their roof."""
    dur_ps: Picoseconds
    """Their time."""


class Capture(TypedDict):
    """Hosts, devices and steps that the capture has."""

    hosts: list[str]
    """Hosts, as `--host` accepts them. Example: `["t1v-n-0"]`"""
    devices: list[str]
    """Devices of this file, as `--device` accepts them."""
    n_steps: Count
    """Steps of this device."""


BudgetClassed = TypedDict("BudgetClassed", {"class": BudgetClass})
"""One of the eight classes above; `idle` when no leaf op runs; `overlap` for the busy time minus
all durations, which is 0 or negative if ops overlap or outlast the step."""


class BudgetRow(BudgetClassed):
    """The time of one class. All rows add up to the step."""

    dur_ps: Picoseconds
    """Time of the class."""
    pct_of_step: Percent | None
    """Time in percent of the step."""
    at_roof_ps: Picoseconds | None
    """Time that the chip needs at least; null if unknown."""
    lost_ps: Picoseconds | None
    """Time beyond `at_roof_ps`; null if unknown."""
    hideable_ps: Picoseconds | None
    """For `collective`, `host` and `data_movement`: the most that overlapping with math can save,
    which is their time, but no more than the step's math takes. To save more of `lost_ps`, move
    fewer bytes or overlap with the next step's math. Null for other classes."""
    n_executions: Count | None
    """Executions; null for `idle` and `overlap`."""


FindingClassed = TypedDict("FindingClassed", {"class": OpClass})
"""The class of its ops; see the table of classes."""


class Finding(FindingClassed, Line):
    """The time that one line loses in one class."""

    rank: Count
    """Place in the list, from 1."""
    agg_key: str
    """Key of the group, or of the first op."""
    tf_op: str | None
    """Path of the first op; the last 200 characters."""
    kernel: str | None
    """Name of the kernel, in class `kernel` and if its cost is given or declared."""
    dur_ps: Picoseconds
    """Time of the line in this class."""
    pct_of_step: Percent | None
    """Time in percent of the step."""
    at_roof_ps: Picoseconds | None
    """Time that the chip needs at least; null if unknown."""
    lost_ps: Picoseconds | None
    """Time beyond `at_roof_ps`; null if unknown."""
    hideable_ps: Picoseconds | None
    """As in `budget`, for this line alone. Lines share the math that could hide them, so do not add
    these up."""
    n_executions: Count
    """Number of executions."""
    phases: dict[str, Picoseconds]
    """Time by phase. Example: `{"forward": 2263430715, "recompute": 2272238509}`"""
    waits_for: dict[str, Picoseconds] | None
    """Time by what the core waits for, as in `comm_rollup` of summary; empty if there are only
    starts. Null in classes other than `collective` and `host`.
    Example: `{"all-gather": 83870, …, "all-to-all": 1526751862, …}`"""
    top_signature: str
    """Signature that takes most of the time. Example: `all-to-all [all-to-all]`"""


CauseName = Literal[
    "collective_in_loop",
    "large_intermediate",
    "layout_change",
    "not_donated",
    "one_hot_matmul",
    "recompute",
    "recomputed_repeatedly",
    "resharding",
    "synchronous_collective",
    "widened_dtype",
]


Confidence = Literal["seen", "likely"]


class TimeOfDepth(TypedDict):
    """Recomputed work by how many checkpoints are around it."""

    depth: Count
    """Number of checkpoints around the ops."""
    dur_ps: Picoseconds
    """Their time."""


class CauseEvidence(TypedDict):
    """The executions and figures that show a cause."""

    ops: list[str]
    """The ops that take most of the time, at most ten names. Example: `["flash_attention.3", …]`"""
    n_ops: Count
    """Number of ops."""
    n_executions: Count
    """Their executions."""
    dur_ps: Picoseconds
    """Their time."""
    shape: str | None
    """The array that is widened, copied, multiplied or written; null for other causes."""
    collective: str | None
    """The collective; null if there are several kinds and for other causes."""
    n_participants: Count | None
    """Devices in each group of the collectives of `resharding`; null for other causes and if
    unknown."""
    trips: Count | None
    """Rounds of the loop of `collective_in_loop`; null for other causes."""
    by_depth: list[TimeOfDepth] | None
    """For `recompute` and `recomputed_repeatedly`; null for other causes."""


class Cause(TypedDict):
    """A pattern in the program that costs time. It is seen in the program itself, never inferred
    from a share of the time. Causes can overlap, so do not add up their gains."""

    rank: Count
    """Place in the list, from 1: most gain first, then recomputation, then causes that cost only
    memory."""
    cause: CauseName
    """Which pattern; see the table of causes."""
    gain_ps: Picoseconds
    """Time that would be saved at most without the cause, computed from the executions in
    `evidence` alone."""
    gain_pct_of_step: Percent
    """`gain_ps` in percent of the step."""
    unknown_ps: Picoseconds | None
    """Time of kernels that the cause slows by an unknown amount; null if there are none."""
    gain_bytes: Bytes | None
    """HBM that would be freed on each device; null for causes that cost time."""
    source_inner: str | None
    """The innermost line, which can be a library's; null if unknown."""
    source_user: str | None
    """The line of your code to change; null if unknown."""
    scope: str | None
    """Scope of the line, as in [by_scope](#by_scope); null if unknown."""
    says: str
    """One or two sentences: the pattern that was seen and its cost."""
    what_helps: str
    """The change to make."""
    evidence: CauseEvidence
    """The executions and figures that show it."""
    confidence: Confidence
    """`seen` if the pattern is unambiguous, `likely` if there can be another explanation."""


class FindingsTail(TypedDict):
    """The findings that the list leaves out."""

    n_findings_omitted: Count
    """Findings beyond `--top`."""
    dur_ps: Picoseconds
    """Their time."""
    lost_ps: Picoseconds
    """The part of it that is known to be lost."""


class Fields(TypedDict):
    causes: list[Cause]
    """Why time is lost: patterns in the program that gain at least 0.5 % of the step, or memory.
    Most patterns need the program in the capture; a note says so if it is missing."""
    bottleneck: Bottleneck
    """The class with the most lost time (`kernel` and `unjudged` compete with all their time),
    `idle` for idle time, or `at_roof` for time at the roof."""
    speed_of_light: SpeedOfLight
    """The least time that the chip needs for the step."""
    mfu_at_least: Fraction | None
    """Lower bound of the MFU: time that the matrix units need for the known flops at the peak, over
    the step. Recomputation, declared costs and ops over their roof are left out. Null if the step
    has no length."""
    hfu_at_least: Fraction | None
    """Like `mfu_at_least`, with recomputation."""
    mfu: Fraction | None
    """Useful flops over the bf16 peak times the step. The flops come from `--model-flops`, or from
    `--tokens` with `--flops-per-token` or `--params`; null without them. With megacore
    (`has_megacore` of the plane is 1) the peak is that of both cores."""
    tokens_per_s: TokensPerSecond | None
    """`--tokens` over the duration of the step; null without the option."""
    over_roof: OverRoof
    """Ops that are faster than their roof, which the lower bounds leave out. A note names their
    lines."""
    capture: Capture
    """Hosts, devices and steps that the capture has."""
    budget: list[BudgetRow]
    """Time by class: the eight classes, `idle` and `overlap`. Adds up to the step."""
    idle_by_cause: IdleByCause
    """Idle time by cause; see [idle](#idle)."""
    recompute_dur_ps: Picoseconds
    """Compute time of phase `recompute`. It is part of the budget's classes, not a class itself."""
    recompute_pct_of_step: Percent | None
    """`recompute_dur_ps` in percent of the step."""
    findings: list[Finding]
    """Lost time by class and line (and kernel), at most `--top` rows: most lost time first, for
    unknown costs most time. Ops without a stack go by their likely line. A line that is called from
    two places has two findings."""
    tail: FindingsTail
    """Sums of the omitted findings."""
    chip: str
    """The chip whose peaks are used."""
    peaks_used: PeaksUsed
    """The peaks."""


class Answer(StepAnswer, Fields):
    pass
