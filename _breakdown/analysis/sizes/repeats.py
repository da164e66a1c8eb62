"""Move broadcasts towards what reads their result."""

from __future__ import annotations

from collections.abc import Iterable

from _breakdown.analysis.arrays.graph import (
    DOTS,
    ELEMENTWISE,
    LAYOUT,
    STRUCTURE,
    WHILE,
    Value,
    producers,
)
from _breakdown.analysis.sizes.edges import (
    BROADCAST,
    ELEMENT,
    EXCHANGE,
    LINEAR,
    LOOP,
    MATMUL,
    MOVE,
    PASS,
    REDUCE,
    Dims,
    Edge,
    last_of,
)
from _breakdown.analysis.sizes.law import FARTHEST, Law, Left, Moved, Parts, fraction
from _breakdown.analysis.sizes.zeros import is_copied

# How a dimension repeats: its elements are all equal, or those of several dimensions are joined.
_EQUAL = ("equal",)
_FOLLOWED = ELEMENTWISE | DOTS | LAYOUT | (STRUCTURE - {WHILE}) | {"reduce"}


class Repeat(Law):
    """A broadcast. What is computed of equal elements is equal."""

    shrinks = False
    crosses = frozenset((PASS, LOOP, MOVE, ELEMENT, LINEAR, MATMUL, REDUCE, BROADCAST, EXCHANGE))

    def __init__(self) -> None:
        super().__init__()
        self._may_repeat: dict[Value, bool] = {}

    def left(self, value: Value) -> Moved | None:
        return super().left(value) if self.may_repeat(value) else None

    def may_repeat(self, value: Value) -> bool:
        """Return whether all that is combined into an array comes from broadcasts, in whatever
        dimension. That is seldom so, and is found faster than what is left."""
        if value not in self._may_repeat:
            self._may_repeat[value] = False
            self._depth += 1
            opcode = value.instruction.opcode
            found = opcode in ("broadcast", "constant")
            if opcode in _FOLLOWED and self._depth < FARTHEST:
                sources = producers(value)[: 1 if opcode == "reduce" else None]
                test = any if opcode in DOTS else all
                found = bool(sources) and test(map(self.may_repeat, sources))
            self._may_repeat[value] = found
            self._depth -= 1
        return self._may_repeat[value]

    def own(self, edge: Edge) -> Parts:
        made, given = edge.made.array, edge.given.array
        if edge.kind != BROADCAST or made is None or given is None or given.n_elements == 1:
            return {}
        return {
            (dim,): frozenset([(_EQUAL, 1 / size)])
            for dim, size in enumerate(made.dims)
            if dim not in edge.by.message.dimensions and size > 1
        }

    def across(self, edge: Edge, dims: Dims, left: Left) -> tuple[Dims, Left] | None:
        found = super().across(edge, dims, left)
        if found or edge.kind != MOVE or edge.given.array is None:
            # A reshape can only split a dimension that repeats as a whole.
            is_split = found is not None and len(found[0]) > len(dims)
            return None if is_split and any(label != _EQUAL for label, _ in left) else found
        sizes = edge.given.array.dims
        for link in edge.links():
            # A reshape joins a dimension that repeats with others.
            if {*dims} < {*link.inside}:
                label = dims, *(sizes[dim] for dim in link.inside)
                return link.outside, frozenset([(label, fraction(left))])
        return None

    def joined(self, value: Value, sides: Iterable[tuple[Edge, Parts]]) -> Parts:
        """Return how an array repeats: as all operands do that have the dimensions."""
        known: list[tuple[Edge, Parts]] = []
        for edge, parts in sides:
            # Most ops have an operand that does not repeat.
            if not parts and edge.kind in (ELEMENT, LINEAR) and not is_one_number(edge.given):
                return {}
            if parts or not is_one_number(edge.given):
                known.append((edge, parts))
        found: dict[Dims, Left] = {}
        for dims in {dims: None for _, parts in known for dims in parts}:
            lefts = {parts.get(dims) for edge, parts in known if _has(edge, dims)}
            if len(lefts) == 1 and (left := lefts.pop()):
                found[dims] = left
        return found


def _has(edge: Edge, dims: Dims) -> bool:
    if edge.kind in (PASS, LOOP, BROADCAST):
        return True
    return any(not {*dims}.isdisjoint(link.outside) for link in edge.links())


def is_one_number(value: Value) -> bool:
    """Return whether all elements are one number."""
    array = value.array
    if array is not None and array.n_elements > 1:
        array = last_of(value, is_copied).array
    return array is not None and array.n_elements == 1
