"""Check the words about causes: gains are estimates, and a cause says two sentences at most."""

from __future__ import annotations

import re
from collections.abc import Iterator

MOST_CHARACTERS, MOST_SENTENCES = 300, 2
MODAL = "(?:would|could|can|may) (?:gain|hide|save|win)"
GAIN = rf"\b(?:gain|hideable|{MODAL}\b|saving\b|costs?\b(?= up to| at))"
BOUND = r"\b(?:up to|upper bound|at most|largest possible|maximum)\b"
# Matches a gain and a bound in one clause, in either order, and a gain of "at least" some time.
BOUNDED_GAIN = re.compile(
    rf"{GAIN}[^.;:]{{0,80}}{BOUND}|{BOUND}[^.;:]{{0,80}}{GAIN}|{GAIN}\w* at least \d+ ?[a-z]s",
    re.IGNORECASE,
)
# Matches the end of a line within a text, a comment or a string that the next line continues.
LINE_END = re.compile(r'[ "]*\n\s*(?:#|//)?\s*(?:f?")?')
# Matches the marks of pages and of code between words.
MARKS = re.compile(r"</?\w[^>]*>|[`|*]")


def faults_of(says: str) -> Iterator[str]:
    """Yield what is wrong with the words of a cause."""
    n_sentences = len(re.findall(r"[.!?](?=\s|$)", says))
    if len(says) > MOST_CHARACTERS:
        yield f"{len(says)} characters: {says}"
    if n_sentences > MOST_SENTENCES or not says.endswith("."):
        yield f"{n_sentences} sentences: {says}"
    if bounded_gains(says) or "at least" in says:
        yield f"an estimate is called a bound: {says}"


def bounded_gains(text: str) -> list[str]:
    """Return the places at which a text calls a gain a bound."""
    words = " ".join(MARKS.sub(" ", LINE_END.sub(" ", text)).split())
    return [found[0] for found in BOUNDED_GAIN.finditer(words)]
