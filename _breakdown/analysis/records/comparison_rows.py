"""Build the fields of an answer of `compare`."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from _breakdown.analysis.devices.recorded_steps import source_of, user_line_of
from _breakdown.analysis.records import comparison
from _breakdown.analysis.records.changed_causes import CauseChange
from _breakdown.analysis.records.comparison import FileChange, LineChange, agg_keys, sums_of
from _breakdown.analysis.records.program_changes import ProgramChange
from _breakdown.analysis.records.sides import Side
from _breakdown.analysis.roof.tokens import tokens_per_s
from _breakdown.pipeline.groups import percent
from _breakdown.units import percentage

Json = dict[str, Any]


def fields_of(found: comparison.Comparison, top: int, tokens: int | None) -> Json:
    omitted = found.lines[top:]
    return {
        "before": side_row(found.before, time_of(found, "before"), tokens),
        "after": side_row(found.after, time_of(found, "after"), tokens),
        "causes": found.causes and [cause_row(row) for row in found.causes],
        "program_changes": {
            "same_program": found.program.same,
            "rows": [program_row(row) for row in found.program.rows],
        },
        "noise": noise_row(found),
        "totals": totals_row(found),
        "by_file": [file_row(row) for row in found.files],
        "unmatched": unmatched_row(found),
        "rows": [line_row(row) for row in found.lines[:top]],
        "tail": {"n_rows_omitted": len(omitted), **tail_row(omitted)},
    }


def cause_row(row: CauseChange) -> Json:
    before, after = row.gains
    return {
        "cause": row.shown.cause,
        "change": row.change,
        "source_user": row.after.source_user if row.after else None,
        "before_source_user": row.before.source_user if row.before else None,
        "scope": row.shown.scope,
        "device": row.shown.device,
        "unknown_ps": row.shown.unknown_ps,
        "gain_bytes": row.shown.gain_bytes,
        "before_ps": before,
        "after_ps": after,
        "delta_ps": row.delta,
    }


def program_row(row: ProgramChange) -> Json:
    return {"what": row.what, "name": row.name, "before": row.before, "after": row.after}


def time_of(found: comparison.Comparison, side: str) -> int:
    """Return the time of one step of a side: the period, if both sides have one."""
    change = found.period or found.totals["step_duration"]
    time: int = getattr(change, side).mean
    return time


def side_row(side: Side, time: int, tokens: int | None) -> Json:
    run = side.first
    return {
        "xplane_file": run.record.xplane_file,
        "host": run.record.host,
        "device": run.device.name,
        "device_type": run.device.device_type,
        "clock": run.device.clock,
        "program": run.device.program,
        "n_steps": sum(len(of_capture.steps) for of_capture in side.runs),
        "n_captures": len(side.runs),
        "mfu_at_least": run.device.mfu_at_least,
        "tokens_per_s": tokens_per_s(time, tokens),
    }


def noise_row(found: comparison.Comparison) -> Json:
    noise = found.noise
    return {
        "noise_unit": found.unit,
        "n_before": noise.n_before,
        "n_after": noise.n_after,
        "why_not": found.why_not,
    }


def totals_row(found: comparison.Comparison) -> Json:
    rows = {name: change_row(change) for name, change in found.totals.items()}
    period = change_row(found.period) if found.period else None
    return {"step_duration": rows["step_duration"], "period": period, **rows}


def change_row(change: comparison.TimeChange) -> Json:
    before, after = change.before.samples, change.after.samples
    return {
        **tested_row(change),
        "before_range_ps": [min(before), max(before)],
        "after_range_ps": [min(after), max(after)],
    }


def tested_row(change: comparison.TimeChange) -> Json:
    before, after = change.before.mean, change.after.mean
    return {
        "before_ps": before,
        "after_ps": after,
        "delta_ps": change.delta,
        "delta_pct": percent(change.delta, before),
        "p_value": None if change.p_value is None else round(float(change.p_value), 6),
        "significant": change.is_significant,
    }


def line_row(row: LineChange) -> Json:
    before, after = row.match.before, row.match.after
    return {
        "kind": row.match.kind,
        "matched_by": row.match.matched_by,
        "source_user": user_line_of(after),
        "before_source_user": user_line_of(before),
        "source_inner": source_of(after) or source_of(before),
        "n_lines": max(len({line.source_user for line in side}) for side in (before, after)),
        "agg_keys_before": agg_keys(before),
        "agg_keys_after": agg_keys(after),
        **change_row(row.change),
    }


def file_row(row: FileChange) -> Json:
    return {
        "file": row.lines.file,
        "before_file": row.lines.before_file,
        **tested_row(row.change),
    }


def unmatched_row(found: comparison.Comparison) -> Json:
    before, after = sums_of(found.unmatched)
    return {"before_ps": before, "after_ps": after}


def tail_row(rows: Sequence[LineChange]) -> Json:
    before, after = sums_of(rows)
    return {"before_ps": before, "after_ps": after, "delta_ps": after - before}


def gate_row(found: comparison.Comparison, limit: float) -> Json:
    """Return whether the step or the period became slower by more than `limit` percent, for
    `--fail-over`. Only significant changes count."""
    # Convert the limit through its decimal digits, because the float can differ slightly from what
    # the user wrote.
    part = Fraction(str(limit)) / 100
    figures = {"step_duration": found.totals["step_duration"], "period": found.period}
    slower = {
        name: percentage(100 * change.delta / change.before.mean)
        for name, change in figures.items()
        if change and change.is_significant and change.delta > part * change.before.mean
    }
    says = "passed"
    if slower:
        parts = " and ".join(f"{name} is {pct} slower" for name, pct in slower.items())
        says = f"failed: {parts}; the limit is {limit:g} %"
    elif found.why_not:
        says = f"failed: no change can be significant ({found.why_not}); use at least 4 per side"
    return {
        "fail_over_pct": limit,
        "passed": not slower and not found.why_not,
        "failed_by": list(slower),
        "says": says,
    }
