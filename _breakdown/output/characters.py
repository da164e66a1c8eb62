"""Escape characters, measure their width on a terminal, and truncate texts.

Names in a trace can contain any character. Characters are escaped if they move the cursor or change
the writing direction, if they are marks on the letter before them, or if the stream's encoding
lacks them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

# Replacements for characters that the stream's encoding lacks.
IN_ASCII = {"…": "...", "µ": "u", "·": "-", "█": "#"}
MICROSECONDS_RE = re.compile(r"(?<=\d) us\b")
# A path is cut between folders only if at least this width remains.
SHORTEST_PATH = 11


class Characters:
    """The characters that a stream can show with its encoding."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        self._known: dict[str, str] = {}
        self.ellipsis = self.seen("…")
        self.micro = self.seen("µ")

    def _has(self, character: str) -> bool:
        try:
            character.encode(self.encoding)
        except UnicodeEncodeError:
            return False
        return True

    def unit(self, name: str) -> str:
        return f"{self.micro}s" if name == "us" else name

    def prose(self, text: str) -> str:
        """Escape a sentence, and write `us` as tables do (`µs`, if the encoding has it)."""
        return MICROSECONDS_RE.sub(f" {self.micro}s", self.seen(text))

    def seen(self, text: str, longest: int = 0) -> str:
        """Escape the characters that cannot be shown. From a very long text, keep only the start
        and end."""
        if longest and len(text) > 2 * longest:
            text = f"{text[:longest]}{text[-longest:]}"
        if text.isascii() and text.isprintable():
            return text
        return "".join(self._shown(text))

    def _shown(self, text: str) -> Iterator[str]:
        from unicodedata import normalize

        for character in normalize("NFC", text):
            yield self._known.get(character) or self._look_up(character)

    def _look_up(self, character: str) -> str:
        from unicodedata import bidirectional, category

        # Escape right-to-left letters, because they reorder the characters around them, and marks
        # that form no character with the letter before them.
        is_safe = character.isprintable() and bidirectional(character) not in ("R", "AL", "AN")
        is_safe &= category(character) not in ("Mn", "Me")
        shown = character
        if not is_safe or not self._has(character):
            shown = IN_ASCII.get(character) or escaped(character)
        self._known[character] = shown
        return shown

    def width(self, text: str) -> int:
        """Return the width of an escaped text in columns of the terminal."""
        return len(text) if text.isascii() else sum(map(width_of, text))

    def padded(self, text: str, width: int, is_right: bool) -> str:
        pad = " " * (width - self.width(text))
        return pad + text if is_right else text + pad

    def start_of(self, text: str, width: int) -> str:
        """Truncate a text at the end to fit the width."""
        return text[: fitting(text, width)]

    def ends_of(self, text: str, width: int) -> str:
        """Remove the middle of a text. Keep twice as much of the start as of the end, because the
        start is more informative."""
        if self.width(text) <= width:
            return text
        left = width - len(self.ellipsis)
        start = text[: fitting(text, left - left // 3)]
        return f"{start}{self.ellipsis}{self._tail(text, left // 3)}"

    def end_of(self, text: str, width: int) -> str:
        """Truncate a path at the start, if possible between two folders."""
        if self.width(text) <= width:
            return text
        tail = self._tail(text, width - len(self.ellipsis))
        folder = tail[max(tail.find("/"), 0) :]
        is_path = folder.count("/") > 1 and self.width(folder) >= SHORTEST_PATH
        return f"{self.ellipsis}{folder if is_path else tail}"

    def _tail(self, text: str, width: int) -> str:
        return text[len(text) - fitting(reversed(text), width) :]


def escaped(character: str) -> str:
    return character.encode("unicode_escape").decode()


@cache
def width_of(character: str) -> int:
    if character.isascii():
        return 1
    from unicodedata import east_asian_width

    return 2 if east_asian_width(character) in "WF" else 1


def fitting(text: Iterable[str], width: int) -> int:
    """Return how many characters from the start of the text fit into the width."""
    n = 0
    for n, character in enumerate(text, 1):
        width -= width_of(character)
        if width < 0:
            return n - 1
    return n
