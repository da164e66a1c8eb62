"""Print the main table of an answer as CSV, with the exact values of the JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

from _breakdown.output.characters import escaped

Json = dict[str, Any]

NEEDS_QUOTES = frozenset(',"\r\n')


def csv_of(fields: Json, main: str, *, is_terminal: bool = False) -> str:
    """Return the table at the path `main` as CSV, or the reason why there is no answer."""
    if fields["status"] != "ok":
        return lines_of(("reason", "detail"), [fields], is_terminal)
    rows, columns = main_table(fields, main)
    return lines_of(columns, rows, is_terminal)


def main_table(fields: Json, path: str) -> tuple[list[Json], Sequence[str]]:
    """Return the rows and columns of the table at a path. If the table joins lists of programs,
    the first column is the program."""
    outer, _, inner = path.partition("[].")
    if inner:
        rows = [
            {"program": whole["program"], **row} for whole in fields[outer] for row in whole[inner]
        ]
    else:
        rows = fields[outer]
    # The first row's columns come first, followed by columns that only later rows have.
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return rows, columns or declared_columns(fields["mode"], outer, inner)


# Cache results, because reading FIELDS.md takes 20 ms.
@cache
def declared_columns(mode: str, outer: str, inner: str) -> list[str]:
    """Return the columns of a table that has no rows."""
    from _breakdown.output.schema import schema_of

    schema = schema_of(mode, with_all=True)
    declared = schema["oneOf"][0]
    for name in filter(None, (outer, inner)):
        declared = declared["properties"][name]["items"]
        if "$ref" in declared:
            declared = schema["$defs"][declared["$ref"].rpartition("/")[2]]
    columns: list[str] = declared["required"]
    return ["program", *columns] if inner else columns


def lines_of(columns: Sequence[str], rows: Iterable[Json], is_terminal: bool) -> str:
    lines = [columns, *([text_of(row.get(name)) for name in columns] for row in rows)]
    return "".join(f"{','.join(field_of(text, is_terminal) for text in line)}\n" for line in lines)


def text_of(value: Any) -> str:
    """Return strings unchanged, null as an empty string, and other values as JSON."""
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def field_of(text: str, is_terminal: bool) -> str:
    if is_terminal and not text.isprintable():
        text = "".join(c if c.isprintable() else escaped(c) for c in text)
    return '"' + text.replace('"', '""') + '"' if NEEDS_QUOTES & set(text) else text
