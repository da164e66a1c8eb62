"""Recognise ops that only move the elements of an array to other places in memory."""

from __future__ import annotations

from _breakdown.analysis.arrays.graph import inputs_of_chain, is_layout, operand
from _breakdown.analysis.arrays.of_step import StepArray
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.pipeline.executions import Executions
from _proto.hlo.program import Instruction

_REORDERING = frozenset(("copy", "transpose", "reshape"))
_ONLY_LAYOUT = _REORDERING | {"bitcast", "fusion", "parameter"}


def changes_layout(op: Instruction) -> bool:
    """Return whether an op only changes the layout of an array; other reshapes run no op."""
    if op.opcode == "fusion":
        return op.opcodes <= _ONLY_LAYOUT and not op.opcodes.isdisjoint(_REORDERING)
    if op.opcode == "reshape":
        return True
    if op.is_asynchronous and op.on_sparse_core and is_layout(op):
        # The operand stands on the update.
        return any(source.layout != op.layout for source in inputs_of_chain(op))
    source = operand(op, 0) if op.opcode in _REORDERING else None
    return source is not None and source.layout != op.layout


def moved_between(of: StepProgram, ran: Executions) -> tuple[StepArray, StepArray] | None:
    """Return the largest array that an op reads, and the largest that it writes."""
    uses = of.arrays.uses_of.get(ran, [])
    read = [array for array, use in uses if not use.is_write]
    written = [array for array, use in uses if use.is_write]
    if not read or not written:
        return None
    return max(read, key=_n_bytes), max(written, key=_n_bytes)


def _n_bytes(array: StepArray) -> int:
    return array.shape.n_bytes or 0
