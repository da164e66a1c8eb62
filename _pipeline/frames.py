"""Parse stacks, and find their frame order and the frames in the user's own code.

A capture from March 2025 lists the outermost frame first; captures from January 2026 list the
innermost frame first. A trace does not declare the order, but most ops also have a `source`, which
is the innermost frame.
"""

from __future__ import annotations

import re
from functools import lru_cache

from _pipeline.texts import digest_of
from _proto.cached import cached_property

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Final, Literal

    StackOrder = Literal["outermost_first", "innermost_first"]

OUTERMOST_FIRST: Final = "outermost_first"
INNERMOST_FIRST: Final = "innermost_first"

NUMBERS_RE = re.compile(r"(?::\d+){1,2}\Z")
# Matches files of installed packages and of Python itself.
LIBRARY_RE = re.compile(r"\A<|(?:\A|/)(?:site|dist)-packages(?:/|\Z)|/lib/python3\.")


class Stack:
    """A stack of at least one frame, each in the form `file:line:column`."""

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


# Cache results, because many ops share a stack.
@lru_cache(maxsize=1 << 12)
def stack_of(text: str) -> Stack | None:
    """Parse a stack, keeping the trace's frame order; return None if the text has no frames."""
    frames = tuple(frame for line in text.split("\n") if (frame := line.strip()))
    return Stack(frames) if frames else None


def line_of(frame: str) -> str:
    """Return `file:line` of a frame."""
    line, _, column = frame.rpartition(":")
    is_whole = column.isdecimal() and line.rpartition(":")[2].isdecimal() and ":" in line
    return line if is_whole else frame


def file_of(frame: str) -> str:
    numbers = NUMBERS_RE.search(frame)
    return frame[: numbers.start()] if numbers else frame


def fits(source: str, frame: str) -> bool:
    """Return whether a frame is at `source`. Some profilers omit the folder in `source`."""
    line = line_of(frame)
    return line == source or line.endswith(f"/{source}")


def order_shown_by(stack: Stack, source: str | None) -> StackOrder | None:
    """Return a stack's frame order if `source` matches either its first or its last frame, but not
    both."""
    if not source:
        return None
    is_first, is_last = fits(source, stack.frames[0]), fits(source, stack.frames[-1])
    if is_first == is_last:
        return None
    return INNERMOST_FIRST if is_first else OUTERMOST_FIRST


def majority(orders: Iterable[StackOrder | None]) -> StackOrder | None:
    """Return the more frequent order, or None if neither is more frequent."""
    lead = 0
    for order in orders:
        lead += (order == INNERMOST_FIRST) - (order == OUTERMOST_FIRST)
    return (INNERMOST_FIRST if lead > 0 else OUTERMOST_FIRST) if lead else None


def is_not_library(file: str) -> bool:
    return LIBRARY_RE.search(file) is None


def own_code(texts: Sequence[str]) -> Callable[[str], bool]:
    """Return a predicate that recognises the user's own files.

    A file is the user's own if its name contains one of the texts. If no texts are given, every
    file outside libraries is the user's own.
    """
    return (lambda file: any(text in file for text in texts)) if texts else is_not_library


def innermost_own(frames: Sequence[str], is_own: Callable[[str], bool]) -> str | None:
    """Return `file:line` of the innermost frame in the user's own code. Frames must be listed
    outermost first."""
    return next((line_of(frame) for frame in reversed(frames) if is_own(file_of(frame))), None)
