"""Find arrays that are joined into one flat array and later split again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from _breakdown.analysis.arrays.engine import Remove
from _breakdown.analysis.arrays.graph import ELEMENTWISE
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.pipeline.vocabulary import COMM
from _breakdown.units import counted, size
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Array

# Ignore smaller arrays, which cost almost nothing. For example, the weights of norms always have
# one dimension.
_MIN_BYTES = 1 << 20
_JOINING = frozenset(("concatenate", "dynamic-update-slice"))
_CUTTING = frozenset(("dynamic-slice", "reshape", "slice"))
_MOVING = _JOINING | _CUTTING | frozenset("bitcast copy pad transpose".split())
_FREE = frozenset("broadcast constant get-tuple-element parameter tuple".split())

REMEDY = (
    "Keep the arrays separate: apply the collective or the update to each array with jax.tree.map."
    " The compiler combines small collectives itself."
)


def find(of: StepProgram) -> Iterator[Cause]:
    members = []
    joins = cuts = False
    largest: Array | None = None
    for ran in of.leaves:
        here = ran.op.instruction
        if here is None or ran.op.kind == COMM or ran.total * 100 < of.floor:
            continue
        opcodes = (here.opcodes - {here.opcode} or here.opcodes) - _FREE
        if not opcodes <= _MOVING | ELEMENTWISE:
            continue
        operands = (array for arrays in here.operand_arrays for array in arrays or ())
        written, read = _flat(here.arrays or ()), _flat(operands)
        if not written and not read:
            continue
        # Skip ops that compute arrays with several dimensions, because the flat array is only a
        # part of their work.
        is_move = opcodes <= _MOVING
        if not is_move and not _all_flat(here):
            continue
        joins = joins or bool(is_move and written and opcodes & _JOINING)
        cuts = cuts or bool(is_move and read and opcodes & _CUTTING)
        members.append(ran)
        largest = max([*written, *read, *([largest] if largest else [])], key=_n_bytes)
    if joins and cuts and largest:
        yield Cause(
            f"Arrays are joined into one flat array {largest.text} ({size(_n_bytes(largest))}),"
            f" which is later split again, by {counted(len(members), 'op')}, with most time at"
            " <line>. Without them, the step would save <gain>.",
            REMEDY,
            LIKELY,
            members,
            [Remove(members)],
            evidence={"shape": largest.text},
        )


def _n_bytes(array: Array) -> int:
    return array.n_bytes or 0


def _flat(arrays: Iterable[Array]) -> list[Array]:
    return [array for array in arrays if len(array.dims) == 1 and _n_bytes(array) >= _MIN_BYTES]


def _all_flat(instruction: Instruction) -> bool:
    """Return True if an instruction has large outputs and all of them have one dimension."""
    large = [array for array in instruction.arrays or () if _n_bytes(array) >= _MIN_BYTES]
    return bool(large) and all(len(array.dims) == 1 for array in large)
