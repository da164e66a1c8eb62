"""Define the data that describe what a mode shows to people, for text, Markdown and CSV.

The files in `_output/screens/` describe each mode as data: sentences with figures (`Says`), tables
(`Table`), parts that share a unit of time (`Section`), and parts that are repeated for each object
of a list (`Each`). A description refers to a figure by the figure's path in the JSON, such as
`totals.busy_duration_ps`. A part is left out if the object lacks a field of the part, because an
object without an answer has few fields.
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

# By default, a table hides rows that are less than a thousandth of the whole.
SMALLEST_PART: Final = 1000


class View(NamedTuple):
    """Options that decide which rows and columns are shown."""

    shows_all: bool = False
    merges: bool = True
    # Value of `--top`, or None if the option is not given.
    top: int | None = None


class Column(NamedTuple):
    """A column. `path` leads to the value in a row; if there are several paths, the first path with
    a value counts."""

    heading: str
    path: str | tuple[str, ...]
    kind: str = "name"
    null: str = UNKNOWN
    # If this field of a row is null, the cell is blank instead of `?`.
    of: str = ""
    # Only for names. `depth` is the field with the level of indentation, and `least` the minimum
    # width if the line has room. A text in `also` contains a field `{path:kind}`; the cell shows
    # the text if the field has a value.
    depth: str = ""
    least: int = 8
    also: tuple[str, ...] = ()


class End(NamedTuple):
    """A row at the end of a table, shown if the condition `when` holds. `cells` maps headings to
    the path of a figure or to a sentence."""

    when: str
    cells: Mapping[str, str]


class Table(NamedTuple):
    """A table. `rows` is the path of a list or map; the path `a[].b` joins the lists `b` of all
    rows of `a`."""

    title: str
    rows: str
    columns: tuple[Column, ...]
    # Sort by this field, largest first; by default keep the order of the JSON.
    by: str = ""
    # Leave out rows where this field is zero or null.
    unless_0: str = ""
    # Hide rows in which the field `size` times `part` is less than the field `whole` (without
    # `whole`, less than 100).
    size: str = ""
    whole: str = "step_duration_ps"
    part: int = SMALLEST_PART
    # Maximum number of rows; if `takes_top` is true, `--top` replaces this number.
    most: int = 0
    takes_top: bool = False
    # The last row gives the number of hidden rows plus the number of rows that the JSON omits,
    # which is the field `omitted`. `tail` names the columns that the last row sums, each with the
    # path of the sum over the rows that the JSON omits.
    what: str = "row"
    omitted: str = ""
    tail: Mapping[str, str] = {}
    ends: tuple[End, ...] = ()
    # Functions that replace the rows, before and after small rows are hidden.
    derive: Callable[[list[Json], View], list[Json]] | None = None
    group: Callable[[list[Json]], list[Json]] | None = None
    # The sentence to show below each row, and the sentence to show instead with `--all`.
    below: str = ""
    below_all: str = ""
    # Show the table only with the option `--all` or `--top`, or only if the table has at least this
    # number of rows.
    only: str = ""
    fewest: int = 0


class Says(NamedTuple):
    """Sentences with fields `{path:kind}`, shown if the fields of `when` are neither 0 nor null.

    `!field` in `when` reverses the condition. Text that starts with a line feed starts a paragraph.
    """

    text: str
    when: str = ""
    # Append the sentence to the preceding paragraph.
    continues: bool = False


class Section(NamedTuple):
    """Parts in which all times have the same unit."""

    parts: tuple[Says | Table, ...]


class Each(NamedTuple):
    """Parts that are repeated for each object of a list."""

    rows: str
    parts: tuple[Part, ...]
