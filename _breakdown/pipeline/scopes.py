"""Parse the path in an op's `tf_op` to a scope: the op's position in the program's structure.

In `jit(step)/transpose(jvp(decoder))/while/body/mlp/dot_general:` the scope is `decoder/mlp` and
the primitive is `dot_general`.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from functools import lru_cache
from sys import intern

from _breakdown.light import NamedTuple
from _breakdown.pipeline.names import common_prefix_length

# Parts of a path that describe how the program runs, not how it is structured.
TRANSFORMATIONS = frozenset(
    "while body cond closed_call checkpoint remat remat2 rematted_computation shard_map pjit"
    " custom_jvp_call custom_vjp_call core_call xla_call xla_pmap main".split()
)
# Matches other such parts: branches of a conditional, and Haliax's name for a loop over an axis.
TRANSFORMATION_RE = re.compile(r"branch_\d+_fun|scan\(.*\)")
# The same names around a scope, as in `checkpoint(mlp)`.
WRAPPERS = frozenset(
    "jit pjit jvp transpose vmap pmap shard_map remat checkpoint rematted_computation closed_call"
    " custom_jvp custom_vjp custom_jvp_call custom_vjp_call".split()
)
# Parts and primitives that follow a repeated scope.
REPEATING = frozenset(("checkpoint", "remat2", "add_any"))
# Matches a function that is compiled by itself, which often belongs to a library.
JITTED = r"jit\([^()]*\)"
# Matches quoted text, separators and brackets. An unpaired quotation mark is an ordinary character.
MARK_RE = re.compile(r"""'[^']*'|"[^"]*"|[()\[\]{}/;]""")
CLOSED_BY = {"(": ")", "[": "]", "{": "}"}


class Scope(NamedTuple):
    """A parsed path: its parts, outermost first, and the primitive at its end, or None."""

    parts: tuple[str, ...]
    primitive: str | None

    @property
    def name(self) -> str:
        return "/".join(self.parts)


# Cache results, because many ops share a path.
@lru_cache(maxsize=1 << 12)
def scope_of(path: str) -> Scope:
    """Parse a path. A `/` separates parts, except within brackets or quotes.

    If several paths are joined by `;`, only the first is parsed.
    """
    outer, _, primitive = path.removesuffix(":").rpartition("/")
    if primitive.isidentifier() and primitive not in REPEATING and outer and ";" not in outer:
        # Many ops differ only in their primitive, so parse their scope once.
        return Scope(scope_of(f"{outer}/").parts, primitive)
    marks = [(found.start(), found[0]) for found in MARK_RE.finditer(path)]
    closing = matched(marks)
    end = end_of_first(marks, closing, len(path))
    path = path[:end].removesuffix(":")
    parts: list[str] = []
    # Start of the current part, and end of the last bracketed text to skip.
    start = skipped = 0
    if path.startswith("jit(") and 3 in closing and ends_part(path, closing[3] + 1, ()):
        # Skip `jit(...)`, which contains the program's name.
        start = skipped = closing[3] + 1
    wrappers: set[int] = set()
    for at, mark in marks:
        if at < skipped or at >= len(path):
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
                skipped = close + 1
    primitive = path[start:]
    is_forward = "jvp(" in path and "transpose(" not in path
    # Thousands of ops can be in the same deep scope, so let their paths share equal parts.
    kept = map(intern, layers_in(parts, primitive, repeats=not is_forward))
    return Scope(tuple(kept), primitive or None)


def common_scope(scopes: Iterable[Scope]) -> Scope:
    """Return the innermost scope that contains all the given scopes."""
    paths = sorted(scope.parts for scope in scopes)
    # All paths in between share what the first and the last share.
    return Scope(paths[0][: common_prefix_length(paths[0], paths[-1])], None)


def merged_layers(scope: str) -> str:
    """Replace numbers with `*`, so that all layers of one kind have the same name."""
    merged: str = re.sub("[0-9]+", "*", scope)
    return merged


def names_layer(path: str) -> bool:
    """Return whether a path has a named scope, not only names of jitted functions."""
    return bool(scope_of(re.sub(JITTED, "", path)).parts)


def layers_in(parts: list[str], primitive: str, repeats: bool) -> list[str]:
    """Return the parts that name layers.

    The backward pass of a checkpoint repeats the scopes around it, as in
    `transpose(jvp(model))/attention/jvp(model)/attention/checkpoint`: with `repeats`, keep them
    once.
    """
    kept: list[str] = []
    # Index in `kept` of the first part since the last transformation.
    first = 0
    for part in parts:
        if part in TRANSFORMATIONS or is_branch_or_scan(part):
            if repeats and part in REPEATING:
                remove_repeat(kept, first)
            first = len(kept)
        elif part:
            kept.append(part)
    if repeats and primitive in REPEATING:
        remove_repeat(kept, first)
    return kept


# Cache results, because scopes are made of a few parts.
@lru_cache(maxsize=1 << 12)
def is_branch_or_scan(part: str) -> bool:
    return TRANSFORMATION_RE.fullmatch(part) is not None


def remove_repeat(parts: list[str], first: int) -> None:
    """If the list ends with a sequence and its repetition, remove the repetition. The sequence
    starts at the index `first` or later."""
    for n in range((len(parts) - first) // 2, 0, -1):
        if parts[-n:] == parts[-2 * n : -n]:
            del parts[-n:]
            return


def matched(marks: list[tuple[int, str]]) -> dict[int, int]:
    """Return the position of each closing bracket, by position of the opening bracket. Unclosed
    brackets are omitted."""
    closing = {}
    opened: list[tuple[int, str]] = []
    for at, mark in marks:
        if mark in CLOSED_BY:
            opened.append((at, CLOSED_BY[mark]))
        elif opened and opened[-1][1] == mark:
            closing[opened.pop()[0]] = at
    return closing


def end_of_first(marks: list[tuple[int, str]], closing: dict[int, int], end: int) -> int:
    """Return the end of the first path in a text that can contain several."""
    skipped = 0
    for at, mark in marks:
        if at >= skipped:
            if mark == ";":
                return at
            skipped = closing.get(at, at) + 1
    return end


def ends_part(path: str, at: int, wrappers: Container[int]) -> bool:
    """Return whether a part of the path ends right before the position `at`."""
    return at >= len(path) or path[at] == "/" or at in wrappers
