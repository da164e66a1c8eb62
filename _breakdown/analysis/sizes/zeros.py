"""Move ops that put an array between zeros towards what reads their result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from _breakdown.analysis.arrays.dims import PUTTING, Link
from _breakdown.analysis.arrays.graph import Value, operand
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
    elements_in,
    is_cast,
    last_of,
)
from _breakdown.analysis.sizes.law import Left, Moved, Parts, SeededLaw, fraction, scaled
from _breakdown.analysis.sizes.masks import Window, window_of
from _proto.hlo.program import Instruction

# Instructions whose result is zero where an operand is zero, where the first operand is zero, or
# where all operands are zero.
_IF_ANY = frozenset(("multiply", "and", "dot", "convolution"))
_IF_FIRST = frozenset(
    "divide convert negate abs sqrt sign floor ceil reduce broadcast transpose reshape bitcast copy"
    " copy-done slice dynamic-slice gather exponential".split()
)
_IF_ALL = frozenset("add subtract maximum minimum concatenate select".split()) | PUTTING
# A selection, and the exponential of one.
_MASKING = frozenset(("select", "exponential"))
# Exponentials of numbers that are not above this one are zero, or nearly.
_LOWEST = -1e4
# The places of the operands that have elements of the result.
_PLACES = {"select": (1, 2), "dynamic-update-slice": (0, 1), "scatter": (0, 2)}


class Zero(SeededLaw):
    """A pad, scatter or update that puts an array between zeros. Zeros need not be computed."""

    shrinks = False
    opcodes = PUTTING | _MASKING
    crosses = frozenset((PASS, MOVE, ELEMENT, LINEAR, MATMUL, REDUCE, TAKE, PUT, BROADCAST))

    def moves(self, seed: Instruction) -> bool:
        filled = operand(seed, 1 if seed.opcode == "pad" else 0)
        return seed.opcode in _MASKING or (filled is not None and is_zero(Value(filled)))

    def own(self, edge: Edge) -> Parts:
        select = edge.by if edge.place == 1 else None
        if edge.by.opcode == "exponential":
            select = _scores_of(edge.by)
        if select and (window := window_of(select)):
            return {(window.dim,): frozenset([((window,), window.part)])}
        if edge.kind != PUT:
            return {}
        return {
            link.outside: frozenset([(((edge.by, edge.place),), link.filled)])
            for link in edge.links()
            if link.filled < 1 and link.outside
        }

    def passed(self, edge: Edge, links: Sequence[Link], left: Left) -> Left | None:
        if edge.by.opcode == "exponential":
            return None
        for link in links:
            # The part can be all that a slice takes.
            if link.filled != link.taken:
                left = scaled(left, (edge.by, edge.place), link.filled / link.taken)
        if edge.kind in (MATMUL, REDUCE) and (array := edge.given.array):
            kept = (array.dims[dim] for link in edge.links() for dim in link.inside)
            n_terms = array.n_elements / max(1, prod(kept))
            # Each term of a sum can have its one element at another place.
            left = frozenset(
                ((window, *passed), part * n_terms)
                if isinstance(window, Window) and window.varies
                else ((window, *passed), part)
                for (window, *passed), part in left
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

    def _judged(self, value: Value) -> Moved | None:
        moved = super()._judged(value)
        return moved and moved._replace(seed=_scores_of(moved.seed) or moved.seed)


def _scores_of(exponential: Instruction) -> Instruction | None:
    """Return the selection of which an exponential is computed, possibly after the subtraction of a
    softmax, and which is very small where it keeps nothing."""
    here = exponential
    for opcode in ("exponential", "subtract"):
        if here.opcode == opcode and here.operands:
            here = last_of(Value(here.operands[0]), is_cast).instruction
    fill = operand(here, 2) if here.opcode == "select" else None
    return here if fill and max(elements_in(Value(fill)), default=0) <= _LOWEST else None


def is_zero(value: Value) -> bool:
    """Return whether a value is a constant of zeros."""
    elements = elements_in(value)
    return bool(elements) and not any(elements)
