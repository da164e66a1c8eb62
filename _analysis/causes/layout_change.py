"""A copy that only changes the layout of an array.

    pairs = stack([a, b], -1).reshape(x.shape)    # interleaved: the last dimension has two elements
    q = kernel(pairs)                             # and the kernel wants another layout

The op before and the op after want different orders of dimensions or tiles in memory, so the
compiler puts a copy between them, which moves all bytes twice and computes nothing. It is seen
where a synchronous copy or transpose has another layout than its operand, also where a fusion does
nothing else, and where a reshape runs at all: the others are free. Copies that belong to a change
of shardings are left to that cause. There is one row for each line.
"""

from __future__ import annotations

from _analysis.causes.cause import SEEN, Cause, Evidence
from _analysis.causes.graph import operand
from _analysis.causes.sentences import duration, line_says, percent_of, plural
from _analysis.causes.step_program import Place, place_of, total_of
from _analysis.remedies import CAUSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container
    from typing import Final

    from _analysis.causes.step_program import StepProgram
    from _pipeline.executions import Executions
    from _proto.hlo.program import Instruction

NAME: Final = "layout_change"
_REORDERING = frozenset(("copy", "transpose", "reshape"))
_ONLY_LAYOUT = _REORDERING | {"bitcast", "parameter"}


def find(of: StepProgram, left_out: Container[int]) -> list[Cause]:
    """Find layout changes among executions; `left_out` has the ids of those of other causes."""
    changes = [
        executions
        for executions in of.leaves
        if id(executions) not in left_out
        and executions.op.instruction
        and _changes_layout(executions.op.instruction)
    ]
    if total_of(changes) < of.floor:
        return []
    rows: dict[str | None, list[tuple[Place, Executions]]] = {}
    for executions in changes:
        place = place_of(executions.op)
        rows.setdefault(place.source_user or place.source_inner, []).append((place, executions))
    return [_cause(of, row) for row in rows.values()]


def _changes_layout(copy: Instruction) -> bool:
    if copy.opcode == "fusion":
        inside = {instruction.opcode for instruction in copy.inside()}
        return inside <= _ONLY_LAYOUT and not inside.isdisjoint(_REORDERING)
    if copy.opcode == "reshape":
        return True
    source = operand(copy, 0) if copy.opcode in _REORDERING else None
    return source is not None and source.layout != copy.layout


def _cause(of: StepProgram, row: list[tuple[Place, Executions]]) -> Cause:
    members = [executions for _, executions in row]
    place = max(row, key=lambda member: member[1].total)[0]
    gain = total_of(members)
    longest = max(members, key=lambda executions: executions.total).op.instruction
    shape = longest.shape if longest else None
    n = sum(executions.n for executions in members)
    return Cause(
        NAME,
        gain,
        f"{plural(n, 'copy', 'copies')} at {line_says(place)} only change the layout of arrays "
        f"such as {shape}: {duration(gain)} ({percent_of(gain, of.step)} of the step).",
        CAUSES[NAME],
        SEEN,
        Evidence(members, shape=shape),
        *place,
    )
