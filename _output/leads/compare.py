"""Write the headline and next steps of compare: the change of the step, and the line that changed
most."""

from __future__ import annotations

from _output.leads.phrases import Next, at, joined, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from _output.fields.compare import Answer


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    total = answer["totals"]["step_duration"]
    delta = total["delta_ps"]
    if not delta:
        yield f"The step takes {time(total['after_ps'])}, as before."
    else:
        share = total["delta_pct"]
        how = "slower" if delta > 0 else "faster"
        known = f" ({abs(share):.1f} %)" if share is not None else ""
        yield f"The step is {time(abs(delta))}{known} {how}, {noise(total['significant'])}."
    rows = [row for row in answer["rows"] if row["significant"] and row["delta_ps"]]
    if rows:
        top = max(rows, key=lambda row: abs(row["delta_ps"]))
        sign = "+" if top["delta_ps"] > 0 else "-"
        line = at(top["source_inner"]) or " without a source line"
        yield f"The largest change is{line}: {sign}{time(abs(top['delta_ps']))}."


def noise(significant: bool | None) -> str:
    if significant is None:
        return "and too few steps were captured to say if that is noise"
    return "more than noise between steps" if significant else "within the noise between steps"


def next_steps(answer: Answer) -> list[Next]:
    return []
