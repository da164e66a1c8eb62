"""Find the causes that appeared, disappeared or changed in gain between two steps."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Literal

from _breakdown.analysis.causes import PROGRAM, RULE_NAMED, SMALLEST_PART
from _breakdown.analysis.devices.record_format import RecordedCause, RecordedCauses
from _breakdown.analysis.records.matching import paired_files, split_frame
from _breakdown.light import NamedTuple

# Gains are estimates from the times of ops, which differ a little between two runs of a program.
SIMILAR_PART = 10
# Causes of one kind in different scopes of a file are not the same if their gains differ by more
# than this factor.
MOST_TIMES = 2

Key = Callable[[RecordedCause, str | None], Hashable]


class CauseChange(NamedTuple):
    """A cause before and after; None on a side that does not have it."""

    before: RecordedCause | None
    after: RecordedCause | None

    @property
    def shown(self) -> RecordedCause:
        found = self.after or self.before
        assert found
        return found

    @property
    def change(self) -> Literal["new", "gone", "changed"]:
        if self.before is None:
            return "new"
        return "gone" if self.after is None else "changed"

    @property
    def gains(self) -> tuple[int | None, int | None]:
        """Return the gain of each side: 0 on a side that does not have the cause, and None if
        unknown."""
        before, after = (side.gain_ps if side else 0 for side in self)
        return before, after

    @property
    def delta(self) -> int | None:
        before, after = self.gains
        return None if before is None or after is None else after - before

    def exceeds(self, step: int) -> bool:
        """Return whether the change is more than a difference in estimates, or in the floors below
        which a step has no causes."""
        floor = step / SMALLEST_PART
        if self.change != "changed" and self.delta is None:
            return (self.shown.unknown_ps or 0) > floor
        if self.change != "changed" and self.shown.gain_bytes:
            return True
        largest = max(gain or 0 for gain in self.gains)
        return abs(self.delta or 0) > max(largest / SIMILAR_PART, floor)


def changed_causes(
    before: RecordedCauses, after: RecordedCauses, step: int, *, same_program: bool
) -> list[CauseChange]:
    """Return the causes that differ, largest change first. `step` is the time of the slower step.

    Causes that only one of the captures can show are left out. Equal programs have equal causes,
    except those that are not in the program.
    """
    names = {*before.examined} & {*after.examined}.intersection(RULE_NAMED)
    if same_program:
        names = {name for name in names if RULE_NAMED[name].needs != PROGRAM}
    sides = ([cause for cause in side.found if cause.cause in names] for side in (before, after))
    differing = [row for row in matched(*sides) if row.exceeds(step)]
    return sorted(differing, key=lambda row: -abs(row.delta or 0))


def matched(before: list[RecordedCause], after: list[RecordedCause]) -> list[CauseChange]:
    """Match causes by name and place. An edit moves the lines of a file, so the place can also be
    the scope."""
    files = paired_files(*map(files_of, (before, after)))
    found: list[CauseChange] = []
    for key, is_same in KEYS:
        for cause in list(after):
            place = key(cause, named(cause, files[1]))
            same = [
                other
                for other in before
                if place and key(other, named(other, files[0])) == place and is_same(other, cause)
            ]
            if same:
                nearest = min(same, key=lambda other: abs(line_of(other) - line_of(cause)))
                before.remove(nearest)
                after.remove(cause)
                found.append(CauseChange(nearest, cause))
    found += [CauseChange(None, cause) for cause in after]
    return found + [CauseChange(cause, None) for cause in before]


def named(cause: RecordedCause, names: dict[str, str]) -> str | None:
    """Return the file of a cause by the name that both sides share."""
    file = file_of(cause)
    return names.get(file, file) if file else None


def files_of(causes: Iterable[RecordedCause]) -> set[str]:
    return {file for cause in causes if (file := file_of(cause))}


def file_of(cause: RecordedCause) -> str | None:
    return split_frame(cause.source_user)[0] if cause.source_user else None


def line_of(cause: RecordedCause) -> int:
    return split_frame(cause.source_user)[1] if cause.source_user else 0


def is_similar(before: RecordedCause, after: RecordedCause) -> bool:
    gains = sorted((before.gain_ps or 0, after.gain_ps or 0))
    return gains[1] <= MOST_TIMES * gains[0]


def is_similar_without_line(before: RecordedCause, after: RecordedCause) -> bool:
    """Return whether a capture does not show the line, for example for want of host events."""
    has_lines = before.source_user and after.source_user
    return not has_lines and is_similar(before, after)


def always(before: RecordedCause, after: RecordedCause) -> bool:
    return True


# The places by which causes are matched, most certain first, and what else must be true.
KEYS: tuple[tuple[Key, Callable[[RecordedCause, RecordedCause], bool]], ...] = (
    (lambda cause, file: (cause.cause, file, line_of(cause), cause.scope), always),
    (lambda cause, file: (cause.cause, file, line_of(cause)), always),
    (lambda cause, file: cause.scope and (cause.cause, cause.scope), always),
    (lambda cause, file: (cause.cause, file), is_similar),
    (lambda cause, file: cause.cause, is_similar_without_line),
)
