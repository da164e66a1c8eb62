"""Define laws: by which ops an op that makes arrays smaller, or larger, can be moved past others.

An op that makes arrays smaller can run earlier if all that is made of its operand becomes smaller
in the same way. An op that makes arrays larger can run later if all that its result is combined
with is larger in the same way. What is left of some dimensions of an array, if all such ops are
moved past the ops beside them, is a set of parts. Equal parts, such as the same slice of two
arrays, are the same elements; different parts count as different elements, so that what is left is
never too small.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, TypeAlias

from _breakdown.analysis.arrays.dims import Link
from _breakdown.analysis.arrays.graph import Value
from _breakdown.analysis.sizes.edges import (
    ALL,
    PASS,
    Dims,
    Edge,
    edges_after,
    edges_before,
    parts_of,
)
from _breakdown.light import NamedTuple
from _proto.hlo.program import Instruction

# A part: where it was taken and what it has passed, and the fraction of the elements.
Label: TypeAlias = "tuple[Any, ...]"
Left: TypeAlias = "frozenset[tuple[Label, float]]"
# What is left of dimensions of an array. Dimensions that are not listed are left whole.
Parts: TypeAlias = "Mapping[Dims, Left]"
WHOLE: Parts = {}
# What drops less is no fault, as shifts by a position do. Padding can be a quarter of an array.
MOST = 0.8
# Longer chains of ops are assumed to need whole arrays, to bound the depth of the search.
FARTHEST = 40


def fraction(left: Left) -> float:
    return min(1.0, sum(part for _, part in left))


def scaled(left: Left, label: object, factor: float) -> Left:
    """Return what is left if an op has passed, whose label tells it from others."""
    return frozenset(((*passed, label), part * factor) for passed, part in left)


class Moved(NamedTuple):
    """The part of an array that is left, and the op that moves."""

    parts: Parts
    seed: Instruction

    @property
    def left(self) -> float:
        """Return the fraction of all elements that is left."""
        found, seen = 1.0, set[int]()
        for dims, left in sorted(self.parts.items(), key=lambda item: fraction(item[1])):
            if seen.isdisjoint(dims):
                seen.update(dims)
                found *= fraction(left)
        return found


class Law:
    """Ops that can be moved, and the ops that they can be moved past."""

    # Whether the ops make arrays smaller, and could run earlier.
    shrinks: ClassVar[bool]
    # The kinds of ops that they can be moved past.
    crosses: ClassVar[frozenset[str]]

    def __init__(self) -> None:
        self._known: dict[Value, Moved | None] = {}
        self._depth = 0

    def own(self, edge: Edge) -> Parts:
        """Return what an instruction itself leaves of its operand, or of its result."""
        raise NotImplementedError

    def is_crossed(self, edge: Edge) -> bool:
        return edge.kind in self.crosses

    def across(self, edge: Edge, dims: Dims, left: Left) -> tuple[Dims, Left] | None:
        """Return the dimensions on the other side of an instruction with what is left of them, or
        None if all is needed there."""
        if dims == ALL or edge.kind == PASS:
            return dims, left
        links = edge.linked(dims, to_given=self.shrinks)
        far = tuple(
            dim for link in links for dim in (link.inside if self.shrinks else link.outside)
        )
        after = self.passed(edge, links, left) if far else None
        return (far, after) if after else None

    def passed(self, edge: Edge, links: Sequence[Link], left: Left) -> Left | None:
        """Return what is left of linked dimensions, or None if all is needed."""
        return left

    def joined(self, value: Value, sides: Iterable[tuple[Edge, Parts]]) -> Parts:
        """Return what is left according to all edges: together, the parts that any one leaves."""
        found: dict[Dims, Left] | None = None
        for _, parts in sides:
            found = {
                dims: left if found is None else left | found[dims]
                for dims, left in parts.items()
                if found is None or dims in found
            }
            if not found:
                break
        return found or WHOLE

    def left(self, value: Value) -> Moved | None:
        """Return what is left of an array, found by following all that is made of it, or all from
        which it is made."""
        if value not in self._known:
            # Nothing is known of the array while the search passes it.
            self._known[value] = None
            self._depth += 1
            if self._depth < FARTHEST:
                self._known[value] = self._judged(value)
            self._depth -= 1
        return self._known[value]

    def _judged(self, value: Value) -> Moved | None:
        seeds: list[Instruction] = []
        parts = self.joined(value, self._sides(value, seeds))
        parts = {dims: left for dims, left in parts.items() if fraction(left) <= MOST}
        return Moved(parts, seeds[0]) if parts else None

    def _sides(self, value: Value, seeds: list[Instruction]) -> Iterator[tuple[Edge, Parts]]:
        """Yield what each edge leaves, and add the ops that move to `seeds`."""
        for edge in edges_after(value) if self.shrinks else parts_of(value):
            found = dict(self.own(edge))
            if found:
                seeds.append(edge.by)
            far = edge.made if self.shrinks else edge.given
            moved = self.left(far) if self.is_crossed(edge) else None
            for dims, left in moved.parts.items() if moved else ():
                if moved and (across := self.across(edge, dims, left)):
                    found.setdefault(*across)
                    seeds.append(moved.seed)
            yield edge, found


class SeededLaw(Law):
    """A law about ops that are rare and can be moved past almost all others. The search begins at
    these ops, because it would come to most of the program from any other."""

    opcodes: ClassVar[frozenset[str]]

    def left(self, value: Value) -> Moved | None:
        return self._known.get(value)

    def moves(self, seed: Instruction) -> bool:
        """Return whether an op with one of the opcodes could be moved."""
        raise NotImplementedError

    def walk(self, seeds: Iterable[Value]) -> bool:
        """Find all arrays of which something is left, if the ops are moved that make `seeds`.
        Return whether there are any.

        An array is judged again for each array next to it of which something is left.
        """
        edges = [edge for seed in seeds for edge in edges_before(seed) if self.own(edge)]
        to_do = list(dict.fromkeys(map(self._near, edges)))
        for value in to_do:
            if value not in self._known and (moved := self._judged(value)):
                self._known[value] = moved
                behind = edges_before(value) if self.shrinks else edges_after(value)
                to_do += [self._near(edge) for edge in behind if self.is_crossed(edge)]
        return bool(self._known)

    def _near(self, edge: Edge) -> Value:
        return edge.given if self.shrinks else edge.made
