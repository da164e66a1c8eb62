"""Move ops that make little of an array to before the array is written to memory."""

from __future__ import annotations

from _breakdown.analysis.sizes.edges import ALL, ELEMENT, LINEAR, MOVE, PASS, REDUCE, TAKE, Edge
from _breakdown.analysis.sizes.law import Law, Parts


class Little(Law):
    """A reduction, a slice or a lookup. One that follows element by element can run while the
    elements are computed."""

    shrinks = True
    crosses = frozenset((PASS, MOVE, ELEMENT, LINEAR))

    def own(self, edge: Edge) -> Parts:
        given = edge.given.array
        if edge.kind not in (REDUCE, TAKE) or edge.place or not given or not given.n_bytes:
            return {}
        made = sum(array.n_bytes or 0 for array in edge.by.arrays or ())
        return {ALL: frozenset([((edge.by,), min(1.0, made / given.n_bytes))])}
