"""Show the source code at the lines of an answer.

A trace can contain any file name, and answers are passed around. So only files below one folder
are read, and only regular files of moderate size that contain text.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from typing import Any

Json = dict[str, Any]

# Number of lines to show before and after the line.
AROUND = 2
LARGEST_FILE = 200_000
LONGEST_LINE = 200
LINE_END = re.compile(r"\r\n?|\n")


class SourceFiles:
    """The source files below a folder."""

    def __init__(self, folder: str, ending: str = "") -> None:
        self.root = os.path.realpath(folder)
        self.ending = ending
        self.lines_of: dict[str, list[str] | None] = {}

    def at(self, place: str | None) -> Json | None:
        """Return the code around a place such as `app/train.py:32`, or None if no file below the
        folder is certain to be meant, or the file lacks the line."""
        file, _, number = (place or "").rpartition(":")
        path = self.path_of(file)
        if path is None or not (number.isascii() and number.isdigit()):
            return None
        if path not in self.lines_of:
            self.lines_of[path] = lines_in(path)
        lines, line = self.lines_of[path], int(number)
        if lines is None or not 1 <= line <= len(lines):
            return None
        first = max(1, line - AROUND)
        return {
            "file": os.path.relpath(path, self.root),
            "line": line,
            "first_line": first,
            "lines": [text[:LONGEST_LINE] for text in lines[first - 1 : line + AROUND]],
        }

    def path_of(self, file: str) -> str | None:
        """Return the file below the folder whose path ends like `file`. At least two names must
        agree, of which one can be the folder's."""
        names = [name for name in file.split("/") if name]
        if not file.endswith(self.ending) or {"..", "."}.intersection(names) or "\0" in file:
            return None
        for start in range(len(names)):
            path = os.path.realpath(os.path.join(self.root, *names[start:]))
            is_certain = len(names) - start > 1 or names[-2:-1] in (
                [],
                [os.path.basename(self.root)],
            )
            if is_certain and path.startswith(os.path.join(self.root, "")) and os.path.isfile(path):
                return path
        return None


def lines_in(path: str) -> list[str] | None:
    """Return the lines of a file, or None if it is too large, unreadable or not text."""
    try:
        # A file can be replaced by a pipe between two calls; do not wait for data then.
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = file.read(LARGEST_FILE + 1)
        text = data.decode()
    except (OSError, UnicodeDecodeError):
        return None
    if len(data) > LARGEST_FILE or "\0" in text:
        return None
    # `splitlines` would also split at characters that end no line of Python, such as form feeds.
    return LINE_END.split(text.expandtabs(4).removesuffix("\n"))


def numbered(code: Json) -> list[str]:
    """Return the name of the file, then the lines with their numbers and a mark at one of them."""
    last = code["first_line"] + len(code["lines"]) - 1
    return [
        code["file"],
        *(
            f"{'>' if n == code['line'] else ' '} {n:>{len(str(last))}} | {text}".rstrip()
            for n, text in enumerate(code["lines"], code["first_line"])
        ),
    ]


def add_own_code(causes: Sequence[Json]) -> None:
    """Show the code of causes from Python files below the current folder, as on a terminal."""
    if not any("code" in cause for cause in causes):
        add_code(causes, ".", ".py")


def add_code(rows: Sequence[Json], folder: str, ending: str = "") -> bool:
    """Add `code` to rows: the code at the line of the user's own code, from files below a folder
    whose names have an ending. Return whether any code was found."""
    sources = SourceFiles(folder, ending)
    for row in rows:
        row["code"] = sources.at(row.get("source_user") or row.get("source_inner"))
    return any(row["code"] for row in rows)
