"""Fields of `page`, and the data that the page itself contains."""

from typing import Any, Literal, TypedDict

from .bottleneck import CauseName
from .common import AbsentAnswer, Lead, StepAnswer
from .units import Bytes, Count, Picoseconds


class Fields(TypedDict):
    out: str
    """Name of the written file, as given with `--out`."""
    bytes: Bytes
    """Size of the written file, at most 10 MB."""
    parts: dict[str, str]
    """For each mode on the page, `ok` or the reason why the mode has no answer. Only `memory` and
    `program` can lack an answer. With `--baseline`, the map also has `compare`."""
    says: str
    """Headline of [bottleneck](#bottleneck), with which the page begins."""


class Answer(Lead, StepAnswer, Fields):
    pass


class Absent(AbsentAnswer, total=False):
    """The object that is printed instead of an answer."""

    side: Literal["baseline"]
    """Always `baseline`; printed only if the baseline could not be read."""


# Picoseconds by class.
Times = dict[str, int]


class Classes(TypedDict):
    """Times in ps by class."""

    by_source: list[Times]
    """Times by class for each group of `by_source.groups`."""
    by_scope: list[Times]
    """Times by class for each scope of `by_scope.scopes`, including all scopes inside it."""
    no_scope: Times
    """Times by class of all ops without a scope."""


StripClassed = TypedDict("StripClassed", {"class": str})
"""Class of the op."""


class StripOp(StripClassed):
    """An op that has the longest execution in at least one bin."""

    hlo_op: str
    """Name of the op."""
    program_id: str | None
    """Id of the op's program, as an unsigned decimal; null if the op has no program id."""
    source_inner: str | None
    """Source line of the op; null if unknown."""
    source_user: str | None
    """Innermost line of the user's own code; null if there is none."""


class PageStrip(TypedDict):
    """The step in up to 1000 bins of equal length."""

    n_bins: int
    """Number of bins."""
    by_class: dict[str, list[int]]
    """Time in ps in each bin, by class."""
    idle: list[int]
    """Idle time in ps in each bin."""
    longest: list[int | None]
    """For each bin, the index in `ops` of the op with the longest execution within the bin; null if
    no op runs in the bin."""
    ops: list[StripOp]
    """Ops that `longest` refers to."""


class Span(TypedDict):
    """A part of the drawn time, on the trace's clock."""

    start_ps: int
    """Start, relative to the start of the drawn time."""
    dur_ps: Picoseconds
    """Duration."""


class DrawnStep(Span):
    """A step in the drawn time."""

    name: str | None
    """Name of the step; null if it has none."""
    index: int
    """Index of the step in order of time."""
    picked: bool
    """True for the page's step."""


class HostFrame(Span):
    """An event of the host during the pause, cut at the edges of the drawn time."""

    name: str
    """Name of the event."""
    depth: Count
    """Number of drawn events that enclose the event."""


class PagePeriod(TypedDict):
    """The page's step and the pause after it, or before it for the last step. If not every step is
    followed by a pause, also the steps up to the nearest pause."""

    dur_ps: Picoseconds
    """Length of the drawn time."""
    steps: list[DrawnStep]
    """All steps in the drawn time."""
    pauses: list[Span]
    """Parts of the pause: times in which no step runs."""
    thread: str | None
    """Thread of the frames, which is most likely the thread that launches the steps; null if the
    capture has no host events during the pause."""
    frames: list[HostFrame]
    """Up to 200 events of the thread that take at least 1/200 of the pause, except events that
    contain all of the drawn time."""


class PageSide(TypedDict):
    """A step on the page."""

    page: dict[str, Any]
    """The printed fields except `out`, `bytes` and `parts`."""
    parts: dict[str, str]
    """For each mode on the page, `ok` or the reason why the mode has no answer."""
    answers: dict[str, dict[str, Any]]
    """Fields of each mode's answer, by mode."""
    classes: Classes
    """Times in ps by class."""
    strip: PageStrip
    """The step in up to 1000 bins of equal length."""
    period: PagePeriod | None
    """The step and a pause, with the host's frames; null if there is no pause of at least 0.5 %
    within ten steps."""
    left_out: dict[str, int]
    """Number of rows that were omitted from each list to keep the page small."""


class CauseChange(TypedDict):
    """A cause whose gain differs between the two steps on the page."""

    cause: CauseName
    """Name of the cause."""
    source_user: str | None
    """Line of the cause after the change; null if there is none."""
    before_source_user: str | None
    """Line of the cause before the change; null if there is none."""
    before_ps: Picoseconds
    """Gain of the cause before the change; 0 if the cause was not found."""
    after_ps: Picoseconds
    """Gain of the cause after the change; 0 if the cause was not found."""
    delta_ps: Picoseconds
    """`after_ps` minus `before_ps`."""
    says: str
    """Sentences that describe the cause after the change, or before the change if the cause is
    gone."""


class PageData(PageSide):
    """The JSON in the page's script `data`."""

    version: str
    """Version of the program that wrote the page."""
    captured_at_ns: int | None
    """Start of the capture in ns since 1970; null if the trace does not contain it."""
    before: PageSide | None
    """The step of the baseline; null without `--baseline`, and if the baseline is a record."""
    changed_causes: list[CauseChange]
    """The causes whose gains differ by at least 0.5 % of the step."""
    notes: list[str]
    """`notes` of the printed answer."""
    n_warnings: int
    """Number of warnings, which come first in `notes`; the other notes explain how the figures were
    obtained."""
