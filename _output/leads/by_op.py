"""Write the headline and next steps for mode `by_op`: the costliest op, or the op passed as
`--op`."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from _output.phrases import Next, at_line_of, bracketed, joined, short
from _units import counted, part_of, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.by_op import Answer, MergedOps, OpFields


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    """Describe the op passed as `--op`, or the first row that text lists: ops that are merged into
    one row count together."""
    asked = answer.get("op")
    if asked:
        yield from described(asked, 1, answer, "Op")
    elif answer.get("merged"):
        row = answer["merged"][0]
        are = "The costliest op is" if row["n_ops"] == 1 else "The costliest ops are"
        yield from described(row, row["n_ops"], answer, are)
    elif answer["ops"]:
        yield from described(answer["ops"][0], 1, answer, "The costliest op is")
    else:
        yield "The answer lists no ops."


def described(row: OpFields | MergedOps, n_ops: int, answer: Answer, before: str) -> Iterator[str]:
    taken = part_of(row["total_dur_ps"], answer["step_duration_ps"]) + bracketed(row["pct_of_step"])
    runs = counted(row["n_executions"], "execution")
    of_ops = f" of {counted(n_ops, 'op')}" if n_ops > 1 else ""
    yield f"{before} {short(row['hlo_op'])}{at_line_of(row, answer)}: {taken} in {runs}{of_ops}."
    this, its = ("this op", "its roof") if n_ops == 1 else ("these ops", "their roofs")
    if row["lost_ps"] and row["at_roof_ps"] == 0:
        yield "All of this time counts as lost."
    elif row["lost_ps"]:
        yield f"At {its}, {this} would take {time(row['lost_ps'])} less."
    elif row["at_roof_ps"] is None:
        yield f"The roof of {this} is unknown."


def next_steps(answer: Answer) -> Iterator[Next]:
    if "op" not in answer and answer["ops"]:
        names = [op["hlo_op"] for op in answer["ops"]]
        pattern = answer["merged"][0]["hlo_op"] if answer.get("merged") else names[0]
        # Of merged ops, show the costliest one.
        name = next((name for name in names if fnmatchcase(name, pattern)), names[0])
        yield Next("what is inside this op", ("--mode", "by_op", "--op", name, "--top", "0"))
