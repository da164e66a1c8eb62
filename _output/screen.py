"""Describe what a mode shows to people, independent of the form.

The files in `_output/screens/` describe each mode as data: sentences with figures (`Says`), tables
(`Table`), parts that share a unit of time (`Section`), and parts that are repeated for each object
of a list (`Each`). They name a figure by its path in the JSON, such as
`totals.busy_duration_ps`. Parts with fields that the object lacks are left out: an object without
an answer has few fields.
"""

from __future__ import annotations

from typing import NamedTuple

from _output.figures import UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any, Final, TypeAlias

    Json = dict[str, Any]
    Part: TypeAlias = "Says | Table | Section | Each"

# Rows of less than a thousandth of the whole are hidden, if a table does not say otherwise.
SMALLEST_PART: Final = 1000


class View(NamedTuple):
    """The reader's choices."""

    shows_all: bool = False
    merges: bool = True
    # The number of rows, if it was given.
    top: int | None = None


class Column(NamedTuple):
    """A column; `path` leads to the value in a row, or several paths of which one has a value."""

    heading: str
    path: str | tuple[str, ...]
    kind: str = "name"
    null: str = UNKNOWN
    # In rows where this field is null the cell is blank instead of unknown.
    of: str = ""
    # For names: the field with the level of indentation, the width to keep if possible, and texts
    # with a field `{path:kind}` that are appended in rows where it has a value.
    depth: str = ""
    least: int = 8
    also: tuple[str, ...] = ()


class End(NamedTuple):
    """A last row, shown if `when` holds: by heading the path of a figure, or a sentence."""

    when: str
    cells: Mapping[str, str]


class Table(NamedTuple):
    """A table; `rows` is the path of a list or map. `a[].b` joins the lists `b` in rows of `a`."""

    title: str
    rows: str
    columns: tuple[Column, ...]
    # Sort by this field, largest first; by default keep the order of the JSON.
    by: str = ""
    # Leave out rows where this field is zero or null.
    unless_0: str = ""
    # Hide rows in which this field is less than a part of the field `whole`, or of 100 without it.
    size: str = ""
    whole: str = "step_duration_ps"
    part: int = SMALLEST_PART
    # Show at most so many rows; `takes_top` replaces this by `--top`.
    most: int = 0
    takes_top: bool = False
    # The last row counts rows that are hidden or, by the field `omitted`, not in the JSON. Columns
    # in `tail` have the sum there; the path leads to the sum of rows that are not in the JSON.
    what: str = "row"
    omitted: str = ""
    tail: Mapping[str, str] = {}
    ends: tuple[End, ...] = ()
    # Replace the rows before small ones are hidden, and afterwards.
    derive: Callable[[list[Json], View], list[Json]] | None = None
    group: Callable[[list[Json]], list[Json]] | None = None
    # A sentence below each row, and another one for `--all`.
    below: str = ""
    below_all: str = ""
    # Show the table right after the one before it.
    follows: bool = False
    # Show the table only with the option `--all` or `--top`, or only if it has so many rows.
    only: str = ""
    fewest: int = 0


class Says(NamedTuple):
    """Sentences with fields `{path:kind}`, shown if the fields of `when` are neither 0 nor null.

    `!field` reverses the condition. Text that starts with a line feed starts a paragraph.
    """

    text: str
    when: str = ""
    # Continue the paragraph before.
    continues: bool = False


class Section(NamedTuple):
    """Parts in which all times have one unit."""

    parts: tuple[Says | Table, ...]


class Each(NamedTuple):
    """Parts that are repeated for each object of a list."""

    rows: str
    parts: tuple[Part, ...]
