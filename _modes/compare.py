"""Compare captures of two programs line by line, and separate real changes from noise.

question: what a change did: two captures compared line by line, with a test for noise
reads: captures
options: --baseline, --baseline-device, --baseline-host, --steps, --top, --fail-over
example: --baseline BASELINE
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from _analysis.records import comparison
from _analysis.records.captures import read_records
from _analysis.records.comparison import (
    FileChange,
    LineChange,
    agg_keys,
    compare_records,
    sums_of,
)
from _analysis.records.comparison_notes import RUN_TO_RUN, warnings_of
from _analysis.records.gate import Gate, gate_of
from _analysis.records.matching import MATCHED_BY
from _analysis.records.program_changes import ProgramChange
from _analysis.records.record_format import KINDS
from _analysis.records.recorded_steps import ALPHA, source_of
from _analysis.records.sides import Side
from _output.phrases import Next, at, bracketed, joined, short
from _output.screen import Column, End, Part, Says, Table
from _pipeline.context import DEVICE, SCHEMA_VERSION, Context
from _pipeline.groups import percent
from _pipeline.no_answer import NoAnswer
from _pipeline.texts import cut_texts
from _units import time

Json = dict[str, Any]


def compare(
    context: Context,
    *,
    baseline: Sequence[str],
    baseline_device: str = DEVICE,
    baseline_host: str | None = None,
    steps: slice = slice(None),
    top: int = 50,
    fail_over: float | None = None,
) -> Json:
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
    context.warn(*warnings_of(found))
    if found.unit == "step":
        context.note(RUN_TO_RUN)
    gate = None if fail_over is None else gate_of(found, fail_over)
    answer: Json = {
        "status": "ok",
        "mode": request.mode,
        "schema_version": SCHEMA_VERSION,
        "profile_dir": request.profile,
        "baseline_dir": baseline[0],
        "notes": context.notes,
        **fields_of(found, top),
        "gate": gate_row(gate) if gate else None,
    }
    # Shorten texts: a record can contain texts of any length.
    cut_texts(answer)
    return answer


def fields_of(found: comparison.Comparison, top: int) -> Json:
    before, after = found.before.first.device, found.after.first.device
    omitted = found.lines[top:]
    return {
        "before": side_row(found.before),
        "after": side_row(found.after),
        "same_device_type": before.device_type == after.device_type,
        "program_changes": {
            "same_program": found.program.same,
            "rows": [program_row(row) for row in found.program.rows],
        },
        "noise": noise_row(found),
        "totals": totals_row(found),
        "by_file": [file_row(row) for row in found.files],
        "unmatched": unmatched_row(found),
        "by_match": {
            level: match_row([row for row in found.lines if row.match.matched_by == level])
            for level in MATCHED_BY
        },
        "rows": [line_row(row) for row in found.lines[:top]],
        "tail": {
            "n_rows_omitted": len(omitted),
            "by_kind": {
                kind: tail_row([row for row in omitted if row.kind == kind]) for kind in KINDS
            },
        },
    }


def program_row(row: ProgramChange) -> Json:
    return {"what": row.what, "name": row.name, "before": row.before, "after": row.after}


def side_row(side: Side) -> Json:
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
    }


def noise_row(found: comparison.Comparison) -> Json:
    noise = found.noise
    return {
        "noise_unit": found.unit,
        "alpha": float(ALPHA),
        "n_before": noise.n_before,
        "n_after": noise.n_after,
        "n_tested": found.n_tested,
        "why_not": found.why_not,
    }


def gate_row(gate: Gate) -> Json:
    return {
        "fail_over_pct": gate.limit,
        "passed": gate.passed,
        "failed_by": list(gate.failed_by),
        "says": gate.says,
    }


def totals_row(found: comparison.Comparison) -> Json:
    rows = {name: change_row(change) for name, change in found.totals.items()}
    period = change_row(found.period) if found.period else None
    return {"step_duration": rows["step_duration"], "period": period, **rows}


def change_row(change: comparison.Change) -> Json:
    before, after = change.before.samples, change.after.samples
    return {
        **tested_row(change),
        "before_range_ps": [min(before), max(before)],
        "after_range_ps": [min(after), max(after)],
    }


def tested_row(change: comparison.Change) -> Json:
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
        "kind": row.kind,
        "matched_by": row.match.matched_by,
        "source_inner": source_of(after) or source_of(before),
        "before_source_inner": source_of(before),
        "agg_keys_before": agg_keys(before),
        "agg_keys_after": agg_keys(after),
        **change_row(row.change),
    }


def file_row(row: FileChange) -> Json:
    return {
        "file": row.lines.file,
        "before_file": row.lines.before_file,
        "n_rows": row.lines.n_rows,
        **tested_row(row.change),
    }


def unmatched_row(found: comparison.Comparison) -> Json:
    before, after = sums_of(found.unmatched)
    before_pct, after_pct = found.unmatched_pct
    return {
        "before_ps": before,
        "after_ps": after,
        "before_pct": before_pct,
        "after_pct": after_pct,
    }


def match_row(rows: Sequence[LineChange]) -> Json:
    before, after = sums_of(rows)
    return {
        "n_rows": len(rows),
        "before_ps": before,
        "after_ps": after,
    }


def tail_row(rows: Sequence[LineChange]) -> Json:
    before, after = sums_of(rows)
    return {"before_ps": before, "after_ps": after, "delta_ps": after - before}


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "rows"

P_VALUE = Column("p", "p_value", "chance")
SIGNIFICANT = Column("significant", "significant", "word")
STEP = "totals.step_duration.before_ps"
BEFORE_AFTER = (
    Column("before", "before_ps", "time"),
    Column("after", "after_ps", "time"),
    Column("change", "delta_ps", "delta"),
    Column("%", "delta_pct", "change"),
)
LINE = ("source_inner", "agg_keys_after.0", "agg_keys_before.0")

PARTS: tuple[Part, ...] = (
    Says("{mode:word}: {baseline_dir:file} before, {profile_dir:file} after"),
    *(
        Says(
            f"{side}: {{{side}.device}} of {{{side}.host}} ({{{side}.device_type}}),"
            f" {{{side}.xplane_file:file}}; captures: {{{side}.n_captures:count}},"
            f" steps: {{{side}.n_steps:count}}, clock: {{{side}.clock:word}}"
        )
        for side in ("before", "after")
    ),
    Table(
        "changes in the compiled program",
        "program_changes.rows",
        (
            Column("what", "what", "word"),
            Column("before", "before", "values", null="-"),
            Column("after", "after", "values", null="-"),
            Column("name", "name", null=""),
        ),
    ),
    Says("The devices are of different types.", when="!same_device_type"),
    Table(
        "means over the steps, + is slower; significant means more than noise between steps",
        "totals",
        (Column("total", "key", "word"), *BEFORE_AFTER, P_VALUE, SIGNIFICANT),
    ),
    Table(
        "by file",
        "by_file",
        (
            *BEFORE_AFTER,
            P_VALUE,
            SIGNIFICANT,
            Column("rows", "n_rows", "count"),
            Column("file", ("file", "before_file"), "file", "(none known)"),
        ),
        size="delta_ps",
        whole=STEP,
        what="file",
        tail={"before": "", "after": "", "change": ""},
    ),
    Table(
        "by line; significant if p is at most {noise.alpha:word}",
        "rows",
        (
            *BEFORE_AFTER,
            P_VALUE,
            Column("kind", "kind", "word"),
            Column("matched by", "matched_by", "word"),
            Column("line", LINE, "file"),
        ),
        size="delta_ps",
        whole=STEP,
        what="row",
        tail={"before": "", "after": "", "change": ""},
        ends=(
            *(
                End(
                    f"tail.by_kind.{kind}.before_ps",
                    {
                        "before": f"tail.by_kind.{kind}.before_ps",
                        "after": f"tail.by_kind.{kind}.after_ps",
                        "change": f"tail.by_kind.{kind}.delta_ps",
                        "kind": kind,
                        "line": "in omitted rows",
                    },
                )
                for kind in ("compute", "data_move", "comm", "other")
            ),
            End("tail.n_rows_omitted", {"line": "{tail.n_rows_omitted:count} rows beyond --top"}),
        ),
    ),
    Says(
        "\nlines without a counterpart: {unmatched.before_ps:time} before"
        " ({unmatched.before_pct:percent}), {unmatched.after_ps:time} after"
        " ({unmatched.after_pct:percent})"
    ),
    Table(
        "how lines were matched",
        "by_match",
        (
            Column("matched by", "key", "word"),
            Column("rows", "n_rows", "count"),
            Column("before", "before_ps", "time"),
            Column("after", "after_ps", "time"),
        ),
        unless_0="n_rows",
    ),
)


FIGURES = {"step_duration": "step", "period": "period"}


def headline(answer: Json) -> str:
    return joined(sentences(answer))


def sentences(answer: Json) -> Iterator[str]:
    if answer["gate"]:
        yield gate_sentence(answer["gate"])
    yield from program_sentences(answer["program_changes"])
    totals, unit = answer["totals"], answer["noise"]["noise_unit"]
    step, period, pauses = totals["step_duration"], totals["period"], pause_delta(totals)
    of_step = step_sentence(step, unit)
    if answer["program_changes"]["same_program"] and step["significant"]:
        of_step = f"{of_step.removesuffix('.')}: {largest_part(totals)}."
    found = [(step["significant"] is False, -abs(step["delta_ps"]), of_step)]
    if period:
        of_pauses = pause_sentence(period, pauses, unit)
        found.append((period["significant"] is False, -abs(pauses), of_pauses))
    # Changes within noise come last, and the larger change comes first.
    yield from (sentence for *_, sentence in sorted(found))
    rows = [row for row in answer["rows"] if row["significant"] and row["delta_ps"]]
    if rows:
        rows.sort(key=lambda row: -abs(row["delta_ps"]))
        top = rows[0]
        yield f"The largest change is{at_lines(top) or ' without a source line'}: {by(top)}."
        at_line = next((row for row in rows if at_lines(row)), top)
        if at_line is not top:
            yield f"The largest change with a source line is{at_lines(at_line)}: {by(at_line)}."


def at_lines(row: Json) -> str:
    """Return ` at LINE`, or nothing if the line is unknown. If lines share the row, name the line
    with the most time on the slower side."""
    is_shared = max(len(row["agg_keys_before"]), len(row["agg_keys_after"])) > 1
    if not is_shared:
        return at(row["source_inner"])
    of_before = row["before_ps"] > row["after_ps"] and row["before_source_inner"]
    line = at(of_before or row["source_inner"])
    return f"{line} and other lines" if line else ""


def by(row: Json) -> str:
    """Format a row's change in time, with a sign."""
    return f"{'+' if row['delta_ps'] > 0 else '-'}{time(abs(row['delta_ps']))}"


def gate_sentence(gate: Json) -> str:
    if gate["passed"]:
        return "The gate passes."
    if not gate["failed_by"]:
        return "The gate fails, because no change can be significant."
    failed = " and the ".join(FIGURES[name] for name in gate["failed_by"])
    return f"The gate fails: the {failed} got slower by more than {gate['fail_over_pct']:g} %."


def program_sentences(found: Json) -> Iterator[str]:
    """Yield a sentence if the compiled programs are equal or differ only in the code of kernels."""
    if found["same_program"]:
        yield "The compiled program is the same."
    elif found["same_program"] is None and found["rows"]:
        kernels = [short(row["name"] or "") for row in found["rows"]]
        more = f" and {len(kernels) - 1} more" if len(kernels) > 1 else ""
        yield (
            f"In the compiled program, only the code of kernel {kernels[0]}{more} differs, perhaps"
            " just its source lines."
        )


def change(total: Json) -> str:
    """Describe a change in time in words, such as `0.14 ms (0.7 %) slower`."""
    share = total["delta_pct"]
    known = bracketed(share and abs(share))
    how = "slower" if total["delta_ps"] > 0 else "faster"
    return f"{time(abs(total['delta_ps']))}{known} {how}"


def step_sentence(step: Json, unit: str) -> str:
    if not step["delta_ps"]:
        return f"The step takes {time(step['after_ps'])} before and after."
    if step["significant"] is None:
        return f"The step is {change(step)}, {too_few(unit)}."
    noise = "more than" if step["significant"] else "within"
    return f"The step is {change(step)}, which is {noise} the noise between {unit}s."


def too_few(unit: str) -> str:
    return f"but too few {unit}s were captured to exclude noise"


def largest_part(totals: Json) -> str:
    """Name the part of the step whose time changed most."""
    deltas = {
        "compute": totals["compute"]["delta_ps"],
        "data movement": totals["data_move"]["delta_ps"],
        "communication, which includes waiting for late devices,": totals["comm"]["delta_ps"],
        "other work": totals["other"]["delta_ps"],
        "idle time": totals["idle"]["delta_ps"],
    }
    name, delta = max(deltas.items(), key=lambda item: abs(item[1]))
    return f"{name} takes {time(abs(delta))} {'longer' if delta > 0 else 'less'}"


def pause_delta(totals: Json) -> int:
    """Return the change in the time between steps: the period without the step."""
    period = totals["period"]
    return period["delta_ps"] - totals["step_duration"]["delta_ps"] if period else 0


def pause_sentence(period: Json, pauses: int, unit: str) -> str:
    """Return a sentence about the time between steps; empty if it changed by at most 1 % of the
    period."""
    if 100 * abs(pauses) <= period["after_ps"]:
        return ""
    how = "longer" if pauses > 0 else "shorter"
    noise = f", {too_few(unit)}" if period["significant"] is None else ""
    if period["significant"] is False:
        noise = f", within the noise between {unit}s"
    return (
        f"The time between steps is {how}: a step starts every {time(period['after_ps'])}, which is"
        f" {change(period)}{noise}."
    )


def next_steps(answer: Json) -> Iterator[Next]:
    step = answer["totals"]["step_duration"]
    is_slower = step["significant"] and step["delta_ps"] > 0
    if is_slower and answer["program_changes"]["same_program"]:
        yield Next("whether a device or a host is slow", ("--mode", "spread"))
