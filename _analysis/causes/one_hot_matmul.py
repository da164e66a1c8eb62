"""A lookup that is done as a matmul.

    x = one_hot(tokens, vocab) @ table      # x = table[tokens] reads one row for each token

The matmul reads the whole table for each token and multiplies by zeros, and the matrix may be
written to memory or gathered from other devices first. It is seen where an operand of a dot comes,
through converts, collectives and layout ops alone, from a comparison for equality with an iota,
which may have the offset of a shard added. The gain is the time of these dots and of the ops that
only make or move the matrix, less the bytes of a gather at the HBM peak.
"""

from __future__ import annotations

from _analysis.causes.cause import SEEN, Cause, Evidence
from _analysis.causes.graph import DOTS, Value, is_layout, origins
from _analysis.causes.sentences import duration, line_says, percent_of
from _analysis.causes.step_program import own_line_of, place_of_longest, total_of
from _proto.hlo.collectives import collective_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from _analysis.causes.step_program import StepProgram
    from _pipeline.executions import Executions
    from _proto.hlo.program import Instruction

NAME: Final = "one_hot_matmul"
_EQUAL = b"EQ"
_OFFSET = frozenset("add subtract broadcast convert".split())


def find(of: StepProgram) -> list[Cause]:
    rows: dict[str | None, list[tuple[Instruction, Value]]] = {}
    for dot in of.program.instructions():
        if dot.opcode not in DOTS:
            continue
        matrices = [Value(each) for each in dot.operands]
        matrix = next((each for each in matrices if _is_one_hot(each)), None)
        if matrix is not None:
            line = own_line_of(dot, of.is_own) or dot.line
            rows.setdefault(line, []).append((dot, matrix))
    return [cause for row in rows.values() if (cause := _cause(of, row))]


def _is_kept(value: Value) -> bool:
    here = value.instruction
    is_moved = here.is_asynchronous or collective_name(here.opcode) is not None
    return is_moved or here.opcode in ("convert", "broadcast") or is_layout(here)


def _is_one_hot(matrix: Value) -> bool:
    """Tell if a matrix is a comparison of something with the place in a dimension."""
    return any(
        value.instruction.opcode == "compare"
        and value.instruction.message.comparison_direction == _EQUAL
        and any(_is_place(Value(each)) for each in value.instruction.operands)
        for value in origins(matrix, _is_kept)
    )


def _is_place(operand: Value) -> bool:
    """Tell if an operand is an iota, plus or minus a scalar."""
    return any(
        value.instruction.opcode == "iota" and value.array is not None and value.array.dims
        for value in origins(operand, _is_shifted)
    )


def _is_shifted(value: Value) -> bool:
    return value.instruction.opcode in _OFFSET or is_layout(value.instruction)


def _cause(of: StepProgram, row: list[tuple[Instruction, Value]]) -> Cause | None:
    ran: dict[int, Executions] = {}
    gathered = 0
    for dot, matrix in row:
        executed = of.executed(dot)
        if executed is None:
            continue
        ran[id(executed)] = executed
        result = dot.arrays or ()
        gathered += executed.n * 2 * sum(each.n_bytes or 0 for each in result)
        for value in origins(matrix, _is_kept):
            maker = of.executed(value.instruction)
            # The matrix may be made by an op of its own, but not by one that does other work.
            if maker and maker.op.instruction and not maker.op.dot:
                ran[id(maker)] = maker
    if not ran:
        return None
    members = list(ran.values())
    hbm = of.roofs.hbm
    total = total_of(members)
    gain = max(0, total - round(gathered / hbm)) if hbm else total
    first = row[0][0]
    place = place_of_longest(members)._replace(
        source_user=own_line_of(first, of.is_own), source_inner=first.line
    )
    shape = row[0][1].array
    return Cause(
        NAME,
        gain,
        f"{line_says(place)} multiplies a table by a one-hot matrix "
        f"({shape.text if shape else 'of unknown shape'}): {duration(total)} in matmuls and in "
        f"making the matrix; looking the rows up would save up to {duration(gain)} "
        f"({percent_of(gain, of.step)} of the step).",
        "Index the table with the numbers instead of multiplying by one_hot: `table[tokens]`, or "
        "`jnp.take` along the axis.",
        SEEN,
        Evidence(members, shape=shape.text if shape else None),
        *place,
    )
