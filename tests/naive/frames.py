"""The naive implementation's reading of stacks: which end is which, and whose code a line is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

INNERMOST_FIRST, OUTERMOST_FIRST = "innermost_first", "outermost_first"
LIBRARY_FOLDERS = ("site-packages", "dist-packages")


def frames_in(text: str | None) -> list[str]:
    """As they are written."""
    return [line.strip() for line in (text or "").split("\n") if line.strip()]


def is_number(text: str) -> bool:
    return text != "" and text.strip("0123456789") == ""


def line_of(frame: str) -> str:
    """`file:line` of `file:line:column`; what has no column is left as it is."""
    parts = frame.split(":")
    has_column = len(parts) > 2 and is_number(parts[-1]) and is_number(parts[-2])
    return ":".join(parts[:-1]) if has_column else frame


def file_of(line: str) -> str:
    """Of a `file:line`."""
    file, _, number = line.rpartition(":")
    return file if file and is_number(number) else line


def fits(source: str | None, frame: str) -> bool:
    """Whether a source is that frame's; it may lack the folders."""
    if source is None:
        return False
    return line_of(frame) == source or line_of(frame).endswith(f"/{source}")


def order_told(frames: Sequence[str], source: str | None) -> str | None:
    """By the end of the stack, as written, that alone a source fits."""
    if not frames:
        return None
    match fits(source, frames[0]), fits(source, frames[-1]):
        case True, False:
            return INNERMOST_FIRST
        case False, True:
            return OUTERMOST_FIRST
    return None


def majority(orders: Iterable[str | None]) -> str | None:
    """None if none tells, or they are even."""
    told = list(orders)
    n_inner, n_outer = told.count(INNERMOST_FIRST), told.count(OUTERMOST_FIRST)
    if n_inner == n_outer:
        return None
    return INNERMOST_FIRST if n_inner > n_outer else OUTERMOST_FIRST


def is_own(line: str, own: Sequence[str]) -> bool:
    """Whether a `file:line` is the user's code: by texts in files' names, if there are any."""
    file = file_of(line)
    if own:
        return any(text in file for text in own)
    is_installed = any(folder in LIBRARY_FOLDERS for folder in file.split("/"))
    return not is_installed and "/lib/python3." not in file and not file.startswith("<")


def innermost_own(lines: Sequence[str], own: Sequence[str]) -> str | None:
    """Of lines from the outermost in."""
    return next((line for line in reversed(lines) if is_own(line, own)), None)


@dataclass(frozen=True)
class Place:
    """A line, and from the outermost in all those of the stack that it ends; itself alone where
    there is none."""

    line: str
    lines: tuple[str, ...]

    @staticmethod
    def of(line: str | None, stack: str | None = None) -> Place | None:
        if line is None:
            return None
        return Place(line, tuple(map(line_of, frames_in(stack))) or (line,))
