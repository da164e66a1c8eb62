"""Move reductions along dimensions that devices gather to before the gather."""

from __future__ import annotations

from collections.abc import Sequence

from _breakdown.analysis.arrays.dims import Link
from _breakdown.analysis.sizes.edges import (
    ELEMENT,
    EXCHANGE,
    LINEAR,
    MATMUL,
    MOVE,
    PASS,
    REDUCE,
    Dims,
    Edge,
)
from _breakdown.analysis.sizes.law import Law, Left, Parts, scaled
from _breakdown.analysis.sizes.sums import summed_by

_TOP_K = b"TopK"


class Local(Law):
    """A sum, a largest element or the largest few. Each device can reduce its part, if all combine
    it with the same numbers, and the results of the devices are reduced in the same way."""

    shrinks = True
    crosses = frozenset((PASS, MOVE, ELEMENT, LINEAR, EXCHANGE))

    def own(self, edge: Edge) -> Parts:
        given, by = edge.given.array, edge.by
        if given is None:
            return {}
        if edge.kind == MATMUL:
            return summed_by(edge)
        dims: Sequence[int] = by.message.dimensions if edge.kind == REDUCE else ()
        n_kept = 1
        if by.message.custom_call_target == _TOP_K and by.arrays:
            dims, n_kept = [len(given.dims) - 1], by.arrays[0].dims[-1]
        label = by, edge.place
        parts = {(dim,): n_kept / max(1, given.dims[dim]) for dim in dims if not edge.place}
        return {dims: frozenset([((label,), part)]) for dims, part in parts.items()}

    def across(self, edge: Edge, dims: Dims, left: Left) -> tuple[Dims, Left] | None:
        given, made = edge.given.array, edge.made.array
        if edge.kind != EXCHANGE or given is None or made is None:
            return super().across(edge, dims, left)
        if len(given.dims) != len(made.dims) or given.n_elements >= made.n_elements:
            return None
        # Each device has a result.
        n = made.n_elements / max(1, given.n_elements)
        return dims, frozenset((label, n * part) for label, part in left)

    def passed(self, edge: Edge, links: Sequence[Link], left: Left) -> Left | None:
        is_alone = len(edge.by.operands) == 1
        return left if is_alone else scaled(left, (edge.by, edge.place), 1)
