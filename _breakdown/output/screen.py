"""Define the building blocks that describe a mode's text, Markdown and CSV output.

The files of the modes describe their output as data (`PARTS`): sentences with figures (`Says`),
tables (`Table`), parts that share a unit of time (`Section`), and parts that are repeated for each
object in a list (`Each`). A description refers to a figure by its path in the JSON, such as
`totals.busy_duration_ps`. A part is omitted if the object lacks one of its fields, because an
object without an answer has few fields.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from _breakdown.light import NamedTuple

Json = dict[str, Any]
Part: TypeAlias = "Says | Table | Section | Each"

# Shown instead of an unknown value.
UNKNOWN: Final = "?"
# By default, a table hides rows smaller than this fraction (1/1000) of the total.
SMALLEST_PART: Final = 1000


class View(NamedTuple):
    """Options that select the rows and columns to show."""

    shows_all: bool = False
    # Value of `--top`, or None if the option is absent.
    top: int | None = None


class Column(NamedTuple):
    """A column. `path` locates the value in a row; among several paths, the first with a value is
    used."""

    heading: str
    path: str | tuple[str, ...]
    kind: str = "name"
    null: str = UNKNOWN
    # If this field of the row is null, the cell is blank instead of `?`.
    of: str = ""
    # Only for names. `depth` is the field that holds the indentation level; `least` is the minimum
    # width if the line has room. Each template in `also` contains a field `{path:kind}` and is
    # appended to the cell if the field has a value.
    depth: str = ""
    least: int = 8
    also: tuple[str, ...] = ()
    # Leave out this column before others if the line is too long.
    gives_way: bool = False
    # Show the column only with `--all` (`all`), or only without it (`brief`).
    only: str = ""


class End(NamedTuple):
    """A row at the end of a table, shown if the condition `when` holds. `cells` maps a column's
    heading to the path of a figure or to a sentence."""

    when: str
    cells: Mapping[str, str]


class Table(NamedTuple):
    """A table. `rows` is the path of a list or map; the path `a[].b` joins the lists `b` of all
    rows of `a`."""

    title: str
    rows: str
    columns: tuple[Column, ...]
    # Sort by this field, largest first. By default, keep the order of the JSON.
    by: str = ""
    # Omit rows in which this field is zero or null.
    unless_0: str = ""
    # Hide rows in which field `size` times `part` is less than field `whole` (or less than 100, if
    # `whole` is empty).
    size: str = ""
    whole: str = "step_duration_ps"
    part: int = SMALLEST_PART
    # Maximum number of rows; `--top` replaces it if `takes_top` is true.
    most: int = 0
    takes_top: bool = False
    # If `what` is not empty, the last row counts the hidden rows plus the rows omitted from the
    # JSON, whose number is in field `omitted`. For the columns in `tail`, the last row also shows
    # sums; `tail` maps a column's heading to the path of the sum over the omitted rows.
    what: str = "row"
    omitted: str = ""
    tail: Mapping[str, str] = {}
    ends: tuple[End, ...] = ()
    # Without `--all`, merge rows that have the same line.
    merges_lines: bool = False
    # Functions that replace the rows, before and after small rows are hidden.
    derive: Callable[[list[Json]], list[Json]] | None = None
    group: Callable[[list[Json]], list[Json]] | None = None
    # The sentence to show below each row, and its replacement with `--all`, if there is one.
    below: str = ""
    below_all: str | None = None
    # Show the table only with the option named in `only` (`all` or `top`). Without `--all`, also
    # require at least `fewest` rows.
    only: str = ""
    fewest: int = 0


class Says(NamedTuple):
    """Sentences with fields `{path:kind}`, shown if no field in `when` is 0, empty or null.

    `!field` in `when` reverses the condition. A leading line feed in the text starts a new
    paragraph.
    """

    text: str
    when: str = ""
    # Append the sentence to the preceding paragraph.
    continues: bool = False


class Section(NamedTuple):
    """Parts that show all times in the same unit."""

    parts: tuple[Says | Table, ...]


class Each(NamedTuple):
    """Parts that are repeated for each object in a list."""

    rows: str
    parts: tuple[Part, ...]
