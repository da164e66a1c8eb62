"""Lay out figures and names as text for a terminal: units, columns, cutting and wrapping.

This file knows no modes. The files `text_of_*.py` describe the text of each mode as data: sentences
with figures (`Says`), tables (`Table`), and parts that are repeated for each object of a list
(`Each`). They name a figure by its path in the answer's JSON, such as `totals.busy_duration_ps`.
Parts with fields that the object lacks are left out: an object without an answer has few fields.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from _output.characters import Characters

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from typing import Any, TypeAlias

    Json = dict[str, Any]
    Units = tuple[tuple[str, int], ...]
    Part: TypeAlias = "Says | Table | Each"

WIDTH = 100
UNKNOWN = "?"
INDENT, GAP = "  ", "  "
# Stands for a blank at which no line is broken. Names cannot contain it, since it is escaped there.
TIED = "\0"
# Limits on a sentence and on one field in it, in columns of the terminal.
LONGEST_SENTENCE, LONGEST_FIELD = 1000, 70
# The width of the widest figure, and the depth beyond which names are not indented further.
LONGEST_FIGURE, DEEPEST = 9, 10

TIME: Units = (("ns", 10**3), ("us", 10**6), ("ms", 10**9), ("s", 10**12))
BYTES: Units = (("KiB", 1 << 10), ("MiB", 1 << 20), ("GiB", 1 << 30))
FLOPS: Units = (("MFLOP", 10**6), ("GFLOP", 10**9), ("TFLOP", 10**12))
UNITS = {"time": TIME, "delta": TIME, "bytes": BYTES, "flops": FLOPS}
# Kinds of figures, which are aligned to the right. All other kinds are names.
FIGURES = (*UNITS, "percent", "change", "share", "number", "chance", "count")
SIGNED = ("delta", "change")


class Column(NamedTuple):
    """A column; `path` leads to the value in a row, or several paths of which one has a value."""

    heading: str
    path: str | tuple[str, ...]
    kind: str = "name"
    null: str = UNKNOWN
    # In rows where this field is null the cell is blank instead of unknown.
    of: str = ""
    # For names: the field with the level of indentation, and the width to keep if possible.
    depth: str = ""
    least: int = 8


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
    # Hide rows where this field is zero or null.
    unless_0: str = ""
    ends: tuple[End, ...] = ()


class Says(NamedTuple):
    """Sentences with fields `{path:kind}`, shown if the field `when` is neither zero nor null.

    `!field` reverses the condition. Text that starts with a line feed starts a paragraph.
    """

    text: str
    when: str = ""


class Each(NamedTuple):
    """Parts that are repeated for each object of a list."""

    rows: str
    parts: tuple[Part, ...]


# ----------------------------------------------------------------------------------------------
# Reading fields of the JSON.


class Missing(Exception):
    """The object has no such field."""


def at(value: Any, path: str) -> Any:
    """Return the value at a path; null below a null or beyond the end of a list."""
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
    """Return True if the object has the field, which can be null."""
    try:
        at(fields, path)
    except Missing:
        return False
    return True


def known_at(fields: Json, path: str) -> Any:
    return at(fields, path) if has(fields, path) else None


def holds(fields: Json, when: str) -> bool:
    if not when:
        return True
    try:
        return bool(at(fields, when.removeprefix("!"))) is not when.startswith("!")
    except Missing:
        return False


def rows_at(fields: Json, path: str) -> list[Json]:
    """Return the rows of a table; in a joined list `^` is the number of the outer row, from 1."""
    first, _, rest = path.partition("[].")
    found = at(fields, first)
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


# ----------------------------------------------------------------------------------------------
# Figures.


def scale_of(largest: int, units: Units) -> tuple[str, int, int]:
    """Return the unit for a figure, its size, and the decimals that make four digits."""
    for (name, size), (_, beyond) in zip(units, (*units[1:], ("", 0)), strict=True):
        for decimals in (3, 2, 1, 0):
            shown = rounded(largest, size, decimals)
            if shown < 10**4 and (not beyond or shown * size < beyond * 10**decimals):
                return name, size, decimals
    # Figures with more than four digits in the largest unit have no decimals.
    return *units[-1], 0


def rounded(number: int, size: int, decimals: int) -> int:
    """Return the absolute value in units of the last decimal, rounded half up."""
    # The type checker cannot know that `decimals` is not negative.
    many: int = 10**decimals
    return (2 * abs(number) * many + size) // (2 * size)


def scaled(number: int, size: int, decimals: int) -> str:
    digits = rounded(number, size, decimals)
    text = f"{digits // 10**decimals}"
    if decimals:
        text += f".{digits % 10**decimals:0{decimals}}"
    return f"-{text}" if number < 0 else text


def with_4_digits(number: float) -> str:
    if number == int(number):
        return str(int(number))
    if abs(number) < 1e-3:
        return f"{number:.1e}"
    texts = (f"{number:.{decimals}f}" for decimals in (3, 2, 1, 0))
    return next((text for text in texts if sum(map(str.isdigit, text)) <= 4), f"{number:.0f}")


def with_exponent(number: int, size: int) -> str:
    """Format an integer that can be too large for a float, such as 1.23e+400."""
    whole = rounded(number, size, 0)
    n = len(str(whole)) - 3
    digits = rounded(whole, 10**n, 0)
    if digits == 1000:
        n, digits = n + 1, 100
    sign = "-" if number < 0 else ""
    return f"{sign}{digits // 100}.{digits % 100:02}e+{n + 2:02}"


def figure(value: Any, kind: str, size: int = 1, decimals: int = 0) -> str:
    """Format a known value. Zero is `0` in every unit, so it differs from a rounded `0.000`."""
    # Large integers are decimal texts in the JSON.
    number = int(value) if isinstance(value, str) else value
    if kind in UNITS and not number:
        return "0"
    if kind in UNITS:
        text = scaled(number, size, decimals)
    elif kind == "count":
        text = str(number)
    elif kind == "number":
        text = with_4_digits(number)
    elif kind == "chance":
        text = f"{number:.3f}"
    else:
        number *= 100 if kind == "share" else 1
        text = f"{number:.1f}"
    if len(text) > LONGEST_FIGURE - 1:
        text = f"{number:.2e}" if isinstance(number, float) else with_exponent(number, size)
    if not text.strip("-0."):
        # A figure that is rounded to zero has no sign.
        return text.removeprefix("-")
    return f"+{text}" if kind in SIGNED and number > 0 else text


def column_of_figures(values: Sequence[Any], kind: str, null: str) -> tuple[str, list[str]]:
    """Return the common unit of the values, and the values in this unit."""
    unit, size, decimals = "", 1, 0
    largest = 0
    if kind in UNITS:
        largest = max((abs(int(value)) for value in values if value is not None), default=0)
    if largest:
        unit, size, decimals = scale_of(largest, UNITS[kind])
    shown = (null if value is None else figure(value, kind, size, decimals) for value in values)
    return unit, list(shown)


# ----------------------------------------------------------------------------------------------
# Names.

# The layout of an array, after its dimensions.
LAYOUT_RE = re.compile(r"\{[^{}]*\}")


def name_of(value: Any, kind: str, null: str = UNKNOWN) -> str:
    """Return a value as text."""
    if isinstance(value, dict):
        value = name_of_map(value, kind)
    if value is None or value in ([], ""):
        return null
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(name_of(item, kind) for item in value)
    if kind == "op":
        # Shorten HLO text to the op's name.
        return str(value).partition(" = ")[0].removeprefix("%")
    if kind == "stack":
        return str(value).replace("\n", " > ")
    if kind == "shape":
        return LAYOUT_RE.sub("", str(value))
    return what_of(value) if kind == "what" else str(value)


def name_of_map(fields: Json, kind: str) -> str:
    """Return a map as text: by default the key of the largest figure and the number of others."""
    if kind == "values":
        return ", ".join(f"{key}={name_of(value, kind)}" for key, value in fields.items())
    keys = sorted((key for key in fields if fields[key]), key=lambda key: -fields[key])
    if kind == "initials":
        return " ".join(key[:1].upper() for key in keys)
    return f"{keys[0]} +{len(keys) - 1}" if len(keys) > 1 else "".join(keys)


def what_of(signature: str) -> str:
    """Return a short name for ops: `fusion [loop fusion]` becomes `loop fusion`."""
    name, _, category = signature.removeprefix("custom-call:").removesuffix("]").partition(" [")
    return category if name in category.split() else name


def field_of(value: Any, kind: str, characters: Characters) -> str:
    """Format a field within a sentence: a figure with its unit, or a name."""
    if kind not in FIGURES:
        longest = LONGEST_SENTENCE if kind in ("whole", "stack", "values") else LONGEST_FIELD
        name = characters.seen(name_of(value, kind), longest)
        return cut(name, kind, longest, characters)
    if isinstance(value, dict):
        # Every figure follows its key, the largest first.
        parts = [
            f"{field_of(key, 'name', characters)}{TIED}{field_of(number, kind, characters)}"
            for key, number in sorted(value.items(), key=lambda item: -item[1])
            if number
        ]
        return ", ".join(parts) or "0"
    unit, (text,) = column_of_figures([value], kind, UNKNOWN)
    unit = "%" if kind in ("percent", "change", "share") else characters.unit(unit)
    return f"{text}{TIED}{unit}" if unit and text != UNKNOWN else text


def cut(text: str, kind: str, width: int, characters: Characters) -> str:
    """Cut a text to a width: keep the end of files, and both ends of other names."""
    return characters.end_of(text, width) if kind == "file" else characters.ends_of(text, width)


# ----------------------------------------------------------------------------------------------
# Parts.

FIELD_RE = re.compile(r"\{([^{}:]+):?(\w*)\}")


def sentence(text: str, fields: Json, characters: Characters) -> str:
    def filled(match: re.Match[str]) -> str:
        return field_of(at(fields, match[1]), match[2] or "name", characters)

    return FIELD_RE.sub(filled, text)


def lines_of(part: Part, fields: Json, characters: Characters) -> Iterator[str]:
    """Yield the lines of a part, none if the object lacks one of its fields."""
    try:
        if isinstance(part, Says):
            if holds(fields, part.when):
                text = sentence(part.text, fields, characters)
                if text.startswith("\n"):
                    yield ""
                yield from wrapped(text.removeprefix("\n"), characters)
        elif isinstance(part, Table):
            yield from lines_of_table(part, fields, characters)
        else:
            for row in rows_at(fields, part.rows):
                for inner in part.parts:
                    yield from lines_of(inner, row, characters)
    except Missing:
        return


def wrapped(text: str, characters: Characters, first: str = "", rest: str = INDENT) -> list[str]:
    """Break a text into lines, between words if possible."""
    lines = [first]
    is_empty = True
    for word in characters.ends_of(text, LONGEST_SENTENCE).split(" "):
        left = word
        if not is_empty and characters.width(f"{lines[-1]} {left}") > WIDTH:
            lines.append(rest)
            is_empty = True
        while characters.width(lines[-1] + left) > WIDTH:
            start = characters.start_of(left, WIDTH - characters.width(lines[-1]))
            lines[-1] += start
            lines.append(rest)
            left = left[len(start) :]
        lines[-1] += left if is_empty else f" {left}"
        is_empty = False
    return [line.replace(TIED, " ") for line in lines]


def lines_of_table(table: Table, fields: Json, characters: Characters) -> Iterator[str]:
    rows = rows_at(fields, table.rows)
    if table.unless_0:
        rows = [row for row in rows if at(row, table.unless_0)]
    if table.by:
        rows.sort(key=lambda row: -(at(row, table.by) or 0))
    ends = [end for end in table.ends if holds(fields, end.when)]
    if not rows and not ends:
        return
    columns = [
        column
        for column in table.columns
        if not rows or any(has(row, paths_of(column)[0]) for row in rows)
    ]
    cells = [cells_of(column, rows, ends, fields, characters) for column in columns]
    # Leave out columns without any value.
    shown = [
        (column, texts) for column, texts in zip(columns, cells, strict=True) if any(texts[1:])
    ]
    columns = [column for column, _ in shown]
    cells = [[characters.seen(text, WIDTH) for text in texts] for _, texts in shown]
    widths = widths_of(cells, columns, characters)
    yield ""
    yield from wrapped(sentence(table.title, fields, characters), characters)
    for line in zip(*cells, strict=True):
        padded = (
            characters.padded(cut(cell, column.kind, width, characters), width, is_figure(column))
            for cell, column, width in zip(line, columns, widths, strict=True)
        )
        yield f"{INDENT}{GAP.join(padded)}".rstrip()


def is_figure(column: Column) -> bool:
    return column.kind in FIGURES


def cells_of(
    column: Column, rows: Iterable[Json], ends: Iterable[End], fields: Json, characters: Characters
) -> list[str]:
    """Return the heading of a column and the cells below it."""
    values = [value_in(row, column) for row in rows]
    # For a figure its path, for a name its sentence.
    of_ends = [end.cells.get(column.heading) for end in ends]
    if not is_figure(column):
        names = [name_of(value, column.kind, column.null) for value in values]
        if column.depth:
            pairs = zip(rows, names, strict=True)
            names = [INDENT * min(at(row, column.depth), DEEPEST) + name for row, name in pairs]
        sentences = (sentence(text or "", fields, characters) for text in of_ends)
        return [column.heading, *names, *(text.replace(TIED, " ") for text in sentences)]
    values += [known_at(fields, path) if path else None for path in of_ends]
    unit, shown = column_of_figures(values, column.kind, column.null)
    is_blank = [bool(column.of) and at(row, column.of) is None for row in rows]
    is_blank += [path is None or not has(fields, path) for path in of_ends]
    shown = ["" if blank else text for blank, text in zip(is_blank, shown, strict=True)]
    return [f"{column.heading} {characters.unit(unit)}".strip(), *shown]


def paths_of(column: Column) -> Sequence[str]:
    return (column.path,) if isinstance(column.path, str) else column.path


def value_in(row: Json, column: Column) -> Any:
    for path in paths_of(column):
        value = known_at(row, path)
        if value not in (None, "", {}, []):
            return value
    return None


def widths_of(
    cells: Sequence[Sequence[str]], columns: Sequence[Column], characters: Characters
) -> list[int]:
    """Return the widths of the columns; the widest names are cut if the line is too long."""
    widths = [min(max(map(characters.width, texts)), WIDTH) for texts in cells]
    names = [i for i, column in enumerate(columns) if not is_figure(column)]
    room = WIDTH - len(INDENT) - len(GAP) * (len(columns) - 1)
    while sum(widths) > room:
        wide = [i for i in names if widths[i] > columns[i].least] or names
        widths[max(wide, key=widths.__getitem__)] -= 1
    return widths
