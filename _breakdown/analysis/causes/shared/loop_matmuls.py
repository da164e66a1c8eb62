"""Find the ops that belong to a matmul in a loop: slices, inputs, gradients of a bias."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.graph import DOTS, Value, is_same, loop_around, producers, reach
from _breakdown.analysis.arrays.of_step import StepArray
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of
from _breakdown.analysis.roof.ledger import Entry
from _breakdown.pipeline.executions import Executions
from _proto.hlo.program import Instruction

_SLICES = frozenset(("dynamic-slice", "dynamic-update-slice"))


def only_dot(entry: Entry) -> Instruction | None:
    """Return the matmul of an op; None if it has none or several."""
    here = entry.executions.op.instruction
    dots = here.parts_with(DOTS) if here else []
    return dots[0] if len(dots) == 1 else None


def inputs_of(of: StepProgram, dot: Instruction) -> set[StepArray]:
    """Return the arrays outside of the loop of which a matmul reads the whole or slices."""
    passed = reach([Value(dot)], producers, lambda v: is_same(v) or v.instruction.opcode in _SLICES)
    arrays = (of.arrays.array_at(v) for v in passed.passed if v.instruction.opcode == "parameter")
    return {of.arrays.source_of(array) for array in arrays if array and array.shape.dims}


def slices_for(of: StepProgram, matmul: Executions) -> Iterator[Executions]:
    """Yield the ops that only take a slice for a matmul."""
    here = matmul.op.instruction
    for source in here.operands if here else ():
        ran = of.ran.get(source)
        if ran and list(source.users) == [here] and moves_slices(ran):
            yield ran


def bias_gradients(of: StepProgram, matmuls: list[Executions]) -> Iterator[Executions]:
    """Yield the ops at the matmul's line that only write vectors in the loops of its gradients."""
    line = place_of(matmuls[0].op).source_user
    loops = {
        loop_around(ran.op.instruction.computation) for ran in matmuls[1:] if ran.op.instruction
    }
    for ran in (entry.executions for loop in loops if loop for entry in of.by_loop[loop]):
        arrays = ran.op.instruction.arrays if ran.op.instruction else None
        is_vector = bool(arrays) and all(len(array.dims) == 1 for array in arrays or ())
        if is_vector and ran.op.phase == "backward" and place_of(ran.op).source_user == line:
            yield ran


def moves_slices(ran: Executions) -> bool:
    here = ran.op.instruction
    if here is None:
        return False
    return not here.opcodes.isdisjoint(_SLICES) and here.opcodes.isdisjoint(DOTS)
