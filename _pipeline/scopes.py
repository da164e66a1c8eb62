"""The scope of an op: where in the program's own structure it stands, by the path of its `tf_op`.

Of `jit(step)/transpose(jvp(decoder))/while/body/mlp/dot_general:` that is `decoder/mlp`, and
`dot_general` the primitive.
"""

from __future__ import annotations

import re
from functools import lru_cache
from sys import intern
from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container

# How a program has its parts run, not what they are.
TRANSFORMATIONS = frozenset(
    "while body cond closed_call checkpoint remat remat2 rematted_computation shard_map pjit"
    " custom_jvp_call custom_vjp_call core_call xla_call xla_pmap main".split()
)
WRAPPERS = frozenset("jit jvp transpose vmap pmap".split())
# What is quoted, and else what splits a path or brackets a part of it. A quote that is not closed
# is a character like any other.
MARK_RE = re.compile(r"""'[^']*'|"[^"]*"|[()\[\]{}/;]""")
CLOSED_BY = {"(": ")", "[": "]", "{": "}"}


class Scope(NamedTuple):
    """The parts of a path, outermost first, and the primitive at its end, if it has one."""

    parts: tuple[str, ...]
    primitive: str | None

    @property
    def name(self) -> str:
        return "/".join(self.parts)


# Many ops have one path.
@lru_cache(maxsize=1 << 12)
def scope_of(path: str) -> Scope:
    """Take a path apart. A `/` splits it, but for one in brackets or quotes; of several paths,
    joined by `;`, the first counts."""
    marks = [(found.start(), found[0]) for found in MARK_RE.finditer(path)]
    closing = matched(marks)
    end = end_of_first(marks, closing, len(path))
    path = path[:end].removesuffix(":")
    parts: list[str] = []
    # Where the current part begins, and up to where all stands in brackets.
    start = passed = 0
    if path.startswith("jit(") and 3 in closing and ends_part(path, closing[3] + 1, ()):
        # The program's own name.
        start = passed = closing[3] + 1
    wrappers: set[int] = set()
    for at, mark in marks:
        if at < passed or at >= len(path):
            continue
        if at in wrappers or mark == "/":
            parts.append(path[start:at])
            start = at + 1
        elif at in closing:
            close = closing[at]
            if path[start:at] in WRAPPERS and ends_part(path, close + 1, wrappers):
                wrappers.add(close)
                start = at + 1
            else:
                passed = close + 1
    # Thousands of ops may stand in one deep scope, each by a path of its own.
    kept = (intern(part) for part in parts if part and part not in TRANSFORMATIONS)
    return Scope(tuple(kept), path[start:] or None)


def matched(marks: list[tuple[int, str]]) -> dict[int, int]:
    """Where each bracket is closed, if it is."""
    closing = {}
    opened: list[tuple[int, str]] = []
    for at, mark in marks:
        if mark in CLOSED_BY:
            opened.append((at, CLOSED_BY[mark]))
        elif opened and opened[-1][1] == mark:
            closing[opened.pop()[0]] = at
    return closing


def end_of_first(marks: list[tuple[int, str]], closing: dict[int, int], end: int) -> int:
    """Where the first of several paths ends."""
    passed = 0
    for at, mark in marks:
        if at >= passed:
            if mark == ";":
                return at
            passed = closing.get(at, at) + 1
    return end


def ends_part(path: str, at: int, wrappers: Container[int]) -> bool:
    """Whether a part of a path ends before this place."""
    return at >= len(path) or path[at] == "/" or at in wrappers
