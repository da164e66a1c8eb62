"""Format the facts that differ between two programs, so that the difference stays visible."""

from __future__ import annotations

import re
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from _breakdown.units import size

Json = dict[str, Any]

# Facts that say little to most readers.
MINOR: Final = ("opcode", "fusion", "kernel_code", "other")
# Shorter texts are shown whole.
LONGEST: Final = 12
TOKEN_RE = re.compile(r"[\w.]+|\W")


def facts(rows: list[Json]) -> list[Json]:
    """Return the facts that matter to most readers, memory first."""
    shown = [row for row in rows if row["what"] not in MINOR]
    return with_texts(sorted(shown, key=lambda row: row["what"] != "memory"))


def minor_facts(rows: list[Json]) -> list[Json]:
    return with_texts([row for row in rows if row["what"] in MINOR])


def with_texts(rows: list[Json]) -> list[Json]:
    """Add the values of both sides as texts."""
    for row in rows:
        row["seen_before"], row["seen_after"] = texts_of(row["what"], row["before"], row["after"])
        if row["what"] == "memory" and row["before"] and row["after"]:
            row["seen_before"] = size(row["before"])
            row["seen_after"] = f"{size(row['after'])} ({growth(row['before'], row['after'])})"
    return rows


def growth(before: int, after: int) -> str:
    """Format a change in memory in percent, or in bytes if it is below 0.1 %."""
    delta = after - before
    if abs(delta) * 1000 >= before:
        return f"{100 * delta / before:+.1f} %"
    return f"{'+' if delta > 0 else '-'}{size(abs(delta))}"


def texts_of(name: str, before: Any, after: Any) -> tuple[str, str]:
    """Format the values of a fact; of an object, only the fields that differ."""
    if isinstance(before, dict) or isinstance(after, dict):
        sides = before or {}, after or {}
        names = [name for name in sides[0] or sides[1] if sides[0].get(name) != sides[1].get(name)]
        parts = [texts_of(name, *(side.get(name) for side in sides)) for name in names]
        of_before, of_after = (labelled(names, [part[side] for part in parts]) for side in (0, 1))
        return of_before, of_after
    if name in ("donation", "memory") or "bytes" in name:
        return sizes_of(before, after)
    # Import late, because JSON does not need this module.
    from _breakdown.output.figures import name_of

    return differing(name_of(before, "name", ""), name_of(after, "name", ""))


def labelled(names: list[str], texts: list[str]) -> str:
    """Return the values with their names; sizes and shapes need none."""
    pairs = zip(names, texts, strict=True)
    labels = {"bytes": "", "shapes": "", "vmem_used_bytes": "vmem="}
    return ", ".join(f"{labels.get(name, f'{name}=')}{text}" for name, text in pairs if text)


def sizes_of(before: int | None, after: int | None) -> tuple[str, str]:
    """Format two sizes; sizes that would look the same in bytes."""
    first, second = ("" if value is None else size(value) for value in (before, after))
    return (first, second) if first != second else (f"{before} B", f"{after} B")


def differing(before: str, after: str, longest: int = LONGEST) -> tuple[str, str]:
    """Shorten two texts to what differs if one is too long. Words stay whole."""
    if before == after or max(len(before), len(after)) <= longest:
        return before, after
    first, second = (TOKEN_RE.findall(text) for text in (before, after))
    if len(first) == len(second):
        is_equal = [one == other for one, other in zip(first, second, strict=True)]
        return shown(first, is_equal), shown(second, is_equal)
    n_start = n_equal(first, second)
    n_end = n_equal(first[n_start:][::-1], second[n_start:][::-1])

    def cut(tokens: list[str]) -> str:
        end = len(tokens) - n_end
        return shown(tokens, [not n_start <= i < end for i in range(len(tokens))])

    return cut(first), cut(second)


def n_equal(before: list[str], after: list[str]) -> int:
    """Return the number of equal tokens at the start."""
    pairs = enumerate(zip(before, after, strict=False))
    return next((i for i, (one, other) in pairs if one != other), min(len(before), len(after)))


def shown(tokens: list[str], is_equal: list[bool]) -> str:
    """Join tokens, with an ellipsis for each run of equal tokens."""
    runs = groupby(zip(tokens, is_equal, strict=True), key=itemgetter(1))
    return "".join("…" if equal else "".join(token for token, _ in run) for equal, run in runs)
