"""Resolve abbreviated names from the command line, and suggest similar names."""

from __future__ import annotations

from _breakdown.light import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from _breakdown.pipeline.context import Context

N_NEAREST = 20


def resolve_name(name: str, names: Collection[str], option: str, context: Context) -> str | None:
    """Return `name` if it exists, or the only name that begins with it, or None. Add a note if
    `name` was an abbreviation.

    A number is never an abbreviation: 1 does not mean 12.
    """
    if name in names:
        return name
    longer = [] if name.isdecimal() else [other for other in names if other.startswith(name)]
    if len(longer) != 1:
        return None
    context.note(f"{option} {name}: using {longer[0]}, the only name with this prefix")
    return longer[0]


def suggestion(name: str, names: Collection[str]) -> str:
    """Return `; did you mean …?` if `name` is a likely misspelling, else an empty text.

    Do not suggest names that differ only in numbers.
    """
    import re
    from difflib import get_close_matches

    without_numbers = re.sub(r"\d+", "#", name)
    others = [other for other in names if re.sub(r"\d+", "#", other) != without_numbers]
    close = [other for other in others if other.startswith(name)]
    close += get_close_matches(name, others, n=1, cutoff=0.7)
    return f"; did you mean {close[0]}?" if close else ""


def nearest_names(name: str, names: Iterable[str]) -> list[str]:
    """Return names similar to a text: first those that contain it, then those that share most
    sequences of three letters with it. Otherwise, keep the order of the names."""
    text = name.lower()
    wanted = triples_of(text)

    def rank(candidate: str) -> tuple[bool, float]:
        lower = candidate.lower()
        found = triples_of(lower)
        return text not in lower, -len(wanted & found) / max(1, len(wanted | found))

    return sorted(names, key=rank)[:N_NEAREST]


def triples_of(text: str) -> set[str]:
    return {text[i : i + 3] for i in range(len(text) - 2)}


def common_prefix_length(first: Sequence[str], second: Sequence[str]) -> int:
    pairs = enumerate(zip(first, second, strict=False))
    shorter = min(len(first), len(second))
    return next((i for i, (one, other) in pairs if one != other), shorter)
