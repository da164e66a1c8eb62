"""Cut the lists of the page's data, so that the page stays small."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Any

Json = dict[str, Any]

# Maps keep at least this many keys, so that no answer loses a field.
FIELDS = 64


def cut_lists(side: Json, rows: int) -> None:
    """Keep up to `rows` rows in each list of the answers, and count the omitted rows in `left_out`.

    Lists inside rows stay whole: modes limit them.
    """
    scopes = side["answers"]["by_scope"]["scopes"]
    classes = side["classes"]
    classes["by_source"] = classes["by_source"][:rows]
    classes["by_scope"] = [classes["by_scope"][i] for i in longest_scopes(scopes, rows)]
    for mode, answer in side["answers"].items():
        cut(answer, mode, rows, side["left_out"])
    if side.get("before"):
        cut_lists(side["before"], rows)


def cut(fields: Json, path: str, rows: int, left_out: dict[str, int]) -> None:
    for name, value in fields.items():
        place = f"{path}.{name}"
        if isinstance(value, dict):
            cut(value, place, rows, left_out)
            if len(value) <= max(rows, FIELDS):
                continue
            fields[name] = dict([*value.items()][: max(rows, FIELDS)])
        elif isinstance(value, list) and len(value) > rows:
            fields[name] = [value[i] for i in places_to_keep(name, value, rows)]
        else:
            continue
        left_out[place] = left_out.get(place, 0) + len(value) - len(fields[name])


def places_to_keep(name: str, rows: Sequence[Any], n: int) -> Iterable[int]:
    if name == "scopes":
        return longest_scopes(rows, n)
    return around_picked(rows, n) if name == "steps" else range(n)


def longest_scopes(scopes: Sequence[Mapping[str, Any]], n: int) -> list[int]:
    """Return the indices of the `n` longest scopes. They still form a tree, because a scope never
    takes longer than its parent and is listed after it."""
    return sorted(nlargest(n, range(len(scopes)), lambda i: scopes[i]["total_dur_ps"]))


def around_picked(steps: Sequence[Mapping[str, object]], n: int) -> range:
    """Return the indices of `n` steps around the picked step.

    The first `n` steps would be wrong, because steps are sorted by time, not by importance.
    """
    picked = next((i for i, step in enumerate(steps) if "picked" in step), 0)
    first = max(0, min(picked - n // 2, len(steps) - n))
    return range(first, first + n)
