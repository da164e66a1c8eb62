"""Determine which end of a stack is innermost, and which lines are the user's code."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

INNERMOST_FIRST, OUTERMOST_FIRST = "innermost_first", "outermost_first"
PACKAGE_FOLDERS = ("site-packages", "dist-packages")
ARCHIVES = (".egg", ".whl", ".zip", ".pyz", ".pex")
# The plumbing packages in the traces of the tests, and folders that only these packages have.
PLUMBING = (
    *("absl", "einops", "equinox", "flax", "haliax", "haiku", "jax", "jmp", "keras", "optax"),
    *("optree", "torch", "torchax"),
)
CLONES = (("flax", "linen"), ("jax", "_src"), ("keras", "src"), ("torchax", "ops"))


def frames_in(text: str | None) -> list[str]:
    """Return the frames in the order of the text."""
    return [line.strip() for line in (text or "").split("\n") if line.strip()]


def is_number(text: str) -> bool:
    return text != "" and text.strip("0123456789") == ""


def line_of(frame: str) -> str:
    """Remove the column from `file:line:column`."""
    parts = frame.split(":")
    has_column = len(parts) > 2 and is_number(parts[-1]) and is_number(parts[-2])
    return ":".join(parts[:-1]) if has_column else frame


def file_of(line: str) -> str:
    """Return the file name in `file:line`."""
    file, _, number = line.rpartition(":")
    return file if file and is_number(number) else line


def fits(source: str | None, frame: str) -> bool:
    """Return True if a source is the line of a frame; the source may lack leading folders."""
    if source is None:
        return False
    return line_of(frame) == source or line_of(frame).endswith(f"/{source}")


def known_order(frames: Sequence[str], source: str | None) -> str | None:
    """Return the frame order if the source matches exactly one end of the stack."""
    if not frames:
        return None
    match fits(source, frames[0]), fits(source, frames[-1]):
        case True, False:
            return INNERMOST_FIRST
        case False, True:
            return OUTERMOST_FIRST
    return None


def majority(orders: Iterable[str | None]) -> str | None:
    """Return the more frequent order, or None for a tie."""
    known = list(orders)
    n_inner, n_outer = known.count(INNERMOST_FIRST), known.count(OUTERMOST_FIRST)
    if n_inner == n_outer:
        return None
    return INNERMOST_FIRST if n_inner > n_outer else OUTERMOST_FIRST


def is_own(line: str, own: Sequence[str]) -> bool:
    """Return True if a `file:line` is user code; `own` has substrings of the user's file names."""
    file = file_of(line)
    if own:
        return any(text in file for text in own)
    if file[:1] == "<":
        return file[1:14] == "ipython-input"
    parts = file.replace("\\", "/").split("/")
    package = package_in(parts)
    if package is None and is_python(parts):
        return False
    is_clone = any(pair in CLONES for pair in pairwise(parts[:-1]))
    return package not in PLUMBING and not is_clone


def package_in(parts: Sequence[str]) -> str | None:
    """Return the installed package that a file belongs to, or None."""
    for i in range(len(parts) - 2, -1, -1):
        is_archive = parts[i].endswith(ARCHIVES) and not parts[i].startswith("python3")
        in_monorepo = parts[i] == "py" and parts[max(i - 1, 0)] == "third_party"
        if parts[i] in PACKAGE_FOLDERS or is_archive or in_monorepo:
            return parts[i + 1].removesuffix(".py")
    return None


def is_python(parts: Sequence[str]) -> bool:
    """Return True if a file is part of Python: in `/lib/python3.N/`, `Python3N/Lib/` or an archive
    `python3N.zip`."""
    for before, part in pairwise(parts[:-1]):
        if before in ("lib", "lib64") and part.startswith("python3.") and parts[0] != before:
            return True
        if part.startswith("python3") and part.endswith(".zip"):
            return True
        if before.startswith("Python3") and part == "Lib":
            return True
    return False


def innermost_own(lines: Sequence[str], own: Sequence[str]) -> str | None:
    """Return the innermost line of user code; `lines` begins with the outermost."""
    return next((line for line in reversed(lines) if is_own(line, own)), None)


@dataclass(frozen=True)
class Place:
    """Hold a line and all lines of its stack, outermost first. Without a stack, `lines` contains
    only the line itself.
    """

    line: str
    lines: tuple[str, ...]

    @staticmethod
    def of(line: str | None, stack: str | None = None) -> Place | None:
        if line is None:
            return None
        return Place(line, tuple(map(line_of, frames_in(stack))) or (line,))
