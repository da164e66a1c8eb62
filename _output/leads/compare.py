"""Write the headline and next steps for mode `compare`: the changes in the step's time and in the
pauses between steps, and the line that changed most."""

from __future__ import annotations

from collections.abc import Iterator

from _output.phrases import Next, at, bracketed, joined, short
from _units import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.compare import (
        Answer,
        CompareRow,
        CompareTotals,
        Gate,
        ProgramChanges,
        Total,
    )

FIGURES = {"step_duration": "step", "period": "period"}


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
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
        line = at(top["source_inner"]) or " without a source line"
        yield f"The largest change is{line}: {by(top)}."
        at_line = next((row for row in rows if at(row["source_inner"])), top)
        if at_line is not top:
            line = at(at_line["source_inner"])
            yield f"The largest change with a source line is{line}: {by(at_line)}."


def by(row: CompareRow) -> str:
    """Format a row's change in time, with a sign."""
    return f"{'+' if row['delta_ps'] > 0 else '-'}{time(abs(row['delta_ps']))}"


def gate_sentence(gate: Gate) -> str:
    if gate["passed"]:
        return "The gate passes."
    if not gate["failed_by"]:
        return "The gate fails, because no change can be significant."
    failed = " and the ".join(FIGURES[name] for name in gate["failed_by"])
    return f"The gate fails: the {failed} got slower by more than {gate['fail_over_pct']:g} %."


def program_sentences(found: ProgramChanges) -> Iterator[str]:
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


def change(total: Total) -> str:
    """Describe a change in time in words, such as `0.14 ms (0.7 %) slower`."""
    share = total["delta_pct"]
    known = bracketed(share and abs(share))
    how = "slower" if total["delta_ps"] > 0 else "faster"
    return f"{time(abs(total['delta_ps']))}{known} {how}"


def step_sentence(step: Total, unit: str) -> str:
    if not step["delta_ps"]:
        return f"The step takes {time(step['after_ps'])} before and after."
    if step["significant"] is None:
        return f"The step is {change(step)}, {too_few(unit)}."
    noise = "more than" if step["significant"] else "within"
    return f"The step is {change(step)}, which is {noise} the noise between {unit}s."


def too_few(unit: str) -> str:
    return f"but too few {unit}s were captured to exclude noise"


def largest_part(totals: CompareTotals) -> str:
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


def pause_delta(totals: CompareTotals) -> int:
    """Return the change in the time between steps: the period without the step."""
    period = totals["period"]
    return period["delta_ps"] - totals["step_duration"]["delta_ps"] if period else 0


def pause_sentence(period: Total, pauses: int, unit: str) -> str:
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


def next_steps(answer: Answer) -> Iterator[Next]:
    step = answer["totals"]["step_duration"]
    is_slower = step["significant"] and step["delta_ps"] > 0
    if is_slower and answer["program_changes"]["same_program"]:
        yield Next("whether a device or a host is slow", ("--mode", "spread"))
