"""Merge rows that text would show with the same line, because it does not show their stacks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from _breakdown.output.phrases import LINE

Json = dict[str, Any]

# A row's figures that may be added up.
SUMS = (
    "total_dur_ps",
    "pct_of_step",
    "n_executions",
    "dtype_change_dur_ps",
    "layout_change_dur_ps",
)


def merged_lines(rows: Iterable[Json], *, with_scope: bool = False) -> list[Json]:
    """Return one row for each line, kind and category, the costliest first; with `with_scope`, also
    for each scope. Names are those of the costliest row, `n_merged` is the number of rows."""
    found: dict[tuple[Any, ...], list[Json]] = {}
    for row in sorted(rows, key=lambda row: -row["total_dur_ps"]):
        key = line_of(row), row.get("kind"), row.get("hlo_category"), row.get("source_is")
        found.setdefault((*key, row.get("scope") if with_scope else None), []).append(row)
    return sorted(map(merged, found.values()), key=lambda row: -row["total_dur_ps"])


def costliest_line(rows: Iterable[Json], answer: Json) -> tuple[Json, int]:
    """Return a row of the line with the most time, and the time of all of its ops. If one line has
    most of the step's time, return the scope and line with the most time in the rows."""
    if answer["totals"]["common_line"] is not None:
        top = merged_lines(rows, with_scope=True)[0]
        return top, top["total_dur_ps"]
    top = max(rows, key=lambda row: row["line_dur_ps"] or row["total_dur_ps"])
    return top, top["line_dur_ps"] or top["total_dur_ps"]


def line_of(row: Json) -> str | None:
    return next((row[name] for name in (*LINE, "agg_key") if row.get(name)), None)


def merged(rows: Sequence[Json]) -> Json:
    if len(rows) == 1:
        return {**rows[0], "n_merged": 1}
    row = {**rows[0], "n_merged": len(rows)}
    for name in SUMS:
        if name in row:
            values = [row[name] for row in rows]
            row[name] = None if None in values else sum(values)
    if "phases" in row:
        row["phases"] = added(row["phases"] for row in rows)
    if "loop" in row and any(other["loop"] != row["loop"] for other in rows):
        row["loop"] = None
    if "scopes" in row:
        scopes = {part["scope"] for other in rows for part in other["scopes"]}
        row["scopes"] = row["scopes"] if len(scopes) == 1 else [{"scope": common(scopes)}]
    return row


def added(maps: Iterable[dict[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for parts in maps:
        for name, value in parts.items():
            total[name] = total.get(name, 0) + value
    return total


def common(scopes: Iterable[str | None]) -> str | None:
    """Return the innermost scope that contains all scopes; None if there is none."""
    parts = [(scope or "").split("/") for scope in scopes]
    shared = []
    for names in zip(*parts, strict=False):
        if len(set(names)) > 1:
            break
        shared.append(names[0])
    return "/".join(shared) or None
