"""Move broadcasts towards what reads their result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from _breakdown.analysis.arrays.dims import Link, array_of
from _breakdown.analysis.arrays.graph import (
    DOTS,
    ELEMENTWISE,
    LAYOUT,
    STRUCTURE,
    WHILE,
    Value,
    is_elementwise,
    operand,
    producers,
    reach,
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
    is_copied,
    last_of,
    pads_of,
    parts_of,
    taken_by,
)
from _breakdown.analysis.sizes.law import FARTHEST, Law, Left, Moved, Parts, fraction, scaled
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


def _is_broadcast(value: Value) -> bool:
    return value.instruction.opcode == "broadcast" or is_elementwise(value)


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
            rows = Value(edge.by.operands[1])
            return {dims: frozenset([((_LOOKUP, last_of(rows)), _different(edge.by))])}
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
            if is_one_number(edge.given):
                continue
            # Most ops have an operand that does not repeat.
            if not parts and edge.kind in (ELEMENT, LINEAR):
                return {}
            known.append((edge, parts))
        found: dict[Dims, Left] = {}
        for dims, left in [item for _, parts in known for item in parts.items()]:
            if all(_repeats_so(*side, dims, left) for side in known):
                found[dims] = left
            elif known[0][0].kind == PUT:
                shares = (_share(edge, parts.get(dims)) for edge, parts in known)
                found[dims] = frozenset().union(*shares)
        return found


def _repeats_so(edge: Edge, parts: Parts, dims: Dims, left: Left) -> bool:
    """Return whether an operand repeats as another one does. It does so in each way if it lacks the
    dimensions, or if its elements are all equal, and so does a mask of the rows that are looked
    up."""
    equal = ({label for label, _ in parts.get((dim,), ())} == {_EQUAL} for dim in dims)
    if parts.get(dims) == left or not _has(edge, dims) or all(equal):
        return True
    rows = (label[1] for label, _ in left if label[0] == _LOOKUP)
    return any(_sources(edge.given) == _sources(each) for each in rows)


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
    """Return whether a lookup returns rows several times."""
    return here.opcode == "gather" and _different(here) < 1


def _different(gather: Instruction) -> float:
    """Return the part of a lookup's rows that can differ: there are not more in the table, or the
    numbers of the rows are repeated."""
    given, made = array_of(operand(gather, 0)), array_of(gather)
    left = given.n_elements / max(1, made.n_elements) if given and made else 1.0
    if (numbers := operand(gather, 1)) is None:
        return left
    indices = Value(numbers)
    sources = _sources(indices, is_elementwise)
    one = sources.pop() if len(sources) == 1 else indices
    if one.instruction.opcode == "broadcast" and one.array and indices.array:
        repeated = array_of(operand(one.instruction, 0))
        left = min(left, (repeated.n_elements if repeated else 1) / indices.array.n_elements)
    return left


def _sources(value: Value, passes: Callable[[Value], bool] = _is_broadcast) -> set[Value]:
    """Return the arrays from which an array is computed element by element."""
    read = reach([value], producers, lambda each: passes(each) or _is_identity(each.instruction))
    ends = read.stopped | {each for each in read.passed if not producers(each)}
    return {each for each in ends if not is_one_number(each)}


def _is_identity(here: Instruction) -> bool:
    """Return whether an op only checks numbers of rows, or takes all of them."""
    given, made = array_of(operand(here, 0)), array_of(here)
    is_alike = given is not None and made is not None and given.n_elements == made.n_elements
    return here.opcode in ("custom-call", "slice") and len(here.operands) == 1 and is_alike


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
