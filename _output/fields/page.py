"""Fields of `page`, and the data that the page itself holds."""

from typing import Any, TypedDict

from _output.fields.common import Lead, StepAnswer
from _output.fields.units import Bytes


class Fields(TypedDict):
    out: str
    """The file that was written, as given."""
    bytes: Bytes
    """Its size, at most 10 MB."""
    parts: dict[str, str]
    """By mode of the page: `ok`, or the reason why it has no answer. Only `memory` and
    `program` may be missing."""


class Answer(Lead, StepAnswer, Fields):
    pass


# Picoseconds by class.
Times = dict[str, int]


class Classes(TypedDict):
    """Times by class."""

    by_source: list[Times]
    """For each of `by_source.groups`."""
    by_scope: list[Times]
    """For each of `by_scope.scopes`, including the scopes inside it."""
    no_scope: Times
    """For all ops without a scope."""


StripClassed = TypedDict("StripClassed", {"class": str})
"""Class of the op."""


class StripOp(StripClassed):
    """An op that has the longest stretch in a bin."""

    hlo_op: str
    """Name of the op."""
    program_id: str | None
    """Id of its program."""
    source_inner: str | None
    """Its source line."""
    source_user: str | None
    """Innermost line of the user's own code."""


class PageStrip(TypedDict):
    """The step in up to 1000 bins of equal length."""

    n_bins: int
    """Number of bins."""
    by_class: dict[str, list[int]]
    """Picoseconds in each bin by class."""
    idle: list[int]
    """Idle picoseconds in each bin."""
    longest: list[int | None]
    """Index of the op with the longest stretch in each bin; null if the bin is empty."""
    ops: list[StripOp]
    """These ops."""


class PageData(TypedDict):
    """The JSON in the page's script `data`."""

    page: dict[str, Any]
    """The printed fields except `out`, `bytes` and `parts`."""
    parts: dict[str, str]
    """As printed."""
    answers: dict[str, dict[str, Any]]
    """The fields of each mode."""
    classes: Classes
    """Times by class."""
    strip: PageStrip
    """The step in bins."""
    notes: list[str]
    """As printed."""
    left_out: dict[str, int]
    """Number of rows that were left out to keep the page small, by list."""
