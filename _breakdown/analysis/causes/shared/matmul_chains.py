"""Follow the result of a matmul to the matmuls that read it, and count the work of other orders.

    result[m, n] = sum over k of left[m, k] * right[k, n]
    next[m, c] = sum over n of result[m, n] * other[n, c]

The dimensions of all arrays are named by the dimensions of the first result, as numbers from 0.
`SUMMED` is what the first matmul sums over (k), and `OWN` is what only the other operand has (c).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TypeAlias

from _breakdown.analysis.arrays.dims import dims_of_dot, links_of
from _breakdown.analysis.arrays.graph import (
    DOTS,
    STRUCTURE,
    WHILE,
    Value,
    consumers,
    is_moved,
    is_same,
    loop_around,
    operand,
    origins,
    reach_if_all,
)
from _breakdown.light import NamedTuple
from _proto.hlo.collectives import collective_name
from _proto.hlo.flops import flops_of_dot
from _proto.hlo.program import Instruction

SUMMED, OWN = -1, -2
Names: TypeAlias = "frozenset[int]"
# A matrix unit has at least this many rows and columns, so fewer take as long.
_UNIT = 128
_SCALES = frozenset(("multiply", "divide", "negate"))
_REORDERING = frozenset(("transpose", "bitcast", "reshape"))
# The compiler copies arrays to VMEM in pieces of bytes.
_BYTES = "s8"


class View(NamedTuple):
    """The dimensions of a copy of a matmul's result, each with its names: a reshape can merge or
    split dimensions. Pieces of bytes have the dimensions of the whole."""

    dims: tuple[int, ...]
    names: tuple[Names, ...]


class Work(NamedTuple):
    """The flops of a matmul on a matrix unit that its dimensions may not fill, and the elements
    that it reads and writes."""

    flops: int
    elements: int


class Reader(NamedTuple):
    """A matmul that reads the result of another one as operand `place`, with the names of its other
    operand and of its result."""

    dot: Instruction
    place: int
    other: Names
    result: Names
    sizes: Mapping[int, int]


class Chain(NamedTuple):
    """A matmul whose result only other matmuls read. `passed` are the values that are the result,
    such as casts of it and its sum over devices."""

    dot: Instruction
    left: Names
    right: Names
    sizes: Mapping[int, int]
    passed: Mapping[Value, View]
    readers: list[Reader]

    @property
    def whole(self) -> Names:
        return (self.left | self.right) - {SUMMED}

    @property
    def work(self) -> Work:
        return _work(self.left, self.right, self.whole, self.sizes)

    def work_of(self, reader: Reader) -> Work:
        return _work(self.whole, reader.other, reader.result, reader.sizes)

    def orders(self, reader: Reader) -> Iterator[tuple[Work, Work]]:
        """Yield the work of the two matmuls in each of the other orders."""
        for first, last in ((self.right, self.left), (self.left, self.right)):
            between = (first | reader.other) & (last | reader.result)
            yield (
                _work(first, reader.other, between, reader.sizes),
                _work(last, between, reader.result, reader.sizes),
            )


def _size(names: Names, sizes: Mapping[int, int]) -> int:
    return prod(sizes[name] for name in names)


def _work(left: Names, right: Names, result: Names, sizes: Mapping[int, int]) -> Work:
    both = left & right
    sides = left - right, right - left, both - result
    flops = 2 * _size(both & result, sizes) * prod(max(_UNIT, _size(one, sizes)) for one in sides)
    return Work(flops, sum(_size(names, sizes) for names in (left, right, result)))


def chain_from(dot: Instruction) -> Chain | None:
    """Return the chain that begins with a matmul; None if something else reads its result, or if a
    dimension cannot be followed."""
    whole = Value(dot).array
    # First look for other readers, which takes less time than to follow dimensions.
    if whole is None or not reach_if_all([Value(dot)], consumers, _is_copy, _multiplies):
        return None
    names = tuple(frozenset((dim,)) for dim in range(len(whole.dims)))
    passed = {Value(dot): View(whole.dims, names)}
    found = _followed(dot, passed)
    if found and len({reader for reader, _, _ in found}) < len(found):
        # A product of the result with itself needs the result.
        return None
    flops = flops_of_dot(dot) if found else None
    sides = _sides_of(dot) if flops else None
    if not found or not flops or sides is None:
        return None
    sizes = dict(enumerate(whole.dims)) | {SUMMED: flops // (2 * max(1, whole.n_elements))}
    for side, index in zip(sides, (0, 1), strict=True):
        array = Value(dot.operands[index]).array
        if array is None or _size(side, sizes) != array.n_elements:
            return None
    readers = [_reader(next_dot, place, view, sizes) for next_dot, place, view in found]
    known = [reader for reader in readers if reader]
    return Chain(dot, *sides, sizes, passed, known) if len(known) == len(readers) else None


def _sides_of(dot: Instruction) -> tuple[Names, Names] | None:
    """Return the names of the operands of a matmul."""
    if len(dot.operands) != 2:
        return None
    rows = [row for row in dims_of_dot(dot) if row[0] is not None]
    left = frozenset(row[0] for row in rows if row[1] is not None and row[0] is not None)
    right = frozenset(row[0] for row in rows if row[2] is not None and row[0] is not None)
    return left | {SUMMED}, right | {SUMMED}


def _followed(
    dot: Instruction, passed: dict[Value, View]
) -> list[tuple[Instruction, int, View]] | None:
    """Follow the result of a matmul, and add its copies to `passed`. Return the matmuls that read
    it, each with the index of the operand; None if something else reads it."""
    found = []
    loop = loop_around(dot.computation)
    to_do = list(passed)
    for value in to_do:
        here, view = value.instruction, passed[value]
        is_result = here.computation.root is here and here.computation.caller is None
        if is_result or here.opcode == WHILE or loop_around(here.computation) is not loop:
            return None
        for taker in consumers(value):
            by = taker.instruction
            ids = by.message.operand_ids
            places = [i for i, id_ in enumerate(ids) if id_ == here.message.id]
            if by.opcode in DOTS:
                if value.array is None or value.array.dims != view.dims:
                    return None
                found += [(by, place, view) for place in places]
                continue
            after = view if by.opcode in STRUCTURE else _carried(taker, value, places, view)
            if after is None:
                return None
            if taker not in passed:
                passed[taker] = after
                to_do.append(taker)
    return found


def _carried(taker: Value, value: Value, places: list[int], view: View) -> View | None:
    """Return the dimensions of a copy of a matmul's result; None if it is no copy."""
    by, before, after = taker.instruction, value.array, taker.array
    is_scaled = by.opcode not in _SCALES or _scales(by, places)
    if before is None or after is None or not (_is_copy(taker) and is_scaled):
        return None
    if is_moved(taker) and _BYTES in (before.dtype, after.dtype):
        return view if after.dtype == _BYTES or after.dims == view.dims else None
    if before.dims != view.dims:
        return None
    if before.dims == after.dims and by.opcode not in _REORDERING:
        return view
    names = [frozenset[int]() for _ in after.dims]
    for link in links_of(by):
        if link.place in places:
            for dim in link.outside:
                names[dim] |= frozenset().union(*(view.names[inside] for inside in link.inside))
    # A reshape can leave out dimensions of size 1.
    large = (each for each, size in zip(view.names, view.dims, strict=True) if size > 1)
    is_whole = frozenset().union(*large) <= frozenset().union(*names)
    return View(after.dims, tuple(names)) if is_whole else None


def _is_copy(value: Value) -> bool:
    """Return whether a value can have the elements of an operand, or multiples or sums of them."""
    opcode = value.instruction.opcode
    return is_same(value) or opcode in _SCALES or collective_name(opcode) == "all-reduce"


def _multiplies(value: Value) -> bool:
    return value.instruction.opcode in DOTS


def _scales(here: Instruction, places: list[int]) -> bool:
    """Return whether an instruction multiplies an array by one number."""
    others = [operand(here, i) for i in range(len(here.message.operand_ids)) if i not in places]
    return len(places) == 1 and all(other is not None and _is_number(other) for other in others)


def _is_number(here: Instruction) -> bool:
    values = origins(
        Value(here), lambda value: value.instruction.opcode in ("broadcast", "convert")
    )
    return any(value.array is not None and value.array.n_elements == 1 for value in values)


def _reader(dot: Instruction, place: int, view: View, sizes: Mapping[int, int]) -> Reader | None:
    array = Value(dot.operands[1 - place]).array if len(dot.operands) == 2 else None
    shared, kept, dropped = frozenset[int](), frozenset[int](), frozenset[int]()
    for row in dims_of_dot(dot):
        dim, of_other = row[1 + place], row[2 - place]
        if dim is not None:
            shared |= view.names[dim] if of_other is not None else frozenset()
            kept |= view.names[dim] if row[0] is not None else frozenset()
            dropped |= view.names[dim] if row[0] is None else frozenset()
    n_shared = _size(shared, sizes)
    if array is None or kept & dropped or array.n_elements % n_shared:
        return None
    own = array.n_elements // n_shared
    whole = _size(kept | dropped | shared, sizes)
    # Otherwise the matmul is a convolution with a window.
    if flops_of_dot(dot) != 2 * whole * own:
        return None
    return Reader(dot, place, shared | {OWN}, kept | {OWN}, {**sizes, OWN: own})
