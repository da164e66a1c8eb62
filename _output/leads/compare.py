"""Write the headline and next steps for mode `compare`: the change in step time, and the line that
changed most."""

from __future__ import annotations

from _output.leads.phrases import Next, at, joined, short, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from _output.fields.compare import Answer, CompareRow, Gate, ProgramChanges, Total

FIGURES = {"step_duration": "step", "period": "period"}


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    if answer["gate"]:
        yield gate_sentence(answer["gate"])
    yield from program_sentences(answer["program_changes"])
    total, unit = answer["totals"]["step_duration"], answer["noise"]["noise_unit"]
    if total["delta_ps"]:
        yield step_sentence(change(total), total["significant"], unit)
    else:
        yield f"The step takes {time(total['after_ps'])} before and after."
    period = answer["totals"]["period"]
    if period and period["significant"] and not total["significant"]:
        yield f"A step starts every {time(period['after_ps'])}, which is {change(period)}."
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
        yield "The compiled program is the same, so no change reached the device."
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
    known = f" ({abs(share):.1f} %)" if share is not None else ""
    how = "slower" if total["delta_ps"] > 0 else "faster"
    return f"{time(abs(total['delta_ps']))}{known} {how}"


def step_sentence(changed: str, significant: bool | None, unit: str) -> str:
    if significant is None:
        return f"The step is {changed}, but too few {unit}s were captured to exclude noise."
    if significant:
        return f"The step is {changed}, which is more than the noise between {unit}s."
    return f"The step is {changed}, which is within the noise between {unit}s."


def next_steps(answer: Answer) -> list[Next]:
    return []
