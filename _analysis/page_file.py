"""What the page may hold: the answers, cut so that the file stays small, and how it is written."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from heapq import nlargest

from _pipeline.no_answer import NoAnswer
from _pipeline.texts import cut_texts

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    Json = dict[str, Any]

# How large the JSON may be, and the page is larger by its scripts; how many rows a list may have
# then, and how long a text may be, which are halved until that holds.
LARGEST, ROWS, LONGEST_TEXT = 9 << 20, 1000, 4096
# Rows have fewer fields than this, so they are never cut.
FIELDS = 64
# What would end the script that holds the JSON, or begin another in it.
ESCAPES = {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"}


def fitted(data: Json) -> tuple[str, list[str]]:
    """As JSON that is not too large, and notes on what is left out for that."""
    rows, longest = ROWS, LONGEST_TEXT
    while True:
        n_left_out: dict[str, int] = {}
        kept = shortened(data, rows, n_left_out)
        n_notes = len(kept["notes"])
        if n_left_out:
            said = ", ".join(f"{n} of {name}" for name, n in n_left_out.items())
            kept["notes"].append(f"rows left out of the page, so that it stays small: {said}")
        kept["left_out"] = n_left_out
        cut_texts(kept, longest)
        encoded = json.dumps(kept, separators=(",", ":"), allow_nan=False)
        for character, escape in ESCAPES.items():
            encoded = encoded.replace(character, escape)
        if len(encoded) <= LARGEST:
            return encoded, kept["notes"][n_notes:]
        rows, longest = rows // 2, longest // 2


def shortened(data: Json, rows: int, n_left_out: dict[str, int]) -> Json:
    """A copy with no more than so many rows in any list but those of the strip."""
    scopes = data["answers"]["by_scope"]["scopes"]

    def copied(value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            items = list(value.items())
            kept = items if path[:1] == ("strip",) else items[: max(rows, FIELDS)]
            count(len(items) - len(kept), path)
            return {key: copied(each, (*path, key)) for key, each in kept}
        if isinstance(value, list):
            if path[0] == "strip" or len(value) <= rows:
                places: Iterable[int] = range(len(value))
            elif path[-1] == "scopes" or path == ("classes", "by_scope"):
                # A scope is no longer than the one it stands in, and comes behind it.
                longest = nlargest(rows, range(len(value)), lambda i: scopes[i]["total_dur_ps"])
                places = sorted(longest)
            else:
                places = around_picked(value, rows) if path[-1] == "steps" else range(rows)
            chosen = [copied(value[place], path) for place in places]
            count(len(value) - len(chosen), path)
            return chosen
        return value

    def count(n: int, path: tuple[str, ...]) -> None:
        if n and path[0] == "answers":
            name = ".".join(path[1:])
            n_left_out[name] = n_left_out.get(name, 0) + n

    kept: Json = copied(data, ())
    return kept


def around_picked(steps: Sequence[Json], n: int) -> range:
    """All other lists begin with what is most important; of this it is the step, and its like."""
    picked = next((i for i, step in enumerate(steps) if "picked" in step), 0)
    first = max(0, min(picked - n // 2, len(steps) - n))
    return range(first, first + n)


def write(out: str, page: bytes) -> None:
    """All of it or nothing: beside it first, and then in its place."""
    target = os.path.realpath(out)
    half = os.path.join(os.path.dirname(target), f".page-{os.getpid()}.part")
    try:
        if os.path.exists(target) and not os.path.isfile(target):
            raise NoAnswer("cant_write", detail=f"{out}: not a regular file")
        with open(half, "xb") as file:
            file.write(page)
        os.replace(half, target)
    except OSError as error:
        raise NoAnswer("cant_write", detail=f"{out}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            os.unlink(half)
