"""Fill a mode's sentences and tables with figures from an answer.

`_breakdown/output/text.py` and `_breakdown/output/markdown.py` print the result.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from _breakdown.light import NamedTuple
from _breakdown.output.code import numbered
from _breakdown.output.figures import (
    FIGURES,
    NO_UNIT,
    PERCENTS,
    UNITS,
    decimals_of,
    figure,
    is_time,
    name_of,
    unit_of,
)
from _breakdown.output.merged import merged_lines
from _breakdown.output.screen import UNKNOWN, Column, Each, End, Part, Says, Section, Table, View
from _breakdown.units import Unit, digits_of, plural

Json = dict[str, Any]
Span: TypeAlias = "str | Figure | Name"

INDENT: Final = "  "
# Appended to a count of hidden rows: the option that shows them.
ALL: Final = " (--all)"
# Columns that repeat the scope if it is shown before the line.
SCOPES: Final = ("scope", "scopes.0.scope")
# Appended to a line that contradicts the scope.
DOUBTFUL: Final = " (?)"
# Times below this number of ps are clock rounding errors.
SHORTEST_TIME: Final = 1000
# Maximum depth of indentation; deeper names are not indented further.
DEEPEST: Final = 10


class Figure(NamedTuple):
    """A figure in a sentence or a cell."""

    value: Any
    kind: str
    null: str = UNKNOWN


class Name(NamedTuple):
    """A name from the trace, which can contain any character."""

    text: str
    kind: str = "name"


class Paragraph(NamedTuple):
    """A filled sentence."""

    spans: Sequence[Span]
    is_new: bool = False
    continues: bool = False


class Grid(NamedTuple):
    """A filled table. `cells` has one list per column, and `below` maps the index of a row to the
    sentence below the row. The last cells can belong to rows of sums, which are not in `rows`."""

    title: Sequence[Span]
    # The table's rows in the answer, and their path.
    rows: Sequence[Json]
    path: str
    columns: Sequence[Column]
    cells: Sequence[Sequence[Span]]
    below: Mapping[int, Sequence[Span]]
    # The lines of source code to show below rows.
    code: Mapping[int, Sequence[str]]


class Block(NamedTuple):
    """A sentence or table, and the unit for its times."""

    part: Paragraph | Grid
    unit: Unit


def filled(part: Part, fields: Json, view: View) -> Iterator[Block]:
    """Yield the sentences and tables of a part; yield nothing if the object lacks a required
    field."""
    try:
        if isinstance(part, Each):
            for row in rows_at(fields, part.rows):
                for inner in part.parts:
                    yield from filled(inner, row, view)
        else:
            parts = part.parts if isinstance(part, Section) else (part,)
            found: list[Paragraph | Grid] = []
            for inner in parts:
                for block in _part_filled(inner, fields, view):
                    before = found[-1] if found else None
                    if (
                        isinstance(block, Paragraph)
                        and block.continues
                        and isinstance(before, Paragraph)
                    ):
                        gap = "" if str(block.spans[0]).startswith(";") else " "
                        found[-1] = before._replace(spans=[*before.spans, gap, *block.spans])
                    else:
                        found.append(block)
            unit = unit_of((time for block in found for time in _times_in(block)), "time")
            yield from (Block(block, unit) for block in found)
    except Missing:
        return


def _part_filled(part: Says | Table, fields: Json, view: View) -> list[Paragraph | Grid]:
    try:
        if isinstance(part, Says):
            if not holds(fields, part.when):
                return []
            is_new = part.text.startswith("\n")
            spans = spans_of(part.text.removeprefix("\n"), fields)
            return [Paragraph(spans, is_new, part.continues)]
        grid = grid_of(part, fields, view)
    except Missing:
        return []
    return [grid] if grid else []


def _times_in(part: Paragraph | Grid) -> Iterator[Any]:
    if isinstance(part, Paragraph):
        spans = [*part.spans]
    else:
        columns = zip(part.columns, part.cells, strict=True)
        in_cells = (cell for column, cells in columns if is_time(column.kind) for cell in cells)
        spans = [*part.title, *in_cells]
    for span in spans:
        if isinstance(span, Figure) and is_time(span.kind):
            yield from span.value.values() if isinstance(span.value, dict) else (span.value,)


class Missing(Exception):
    """Raised if an object does not have a field."""


def at(value: Any, path: str) -> Any:
    """Return the value at a path; None if a value on the path is null or a list is too short."""
    for part in path.split("."):
        if value is None:
            return None
        if isinstance(value, list):
            value = value[int(part)] if int(part) < len(value) else None
        elif part in value:
            value = value[part]
        else:
            raise Missing(path)
    return value


def has(fields: Json, path: str) -> bool:
    """Return True if the object has the field, even if its value is null."""
    try:
        at(fields, path)
    except Missing:
        return False
    return True


def known_at(fields: Json, path: str) -> Any:
    """Return the value at a path; None if the object does not have the field."""
    if "." not in path:
        # Most paths are names, and most cells of a table ask for several.
        return fields.get(path)
    try:
        return at(fields, path)
    except Missing:
        return None


def holds(fields: Json, when: str) -> bool:
    """Return True if all conditions in `when` hold; spaces separate them."""
    try:
        return all(
            bool(at(fields, name.removeprefix("!"))) is not name.startswith("!")
            for name in when.split()
        )
    except Missing:
        return False


def rows_at(fields: Json, path: str) -> list[Json]:
    """Return the rows of a table. If the table joins lists, the key `^` of each row holds the
    number of the outer row, starting at 1. The key `@` holds the row's path in the answer."""
    first, _, rest = path.partition("[].")
    found = at(fields, first)
    outer_path = f"{fields['@']}." if "@" in fields else ""
    if isinstance(found, list):
        found = [
            {**row, "@": f"{outer_path}{first}.{i}"} if isinstance(row, dict) else row
            for i, row in enumerate(found)
        ]
    if rest:
        return [
            {**row, "^": i}
            for i, outer in enumerate(found or (), 1)
            for row in rows_at(outer, rest)
        ]
    if isinstance(found, dict):
        return [
            {"key": key, **(value if isinstance(value, dict) else {"value": value})}
            for key, value in found.items()
        ]
    return [row if isinstance(row, dict) else {"value": row} for row in found or ()]


FIELD_RE = re.compile(r"\{([^{}:]+):?(\w*)\}")


def spans_of(text: str, fields: Json) -> list[Span]:
    """Split a sentence template into text, figures and names."""
    spans: list[Span] = []
    end = 0
    for match in FIELD_RE.finditer(text):
        kind = match[2] or "name"
        value = at(fields, match[1])
        is_figure = kind in FIGURES
        spans.append(text[end : match.start()])
        spans.append(Figure(value, kind) if is_figure else Name(name_of(value, kind), kind))
        end = match.end()
    spans.append(text[end:])
    return [span for span in spans if span]


def with_unit(span: Figure, unit: Unit) -> Iterator[tuple[str, str, str]]:
    """Yield (key, figure, unit) for a field in a sentence; the key is empty unless the field is a
    map."""
    if isinstance(span.value, dict):
        pairs = sorted(span.value.items(), key=lambda item: -item[1])
        values = [(key, value) for key, value in pairs if value] or [("", 0)]
    else:
        values = [("", span.value)]
    for key, value in values:
        name, size = unit if is_time(span.kind) else unit_of([value], span.kind)
        if value is None:
            yield key, span.null, ""
            continue
        decimals = decimals_of(int(value), size) if span.kind in UNITS else 0
        if value and span.kind in UNITS and not digits_of(int(value), size, 3):
            # The figure is too small for the common unit, so use a smaller unit. The exception is a
            # time that is too short for a core's clock.
            if is_time(span.kind) and abs(int(value)) < SHORTEST_TIME:
                decimals = min(decimals, 3)
            else:
                name, size = unit_of([value], span.kind)
                decimals = decimals_of(int(value), size)
        shown = figure(value, span.kind, size, decimals)
        no_unit = span.kind in UNITS and not int(value)
        yield key, shown, "%" if span.kind in PERCENTS else "" if no_unit else name


def grid_of(table: Table, fields: Json, view: View) -> Grid | None:
    if (table.only == "all" and not view.shows_all) or (table.only == "top" and not view.top):
        return None
    rows, hidden = shown_rows(table, fields, view)
    ends = [end for end in table.ends if holds(fields, end.when)]
    # Omit a table without rows, unless it can show sums over hidden rows.
    if not rows and not ends and not (hidden and table.tail):
        return None
    if len(rows) + len(hidden) < table.fewest and not view.shows_all:
        return None
    of_all = [*rows, *hidden]
    columns = [
        column
        for column in table.columns
        if column.only != ("brief" if view.shows_all else "all")
        and (not of_all or any(has_any(row, column) for row in of_all))
    ]
    if table.group:
        rows = table.group(rows)
    scope_first = has_common_line(fields)
    if scope_first and any("source_user" in paths_of(column) for column in columns):
        columns = [column for column in columns if column.path not in SCOPES]
    n_more = known_at(fields, table.omitted) if table.omitted else 0
    cells = []
    for column in columns:
        texts = cells_of(column, rows, scope_first)
        if table.what and (hidden or n_more):
            texts.append(more_cell(column, columns, table, fields, hidden, is_first=not rows))
        cells.append([*texts, *(end_cell(column, end, fields) for end in ends)])
    # Omit columns without any value.
    kept = [i for i, texts in enumerate(cells) if any(texts)]
    has_other = view.shows_all and table.below_all is not None
    template = table.below_all or "" if has_other else table.below
    needed = [path for path, _ in FIELD_RE.findall(template)]
    below = {
        i: spans_of(template, row)
        for i, row in enumerate(rows if needed else ())
        if all(known_at(row, path) is not None for path in needed)
    }
    title = spans_of(table.title, fields)
    shown_columns, shown_cells = [columns[i] for i in kept], [cells[i] for i in kept]
    code = {i: numbered(row["code"]) for i, row in enumerate(rows) if row.get("code")}
    return Grid(title, rows, table.rows, shown_columns, shown_cells, below, code)


def has_common_line(fields: Json) -> bool:
    """Return whether one line has most of the time, so that rows show the scope before the line."""
    return known_at(fields, "totals.common_line") is not None


def shown_rows(table: Table, fields: Json, view: View) -> tuple[list[Json], list[Json]]:
    """Return the visible rows and the hidden rows."""
    rows = rows_at(fields, table.rows)
    if table.unless_0:
        rows = [row for row in rows if at(row, table.unless_0)]
    if table.derive:
        rows = table.derive(rows)
    if table.merges_lines and not view.shows_all:
        rows = merged_lines(rows, with_scope=has_common_line(fields))
    if table.by:
        rows.sort(key=lambda row: -(at(row, table.by) or 0))
    hidden = []
    top = view.top if table.takes_top else None
    most = top if top is not None else len(rows) if view.shows_all else table.most
    if table.size and not view.shows_all:
        whole = int(known_at(fields, table.whole) or 0) if table.whole else 100
        hidden = [row for row in rows if is_small(at(row, table.size), whole, table.part)]
        rows = [row for row in rows if not is_small(at(row, table.size), whole, table.part)]
    if most:
        rows, hidden = rows[:most], [*rows[most:], *hidden]
    elif top == 0:
        # With `--top 0`, omit the table.
        rows, hidden = [], []
    return rows, hidden


def is_small(value: Any, whole: int, part: int) -> bool:
    number = int(value) if isinstance(value, str) else value
    return number is not None and abs(number) * part < whole


def is_figure(column: Column) -> bool:
    return column.kind in FIGURES


def cells_of(column: Column, rows: Iterable[Json], scope_first: bool) -> list[Span]:
    """Return a column's cells for the rows of the JSON."""
    paths = paths_of(column)
    if is_figure(column):
        return [figure_in(column, row, value_at_first(row, paths)) for row in rows]
    is_line = "source_user" in paths
    return [
        name_in(column, row, value_at_first(row, paths), is_line=is_line, scope_first=scope_first)
        for row in rows
    ]


def figure_in(column: Column, row: Json, value: Any) -> Span:
    if column.of and known_at(row, column.of) is None:
        return ""
    # A row of sums has no fields for columns that cannot be summed.
    if value is None and not (column.null and has_any(row, column)):
        return ""
    # A loop that runs its body once is not worth showing.
    if value == 1 and column.kind == "trips":
        return ""
    return Figure(value, column.kind, column.null)


def name_in(column: Column, row: Json, value: Any, *, is_line: bool, scope_first: bool) -> Span:
    is_there = value is not None or has_any(row, column)
    text = name_of(value, column.kind, column.null) if is_there else ""
    if is_line:
        if known_at(row, "source_is") == "doubtful":
            text += DOUBTFUL
        if scope_first and known_at(row, "scope") is not None:
            text = ", ".join(filter(None, (scope_of(row), text.rpartition("/")[2])))
    if column.depth:
        text = INDENT * min(at(row, column.depth), DEEPEST) + text
    for template in column.also:
        path = FIELD_RE.findall(template)[0][0]
        if known_at(row, path) not in (None, "", [], {}):
            text += plain(spans_of(template, row))
    return Name(text, column.kind) if text else ""


def scope_of(row: Json) -> str:
    """Return the scope of a row, and the number of scopes if there are several whose names differ
    in more than numbers."""
    n_scopes = row.get("n_scopes", 1)
    if n_scopes > 1 and "*" not in row["scope"]:
        return f"{row['scope']} ({n_scopes} scopes)".lstrip()
    return row["scope"] or "(no layer)"


def plain(spans: Sequence[Span]) -> str:
    """Format a sentence that contains no times as text."""
    texts = []
    for span in spans:
        if isinstance(span, Figure):
            texts += [f"{text} {unit}".rstrip() for _, text, unit in with_unit(span, NO_UNIT)]
        else:
            texts.append(span.text if isinstance(span, Name) else span)
    return "".join(texts)


def more_cell(
    column: Column,
    columns: Sequence[Column],
    table: Table,
    fields: Json,
    hidden: Sequence[Json],
    *,
    is_first: bool,
) -> Span:
    """Return a cell of the last row, which counts the rows that are hidden or missing from the
    JSON."""
    path = table.tail.get(column.heading)
    if path is not None and is_figure(column):
        values = [value_at_first(row, paths_of(column)) for row in hidden]
        if path and has(fields, path):
            values.append(at(fields, path))
        known = [int(v) if column.kind in UNITS else v for v in values if v is not None]
        return Figure(sum(known), column.kind) if known else ""
    if column is not label_of(columns):
        return ""
    n_hidden = sum(row.get("n_merged", 1) for row in hidden)
    n_omitted = int((known_at(fields, table.omitted) if table.omitted else 0) or 0)
    n_more = n_hidden + n_omitted
    more = "" if is_first else "more "
    option = ALL if n_hidden else ""
    return Name(f"{n_more} {more}{plural(table.what, n_more)}{option}", "word")


def label_of(columns: Sequence[Column]) -> Column | None:
    """Return the column that labels the last rows: the first column of files, else the first column
    of names."""
    names = [column for column in columns if not is_figure(column)]
    kinds = (("file",), ("name", "op"), ("word",))
    found = (column for wanted in kinds for column in names if column.kind in wanted)
    return next(found, None)


def end_cell(column: Column, end: End, fields: Json) -> Span:
    of_end = end.cells.get(column.heading)
    if not of_end:
        return ""
    if is_figure(column):
        return Figure(at(fields, of_end), column.kind) if has(fields, of_end) else ""
    return Name(plain(spans_of(of_end, fields)), "word")


def paths_of(column: Column) -> Sequence[str]:
    return (column.path,) if isinstance(column.path, str) else column.path


def has_any(row: Json, column: Column) -> bool:
    return any(has(row, path) for path in paths_of(column))


def value_at_first(row: Json, paths: Iterable[str]) -> Any:
    """Return the first value at one of the paths that is not null or empty."""
    for path in paths:
        value = known_at(row, path)
        if value or value == 0:
            return value
    return None
