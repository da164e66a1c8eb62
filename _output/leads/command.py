"""Build a command line that can be run after this one."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

STEP_OPTIONS = ("--step", "--step-id")


def called_as(n_words: int) -> list[str]:
    """Return the part of this process's command line before its `n_words` arguments."""
    folder, name = os.path.split(sys.argv[0])
    if not name.endswith(".py") and folder in os.environ.get("PATH", "").split(os.pathsep):
        # An installed command; the operating system put the interpreter before it.
        return [name]
    return sys.orig_argv[: len(sys.orig_argv) - n_words]


def following(
    start: Sequence[str],
    profile: str,
    given: Sequence[str],
    words: Sequence[str],
    kept: Collection[str],
) -> str:
    """Return the command with new words and those of the `given` options that are to be kept."""
    import shlex

    if not set(STEP_OPTIONS).isdisjoint(words):
        kept = set(kept) - set(STEP_OPTIONS)
    return shlex.join([*start, profile, *words, *options_in(given, set(kept) - set(words))])


def options_in(given: Sequence[str], kept: Collection[str]) -> Iterator[str]:
    """Yield the words of some options; each of these options takes a value."""
    words = iter(given)
    for word in words:
        if word == "--":
            return
        flag, equals, _ = word.partition("=")
        if flag in kept:
            yield word
            if not equals:
                yield next(words)
