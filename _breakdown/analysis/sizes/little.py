"""Move ops that make little of an array to before the array is written to memory, or gathered."""

from __future__ import annotations

from _breakdown.analysis.arrays.dims import array_of, dims_of_dot
from _breakdown.analysis.sizes.edges import (
    ALL,
    ELEMENT,
    LINEAR,
    MATMUL,
    MOVE,
    PASS,
    REDUCE,
    TAKE,
    Edge,
)
from _breakdown.analysis.sizes.law import Law, Parts

_TOP_K = b"TopK"


class Little(Law):
    """A reduction, a slice, a lookup or the largest few. One that follows element by element can
    run while the elements are computed."""

    shrinks = True
    crosses = frozenset((PASS, MOVE, ELEMENT, LINEAR))

    def own(self, edge: Edge) -> Parts:
        given, by = edge.given.array, edge.by
        is_less = edge.kind in (REDUCE, TAKE) or by.message.custom_call_target == _TOP_K
        if not is_less or edge.place or not given or not given.n_bytes:
            return {}
        made = sum(array.n_bytes or 0 for array in by.arrays or ())
        # Several ops can take the same slice.
        label = tuple(by.message.slice_dimensions) or by
        return {ALL: frozenset([((label,), min(1.0, made / given.n_bytes))])}


class Local(Little):
    """Reductions after a gather, also matmuls that make at most half as many elements. Each device
    can reduce its part of the array, and send the result."""

    def own(self, edge: Edge) -> Parts:
        given, product = edge.given.array, array_of(edge.by)
        if edge.kind != MATMUL or not dims_of_dot(edge.by) or product is None or given is None:
            return super().own(edge)
        part = product.n_elements / max(1, given.n_elements)
        return {ALL: frozenset([((edge.by,), part)])} if part <= 1 / 2 else {}
