"""Write the headline and next steps for mode `by_op`: the costliest op, or the op passed as
`--op`."""

from __future__ import annotations

from _output.leads.phrases import Next, at_line_of, bracketed, joined, short
from _units import counted, part_of, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from _output.fields.by_op import Answer, OpFields


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    asked = answer.get("op")
    op: OpFields
    if asked:
        op = asked
        yield described(asked, answer["step_duration_ps"], "Op")
    elif answer["ops"]:
        op = answer["ops"][0]
        yield described(op, answer["step_duration_ps"], "The costliest op is")
    else:
        yield "The answer lists no ops."
        return
    if op["lost_ps"] and op["at_roof_ps"] == 0:
        yield "All of this time counts as lost."
    elif op["lost_ps"]:
        yield f"At its roof, this op would take {time(op['lost_ps'])} less."
    elif op["at_roof_ps"] is None:
        yield "The roof of this op is unknown."


def described(op: OpFields, step: int, before: str) -> str:
    taken = part_of(op["total_dur_ps"], step)
    runs = counted(op["n_executions"], "execution")
    line = at_line_of(op)
    return f"{before} {short(op['hlo_op'])}{line}: {taken}{bracketed(op['pct_of_step'])} in {runs}."


def next_steps(answer: Answer) -> Iterator[Next]:
    if "op" not in answer and answer["ops"]:
        name = answer["ops"][0]["hlo_op"]
        yield Next("what is inside this op", ("--mode", "by_op", "--op", name, "--top", "0"))
