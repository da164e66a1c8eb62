"""Compute single elements of arrays that depend only on positions, such as masks made of iotas,
constants and the counters of loops."""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from _breakdown.analysis.arrays.dims import array_of
from _breakdown.analysis.arrays.graph import (
    STRUCTURE,
    WHILE,
    Value,
    body_of,
    is_same,
    operand,
    producers,
)
from _proto import hlo_pb2 as pb
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Array, order_of
from _proto.trace.wire import parse

Number: TypeAlias = "float | int | bool"
Index: TypeAlias = "tuple[int, ...]"
# Return an element, or None if it depends on data.
Element: TypeAlias = "Callable[[Index], Number | None]"

_OF_TWO: Mapping[str, Callable[[Number, Number], Number]] = {
    "add": operator.add,
    "subtract": operator.sub,
    "multiply": operator.mul,
    "minimum": min,
    "maximum": max,
    "xor": operator.ne,
}
_COMPARE: Mapping[bytes, Callable[[Number, Number], bool]] = {
    b"EQ": operator.eq,
    b"NE": operator.ne,
    b"LT": operator.lt,
    b"LE": operator.le,
    b"GT": operator.gt,
    b"GE": operator.ge,
}
_MOVES = frozenset("copy-done convert copy".split())
_OF_ONE: Mapping[str, Callable[[Number], Number]] = {
    "not": operator.not_,
    "negate": operator.neg,
    "abs": abs,
}
_MOVING = frozenset("broadcast transpose reshape bitcast slice dynamic-slice".split())
# Masks are made in fewer steps; values that depend on data can be made in many.
_DEEPEST = 80
# Steps to compute an element; a value that is used twice is computed twice.
_MOST_STEPS = 1000


class Elements:
    """Functions that compute elements of a program's arrays.

    `round_of` returns the number of a loop's round in which elements are computed.
    """

    def __init__(self, round_of: Callable[[Instruction], int]) -> None:
        self._round_of = round_of
        self._known: dict[Value, Element | None] = {}
        self._depth = self._n_steps = 0
        self._steps_of: dict[Value, int] = {}

    def function(self, value: Value) -> Element | None:
        """Return the function that computes an array's elements; None if all of them depend on data
        or on ops that are not read here."""
        if value not in self._known:
            # In a damaged program, a value can be computed from itself.
            self._known[value] = None
            self._depth += 1
            before, self._n_steps = self._n_steps, 1
            if self._depth < _DEEPEST:
                element = self._read(value)
                self._known[value] = element if self._n_steps <= _MOST_STEPS else None
            self._steps_of[value] = self._n_steps if self._known[value] else 0
            self._n_steps = before
            self._depth -= 1
        self._n_steps += self._steps_of.get(value, 0)
        return self._known[value]

    def _read(self, value: Value) -> Element | None:
        here, opcode = value.instruction, value.instruction.opcode
        if opcode in STRUCTURE or opcode in _MOVES:
            sources = producers(value)
            if len(sources) == 1:
                return self.function(sources[0])
            return self._state(value) if opcode == "parameter" else None
        if opcode == "constant":
            return _constant(here)
        if opcode == "iota":
            return operator.itemgetter(here.message.dimensions[0])
        if opcode in ("and", "or"):
            return self._decided(here, decides=opcode == "or")
        if opcode in _OF_ONE:
            given, of_one = self._at(here, 0), _OF_ONE[opcode]
            return given and (lambda index: None if (x := given(index)) is None else of_one(x))
        if opcode == "select":
            return self._selected(here)
        of_two = _OF_TWO.get(opcode)
        if opcode == "compare":
            of_two = _COMPARE.get(here.message.comparison_direction or b"EQ")
        return self._of_two(here, of_two) if of_two else self._moved(here)

    def _at(self, here: Instruction, place: int) -> Element | None:
        source = operand(here, place)
        return None if source is None else self.function(Value(source))

    def _of_two(self, here: Instruction, compute: Callable[..., Number]) -> Element | None:
        first = self._at(here, 0)
        second = self._at(here, 1) if first else None
        if first is None or second is None:
            return None

        def element(index: Index) -> Number | None:
            one, other = first(index), second(index)
            return None if one is None or other is None else compute(one, other)

        return element

    def _decided(self, here: Instruction, *, decides: bool) -> Element | None:
        """Return the elements of an `and` or `or`. One operand can decide, if the other depends on
        data."""
        known = [given for place in (0, 1) if (given := self._at(here, place))]

        def element(index: Index) -> Number | None:
            both = [given(index) for given in known]
            if any(one is not None and bool(one) is decides for one in both):
                return decides
            return None if None in both or len(both) < 2 else not decides

        return element if known else None

    def _selected(self, here: Instruction) -> Element | None:
        mask = self._at(here, 0)
        first, second = (self._at(here, place) if mask else None for place in (1, 2))

        def element(index: Index) -> Number | None:
            is_first = mask(index) if mask else None
            chosen = first if is_first else second
            return None if is_first is None or chosen is None else chosen(index)

        return element if mask and (first or second) else None

    def _moved(self, here: Instruction) -> Element | None:
        """Return the elements of an instruction that moves elements to other places."""
        source, array, result = operand(here, 0), array_of(operand(here, 0)), array_of(here)
        given = self._at(here, 0) if here.opcode in _MOVING else None
        if source is None or array is None or result is None or given is None:
            return None
        opcode, dimensions = here.opcode, list(here.message.dimensions)
        dims = range(len(array.dims))
        if opcode == "broadcast":
            return lambda index: given(tuple(index[dim] for dim in dimensions))
        if opcode == "transpose":
            places = [dimensions.index(dim) for dim in dims]
            return lambda index: given(tuple(index[place] for place in places))
        if opcode in ("reshape", "bitcast"):
            orders: list[Sequence[int]] = [range(len(result.dims)), dims]
            if opcode == "bitcast":
                orders = [order_of(here.message.shape), order_of(source.message.shape)]
            return lambda index: given(
                _index_at(_place_of(index, result.dims, orders[0]), array.dims, orders[1])
            )
        if opcode == "slice":
            cuts = [parse(pb.SliceDimensions, cut) for cut in here.message.slice_dimensions]
            pairs = [(cut.start, cut.stride or 1) for cut in cuts if cut]
            return lambda index: given(
                tuple(start + at * step for at, (start, step) in zip(index, pairs, strict=True))
            )
        return self._dynamic(here, given, array, result)

    def _dynamic(
        self, here: Instruction, given: Element, array: Array, result: Array
    ) -> Element | None:
        found = [self._at(here, 1 + dim) for dim in range(len(array.dims))]
        starts = [start for start in found if start]
        most = [n - m for n, m in zip(array.dims, result.dims, strict=True)]

        def element(index: Index) -> Number | None:
            firsts = [start(()) for start in starts]
            if None in firsts:
                return None
            rows = zip(firsts, index, most, strict=True)
            return given(tuple(max(0, min(int(a or 0), last)) + at for a, at, last in rows))

        return element if len(starts) == len(found) else None

    def _state(self, value: Value) -> Element | None:
        """Return the elements of a loop's state if it counts the rounds, or is the same in all."""
        loop = value.instruction.computation.caller
        body = body_of(loop) if loop else None
        if loop is None or body is not value.instruction.computation or body.root is None:
            return None
        step = _step_of(Value(body.root, value.path), value) if value.path else None
        given = operand(loop, 0)
        if step is None or given is None:
            return None
        first, round_of = self.function(Value(given, value.path)), self._round_of
        if not step or first is None:
            return first
        return lambda index: (first(index) or 0) + step * round_of(loop)


def _step_of(after: Value, state: Value) -> int | None:
    """Return what a round adds to a loop's state; None if it changes it in another way."""
    after = _resolved(after)
    if after == state:
        return 0
    here = after.instruction
    if here.opcode != "add" or len(here.operands) != 2:
        return None
    for one, other in (here.operands, here.operands[::-1]):
        added = _resolved(Value(other))
        if _resolved(Value(one)) == state and added.instruction.opcode == "constant":
            steps = elements_of(added.instruction.message.literal)
            return int(steps[0]) if len(steps) == 1 else None
    return None


def _resolved(value: Value) -> Value:
    """Follow a value to where it is computed."""
    for _ in range(_DEEPEST):
        sources = producers(value)
        opcode = value.instruction.opcode
        if len(sources) != 1 or opcode == WHILE or not (opcode in STRUCTURE or is_same(value)):
            break
        value = sources[0]
    return value


def _place_of(index: Index, sizes: Sequence[int], order: Sequence[int]) -> int:
    """Return the position of an element in memory, if its dimensions are in this order."""
    place = 0
    for dim in order:
        place = place * sizes[dim] + index[dim]
    return place


def _index_at(place: int, sizes: Sequence[int], order: Sequence[int]) -> Index:
    index = [0] * len(sizes)
    for dim in reversed(order):
        place, index[dim] = divmod(place, max(1, sizes[dim]))
    return tuple(index)


def _constant(here: Instruction) -> Element | None:
    array, elements = array_of(here), elements_of(here.message.literal)
    if array is None or len(elements) != array.n_elements:
        return None
    if len(elements) == 1:
        only = elements[0]
        return lambda _: only
    order = order_of(here.message.shape)
    return lambda index: elements[_place_of(index, array.dims, order)]


def elements_of(literal: bytes) -> Sequence[Number]:
    """Return the elements of a constant of a type that masks and zeros have."""
    message = parse(pb.Literal, literal)
    if message is None:
        return ()
    # A bf16 is the upper half of an f32.
    halves = (message.bf16s[i : i + 2] for i in range(0, len(message.bf16s) - 1, 2))
    return (
        message.preds
        or message.s32s
        or message.u32s
        or message.f32s
        or [struct.unpack("<f", b"\0\0" + half)[0] for half in halves]
    )
