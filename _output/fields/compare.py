"""Fields of `compare`."""

from typing import Any, Literal, TypedDict

from .common import AbsentAnswer, Lead, OkAnswer
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
    """A step that is compared."""

    index: Count
    """Index of the step in order of time, from 0."""
    name: str | None
    """Name of the step; null if it has none."""
    duration_ps: Picoseconds
    """Duration of the step, as in [record](#record)."""


class Capture(TypedDict):
    """A capture of one side."""

    profile_dir: str
    """Path of the capture, as given on the command line."""
    xplane_file: str
    """Name of the trace file."""
    n_steps: Count
    """Number of the capture's steps that are compared."""
    step_duration_ps: Picoseconds
    """Mean duration of the steps that are compared."""


class Side(TypedDict):
    """The captures of one side. All fields except `n_steps`, `n_captures` and `captures` describe
    the first capture."""

    xplane_file: str
    """Name of the trace file."""
    host: str
    """Name of the host."""
    device: str
    """Name of the device's plane."""
    device_type: str | None
    """Type of the device, as in [record](#record)."""
    clock: Clock
    """Clock of the side's figures, as in [record](#record)."""
    program: str
    """Hash of the program, as in [record](#record)."""
    n_steps: Count
    """Number of steps that are compared, in all captures of this side."""
    steps: list[SideStep]
    """Steps of the first capture that are compared."""
    n_captures: Count
    """Number of captures of this side."""
    captures: list[Capture]
    """All captures of this side, in the order of the command line."""


class RunToRun(TypedDict):
    """Range of the captures' mean step durations on each side, as a percentage of the lower median
    of these durations."""

    before: Percent | None
    """Range over the captures before the change; null if there is only one."""
    after: Percent | None
    """Range over the captures after the change; null if there is only one."""


class ProgramChange(TypedDict):
    """A difference between the compiled programs, in one of the facts that `programs` of
    [record](#record) contains."""

    what: ProgramWhat
    """Kind of the fact; `other` if only the fingerprints differ."""
    name: str | None
    """Name of the collective, kernel, parameter or opcode; null for facts of other kinds."""
    before: dict[str, Any] | str | int | None
    """Value of the fact before the change; null if the program had no such fact."""
    after: dict[str, Any] | str | int | None
    """Value of the fact after the change; null if the program has no such fact."""


class ProgramChanges(TypedDict):
    """Changes in the compiled program."""

    same_program: bool | None
    """True if the programs of all captures have the same fingerprint, so the change did not reach
    the compiled code. Null if a record lacks its program. Also null if only the code of kernels
    differs, because this code includes source lines."""
    rows: list[ProgramChange]
    """Facts that differ between the first captures of the two sides. The facts are sorted by
    `what`, in the order of its values, then by size of the change, largest first. Empty if the
    programs are unknown."""


class Noise(TypedDict):
    """Method and sample size of the p-values."""

    method: Literal["permutation_max"]
    """Method that computes the p-values. With `permutation_max`, the p-value of a row is a fraction
    of the assignments of the samples to the two sides: those in which any row differs at least as
    much as this row."""
    noise_unit: NoiseUnit
    """Unit of the samples: `step` if each side has one capture, otherwise `capture`. A `capture`
    sample is the mean over the capture's steps."""
    covers: Literal["step_to_step", "run_to_run"]
    """Variation that the p-values account for: from step to step within a capture, or from run to
    run."""
    alpha: Fraction
    """Probability that at least one row is falsely `significant` if the sides differ only by
    chance. This probability holds for `rows`, for `by_file` and for `totals` separately."""
    n_before: Count
    """Number of samples before the change."""
    n_after: Count
    """Number of samples after the change."""
    n_tested: Count
    """Number of tested rows: rows with at least 0.1 % of the time of all rows, summed over both
    sides."""
    n_assignments: Count
    """Number of examined assignments of samples to the two sides."""
    exact: bool
    """True if all assignments were examined; otherwise a fixed sample of 5000 assignments was
    examined."""
    min_p_value: Fraction
    """Smallest p-value that is possible with this number of samples."""
    run_to_run_pct: RunToRun
    """Range of the captures' mean step durations on each side, as a percentage of the lower median
    of these durations."""
    why_not: WhyNoTest | None
    """Reason why no row is tested; null if rows are tested. With `too_few_steps` or
    `too_few_captures`, no difference can be significant, so no p-value is printed; 4 samples on
    each side are enough."""


class Delta(TypedDict):
    before_ps: Picoseconds
    """Mean time before the change."""
    after_ps: Picoseconds
    """Mean time after the change."""
    delta_ps: Picoseconds
    """`after_ps` minus `before_ps`."""


class Tested(TypedDict):
    delta_pct: Percent | None
    """`delta_ps` as a percentage of `before_ps`."""
    p_value: Fraction | None
    """Probability of an equal or larger difference if the sides differ only by chance; null for a
    row that was not tested."""
    significant: bool | None
    """True if `p_value` is at most `alpha`; null for a row that was not tested."""


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
    """Duration of the step."""
    period: Total | None
    """Time from the start of a step to the start of the next step, over all steps that have a next
    step. The p-value of the period is computed separately from the p-values of the other totals.
    Null if a side has no period, as in captures with one step and records of version 2.0."""
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
    """Totals that are significantly slower by more than the limit; if there are any, the exit
    status is 3. If the gate fails and the list is empty, no difference can be significant, and the
    exit status is 1."""
    says: str
    """Result in words: `passed`, or `failed:` and the reason."""


class FileDelta(Delta, Tested):
    """The time of a source file, before and after the change. All rows add up to the total time of
    the four kinds. If code moved to another file, the time of one row decreases and the time of
    another increases; a note reports how much time moved."""

    file: str | None
    """Name of the file after the change; null if no op has a line in this file after the change."""
    before_file: str | None
    """Name of the file before the change, matched by the longest common end of the path; null if no
    op had a line in this file before the change. In the last row, which contains lines without a
    source, both names are null."""
    n_rows: Count
    """Number of entries of `rows` whose line is in this file."""


class Unmatched(TypedDict):
    """Time of source lines that only one side has."""

    before_ps: Picoseconds
    """Time of the lines that exist only before the change (`only_before`)."""
    after_ps: Picoseconds
    """Time of the lines that exist only after the change (`only_after`)."""
    before_pct: Percent | None
    """`before_ps` as a percentage of the total time of the four kinds before the change. If
    `before_pct` or `after_pct` exceeds 5, a note points to `by_file`."""
    after_pct: Percent | None
    """`after_ps` as a percentage of the total time of the four kinds after the change."""


class MatchSum(TypedDict):
    """Sums over the rows that one rule matched."""

    n_rows: Count
    """Number of rows that this rule matched."""
    n_groups_before: Count
    """Number of groups before the change, in the rows that this rule matched."""
    n_groups_after: Count
    """Number of groups after the change, in the rows that this rule matched."""
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
    matched_by: str
    """Rule that matched the line. `same_ops`: the ops are identical. `same_key`: the keys of lines
    without a stack are equal. `same_places`: the files and columns of the stack's frames are equal,
    except for frames of files that occur on only one side. `same_scopes`: the paths in `tf_op` are
    equal, except for parts that occur on only one side. `same_places_and_scopes`: both are equal.
    `same_files_and_scopes`: the files of the frames, and the paths, are equal. `same_line`: the
    innermost frame's file and column, and the primitives, are equal. `similar_scopes`: at least
    half of the two lines' paths are equal. `only_before` and `only_after`: the line has no
    counterpart."""
    source_inner: str | None
    """Source line after the change; for a line that has none there, the source line before the
    change; null if there is neither."""
    before_source_inner: str | None
    """Source line before the change; null if there is none."""
    tf_op: str | None
    """Path of the ops; if there are several paths, the alphabetically first; null if there is no
    path."""
    n_groups_before: Count
    """Number of groups before the change; more than one if the row combines groups that look
    alike."""
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
    """Signatures of ops that no longer run, up to four."""
    signatures_new: list[str]
    """Signatures of ops that are new, up to four."""


class KindDelta(Delta):
    """Times of the omitted rows of one kind."""


class CompareTail(TypedDict):
    """Rows that `--top` omits."""

    n_rows_omitted: Count
    """Number of omitted rows."""
    by_kind: dict[str, KindDelta]
    """Time of the omitted rows by kind."""


class Fields(TypedDict):
    before: Side
    """Captures and steps of the baseline."""
    after: Side
    """Captures and steps of PROFILE."""
    same_device_type: bool
    """True if both sides have the same device type."""
    same_program: bool | None
    """Equal to `same_program` in `program_changes` if all captures have programs. Otherwise true if
    all captures ran ops with equal HLO texts, which do not include the contents of fusions."""
    program_changes: ProgramChanges
    """Changes in the compiled program."""
    noise: Noise
    """Method and sample size of the p-values."""
    totals: CompareTotals
    """Times of the step and of its parts, before and after the change."""
    by_file: list[FileDelta]
    """All source files, largest change first. Files can be compared even if their lines have no
    counterparts, for example because code was unrolled or rewritten."""
    unmatched: Unmatched
    """Time of source lines that only one side has."""
    by_match: dict[str, MatchSum]
    """Sums of rows by `matched_by`, most certain rule first."""
    rows: list[CompareRow]
    """Times of source lines before and after the change, largest change first, up to `--top`
    rows."""
    tail: CompareTail
    """Sums of the omitted rows."""


class Compared(OkAnswer):
    baseline_dir: str
    """Path of the first baseline, as given on the command line."""
    gate: Gate | None
    """The result of `--fail-over`; null without this option."""


class Returned(Compared, Fields):
    pass


class Answer(Lead, Returned):
    pass


class Absent(AbsentAnswer, total=False):
    """The object that is printed instead of an answer."""

    gate: Gate
    """The result of `--fail-over`; the gate fails if there is no answer."""

    side: Literal["baseline"]
    """Always `baseline`; printed only if the baseline could not be read."""
