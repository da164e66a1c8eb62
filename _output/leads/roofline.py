"""Write the headline and next steps for mode `roofline`: how much time math takes beyond its
roof."""

from __future__ import annotations

from _output.leads.phrases import Next, at_line_of, joined
from _units import part_of, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from _output.fields.roofline import Answer


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    summary = answer["step_summary"]
    at_roof, lost = summary["t_roofline_per_op_ps"], summary["shortfall_per_op_ps"]
    math, judged = summary["step_compute_dur_ps_total"], (at_roof or 0) + (lost or 0)
    if judged:
        yield f"Math with a known roof takes {time(judged)}; {time(lost or 0)} is beyond the roof."
        yield from largest_loss(answer)
    if math > judged:
        yield f"The cost of {part_of(math - judged, math)} of math is unknown."
    if not math:
        yield "No math ran in this step."


def largest_loss(answer: Answer) -> Iterator[str]:
    """Yield a sentence about the row that loses the most time, if a row loses time."""
    rows = [*answer["groups"], *answer["skipped_groups"]["top_skipped"]]
    top = max(rows, key=lambda row: row["shortfall_per_op_ps"] or 0, default=None)
    if top and top["shortfall_per_op_ps"]:
        line = at_line_of(top) or " without a source line"
        yield f"The largest listed loss is{line}: {time(top['shortfall_per_op_ps'])}."


def next_steps(answer: Answer) -> Iterator[Next]:
    yield Next("where the step loses time, and why", ("--mode", "bottleneck"))
