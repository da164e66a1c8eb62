"""Find lookups that are written as a matmul."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from fractions import Fraction

from _breakdown.analysis.arrays.engine import Change, Retime, removal_of
from _breakdown.analysis.arrays.graph import Value, consumers, is_backward, is_same, origins, reach
from _breakdown.analysis.causes.shared.cause import SEEN, Cause
from _breakdown.analysis.causes.shared.lookups import Lookup, is_kept, lookups_in
from _breakdown.analysis.causes.shared.one_hots import is_one_hot
from _breakdown.analysis.causes.shared.step_program import (
    StepProgram,
    collective_name_of,
    own_line_of,
    total_of,
)
from _breakdown.pipeline.executions import Executions
from _breakdown.units import time
from _proto.hlo.program import Instruction

# Gathers and scatters move single rows, so they reach only about this fraction of the peak HBM
# bandwidth. Blocks of rows reach more, although a loop moves them if each batch has its own offset.
_GATHER_SPEED, _BLOCK_SPEED = Fraction(1, 10), Fraction(1, 4)

FOR_LOOKUP = (
    "Index the table instead of multiplying by one_hot, and measure: `table[tokens]`, or `jnp.take`"
    " along the axis."
)
FOR_BLOCK = (
    "Move the rows together instead of multiplying by one_hot, because their places are"
    " consecutive: write them with lax.dynamic_update_slice in a donated buffer, or read them with"
    " lax.dynamic_slice, with jax.vmap if each batch has its own offset."
)
FOR_WEIGHTED = (
    "Compute the positions of the tokens (cumsum or argsort of the expert indices), and move rows"
    " with take_along_axis and .at[].set or .add instead of einsum."
)

# The words for the kinds of matrices: what is multiplied, what would save time, and what helps.
_Words = tuple[str, str, str]
_LOOKUP: _Words = ("a table by a one-hot matrix ({}), which", "Looking up the rows", FOR_LOOKUP)
_BLOCK: _Words = (
    "rows by a one-hot matrix ({}) of consecutive places, which",
    "Moving them together",
    FOR_BLOCK,
)
_WEIGHTED: _Words = (
    "by a matrix of weighted one-hot rows ({}), mostly zeros, which",
    "Gathering or scattering rows, such as an expert's tokens,",
    FOR_WEIGHTED,
)


def find(of: StepProgram) -> Iterator[Cause]:
    rows: dict[tuple[str | None, _Words], list[Lookup]] = {}
    for found in lookups_in(of):
        # Several matmuls can share the ops that compute a weighted matrix, so all matmuls with
        # weighted matrices are in one row. So are those with a one-hot matrix of the same line.
        shared = found.compare if found.is_block else found.dot
        is_seen = found.confidence == SEEN
        line = own_line_of(shared, of.is_own) or shared.line if is_seen else None
        words = _BLOCK if found.is_block else _LOOKUP if is_seen else _WEIGHTED
        rows.setdefault((line, words), []).append(found)
    for (_, words), row in rows.items():
        yield from _causes(of, row, words)


def _causes(of: StepProgram, row: list[Lookup], words: _Words) -> Iterator[Cause]:
    """Yield the cause for the lookups of a row, unless none of them ran."""
    dots: dict[Executions, float] = {}
    removed: dict[Executions, None] = {}
    for lookup in row:
        executed = of.executed(lookup.dot)
        if executed is None or id(executed) in of.explained_by("parameter_relayout"):
            continue
        dots[executed] = dots.get(executed, 0.0) + executed.n * _time_of_lookup(of, lookup)
        for value in lookup.values:
            maker = of.executed(value.instruction)
            # Include the ops that compute the matrix, except ops with a dot, because the matrix is
            # only a part of their work.
            if maker and maker.op.instruction and not maker.op.dot:
                removed[maker] = None
        removed |= dict.fromkeys(_moves_of_table(of, lookup))
    if not dots:
        return
    if row[0].is_block and total_of([*dots]) > sum(dots.values()):
        # The sum of consecutive places is a range.
        removed |= dict.fromkeys(_sums_for(of, row))
    members = [*dots, *removed]
    total = total_of(members)
    lookups = [Retime(ran, min(ran.total, time)) for ran, time in dots.items()]
    changes: list[Change] = [*lookups, *removal_of(removed)]
    first = row[0]
    array = first.matrix.array
    what, instead, helps = words
    yield Cause(
        f"<line> multiplies {what.format(array.text if array else 'of unknown shape')} takes"
        f" {time(total)} with the ops that build the matrix. {instead} would save <gain>.",
        helps,
        first.confidence,
        members,
        changes,
        place=of.place_at(first.dot) if first.confidence == SEEN else None,
        evidence={"shape": array.text if array else None},
    )


def _sums_for(of: StepProgram, row: list[Lookup]) -> Iterator[Executions]:
    """Yield the ops that only sum the same one-hot matrix, such as a mask of the places."""
    lines = {lookup.compare.line for lookup in row}
    hot = filter(is_one_hot, map(Value, of.with_opcodes("compare")))
    alike = (value for value in hot if value.instruction.line in lines)
    for here, _ in reach(alike, consumers, is_kept).stopped:
        ran = of.executed(here) if here.opcode == "reduce" else None
        if ran and here in (ran.op.instruction, here.computation.root):
            yield ran


def _time_of_lookup(of: StepProgram, lookup: Lookup) -> float:
    """Return the time of a gather of the rows, of a scatter into the gradient of the table, or of
    moving a block to or from a larger array."""
    result = _bytes_of([lookup.dot])
    others = [each for each in lookup.dot.operands if each is not lookup.matrix.instruction]
    hbm = float(of.roofs.hbm or math.inf)
    if lookup.is_block:
        return 2 * min(result, _bytes_of(others)) / float(_BLOCK_SPEED) / hbm
    is_update = is_backward(lookup.dot)
    rows = _bytes_of(others) if is_update else result
    filled = result if is_update else 0
    return (2 * rows / float(_GATHER_SPEED) + filled) / hbm


def _moves_of_table(of: StepProgram, lookup: Lookup) -> Iterator[Executions]:
    """Yield the collectives that gather the table for a matmul, and that scatter the sum of its
    gradient: a lookup moves rows."""
    if lookup.confidence != SEEN:
        return
    tables = [Value(each) for each in lookup.dot.operands if each is not lookup.matrix.instruction]
    before = {value for table in tables for value in origins(table, is_kept)}
    after = reach([Value(lookup.dot)], consumers, is_same).stopped
    for value in (*before, *after):
        ran = of.executed(value.instruction)
        if ran and collective_name_of(ran.op) in ("all-gather", "reduce-scatter"):
            yield ran


def _bytes_of(instructions: Iterable[Instruction]) -> int:
    return sum(array.n_bytes or 0 for here in instructions for array in here.arrays or ())
