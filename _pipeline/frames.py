"""The frames of a stack: in which order a trace has them, and which of them is the user's.

Profilers differ. A capture of March 2025 lists the outermost frame first, those of January 2026
the innermost. Nothing in a trace says which; but most ops have a `source` beside their stack, and
that is the innermost frame.
"""

from __future__ import annotations

import re
from functools import lru_cache

from _pipeline.texts import digest_of
from _proto.record import cached_property

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Final, Literal

    StackOrder = Literal["outermost_first", "innermost_first"]

OUTERMOST_FIRST: Final = "outermost_first"
INNERMOST_FIRST: Final = "innermost_first"

NUMBERS_RE = re.compile(r"(?::\d+){1,2}\Z")
# Of what is installed beside the user's own code, and of Python itself.
LIBRARY_RE = re.compile(r"\A<|(?:\A|/)(?:site|dist)-packages(?:/|\Z)|/lib/python3\.")


class Stack:
    """Frames `file:line:column`, one at the least."""

    def __init__(self, frames: tuple[str, ...]) -> None:
        self.frames = frames

    @cached_property
    def backwards(self) -> Stack:
        return Stack(self.frames[::-1])

    @cached_property
    def text(self) -> str:
        return "\n".join(self.frames)

    @cached_property
    def digest(self) -> str:
        return digest_of(self.text)


# Many ops have one stack.
@lru_cache(maxsize=1 << 12)
def stack_of(text: str) -> Stack | None:
    """The frames in the order in which they stand; None where there are none."""
    frames = tuple(frame for line in text.split("\n") if (frame := line.strip()))
    return Stack(frames) if frames else None


def line_of(frame: str) -> str:
    """A frame cut to `file:line`."""
    line, _, column = frame.rpartition(":")
    is_whole = column.isdecimal() and line.rpartition(":")[2].isdecimal() and ":" in line
    return line if is_whole else frame


def file_of(frame: str) -> str:
    numbers = NUMBERS_RE.search(frame)
    return frame[: numbers.start()] if numbers else frame


def fits(source: str, frame: str) -> bool:
    """Whether a `file:line` is that of a frame; some writers give the file's name alone."""
    line = line_of(frame)
    return line == source or line.endswith(f"/{source}")


def order_shown_by(stack: Stack, source: str | None) -> StackOrder | None:
    """Return the order of a stack if `source` matches only its first or only its last frame."""
    if not source:
        return None
    is_first, is_last = fits(source, stack.frames[0]), fits(source, stack.frames[-1])
    if is_first == is_last:
        return None
    return INNERMOST_FIRST if is_first else OUTERMOST_FIRST


def majority(orders: Iterable[StackOrder | None]) -> StackOrder | None:
    """The order that most have; None where none has one, or they are even."""
    lead = 0
    for order in orders:
        lead += (order == INNERMOST_FIRST) - (order == OUTERMOST_FIRST)
    return (INNERMOST_FIRST if lead > 0 else OUTERMOST_FIRST) if lead else None


def is_not_library(file: str) -> bool:
    return LIBRARY_RE.search(file) is None


def own_code(texts: Sequence[str]) -> Callable[[str], bool]:
    """What tells whether a file is the user's own: one that has one of these texts in its name;
    without texts, all that isn't a library's."""
    return (lambda file: any(text in file for text in texts)) if texts else is_not_library


def innermost_own(frames: Sequence[str], is_own: Callable[[str], bool]) -> str | None:
    """Of frames with the outermost first, the line of the last that is the user's own."""
    return next((line_of(frame) for frame in reversed(frames) if is_own(file_of(frame))), None)
