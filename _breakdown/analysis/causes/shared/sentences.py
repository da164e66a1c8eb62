"""Format figures and source lines for the messages of causes."""

from __future__ import annotations

from collections.abc import Iterable

from _breakdown.analysis.arrays.engine import Gain
from _breakdown.analysis.causes.shared.cause import CausePlace
from _breakdown.analysis.memory.free import Freed
from _breakdown.units import size, span, time

# Longest name in a sentence; with two names of this length, a cause takes 300 characters at most.
_LONGEST_NAME = 41


def saved(gain: Gain, freed: Freed | None) -> str:
    """Format what a change saves; memory comes first, because it can be spent: `500.0 MiB of
    1.50 GiB at the peak of HBM, and about 2.1 ms (1.4 to 3.0 ms)`."""
    if freed is None:
        return about(gain)
    return f"{size(freed.n_bytes)} of {size(freed.peak)} at the peak of HBM, and {about(gain)}"


def about(gain: Gain) -> str:
    """Format an estimate with its range, such as `about 2.1 ms (1.4 to 3.0 ms)`."""
    if gain.low is None or gain.high is None:
        return "an unknown time"
    if gain.low == gain.high:
        return f"about {time(gain.estimate)}"
    return f"about {time(gain.estimate)} ({span(gain.low, gain.high)})"


def clipped(name: str) -> str:
    """Cut the middle out of a long name: a sentence has room for only a few names."""
    if len(name) <= _LONGEST_NAME:
        return name
    half = (_LONGEST_NAME - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def short(line: str) -> str:
    """Return the last two parts of a path, which are enough to identify the file."""
    return clipped("/".join(line.split("/")[-2:]))


def line_says(place: CausePlace) -> str:
    line = place.source_user or place.source_inner
    return short(line) if line else "an unknown line"


def listed(names: list[str]) -> str:
    """Join names as in a sentence, for example `a, b and c`."""
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1])))


def only(names: Iterable[str | None]) -> str | None:
    """Return the name if there is exactly one, otherwise None."""
    found = list(names)
    return found[0] if len(found) == 1 else None
