"""Move broadcasts towards what reads their result."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from _breakdown.analysis.arrays.dims import Link, array_of
from _breakdown.analysis.arrays.graph import (
    DOTS,
    ELEMENTWISE,
    LAYOUT,
    STRUCTURE,
    WHILE,
    Value,
    operand,
    producers,
)
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
    pads_of,
    parts_of,
    taken_by,
)
from _breakdown.analysis.sizes.law import FARTHEST, Law, Left, Moved, Parts, fraction, scaled
from _breakdown.analysis.sizes.zeros import is_copied
from _proto.hlo.program import Instruction

# How dimensions repeat: their elements are all equal, those of several dimensions are joined, or
# they are looked up, some of them several times, or an array is concatenated with itself.
_EQUAL = ("equal",)
_LOOKUP, _COPIES = "lookup", "copies"
# Arrays that are joined can repeat each in its own way.
_JOINING = frozenset(("concatenate", "pad"))
# What they compute has elements of the first operand only.
_OF_FIRST = frozenset(("reduce", "pad", "slice", "dynamic-slice"))
_FOLLOWED = ELEMENTWISE | DOTS | LAYOUT | (STRUCTURE - {WHILE}) | _JOINING | _OF_FIRST


class Repeat(Law):
    """A broadcast, or a lookup of more rows than there are. What is computed of equal elements is
    equal."""

    shrinks = False
    crosses = frozenset((PASS, MOVE, ELEMENT, LINEAR, MATMUL, REDUCE, TAKE, PUT, BROADCAST))

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
            here = value.instruction
            opcode = here.opcode
            if opcode not in _FOLLOWED:
                found = opcode in ("broadcast", "constant") or repeats_rows(taken_by(here))
            elif self._depth < FARTHEST:
                sources = producers(value)[: 1 if opcode in _OF_FIRST else None]
                is_joined = opcode in _JOINING or (opcode == "maximum" and bool(pads_of(here)))
                test = any if is_joined or opcode in DOTS else all
                found = bool(sources) and test(map(self.may_repeat, sources))
                found = found or (is_joined and _copies_in(value) > 1)
            else:
                found = False
            self._may_repeat[value] = found
            self._depth -= 1
        return self._may_repeat[value]

    def own(self, edge: Edge) -> Parts:
        made, given = edge.made.array, edge.given.array
        if made is None or given is None or given.n_elements == 1:
            return {}
        if edge.kind == TAKE and edge.place == 0 and repeats_rows(edge.by):
            whole = {dim for link in edge.links() for dim in link.outside}
            dims = tuple(dim for dim in range(len(made.dims)) if dim not in whole)
            rows = last_of(Value(edge.by.operands[1]))
            return {dims: frozenset([((_LOOKUP, rows), given.n_elements / made.n_elements)])}
        if edge.kind == PUT and (n := _copies_in(edge.made)) > 1:
            left = frozenset([((_COPIES, n), 1 / n)])
            return {link.outside: left for link in edge.links() if link.filled < 1}
        if edge.kind != BROADCAST:
            return {}
        return {
            (dim,): frozenset([(_EQUAL, 1 / size)])
            for dim, size in enumerate(made.dims)
            if dim not in edge.by.message.dimensions and size > 1
        }

    def is_crossed(self, edge: Edge) -> bool:
        return super().is_crossed(edge) and (edge.kind != PUT or edge.by.opcode in _JOINING)

    def passed(self, edge: Edge, links: Sequence[Link], left: Left) -> Left | None:
        # What is computed of several parts together does not repeat as any of them does.
        is_mixed = len(left) > 1 and edge.kind in (MATMUL, REDUCE)
        is_whole = all(link.filled == 1 == link.taken for link in links)
        return left if is_whole and not is_mixed else None

    def across(self, edge: Edge, dims: Dims, left: Left) -> tuple[Dims, Left] | None:
        found = super().across(edge, dims, left)
        if found or edge.kind != MOVE or edge.given.array is None or len(left) > 1:
            # A reshape can only split a dimension that repeats as a whole.
            is_split = found is not None and len(found[0]) > len(dims)
            is_joined = any(label != _EQUAL and label[0] != _LOOKUP for label, _ in left)
            return None if is_split and is_joined else found
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
            sides = [(edge, parts) for edge, parts in known if dims in parts or _has(edge, dims)]
            # Elements that are all equal, such as a bias, repeat in each way.
            mixed = [parts for _, parts in sides if not _are_equal(parts, dims)]
            lefts = {parts.get(dims) for parts in mixed or (sides[0][1],)}
            if all(edge.kind == PUT for edge, _ in sides):
                lefts = {parts.get(dims) for _, parts in sides}
                if len(lefts) > 1:
                    shares = (_share(edge, parts.get(dims)) for edge, parts in sides)
                    lefts = {frozenset().union(*shares)}
            if len(lefts) == 1 and (left := lefts.pop()):
                found[dims] = left
        return found


def _are_equal(parts: Parts, dims: Dims) -> bool:
    return all({label for label, _ in parts.get((dim,), ())} == {_EQUAL} for dim in dims)


def _share(edge: Edge, left: Left | None) -> Left:
    """Return what is left of one of several arrays that are joined, as a part of the whole."""
    given, made = edge.given.array, edge.made.array
    share = given.n_elements / max(1, made.n_elements) if given and made else 1.0
    return scaled(left or frozenset([((), 1.0)]), (edge.by, edge.place), share)


def _copies_in(value: Value) -> int:
    """Return the number of arrays that are joined, if all are the same one."""
    joined = [last_of(edge.given) for edge in parts_of(value)]
    return len(joined) if len(set(joined)) == 1 else 1


def repeats_rows(here: Instruction) -> bool:
    """Return whether a lookup returns more rows than there are."""
    if here.opcode != "gather":
        return False
    given, made = array_of(operand(here, 0)), array_of(here)
    return given is not None and made is not None and given.n_elements < made.n_elements


def is_looked_up(left: Left) -> bool:
    return any(label[:1] == (_LOOKUP,) for label, _ in left)


def looks_up(moved: Moved) -> bool:
    return any(map(is_looked_up, moved.parts.values()))


def is_broadcast(moved: Moved) -> bool:
    """Return whether an array repeats one array, without a lookup."""
    return not looks_up(moved) and all(len(left) == 1 for left in moved.parts.values())


def _has(edge: Edge, dims: Dims) -> bool:
    if edge.kind in (PASS, BROADCAST):
        return True
    return any(not {*dims}.isdisjoint(link.outside) for link in edge.links())


def is_one_number(value: Value) -> bool:
    """Return whether all elements are one number."""
    array = value.array
    if array is not None and array.n_elements > 1:
        array = last_of(value, is_copied).array
    return array is not None and array.n_elements == 1
