"""Format figures and source lines for the messages of causes."""

from __future__ import annotations

from _pipeline.groups import percent
from _pipeline.units import with_unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

    from _analysis.causes.step_program import Place
    from _pipeline.normalize import Step

# Longest name in a sentence; with two names of this length, a cause takes 300 characters at most.
_LONGEST_NAME = 41


def duration(ps: int) -> str:
    """Format a time with three digits and a unit, such as `13.3 ms`."""
    return with_unit(ps, digits=3)


def size(n_bytes: int) -> str:
    """Format a number of bytes with a unit, such as `524 MB`."""
    for unit, factor in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= factor:
            return f"{n_bytes / factor:.{1 if n_bytes < 100 * factor else 0}f} {unit}"
    return f"{n_bytes} B"


def about(ps: int, step: Step) -> str:
    """Format an estimate with its share, such as `about 13.3 ms (4.2 % of the step)`."""
    return f"about {duration(ps)} ({percent_of(ps, step)} of the step)"


def percent_of(ps: int, step: Step) -> str:
    return f"{percent(ps, step.duration) or 0:.1f} %"


def clipped(name: str) -> str:
    """Cut the middle out of a long name: a sentence has room for only a few names."""
    if len(name) <= _LONGEST_NAME:
        return name
    half = (_LONGEST_NAME - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def short(line: str) -> str:
    """Return the last two parts of a path, which are enough to identify the file."""
    return clipped("/".join(line.split("/")[-2:]))


def line_says(place: Place) -> str:
    line = place.source_user or place.source_inner
    return short(line) if line else "an unknown line"


def listed(names: list[str]) -> str:
    """Join names as in a sentence, for example `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def only(names: Iterable[str | None]) -> str | None:
    """Return the name if there is exactly one, otherwise None."""
    found = list(names)
    return found[0] if len(found) == 1 else None
