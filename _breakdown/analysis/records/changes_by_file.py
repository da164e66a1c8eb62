"""Compare the time of each source file in two captures, even if its lines cannot be paired.

Times per file remain comparable after a loop was unrolled or code was rewritten. Files are paired
by `paired_files` in `matching.py`. Each group of ops counts toward the file of its innermost source
line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from _breakdown.analysis.devices.recorded_steps import RecordedLine
from _breakdown.analysis.records.matching import Match, paired_files, split_frame
from _breakdown.light import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    Lines = Sequence[RecordedLine]


class FileLines(NamedTuple):
    """The lines of a file on both sides, and the file's names. The name on a side is None if no
    line of that side is in the file."""

    before_file: str | None
    file: str | None
    before: list[RecordedLine]
    after: list[RecordedLine]


class Files:
    """The source files of two captures; paired files share one name."""

    def __init__(self, before: Lines, after: Lines) -> None:
        self._sides = before, after
        self._names = paired_files(*map(files_of, self._sides))

    def name(self, line: RecordedLine, side: int) -> str | None:
        file = file_of(line)
        return None if file is None else self._names[side].get(file, file)

    def of_match(self, match: Match) -> list[set[str | None]]:
        """Return the files of a match: one set for each side."""
        sides = match.before, match.after
        return [{self.name(line, side) for line in lines} for side, lines in enumerate(sides)]

    def with_lines(self) -> list[FileLines]:
        lines: dict[str | None, tuple[list[RecordedLine], list[RecordedLine]]] = defaultdict(
            lambda: ([], [])
        )
        for side in (0, 1):
            for line in self._sides[side]:
                lines[self.name(line, side)][side].append(line)
        return [
            FileLines(last_file_of(before), last_file_of(after), before, after)
            for before, after in lines.values()
        ]

    def is_moved(self, match: Match) -> bool:
        """Return whether a match has lines on both sides, but in different files."""
        before, after = self.of_match(match)
        return bool(before and after and before != after)


def files_of(lines: Lines) -> set[str]:
    """Return all files of one side, including the callers' files from the stacks."""
    stacks = {frame for line in lines for frame in line.group.frames}
    sources = {file for line in lines if (file := file_of(line)) is not None}
    return sources | {split_frame(frame)[0] for frame in stacks}


def file_of(line: RecordedLine) -> str | None:
    source = line.group.source
    return split_frame(source)[0] if source else None


def last_file_of(lines: Lines) -> str | None:
    return file_of(lines[-1]) if lines else None
