"""Move ops on elements, casts and broadcasts to after a collective that moves what they make."""

from __future__ import annotations

from _breakdown.analysis.arrays.graph import Value
from _breakdown.analysis.arrays.of_step import is_float
from _breakdown.analysis.sizes.edges import (
    ALL,
    BROADCAST,
    ELEMENT,
    LINEAR,
    MOVE,
    PASS,
    PUT,
    TAKE,
    Edge,
    edges_before,
    is_cast,
    last_of,
)
from _breakdown.analysis.sizes.law import MOST, Law, Moved
from _breakdown.analysis.sizes.repeats import is_one_number
from _proto.hlo.program import Instruction

# Arrays of which an op makes more than this many times as much are little, wherever they come from.
_LITTLE = 16


class Derived(Law):
    """Ops on elements make arrays larger: casts to wider numbers, broadcasts, pads. Each device can
    as well receive the smaller arrays, and compute with them."""

    shrinks = False
    crosses = frozenset((PASS, MOVE, ELEMENT, LINEAR, BROADCAST, PUT, TAKE))

    def is_crossed(self, edge: Edge) -> bool:
        # A sum of two arrays, as after each block of a model, has at least their size.
        is_sum = edge.by.opcode == "add" and not any(map(_is_repeated, edge.by.operands))
        return super().is_crossed(edge) and edge.by.opcode != "gather" and not is_sum

    def _judged(self, value: Value) -> Moved | None:
        """Return the arrays from which an array is computed, if they have fewer bytes."""
        n = _n_bytes(value)
        found: dict[Value, float] = {}
        edges = edges_before(value)
        for edge in edges:
            given = edge.given
            if not self.is_crossed(edge):
                return None
            if is_one_number(given) or given.instruction.opcode in ("constant", "iota"):
                continue
            size = _n_bytes(given)
            moved = self.left(given) if size * _LITTLE > n else None
            # A slice takes a part of what its operand is made of.
            taken = n / size if edge.kind == TAKE and n < size else 1.0
            parts = moved.parts[ALL] if moved else [((given,), 1.0)]
            found.update((label[0], part * size * taken) for label, part in parts)
            if sum(found.values()) > MOST * n:
                return None
        parts = frozenset(((source,), size / max(1, n)) for source, size in found.items())
        return Moved({ALL: parts}, edges[0].by) if parts else None


class Addend(Derived):
    """Casts of floats and broadcasts, which can as well run after a sum over devices."""

    crosses = frozenset((PASS, MOVE, BROADCAST, PUT, TAKE))

    def is_crossed(self, edge: Edge) -> bool:
        given, opcode = edge.given.array, edge.by.opcode
        if opcode == "convert":
            return given is not None and is_float(given.dtype)
        # Each device can update another part.
        return super().is_crossed(edge) and opcode not in ("dynamic-update-slice", "scatter")


def _is_repeated(here: Instruction) -> bool:
    return last_of(Value(here), is_cast).instruction.opcode == "broadcast"


def _n_bytes(value: Value) -> int:
    return (value.array.n_bytes if value.array else None) or 0
