"""Cut the lists of the page's data, so that the page stays small."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from heapq import nlargest
from typing import Any

Json = dict[str, Any]

# Objects keep at least this many keys, so that no row loses a field.
FIELDS = 64
# Lists in these parts of the data are short, and a drawing needs all their rows.
DRAWN = ("strip", "period")


def shortened(data: Json, rows: int) -> Json:
    """Copy the data with up to `rows` rows in each list. Lists in DRAWN parts are never cut.

    The copy's field `left_out` counts the rows omitted from each list of an answer.
    """
    scopes = data["answers"]["by_scope"]["scopes"]
    left_out: dict[str, int] = {}

    def copied(value: Any, path: tuple[str, ...]) -> Any:
        if path == ("before",) and value:
            return shortened(value, rows)
        if isinstance(value, dict):
            items = list(value.items())
            kept = items if path and path[0] in DRAWN else items[: max(rows, FIELDS)]
            count(len(items) - len(kept), path)
            # Most items are figures and names, which need no call.
            return {
                key: copied(item, (*path, key)) if isinstance(item, (dict, list)) else item
                for key, item in kept
            }
        if isinstance(value, list):
            if path[0] in DRAWN or len(value) <= rows:
                places: Iterable[int] = range(len(value))
            elif path[-1] == "scopes" or path == ("classes", "by_scope"):
                # A scope never takes longer than its parent and is listed after it, so the longest
                # scopes still form a tree.
                longest = nlargest(rows, range(len(value)), lambda i: scopes[i]["total_dur_ps"])
                places = sorted(longest)
            else:
                places = around_picked(value, rows) if path[-1] == "steps" else range(rows)
            chosen = [
                copied(item, path) if isinstance(item := value[place], (dict, list)) else item
                for place in places
            ]
            count(len(value) - len(chosen), path)
            return chosen
        return value

    def count(n: int, path: tuple[str, ...]) -> None:
        if n and path[0] == "answers":
            name = ".".join(path[1:])
            left_out[name] = left_out.get(name, 0) + n

    kept: Json = copied(data, ())
    kept["left_out"] = left_out
    return kept


def around_picked(steps: Sequence[Mapping[str, object]], n: int) -> range:
    """Return the indices of `n` steps around the picked step.

    The first `n` steps would be wrong, because steps are sorted by time, not by importance.
    """
    picked = next((i for i, step in enumerate(steps) if "picked" in step), 0)
    first = max(0, min(picked - n // 2, len(steps) - n))
    return range(first, first + n)
