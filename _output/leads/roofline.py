"""Write the headline and next steps for mode `roofline`: how much time math takes beyond its
roof."""

from __future__ import annotations

from _output.leads.phrases import Next, at, joined, part_of, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from _output.fields.roofline import Answer


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    summary = answer["step_summary"]
    judged = summary["rooflined_dur_ps"]
    lost = summary["shortfall_per_op_ps"]
    if judged and lost is not None:
        yield f"Math with a known roof takes {time(judged)}; {time(lost)} is beyond the roof."
        top = next(iter(summary["top_shortfall_groups"]), None)
        if top:
            line = at(top["source_inner"]) or " without a source line"
            yield f"The line with the largest loss is{line}: {time(top['shortfall_ps'])}."
    skipped = answer["skipped_groups"]["total_dur_ps_skipped"]
    math = summary["step_compute_dur_ps_total"]
    if skipped:
        yield f"The cost of {part_of(skipped, math)} of math is unknown."
    if not math:
        yield "No math ran in this step."


def next_steps(answer: Answer) -> Iterator[Next]:
    yield Next("where the step loses time, and why", ("--mode", "bottleneck"))
