"""Move ops on elements, casts and broadcasts to after a collective that moves what they make."""

from __future__ import annotations

from collections.abc import Iterable

from _breakdown.analysis.arrays.graph import Value
from _breakdown.analysis.arrays.of_step import is_float
from _breakdown.analysis.sizes.edges import (
    ALL,
    BROADCAST,
    ELEMENT,
    LINEAR,
    MOVE,
    PASS,
    PUT,
    TAKE,
    Dims,
    Edge,
)
from _breakdown.analysis.sizes.law import Law, Left, Parts
from _breakdown.analysis.sizes.repeats import is_one_number


class Origin(Law):
    """Ops on elements make arrays larger: casts to wider numbers, broadcasts, pads. Each device can
    as well receive the smaller arrays, and compute with them."""

    shrinks = False
    crosses = frozenset((PASS, MOVE, ELEMENT, LINEAR, BROADCAST, PUT, TAKE))

    def own(self, edge: Edge) -> Parts:
        given = edge.given
        if not self.is_crossed(edge) or self.left(given) or is_one_number(given):
            return {}
        is_sent = given.instruction.opcode not in ("constant", "iota")
        return {ALL: _taken(edge, given, _n_bytes(given))} if is_sent else {}

    def is_crossed(self, edge: Edge) -> bool:
        return super().is_crossed(edge) and edge.by.opcode != "gather"

    def across(self, edge: Edge, dims: Dims, left: Left) -> tuple[Dims, Left] | None:
        return dims, frozenset().union(*(_taken(edge, *label) for label, _ in left))

    def joined(self, value: Value, sides: Iterable[tuple[Edge, Parts]]) -> Parts:
        found = {label for _, parts in sides for left in parts.values() for label, _ in left}
        n = _n_bytes(value)
        left = frozenset((label, label[1] / n) for label in found) if n else None
        return {ALL: left} if left else {}


class Addend(Origin):
    """Casts of floats and broadcasts, which can as well run after a sum over devices."""

    crosses = frozenset((PASS, MOVE, BROADCAST, PUT, TAKE))

    def is_crossed(self, edge: Edge) -> bool:
        given, opcode = edge.given.array, edge.by.opcode
        if opcode == "convert":
            return given is not None and is_float(given.dtype)
        # Each device can update another part.
        return super().is_crossed(edge) and opcode not in ("dynamic-update-slice", "scatter")


def _taken(edge: Edge, source: Value, n_bytes: float) -> Left:
    """Return how many bytes of a source are needed for what an op makes of an operand."""
    made, given = _n_bytes(edge.made), _n_bytes(edge.given)
    is_part = edge.kind == TAKE and made < given
    return frozenset([((source, n_bytes * made / given if is_part else n_bytes), 1.0)])


def _n_bytes(value: Value) -> int:
    return (value.array.n_bytes if value.array else None) or 0
