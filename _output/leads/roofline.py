"""Write the headline and next steps for mode `roofline`: how much time math takes beyond its
roof."""

from __future__ import annotations

from collections.abc import Iterator

from _output.phrases import Next, at_line_of, joined
from _units import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.roofline import Answer


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    summary = answer["step_summary"]
    math, unknown = summary["step_compute_dur_ps_total"], summary["without_roof_ps"]
    lost = summary["shortfall_per_op_ps"]
    if not math:
        yield "No math ran in this step."
    elif lost is None:
        yield f"Math takes {time(math)}; its roof is unknown."
    else:
        rest = f", and the roof of {time(unknown)} is unknown" if unknown else ""
        yield f"Math takes {time(math)}: {time(lost)} is beyond the roof{rest}."
        yield from largest_loss(answer)


def largest_loss(answer: Answer) -> Iterator[str]:
    """Yield a sentence about the row that loses the most time, if a row loses time."""
    rows = [*answer["groups"], *answer["skipped_groups"]["top_skipped"]]
    top = max(rows, key=lambda row: row["shortfall_per_op_ps"] or 0, default=None)
    if top and top["shortfall_per_op_ps"]:
        line = at_line_of(top, answer) or " without a source line"
        yield f"The largest listed loss is{line}: {time(top['shortfall_per_op_ps'])}."


def next_steps(answer: Answer) -> Iterator[Next]:
    yield Next("where the step loses time, and why", ("--mode", "bottleneck"))
