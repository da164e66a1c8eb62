"""Compare an op's source line with the lines and scopes of the step's other ops.

The scope of an op comes from its path, and its line from its stack. If the compiler mixes up
stacks, line and scope contradict each other. If an op has no stack, the ops in its scope show its
likely line.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from functools import cache

from _breakdown.light import cached_property
from _breakdown.pipeline.frames import Stack, file_of
from _breakdown.pipeline.scopes import Scope, names_layer, scope_of

Words = frozenset[str]
Path = tuple[str, ...]

WORD_RE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
# Words in the names of files that can contain any layer.
GENERIC = frozenset(
    "model models modeling train trainer training layer layers util utils kernel kernels op ops"
    " common base core main init module modules func function functional lib impl step".split()
)
SHORT_FOR = {"attn": "attention"}
# Longer words match if one is the start of the other, as in `norm` and `normalization`.
LEAST_PREFIX = 4


class Surroundings:
    """The scopes and own lines of a step's ops. Everything is computed on first use."""

    def __init__(self, paths: Iterable[str], lines: Iterable[tuple[str, str, int]]) -> None:
        """Keep the ops' paths, and the path, own line and time of each op with an own line. Both
        are read once, on first use."""
        self._paths, self._paths_with_lines = paths, lines

    def line_near(self, scope: Scope | None) -> str | None:
        """Return the own line with the most time in an op's scope, or else in the nearest
        enclosing scope that has lines. The top level of the program is no scope."""
        path = scope.parts if scope else ()
        for end in range(len(path), 0, -1):
            lines = self._lines.get(path[:end])
            if lines:
                return max(lines, key=lambda line: (lines[line], line))
        return None

    @cached_property
    def _lines(self) -> dict[Path, Counter[str]]:
        """Return the time of each own line, by the scope that directly contains the ops."""
        lines: dict[Path, Counter[str]] = {}
        for path, line, time in self._paths_with_lines:
            lines.setdefault(scope_of(path).parts, Counter())[line] += time
        return lines

    def contradicts(
        self, scope: Scope | None, path: str | None, stack: Stack | None, line: str
    ) -> bool:
        """Return whether a line is in a file that is named after another scope than the op's.

        No word of the file's name is in the op's scope, and one is in another scope. Words that all
        scopes have say nothing. A caller's file that is named after the scope settles the doubt: a
        norm can run in the scope of an attention layer.
        """
        words = words_in(scope.name) if scope else frozenset[str]()
        files = stack.files if stack else ()
        return (
            bool(scope and scope.parts)
            and self.is_elsewhere(line)
            and not have_match(stem_of_line(line), words)
            and not any(have_match(stem_words(file), words) for file in files)
            and names_layer(path or "")
        )

    def is_elsewhere(self, line: str) -> bool:
        """Return whether the name of the line's file has a word of a scope. If not, the line
        contradicts no scope, so the op's scope, which takes longer to find, is not needed."""
        stem = stem_of_line(line)
        return bool(stem) and have_match(stem, self._telling_words)

    @cached_property
    def _telling_words(self) -> Words:
        """Return the words that some scopes have, but not all."""
        scopes = {scope_of(path).name for path in set(self._paths)}
        n_scopes = Counter(word for scope in scopes - {""} for word in words_in(scope))
        return frozenset(word for word, n in n_scopes.items() if n < len(scopes - {""}))


@cache
def words_in(text: str) -> Words:
    """Return the lower-case words of a name, split at capitals and at all other characters."""
    words = (word.lower() for word in WORD_RE.findall(text))
    return frozenset(SHORT_FOR.get(word, word) for word in words)


@cache
def stem_of_line(line: str) -> Words:
    return stem_words(file_of(line))


@cache
def stem_words(file: str) -> Words:
    """Return the words that say what a file is about; none for a file such as `utils.py`."""
    stem = re.split(r"[/\\]", file)[-1].partition(".")[0]
    return words_in(stem) - GENERIC


@cache
def have_match(some: Words, others: Words) -> bool:
    return any(are_alike(one, other) for one in some for other in others)


def are_alike(one: str, other: str) -> bool:
    shorter, longer = sorted((one, other), key=len)
    if len(shorter) < LEAST_PREFIX:
        return shorter == longer and len(shorter) > 1
    return longer.startswith(shorter)
