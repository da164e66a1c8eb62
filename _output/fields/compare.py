"""Fields of `compare`."""

from typing import Literal, TypedDict

from _output.fields.common import AbsentAnswer, Lead, OkAnswer
from _output.fields.units import Clock, Count, Executions, Fraction, Kind, Percent, Picoseconds

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
    """A step that is compared."""

    index: Count
    """Index by time."""
    name: str | None
    """Name of the step."""
    duration_ps: Picoseconds
    """Length, as in [record](#record)."""


class Side(TypedDict):
    """The trace and the steps of one side."""

    xplane_file: str
    """Name of the trace file."""
    host: str
    """Name of the host."""
    device: str
    """Name of the device's plane."""
    device_type: str | None
    """Type of the device."""
    clock: Clock
    """Clock of the figures, as in [record](#record)."""
    program: str
    """Hash of the program, as in [record](#record)."""
    n_steps: Count
    """Steps that are compared."""
    steps: list[SideStep]
    """These steps."""


class Noise(TypedDict):
    """The method by which p-values are computed, and its sample."""

    method: Literal["permutation_max"]
    """Share of all assignments of the steps to the two sides in which some row differs as much."""
    covers: Literal["step_to_step"]
    """Which variation is covered: from step to step, not from run to run."""
    alpha: Fraction
    """Chance of even one false `significant` among all rows, again among all files, and again among
    all totals, if only steps vary."""
    n_before: Count
    """Steps before."""
    n_after: Count
    """Steps after."""
    n_tested: Count
    """Rows with at least 0.1 % of the time; the others are not tested."""
    n_assignments: Count
    """Assignments of steps to sides that were examined."""
    exact: bool
    """True if these are all assignments; otherwise 5000 were drawn, always the same."""
    min_p_value: Fraction
    """Smallest p-value that so many steps can give."""
    why_not: Literal["too_few_steps"] | None
    """`too_few_steps`: nothing can be significant and no p-value is given; 4 + 4 steps are
    enough."""


class Delta(TypedDict):
    before_ps: Picoseconds
    """Mean time before."""
    after_ps: Picoseconds
    """Mean time after."""
    delta_ps: Picoseconds
    """After minus before."""


class Tested(TypedDict):
    delta_pct: Percent | None
    """`delta_ps` in percent of before."""
    p_value: Fraction | None
    """Chance of such a difference if only steps vary; null if it was not tested."""
    significant: bool | None
    """True if `p_value` is at most `alpha`."""


class Ranges(TypedDict):
    before_range_ps: list[Picoseconds]
    """Least and most time of the steps before. Example: `[1092672370, 1107167451]`"""
    after_range_ps: list[Picoseconds]
    """Least and most time of the steps after."""


class Total(Delta, Tested, Ranges):
    """A part of the step on both sides."""


class FileDelta(Delta, Tested):
    """A source file on both sides. All rows add up to the four kinds; code that moved to another
    file is a fall and a rise, and a note says how much moved."""

    file: str | None
    """File of `source_inner` after; null if no line after is in it."""
    before_file: str | None
    """Name of the file before, by the longest common end of the path; null if no line before is in
    it. Both are null for lines without a source, in the last row."""
    n_rows: Count
    """Rows that hold a line of the file."""


class Unmatched(TypedDict):
    """The lines that only one side has."""

    before_ps: Picoseconds
    """Time of `only_before`."""
    after_ps: Picoseconds
    """Time of `only_after`."""
    before_pct: Percent | None
    """In percent of the four kinds before. Beyond 5 on either side a note points to `by_file`."""
    after_pct: Percent | None
    """In percent of the four kinds after."""


class MatchSum(TypedDict):
    """The rows that were matched in one way."""

    n_rows: Count
    """Rows."""
    n_groups_before: Count
    """Their groups before."""
    n_groups_after: Count
    """Their groups after."""
    before_ps: Picoseconds
    """Their time before."""
    after_ps: Picoseconds
    """Their time after."""


class CompareRow(Delta, Tested, Ranges):
    """A source line on both sides."""

    rank: Count
    """Place in the list, from 1."""
    kind: Kind
    """Kind of its ops."""
    matched_by: MatchedBy
    """The way in which the line was matched: `same_ops`, by identical ops; `same_key`, by its key
    if it has no stack; `same_places_and_scopes`, `same_files_and_scopes`, `same_places`,
    `same_scopes`, `same_line`, by files and columns of the stack or of its last frame, and by parts
    of tf_op; `only_before` or `only_after`, no counterpart."""
    source_inner: str | None
    """The line after."""
    before_source_inner: str | None
    """The line before."""
    tf_op: str | None
    """Path; the first by name."""
    n_groups_before: Count
    """Groups before; more than one if they look alike and cannot be told apart."""
    n_groups_after: Count
    """Groups after."""
    agg_keys_before: list[str]
    """Keys of all groups before. Example: `["stack:73b37fcaa8454d09"]`"""
    agg_keys_after: list[str]
    """Keys of all groups after."""
    delta_pct_of_step: Percent | None
    """`delta_ps` in percent of the mean step before."""
    n_executions_before: Executions
    """Mean executions in a step before."""
    n_executions_after: Executions
    """Mean executions in a step after."""
    signatures_gone: list[str]
    """Signatures that no longer run, at most four."""
    signatures_new: list[str]
    """Signatures that are new, at most four."""


class KindDelta(Delta):
    """The omitted rows of one kind."""


class CompareTail(TypedDict):
    """The rows that the list leaves out."""

    n_rows_omitted: Count
    """Rows beyond `--top`."""
    by_kind: dict[str, KindDelta]
    """Their time by kind."""


class Fields(TypedDict):
    before: Side
    """The trace and the steps of the baseline."""
    after: Side
    """The trace and the steps of PROFILE."""
    same_device_type: bool
    """True if both sides have the same type of device."""
    same_program: bool
    """True if both sides ran ops of the very same HLO texts; these do not include the inside of
    fusions."""
    noise: Noise
    """The method by which p-values are computed, and its sample."""
    totals: dict[str, Total]
    """Parts of the step: `step_duration`, `busy`, `idle`, the four kinds, `overlap` (with rounding
    errors) and `wait`."""
    by_file: list[FileDelta]
    """All source files, the largest change first. They are right even if lines have no counterpart,
    as for code that was unrolled or rewritten."""
    unmatched: Unmatched
    """The lines that only one side has."""
    by_match: dict[str, MatchSum]
    """Sums by `matched_by`, the most certain way first."""
    rows: list[CompareRow]
    """Source lines, the largest change first, at most `--top`."""
    tail: CompareTail
    """Sums of the omitted rows."""


class Compared(OkAnswer):
    baseline_dir: str
    """The baseline as given."""


class Returned(Compared, Fields):
    pass


class Answer(Lead, Returned):
    pass


class Absent(AbsentAnswer, total=False):
    """The object that is printed instead of an answer."""

    side: Literal["baseline"]
    """`baseline` if the baseline cannot be read."""
