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
    "similar_scopes",
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
    """Number of steps that are compared."""
    step_duration_ps: Picoseconds
    """Mean length of the steps that are compared."""


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
    """Number of captures of this side."""
    captures: list[Capture]
    """All captures of this side, as given on the command line."""


class RunToRun(TypedDict):
    """The range of the captures' mean step durations, as a percentage of the lower median of these
    durations."""

    before: Percent | None
    """Range of the captures before the change; null if there is only one."""
    after: Percent | None
    """Range of the figure over the captures after the change; null with a single capture."""


class ProgramChange(TypedDict):
    """A fact about the compiled program that differs, as in `programs` of [record](#record)."""

    what: ProgramWhat
    """Kind of the fact; `other` if only the fingerprints show the difference."""
    name: str | None
    """Name of the collective, kernel, parameter or opcode; null for facts of other kinds."""
    before: CollectiveFact | KernelFact | ParameterFact | str | int | None
    """The fact before; null if the program before lacks the fact."""
    after: CollectiveFact | KernelFact | ParameterFact | str | int | None
    """The fact after; null if the program after lacks the fact."""


class ProgramChanges(TypedDict):
    """The changes of the compiled program."""

    same_program: bool | None
    """True if the fingerprints of all captures are equal, so the change did not reach the device.
    Null if a record lacks its program, or if only the code of kernels differs, which includes
    source lines."""
    rows: list[ProgramChange]
    """Facts that differ between the first capture before and the first capture after. The facts are
    sorted by kind, in the order of the values of `what`, then by size of the change, largest first.
    Empty if nothing is known about the programs."""


class Noise(TypedDict):
    """Method and sample size of the p-values."""

    method: Literal["permutation_max"]
    """Method that computes p-values. With `permutation_max`, the p-value of a row is the share of
    all assignments of samples to the two sides in which some row differs at least as much."""
    noise_unit: NoiseUnit
    """Unit of the samples. `step` is used if each side has one capture; otherwise each `capture` is
    one sample, with the mean of its steps."""
    covers: Literal["step_to_step", "run_to_run"]
    """Variation that p-values cover: from step to step within a capture, or from run to run."""
    alpha: Fraction
    """Chance that at least one row is falsely `significant`, if the sides differ only by chance.
    The chance of a false `significant` is equal for all files together, and for all totals
    together."""
    n_before: Count
    """Number of samples before the change."""
    n_after: Count
    """Number of samples after the change."""
    n_tested: Count
    """Number of rows with at least 0.1 % of the time; smaller rows are not tested."""
    n_assignments: Count
    """Number of examined assignments of samples to the two sides."""
    exact: bool
    """True if all assignments were examined; otherwise a fixed sample of 5000 assignments was
    examined."""
    min_p_value: Fraction
    """Smallest p-value that this number of samples can give."""
    run_to_run_pct: RunToRun
    """Difference between captures of the same side."""
    why_not: WhyNoTest | None
    """Reason why no row is tested. With `too_few_steps` or `too_few_captures`, no difference can be
    significant and no p-value is given; 4 samples on each side are enough."""


class Delta(TypedDict):
    before_ps: Picoseconds
    """Mean time before the change."""
    after_ps: Picoseconds
    """Mean time after the change."""
    delta_ps: Picoseconds
    """After minus before."""


class Tested(TypedDict):
    delta_pct: Percent | None
    """`delta_ps` as a percentage of `before_ps`."""
    p_value: Fraction | None
    """Chance of an equal or larger difference, if the sides differ only by chance; null for a row
    that was not tested."""
    significant: bool | None
    """True if `p_value` is at most `alpha`."""


class Ranges(TypedDict):
    before_range_ps: list[Picoseconds]
    """Shortest and longest time of a sample before the change. Example: `[1092672370,
    1107167451]`"""
    after_range_ps: list[Picoseconds]
    """Shortest and longest time of a sample after the change."""


class Total(Delta, Tested, Ranges):
    """The time of a part of the step, before and after the change."""


class CompareTotals(TypedDict):
    """The times of the step and of its parts, before and after the change."""

    step_duration: Total
    """Length of the step."""
    period: Total | None
    """Time from the start of a step to the start of the next step, for all steps that have a next
    step. The p-value of the period is computed separately from the other totals. Null if a side has
    no period, as in captures of one step and records of version 2.0."""
    busy: Total
    """Time during which at least one op runs."""
    idle: Total
    """Time during which no op runs."""
    compute: Total
    """Time of the ops of kind compute."""
    data_move: Total
    """Time of the ops of kind data_move."""
    comm: Total
    """Time of the ops of kind comm."""
    other: Total
    """Time of the ops of kind other."""
    overlap: Total
    """`busy` minus the sum of the four kinds, including rounding errors."""
    wait: Total
    """Time during which the core waits, as `wait_ps` in [record](#record)."""


class Gate(TypedDict):
    """The result of `--fail-over`."""

    fail_over_pct: Percent
    """The limit of `--fail-over`, as given."""
    passed: bool
    """True if neither the step nor the period is significantly slower by more than the limit; then
    the exit status is 0."""
    failed_by: list[Literal["step_duration", "period"]]
    """The totals that are slower; then the exit status is 3. If the gate fails with an empty list,
    nothing can be significant, and the exit status is 1."""
    says: str
    """The result in words, which is `passed`, or `failed: …` with the reason."""


class FileDelta(Delta, Tested):
    """The time of a source file, before and after the change. All rows add up to the total time of
    the four kinds. Code that moved to another file lowers one row and raises another, and a note
    says how much moved."""

    file: str | None
    """Name of the file after the change; null if no line after the change is in the file."""
    before_file: str | None
    """Name of the file before the change, matched by the longest common end of the path; null if
    the file then has no line. In the last row, for lines without a source, both names are null."""
    n_rows: Count
    """Number of entries of `rows` with a line of the file."""


class Unmatched(TypedDict):
    """Source lines that only one side has."""

    before_ps: Picoseconds
    """Time of the lines that only the side before has (`only_before`)."""
    after_ps: Picoseconds
    """Time of the lines that only the side after has (`only_after`)."""
    before_pct: Percent | None
    """`before_ps` as a percentage of the total time of the four kinds before. If `before_pct` or
    `after_pct` exceeds 5, a note points to `by_file`."""
    after_pct: Percent | None
    """`after_ps` as a percentage of the total time of the four kinds after."""


class MatchSum(TypedDict):
    """Sums over the rows that one rule matched."""

    n_rows: Count
    """Number of rows."""
    n_groups_before: Count
    """Number of groups before in the rows that this rule matched."""
    n_groups_after: Count
    """Number of groups after in the rows that this rule matched."""
    before_ps: Picoseconds
    """Total time before the change, in the rows that this rule matched."""
    after_ps: Picoseconds
    """Total time after the change, in the rows that this rule matched."""


class CompareRow(Delta, Tested, Ranges):
    """The time of a source line, before and after the change."""

    rank: Count
    """Rank in the list, from 1."""
    kind: Kind
    """Kind of the line's ops."""
    matched_by: MatchedBy
    """Rule that matched the line. `same_ops` matches identical ops, and `same_key` matches keys of
    lines without a stack. `same_places_and_scopes`, `same_files_and_scopes`, `same_places`,
    `same_scopes` and `same_line` compare files and columns of the stack or of the stack's last
    frame, and parts of tf_op. `similar_scopes` matches lines that share at least half of the parts
    of tf_op. A line with `only_before` or `only_after` has no counterpart."""
    source_inner: str | None
    """Source line after the change."""
    before_source_inner: str | None
    """Source line before the change."""
    tf_op: str | None
    """Path of the ops; if there are several paths, the first by name."""
    n_groups_before: Count
    """Number of groups before the change; more than one if the groups cannot be distinguished."""
    n_groups_after: Count
    """Number of groups after the change."""
    agg_keys_before: list[str]
    """Keys of the row's groups before the change. Example: `["stack:73b37fcaa8454d09"]`"""
    agg_keys_after: list[str]
    """Keys of the row's groups after the change."""
    delta_pct_of_step: Percent | None
    """`delta_ps` as a percentage of the mean step duration before the change."""
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
    """The rows that `--top` leaves out."""

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
    """Equal to `same_program` in `program_changes` if both sides have programs. Otherwise true if
    both sides ran ops of equal HLO texts, which do not include the inside of fusions."""
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
    """The result of `--fail-over`; the gate fails if there is no answer."""

    side: Literal["baseline"]
    """The value is `baseline` if the baseline could not be read; otherwise the field is missing."""
