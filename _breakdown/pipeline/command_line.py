"""Read the words of a command line, describe its options, and write the short help.

`argparse` would take longer than all else in `--help`, and its messages do not say what to do.
"""

from __future__ import annotations

import os
import sys

from _breakdown.light import TYPE_CHECKING, NamedTuple
from _breakdown.pipeline.names import suggestion
from _breakdown.pipeline.no_answer import BAD_ARGUMENTS, NoAnswer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from typing import Any

# Columns of the help: the start of the texts, and the width of a line.
TEXT_COLUMN, WIDTH = 24, 80


class Option(NamedTuple):
    """An option of the command line."""

    help: str
    # The value as `--help` shows it. Without it, the option takes no value on the command line.
    metavar: str = ""
    # Converts a word to the value, or raises ValueError with words that follow the option's name.
    convert: Callable[[str], Any] = str
    # If true, the option can be passed several times, and its value is a list.
    repeats: bool = False
    # The name of the value, if it differs from the option's name.
    name: str = ""
    # The value of an option that takes none on the command line.
    constant: Any = True


def wrong(detail: str) -> NoAnswer:
    """Return the exception for a mistake in the command line."""
    return NoAnswer(BAD_ARGUMENTS, detail=detail)


def is_flag(word: str) -> bool:
    """Return whether a word is the name of an option: `-` is stdin, and `-1` and `-3:` are
    values."""
    return word.startswith("--") or (word.startswith("-") and word[1:2].isalpha())


def name_of(flag: str, option: Option) -> str:
    """Return the name of an option's value among the arguments of a mode's function."""
    return option.name or flag.removeprefix("--").replace("-", "_")


def uses(
    words: Sequence[str], options: Mapping[str, Option], meant: Mapping[str, str]
) -> Iterator[tuple[str, Any]]:
    """Yield each option with its value, and all other words with an empty name of an option.
    `meant` has what to write instead of some unknown options."""
    rest = iter(words)
    for word in rest:
        flag, equals, text = word.partition("=")
        option = options.get(flag)
        if word == "--":
            yield from (("", other) for other in rest)
        elif not is_flag(word):
            yield "", word
        elif option is None:
            hint = f"; write {meant[flag]}" if flag in meant else suggestion(flag, options)
            raise wrong(f"unknown option {flag}{hint}")
        elif option.metavar:
            if not equals:
                text = next(rest, "--")
                if is_flag(text):
                    raise wrong(f"{flag} requires a value; write {flag}={option.metavar}")
            try:
                yield flag, option.convert(text)
            except ValueError as error:
                raise wrong(f"{flag} {error}") from None
        elif equals:
            raise wrong(f"{flag} takes no value, got {text!r}")
        else:
            yield flag, option.constant


def help_rows(options: Mapping[str, Option]) -> Iterator[str]:
    """Yield the lines of `--help` about options."""
    for flag, option in options.items():
        start = f"  {flag} {option.metavar}".rstrip()
        if len(start) > TEXT_COLUMN - 2:
            yield start
            start = ""
        for line in filled(option.help, WIDTH - TEXT_COLUMN):
            yield f"{start:{TEXT_COLUMN}}{line}"
            start = ""


def filled(text: str, width: int) -> Iterator[str]:
    """Break a text into lines."""
    line = ""
    for word in text.split():
        if line and len(line) + 1 + len(word) > width:
            yield line
            line = word
        else:
            line = f"{line} {word}".lstrip()
    yield line


def program_name() -> str:
    """Return the command that started this process, as shown in the usage line."""
    spec = sys.modules["__main__"].__spec__
    # A program in a zip archive also has a spec, with the name `__main__`.
    if spec is not None and spec.name != "__main__":
        return "python -m compute_breakdown"
    return os.path.basename(sys.argv[0])


def short_help(modes: Sequence[str]) -> str:
    """Return what the command prints without arguments."""
    name = program_name()
    return f"""\
{name} PROFILE                      where the step loses time
{name} PROFILE --baseline PROFILE   what a change did
{name} PROFILE --mode MODE          one of the modes below
{name} PROFILE --mode page --out step.html   an HTML report
{name} --help                       all options

PROFILE is an .xplane.pb file, or a run or log directory with such files.
modes: {", ".join(modes[:9])},
       {", ".join(modes[9:])}
"""
