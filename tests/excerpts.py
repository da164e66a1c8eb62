"""Compare excerpts on the pages with complete answers; a bare `…` marks omitted parts."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

ELLIPSIS = "…"
TOKEN_RE = re.compile(r'"(?:[^"\\]|\\.)*"|.', re.DOTALL)


def parse_excerpt(text: str) -> Any:
    """Parse JSON in which a bare `…` marks omitted elements or members."""
    out = []
    open_brackets = ""
    for token in TOKEN_RE.findall(text):
        if token in "[{":
            open_brackets += token
        elif token in "]}":
            open_brackets = open_brackets[:-1]
        out.append(token)
        if token == ELLIPSIS:
            out[-1] = f'"{ELLIPSIS}"' + (": null" if open_brackets[-1] == "{" else "")
    return json.loads("".join(out))


def is_excerpt(excerpt: Any, whole: Any) -> bool:
    """Return True if the excerpt equals `whole` apart from parts omitted with `…`."""
    match excerpt, whole:
        case dict(), dict():
            shown = [name for name in excerpt if name != ELLIPSIS]
            return (
                shown == [name for name in whole if name in excerpt]
                and (ELLIPSIS in excerpt or len(shown) == len(whole))
                and all(is_excerpt(excerpt[name], whole[name]) for name in shown)
            )
        case list(), list():
            return is_part_of_list(excerpt, whole)
        case str(), str() if ELLIPSIS in excerpt:
            parts = ".*".join(map(re.escape, excerpt.split(ELLIPSIS)))
            return re.fullmatch(parts, whole, re.DOTALL) is not None
        case _:
            return type(excerpt) is type(whole) and bool(excerpt == whole)


def is_part_of_list(excerpt: Sequence[Any], whole: Sequence[Any]) -> bool:
    if not excerpt:
        return not whole
    if excerpt[0] == ELLIPSIS:
        return any(is_part_of_list(excerpt[1:], whole[i:]) for i in range(len(whole) + 1))
    return (
        bool(whole) and is_excerpt(excerpt[0], whole[0]) and is_part_of_list(excerpt[1:], whole[1:])
    )


def first_difference(excerpt: Any, whole: Any, path: str = "") -> str:
    """Return the path and text of the first part of the excerpt that differs from `whole`."""
    if isinstance(excerpt, dict) and isinstance(whole, dict):
        for name, value in excerpt.items():
            if name != ELLIPSIS and not is_excerpt(value, whole.get(name)):
                return first_difference(value, whole.get(name), f"{path}.{name}")
    return f"{path or '.'}: {json.dumps(excerpt, ensure_ascii=False)[:300]}"


def missing_text(shown: str, printed: str) -> str | None:
    """Return the first passage of `shown` that `printed` lacks; lines with only `…` separate
    passages.

    The first passage must be at the beginning of `printed`.
    """
    at = 0
    for i, passage in enumerate(re.split(rf"^{ELLIPSIS}\n", shown, flags=re.MULTILINE)):
        found = printed.find(passage, at)
        if found < 0 or (i == 0 and found > 0):
            return passage
        at = found + len(passage)
    return None
