"""Find arrays that are joined into one flat array and later cut out of it again.

    flat, unravel = ravel_pytree(grads)    # f32[66724864]
    grads = unravel(psum(flat) / n)        # one collective instead of three

An array with one dimension has a different layout from an array with several dimensions. Joining
arrays into a flat array therefore copies each of them twice, and elementwise ops on the flat array
are not fused into other ops. The cause requires two kinds of ops that only move data: some write
parts into a large array with one dimension, others take parts out of one. The gain is the time of
all ops that only move data or work elementwise on these arrays. The cause is reported as a `likely`
`layout_change`, because one collective for many small arrays can be faster than many collectives.
"""

from __future__ import annotations

from collections.abc import Iterable

from _analysis.causes.cause import LIKELY, Cause, Evidence
from _analysis.causes.graph import ELEMENTWISE
from _analysis.causes.layout_change import NAME
from _analysis.causes.sentences import about, line_says
from _analysis.causes.step_program import StepProgram, place_of_longest, total_of
from _analysis.remedies import CAUSES
from _pipeline.vocabulary import COMM
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Array
from _units import counted, size

# Ignore smaller arrays: for example, the weights of norms always have one dimension.
_MIN_BYTES = 1 << 20
_JOINING = frozenset(("concatenate", "dynamic-update-slice"))
_CUTTING = frozenset(("dynamic-slice", "reshape", "slice"))
_MOVING = _JOINING | _CUTTING | frozenset("bitcast copy pad transpose".split())
_FREE = frozenset("broadcast constant get-tuple-element parameter tuple".split())


def find(of: StepProgram) -> list[Cause]:
    members = []
    joins = cuts = False
    largest: Array | None = None
    for executions in of.leaves:
        here = executions.op.instruction
        if here is None or executions.op.kind == COMM or executions.total * 100 < of.floor:
            continue
        written, read = _flat(here.arrays or ()), _flat(_operands(here))
        if not written and not read:
            continue
        opcodes = {part.opcode for part in here.inside()} or {here.opcode}
        opcodes -= _FREE
        # Skip ops that compute arrays with several dimensions, because the flat array is only a
        # part of their work.
        is_move = opcodes <= _MOVING
        if not is_move and not (_all_flat(here) and opcodes <= _MOVING | ELEMENTWISE):
            continue
        joins = joins or bool(is_move and written and opcodes & _JOINING)
        cuts = cuts or bool(is_move and read and opcodes & _CUTTING)
        members.append(executions)
        largest = max([*written, *read, *([largest] if largest else [])], key=_n_bytes)
    if not (joins and cuts and largest) or total_of(members) < of.floor:
        return []
    gain, place = total_of(members), place_of_longest(members)
    return [
        Cause(
            NAME,
            gain,
            f"Arrays are joined into one flat array {largest.text}"
            f" ({size(_n_bytes(largest))}), which is later split again. This takes"
            f" {about(gain, of.step)} in {counted(len(members), 'op')}, most of it at"
            f" {line_says(place)}.",
            CAUSES["layout_change, flat"],
            LIKELY,
            Evidence(members, shape=largest.text),
            *place,
        )
    ]


def _n_bytes(array: Array) -> int:
    return array.n_bytes or 0


def _flat(arrays: Iterable[Array]) -> list[Array]:
    return [array for array in arrays if len(array.dims) == 1 and _n_bytes(array) >= _MIN_BYTES]


def _operands(instruction: Instruction) -> Iterable[Array]:
    return (array for arrays in instruction.operand_arrays for array in arrays or ())


def _all_flat(instruction: Instruction) -> bool:
    """Return True if an instruction has large outputs and all of them have one dimension."""
    large = [array for array in instruction.arrays or () if _n_bytes(array) >= _MIN_BYTES]
    return bool(large) and all(len(array.dims) == 1 for array in large)
