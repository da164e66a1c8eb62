"""Find the names in a trace that a name on the command line refers to or is similar to."""

from __future__ import annotations

import heapq
from operator import ne

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from _pipeline.context import Context

N_NEAREST = 20


def resolve_name(name: str, names: Collection[str], option: str, context: Context) -> str | None:
    """Return the name itself, or the only name that begins with `name`, with a note about the
    abbreviation.

    A number is never an abbreviation: 1 does not mean 12.
    """
    if name in names:
        return name
    longer = [] if name.isdecimal() else [other for other in names if other.startswith(name)]
    if len(longer) != 1:
        return None
    context.note(f"{option} {name}: {longer[0]} taken, the only name that begins so")
    return longer[0]


def nearest_names(name: str, names: Iterable[str]) -> list[str]:
    """Return names that contain a text, then the names that share the longest prefix with the
    text."""
    text = name.lower()

    def rank(candidate: str) -> tuple[bool, int, int, str]:
        lower = candidate.lower()
        shared = common_prefix_length(text, lower)
        return text not in lower, -shared, len(candidate), candidate

    return heapq.nsmallest(N_NEAREST, names, key=rank)


def common_prefix_length(first: Sequence[str], second: Sequence[str]) -> int:
    differs = enumerate(map(ne, first, second))
    shorter = min(len(first), len(second))
    return next((i for i, is_different in differs if is_different), shorter)
