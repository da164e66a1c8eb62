"""Move ops that put an array between zeros towards what reads their result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from _breakdown.analysis.arrays.dims import PUTTING, Link
from _breakdown.analysis.arrays.elements import elements_of
from _breakdown.analysis.arrays.graph import Value, is_same, operand
from _breakdown.analysis.sizes.edges import (
    BROADCAST,
    ELEMENT,
    LINEAR,
    MATMUL,
    MOVE,
    PASS,
    PUT,
    REDUCE,
    TAKE,
    Dims,
    Edge,
    last_of,
)
from _breakdown.analysis.sizes.law import Left, Parts, SeededLaw, fraction, scaled
from _proto.hlo.program import Instruction

# Instructions whose result is zero where an operand is zero, where the first operand is zero, or
# where all operands are zero.
_IF_ANY = frozenset(("multiply", "and", "dot", "convolution"))
_IF_FIRST = frozenset(
    "divide convert negate abs sqrt sign floor ceil reduce broadcast transpose reshape bitcast copy"
    " copy-done slice dynamic-slice gather".split()
)
_IF_ALL = frozenset("add subtract maximum minimum concatenate select".split()) | PUTTING
# The places of the operands that have elements of the result.
_PLACES = {"select": (1, 2), "dynamic-update-slice": (0, 1), "scatter": (0, 2)}


class Zero(SeededLaw):
    """A pad, scatter or update that puts an array between zeros. Zeros need not be computed."""

    shrinks = False
    opcodes = PUTTING | {"select"}
    crosses = frozenset((PASS, MOVE, ELEMENT, LINEAR, MATMUL, REDUCE, TAKE, PUT, BROADCAST))

    def moves(self, seed: Instruction) -> bool:
        filled = operand(seed, 1 if seed.opcode == "pad" else 0)
        return seed.opcode == "select" or (filled is not None and is_zero(Value(filled)))

    def own(self, edge: Edge) -> Parts:
        if edge.by.opcode == "select":
            return _of_one_hot(edge)
        if edge.kind != PUT:
            return {}
        return {
            link.outside: frozenset([(((edge.by, edge.place),), link.filled)])
            for link in edge.links()
            if link.filled < 1 and link.outside
        }

    def passed(self, edge: Edge, links: Sequence[Link], left: Left) -> Left | None:
        for link in links:
            # The part can be all that a slice takes.
            if link.filled != link.taken:
                left = scaled(left, (edge.by, edge.place), link.filled / link.taken)
        if edge.kind in (MATMUL, REDUCE) and (array := edge.given.array):
            kept = (array.dims[dim] for link in edge.links() for dim in link.inside)
            n_terms = array.n_elements / max(1, prod(kept))
            # Each term of a sum can have its one element at another place.
            left = frozenset(
                (label, part * n_terms if isinstance(label[0], Instruction) else part)
                for label, part in left
            )
        return left

    def joined(self, value: Value, sides: Iterable[tuple[Edge, Parts]]) -> Parts:
        opcode = value.instruction.opcode
        if opcode in _IF_ALL:
            places = _PLACES.get(opcode)
            return super().joined(
                value,
                (
                    (edge, parts)
                    for edge, parts in sides
                    if places is None or edge.place in places
                    if not is_zero(edge.given)
                ),
            )
        found: dict[Dims, Left] = {}
        for edge, parts in sides:
            is_first = edge.place == 0 and (opcode in _IF_FIRST or edge.kind == PASS)
            for dims, left in parts.items() if is_first or opcode in _IF_ANY else ():
                if dims not in found or fraction(left) < fraction(found[dims]):
                    found[dims] = left
        return found


def _of_one_hot(edge: Edge) -> Parts:
    """Return the dimension of which a selection keeps one place, because it compares the places
    along the dimension with an index that is the same for all of them."""
    compare, made = last_of(Value(edge.by.operands[0])).instruction, edge.made.array
    if edge.place != 1 or compare.message.comparison_direction != b"EQ" or made is None:
        return {}
    sides = [last_of(Value(one), is_cast).instruction for one in compare.operands]
    for place, index in zip(sides, reversed(sides), strict=True):
        dim = _dim_of_places(place)
        if dim is not None and index.opcode == "broadcast" and dim not in index.message.dimensions:
            return {(dim,): frozenset([((index,), 1 / max(1, made.dims[dim]))])}
    return {}


def _dim_of_places(here: Instruction) -> int | None:
    """Return the dimension along which elements are their places, possibly plus a number."""
    dims, sources = here.message.dimensions, here.operands
    if here.opcode == "iota":
        return dims[0] if dims else 0
    if here.opcode not in ("add", "subtract", "broadcast"):
        return None
    found = {_dim_of_places(last_of(Value(one), is_cast).instruction) for one in sources} - {None}
    if len(found) != 1 or (dim := found.pop()) is None:
        return None
    return dims[dim] if here.opcode == "broadcast" else dim


def is_cast(here: Instruction) -> bool:
    return here.opcode in ("convert", "copy")


def is_zero(value: Value) -> bool:
    """Return whether a value is a constant of zeros."""
    here = last_of(value, is_copied).instruction
    elements = elements_of(here.message.literal) if here.opcode == "constant" else ()
    return bool(elements) and not any(elements)


def is_copied(here: Instruction) -> bool:
    return here.opcode == "broadcast" or is_same(Value(here))
