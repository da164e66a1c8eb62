"""Write the headline and next steps for mode `non_compute`: the time of data movement and waits,
and the line with the largest part."""

from __future__ import annotations

from collections.abc import Iterator

from _output.phrases import Next, at_line_of, bracketed, joined, short
from _units import part_of, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.non_compute import Answer


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    totals = answer["totals"]
    listed = totals["non_compute_duration_ps"]
    yield (
        f"Data movement and waits take {part_of(listed, answer['step_duration_ps'])}"
        f"{bracketed(totals['non_compute_pct_of_step'])}."
    )
    rows = answer["by_source_within_category"]
    if rows:
        top = max(rows, key=lambda row: row["total_dur_ps"])
        line = at_line_of(top, answer)
        took = time(top["total_dur_ps"])
        yield f"The largest part is {short(top['hlo_category'])}{line}: {took}."
    left_out = totals["left_out_ps"]["comm"]
    if left_out:
        yield f"The list omits {time(left_out)} of communication."


def next_steps(answer: Answer) -> Iterator[Next]:
    yield Next("where the step loses time, and why", ("--mode", "bottleneck"))
