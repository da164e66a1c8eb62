"""Find which part of an array a program uses, and which part of it is not zero.

The part of some dimensions is a set of takes (or puts): what takes, and the fraction that it takes.
Equal takes, such as the same slice of two arrays, take the same elements; different takes count as
different elements. The part is thus never too small.

    logits [512, 32000] --gather--> [76, 32000]       the gather uses 76 / 512 of the rows
    gradient [76, 32000] --scatter into zeros--> [512, 32000]     76 / 512 of the rows are not zero
"""

from __future__ import annotations

from typing import TypeAlias

from _breakdown.analysis.arrays.dims import PUTTING, TAKING, Link, array_of, links_of
from _breakdown.analysis.arrays.elements import elements_of
from _breakdown.analysis.arrays.graph import (
    STRUCTURE,
    WHILE,
    Value,
    consumers,
    operand,
    producers,
)
from _proto.hlo.program import Instruction

Part: TypeAlias = "frozenset[tuple[object, float]]"
Dims: TypeAlias = "tuple[int, ...]"
WHOLE: Part = frozenset([(None, 1.0)])
NOTHING: Part = frozenset()
# Longer chains of ops are assumed to use the whole array, to bound the time of the search.
_FARTHEST = 80

# Instructions whose result is zero where an operand is zero, or where the first operand is zero.
_ZERO_IF_ANY = frozenset(("multiply", "and", "dot", "convolution"))
_ZERO_IF_FIRST = frozenset(
    "divide convert negate abs sqrt sign floor ceil reduce broadcast transpose reshape bitcast copy"
    " copy-start copy-done slice dynamic-slice gather".split()
)
_ZERO_IF_ALL = frozenset("add subtract maximum minimum concatenate select".split()) | PUTTING
_PASSING = frozenset("broadcast convert copy bitcast parameter".split())


def fraction(part: Part) -> float:
    return min(1.0, sum(taken for _, taken in part))


class Parts:
    """The parts of the arrays of a program that are used, and those that are not zero."""

    def __init__(self) -> None:
        self._used: dict[tuple[Value, Dims], Part] = {}
        self._filled: dict[tuple[Value, Dims], Part] = {}
        self._links: dict[Instruction, list[Link]] = {}

    def links(self, here: Instruction) -> list[Link]:
        if here not in self._links:
            self._links[here] = links_of(here)
        return self._links[here]

    def used(self, value: Value, dims: Dims, depth: int = 0) -> Part:
        """Return the part of some dimensions that the program uses."""
        key = value, dims
        if key not in self._used:
            # In a damaged program, a value can be computed from itself.
            self._used[key] = WHOLE
            if depth < _FARTHEST:
                self._used[key] = self._used_of(value, dims, depth + 1)
        return self._used[key]

    def _used_of(self, value: Value, dims: Dims, depth: int) -> Part:
        here = value.instruction
        if here.computation.root is here and not _is_followed(here.computation.caller):
            return WHOLE
        found = NOTHING
        for taker in consumers(value):
            found |= self._taken(taker, value, dims, depth)
            if fraction(found) == 1:
                return WHOLE
        return found

    def _taken(self, taker: Value, value: Value, dims: Dims, depth: int) -> Part:
        by = taker.instruction
        if by.opcode in STRUCTURE:
            is_loop = by.opcode == WHILE or (
                by.opcode == "parameter" and not _is_followed(by.computation.caller)
            )
            return WHOLE if is_loop else self.used(taker, dims, depth)
        if by.is_asynchronous:
            is_copy = by.opcode == "copy-done"
            return (
                self.used(taker, dims, depth) if is_copy else self._taken_by_chain(by, value, dims)
            )
        ids = by.message.operand_ids
        found = NOTHING
        for place in (i for i, id_ in enumerate(ids) if id_ == value.instruction.message.id):
            links = self.onward(by, place, dims)
            if links is None:
                return WHOLE
            # What is used of a slice makes little difference.
            outside = tuple(dim for link in links for dim in link.outside if link.taken == 1)
            after = self.used(Value(by), outside, depth) if outside else WHOLE
            for link in links:
                after = _scaled(after, _label(by, link), link.taken / link.filled)
            found |= after
        return found

    def onward(self, by: Instruction, place: int, dims: Dims) -> list[Link] | None:
        """Return the links of dimensions of an operand to the result. Return None if there are
        none, or if the result has the elements only together with those of other dimensions."""
        links = [x for x in self.links(by) if x.place == place and not {*dims}.isdisjoint(x.inside)]
        return links if sorted(dim for x in links for dim in x.inside) == sorted(dims) else None

    def back(self, here: Instruction, place: int, dims: Dims) -> list[Link] | None:
        """Return the links of dimensions of the result to an operand, as `onward` does."""
        links = [
            x for x in self.links(here) if x.place == place and not {*dims}.isdisjoint(x.outside)
        ]
        return links if sorted(dim for x in links for dim in x.outside) == sorted(dims) else None

    def _taken_by_chain(self, by: Instruction, value: Value, dims: Dims) -> Part:
        """Return what an asynchronous gather or slice takes."""
        taking = (one for part in by.chain for one in part.inside() if one.opcode in TAKING)
        for one in taking:
            source = array_of(operand(one, 0))
            if source and value.array and source.dims == value.array.dims:
                part = WHOLE
                for link in self.onward(one, 0, dims) or ():
                    part = _scaled(part, _label(one, link), link.taken / link.filled)
                return part
        return WHOLE

    def filled(self, value: Value, dims: Dims, depth: int = 0) -> Part:
        """Return the part of some dimensions that is not known to be zero."""
        key = value, dims
        if key not in self._filled:
            self._filled[key] = WHOLE
            if depth < _FARTHEST:
                self._filled[key] = self._filled_of(value, dims, depth + 1)
        return self._filled[key]

    def _filled_of(self, value: Value, dims: Dims, depth: int) -> Part:
        here, opcode = value.instruction, value.instruction.opcode
        if opcode == WHILE or value.array is None:
            return WHOLE
        if opcode in STRUCTURE or opcode == "copy-done":
            sources = producers(value)
            return self.filled(sources[0], dims, depth) if len(sources) == 1 else WHOLE
        if opcode in ("constant", "broadcast") and is_zero(here):
            return NOTHING
        places = _places(here)
        parts = [self._filled_by(here, place, dims, depth) for place in places]
        if opcode in _ZERO_IF_ALL:
            return frozenset().union(*parts)
        return min(parts, key=fraction, default=WHOLE)

    def _filled_by(self, here: Instruction, place: int, dims: Dims, depth: int) -> Part:
        source = operand(here, place)
        if source is None:
            return WHOLE
        if not (array := array_of(source)) or not array.dims:
            return NOTHING if is_zero(source) else WHOLE
        links = self.back(here, place, dims)
        if links is None:
            return WHOLE
        inside = tuple(dim for link in links for dim in link.inside)
        before = self.filled(Value(source), inside, depth) if inside else WHOLE
        for link in links:
            # The part can be all that a slice takes.
            before = _scaled(before, (here, place), link.filled / link.taken)
        return before


def _places(here: Instruction) -> range:
    """Return the operands that decide where the result of an instruction is zero."""
    n = len(here.message.operand_ids)
    if here.opcode in _ZERO_IF_ANY:
        return range(n)
    if here.opcode in _ZERO_IF_FIRST:
        return range(1)
    if here.opcode == "select":
        return range(1, n)
    if here.opcode == "dynamic-update-slice":
        return range(2)
    if here.opcode == "scatter":
        return range(0, n, 2)
    return range(n if here.opcode in _ZERO_IF_ALL else 0)


def _is_followed(caller: Instruction | None) -> bool:
    """Return whether values can be followed into and out of the computation that is called."""
    return caller is not None and caller.opcode in ("fusion", "call")


def _label(here: Instruction, link: Link) -> object:
    """Return what tells a take from others of the same elements: where it begins. The same slice
    can be taken by several instructions."""
    if link.filled < 1:
        return here, link.place
    starts = tuple(here.message.operand_ids)[1:]
    begin = tuple(here.message.slice_dimensions) or (starts and (here.computation, starts)) or here
    return begin, link.inside


def _scaled(part: Part, label: object, factor: float) -> Part:
    if factor == 1:
        return part
    if fraction(part) * factor >= 1:
        return WHOLE
    return frozenset(((label, inner), factor * taken) for inner, taken in part)


def is_zero(here: Instruction | None) -> bool:
    """Return whether a value is a constant of zeros."""
    seen: set[Instruction] = set()
    while here is not None and here.opcode in _PASSING and here not in seen:
        seen.add(here)
        sources = producers(Value(here))
        here = sources[0].instruction if len(sources) == 1 else None
    if here is None or here.opcode != "constant":
        return False
    elements = elements_of(here.message.literal)
    return bool(elements) and not any(elements)
