"""Compare records from before and after a change: by step, by line and by file."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, TypeAlias

from _breakdown.analysis.devices.cohort import ALPHA
from _breakdown.analysis.devices.record_format import KINDS, HostRecord, RecordedDevice
from _breakdown.analysis.devices.recorded_steps import RecordedLine, RecordedRun, run_of, source_of
from _breakdown.analysis.records.changed_causes import CauseChange, changed_causes
from _breakdown.analysis.records.changes_by_file import FileLines, lines_by_file
from _breakdown.analysis.records.matching import Match, matches_of
from _breakdown.analysis.records.noise import Noise, noise_of, p_values_of
from _breakdown.analysis.records.program_changes import ProgramChanges, program_changes
from _breakdown.analysis.records.sides import Side, sides_of
from _breakdown.analysis.records.user_lines import joined_by_user_line
from _breakdown.light import NamedTuple
from _breakdown.pipeline.context import DEVICE
from _breakdown.pipeline.device import CYCLES, MODULES
from _breakdown.pipeline.groups import mean, percent
from _breakdown.pipeline.no_answer import NoAnswer

# None if the causes of a side are unknown.
Causes: TypeAlias = "list[CauseChange] | None"
# Rows below this share of the total time are not tested for significance, because with fewer tests
# smaller differences become significant.
TESTED_PART = Fraction(1, 1000)


class SampledTime(NamedTuple):
    """Mean time on one side, and the time of each sample."""

    mean: int
    samples: list[int]


class TimeChange:
    """The values of a time before and after; `p_value` is None if the difference is not tested."""

    def __init__(self, before: SampledTime, after: SampledTime) -> None:
        self.before, self.after = before, after
        self.p_value: Fraction | None = None

    @property
    def delta(self) -> int:
        return self.after.mean - self.before.mean

    @property
    def samples(self) -> list[int]:
        return self.before.samples + self.after.samples

    @property
    def is_significant(self) -> bool | None:
        return None if self.p_value is None else self.p_value <= ALPHA


class LineChange(NamedTuple):
    """Matched lines, and how much their time has changed."""

    match: Match
    change: TimeChange

    @property
    def order(self) -> tuple[Any, ...]:
        """Return the sort key: largest change first."""
        before, after = self.match.before, self.match.after
        keys = agg_keys(after), agg_keys(before), self.match.kind
        return -abs(self.change.delta), source_of(after) or "", *keys


class FileChange(NamedTuple):
    """All lines of a file, and how much their time has changed."""

    lines: FileLines
    change: TimeChange

    @property
    def order(self) -> tuple[Any, ...]:
        """Return the sort key: largest change first, lines without a file last."""
        name = self.lines.before_file if self.lines.file is None else self.lines.file
        return name is None, -abs(self.change.delta), name or ""


class Comparison(NamedTuple):
    """All changes between two sides; `lines` and `files` start with the largest change."""

    before: Side
    after: Side
    noise: Noise
    # Unit of the samples: steps if each side is a single capture, else captures.
    unit: Literal["step", "capture"]
    program: ProgramChanges
    causes: Causes
    totals: dict[str, TimeChange]
    # Change in the period (the time from the start of a step to the start of the next step). None
    # if a side has no period.
    period: TimeChange | None
    lines: list[LineChange]
    files: list[FileChange]

    @property
    def unmatched(self) -> list[LineChange]:
        """Return the lines that exist on only one side."""
        return [row for row in self.lines if not (row.match.before and row.match.after)]

    @property
    def unmatched_pct(self) -> tuple[float | None, float | None]:
        """Return the percentage of each side's time in lines that exist only there."""
        (before, after), totals = sums_of(self.unmatched), sums_of(self.lines)
        return percent(before, totals[0]), percent(after, totals[1])

    @property
    def why_not(self) -> str | None:
        """Return why nothing is tested for significance."""
        if not self.noise.too_few_samples:
            return None
        return "too_few_steps" if self.unit == "step" else "too_few_captures"


def compare_records(
    before: Sequence[HostRecord],
    after: Sequence[HostRecord],
    *,
    before_device: str = DEVICE,
    after_device: str = DEVICE,
    steps: slice = slice(None),
) -> Comparison:
    """Compare one device of each record; `steps` is a slice of each record's steps in order of
    time."""
    sides = sides_of(
        [run_of(record, before_device, steps, side="baseline") for record in before],
        [run_of(record, after_device, steps) for record in after],
    )
    check_sources(*(run.device for side in sides for run in side.runs))
    samples = [side.samples for side in sides]
    noise = noise_of(*(len(run.steps) for run in samples))
    lines = [run.lines() for run in samples]
    figures = [totals_of(*side) for side in zip(samples, lines, strict=True)]
    totals = {name: TimeChange(figures[0][name], figures[1][name]) for name in figures[0]}
    matches = joined_by_user_line(matches_of(*lines), *lines)
    line_changes = [LineChange(match, change_of(match, noise)) for match in matches]
    line_changes.sort(key=lambda row: row.order)
    file_changes = [FileChange(file, change_of(file, noise)) for file in lines_by_file(*lines)]
    file_changes.sort(key=lambda row: row.order)
    tested = large_of([row.change for row in line_changes])
    test([tested, large_of([row.change for row in file_changes]), list(totals.values())], noise)
    program = program_changes(*([run.device.hlo for run in side.runs] for side in sides))
    return Comparison(
        before=sides[0],
        after=sides[1],
        noise=noise,
        unit="step" if sides[0].samples is sides[0].first else "capture",
        program=program,
        causes=causes_of(sides, totals["step_duration"], program),
        totals=totals,
        period=change_of_period(*samples),
        lines=line_changes,
        files=file_changes,
    )


def check_sources(*devices: RecordedDevice) -> None:
    """Raise NoAnswer if the steps of some captures are cycles, and those of others are programs of
    several kinds: a program is not compared with a cycle that contains it."""
    has_programs = any(
        device.step_source == MODULES and len({step.name for step in device.steps}) > 1
        for device in devices
    )
    if has_programs and any(device.step_source == CYCLES for device in devices):
        detail = (
            "the steps of one side are cycles of several programs, those of the other are single"
            " programs, as in records of version 2; record its trace again, with several cycles"
        )
        raise NoAnswer("unlike_steps", detail=detail)


def causes_of(sides: Sequence[Side], step: TimeChange, program: ProgramChanges) -> Causes:
    """Return the causes that differ between the first captures of the sides."""
    before, after = (side.first.device.causes for side in sides)
    if before is None or after is None:
        return None
    longest = max(step.before.mean, step.after.mean)
    return changed_causes(before, after, longest, same_program=program.same is True)


def large_of(changes: Sequence[TimeChange]) -> list[TimeChange]:
    """Return the changes that are large enough to be tested for significance."""
    floor = sum(sum(change.samples) for change in changes) * TESTED_PART
    return [change for change in changes if sum(change.samples) >= floor]


def test(families: Sequence[Sequence[TimeChange]], noise: Noise) -> None:
    """Set the p-value of each change, corrected for the number of changes in its family."""
    if noise.too_few_samples:
        return
    samples = [[change.samples for change in family] for family in families]
    for family, p_values in zip(families, p_values_of(samples, noise), strict=True):
        for change, p_value in zip(family, p_values, strict=True):
            change.p_value = p_value


def change_of_period(*sides: RecordedRun) -> TimeChange | None:
    """Return the change in the period. Test this change separately: the last step has no period, so
    there are fewer samples."""
    samples = [list(side.periods) for side in sides]
    if not all(samples):
        return None
    change = TimeChange(*(SampledTime(mean(of_side), of_side) for of_side in samples))
    test([[change]], noise_of(*map(len, samples)))
    return change


def totals_of(run: RecordedRun, lines: Sequence[RecordedLine]) -> dict[str, SampledTime]:
    """Return mean and samples for each part of the step. Some means are derived from others, so
    that the means add up despite rounding."""
    steps = run.steps
    duration, busy = [step.sums.duration for step in steps], [step.sums.busy for step in steps]
    idle = [a - b for a, b in zip(duration, busy, strict=True)]
    wait = [step.sums.wait for step in steps]
    leaves = figure_of(lines, len(steps))
    mean_busy = mean(duration) - mean(idle)
    return {
        "step_duration": SampledTime(mean(duration), duration),
        "busy": SampledTime(mean_busy, busy),
        "idle": SampledTime(mean(idle), idle),
        **{
            kind: figure_of([line for line in lines if line.kind == kind], len(steps))
            for kind in KINDS
        },
        "overlap": SampledTime(
            mean_busy - leaves.mean, [a - b for a, b in zip(busy, leaves.samples, strict=True)]
        ),
        "wait": SampledTime(mean(wait), wait),
    }


def figure_of(lines: Sequence[RecordedLine], n_samples: int) -> SampledTime:
    samples = list(map(sum, zip(*(line.durs for line in lines), strict=True)))
    return SampledTime(sum(line.mean for line in lines), samples or [0] * n_samples)


def change_of(lines: Match | FileLines, noise: Noise) -> TimeChange:
    before = figure_of(lines.before, noise.n_before)
    return TimeChange(before, figure_of(lines.after, noise.n_after))


def sums_of(rows: Sequence[LineChange]) -> tuple[int, int]:
    """Return the time of rows before and after."""
    return sum(row.change.before.mean for row in rows), sum(row.change.after.mean for row in rows)


def agg_keys(lines: Sequence[RecordedLine]) -> list[str]:
    return sorted(line.group.agg_key for line in lines)
