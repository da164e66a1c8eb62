"""Find the bytes that a fusion moves less than its operands and outputs have, because it reads
slices of an operand or updates a slice in place."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from _breakdown.light import NamedTuple
from _proto.hlo.program import Computation, Instruction
from _proto.hlo.shapes import Array, order_of
from _proto.hlo.text import HBM

_UPDATE = "dynamic-update-slice"
# Instructions that read only those elements of their first operand that they return.
_SLICES = ("dynamic-slice", "slice", "gather")
_PARTIAL = frozenset((_UPDATE, *_SLICES))


class Traffic(NamedTuple):
    """Bytes of a fusion's operands and outputs as a whole, and bytes that the fusion moves."""

    whole: int
    moved: int


class Update(NamedTuple):
    """An update in place: the bytes that a fusion writes, and the parameter that it updates."""

    n_bytes: int
    parameter_number: int


class FusionTraffic(NamedTuple):
    """The traffic in all memories, and the part of it in HBM."""

    everywhere: Traffic
    hbm: Traffic


def traffic_of(op: Instruction) -> FusionTraffic | None:
    """Return the traffic of a fusion that slices operands or updates them in place.

    Return None for other instructions, and for fusions with an unreadable shape.
    """
    if not is_partial(op):
        return None
    parts = list(_parts(op))
    if None in parts:
        return None
    known = [part for part in parts if part]
    return FusionTraffic(_sum(known), _sum([part for part in known if part[0].memory_space == HBM]))


def is_partial(op: Instruction) -> bool:
    """Return whether the instruction is a fusion that slices or updates arrays."""
    return op.opcode == "fusion" and not _PARTIAL.isdisjoint(op.opcodes)


def _sum(parts: Sequence[tuple[Array, int, int]]) -> Traffic:
    return Traffic(sum(whole for _, whole, _ in parts), sum(moved for _, _, moved in parts))


def _parts(op: Instruction) -> Iterator[tuple[Array, int, int] | None]:
    """Yield each array of the operands and outputs with its size and the bytes moved; None if these
    are unknown."""
    body = op.called[0] if op.called else None
    root = body.root if body else None
    outputs = op.arrays
    if body is None or root is None or outputs is None:
        yield None
        return
    for number, arrays in enumerate(op.operand_arrays):
        read = read_of(body, number) if arrays is not None and len(arrays) == 1 else None
        yield from (_part(array, read) for array in arrays or (None,))
    values = root.operands if root.opcode == "tuple" else [root]
    if len(values) != len(outputs):
        yield None
        return
    for array, value in zip(outputs, values, strict=True):
        update = update_of(value)
        yield _part(array, update.n_bytes if update else None)


def _part(array: Array | None, moved: int | None) -> tuple[Array, int, int] | None:
    size = array.n_bytes if array else None
    if array is None or size is None:
        return None
    return array, size, size if moved is None else min(size, moved)


def names_again(value: Instruction) -> bool:
    """Return whether an instruction inside a fusion only names an array once more: a bitcast, or a
    copy that keeps the order of dimensions, as for other tiles. XLA adds such copies to arrays that
    are updated in place."""
    if value.opcode != "copy":
        return value.opcode == "bitcast"
    order, *orders = (order_of(each.message.shape) for each in (value, *value.operands))
    return orders == [order]


def read_of(body: Computation, number: int) -> int | None:
    """Return the bytes that a fusion reads of a parameter through slices; None if it may read all
    of it."""
    parameter = body.parameters.get(number)
    if parameter is None:
        return None
    total, seen, to_do = 0, {parameter}, [parameter]
    # The fusions inside the fusion, by the computation that they call.
    callers: dict[Computation, Instruction] = {}
    while to_do:
        value = to_do.pop()
        if value is value.computation.root and value is not body.root and not value.users:
            # The value is the result of a fusion inside the fusion.
            value = callers.get(value.computation, value)
        if value is value.computation.root or not value.users:
            return None
        for user in value.users:
            places = [i for i, n in enumerate(user.message.operand_ids) if n == value.message.id]
            passed: list[Instruction | None] = []
            read: int | None = 0
            if names_again(user):
                passed = [user]
            elif user.opcode == "fusion" and user.called:
                callers[user.called[0]] = user
                passed = [user.called[0].parameters.get(place) for place in places]
            elif user.opcode in _SLICES and places == [0]:
                read = _size(user)
            elif user.opcode != _UPDATE or places != [0] or not _is_output(user, body, callers):
                # An update in place reads nothing of the array that it updates.
                return None
            if read is None or None in passed:
                return None
            total += read
            new = [given for given in passed if given and given not in seen]
            seen.update(new)
            to_do += new
    return total


def _is_output(
    value: Instruction, body: Computation, callers: Mapping[Computation, Instruction]
) -> bool:
    """Return whether an updated array is only an output of the fusion with the given body."""
    seen: set[Instruction] = set()
    while value not in seen:
        seen.add(value)
        if value is value.computation.root:
            if value.computation is body:
                return True
            users: Sequence[Instruction] = [callers[value.computation]]
        else:
            users = value.users
        if len(users) != 1:
            return False
        user = users[0]
        if user is body.root and user.opcode == "tuple":
            return True
        if user.opcode not in ("fusion", _UPDATE) and not names_again(user):
            return False
        value = user
    return False


def update_of(output: Instruction) -> Update | None:
    """Return the update if a fusion only updates in place the output that an instruction inside it
    computes; None if it writes all of it."""
    value, total = output, 0
    seen: set[Instruction] = set()
    # The fusions inside the fusion, by the computation that they call.
    callers: dict[Computation, Instruction] = {}
    while value not in seen:
        seen.add(value)
        before: Instruction | None = None
        if names_again(value):
            before = next(iter(value.operands), None)
        elif value.opcode == "fusion" and value.called:
            callers[value.called[0]] = value
            before = value.called[0].root
        elif value.opcode == _UPDATE and len(value.operands) > 1:
            size = _size(value.operands[1])
            if size is None:
                return None
            total += size
            before = value.operands[0]
        elif value.opcode == "parameter":
            if value.computation is output.computation:
                # XLA updates a parameter in place. Another array has to be written as a whole.
                return Update(total, value.message.parameter_number) if total else None
            caller = callers.get(value.computation)
            given = caller.operands[value.message.parameter_number :] if caller else ()
            before = next(iter(given), None)
        if before is None:
            return None
        value = before
    return None


def _size(value: Instruction) -> int | None:
    sizes = [array.n_bytes for array in value.arrays or ()]
    return sizes[0] if len(sizes) == 1 else None
