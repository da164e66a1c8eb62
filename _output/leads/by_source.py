"""Write the headline and next steps for mode `by_source`: the costliest line, and the time that is
not listed."""

from __future__ import annotations

from collections.abc import Iterator

from _output.leads.phrases import Next, at_line_of, joined
from _units import counted, part_of, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.by_source import Answer


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    step, totals, groups = answer["step_duration_ps"], answer["totals"], answer["groups"]
    if not groups:
        yield "No math ran in this step."
        return
    top = max(groups, key=lambda group: group["total_dur_ps"])
    line = at_line_of(top, answer) or " without a source line"
    n_groups = len(groups) + answer.get("tail", {"n_groups_omitted": 0})["n_groups_omitted"]
    yield (
        f"{counted(n_groups, 'group')} of ops by source line; the costliest group is{line}:"
        f" {part_of(top['total_dur_ps'], step)}."
    )
    left_out = [
        " of ".join((time(duration), name))
        for name, duration in (
            ("communication", totals["left_out_ps"]["comm"]),
            ("data movement", totals["left_out_ps"]["data_move"]),
        )
        if duration
    ]
    if left_out:
        yield f"The list omits {' and '.join(left_out)}."


def next_steps(answer: Answer) -> Iterator[Next]:
    yield Next("how far each line is from its roof", ("--mode", "roofline"))
