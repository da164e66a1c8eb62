"""Compare captures of two programs line by line, and separate real changes from noise.

question: what a change did: two captures compared line by line, with a test for noise
reads: captures
options: --baseline, --baseline-device, --baseline-host, --steps, --top, --fail-over
example: --baseline BASELINE
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from _analysis.records import comparison
from _analysis.records.captures import find_captures, record_at
from _analysis.records.comparison import FileChange, LineChange, agg_keys, compare_records
from _analysis.records.gate import Gate, gate_of
from _analysis.records.matching import MATCHED_BY
from _analysis.records.program_changes import ProgramChange
from _analysis.records.record_format import KINDS, Record
from _analysis.records.recorded_steps import ALPHA, Line, percent, rounded, source_of
from _analysis.records.sides import Side, mean_step
from _pipeline.context import DEVICE, SCHEMA_VERSION, Context
from _pipeline.load import Candidates, Place
from _pipeline.no_answer import NoAnswer
from _pipeline.texts import cut_texts
from _units import counted, percentage, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields import compare as fields

N_SIGNATURES = 4
# Add a note if unmatched lines take more than this percentage of either side's op time.
UNMATCHED_PCT = 5
UNMATCHED = "only_before", "only_after"
RUN_TO_RUN = (
    "run-to-run noise is not included; to measure it, compare two captures of the same code"
)


def compare(
    context: Context,
    *,
    baseline: Sequence[str],
    baseline_device: str = DEVICE,
    baseline_host: str | None = None,
    steps: slice = slice(None),
    top: int = 50,
    fail_over: float | None = None,
) -> fields.Returned:
    request = context.request
    device = request.device or DEVICE
    after = read_records(request.profiles, request.host, device, context)
    of_baseline = context.with_own_notes()
    try:
        before = read_records(baseline, baseline_host, baseline_device, of_baseline)
    except NoAnswer as failure:
        failure.fields["side"] = "baseline"
        raise
    finally:
        context.warn(*(f"baseline: {note}" for note in of_baseline.warnings))
        context.note(*(f"baseline: {note}" for note in of_baseline.provenance))
    found = compare_records(
        list(before.values()),
        list(after.values()),
        before_device=baseline_device,
        after_device=device,
        steps=steps,
    )
    context.warn(*notes_of(found))
    if found.unit == "step":
        context.note(RUN_TO_RUN)
    gate = None if fail_over is None else gate_of(found, fail_over)
    answer: fields.Returned = {
        "status": "ok",
        "mode": request.mode,
        "schema_version": SCHEMA_VERSION,
        "profile_dir": request.profile,
        "baseline_dir": baseline[0],
        "notes": context.notes,
        **fields_of(found, top, list(before), list(after)),
        "gate": gate_row(gate, why_not_of(found)) if gate else None,
    }
    # Shorten texts: a record can contain texts of any length.
    cut_texts(answer)
    return answer


def read_records(
    profiles: Sequence[str], host: str | None, device: str, context: Context
) -> dict[str, Record]:
    """Read the records of one side, keyed by profile; skip a capture that was passed before."""
    records: dict[str, Record] = {}
    places: set[tuple[str, str | None]] = set()
    for profile in profiles:
        of_profile = context.with_own_notes()
        place, record = read_record(profile, host, device, of_profile)
        context.warn(*of_profile.warnings)
        context.note(*of_profile.provenance)
        key = os.path.realpath(place.path), place.host
        if key in places:
            context.warn(f"{profile} was passed twice and is used once")
            continue
        places.add(key)
        records[profile] = record
    return records


def read_record(
    profile: str, host: str | None, device: str, context: Context
) -> tuple[Place, Record]:
    """Return the record of the first readable file that contains the device."""
    candidates = Candidates(find_captures(profile, context), host, context)
    for place in candidates.places:
        with candidates.attempt(place):
            return place, record_at(place, device, context)
    raise candidates.no_answer()


def notes_of(found: comparison.Comparison) -> Iterator[str]:
    noise, unit = found.noise, found.unit
    yield from notes_on_devices(found)
    if unit == "step" and noise.n_before != noise.n_after:
        yield f"the number of steps differs: {noise.n_before} before, {noise.n_after} after"
    if noise.too_few_samples:
        yield (
            f"{noise.n_before} + {noise.n_after} {unit}s are too few to distinguish a change from"
            " noise; use at least 4 per side"
        )
    unmatched = unmatched_row(found.lines)
    parts = unmatched["before_pct"], unmatched["after_pct"]
    if max(part or 0 for part in parts) > UNMATCHED_PCT:
        of_before, of_after = ("nothing" if part is None else percentage(part) for part in parts)
        yield (
            f"lines without a counterpart take {of_before} of the op time before the change and"
            f" {of_after} after it; use by_file instead, which compares files"
        )
    if found.moved:
        time_before, time_after = sums_of(found.moved)
        yield (
            f"the files differ in {counted(len(found.moved), 'row')} of matched lines"
            f" ({time(time_before)} before, {time(time_after)} after), so in by_file"
            " one file loses this time and another gains it"
        )


def notes_on_devices(found: comparison.Comparison) -> Iterator[str]:
    """Yield notes on devices that differ between the two sides or within one side."""
    sides = {"before": found.before.runs, "after": found.after.runs}
    for what, attribute in (
        ("device", "name"),
        ("device_type", "device_type"),
        ("clock", "clock"),
        ("program", "program"),
    ):
        values = {
            side: list(dict.fromkeys(str(getattr(run.device, attribute)) for run in runs))
            for side, runs in sides.items()
        }
        for side, of_side in values.items():
            if len(of_side) > 1:
                yield f"captures {side} the change differ in {what}: {', '.join(of_side)}"
        if set(values["before"]) != set(values["after"]):
            before, after = (", ".join(of_side) for of_side in values.values())
            yield f"{what} differs: {before} before, {after} after"


def fields_of(
    found: comparison.Comparison,
    top: int,
    before_dirs: Sequence[str],
    after_dirs: Sequence[str],
) -> fields.Fields:
    before, after = found.before.first.device, found.after.first.device
    step = found.totals["step_duration"].before.mean
    omitted = found.lines[top:]
    return {
        "before": side_row(found.before, before_dirs),
        "after": side_row(found.after, after_dirs),
        "same_device_type": before.device_type == after.device_type,
        "same_program": found.program.same if has_programs(found) else same_texts(found),
        "program_changes": {
            "same_program": found.program.same,
            "rows": [program_row(row) for row in found.program.rows],
        },
        "noise": noise_row(found),
        "totals": totals_row(found),
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


def has_programs(found: comparison.Comparison) -> bool:
    return all(run.device.hlo for run in (*found.before.runs, *found.after.runs))


def program_row(row: ProgramChange) -> fields.ProgramChange:
    return {"what": row.what, "name": row.name, "before": row.before, "after": row.after}


def same_texts(found: comparison.Comparison) -> bool:
    """Return True if the ops of all captures have the same HLO texts."""
    runs = [*found.before.runs, *found.after.runs]
    return len({run.device.program for run in runs}) == 1


def side_row(side: Side, profiles: Sequence[str]) -> fields.Side:
    run = side.first
    return {
        "xplane_file": run.record.xplane_file,
        "host": run.record.host,
        "device": run.device.name,
        "device_type": run.device.device_type,
        "clock": run.device.clock,
        "program": run.device.program,
        "n_steps": sum(len(of_capture.steps) for of_capture in side.runs),
        "steps": [
            {"index": step.number, "name": step.name, "duration_ps": step.duration}
            for step in run.steps
        ],
        "n_captures": len(side.runs),
        "captures": [
            {
                "profile_dir": profile,
                "xplane_file": of_capture.record.xplane_file,
                "n_steps": len(of_capture.steps),
                "step_duration_ps": mean_step(of_capture),
            }
            for profile, of_capture in zip(profiles, side.runs, strict=True)
        ],
    }


def noise_row(found: comparison.Comparison) -> fields.Noise:
    noise = found.noise
    return {
        "method": "permutation_max",
        "noise_unit": found.unit,
        "covers": "step_to_step" if found.unit == "step" else "run_to_run",
        "alpha": float(ALPHA),
        "n_before": noise.n_before,
        "n_after": noise.n_after,
        "n_tested": found.n_tested,
        "n_assignments": noise.n_assignments,
        "exact": noise.exact,
        "min_p_value": rounded(noise.min_p_value, 6),
        "run_to_run_pct": {"before": found.before.run_to_run, "after": found.after.run_to_run},
        "why_not": why_not_of(found),
    }


def why_not_of(found: comparison.Comparison) -> fields.WhyNoTest | None:
    if not found.noise.too_few_samples:
        return None
    return "too_few_steps" if found.unit == "step" else "too_few_captures"


def gate_row(gate: Gate, why_not: str | None) -> fields.Gate:
    return {
        "fail_over_pct": gate.limit,
        "passed": gate.passed,
        "failed_by": list(gate.failed_by),
        "says": "passed" if gate.passed else f"failed: {reason_of(gate, why_not)}",
    }


def reason_of(gate: Gate, why_not: str | None) -> str:
    if not gate.failed_by:
        return f"no change can be significant ({why_not}); use at least 4 per side"
    slower = [
        f"{name} is {percentage(100 * change.delta / change.before.mean)} slower"
        for name, change in gate.failed_by.items()
    ]
    return f"{' and '.join(slower)}; the limit is {gate.limit:g} %"


def totals_row(found: comparison.Comparison) -> fields.CompareTotals:
    rows = {name: change_row(change) for name, change in found.totals.items()}
    return {
        "step_duration": rows["step_duration"],
        "period": change_row(found.period) if found.period else None,
        "busy": rows["busy"],
        "idle": rows["idle"],
        "compute": rows["compute"],
        "data_move": rows["data_move"],
        "comm": rows["comm"],
        "other": rows["other"],
        "overlap": rows["overlap"],
        "wait": rows["wait"],
    }


def change_row(change: comparison.Change) -> fields.Total:
    before, after = change.before, change.after
    return {
        "before_ps": before.mean,
        "after_ps": after.mean,
        "delta_ps": change.delta,
        "delta_pct": percent(change.delta, before.mean),
        "before_range_ps": [min(before.samples), max(before.samples)],
        "after_range_ps": [min(after.samples), max(after.samples)],
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
        "source_inner": source_of(after) or source_of(before),
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
    """Return the mean number of executions per step."""
    n_steps = len(lines[0].ns) if lines else 1
    return round(sum(sum(line.ns) for line in lines) / n_steps, 3)
