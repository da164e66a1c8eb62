"""Find matmuls of rows that are copies of each other."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

from _breakdown.analysis.arrays.dims import Link, array_of
from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.arrays.graph import DOTS, ELEMENTWISE, STRUCTURE, Value, operand, producers
from _breakdown.analysis.arrays.parts import Parts
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of, total_of
from _breakdown.light import NamedTuple
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted, time
from _proto.hlo.program import Instruction

REMEDY = (
    "Apply the layer to the small array and broadcast its result, instead of broadcasting the input"
    " of the layer."
)
# The matrix unit takes about as long for fewer rows, because it first loads the other operand.
_FEWEST_ROWS = 128
_FOLLOWED = (
    ELEMENTWISE | DOTS | frozenset("bitcast broadcast copy reduce reshape transpose".split())
)
_MOVING = STRUCTURE | {"copy-done"}
# What longer chains of ops make is assumed to repeat nothing, to bound the depth of the search.
_DEEPEST = 80


def find(of: StepProgram) -> Iterator[Cause]:
    rows = _Rows(of.parts)
    found = []
    for ran in of.long_ops:
        dots = ran.op.instruction.parts_with(DOTS) if ran.op.instruction else []
        if dots and all(rows.may_repeat(Value(dot)) for dot in dots):
            copied = min(map(rows.copied, dots))
            if copied.n > 1:
                found.append((place_of(ran.op).source_user, (ran, copied)))
    for members in grouped(found).values():
        _, most = max(members, key=lambda member: member[0].total)
        ops = [ran for ran, _ in members]
        yield Cause(
            f"{time(total_of(ops))} in {counted(len(ops), 'op')} at <line> go to a matmul of rows"
            f" that are repeated {most.n} times. Multiplying one copy would save <gain>.",
            REMEDY,
            LIKELY,
            ops,
            [
                Retime(ran, max(ran.total * copied.left, _reading(of, ran)))
                for ran, copied in members
            ],
        )


def _reading(of: StepProgram, ran: Executions) -> float:
    """Return the time that the operands of an op take to be read from memory."""
    n_bytes = sum(use.n_bytes for _, use in of.arrays.uses_of.get(ran, ()) if not use.is_write)
    return n_bytes / float(of.roofs.hbm) if of.roofs.hbm else 0


class _Copied(NamedTuple):
    """The copies of the rows of a matmul: their number, and the part of its time that one takes."""

    n: int
    left: float


class _Rows:
    """The number of copies of rows in the arrays of a program."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._copies: dict[tuple[Value, int], int] = {}
        self._may_repeat: dict[Value, bool] = {}
        self._depth = 0

    def may_repeat(self, value: Value) -> bool:
        """Return whether all that is combined into an array comes from broadcasts, in whatever
        dimension. That is seldom so, and is found faster than the number of copies."""
        if value not in self._may_repeat:
            # In a damaged program, a value can be computed from itself.
            self._may_repeat[value] = False
            self._depth += 1
            self._may_repeat[value] = self._depth >= _DEEPEST or self._is_broadcast(value)
            self._depth -= 1
        return self._may_repeat[value]

    def _is_broadcast(self, value: Value) -> bool:
        here = value.instruction
        if here.opcode in _MOVING:
            sources = producers(value)
            return len(sources) == 1 and self.may_repeat(sources[0])
        if here.opcode == "broadcast" or here.opcode not in _FOLLOWED:
            return here.opcode == "broadcast"
        test = all if here.opcode in ELEMENTWISE else any
        return test(self.may_repeat(Value(given)) for given in here.operands)

    def copied(self, dot: Instruction) -> _Copied:
        """Return how often a matmul multiplies the same rows with the same columns."""
        links = self._parts.links(dot)
        free = [link for link in links if [each.outside for each in links].count(link.outside) == 1]
        result = array_of(dot)
        n, left = 1, 1.0
        for sides in grouped((link.place, link) for link in free).values():
            copies = prod(self._inside(dot, link) for link in sides)
            n_rows = prod(result.dims[dim] for link in sides for dim in link.outside if result)
            left *= max(n_rows / copies, _FEWEST_ROWS) / max(n_rows, _FEWEST_ROWS)
            n *= copies
        return _Copied(n, left)

    def copies(self, value: Value, dim: int) -> int:
        """Return how often an array repeats the same elements along a dimension."""
        key = value, dim
        if key not in self._copies:
            # In a damaged program, a value can be computed from itself.
            self._copies[key] = 1
            self._depth += 1
            if self._depth < _DEEPEST:
                self._copies[key] = self._read(value, dim)
            self._depth -= 1
        return self._copies[key]

    def _read(self, value: Value, dim: int) -> int:
        here = value.instruction
        if here.opcode in _MOVING:
            sources = producers(value)
            return self.copies(sources[0], dim) if len(sources) == 1 else 1
        if here.opcode not in _FOLLOWED:
            return 1
        array = value.array
        size = array.dims[dim] if array and dim < len(array.dims) else 1
        if size <= 1:
            return 1
        if here.opcode == "broadcast" and dim not in here.message.dimensions:
            return size
        found = 0
        for n in self._of_operands(here, dim, size):
            # Arrays that repeat differently have fewer copies together than each of them.
            if n == 1 or (n < size and 0 < found < size):
                return 1
            found = min(found or size, n)
        return found or 1

    def _of_operands(self, here: Instruction, dim: int, size: int) -> Iterator[int]:
        """Yield how often each operand repeats along a dimension of the result."""
        if here.opcode in ELEMENTWISE:
            yield from (self.copies(Value(given), dim) for given in here.operands)
            return
        for link in self._parts.links(here):
            if link.outside == (dim,):
                yield self._inside(here, link)
            elif dim in link.outside:
                # A reshape splits a dimension, which must repeat as a whole.
                given = array_of(operand(here, link.place))
                whole = prod(given.dims[each] for each in link.inside) if given else 0
                yield size if self._inside(here, link) == whole else 1

    def _inside(self, here: Instruction, link: Link) -> int:
        """Return how often the elements of an operand repeat along its dimensions in a link."""
        given = operand(here, link.place)
        if given is None or link.taken * link.filled < 1 or array_of(given) is None:
            return 1
        return prod(self.copies(Value(given), dim) for dim in link.inside)
