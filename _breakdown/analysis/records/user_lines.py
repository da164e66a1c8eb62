"""Join the matched lines of two captures by line of the user's own code.

A line of a model runs many lines of libraries, such as those of a kernel. A reader of a change
wants to know what became slower in the model.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from _breakdown.analysis.devices.recorded_steps import RecordedLine, user_line_of
from _breakdown.analysis.records.matching import Match, split_frame
from _breakdown.pipeline.groups import grouped, summed

# The lines of a file have not moved if this part of the file's matched time has equal lines. Some
# of the rest are calls on one line that were matched with calls on another.
UNMOVED = 0.9


def joined_by_user_line(
    matches: Sequence[Match], before: Sequence[RecordedLine], after: Sequence[RecordedLine]
) -> list[Match]:
    """Join matches of one kind that have equal user lines. A line without a counterpart joins the
    same line of the other side if the file's lines have not moved.

    Nothing is joined if one user line has most of the time of a side, as in scripts that call a
    model of a library.
    """
    if has_common_line(before) or has_common_line(after):
        return list(matches)
    unmoved = unmoved_files(matches)
    joined: dict[Hashable, list[Match]] = grouped(
        (key_of(match, unmoved) or place, match) for place, match in enumerate(matches)
    )
    return [sum_of(found) for found in joined.values()]


def has_common_line(lines: Sequence[RecordedLine]) -> bool:
    """Return whether one user line has more than half of the time."""
    times = summed((line.source_user, line.mean) for line in lines)
    total = sum(times.values())
    return any(2 * time > total for line, time in times.items() if line)


def unmoved_files(matches: Sequence[Match]) -> set[str]:
    """Return the files whose lines have the same numbers on both sides."""
    lines = [(user_line_of(match.before), user_line_of(match.after), match) for match in matches]
    pairs = [
        (split_frame(after)[0], before == after, time_of(match))
        for before, after, match in lines
        if before and after
    ]
    whole = summed((file, time) for file, _, time in pairs)
    equal = summed((file, time) for file, is_equal, time in pairs if is_equal)
    return {file for file, time in equal.items() if time >= UNMOVED * whole[file]}


def key_of(match: Match, unmoved: set[str]) -> Hashable:
    """Return the key of the matches to join; None if the user's line is unknown."""
    before, after = user_line_of(match.before), user_line_of(match.after)
    line = before or after
    if not line:
        return None
    if not (before and after) and split_frame(line)[0] in unmoved:
        before = after = line
    return match.kind, before, after


def time_of(match: Match) -> int:
    return sum(line.mean for line in (*match.before, *match.after))


def sum_of(matches: Sequence[Match]) -> Match:
    """Return one match with the lines of all. Its rule is that of the longest pair of lines."""
    before = [line for match in matches for line in match.before]
    after = [line for match in matches for line in match.after]
    pairs = [match for match in matches if match.before and match.after]
    if before and after and not pairs:
        return Match("same_user_line", before, after)
    return Match(max(pairs or matches, key=time_of).matched_by, before, after)
