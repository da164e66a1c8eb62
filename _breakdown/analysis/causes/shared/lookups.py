"""Recognise matmuls with a one-hot matrix: lookups in a table, and their gradients."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.graph import (
    DOTS,
    Value,
    consumers,
    is_layout,
    operand,
    origins,
    reach,
)
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Confidence
from _breakdown.analysis.causes.shared.one_hots import is_consecutive, is_one_hot
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.light import NamedTuple
from _proto.hlo.collectives import collective_name
from _proto.hlo.program import Instruction


class Lookup(NamedTuple):
    """A dot with a one-hot matrix, the values from which the matrix is computed, and the comparison
    among them."""

    dot: Instruction
    matrix: Value
    values: set[Value]
    confidence: Confidence
    compare: Instruction

    @property
    def is_block(self) -> bool:
        """Return whether the indices are consecutive, so that the rows move together."""
        return self.confidence == SEEN and is_consecutive(self.compare)


def lookups_in(of: StepProgram) -> Iterator[Lookup]:
    hot = filter(is_one_hot, map(Value, of.with_opcodes("compare")))
    # Following the few one-hot matrices takes less time than following the operands of all matmuls.
    near = {value.instruction for value in reach(hot, consumers, _is_weighted).stopped}
    for dot in of.with_opcodes(*DOTS):
        if dot in near and (found := _lookup(dot)):
            yield found


def _lookup(dot: Instruction) -> Lookup | None:
    for matrix in map(Value, dot.operands):
        values = origins(matrix, _is_weighted)
        hot = [value for value in values if is_one_hot(value)]
        if not hot:
            continue
        kept = origins(matrix, is_kept)
        if found := [value.instruction for value in hot if value in kept]:
            return Lookup(dot, matrix, kept, SEEN, found[0])
        # A comparison with fewer elements than the matrix is a mask of rows, not a one-hot matrix.
        n_elements = matrix.array.n_elements if matrix.array else 0
        if any(value.array and value.array.n_elements >= n_elements for value in hot):
            return Lookup(dot, matrix, values, LIKELY, hot[0].instruction)
    return None


def is_kept(value: Value) -> bool:
    """Return whether a value is an operand in another dtype, layout, shape or place."""
    here = value.instruction
    is_moved = here.is_asynchronous or collective_name(here.opcode) is not None
    return is_moved or here.opcode in ("convert", "broadcast") or is_layout(here)


def _is_weighted(value: Value) -> bool:
    here = value.instruction
    if here.opcode == "select":
        # The compiler turns a multiplication by the result of a comparison into a select between a
        # value and 0.
        other = operand(here, 2)
        if other is not None and other.opcode == "broadcast":
            other = operand(other, 0)
        return other is not None and other.opcode == "constant"
    return here.opcode in ("multiply", "reduce") or is_kept(value)
