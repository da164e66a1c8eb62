"""Move sums over dimensions towards what computes their operand."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from _breakdown.analysis.arrays.dims import Link, array_of, dims_of_dot
from _breakdown.analysis.arrays.graph import DOTS, Value, is_layout, operand, producers, reach
from _breakdown.analysis.sizes.edges import (
    ALL,
    EXCHANGE,
    LINEAR,
    MATMUL,
    MOVE,
    PASS,
    PUT,
    REDUCE,
    TAKE,
    Dims,
    Edge,
    is_cast,
    kind_of,
    last_of,
)
from _breakdown.analysis.sizes.law import Law, Left, Moved, Parts, scaled
from _proto.hlo.collectives import first_collective
from _proto.hlo.program import Instruction

# The matrix unit takes about as long for fewer rows, because it first loads the other operand.
FEWEST_ROWS = 128


class Sum(Law):
    """A sum over a dimension. The sum of a linear function is the function of the sum."""

    shrinks = True
    crosses = frozenset((PASS, MOVE, LINEAR, MATMUL, REDUCE, EXCHANGE, TAKE, PUT))

    def own(self, edge: Edge) -> Parts:
        given, by, place = edge.given.array, edge.by, edge.place
        label = by, place
        if given is None:
            return {}
        if by.opcode == "add" and _are_sent_together(by):
            return {ALL: frozenset([((label,), 1 / 2)])}
        if edge.kind == REDUCE and place == 0 and adds(by):
            return {
                (dim,): frozenset([((label,), 1 / max(1, given.dims[dim]))])
                for dim in by.message.dimensions
            }
        if by.opcode == "reduce-window" and place == 0 and adds(by) and edge.made.array:
            sizes = enumerate(zip(edge.made.array.dims, given.dims, strict=False))
            return {(dim,): frozenset([((label,), m / n)]) for dim, (m, n) in sizes if 0 < m < n}
        if by.opcode == "scatter" and place == 2 and adds(by) and edge.made.array:
            n, m = edge.made.array.n_elements, given.n_elements
            rows = {*range(len(given.dims))} - {dim for link in edge.links() for dim in link.inside}
            return {tuple(rows): frozenset([((label,), n / m)])} if 0 < n < m else {}
        return summed_by(edge) if edge.kind == MATMUL else {}

    def is_crossed(self, edge: Edge) -> bool:
        if edge.kind in (REDUCE, EXCHANGE):
            return edge.place == 0 and adds(edge.by)
        if edge.kind == PUT:
            return edge.by.opcode == "scatter" and edge.place == 2 and adds(edge.by)
        if edge.kind in (MATMUL, TAKE):
            # Such as an interpolation, or rows for the edges of a graph. Most others lead nowhere.
            given, made = edge.given.array, edge.made.array
            is_more = given is not None and made is not None and given.n_elements <= made.n_elements
            return is_more and (edge.kind == MATMUL or edge.place == 0)
        is_linear = {"divide": edge.place == 0, "select": edge.place > 0}.get(edge.by.opcode, True)
        return edge.kind in self.crosses and is_linear

    def across(self, edge: Edge, dims: Dims, left: Left) -> tuple[Dims, Left] | None:
        # A sum of two arrays covers all dimensions, and can have weights, too.
        after = self.passed(edge, (), left) if dims == ALL else None
        return (dims, after) if after else super().across(edge, dims, left)

    def with_batch(self, dot: Instruction) -> tuple[float, Value, Moved] | None:
        """Return what is left of a batched matmul whose batch is summed, if it sums the batch, too:
        the matrix unit takes as long for short sums as for those of 128 terms."""
        dims, given = dims_of_dot(dot), array_of(operand(dot, 0))
        batch = {(each[0],) for each in dims if None not in each}
        summed = [d for out, d, _ in dims if out is None and d is not None]
        n_terms = prod(given.dims[d] for d in summed) if given else FEWEST_ROWS
        # Most matmuls have long sums.
        moved = self.left(Value(dot)) if batch and n_terms < FEWEST_ROWS else None
        parts: Parts = {d: left for d, left in moved.parts.items() if d in batch} if moved else {}
        left = n_terms / FEWEST_ROWS
        return (left, Value(dot), moved._replace(parts=parts)) if moved and parts else None

    def passed(self, edge: Edge, links: Sequence[Link], left: Left) -> Left | None:
        by = edge.by
        if by.opcode in ("multiply", "divide", "select"):
            return scaled(left, (by, edge.place), 1)
        return left

    def joined(self, value: Value, sides: Iterable[tuple[Edge, Parts]]) -> Parts:
        found = super().joined(value, sides)
        return {dims: left for dims, left in found.items() if not _is_quadratic(left)}


def summed_by(edge: Edge) -> Parts:
    """Return what a matmul leaves of an operand, if it makes at most half as many elements."""
    given, made, by, place = edge.given.array, array_of(edge.by), edge.by, edge.place
    if (
        given is None
        or made is None
        or place > 1
        or not 0 < 2 * made.n_elements <= given.n_elements
    ):
        return {}
    summed = tuple(
        dim for out, *sides in dims_of_dot(by) if out is None and (dim := sides[place]) is not None
    )
    # The other operand has the weights of the sum.
    label = by, place
    left = frozenset([((label, label), made.n_elements / given.n_elements)])
    return {summed: left} if summed else {}


def in_other_order(dot: Instruction) -> tuple[float, Value, Moved] | None:
    """Return what is left of x @ (a @ b), if it is computed as (x @ a) @ b."""
    found: list[tuple[float, Value, Moved]] = []
    for i, one in enumerate(dot.operands):
        made = last_of(Value(one), is_cast)
        inner, product = made.instruction, made.array
        if inner.opcode not in DOTS or made.array != array_of(one):
            continue
        if not is_plain(dot) or not is_plain(inner):
            continue
        summed = {each[1 + i] for each in dims_of_dot(dot) if each[0] is None}
        for side, a in enumerate(map(array_of, inner.operands)):
            dims = {each[0] for each in dims_of_dot(inner) if each[1:][side] is not None}
            if a and product and product.n_elements and summed <= dims:
                n, n_terms = (
                    prod(product.dims[dim] for dim in each if dim is not None)
                    for each in (dims, summed)
                )
                # The matrix unit takes as long for fewer columns.
                rank = max(a.n_elements / n, FEWEST_ROWS)
                moved = Moved({ALL: frozenset([((dot,), 1 / n_terms)])}, dot)
                found.append((rank * n / product.n_elements + rank / n_terms, made, moved))
    return min(found, key=lambda each: each[0], default=None)


def is_plain(dot: Instruction) -> bool:
    """Return whether a matmul multiplies all rows of one operand by all columns of the other."""
    dims = dims_of_dot(dot)
    listed = [{each[1 + place] for each in dims} for place in (0, 1)]
    sizes = [array.dims if (array := array_of(one)) else () for one in dot.operands]
    both = zip(listed, sizes, strict=False)
    is_listed = (n == 1 or dim in some for some, each in both for dim, n in enumerate(each))
    return bool(dims) and all(None in each for each in dims) and all(is_listed)


def _are_sent_together(add: Instruction) -> bool:
    """Return whether a sum adds two of the results of one reduction over devices."""
    first, second = (
        reach([Value(one)], producers, _is_weighted).stopped if one else set()
        for one in (operand(add, 0), operand(add, 1))
    )
    return any(
        a.instruction is b.instruction and a != b and kind_of(a.instruction) == EXCHANGE
        for a in first
        for b in second
    )


def _is_weighted(value: Value) -> bool:
    here = value.instruction
    return here.opcode in ("convert", "multiply") or is_layout(here)


def _is_quadratic(left: Left) -> bool:
    """Return whether an array is multiplied with what is made of it, as in the sum of squares."""
    places: dict[object, set[object]] = {}
    for label, _ in left:
        for by, place in label[1:]:
            places.setdefault(by, set()).add(place)
    return any(len(each) > 1 for each in places.values())


def adds(here: Instruction) -> bool:
    """Return whether a reduction adds, also one over devices; other collectives count, too."""
    found = first_collective(here.chain) or here
    roots = [called.root for called in found.called]
    return all(root is not None and root.opcode == "add" for root in roots)
