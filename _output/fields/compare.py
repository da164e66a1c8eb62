"""Fields of `compare`."""

from typing import Literal, TypedDict

from .common import AbsentAnswer, Lead, OkAnswer
from .record import CollectiveFact, KernelFact, ParameterFact
from .units import (
    Clock,
    Count,
    Executions,
    Fraction,
    Kind,
    NoiseUnit,
    Percent,
    Picoseconds,
)

MatchedBy = Literal[
    "same_ops",
    "same_key",
    "same_places_and_scopes",
    "same_files_and_scopes",
    "same_places",
    "same_scopes",
    "same_line",
    "only_before",
    "only_after",
]


WhyNoTest = Literal["too_few_steps", "too_few_captures"]


ProgramWhat = Literal[
    "collective",
    "kernel",
    "kernel_code",
    "parameter",
    "donation",
    "memory",
    "opcode",
    "fusion",
    "other",
]


class SideStep(TypedDict):
    """A step that takes part in the comparison."""

    index: Count
    """Index of the step by time."""
    name: str | None
    """Name of the step."""
    duration_ps: Picoseconds
    """Length of the step, as in [record](#record)."""


class Capture(TypedDict):
    """A capture of one side."""

    profile_dir: str
    """The capture as given on the command line."""
    xplane_file: str
    """Name of the trace file."""
    n_steps: Count
    """Steps that are compared."""
    step_duration_ps: Picoseconds
    """Mean length of these steps."""


class Side(TypedDict):
    """Captures of one side; all fields but the last two are about the first capture."""

    xplane_file: str
    """Name of the trace file."""
    host: str
    """Name of the host."""
    device: str
    """Name of the device's plane."""
    device_type: str | None
    """Type of the device."""
    clock: Clock
    """Clock of the side's figures, as in [record](#record)."""
    program: str
    """Hash of the program, as in [record](#record)."""
    n_steps: Count
    """Number of steps that are compared."""
    steps: list[SideStep]
    """Steps of the side that are compared."""
    n_captures: Count
    """Captures of this side."""
    captures: list[Capture]
    """All captures of this side, as given."""


class RunToRun(TypedDict):
    """The range of the captures' mean step durations, in percent of their lower median."""

    before: Percent | None
    """Range before; null with one capture."""
    after: Percent | None
    """Range after; null with one capture."""


class ProgramChange(TypedDict):
    """A fact about the compiled program that differs, as in `programs` of [record](#record)."""

    what: ProgramWhat
    """The kind of fact; `other`: only the fingerprints show the difference."""
    name: str | None
    """Collective, kernel, parameter or opcode; null for other kinds."""
    before: CollectiveFact | KernelFact | ParameterFact | str | int | None
    """The fact before; null if the program lacked it."""
    after: CollectiveFact | KernelFact | ParameterFact | str | int | None
    """The fact after; null if the program lacks it."""


class ProgramChanges(TypedDict):
    """The changes of the compiled program."""

    same_program: bool | None
    """True if the fingerprints of all captures are equal: the change did not reach the device. Null
    if a record lacks its program, or if only the code of kernels differs, which includes source
    lines."""
    rows: list[ProgramChange]
    """The facts that differ between the first captures, by kind in the order of `what`, the largest
    change first. Empty if nothing is known."""


class Noise(TypedDict):
    """Method and sample size of the p-values."""

    method: Literal["permutation_max"]
    """Method that computes p-values. `permutation_max`: the share of all assignments of samples to
    the two sides in which some row differs at least as much."""
    noise_unit: NoiseUnit
    """The samples: `step` if each side has one capture, else `capture`, which counts with the mean
    of its steps."""
    covers: Literal["step_to_step", "run_to_run"]
    """Variation that p-values cover: from step to step within a capture, or from run to run."""
    alpha: Fraction
    """Chance of at least one false `significant` among all rows if only samples vary. The chance of
    a false `significant` is equal for all files together, and for all totals together."""
    n_before: Count
    """Number of samples before."""
    n_after: Count
    """Number of samples after."""
    n_tested: Count
    """Number of rows with at least 0.1 % of the time; smaller rows are not tested."""
    n_assignments: Count
    """Number of examined assignments of samples to the two sides."""
    exact: bool
    """True if all assignments were examined; otherwise 5000 were drawn, always the same 5000."""
    min_p_value: Fraction
    """Smallest p-value that this number of samples can give."""
    run_to_run_pct: RunToRun
    """Difference between captures of the same side."""
    why_not: WhyNoTest | None
    """Reason why no row is tested. `too_few_steps`, `too_few_captures`: no difference can be
    significant and no p-value is given; 4 + 4 are enough."""


class Delta(TypedDict):
    before_ps: Picoseconds
    """Mean time of a step before."""
    after_ps: Picoseconds
    """Mean time of a step after."""
    delta_ps: Picoseconds
    """After minus before."""


class Tested(TypedDict):
    delta_pct: Percent | None
    """`delta_ps` in percent of `before_ps`."""
    p_value: Fraction | None
    """Chance of an equal or larger difference if only samples vary; null for a row that was not
    tested."""
    significant: bool | None
    """True if `p_value` is at most `alpha`."""


class Ranges(TypedDict):
    before_range_ps: list[Picoseconds]
    """Shortest and longest time of a sample before. Example: `[1092672370, 1107167451]`"""
    after_range_ps: list[Picoseconds]
    """Shortest and longest time of a sample after."""


class Total(Delta, Tested, Ranges):
    """A part of the step on both sides."""


class CompareTotals(TypedDict):
    """The step and its parts on both sides."""

    step_duration: Total
    """Length of the step."""
    period: Total | None
    """Time from the start of a step to the start of the next, of the steps that have a next one.
    Its p-value is separate from the other totals. Null if a side does not have it: captures of one
    step, and records of version 2.0."""
    busy: Total
    """Time in which some op runs."""
    idle: Total
    """The rest of the step."""
    compute: Total
    """Ops of this kind."""
    data_move: Total
    """Ops of this kind."""
    comm: Total
    """Ops of this kind."""
    other: Total
    """Ops of this kind."""
    overlap: Total
    """`busy` less the four kinds, with rounding errors."""
    wait: Total
    """As `wait_ps` of [record](#record)."""


class Gate(TypedDict):
    """The result of `--fail-over`."""

    fail_over_pct: Percent
    """The limit as given."""
    passed: bool
    """True if exit status is 0: no figure is significantly slower by more than the limit."""
    failed_by: list[Literal["step_duration", "period"]]
    """The totals that are slower: exit status 3. Empty and not passed: nothing can be significant,
    exit status 1."""
    says: str
    """The result in words: `passed`, or `failed: …` with the reason."""


class FileDelta(Delta, Tested):
    """A source file on both sides. All rows add up to the four kinds. Code that moved to another
    file lowers one row and raises another, and a note says how much moved."""

    file: str | None
    """Name of the file after; null if no line after is in the file."""
    before_file: str | None
    """Name of the file before, matched by the longest common end of the path; null if no line
    before is in the file. In the last row, for lines without a source, both names are null."""
    n_rows: Count
    """Number of entries of `rows` with a line of the file."""


class Unmatched(TypedDict):
    """Source lines that only one side has."""

    before_ps: Picoseconds
    """Time of the lines with `only_before`."""
    after_ps: Picoseconds
    """Time of the lines with `only_after`."""
    before_pct: Percent | None
    """`before_ps` in percent of the four kinds before. If either percentage exceeds 5, a note
    points to `by_file`."""
    after_pct: Percent | None
    """`after_ps` in percent of the four kinds after."""


class MatchSum(TypedDict):
    """The rows that were matched in one way."""

    n_rows: Count
    """Number of rows."""
    n_groups_before: Count
    """Number of groups before in the rows that were matched in this way."""
    n_groups_after: Count
    """Number of groups after in the rows that were matched in this way."""
    before_ps: Picoseconds
    """Time before of the rows that were matched in this way."""
    after_ps: Picoseconds
    """Time after of the rows that were matched in this way."""


class CompareRow(Delta, Tested, Ranges):
    """A source line on both sides."""

    rank: Count
    """Place in the list, from 1."""
    kind: Kind
    """Kind of the line's ops."""
    matched_by: MatchedBy
    """Rule that matched the line: `same_ops`, by identical ops; `same_key`, by key, for lines
    without a stack; `same_places_and_scopes`, `same_files_and_scopes`, `same_places`,
    `same_scopes`, `same_line`, by files and columns of the stack or of its last frame, and by parts
    of tf_op; `only_before` or `only_after`, no counterpart."""
    source_inner: str | None
    """Source line after."""
    before_source_inner: str | None
    """Source line before."""
    tf_op: str | None
    """Path of the ops; of several paths the first by name."""
    n_groups_before: Count
    """Number of groups before; more than one if groups look alike and cannot be told apart."""
    n_groups_after: Count
    """Number of groups after."""
    agg_keys_before: list[str]
    """Keys of the row's groups before. Example: `["stack:73b37fcaa8454d09"]`"""
    agg_keys_after: list[str]
    """Keys of the row's groups after."""
    delta_pct_of_step: Percent | None
    """`delta_ps` in percent of the mean step duration before."""
    n_executions_before: Executions
    """Mean number of executions per step before the change."""
    n_executions_after: Executions
    """Mean number of executions per step after the change."""
    signatures_gone: list[str]
    """Signatures of ops that no longer run, at most four."""
    signatures_new: list[str]
    """Signatures of ops that are new, at most four."""


class KindDelta(Delta):
    """The omitted rows of one kind."""


class CompareTail(TypedDict):
    """The rows beyond `--top`."""

    n_rows_omitted: Count
    """Number of omitted rows."""
    by_kind: dict[str, KindDelta]
    """Time of the omitted rows by kind."""


class Fields(TypedDict):
    before: Side
    """The trace and the steps of the baseline."""
    after: Side
    """The trace and the steps of PROFILE."""
    same_device_type: bool
    """True if both sides have the same type of device."""
    same_program: bool | None
    """As in `program_changes` if both sides have programs. Otherwise true if both sides ran ops of
    equal HLO texts. HLO texts do not include the inside of fusions."""
    program_changes: ProgramChanges
    """The changes of the compiled program."""
    noise: Noise
    """Method and sample size of the p-values."""
    totals: CompareTotals
    """The step and its parts."""
    by_file: list[FileDelta]
    """All source files, the largest change first. Files match even where lines have no counterpart,
    for example in code that was unrolled or rewritten."""
    unmatched: Unmatched
    """Source lines that only one side has."""
    by_match: dict[str, MatchSum]
    """Sums of rows by `matched_by`, the most certain match first."""
    rows: list[CompareRow]
    """Source lines, the largest change first, at most `--top`."""
    tail: CompareTail
    """Sums of the omitted rows."""


class Compared(OkAnswer):
    baseline_dir: str
    """The first baseline as given on the command line."""
    gate: Gate | None
    """The result of `--fail-over`; null without this option."""


class Returned(Compared, Fields):
    pass


class Answer(Lead, Returned):
    pass


class Absent(AbsentAnswer, total=False):
    """The object that is printed if there is no answer."""

    gate: Gate
    """The result of `--fail-over`, which fails without an answer."""

    side: Literal["baseline"]
    """`baseline` if the baseline could not be read."""
