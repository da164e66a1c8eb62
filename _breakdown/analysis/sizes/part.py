"""Move slices and lookups towards what computes their operand."""

from __future__ import annotations

from collections.abc import Sequence

from _breakdown.analysis.arrays.dims import TAKING, Link
from _breakdown.analysis.arrays.graph import (
    STRUCTURE,
    Value,
    is_elementwise,
    operand,
    origins,
    producers,
)
from _breakdown.analysis.sizes.edges import (
    BROADCAST,
    ELEMENT,
    EXCHANGE,
    LINEAR,
    MATMUL,
    MOVE,
    PASS,
    PUT,
    REDUCE,
    TAKE,
    Edge,
    last_of,
)
from _breakdown.analysis.sizes.law import Left, Parts, SeededLaw, scaled
from _breakdown.analysis.sizes.masks import window_of
from _proto.hlo.collectives import collective_name
from _proto.hlo.program import Instruction

SAME, DEVICE, LOOKUP = "same", "device", "lookup"
# Opcodes that return the number of the device.
_DEVICE = ("partition-id", "replica-id")


class Part(SeededLaw):
    """A slice or lookup takes a part. Each element of a result needs the elements of the operands
    at the same places, and whole rows where dimensions are summed."""

    shrinks = True
    opcodes = TAKING | {"select"}
    crosses = frozenset(
        (PASS, MOVE, ELEMENT, LINEAR, MATMUL, REDUCE, TAKE, PUT, BROADCAST, EXCHANGE)
    )

    def __init__(self) -> None:
        super().__init__()
        self._joins: dict[Instruction, bool] = {}

    def moves(self, seed: Instruction) -> bool:
        """Return whether a part is taken of what the program computes, and not of its inputs or of
        the state of a loop."""
        taken = seed.operands[seed.opcode == "select"]
        return last_of(Value(taken)).instruction.opcode != "parameter"

    def own(self, edge: Edge) -> Parts:
        window = window_of(edge.by) if edge.place == 1 else None
        if window and not window.varies:
            begin = *(source for source, _, _ in window.terms), window
            return {(window.dim,): frozenset([(("select", begin, window.dim), window.part)])}
        links = edge.links() if edge.kind == TAKE and edge.place == 0 else ()
        return {
            link.inside: frozenset(
                [((edge.by.opcode, _begin_of(edge.by), link.inside), link.taken)]
            )
            for link in links
            if link.taken < 1 and link.inside
        }

    def is_crossed(self, edge: Edge) -> bool:
        by = edge.by
        if by.opcode == "add" and by not in self._joins:
            self._joins[by] = _joins_others(by)
        return super().is_crossed(edge) and not self._joins.get(by)

    def passed(self, edge: Edge, links: Sequence[Link], left: Left) -> Left | None:
        if edge.kind == EXCHANGE and takes_of(left) != {SAME}:
            # Devices need different parts of what is sent to all of them.
            return None
        for link in links:
            factor = link.taken / link.filled
            if link.filled < 1 and takes_of(left) == {DEVICE}:
                # Of each of several arrays that are joined, each device keeps a part.
                factor = link.taken
            left = left if factor == 1 else scaled(left, (edge.by, edge.place), factor)
        return left


def starts_of(take: Instruction) -> set[Value]:
    """Return the indices at which a take begins, without constants."""
    starts = {last_of(Value(start)) for start in take.operands[1:]}
    return {start for start in starts if not start.instruction.message.literal}


def _begin_of(by: Instruction) -> Sequence[object]:
    """Return what tells a take from others: several instructions can take the same slice."""
    starts = [last_of(Value(start)) for start in by.operands[1:]]
    begins = tuple(start.instruction.message.literal or start for start in starts)
    return tuple(by.message.slice_dimensions) if by.opcode == "slice" else begins


def takes_of(left: Left) -> set[str]:
    """Return what devices take: all the same, each its own part, or what each looks up."""
    return {
        LOOKUP if opcode == "gather" else DEVICE if opcode != "slice" and _differs(begin) else SAME
        for (opcode, begin, *_), _ in left
    }


def _differs(begin: object) -> bool:
    """Return whether indices are computed from the number of the device."""
    starts = begin if isinstance(begin, tuple) else ()
    to_do = [start for start in starts if isinstance(start, Value)]
    for value in to_do:
        if value.instruction.opcode in _DEVICE:
            return True
        # The result of a collective is equal on all devices.
        if not collective_name(value.instruction.opcode):
            to_do += [each for each in producers(value) if each not in to_do]
    return False


def _joins_others(add: Instruction) -> bool:
    """Return whether a sum adds arrays that are computed from different ones, as the sum after each
    block of a model does, which is written for all positions; a bias, or two functions of an array,
    are not."""
    first, second = (_sources_of(operand(add, place)) for place in (0, 1))
    return bool(first - second) and bool(second - first)


def _sources_of(here: Instruction | None) -> set[Value]:
    """Return the arrays from which a value is computed, element by element."""
    found = origins(Value(here), is_elementwise) if here else set()
    return {
        value
        for value in found
        if not is_elementwise(value)
        and value.instruction.opcode not in ("broadcast", "constant", "iota")
        and (value.instruction.opcode not in STRUCTURE or not producers(value))
    }
