"""Compare captures of two programs line by line, and separate real changes from noise.

question: what a change did: two captures compared line by line, with a test for noise
reads: captures
options: --baseline, --baseline-device, --baseline-host, --steps, --top, --tokens, --fail-over
example: --baseline BASELINE
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from _breakdown.analysis.causes import RULE_NAMED
from _breakdown.analysis.devices.cohort import uniform_part
from _breakdown.analysis.records.captures import RECORD_SUFFIXES, read_records
from _breakdown.analysis.records.comparison import compare_records
from _breakdown.analysis.records.comparison_notes import RUN_TO_RUN, note_on_gate, warnings_of
from _breakdown.analysis.records.comparison_rows import fields_of, gate_row
from _breakdown.output.phrases import Next, at, bracketed, short, short_path
from _breakdown.output.program_facts import differing, facts, minor_facts
from _breakdown.output.screen import Column, Part, Says, Table
from _breakdown.pipeline.context import DEVICE, SCHEMA_VERSION, Context
from _breakdown.pipeline.no_answer import NoAnswer
from _breakdown.pipeline.texts import cut_texts
from _breakdown.units import counted, size, time

Json = dict[str, Any]

# A chip is slow if one factor explains at least this part of the difference.
UNIFORM = Fraction(3, 4)
# Longer paths of captures are shown without their equal parts.
LONGEST_PATH = 40


def compare(
    context: Context,
    *,
    baseline: Sequence[str],
    baseline_device: str = DEVICE,
    baseline_host: str | None = None,
    steps: slice = slice(None),
    top: int = 50,
    tokens: int | None = None,
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
    if fail_over is not None:
        context.warn(*note_on_gate(found, fail_over))
    if found.unit == "step":
        context.note(RUN_TO_RUN)
    answer: Json = {
        "status": "ok",
        "mode": request.mode,
        "schema_version": SCHEMA_VERSION,
        "profile_dir": request.profile,
        "baseline_dir": baseline[0],
        "notes": context.notes,
        **fields_of(found, top, tokens),
        "gate": None if fail_over is None else gate_row(found, fail_over),
    }
    # Shorten texts: a record can contain texts of any length.
    cut_texts(answer)
    return answer


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "rows"

P_VALUE = Column("p", "p_value", "chance", null="")
STEP = "totals.step_duration.before_ps"
BEFORE_AFTER = (
    Column("before", "before_ps", "time"),
    Column("after", "after_ps", "time"),
    Column("change", "delta_ps", "delta"),
    Column("%", "delta_pct", "change"),
)
LINE = ("source_user", "before_source_user", "source_inner", "agg_keys_after.0",
        "agg_keys_before.0")  # fmt: skip
FACTS = (
    Column("what", "what", "word"),
    Column("before", "seen_before", null="-", least=30),
    Column("after", "seen_after", null="-", least=30),
    Column("name", "name", null=""),
)


def prepared(fields: Json) -> Json:
    """Add the names of the captures, and what was captured."""
    if fields["status"] == "absent":
        return fields
    paths = fields["baseline_dir"], fields["profile_dir"]
    samples = [samples_of(fields[side]) for side in ("before", "after")]
    return {**fields, "names": [*differing(*paths, LONGEST_PATH)], "samples": samples}


def samples_of(side: Json) -> str:
    steps = counted(side["n_steps"], "step")
    return steps if side["n_captures"] == 1 else f"{steps} of {side['n_captures']} captures"


def main_parts(totals: list[Json]) -> list[Json]:
    """Leave out a missing period, and add `weight`, by which rows are hidden: never those of step
    and period, and always sums that overlap with other rows."""
    weights = {"step_duration": "before_ps", "period": "before_ps", "busy": "", "wait": ""}
    known = (row for row in totals if "before_ps" in row)
    return [{**row, "weight": row.get(weights.get(row["key"], "delta_ps"), 0)} for row in known]


def with_lines(rows: list[Json]) -> list[Json]:
    """Add `was`, the line before the change if it differs, and `inside`, the line of a library if
    the user's line has several rows."""
    repeated = repeated_lines(rows)
    for row in rows:
        after, before = row["source_user"], row["before_source_user"]
        is_repeated = line_of(row) in repeated
        has_moved = after and before and after != before and not is_repeated
        row["was"] = before.rpartition("/")[2] if has_moved else None
        row["inside"] = short_path(row["source_inner"]) if is_repeated else None
        row["n_more"] = row["n_lines"] - 1 or None
    return rows


PARTS: tuple[Part, ...] = (
    *(
        Says(
            f"{start}: {{names.{i}:file}}, {{{side}.device}} ({{{side}.device_type}}),"
            f" {{samples.{i}:word}}, {{{side}.clock:word}}'s clock"
        )
        for i, (side, start) in enumerate((("before", "{mode:word}: before"), ("after", "after")))
    ),
    Table(
        "causes that are new, gone or changed, with their estimated gains",
        "causes",
        (
            *BEFORE_AFTER[:3],
            Column("cause", "cause", "word"),
            Column("is", "change", "word"),
            Column("line", ("source_user", "before_source_user"), "file", null=""),
            Column("device", "device", null=""),
        ),
        most=3,
        what="cause",
    ),
    Table(
        "means over the steps, + is slower",
        "totals",
        (Column("total", "key", "word"), *BEFORE_AFTER, P_VALUE),
        derive=main_parts,
        size="weight",
        whole=STEP,
        what="part",
    ),
    Says(
        "MFU is at least {before.mfu_at_least:share} before, {after.mfu_at_least:share} after",
        when="before.mfu_at_least after.mfu_at_least",
    ),
    Says(
        "tokens per second: {before.tokens_per_s:number} before, {after.tokens_per_s:number} after",
        when="before.tokens_per_s",
    ),
    Table(
        "by line of your code; a change is significant if p is at most 0.05",
        "rows",
        (
            *BEFORE_AFTER[:3],
            P_VALUE,
            Column("kind", "kind", "word"),
            Column(
                "line",
                LINE,
                "file",
                also=(" (was {was})", " and {n_more:count} more", ", in {inside:file}"),
            ),
        ),
        derive=with_lines,
        size="delta_ps",
        whole=STEP,
        most=5,
        takes_top=True,
        what="row",
        omitted="tail.n_rows_omitted",
        tail={"before": "tail.before_ps", "after": "tail.after_ps", "change": "tail.delta_ps"},
    ),
    Table(
        "changes in the compiled program",
        "program_changes.rows",
        FACTS,
        derive=facts,
        most=3,
        what="fact",
    ),
    Table(
        "by file",
        "by_file",
        (
            *BEFORE_AFTER,
            P_VALUE,
            Column("file", ("file", "before_file"), "file", "(none known)"),
        ),
        only="all",
    ),
    Table(
        "further changes in the compiled program",
        "program_changes.rows",
        FACTS,
        derive=minor_facts,
        only="all",
    ),
)


LESS = {"slower": "faster", "longer": "shorter"}
FIGURES = {"step_duration": "step", "period": "period"}


def sentences(answer: Json) -> Iterator[str]:
    if answer["gate"]:
        yield gate_sentence(answer["gate"])
    yield from differing_setups(answer)
    yield from program_sentences(answer["program_changes"])
    large, small = causes_by_size(answer)
    first = [f"{cause_says(row)}." for row in large[:1]]
    # The largest difference comes first.
    is_largest = large and abs(large[0]["delta_ps"] or 0) > largest_change(answer["totals"])
    yield from first if is_largest else ()
    yield from time_sentences(answer)
    yield from () if is_largest else first
    yield from memory_sentences(answer["program_changes"]["rows"])
    if not has_uniform_slowdown(answer):
        yield from line_sentences(answer["rows"])
    yield from (f"{cause_says(row)}." for row in (*large[1:], *small))


def differing_setups(answer: Json) -> Iterator[str]:
    """Say whether other chips or other sizes were measured, because their times differ for more
    reasons than the change of the code."""
    before, after = answer["before"]["device_type"], answer["after"]["device_type"]
    if before and after and before != after:
        yield f"The chips differ: {before} before, {after} after."
    resized = [
        row
        for row in answer["program_changes"]["rows"]
        if row["what"] == "parameter" and row["before"] and row["after"]
        if row["before"]["shape"] != row["after"]["shape"]
    ]
    if resized:
        shapes = [resized[0][side]["shape"] for side in ("before", "after")]
        yield (
            f"{counted(len(resized), 'parameter')} {'have' if len(resized) > 1 else 'has'} other"
            f" sizes, such as {short(resized[0]['name'])}: {shapes[0]} before, {shapes[1]} after."
        )


def causes_by_size(answer: Json) -> tuple[list[Json], list[Json]]:
    """Return the causes that changed by at least 2 % of the step or half of the step's change, and
    the others, both sorted by their change or, if it is unknown, the time of their ops."""
    total = total_of(answer["totals"])
    least = min(max(total["before_ps"], total["after_ps"]) / 50, abs(total["delta_ps"]) / 2)

    def size_of(row: Json) -> int:
        return abs(int(row["delta_ps"] or row["unknown_ps"] or 0))

    rows = sorted(answer["causes"] or (), key=lambda row: -size_of(row))
    return [r for r in rows if size_of(r) > least], [r for r in rows if size_of(r) <= least]


def memory_sentences(rows: list[Json]) -> Iterator[str]:
    """Say how the peak use of HBM changed, if by more than a tenth."""
    for row in rows:
        before, after = row["before"], row["after"]
        if row["what"] == "memory" and before and after and 10 * abs(after - before) > before:
            yield f"The program needs {size(after)} of HBM instead of {size(before)}."


def largest_change(totals: Json) -> int:
    """Return the larger of the changes of step and pauses."""
    return max(abs(pause_delta(totals)), abs(int(totals["step_duration"]["delta_ps"])))


def total_of(totals: Json) -> Json:
    """Return the period if pauses changed more than the step, else the step."""
    step: Json = totals["step_duration"]
    period: Json | None = totals["period"]
    pauses_more = abs(pause_delta(totals)) > abs(step["delta_ps"])
    return period if period and pauses_more else step


def cause_says(cause: Json) -> str:
    rule = RULE_NAMED[cause["cause"]]
    what = rule.headline or cause["cause"].replace("_", " ").capitalize()
    device = f", {cause['device'].removeprefix('/device:')}," if cause["device"] else ""
    where = at(cause["source_user"] or cause["before_source_user"])
    gain = f": about {signed(cause['delta_ps'])}" if cause["delta_ps"] else ""
    if cause["unknown_ps"]:
        gain = f", in ops that take {time(cause['unknown_ps'])}"
    if cause["gain_bytes"]:
        gain = f": about {'-' if cause['change'] == 'gone' else '+'}{size(cause['gain_bytes'])}"
    if cause["change"] == "changed":
        more = "more" if cause["delta_ps"] > 0 else "less"
        return f"{what}{device}{where} is estimated to cost {time(abs(cause['delta_ps']))} {more}"
    return f"{what}{device}{where} is {cause['change']}{gain}"


def time_sentences(answer: Json) -> Iterator[str]:
    """Yield the changes of the step and of the pauses; changes within noise come last, and the
    larger change comes first."""
    totals, unit = answer["totals"], answer["noise"]["noise_unit"]
    step, period, pauses = totals["step_duration"], totals["period"], pause_delta(totals)
    why = ""
    if answer["program_changes"]["same_program"] and step["significant"]:
        why = ": " + (
            "all lines take longer by about the same factor, as with a slow clock or chip"
            if has_uniform_slowdown(answer)
            else largest_part(totals)
        )
    found = [(step["significant"] is False, -abs(step["delta_ps"]), step_sentence(step, unit, why))]
    if period:
        of_pauses = pause_sentence(period, pauses, unit)
        found.append((period["significant"] is False, -abs(pauses), of_pauses))
    yield from (sentence for *_, sentence in sorted(found))


def line_sentences(rows: list[Json]) -> Iterator[str]:
    changed = [row for row in rows if row["significant"] and row["delta_ps"]]
    if not changed:
        return
    top = max(changed, key=lambda row: abs(row["delta_ps"]))
    repeated = repeated_lines(rows)
    where = at_lines(top, repeated)
    yield f"The largest change is{where or ' in ops without a line'}: {signed(top['delta_ps'])}."
    with_line = [row for row in changed if line_of(row)]
    if with_line and not where:
        most = max(with_line, key=lambda row: abs(row["delta_ps"]))
        yield (
            f"The largest change with a source line is{at_lines(most, repeated)}:"
            f" {signed(most['delta_ps'])}."
        )


def line_of(row: Json) -> str | None:
    """Return the line of the user's code; that before the change if there is none after it, or if
    several lines share the row and took longer before."""
    lines: list[str | None] = [row["source_user"], row["before_source_user"]]
    if row["n_lines"] > 1 and row["before_ps"] > row["after_ps"]:
        lines.reverse()
    return lines[0] or lines[1]


def repeated_lines(rows: list[Json]) -> set[str]:
    """Return the lines of the user's code that have several rows of one kind on a side. Their rows
    are told apart by lines of libraries."""
    sides = "before_source_user", "source_user"
    times = Counter((side, row["kind"], row[side]) for row in rows for side in sides if row[side])
    return {line for (_, _, line), n in times.items() if n > 1}


def at_lines(row: Json, repeated: set[str]) -> str:
    """Return ` at LINE`, or nothing if the line is unknown. If lines share the row, say so."""
    line, inner = line_of(row), row["source_inner"]
    if not line:
        return ""
    more = " and other lines" if row["n_lines"] > 1 else ""
    inside = f", in {short_path(inner)}" if line in repeated and inner != line else ""
    return f"{at(line)}{more}{inside}"


def signed(delta_ps: int) -> str:
    """Format a change in time with a sign, such as `+8.93 ms`."""
    return f"{'+' if delta_ps > 0 else '-'}{time(abs(delta_ps))}"


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


def change(total: Json, more: str = "slower") -> str:
    """Describe a change in time in words, such as `0.14 ms (0.7 %) slower`."""
    share = total["delta_pct"]
    how = more if total["delta_ps"] > 0 else LESS[more]
    return f"{time(abs(total['delta_ps']))}{bracketed(share and abs(share))} {how}"


def step_sentence(step: Json, unit: str, why: str) -> str:
    if not step["delta_ps"]:
        return f"The step takes {time(step['after_ps'])} before and after."
    if step["significant"]:
        return f"The step is {change(step)}, more than the noise between {unit}s{why}."
    return f"The step is {change(step)}{noise_of(step, unit)}."


def noise_of(total: Json, unit: str) -> str:
    """Return what makes a change uncertain, or nothing if it is significant."""
    if total["significant"] is None:
        return f", but too few {unit}s were captured to exclude noise"
    return "" if total["significant"] else f", within the noise between {unit}s"


def has_uniform_slowdown(answer: Json) -> bool:
    """Return whether the program is the same, and one factor on all lines explains three quarters
    of the time by which they became slower. Communication also waits for other devices."""
    rows = [row for row in answer["rows"] if row["kind"] != "comm"]
    part = uniform_part((row["before_ps"], row["after_ps"]) for row in rows)
    is_slower = sum(row["delta_ps"] for row in rows) > 0
    is_same = answer["program_changes"]["same_program"]
    return bool(is_same and is_slower and part and part >= UNIFORM)


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
    return (
        f"The time between steps is {how}: a step starts every {time(period['after_ps'])}, which is"
        f" {change(period, 'longer')}{noise_of(period, unit)}."
    )


def next_steps(answer: Json) -> Iterator[Next]:
    totals = answer["totals"]
    step, period = totals["step_duration"], totals["period"]
    is_slower = step["significant"] and step["delta_ps"] > 0
    is_late = any(row["device"] and row["after_ps"] for row in answer["causes"] or ())
    if is_late or (is_slower and answer["program_changes"]["same_program"]):
        yield Next("whether a device or a host is slow", ("--mode", "spread"))
    has_pauses = period and period["significant"] and 100 * pause_delta(totals) > period["after_ps"]
    if has_pauses and not answer["profile_dir"].endswith(RECORD_SUFFIXES):
        words = ("--mode", "bottleneck", "--step", "all")
        yield Next("where the time goes, with the pauses between steps", words)
