"""Find the names in a trace that a name on the command line means, or that are near it."""

from __future__ import annotations

import heapq
from operator import ne

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from _pipeline.context import Context

N_NEAR = 20


def meant(asked: str, names: Collection[str]) -> str | None:
    """Return the name that is asked for, or the only name that begins so.

    A number is always a whole name: 1 is not short for 12.
    """
    if asked in names or asked.isdecimal():
        return asked if asked in names else None
    longer = [name for name in names if name.startswith(asked)]
    return longer[0] if len(longer) == 1 else None


def taken_for(asked: str, names: Collection[str], option: str, context: Context) -> str | None:
    """Return the name that an option means; add a note if a prefix was given."""
    name = meant(asked, names)
    if name not in (asked, None):
        context.note(f"{option} {asked}: {name} taken, the only name that begins so")
    return name


def nearest(asked: str, names: Iterable[str]) -> list[str]:
    """Return names that contain the text, then those that share the longest beginning."""
    text = asked.lower()

    def how_far(name: str) -> tuple[bool, int, int, str]:
        other = name.lower()
        return text not in other, -n_alike(text, other), len(name), name

    return heapq.nsmallest(N_NEAR, names, key=how_far)


def n_alike(one: Sequence[str], other: Sequence[str]) -> int:
    """Count the items at the start of two sequences that are the same."""
    differs = enumerate(map(ne, one, other))
    return next((i for i, is_other in differs if is_other), min(len(one), len(other)))
