"""What a change did: two records line by line. Values in, values out."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from _analysis.changes_by_file import Files
from _analysis.matching import MATCHED_BY, matches_of
from _analysis.noise import noise_of, p_values_of
from _analysis.record_format import KINDS
from _analysis.recorded_steps import ALPHA, mean, percent, rounded, run_of, source_of
from _pipeline.context import DEVICE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from _analysis.changes_by_file import FileLines
    from _analysis.matching import Match
    from _analysis.noise import Noise
    from _analysis.recorded_steps import Line, Run

    Json = dict[str, Any]
    # As RECORD says.
    Record = dict[str, Any]

N_SIGNATURES = 4
# Rows below this part of the time are not tested: the fewer, the smaller a difference shows.
TESTED_PART = Fraction(1, 1000)
# Beyond so many percent of either side's time it is said that lines have no counterpart.
UNMATCHED_PCT = 5
UNMATCHED = "only_before", "only_after"
RUN_TO_RUN = (
    "run-to-run differences are not covered: compare two captures of the same code to see them"
)


@dataclass(slots=True)
class Figure:
    """What something takes on one side: on average, and in each step."""

    mean: int
    steps: list[int]


@dataclass(slots=True)
class Change:
    """A figure on both sides; its p is null where it isn't tested."""

    before: Figure
    after: Figure
    p_value: Fraction | None = None

    @property
    def delta(self) -> int:
        return self.after.mean - self.before.mean

    @property
    def samples(self) -> list[int]:
        return self.before.steps + self.after.steps

    def fields(self) -> Json:
        return {
            "before_ps": self.before.mean,
            "after_ps": self.after.mean,
            "delta_ps": self.delta,
            "delta_pct": percent(self.delta, self.before.mean),
            "before_range_ps": [min(self.before.steps), max(self.before.steps)],
            "after_range_ps": [min(self.after.steps), max(self.after.steps)],
            "p_value": rounded(self.p_value, 6),
            "significant": None if self.p_value is None else self.p_value <= ALPHA,
        }


@dataclass(slots=True)
class Row:
    match: Match
    change: Change

    @property
    def kind(self) -> str:
        return (self.match.before or self.match.after)[0].kind

    @property
    def order(self) -> tuple[Any, ...]:
        """The largest change first."""
        before, after = self.match.before, self.match.after
        keys = agg_keys(after), agg_keys(before), self.kind
        return -abs(self.change.delta), source_of(after) or "", *keys


@dataclass(slots=True)
class FileRow:
    """What lies in one file, whatever became of its lines."""

    lines: FileLines
    change: Change

    @property
    def order(self) -> tuple[Any, ...]:
        """The largest change first; what has no file last."""
        name = self.lines.before_file if self.lines.file is None else self.lines.file
        return name is None, -abs(self.change.delta), name or ""


def compare_records(
    before: Record,
    after: Record,
    *,
    before_device: str = DEVICE,
    after_device: str = DEVICE,
    steps: slice = slice(None),
    top: int = 50,
) -> Json:
    """What of the output names no paths. `steps` narrows what is used of either side."""
    runs = (
        run_of(before, before_device, steps, side="baseline"),
        run_of(after, after_device, steps),
    )
    noise = noise_of(len(runs[0].steps), len(runs[1].steps))
    lines = [run.lines() for run in runs]
    figures = [totals_of(*side) for side in zip(runs, lines, strict=True)]
    totals = {name: Change(figures[0][name], figures[1][name]) for name in figures[0]}
    matches, files = matches_of(*lines), Files(*lines)
    rows = [Row(match, change_of(match, noise)) for match in matches]
    rows.sort(key=lambda row: row.order)
    by_file = [FileRow(each, change_of(each, noise)) for each in files.with_lines(matches)]
    by_file.sort(key=lambda row: row.order)
    step = totals["step_duration"].before.mean
    tested = large_of(rows)
    test([tested, large_of(by_file), list(totals.values())], noise)
    unmatched = unmatched_fields(rows)
    return {
        "notes": [
            *notes_of(*runs, noise),
            *unmatched_notes(unmatched),
            *moved_notes([row for row in rows if files.is_moved(row.match)]),
        ],
        "before": run_fields(runs[0]),
        "after": run_fields(runs[1]),
        "same_device_type": runs[0].device["device_type"] == runs[1].device["device_type"],
        "same_program": runs[0].device["program"] == runs[1].device["program"],
        "noise": noise_fields(noise, len(tested)),
        "totals": {name: change.fields() for name, change in totals.items()},
        "by_file": [file_fields(row) for row in by_file],
        "unmatched": unmatched,
        "by_match": {
            level: match_fields([row for row in rows if row.match.matched_by == level])
            for level in MATCHED_BY
        },
        "rows": [{"rank": rank, **row_fields(row, step)} for rank, row in enumerate(rows[:top], 1)],
        "tail": {
            "n_rows_omitted": len(rows[top:]),
            "by_kind": {
                kind: tail_fields([row for row in rows[top:] if row.kind == kind]) for kind in KINDS
            },
        },
    }


def large_of(rows: Sequence[Row] | Sequence[FileRow]) -> list[Change]:
    """What is tested: rows that are not too small."""
    floor = sum(sum(row.change.samples) for row in rows) * TESTED_PART
    return [row.change for row in rows if sum(row.change.samples) >= floor]


def test(families: Sequence[Sequence[Change]], noise: Noise) -> None:
    """Give each change its p among those of its family."""
    if noise.too_few_steps:
        return
    samples = [[change.samples for change in family] for family in families]
    for family, p_values in zip(families, p_values_of(samples, noise), strict=True):
        for change, p_value in zip(family, p_values, strict=True):
            change.p_value = p_value


def totals_of(run: Run, lines: Sequence[Line]) -> dict[str, Figure]:
    """Of the means some are computed from others, so that they add up as those of a step do."""
    steps = run.steps
    duration, busy, wait = ([s[n] for s in steps] for n in ("duration_ps", "busy_ps", "wait_ps"))
    idle = [a - b for a, b in zip(duration, busy, strict=True)]
    leaves = figure_of(lines, len(steps))
    mean_busy = mean(duration) - mean(idle)
    return {
        "step_duration": Figure(mean(duration), duration),
        "busy": Figure(mean_busy, busy),
        "idle": Figure(mean(idle), idle),
        **{
            kind: figure_of([line for line in lines if line.kind == kind], len(steps))
            for kind in KINDS
        },
        "overlap": Figure(
            mean_busy - leaves.mean, [a - b for a, b in zip(busy, leaves.steps, strict=True)]
        ),
        "wait": Figure(mean(wait), wait),
    }


def figure_of(lines: Sequence[Line], n_steps: int) -> Figure:
    steps = list(map(sum, zip(*(line.durs for line in lines), strict=True)))
    return Figure(sum(line.mean for line in lines), steps or [0] * n_steps)


def change_of(lines: Match | FileLines, noise: Noise) -> Change:
    before = figure_of(lines.before, noise.n_before)
    return Change(before, figure_of(lines.after, noise.n_after))


def notes_of(before: Run, after: Run, noise: Noise) -> list[str]:
    notes = [RUN_TO_RUN]
    for name in ("device", "device_type", "clock", "program"):
        sides = before.device[name], after.device[name]
        if sides[0] != sides[1]:
            notes.append(f"another {name}: {sides[0]} before, {sides[1]} after")
    if noise.n_before != noise.n_after:
        notes.append(f"another number of steps: {noise.n_before} before, {noise.n_after} after")
    if noise.too_few_steps:
        notes.append(
            f"{noise.n_before} + {noise.n_after} steps are too few to tell a difference from"
            " noise; 4 + 4 would do"
        )
    return notes


def noise_fields(noise: Noise, n_tested: int) -> Json:
    return {
        "method": "permutation_max",
        "covers": "step_to_step",
        "alpha": float(ALPHA),
        "n_before": noise.n_before,
        "n_after": noise.n_after,
        "n_tested": 0 if noise.too_few_steps else n_tested,
        "n_assignments": noise.n_assignments,
        "exact": noise.exact,
        "min_p_value": rounded(noise.min_p_value, 6),
        "why_not": "too_few_steps" if noise.too_few_steps else None,
    }


def unmatched_notes(unmatched: Json) -> list[str]:
    parts = unmatched["before_pct"], unmatched["after_pct"]
    if max(part or 0 for part in parts) <= UNMATCHED_PCT:
        return []
    before, after = (f"{part:.1f} %" if part is not None else "nothing" for part in parts)
    return [
        f"lines without a counterpart: {before} of the ops' time before, {after} of that after;"
        " by_file shows what needs none"
    ]


def moved_notes(moved: Sequence[Row]) -> list[str]:
    if not moved:
        return []
    before, after = sums_of(moved)
    return [
        f"{len(moved)} rows, {before} ps before and {after} ps after, pair lines of different"
        " files: in by_file that is a fall of one and a rise of another"
    ]


def run_fields(run: Run) -> Json:
    device = ("device", "device_type", "clock", "program")
    step = ("index", "name", "duration_ps")
    return {
        "xplane_file": run.record["xplane_file"],
        "host": run.record["host"],
        **{name: run.device[name] for name in device},
        "n_steps": len(run.steps),
        "steps": [{name: each[name] for name in step} for each in run.steps],
    }


def row_fields(row: Row, step: int) -> Json:
    before, after = row.match.before, row.match.after
    tf_ops = [tf_op for line in after or before for tf_op in line.group["tf_ops"]]
    gone, new = ({s for line in side for s in line.group["signatures"]} for side in (before, after))
    return {
        "kind": row.kind,
        "matched_by": row.match.matched_by,
        "source_inner": source_of(after),
        "before_source_inner": source_of(before),
        "tf_op": min(tf_ops, default=None),
        "n_groups_before": len(before),
        "n_groups_after": len(after),
        "agg_keys_before": agg_keys(before),
        "agg_keys_after": agg_keys(after),
        **row.change.fields(),
        "delta_pct_of_step": percent(row.change.delta, step),
        "n_executions_before": executions(before),
        "n_executions_after": executions(after),
        "signatures_gone": sorted(gone - new)[:N_SIGNATURES],
        "signatures_new": sorted(new - gone)[:N_SIGNATURES],
    }


def file_fields(row: FileRow) -> Json:
    change = row.change.fields()
    figures = ("before_ps", "after_ps", "delta_ps", "delta_pct")
    return {
        "file": row.lines.file,
        "before_file": row.lines.before_file,
        **{name: change[name] for name in figures},
        "n_rows": row.lines.n_rows,
        "p_value": change["p_value"],
        "significant": change["significant"],
    }


def unmatched_fields(rows: Sequence[Row]) -> Json:
    before, after = sums_of([row for row in rows if row.match.matched_by in UNMATCHED])
    all_before, all_after = sums_of(rows)
    return {
        "before_ps": before,
        "after_ps": after,
        "before_pct": percent(before, all_before),
        "after_pct": percent(after, all_after),
    }


def agg_keys(lines: Sequence[Line]) -> list[str]:
    return sorted(line.group["agg_key"] for line in lines)


def executions(lines: Sequence[Line]) -> float:
    """In a step, on average."""
    n_steps = len(lines[0].ns) if lines else 1
    return round(sum(sum(line.ns) for line in lines) / n_steps, 3)


def match_fields(rows: Sequence[Row]) -> Json:
    before, after = sums_of(rows)
    return {
        "n_rows": len(rows),
        "n_groups_before": sum(len(row.match.before) for row in rows),
        "n_groups_after": sum(len(row.match.after) for row in rows),
        "before_ps": before,
        "after_ps": after,
    }


def tail_fields(rows: Sequence[Row]) -> Json:
    before, after = sums_of(rows)
    return {"before_ps": before, "after_ps": after, "delta_ps": after - before}


def sums_of(rows: Sequence[Row]) -> tuple[int, int]:
    return sum(row.change.before.mean for row in rows), sum(row.change.after.mean for row in rows)
