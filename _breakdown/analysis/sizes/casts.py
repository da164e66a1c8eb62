"""Move casts past ops that only move elements, and ops that only take little of an
array."""

from __future__ import annotations

from collections.abc import Iterable

from _breakdown.analysis.arrays.graph import Value
from _breakdown.analysis.arrays.of_step import is_float
from _breakdown.analysis.sizes.edges import (
    ALL,
    BROADCAST,
    EXCHANGE,
    LINEAR,
    MOVE,
    PASS,
    PUT,
    TAKE,
    Dims,
    Edge,
    last_of,
)
from _breakdown.analysis.sizes.law import Law, Left, Parts, scaled
from _breakdown.analysis.sizes.zeros import is_copied

# Scales and biases have at most one number for this many elements.
_LITTLE = 16


class Narrow(Law):
    """A cast to a narrower float. Ops that only move elements can as well move narrow ones."""

    shrinks = True
    crosses = frozenset((PASS, MOVE, TAKE, PUT, EXCHANGE))

    def own(self, edge: Edge) -> Parts:
        near, far = edge.given.array, edge.made.array
        if edge.by.opcode != "convert" or near is None or far is None:
            return {}
        part = (far.bits or 0) / (near.bits or 1)
        is_cast = is_float(near.dtype) and is_float(far.dtype) and 0 < part < 1
        return {ALL: frozenset([((part,), part)])} if is_cast else {}

    def is_crossed(self, edge: Edge) -> bool:
        array = edge.given.array
        is_moved = edge.kind == PASS or (array is not None and is_float(array.dtype))
        return is_moved and edge.kind in self.crosses


class Wide(Law):
    """A cast to a wider dtype, which can as well run after the elements have moved, and so can what
    scales them with little arrays."""

    shrinks = False
    crosses = frozenset((PASS, MOVE, TAKE, PUT, EXCHANGE, BROADCAST, LINEAR))

    def own(self, edge: Edge) -> Parts:
        part = _bits(edge.given) / _bits(edge.made)
        # What was already cast before is narrower yet.
        is_first = edge.by.opcode == "convert" and part < 1 and not self.left(edge.given)
        return {ALL: frozenset([((), part)])} if is_first else {}

    def across(self, edge: Edge, dims: Dims, left: Left) -> tuple[Dims, Left] | None:
        return dims, scaled(left, (), _bits(edge.given) / _bits(edge.made))

    def joined(self, value: Value, sides: Iterable[tuple[Edge, Parts]]) -> Parts:
        large = ((edge, parts) for edge, parts in sides if not _is_small(edge.given, value))
        return super().joined(value, large)


def _bits(value: Value) -> int:
    return (value.array.bits if value.array else None) or 32


def _is_small(given: Value, made: Value) -> bool:
    source = last_of(given, is_copied).array
    n = made.array.n_elements if made.array else 0
    return source is not None and source.n_elements * _LITTLE <= n
