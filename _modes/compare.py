"""Compare two captures line by line, and tell changes from noise."""

from __future__ import annotations

from _analysis.captures import find_captures, record_at
from _analysis.comparison import agg_keys, compare_records
from _analysis.matching import MATCHED_BY
from _analysis.record_format import KINDS
from _analysis.recorded_steps import ALPHA, percent, rounded, source_of
from _pipeline.context import DEVICE, SCHEMA_VERSION
from _pipeline.load import Candidates
from _pipeline.no_answer import NoAnswer
from _pipeline.texts import cut_texts
from _pipeline.units import with_unit

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from _analysis import comparison
    from _analysis.comparison import FileChange, LineChange
    from _analysis.record_format import Record
    from _analysis.recorded_steps import Line, Run
    from _output.fields import compare as fields
    from _pipeline.context import Context

N_SIGNATURES = 4
# A note is added if lines without a counterpart take more than this percentage of either side's
# time.
UNMATCHED_PCT = 5
UNMATCHED = "only_before", "only_after"
RUN_TO_RUN = (
    "run-to-run differences are not covered: compare two captures of the same code to see them"
)


def compare(
    context: Context,
    *,
    baseline: str,
    baseline_device: str = DEVICE,
    baseline_host: str | None = None,
    steps: slice = slice(None),
    top: int = 50,
) -> fields.Returned:
    request = context.request
    device = request.device or DEVICE
    after = read_record(request.profile, request.host, device, context)
    of_baseline = context.with_own_notes()
    try:
        before = read_record(baseline, baseline_host, baseline_device, of_baseline)
    except NoAnswer as failure:
        failure.fields["side"] = "baseline"
        raise
    finally:
        context.warn(*(f"baseline: {note}" for note in of_baseline.warnings))
        context.note(*(f"baseline: {note}" for note in of_baseline.provenance))
    found = compare_records(
        before, after, before_device=baseline_device, after_device=device, steps=steps
    )
    context.warn(*notes_of(found))
    context.note(RUN_TO_RUN)
    answer: fields.Returned = {
        "status": "ok",
        "mode": request.mode,
        "schema_version": SCHEMA_VERSION,
        "profile_dir": request.profile,
        "baseline_dir": baseline,
        "notes": context.notes,
        **fields_of(found, top),
    }
    # Cut texts, because a record can have texts of any length.
    cut_texts(answer)
    return answer


def read_record(profile: str, host: str | None, device: str, context: Context) -> Record:
    """Return the record from the first file that can be read and has the device."""
    candidates = Candidates(find_captures(profile, context), host, context)
    for place in candidates.places:
        with candidates.attempt(place):
            return record_at(place, device, context)
    raise candidates.no_answer()


def notes_of(found: comparison.Comparison) -> Iterator[str]:
    before, after, noise = found.before.device, found.after.device, found.noise
    for what, sides in (
        ("device", (before.name, after.name)),
        ("device_type", (before.device_type, after.device_type)),
        ("clock", (before.clock, after.clock)),
        ("program", (before.program, after.program)),
        ("number of steps", (noise.n_before, noise.n_after)),
    ):
        if sides[0] != sides[1]:
            yield f"{what} differs: {sides[0]} before, {sides[1]} after"
    if noise.too_few_steps:
        yield (
            f"{noise.n_before} + {noise.n_after} steps are too few to tell a difference from"
            " noise; use at least 4 + 4"
        )
    unmatched = unmatched_row(found.lines)
    parts = unmatched["before_pct"], unmatched["after_pct"]
    if max(part or 0 for part in parts) > UNMATCHED_PCT:
        of_before, of_after = (f"{part:.1f} %" if part is not None else "nothing" for part in parts)
        yield (
            f"lines without a counterpart take {of_before} of the ops' time before and {of_after}"
            " after; compare files in by_file instead"
        )
    if found.moved:
        time_before, time_after = sums_of(found.moved)
        yield (
            f"{len(found.moved)} rows ({with_unit(time_before)} before, {with_unit(time_after)}"
            " after) match lines of different files: in by_file, one file loses this time and"
            " another gains it"
        )


def fields_of(found: comparison.Comparison, top: int) -> fields.Fields:
    before, after = found.before.device, found.after.device
    step = found.totals["step_duration"].before.mean
    omitted = found.lines[top:]
    return {
        "before": side_row(found.before),
        "after": side_row(found.after),
        "same_device_type": before.device_type == after.device_type,
        "same_program": before.program == after.program,
        "noise": noise_row(found),
        "totals": {name: change_row(change) for name, change in found.totals.items()},
        "by_file": [file_row(row) for row in found.files],
        "unmatched": unmatched_row(found.lines),
        "by_match": {
            level: match_row([row for row in found.lines if row.match.matched_by == level])
            for level in MATCHED_BY
        },
        "rows": [line_row(rank, row, step) for rank, row in enumerate(found.lines[:top], 1)],
        "tail": {
            "n_rows_omitted": len(omitted),
            "by_kind": {
                kind: tail_row([row for row in omitted if row.kind == kind]) for kind in KINDS
            },
        },
    }


def side_row(run: Run) -> fields.Side:
    return {
        "xplane_file": run.record.xplane_file,
        "host": run.record.host,
        "device": run.device.name,
        "device_type": run.device.device_type,
        "clock": run.device.clock,
        "program": run.device.program,
        "n_steps": len(run.steps),
        "steps": [
            {"index": step.number, "name": step.name, "duration_ps": step.duration}
            for step in run.steps
        ],
    }


def noise_row(found: comparison.Comparison) -> fields.Noise:
    noise = found.noise
    return {
        "method": "permutation_max",
        "covers": "step_to_step",
        "alpha": float(ALPHA),
        "n_before": noise.n_before,
        "n_after": noise.n_after,
        "n_tested": found.n_tested,
        "n_assignments": noise.n_assignments,
        "exact": noise.exact,
        "min_p_value": rounded(noise.min_p_value, 6),
        "why_not": "too_few_steps" if noise.too_few_steps else None,
    }


def change_row(change: comparison.Change) -> fields.Total:
    before, after = change.before, change.after
    return {
        "before_ps": before.mean,
        "after_ps": after.mean,
        "delta_ps": change.delta,
        "delta_pct": percent(change.delta, before.mean),
        "before_range_ps": [min(before.steps), max(before.steps)],
        "after_range_ps": [min(after.steps), max(after.steps)],
        "p_value": None if change.p_value is None else rounded(change.p_value, 6),
        "significant": change.is_significant,
    }


def line_row(rank: int, row: LineChange, step: int) -> fields.CompareRow:
    before, after = row.match.before, row.match.after
    tf_ops = [tf_op for line in after or before for tf_op in line.group.tf_ops]
    gone = {text for line in before for text in line.group.signatures}
    new = {text for line in after for text in line.group.signatures}
    return {
        "rank": rank,
        "kind": row.kind,
        "matched_by": row.match.matched_by,
        "source_inner": source_of(after),
        "before_source_inner": source_of(before),
        "tf_op": min(tf_ops, default=None),
        "n_groups_before": len(before),
        "n_groups_after": len(after),
        "agg_keys_before": agg_keys(before),
        "agg_keys_after": agg_keys(after),
        **change_row(row.change),
        "delta_pct_of_step": percent(row.change.delta, step),
        "n_executions_before": executions(before),
        "n_executions_after": executions(after),
        "signatures_gone": sorted(gone - new)[:N_SIGNATURES],
        "signatures_new": sorted(new - gone)[:N_SIGNATURES],
    }


def file_row(row: FileChange) -> fields.FileDelta:
    change = change_row(row.change)
    return {
        "file": row.lines.file,
        "before_file": row.lines.before_file,
        "before_ps": change["before_ps"],
        "after_ps": change["after_ps"],
        "delta_ps": change["delta_ps"],
        "delta_pct": change["delta_pct"],
        "n_rows": row.lines.n_rows,
        "p_value": change["p_value"],
        "significant": change["significant"],
    }


def unmatched_row(rows: Sequence[LineChange]) -> fields.Unmatched:
    before, after = sums_of([row for row in rows if row.match.matched_by in UNMATCHED])
    all_before, all_after = sums_of(rows)
    return {
        "before_ps": before,
        "after_ps": after,
        "before_pct": percent(before, all_before),
        "after_pct": percent(after, all_after),
    }


def match_row(rows: Sequence[LineChange]) -> fields.MatchSum:
    before, after = sums_of(rows)
    return {
        "n_rows": len(rows),
        "n_groups_before": sum(len(row.match.before) for row in rows),
        "n_groups_after": sum(len(row.match.after) for row in rows),
        "before_ps": before,
        "after_ps": after,
    }


def tail_row(rows: Sequence[LineChange]) -> fields.KindDelta:
    before, after = sums_of(rows)
    return {"before_ps": before, "after_ps": after, "delta_ps": after - before}


def sums_of(rows: Sequence[LineChange]) -> tuple[int, int]:
    return sum(row.change.before.mean for row in rows), sum(row.change.after.mean for row in rows)


def executions(lines: Sequence[Line]) -> float:
    """Return the mean number of executions in a step."""
    n_steps = len(lines[0].ns) if lines else 1
    return round(sum(sum(line.ns) for line in lines) / n_steps, 3)
