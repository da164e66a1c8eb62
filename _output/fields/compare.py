"""Fields of `compare`."""

from typing import Literal, TypedDict

from .common import AbsentAnswer, Lead, OkAnswer
from .units import Clock, Count, Executions, Fraction, Kind, Percent, Picoseconds

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


class SideStep(TypedDict):
    """A step that takes part in the comparison."""

    index: Count
    """Index of the step by time."""
    name: str | None
    """Name of the step."""
    duration_ps: Picoseconds
    """Length of the step, as in [record](#record)."""


class Side(TypedDict):
    """Trace and steps of one side of the comparison."""

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


class Noise(TypedDict):
    """Method and sample size of the p-values."""

    method: Literal["permutation_max"]
    """How p-values are computed. `permutation_max`: the share of all assignments of steps to the
    two sides in which some row differs at least as much."""
    covers: Literal["step_to_step"]
    """Variation that p-values cover: from step to step, not from run to run."""
    alpha: Fraction
    """Chance of at least one false `significant` among all rows if only steps vary. The chance of a
    false `significant` is equal for all files together, and for all totals together."""
    n_before: Count
    """Number of steps before."""
    n_after: Count
    """Number of steps after."""
    n_tested: Count
    """Number of rows with at least 0.1 % of the time; smaller rows are not tested."""
    n_assignments: Count
    """Number of examined assignments of steps to the two sides."""
    exact: bool
    """True if all assignments were examined; otherwise 5000 were drawn, always the same 5000."""
    min_p_value: Fraction
    """Smallest p-value that this number of steps can give."""
    why_not: Literal["too_few_steps"] | None
    """Reason why no row is tested. `too_few_steps`: no difference can be significant and no p-value
    is given; 4 + 4 steps are enough."""


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
    """Chance of an equal or larger difference if only steps vary; null for a row that was not
    tested."""
    significant: bool | None
    """True if `p_value` is at most `alpha`."""


class Ranges(TypedDict):
    before_range_ps: list[Picoseconds]
    """Shortest and longest time of a step before. Example: `[1092672370, 1107167451]`"""
    after_range_ps: list[Picoseconds]
    """Shortest and longest time of a step after."""


class Total(Delta, Tested, Ranges):
    """A part of the step on both sides."""


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
    """How the line was matched: `same_ops`, by identical ops; `same_key`, by key, for lines without
    a stack; `same_places_and_scopes`, `same_files_and_scopes`, `same_places`, `same_scopes`,
    `same_line`, by files and columns of the stack or of its last frame, and by parts of tf_op;
    `only_before` or `only_after`, no counterpart."""
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
    """Mean number of executions in a step before."""
    n_executions_after: Executions
    """Mean number of executions in a step after."""
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
    same_program: bool
    """True if both sides ran ops with equal HLO texts. HLO texts do not include the inside of
    fusions."""
    noise: Noise
    """Method and sample size of the p-values."""
    totals: dict[str, Total]
    """Parts of the step: `step_duration`, `busy`, `idle`, the four kinds, `overlap` (with rounding
    errors) and `wait`."""
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
    """The baseline as given on the command line."""


class Returned(Compared, Fields):
    pass


class Answer(Lead, Returned):
    pass


class Absent(AbsentAnswer, total=False):
    """The object that is printed if there is no answer."""

    side: Literal["baseline"]
    """`baseline` if the baseline could not be read."""
