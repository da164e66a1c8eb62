"""Move casts to narrower floats past ops that only move elements."""

from __future__ import annotations

from _breakdown.analysis.arrays.of_step import is_float
from _breakdown.analysis.sizes.edges import ALL, EXCHANGE, MOVE, PASS, PUT, TAKE, Edge
from _breakdown.analysis.sizes.law import Law, Parts


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
