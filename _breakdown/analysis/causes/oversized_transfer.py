"""Find collectives that move far more bytes than the ops next to them need."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.arrays.graph import (
    DOTS,
    STRUCTURE,
    Value,
    consumers,
    is_backward,
    is_same,
    producers,
    reach,
    reach_if_all,
)
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.duplicates import Duplicates
from _breakdown.analysis.causes.shared.resized import Resized, cause_of, longest_of, sizes_of
from _breakdown.analysis.causes.shared.step_program import (
    StepProgram,
    collective_name_of,
    devices_of,
    place_of_longest,
)
from _breakdown.analysis.sizes.edges import EXCHANGE
from _breakdown.analysis.sizes.part import LOOKUP, SAME
from _breakdown.light import NamedTuple
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.units import percentage, size
from _proto.hlo.program import Instruction

_GATHER, _REDUCTIONS = "all-gather", ("all-reduce", "reduce-scatter")
_SLICE = "dynamic-slice"
_SUMS = "reduces partial sums"
# The moved array must have more than this many times the bytes of the others. Below, the other
# arrays could just as well move, and neither choice is wrong.
_FACTOR = 2

FOR_MATMUL = (
    "The weight and the activations have one dimension in common: split it along the same mesh axis"
    " in both, for example with P('tp', 'fsdp') for the second weight of an MLP. Or constrain the"
    " activations before this line (with_sharding_constraint, in_specs)."
)
FOR_SUMS = (
    "Split the weight along a dimension of the result, such as the vocabulary of a table that is"
    " also the head, and not along the dimension over which the matmul sums."
)
FOR_PART = (
    "Take the part before the collective. If each device takes another part, give the array the"
    " sharding of its parts, for example by keeping two arrays, not one that is cut in halves."
)
FOR_COPIES = "Let the collective move the small array, and broadcast its result."
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
    sizes = sizes_of(of)
    for law, does, remedy in (
        (sizes.part, "of which only a part is used", FOR_PART),
        (sizes.zero, "which is zero except for a part", FOR_TABLE),
        (sizes.repeat, "which repeats a smaller array", FOR_COPIES),
    ):
        parts = sizes.ops_of(EXCHANGE, law)
        # Other parts are in a cause of their own.
        parts = [row for row in parts if law is not sizes.part or not row.is_own_part]
        if parts:
            yield _part_cause(parts, does, remedy)
    rows: list[_Moved] = []
    explained = of.explained_by("sum_too_late")
    for is_gather in (True, False):
        names = (_GATHER,) if is_gather else _REDUCTIONS
        for ran in of.long_collectives:
            # A row of a gather can contain the reduction of the same matmul.
            if collective_name_of(ran.op) in names and id(ran) not in explained:
                row = _gathered(of, ran) if is_gather else _reduced(of, ran)
                if row and 0 < _FACTOR * row.n_others < row.n_bytes:
                    rows.append(row)
                    explained |= set(map(id, row.members[1:]))
    for does, alike in grouped((row.does, row) for row in rows).items():
        yield _cause(of, does, alike)


def _part_cause(rows: list[Resized], does: str, remedy: str) -> Cause:
    """Return the cause for collectives that move whole arrays where a part is enough."""
    longest = longest_of(rows)
    takes, n = longest.takes if remedy == FOR_PART else set(), devices_of(longest.ran).size
    among = f" among {n} devices" if n else ""
    more = f" ({len(rows) - 1} more like it)" if len(rows) > 1 else ""
    says = (
        f"The {collective_name_of(longest.ran.op)} at <line>{among}{more} moves {longest.shape},"
        f" {does}: moving this part would take {percentage(100 * longest.left)} of the bytes, and"
        " save <gain>."
    )
    is_same = remedy == FOR_COPIES or takes == {SAME}
    remedy = FOR_TABLE if LOOKUP in takes else remedy
    return cause_of(rows, says, remedy, SEEN if is_same else LIKELY)


def _gathered(of: StepProgram, ran: Executions) -> _Moved | None:
    here = ran.op.instruction
    walk = reach_if_all([Value(here)], consumers, is_same, _is_matmul) if here else None
    if walk is None or here is None:
        return None
    ops = {value.instruction for value in walk.stopped}
    sums = {op: _reductions_of(of, op) for op in ops if _keeps(op, ran)}
    moved = {here, *(op for op in ops if sums.get(op))}
    others = {each for op in ops for each in (op, *op.operands)} - moved
    others -= {value.instruction for value in walk.passed}
    members = (ran, *(each for found in sums.values() for each in found))
    does = "gathers an operand" + (" and reduces the result" if len(members) > 1 else "")
    return _Moved(members, does, _bytes_of(moved), _bytes_of(others, ran))


def _reduced(of: StepProgram, ran: Executions) -> _Moved | None:
    here = ran.op.instruction
    walk = reach_if_all([Value(here)], producers, is_same, _is_matmul) if here else None
    ops = {value.instruction for value in walk.stopped} if walk else set()
    if not ops or not all(op.op_name and not is_backward(op) for op in ops):
        return None
    used = [each for op in ops for each in _activations(of, op)]
    return _Moved((ran,), _SUMS, _bytes_of(ops), _bytes_of(used, ran))


def _activations(of: StepProgram, dot: Instruction) -> list[Instruction]:
    """Return the operands of a matmul, without the weight, which could be split in another way."""
    weights = [each for each in dot.operands if _is_weight(of, each)]
    weight = max(weights, key=lambda each: _bytes_of([each]), default=None)
    return [each for each in dot.operands if each is not weight]


def _is_weight(of: StepProgram, here: Instruction) -> bool:
    """Return whether an array is a parameter of the program, or a slice of one."""
    if here.opcode not in STRUCTURE and not _is_taken(Value(here)):
        return False
    walk = reach([Value(here)], lambda value: producers(value)[:1], _is_taken)
    arrays = filter(None, map(of.arrays.array_at, walk.passed))
    return not walk.stopped and any(array.is_parameter for array in arrays)


def _is_taken(value: Value) -> bool:
    return is_same(value) or value.instruction.opcode == _SLICE


def _reductions_of(of: StepProgram, op: Instruction) -> list[Executions]:
    after = reach([Value(op)], consumers, is_same).stopped
    found = (of.collective_at.get(value.instruction) for value in after)
    return [ran for ran in found if ran and collective_name_of(ran.op) in _REDUCTIONS]


def _is_matmul(value: Value) -> bool:
    return value.instruction.opcode in DOTS


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


def _bytes_of(instructions: Iterable[Instruction], among: Executions | None = None) -> int:
    """Return the bytes of arrays, on all devices of a collective if one is given."""
    n_bytes = sum(array.n_bytes or 0 for here in instructions for array in here.arrays or ())
    return n_bytes * (devices_of(among).size if among else 1)


def _cause(of: StepProgram, does: str, rows: list[_Moved]) -> Cause:
    largest = max(rows, key=lambda row: row.members[0].total)
    first = largest.members[0]
    # A collective can be next to several matmuls. The smallest saving counts.
    part_of: dict[Executions, float] = {}
    for row in rows:
        for ran in row.members:
            part_of[ran] = max(part_of.get(ran, 0.0), row.n_others / row.n_bytes)
    changes = [Retime(ran, ran.total * part) for ran, part in part_of.items()]
    if does == _SUMS:
        changes += Duplicates(of).divided_after(part_of)
    more = f" ({len(rows) - 1} more like it)" if len(rows) > 1 else ""
    return Cause(
        f"The {collective_name_of(first.op)} at <line> {does} of a matmul among"
        f" {devices_of(first).size} devices{more}: {size(largest.n_bytes)}, but the other arrays of"
        f" the op have only {size(largest.n_others)} on all of them together. Another sharding"
        " would save <gain>.",
        FOR_SUMS if does == _SUMS else FOR_MATMUL,
        LIKELY,
        [change.ran for change in changes],
        changes,
        place=place_of_longest(list(part_of)),
    )
