"""The naive implementation's scopes: the part of the model that a path in the program's names is.

A path is taken apart by a small recursion: split where no bracket or quote is open, and what a
wrapper holds split again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

WRAPPERS = ("jit(", "jvp(", "transpose(", "vmap(", "pmap(")
# What only says how a program is run.
RUNNING = (
    "while body cond closed_call checkpoint remat remat2 rematted_computation shard_map pjit "
    "custom_jvp_call custom_vjp_call core_call xla_call xla_pmap main"
).split()
OPENING = {"(": ")", "[": "]", "{": "}", "'": "'", '"': '"'}


def depths(text: str) -> list[int]:
    """How many brackets and quotes are open behind each character."""
    still_open: list[str] = []  # what would close each
    found = []
    for character in text:
        is_quoted = still_open[-1:] in (["'"], ['"'])
        if still_open and character == still_open[-1]:
            still_open.pop()
        elif not is_quoted and character in OPENING:
            still_open.append(OPENING[character])
        found.append(len(still_open))
    return found


def split(text: str, separator: str) -> list[str]:
    """At each separator that stands outside of brackets and quotes."""
    depth = depths(text)
    cuts = [i for i, c in enumerate(text) if c == separator and depth[i] == 0]
    begins, ends = [0, *(cut + 1 for cut in cuts)], [*cuts, len(text)]
    return [text[begin:end] for begin, end in zip(begins, ends, strict=True)]


def inside(part: str) -> str | None:
    """What a wrapper around all of it holds; None where there is none."""
    for wrapper in WRAPPERS:
        within = depths(part)[len(wrapper) - 1 :]
        if part.startswith(wrapper) and 0 in within and within.index(0) == len(within) - 1:
            return part[len(wrapper) : -1]
    return None


def unwrapped(text: str) -> Iterator[str]:
    for part in split(text, "/"):
        held = inside(part)
        if held is None:
            yield part
        else:
            yield from unwrapped(held)


@dataclass(frozen=True)
class Scope:
    """What of a path names parts of the model, and what behind them the primitive."""

    parts: tuple[str, ...]
    primitive: str | None

    @property
    def name(self) -> str:
        """The parts joined again; the root's is `""`."""
        return "/".join(self.parts)


def scope_of(path: str) -> Scope:
    first = split(path, ";")[0]
    parts = split(first.removesuffix(":"), "/")
    is_named = parts[0].startswith("jit(") and inside(parts[0]) is not None
    parts = parts[1:] if is_named else parts
    primitive = parts.pop() if parts and inside(parts[-1]) is None else ""
    scopes = unwrapped("/".join(parts))
    kept = tuple(part for part in scopes if part and part not in RUNNING)
    return Scope(kept, primitive or None)
