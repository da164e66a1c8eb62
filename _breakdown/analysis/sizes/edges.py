"""Go from arrays to the arrays next to them, with the dimensions that both have."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import inf
from typing import Final, TypeAlias

from _breakdown.analysis.arrays.dims import PUTTING, TAKING, Link, array_of, links_of
from _breakdown.analysis.arrays.elements import Number, elements_of
from _breakdown.analysis.arrays.graph import (
    DOTS,
    ELEMENTWISE,
    STRUCTURE,
    WHILE,
    Value,
    consumers,
    inputs_of_chain,
    is_layout,
    is_same,
    operand,
    producers,
)
from _breakdown.light import NamedTuple
from _breakdown.pipeline.groups import grouped
from _proto.hlo.collectives import collective_name, first_collective
from _proto.hlo.program import Instruction

# Kinds of instructions, by what they do with the dimensions and the elements of their operands.
PASS, MOVE, LINEAR, ELEMENT, MATMUL, REDUCE, TAKE, PUT, BROADCAST, EXCHANGE, OTHER = (
    *("pass", "move", "linear", "element", "matmul"),
    *("reduce", "take", "put", "broadcast", "exchange", "other"),
)
_KIND_OF: Final = {
    **dict.fromkeys(STRUCTURE, PASS),
    **dict.fromkeys(ELEMENTWISE, ELEMENT),
    **dict.fromkeys("add convert divide multiply negate select subtract".split(), LINEAR),
    **dict.fromkeys(DOTS, MATMUL),
    **dict.fromkeys(TAKING, TAKE),
    **dict.fromkeys(PUTTING, PUT),
    WHILE: OTHER,
    "concatenate": PUT,
    "reduce": REDUCE,
    "broadcast": BROADCAST,
}

Dims: TypeAlias = "tuple[int, ...]"
# Stands for all dimensions together, such as for the width of the elements.
ALL: Final[Dims] = (-1,)
# Long chains of instructions that only pass a value on occur in damaged programs only.
_FARTHEST = 80


class Edge(NamedTuple):
    """An instruction that computes the value `made` from the value `given`, its operand at a
    place. Of an asynchronous op, `by` is the slice or lookup that it runs."""

    by: Instruction
    place: int
    given: Value
    made: Value
    kind: str

    def links(self) -> Sequence[Link]:
        if self.kind == EXCHANGE or self.by.opcode == "copy-done":
            before, after = self.given.array, self.made.array
            if before is None or after is None or len(before.dims) != len(after.dims):
                return ()
            both = enumerate(zip(before.dims, after.dims, strict=True))
            return [Link(0, (i,), (i,)) for i, (n, m) in both if n == m]
        known: dict[Instruction, dict[int, list[Link]]]
        known = self.by.program.derived.setdefault(Edge, {})
        if self.by not in known:
            known[self.by] = grouped((link.place, link) for link in links_of(self.by))
        return known[self.by].get(self.place, ())

    def linked(self, dims: Dims, *, to_given: bool) -> Sequence[Link]:
        """Return the links of dimensions of the result to the operand, or back. Return none if the
        other side has the elements only together with those of other dimensions."""
        near = [(link.outside if to_given else link.inside, link) for link in self.links()]
        found = [(some, link) for some, link in near if not {*dims}.isdisjoint(some)]
        is_exact = sorted(dim for some, _ in found for dim in some) == sorted(dims)
        return [link for _, link in found] if is_exact else ()


def kind_of(here: Instruction) -> str:
    found = _KIND_OF.get(here.opcode) if here.stage is None else None
    if found is None and _collective_of(here):
        found = EXCHANGE
    if found is None and (here.opcode == "copy-done" or is_layout(here)):
        found = MOVE
    return found or (TAKE if taken_by(here) is not here else OTHER)


def _collective_of(here: Instruction) -> str | None:
    found = first_collective(here.chain) if here.is_asynchronous else here
    return collective_name(found.opcode) if found else None


def taken_by(here: Instruction) -> Instruction:
    """Return the lookup or slice that an asynchronous op runs, or else the instruction."""
    chain = here.chain if here.is_asynchronous else ()
    found = [one for part in chain for one in part.inside() if one.opcode in TAKING]
    return min(found, key=lambda one: one.opcode != "gather", default=here)


def edges_before(value: Value) -> list[Edge]:
    """Return the edges to what a value is computed from."""
    here, path = value
    kind = kind_of(here)
    if kind == PASS:
        return [Edge(here, 0, source, value, kind) for source in producers(value)]
    given = list(inputs_of_chain(here)) if here.is_asynchronous else here.operands
    if kind == EXCHANGE and len(path) == 1:
        # A collective on several arrays returns each array at the index of its operand.
        given = given[path[0] : path[0] + 1]
    by = taken_by(here)
    if by is here:
        return [Edge(here, i, Value(one), value, kind) for i, one in enumerate(given)]
    source = array_of(operand(by, 0))
    is_source = [source and (array := array_of(one)) and array.dims == source.dims for one in given]
    both = zip(given, is_source, strict=True)
    return [Edge(by, 0 if is_first else 1, Value(one), value, kind) for one, is_first in both]


def parts_of(value: Value) -> list[Edge]:
    """Return the edges to what a value is computed from. Fusions concatenate arrays by the maximum
    of arrays that are padded with minus infinity."""
    here = value.instruction
    pads = pads_of(here) if here.opcode == "maximum" else ()
    joined = [Edge(pad, 0, Value(pad.operands[0]), value, PUT) for pad in pads]
    return joined or edges_before(value)


def pads_of(here: Instruction, farthest: int = _FARTHEST) -> list[Instruction]:
    """Return the pads whose maximum concatenates arrays, or none."""
    found: list[Instruction] = []
    for one in here.operands if here.opcode == "maximum" and farthest else ():
        side = last_of(Value(one), lambda one: one.opcode == "convert").instruction
        fill = operand(side, 1) if side.opcode == "pad" else None
        is_pad = fill is not None and elements_in(Value(fill)) == [-inf]
        pads = [side] if is_pad else pads_of(side, farthest - 1)
        if not pads:
            return []
        found += pads
    return found


def edges_after(value: Value) -> Iterator[Edge]:
    """Yield the edges to all that is computed from a value. One of the kind `OTHER` is to something
    else, such as the result of the program."""
    here = value.instruction
    if here.computation.root is here:
        caller = here.computation.caller
        # Rounds of a loop can need other parts of what they pass on.
        if caller is None or kind_of(caller) != PASS:
            yield Edge(here, 0, value, value, OTHER)
    for taker in dict.fromkeys(consumers(value)):
        by = taker.instruction
        kind = kind_of(by)
        if kind == PASS:
            yield Edge(by, 0, value, taker, kind)
        elif by.is_asynchronous or kind == EXCHANGE:
            yield from (edge for edge in edges_before(taker) if edge.given == value)
        else:
            for place, one in enumerate(by.operands):
                if one is here:
                    yield Edge(by, place, value, taker, kind)


def last_of(value: Value, passes: Callable[[Instruction], bool] = lambda _: False) -> Value:
    """Return the value from which instructions that only pass a value on have it."""
    for _ in range(_FARTHEST):
        here = value.instruction
        sources = producers(value) if here.opcode in STRUCTURE or passes(here) else []
        if len(sources) != 1:
            break
        value = sources[0]
    return value


def elements_in(value: Value) -> Sequence[Number]:
    """Return the elements of a constant, possibly of one that is copied to all places."""
    here = last_of(value, is_copied).instruction
    return elements_of(here.message.literal) if here.opcode == "constant" else ()


def is_copied(here: Instruction) -> bool:
    return here.opcode == "broadcast" or is_same(Value(here))


def is_cast(here: Instruction) -> bool:
    return here.opcode in ("convert", "copy")
