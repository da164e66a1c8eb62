"""Compare the time of each source file in two captures, even if its lines cannot be paired.

Times per file remain comparable after a loop was unrolled or code was rewritten. Files are paired
by `paired_files` in `matching.py`. Each group of ops counts toward the file of its innermost source
line.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from _breakdown.analysis.devices.recorded_steps import RecordedLine
from _breakdown.analysis.records.matching import paired_files, split_frame
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


def lines_by_file(*sides: Lines) -> list[FileLines]:
    """Group the lines of two captures by file; paired files are one."""
    found: dict[str | None, tuple[list[RecordedLine], list[RecordedLine]]]
    found = defaultdict(lambda: ([], []))
    for side, names in enumerate(paired_files(*map(files_of, sides))):
        for line in sides[side]:
            file = file_of(line)
            found[names.get(file, file) if file else None][side].append(line)
    return [
        FileLines(last_file_of(before), last_file_of(after), before, after)
        for before, after in found.values()
    ]


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
