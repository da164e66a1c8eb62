"""Write the headline and next steps for mode `export`: the file that was written."""

from __future__ import annotations

from _output.phrases import Next, short_path
from _units import counted, size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.export import Answer


def headline(answer: Answer) -> str:
    n_rows = answer["n_rows"]
    ops = counted(n_rows["ops"], "op")
    executions = counted(n_rows["executions"], "execution")
    file = f"{short_path(answer['out'])} ({size(answer['bytes'])})"
    return f"Wrote {file}: {ops}, {executions}."


def next_steps(answer: Answer) -> list[Next]:
    return []
