"""Find copies that only change the layout of an array.

    pairs = stack([a, b], -1).reshape(x.shape)    # interleaved: the last dimension has two elements
    q = kernel(pairs)                             # and the kernel wants another layout

If two successive ops require different orders of dimensions or different tiles in memory, the
compiler inserts a copy between them. The copy reads and writes all bytes and computes nothing. A
layout change is a synchronous copy or transpose whose layout differs from its operand's, or a
fusion of only such ops. Reshapes that run as ops are also layout changes; other reshapes are free.
Copies that belong to a change in sharding are reported under the cause `resharding`. All changes at
one source line share one row.

The compiler can also fuse a layout change into other ops. A fused layout change is assumed if the
last dimension of a large array has size 2, so that the array consists of pairs. Ops that write or
read such arrays often take much longer than the bytes require, whichever dimension the layout
spreads over the 128 lanes. Ops that have a dot, or an array more than twice as large as the array
of pairs, are excluded, because the pairs are only a part of their work. The gain is the time of the
remaining ops minus the time to read and write the array once at peak HBM bandwidth.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from _analysis.causes.cause import SEEN, Cause, Evidence, Place
from _analysis.causes.graph import operand
from _analysis.causes.sentences import about, clipped, line_says
from _analysis.causes.step_program import StepProgram, place_of, place_of_longest, total_of
from _analysis.remedies import CAUSES
from _pipeline.executions import Executions
from _pipeline.vocabulary import COMPUTE, DATA_MOVE
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Array
from _units import counted, time

NAME: Final = "layout_change"
_REORDERING = frozenset(("copy", "transpose", "reshape"))
# Ignore smaller arrays, which cost almost nothing.
_MIN_BYTES = 1 << 20
_ONLY_LAYOUT = _REORDERING | {"bitcast", "parameter"}


def find(of: StepProgram, left_out: Container[int]) -> list[Cause]:
    """Return the causes; `left_out` contains the ids of executions that belong to other causes."""
    # Skip short ops, because reading their shapes takes time.
    ran = [
        executions
        for executions in of.leaves
        if executions.total * 50 >= of.floor and id(executions) not in left_out
    ]
    pairs = {executions: array for executions in ran if (array := _pairs_of(executions))}
    changes = [
        executions
        for executions in ran
        if executions not in pairs
        and executions.op.instruction
        and _changes_layout(executions.op.instruction)
    ]
    found = [_cause_of_pairs(of, pairs)] if pairs and of.roofs.hbm else []
    if total_of(changes) < of.floor:
        return found
    rows: dict[str | None, list[tuple[Place, Executions]]] = {}
    for executions in changes:
        place = place_of(executions.op)
        rows.setdefault(place.source_user or place.source_inner, []).append((place, executions))
    return [*found, *(_cause(of, row) for row in rows.values())]


def _pairs_of(executions: Executions) -> Array | None:
    """Return a large array of pairs (last dimension 2) that an op writes or reads, or None."""
    here = executions.op.instruction
    if here is None or executions.op.kind not in (COMPUTE, DATA_MOVE) or executions.op.dot:
        return None
    of_op = [array for arrays in (here.arrays, *here.operand_arrays) for array in arrays or ()]
    # Exclude ops with a much larger array, because the pairs are only a part of their work.
    least = max(_MIN_BYTES, max((array.n_bytes or 0 for array in of_op), default=0) // 2)
    pairs = (array for array in of_op if len(array.dims) > 2 and array.dims[-1] == 2)
    return next((array for array in pairs if (array.n_bytes or 0) >= least), None)


def _cause_of_pairs(of: StepProgram, pairs: dict[Executions, Array]) -> Cause:
    members = list(pairs)
    place, total = place_of_longest(members), total_of(members)
    needed = sum(
        min(executions.total, round(2 * executions.n * (array.n_bytes or 0) / (of.roofs.hbm or 1)))
        for executions, array in pairs.items()
    )
    gain, shape = total - needed, pairs[members[0]].text
    return Cause(
        NAME,
        gain,
        f"{counted(len(members), 'op')} on arrays whose last dimension is 2, such as {shape}, take"
        f" {time(total)}, with most time at {line_says(place)}. Moving the bytes takes only"
        f" {time(needed)}, so another layout would save {about(gain, of.step)}.",
        CAUSES["layout_change, pairs"],
        SEEN,
        Evidence(members, shape=shape),
        *place,
    )


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
        f"{counted(n, 'copy')} at {line_says(place)} only"
        f" {'changes' if n == 1 else 'change'} the layout of arrays such as"
        f" {clipped(shape or '?')}. This takes {about(gain, of.step)}.",
        CAUSES[NAME],
        SEEN,
        Evidence(members, shape=shape),
        *place,
    )
