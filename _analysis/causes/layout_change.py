"""Find ops that only change the order of an array's elements in memory.

needs: a program
headline: Changing the layout of arrays

What it finds: Copies that only change a layout, ops on arrays of pairs, and arrays that are joined
into one flat array and later split again.

Why it costs: If two successive ops require different orders of dimensions or different tiles in
memory, the compiler inserts a copy between them, which reads and writes all bytes and computes
nothing. The gain is the time of these copies. Ops on arrays of pairs often take much longer than
the bytes require, whichever dimension the layout spreads over the 128 lanes; their gain excludes
the time to read and write the array once at peak HBM bandwidth. An array with one dimension has
another layout than one with several, so joining arrays into a flat array copies each of them twice,
and elementwise ops on it are not fused into other ops. The gain is the time of all ops that only
move data or work elementwise on the flat arrays.

How the program shows it: All changes at one line share a row, and so do all ops on pairs.

- A synchronous copy or transpose whose layout differs from its operand's, a fusion of only such
  ops, or a reshape that runs as an op; other reshapes are free (`seen`). Copies that belong to a
  `resharding` are excluded.
- The last dimension of a large array has size 2. Ops are excluded if they have a dot, or an array
  more than twice as large, because the pairs are only a part of their work (`seen`).
- Some ops that only move data write parts into a large array with one dimension, and others take
  parts out of one (`likely`, because one collective for many small arrays can be faster than many
  collectives).

What to change: Use the same order of dimensions on both sides of the line, and do not split the
last dimension: rotate halves instead of pairs. Apply an operation to each array with `jax.tree.map`
instead of joining them; the compiler combines small collectives itself.

When it is intended: One copy can be cheaper than several slow ops that read the array in the wrong
order.

Example:

    # Before: the last dimension of the stacked array has two elements
    q = jnp.stack([a, b], -1).reshape(x.shape)
    # After: the halves stay apart (and the weight's columns are reordered to match)
    q = jnp.concatenate([a, b], -1)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from fractions import Fraction

from _analysis.arrays.engine import Remove, Retime
from _analysis.arrays.graph import ELEMENTWISE, operand
from _analysis.causes.shared.cause import LIKELY, SEEN, Cause, Place
from _analysis.causes.shared.sentences import clipped
from _analysis.causes.shared.step_program import StepProgram, place_of, total_of
from _pipeline.executions import Executions
from _pipeline.vocabulary import COMM, COMPUTE, DATA_MOVE
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Array
from _units import counted, size, time

# Ignore smaller arrays, which cost almost nothing. For example, the weights of norms always have
# one dimension.
_MIN_BYTES = 1 << 20
_REORDERING = frozenset(("copy", "transpose", "reshape"))
_ONLY_LAYOUT = _REORDERING | {"bitcast", "parameter"}
_JOINING = frozenset(("concatenate", "dynamic-update-slice"))
_CUTTING = frozenset(("dynamic-slice", "reshape", "slice"))
_MOVING = _JOINING | _CUTTING | frozenset("bitcast copy pad transpose".split())
_FREE = frozenset("broadcast constant get-tuple-element parameter tuple".split())

FOR_COPIES = (
    "Use the same order of dimensions before and after this line: avoid transposes, and reshapes"
    " that split or interleave the last dimension."
)
FOR_PAIRS = (
    "Split the last dimension into two halves (jnp.split and jnp.concatenate) instead of pairs"
    " (x[..., ::2] and jnp.stack), and reorder the columns of the weights to match."
)
FOR_FLAT = (
    "Keep the arrays separate: apply the collective or the update to each array with jax.tree.map."
    " The compiler combines small collectives itself."
)


def find(of: StepProgram) -> Iterator[Cause]:
    flat = list(_flat_arrays(of))
    left_out = of.explained_by("resharding")
    left_out.update(id(executions) for cause in flat for executions in cause.executions)
    # Skip short ops, because reading their shapes takes time.
    ran = [
        executions
        for executions in of.leaves
        if executions.total * 50 >= of.floor and id(executions) not in left_out
    ]
    pairs = {executions: array for executions in ran if (array := _pairs_of(executions))}
    yield from flat
    if pairs and of.roofs.hbm:
        yield _cause_of_pairs(pairs, of.roofs.hbm)
    changes = [
        executions
        for executions in ran
        if executions not in pairs
        and executions.op.instruction
        and _changes_layout(executions.op.instruction)
    ]
    if total_of(changes) >= of.floor:
        yield from _causes_of_copies(changes)


def _changes_layout(copy: Instruction) -> bool:
    if copy.opcode == "fusion":
        inside = {instruction.opcode for instruction in copy.inside()}
        return inside <= _ONLY_LAYOUT and not inside.isdisjoint(_REORDERING)
    if copy.opcode == "reshape":
        return True
    source = operand(copy, 0) if copy.opcode in _REORDERING else None
    return source is not None and source.layout != copy.layout


def _causes_of_copies(changes: Iterable[Executions]) -> Iterator[Cause]:
    rows: dict[str | None, list[tuple[Place, Executions]]] = {}
    for executions in changes:
        place = place_of(executions.op)
        rows.setdefault(place.source_user or place.source_inner, []).append((place, executions))
    for row in rows.values():
        members = [executions for _, executions in row]
        place, longest = max(row, key=lambda member: member[1].total)
        shape = longest.op.instruction.shape if longest.op.instruction else None
        n = sum(executions.n for executions in members)
        yield Cause(
            f"{counted(n, 'copy')} at <line> only {'changes' if n == 1 else 'change'} the layout of"
            f" arrays such as {clipped(shape or '?')}. This takes <gain>.",
            FOR_COPIES,
            SEEN,
            members,
            [Remove(members)],
            place=place,
            evidence={"shape": shape},
        )


def _pairs_of(executions: Executions) -> Array | None:
    """Return a large array of pairs (last dimension 2) that an op writes or reads, or None."""
    here = executions.op.instruction
    if here is None or executions.op.kind not in (COMPUTE, DATA_MOVE) or executions.op.dot:
        return None
    of_op = [*(here.arrays or ()), *_operands(here)]
    # Exclude ops with a much larger array, because the pairs are only a part of their work.
    least = max(_MIN_BYTES, max(map(_n_bytes, of_op), default=0) // 2)
    pairs = (array for array in of_op if len(array.dims) > 2 and array.dims[-1] == 2)
    return next((array for array in pairs if _n_bytes(array) >= least), None)


def _cause_of_pairs(pairs: dict[Executions, Array], hbm: Fraction) -> Cause:
    members = list(pairs)
    total, shape = total_of(members), pairs[members[0]].text
    needed = {
        executions: min(executions.total, round(2 * executions.n * _n_bytes(array) / hbm))
        for executions, array in pairs.items()
    }
    return Cause(
        f"{counted(len(members), 'op')} on arrays whose last dimension is 2, such as {shape}, take"
        f" {time(total)}, with most time at <line>. Moving the bytes takes only"
        f" {time(sum(needed.values()))}, so another layout would save <gain>.",
        FOR_PAIRS,
        SEEN,
        members,
        [Retime(executions, least) for executions, least in needed.items()],
        evidence={"shape": shape},
    )


def _flat_arrays(of: StepProgram) -> Iterator[Cause]:
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
    total = total_of(members)
    if joins and cuts and largest and total >= of.floor:
        yield Cause(
            f"Arrays are joined into one flat array {largest.text} ({size(_n_bytes(largest))}),"
            f" which is later split again. This takes <gain> in {counted(len(members), 'op')}, most"
            " of it at <line>.",
            FOR_FLAT,
            LIKELY,
            members,
            [Remove(members)],
            evidence={"shape": largest.text},
        )


def _n_bytes(array: Array) -> int:
    return array.n_bytes or 0


def _operands(instruction: Instruction) -> Iterator[Array]:
    return (array for arrays in instruction.operand_arrays for array in arrays or ())


def _flat(arrays: Iterable[Array]) -> list[Array]:
    return [array for array in arrays if len(array.dims) == 1 and _n_bytes(array) >= _MIN_BYTES]


def _all_flat(instruction: Instruction) -> bool:
    """Return True if an instruction has large outputs and all of them have one dimension."""
    large = [array for array in instruction.arrays or () if _n_bytes(array) >= _MIN_BYTES]
    return bool(large) and all(len(array.dims) == 1 for array in large)
