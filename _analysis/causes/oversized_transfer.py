"""Find collectives that move far more bytes than the ops next to them need.

needs: a program

What it finds: A matmul or a lookup reads or writes several arrays, and devices exchange the largest
one, although exchanging all others would be cheaper.

Why it costs: Links are slow, so the time of a collective grows with its bytes. The gain is the time
of the collective, minus the time for moving the other arrays instead.

How the program shows it: The array that moves has more than twice the bytes of the other arrays on
all devices of a group together. So even gathering all of those everywhere would be cheaper. The
cause is `likely`, because the line that sets the sharding is elsewhere.

- An all-gather collects an operand of matmuls, such as logits before a small matmul, or a table of
  which only a few rows are looked up.
- A reduction adds up partial results of a matmul, such as logits whose weight is split along the
  dimension that the matmul sums over. In the backward pass, reductions of matmuls sum gradients
  over batches, and do not count.
- A reduction adds up the updates of a table, such as the gradient of a table of which every device
  has a copy and uses a few rows.
- A matmul whose operand is gathered and whose result is reduced moves both.

What to change: Split the weight and the activations along the same mesh axis in the dimension that
they have in common. Split a large table along its rows, so that only rows move.

When it is intended: Seldom: if the sharding serves other ops that cost more.

Example:

    # Before: every device has partial sums of all logits
    head = NamedSharding(mesh, P("model", None))  # features, vocabulary
    # After: every device has the logits of a part of the vocabulary
    head = NamedSharding(mesh, P(None, "model"))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from _analysis.arrays.engine import Retime
from _analysis.arrays.graph import (
    DOTS,
    Value,
    consumers,
    is_backward,
    is_same,
    producers,
    reach,
)
from _analysis.causes.shared.cause import LIKELY, Cause
from _analysis.causes.shared.step_program import StepProgram, collective_name_of, devices_of
from _light import NamedTuple
from _pipeline.executions import Executions
from _pipeline.groups import grouped
from _proto.hlo.program import Instruction
from _units import size

_GATHER, _REDUCTIONS = "all-gather", ("all-reduce", "reduce-scatter")
_LOOKUP, _UPDATE = "gather", "scatter"
# The moved array must have more than this many times the bytes of the others. Below, the other
# arrays could just as well move, and neither choice is wrong.
_FACTOR = 2

FOR_MATMUL = (
    "The weight and the activations have one dimension in common: split it along the same mesh axis"
    " in both, for example with P('tp', 'fsdp') for the second weight of an MLP. Or constrain the"
    " activations before this line (with_sharding_constraint, in_specs)."
)
FOR_TABLE = (
    "Split the table along its rows over the devices, so that only the rows that are used move."
)


class _Moved(NamedTuple):
    """Collectives, what they do, the bytes that they move, and the bytes of the other arrays on all
    devices together."""

    members: tuple[Executions, ...]
    does: str
    n_bytes: int
    n_others: int


def find(of: StepProgram) -> Iterator[Cause]:
    rows = [
        row
        for ran in of.long_collectives
        if ran.op.instruction
        for row in _moved_by(of, ran, ran.op.instruction)
        if 0 < _FACTOR * row.n_others < row.n_bytes
    ]
    for does, found in grouped((row.does, row) for row in rows).items():
        yield _cause(does, found)


def _moved_by(of: StepProgram, ran: Executions, here: Instruction) -> Iterator[_Moved]:
    name, n_devices = collective_name_of(ran.op), devices_of(ran).size
    if name == _GATHER:
        walk = reach([Value(here)], consumers, is_same)
        passed = {value.instruction for value in walk.passed}
        ops = {_inner(value.instruction) for value in walk.stopped}
        is_table = {op.opcode for op in ops} == {_LOOKUP}
        if not is_table and not all(op.opcode in DOTS for op in ops):
            return
        sums = {op: _reductions_of(of, op) for op in ops if _keeps(op, ran)}
        moved = [here, *(op for op in ops if sums.get(op))]
        others = [each for op in ops for each in (op, *op.operands) if each not in passed]
        members = (ran, *(each for found in sums.values() for each in found))
        does = "a table" if is_table else "an operand"
        reduces = " and reduces the result" if len(members) > 1 else ""
        n_others = _bytes_of(each for each in others if each not in moved) * n_devices
        yield _Moved(members, f"gathers {does}{reduces}", _bytes_of(moved), n_others)
    elif name in _REDUCTIONS:
        ops = {
            _inner(each.instruction) for each in reach([Value(here)], producers, is_same).stopped
        }
        opcodes = {op.opcode for op in ops}
        if opcodes == {_UPDATE}:
            used = [each for op in ops for each in op.operands[1:]]
            yield _Moved((ran,), "adds up updates", _bytes_of(ops), _bytes_of(used) * n_devices)
        elif opcodes and opcodes <= DOTS and not any(map(_sums_gradients, ops)):
            used = [each for op in ops for each in op.operands]
            yield _Moved(
                (ran,), "reduces partial sums", _bytes_of(ops), _bytes_of(used) * n_devices
            )


def _reductions_of(of: StepProgram, op: Instruction) -> list[Executions]:
    after = reach([Value(op)], consumers, is_same).stopped
    found = (of.collective_at.get(value.instruction) for value in after)
    return [ran for ran in found if ran and collective_name_of(ran.op) in _REDUCTIONS]


def _inner(here: Instruction) -> Instruction:
    """Return the lookup or update that an asynchronous op runs, or else the instruction."""
    inside = (inner for part in here.chain for inner in part.inside())
    return next((inner for inner in inside if inner.opcode in (_LOOKUP, _UPDATE)), here)


def _sums_gradients(dot: Instruction) -> bool:
    return not dot.op_name or is_backward(dot)


def _keeps(dot: Instruction, gather: Executions) -> bool:
    """Return True if the dimensions along which an operand was gathered are also in the dot's
    result.

    Otherwise the dot sums over these dimensions, as for the gradient of a weight.
    """
    inside, arrays = gather.op.inside, dot.arrays
    if inside is None or not inside.inputs or not inside.outputs or not arrays:
        return False
    dims = zip(inside.inputs[0].dims, inside.outputs[0].dims, strict=False)
    return all(whole in arrays[0].dims for part, whole in dims if part != whole)


def _bytes_of(instructions: Iterable[Instruction]) -> int:
    return sum(array.n_bytes or 0 for here in instructions for array in here.arrays or ())


def _cause(does: str, rows: list[_Moved]) -> Cause:
    largest = max(rows, key=lambda row: row.members[0].total)
    first = largest.members[0]
    # A collective can be next to several matmuls. The smallest saving counts.
    part_of: dict[Executions, float] = {}
    for row in rows:
        for ran in row.members:
            part_of[ran] = max(part_of.get(ran, 0.0), row.n_others / row.n_bytes)
    more = f" ({len(rows) - 1} more like it)" if len(rows) > 1 else ""
    of_what = "" if "table" in does or "updates" in does else " of a matmul"
    return Cause(
        f"The {collective_name_of(first.op)} at <line> {does}{of_what} among"
        f" {devices_of(first).size} devices{more}: {size(largest.n_bytes)}, but the other arrays of"
        f" the op have only {size(largest.n_others)} on all of them together. Another sharding"
        " would save <gain>.",
        FOR_MATMUL if of_what else FOR_TABLE,
        LIKELY,
        list(part_of),
        [Retime(ran, ran.total * part) for ran, part in part_of.items()],
    )
