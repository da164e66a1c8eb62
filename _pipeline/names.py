"""Names that the command line gives of what is in a trace: what they mean, and what is near."""

from __future__ import annotations

import heapq
from operator import ne

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

N_NEAR = 20


def meant(asked: str, names: Collection[str]) -> str | None:
    """The name that is asked for, or the only one that begins so.

    A number is the whole name: 1 is not short for 12.
    """
    if asked in names or asked.isdecimal():
        return asked if asked in names else None
    longer = [name for name in names if name.startswith(asked)]
    return longer[0] if len(longer) == 1 else None


def taken_for(asked: str, names: Collection[str], what: str, notes: list[str]) -> str | None:
    """The same; of a prefix a note says what it was taken for. `what` says where it was given."""
    name = meant(asked, names)
    if name not in (asked, None):
        notes.append(f"{what} {asked}: {name} taken, the only name that begins so")
    return name


def nearest(asked: str, names: Iterable[str]) -> list[str]:
    """What may have been meant: names that hold the text, then those that begin most alike."""
    text = asked.lower()

    def how_far(name: str) -> tuple[bool, int, int, str]:
        other = name.lower()
        return text not in other, -n_alike(text, other), len(name), name

    return heapq.nsmallest(N_NEAR, names, key=how_far)


def n_alike(one: Sequence[str], other: Sequence[str]) -> int:
    """How many of the first items of two sequences are the same."""
    differs = enumerate(map(ne, one, other))
    return next((i for i, is_other in differs if is_other), min(len(one), len(other)))
