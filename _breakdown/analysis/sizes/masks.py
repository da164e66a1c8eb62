"""Find which places along a dimension a mask keeps, by its comparisons of places with bounds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from _breakdown.analysis.arrays.dims import array_of
from _breakdown.analysis.arrays.elements import Number
from _breakdown.analysis.arrays.graph import Value, operand
from _breakdown.analysis.arrays.of_step import is_float
from _breakdown.analysis.sizes.edges import Dims, elements_in, is_cast, last_of
from _breakdown.light import NamedTuple
from _proto.hlo.program import Instruction

# A term of a sum: what computes it, the dimensions along which it varies, and its sign. Places
# along a dimension and numbers have a name instead of what computes them, and numbers are their own
# sign.
Term: TypeAlias = "tuple[Value | str, Dims, Number]"
_PLACE, _NUMBER = "place", "number"
# What a comparison adds to a number to make it the first place that is kept, and the first that is
# not kept any more.
_FIRST: Final = {b"GE": 0, b"GT": 1, b"EQ": 0}
_END: Final = {b"LT": 0, b"LE": 1, b"EQ": 1}
_SWAPPED: Final = bytes.maketrans(b"LG", b"GL")
# Masks of more steps are not followed. In a damaged program, an instruction can be its own operand.
_DEEPEST = 8


class Window(NamedTuple):
    """The places along a dimension that a mask keeps: a part of all, from the one that is `begin`
    minus the sum of `terms`."""

    dim: int
    terms: frozenset[Term]
    begin: Number
    part: float

    @property
    def varies(self) -> bool:
        """Return whether rows keep different places."""
        return any(dims for _, dims, _ in self.terms)


def window_of(select: Instruction) -> Window | None:
    """Return the places of its second operand that a selection keeps, if they are one place, or as
    many places next to each other as the program says, which are the same for all rows."""
    known: dict[Instruction, Window | None] = select.program.derived.setdefault(window_of, {})
    if select.opcode == "select" and select not in known:
        try:
            known[select] = _window_of(select)
        except (IndexError, ValueError):
            # Only damaged programs have dimensions that do not exist.
            known[select] = None
    return known.get(select)


def _window_of(select: Instruction) -> Window | None:
    mask, made = operand(select, 0), array_of(select)
    if mask is None or made is None:
        return None
    bounds = list(_bounds_of(Value(mask), _DEEPEST))
    ends = {(dim, terms) for dim, terms, _, _ in bounds if not terms}
    bounds += [(dim, terms, n, n > 0) for dim, terms in ends for n in (0, made.dims[dim])]
    windows = [
        (end - first, Window(dim, terms, first, (end - first) / max(1, made.dims[dim])))
        for dim, terms, first, is_end in bounds
        for *same, end, is_its_end in bounds
        if is_its_end and not is_end and same == [dim, terms]
    ]
    n, found = min(windows, key=lambda pair: pair[0], default=(0, None))
    return found if found and (n == 1 or not found.varies) else None


def _bounds_of(mask: Value, depth: int) -> Iterator[tuple[int, frozenset[Term], Number, bool]]:
    """Yield the first place that a mask keeps, and the first that it does not keep any more, each
    as a dimension, terms, and a number from which these are subtracted."""
    here = last_of(mask, is_cast).instruction
    given = array_of(operand(here, 0))
    if here.opcode in ("and", "broadcast") and depth:
        is_broadcast = here.opcode == "broadcast"
        for one in here.operands:
            for dim, terms, number, is_end in _bounds_of(Value(one), depth - 1):
                to = here.message.dimensions[dim] if is_broadcast else dim
                yield to, terms, number, is_end
    elif here.opcode == "compare" and given and not is_float(given.dtype):
        found = [*_terms_of(Value(here), 1, depth)]
        number = sum(n for source, _, n in found if source == _NUMBER)
        for place in (term for term in found if term[0] == _PLACE):
            _, (dim,), sign = place
            others = [term for term in found if term is not place and term[0] != _NUMBER]
            terms = frozenset((source, dims, sign * n) for source, dims, n in others)
            direction = here.message.comparison_direction
            direction = direction if sign > 0 else direction.translate(_SWAPPED)
            for to_add in (_FIRST, _END):
                if direction in to_add and all(dim not in dims for _, dims, _ in others):
                    yield dim, terms, to_add[direction] - sign * number, to_add is _END


def _terms_of(value: Value, sign: int, depth: int) -> Iterator[Term]:
    """Yield the terms of which an integer is the sum, or of which a comparison compares the sum
    with zero."""
    value = last_of(value, is_cast)
    here, array = value.instruction, value.array
    numbers = elements_in(value) if here.opcode == "constant" else ()
    if here.opcode in ("add", "subtract", "compare") and depth:
        for i, one in enumerate(here.operands):
            is_added = i == 0 or here.opcode == "add"
            yield from _terms_of(Value(one), sign if is_added else -sign, depth - 1)
    elif here.opcode == "broadcast" and depth:
        for source, dims, n in _terms_of(Value(here.operands[0]), sign, depth - 1):
            yield source, tuple(here.message.dimensions[dim] for dim in dims), n
    elif len(numbers) == 1:
        yield _NUMBER, (), sign * numbers[0]
    elif here.opcode == "iota":
        yield _PLACE, tuple(here.message.dimensions) or (0,), sign
    else:
        yield value, tuple(range(len(array.dims if array else ()))), sign
