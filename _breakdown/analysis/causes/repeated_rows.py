"""Find matmuls of rows that are copies of each other, or of a matrix for each row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from _breakdown.analysis.arrays.graph import Value, consumers, is_same, reach
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.resized import (
    Resized,
    cause_of,
    longest_of,
    multiplies,
    sizes_of,
)
from _breakdown.analysis.causes.shared.sentences import line_says
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of_longest, total_of
from _breakdown.analysis.sizes.edges import MATMUL, OTHER, kind_of, last_of
from _breakdown.analysis.sizes.repeats import looks_up
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted, percentage, time
from _proto.hlo.program import Instruction

REMEDY = (
    "Apply the layer to the small array, and broadcast its result or look up rows of it, instead of"
    " the input of the layer. If only a part of the columns repeats, multiply it with its rows of"
    " the weight, and add the products."
)
FOR_TABLES = (
    "Multiply the rows with all matrices of the small array, and look up or select the products,"
    " instead of a matrix for each row."
)


def find(of: StepProgram) -> Iterator[Cause]:
    sizes = sizes_of(of)
    keyed = (
        ((row.kind, of.place_at(row.moved.seed).source_user), row)
        for kind in (MATMUL, OTHER)
        for row in sizes.ops_of(kind, sizes.repeat)
    )
    for (kind, _), rows in grouped(keyed).items():
        ops = [row.ran for row in rows]
        longest, place = longest_of(rows), place_of_longest(ops)
        moved, matmul = longest.moved, longest.matmul if kind == MATMUL else None
        if matmul and (at := of.place_at(matmul)).source_user:
            place = place._replace(source_user=at.source_user, source_inner=at.source_inner)
        left, line = percentage(100 * moved.left), line_says(of.place_at(moved.seed))
        says = f"{time(total_of(ops))} in {counted(len(rows), 'op')} at <line> go to " + (
            f"a matmul of rows that {line} repeats: at most {left} of them differ. Multiplying"
            " these"
            if kind == MATMUL
            else f"products with a matrix for each row, which {line} looks up: at most {left} of"
            " them differ. Multiplying with these"
        )
        yield cause_of(
            [*rows, *_makers(of, rows)],
            f"{says} would save <gain>.",
            REMEDY if kind == MATMUL else FOR_TABLES,
            SEEN if kind == MATMUL else LIKELY,
            place,
        )


def _makers(of: StepProgram, rows: Sequence[Resized]) -> Iterator[Resized]:
    """Yield the ops that only make the repeated arrays which these ops read."""
    law = sizes_of(of).repeat
    found = {row.ran for row in rows}
    to_do = [(row, _repeated_after(row)) for row in rows]
    for row, n_after in to_do:
        op = row.ran.op.instruction
        for value in [last_of(Value(one), _is_bitcast) for one in op.operands] if op else ():
            ran, moved, array = of.executed(value.instruction), law.left(value), value.array
            if not ran or not moved or not array or ran in found or multiplies(ran):
                continue
            after = n_after / max(1, array.n_elements)
            left = max(moved.left, after)
            is_kept = looks_up(moved) and not _readers_of(of, value) <= found
            if looks_up(moved) and ran.op.instruction and "gather" in ran.op.instruction.opcodes:
                # Results can be wider than the rows, and others can read the rows.
                left = after + is_kept
            elif left >= 1 or is_kept:
                continue
            if left != 1:
                found.add(ran)
                to_do.append((row._replace(ran=ran, left=left, value=value, moved=moved), n_after))
                yield to_do[-1][0]


def _repeated_after(row: Resized) -> int:
    """Return the number of elements that have to be looked up or repeated after an op, instead of
    before it: all results of lookups, and repeated results that a matmul or a kernel reads."""
    op, is_lookup = row.ran.op.instruction, looks_up(row.moved)
    made = [Value(op, path) for path, _ in op.leaves or ()] if op else []
    return sum(
        value.array.n_elements
        for value in made
        if value.array
        if is_lookup or (row.law.left(value) and not _is_read_by_elements(value))
    )


def _is_read_by_elements(value: Value) -> bool:
    read = reach([value], consumers, is_same).stopped
    return not any(kind_of(each.instruction) in (MATMUL, OTHER) for each in read)


def _readers_of(of: StepProgram, value: Value) -> set[Executions | None]:
    read = reach([value], consumers, lambda each: _is_bitcast(each.instruction)).stopped
    return {of.executed(each.instruction) for each in read}


def _is_bitcast(here: Instruction) -> bool:
    return here.opcode == "bitcast"
