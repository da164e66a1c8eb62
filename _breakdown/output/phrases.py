"""Format an answer's figures and names as parts of English sentences."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from _breakdown.light import NamedTuple
from _breakdown.units import percentage, span, time

LONGEST_HEADLINE, LONGEST_NAME = 320, 60
# Fields with the line of a row. Headlines and tables show the first one that has a value: the line
# of the user's own code, else the innermost line.
LINE: Final = ("source_user", "source_inner")


class Next(NamedTuple):
    """A command that is worth running next: the mode, the options, and the PROFILE if it is not the
    first one of the present command."""

    why: str
    words: tuple[str, ...]
    profile: str | None = None


def bracketed(share: float | None) -> str:
    """Format a percentage in parentheses, such as ` (16.0 %)`; empty if unknown."""
    return "" if share is None else f" ({percentage(share)})"


def pause_sentence(answer: Mapping[str, Any]) -> str:
    """Return a sentence about the pauses between steps; empty if they take at most 1 % of the
    time."""
    pauses, period, mean = answer["pauses"], answer["period_ps"], answer["between_steps_ps"]
    if not pauses or not period or not mean or 100 * mean <= period:
        return ""
    share = bracketed(pauses["pct_of_period"])
    if pauses["n"] == pauses["n_gaps"] and not differs(mean, answer["between_steps_median_ps"]):
        return f"A step starts every {time(period)}, with a pause of {time(mean)}{share}."
    how_often = f"{span(pauses['min_ps'], pauses['max_ps'])} {pauses['when']}"
    return (
        f"On average, a step starts every {time(period)}, and {time(mean)}{share} pass between"
        f" steps: {how_often}."
    )


def differs(mean_ps: int | None, median_ps: int | None) -> bool:
    """Return whether a mean and a median differ by more than 5 %, so that both are shown."""
    mean, median = mean_ps or 0, median_ps or 0
    return 20 * abs(mean - median) > median


def short_path(place: str) -> str:
    """Shorten a path to its last two parts, such as `…/layers/attention.py:15`."""
    parts = place.rsplit("/", 2)
    return short(f"…/{parts[1]}/{parts[2]}" if len(parts) == 3 and parts[0] else place)


def short(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return name
    half = (LONGEST_NAME - 1) // 2
    return f"{name[:half]}…{name[-half:]}"


def at_line_of(row: Mapping[str, object], answer: Mapping[str, Any] | None = None) -> str:
    """Return ` at LINE` for a row of a table, or nothing if its line is unknown. If one line has
    most of the step's time, name the scope first."""
    line = next((line for line in map(row.get, LINE) if isinstance(line, str)), None)
    scope, n_scopes = row.get("scope"), row.get("n_scopes")
    if line and row.get("source_is") == "doubtful":
        return f"{at(line)} (?)"
    if not line or not isinstance(scope, str) or not answer or not answer["totals"]["common_line"]:
        return at(line)
    if isinstance(n_scopes, int) and n_scopes > 1 and "*" not in scope:
        scope = f"{short(scope)} ({n_scopes} scopes)" if scope else f"{n_scopes} scopes"
    return f" in {scope}, {line.rpartition('/')[2]}" if scope else at(line)


def at(place: str | None) -> str:
    """Return ` at LINE`, or nothing if the line is unknown."""
    return f" at {short_path(place)}" if place else ""


def with_assumption(headline: str, answer: Mapping[str, Any]) -> str:
    """Add to a headline that the chip is unknown, if the answer's figures depend on it. Leave out
    the last sentences that would make it too long."""
    if not answer.get("chip_is_assumed"):
        return headline
    told = f"The chip is unknown; {answer['chip']} is assumed (--chip)."
    sentences = sentences_of(headline)
    while len(" ".join([*sentences, told])) > LONGEST_HEADLINE and len(sentences) > 1:
        sentences.pop()
    return " ".join([*sentences, told])


def sentences_of(text: str) -> list[str]:
    """Split a text after each full stop that a capital letter follows, unlike after `e.g.`."""
    return re.split(r"(?<=\.) (?=[A-Z])", text)


def capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def joined(sentences: Iterable[str]) -> str:
    """Join the sentences, skipping those after the first that would exceed LONGEST_HEADLINE
    characters."""
    headline = ""
    for sentence in sentences:
        longer = f"{headline} {sentence}".strip()
        if not headline or len(longer) <= LONGEST_HEADLINE:
            headline = longer
    return headline
