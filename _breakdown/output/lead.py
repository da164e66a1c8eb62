"""Add the headline and the next steps to an answer, and build the commands of the next steps."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final

from _breakdown.output.phrases import joined, with_assumption

Json = dict[str, Any]

MOST_STEPS: Final = 3
# Fields that are printed before the headline and the next steps.
FIRST: Final = ("status", "mode", "schema_version")
STEP_OPTIONS = ("--step", "--step-id")


def with_lead(
    answer: Json, module: Any, command_of: Callable[[Sequence[str], str | None], str] | None
) -> Json:
    """Return the answer with the headline and next steps from `module`, the mode's file. The next
    steps are an empty list if `command_of` is None."""
    commands = []
    if command_of:
        steps = list(module.next_steps(answer))[:MOST_STEPS]
        commands = [
            {"why": step.why, "command": command_of(step.words, step.profile)} for step in steps
        ]
    return {
        **{name: answer[name] for name in FIRST},
        "headline": headline_of(module, answer),
        "next_steps": commands,
        **{name: value for name, value in answer.items() if name not in FIRST},
    }


def headline_of(module: Any, answer: Json) -> str:
    return with_assumption(joined(module.sentences(answer)), answer)


def called_as(n_words: int) -> list[str]:
    """Return the process's command line without the last `n_words` arguments."""
    folder, name = os.path.split(sys.argv[0])
    if "." not in name:
        # Omit the interpreter, which the operating system puts before an installed command.
        in_path = folder in os.environ.get("PATH", "").split(os.pathsep)
        return [name if in_path else sys.argv[0]]
    return sys.orig_argv[: len(sys.orig_argv) - n_words]


def from_python() -> list[str]:
    """Return the start of a command for use when a Python program imported this package."""
    python = sys.executable or "python3"
    script = os.path.realpath(os.path.join(os.path.dirname(__file__), "../../compute_breakdown.py"))
    # The installed package has no file `compute_breakdown.py`.
    return [python, script] if os.path.isfile(script) else [python, "-m", "compute_breakdown"]


def following(
    start: Sequence[str],
    profile: str,
    given: Sequence[str],
    words: Sequence[str],
    kept: Collection[str],
) -> str:
    """Build a command from new words and those of the `given` options that are in `kept`."""
    if not set(STEP_OPTIONS).isdisjoint(words):
        kept = set(kept) - set(STEP_OPTIONS)
    options = options_in(given, set(kept) - set(words))
    return " ".join(map(quoted, [*start, profile, *words, *options]))


def quoted(word: str) -> str:
    """Quote a word for a shell. Bytes that are not UTF-8 are written as bash and zsh read them."""
    # Import late, because the module takes 2 ms.
    import shlex

    if not any("\udc80" <= char <= "\udcff" for char in word):
        return shlex.quote(word)
    codes = (rf"\x{byte:02x}" if byte > 126 else chr(byte) for byte in os.fsencode(word))
    return "$'" + "".join({"'": r"\'", "\\": r"\\"}.get(code, code) for code in codes) + "'"


def options_in(given: Sequence[str], kept: Collection[str]) -> Iterator[str]:
    """Yield the words in `given` that belong to the options in `kept`; each of these
    options takes a value."""
    words = iter(given)
    for word in words:
        if word == "--":
            return
        flag, equals, _ = word.partition("=")
        if flag in kept:
            yield word
            if not equals:
                yield next(words)
