"""Find which ops take less time, and which arrays become smaller, if ops are moved by the laws of
`analysis/sizes`."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias

from _breakdown.analysis.arrays.dims import PUTTING, TAKING, array_of, dims_of_dot
from _breakdown.analysis.arrays.engine import Change, Retime
from _breakdown.analysis.arrays.graph import DOTS, Value, consumers, is_layout, operand
from _breakdown.analysis.arrays.of_step import StepArray
from _breakdown.analysis.causes.shared.cause import Cause, CausePlace, Confidence
from _breakdown.analysis.causes.shared.step_program import (
    StepProgram,
    collective_name_of,
    devices_of,
)
from _breakdown.analysis.sizes.casts import Narrow
from _breakdown.analysis.sizes.edges import (
    EXCHANGE,
    MATMUL,
    OTHER,
    edges_before,
    is_cast,
    is_copied,
    last_of,
)
from _breakdown.analysis.sizes.law import Law, Left, Moved, SeededLaw, fraction, scaled
from _breakdown.analysis.sizes.little import Little, Local
from _breakdown.analysis.sizes.masks import window_of
from _breakdown.analysis.sizes.origins import Addend, Derived
from _breakdown.analysis.sizes.part import DEVICE, LOOKUP, Part, starts_of, takes_of
from _breakdown.analysis.sizes.repeats import (
    Repeat,
    is_looked_up,
    is_one_number,
    looks_up,
    repeats_rows,
)
from _breakdown.analysis.sizes.sums import FEWEST_ROWS, Sum, adds, in_other_order, is_plain
from _breakdown.analysis.sizes.zeros import Zero
from _breakdown.light import NamedTuple, cached_property
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _proto.hlo.flops import flops_of_dot
from _proto.hlo.program import Instruction

# Ops that take or put elements of smaller arrays are not followed: a matmul or a collective takes
# at most about this many times as long as writing its result.
_LONGEST = 128
# Ignore arrays that have less than 1 / `_SMALL` of the bytes of a collective's largest array.
_SMALL = 100
# Ops that keep more of their time are not worth a change.
_NEARLY_ALL = 0.99
# A part of the result of these instructions can take as long as the whole: its elements need those
# at other places, as in a cumsum, and a kernel can need a padded dimension.
_NEEDING_ALL = frozenset(("custom-call", "fft", "reduce-window", "sort"))
# Ops that can add up elements, and run by themselves.
_ADDING_APART = frozenset(("reduce-window", "scatter"))
# Collectives that add up the arrays of devices.
_ADDING = ("all-reduce", "reduce-scatter")
# The dtype in which the matrix unit multiplies if nothing else is asked for.
_DTYPE = "bf16"
# Little is made of an array if it is at most this part: a row of a vocabulary becomes one number,
# but a change of dtype only halves or quarters the bytes.
LITTLE: Final = 1 / 8

# Which of a matmul's result, left and right operand lack a dimension.
Side: TypeAlias = "tuple[bool, ...]"
_BOTH: Side = (False, False, False)
# The part of an op's time that is left, and the array of which a part is left.
_Found: TypeAlias = "tuple[float, Value, Moved]"


class Resized(NamedTuple):
    """An op that takes only a part of its time if another op moves."""

    law: Law
    kind: str
    ran: Executions
    left: float
    # The array that becomes smaller.
    value: Value
    moved: Moved

    @property
    def change(self) -> Change:
        return Retime(self.ran, self.ran.total * self.left)

    @property
    def saved(self) -> float:
        return self.ran.total * (1 - self.left)

    @property
    def shape(self) -> str:
        return self.value.array.text if self.value.array else "an array"

    @property
    def takes(self) -> set[str]:
        """Return what devices take: all the same, each its own part, or what each looks up."""
        return set[str]().union(*map(takes_of, self.moved.parts.values()))

    @property
    def matmul(self) -> Instruction | None:
        """Return the matmul that makes the array, or reads it in the same op."""
        here = self.value.instruction
        return next((one for one in (here, *here.users) if one.opcode in DOTS), None)

    @property
    def is_repeated(self) -> bool:
        """Return whether an array has more elements than those from which it is made."""
        sources = [label[0] for left in self.moved.parts.values() for label, _ in left]
        n = self.value.array.n_elements if self.value.array else 0
        return isinstance(self.law, Derived) and all(
            source.array and source.array.n_elements < n for source in sources
        )

    @property
    def is_own_part(self) -> bool:
        """Return whether each device keeps its own part of what a collective makes whole."""
        is_whole = collective_name_of(self.ran.op) in ("all-gather", "all-reduce")
        return is_whole and isinstance(self.law, Part) and self.takes == {DEVICE}


def longest_of(rows: Sequence[Resized]) -> Resized:
    return max(rows, key=lambda row: row.saved)


def cause_of(
    rows: Sequence[Resized],
    says: str,
    what_helps: str,
    confidence: Confidence,
    place: CausePlace | None = None,
) -> Cause:
    ops, changes = [row.ran for row in rows], [row.change for row in rows]
    evidence = {"shape": longest_of(rows).shape}
    return Cause(says, what_helps, confidence, ops, changes, place=place, evidence=evidence)


def sizes_of(of: StepProgram) -> Sizes:
    """Return the ops and arrays of a program that could be smaller."""
    if Sizes not in of.derived:
        of.derived[Sizes] = Sizes(of)
    found: Sizes = of.derived[Sizes]
    return found


class Sizes:
    """The ops and the arrays of a program that could be smaller."""

    def __init__(self, of: StepProgram) -> None:
        self._of = of
        self.part, self.sum, self.narrow, self.little = Part(), Sum(), Narrow(), Little()
        self.zero, self.repeat, self.local = Zero(), Repeat(), Local()
        self.origin, self.addend = Derived(), Addend()
        seeded = [law for law, seeds in grouped(self._seeds()).items() if law.walk(seeds)]
        self._looks_up = any(map(repeats_rows, of.with_opcodes("gather")))
        # The laws by the kind of ops that take less time.
        self._laws: dict[str, Sequence[Law]] = {
            EXCHANGE: (self.sum, self.narrow, self.origin, self.addend, *seeded, self.local),
            MATMUL: (self.repeat, self.sum, *seeded),
            OTHER: (self.repeat, *([self.sum] if self._looks_up else []), *seeded),
        }

    def _seeds(self) -> Iterator[tuple[SeededLaw, Value]]:
        """Yield the results of ops that take or put a part of large arrays, and the same parts of
        small arrays, such as the sums of a norm."""
        least = self._of.floor * float(self._of.roofs.hbm or 0) / _LONGEST
        small: list[Instruction] = []
        starts: set[Value] = set()
        masks = [one for one in self._of.with_opcodes("select") if window_of(one)]
        masked = self._of.with_opcodes("exponential") if masks else []
        for seed in [*self._of.with_opcodes(*TAKING, *PUTTING), *masks, *masked]:
            ran = self._of.executed(seed)
            if ran is None or not (op := ran.op.instruction):
                continue
            arrays = filter(None, (array_of(seed), array_of(operand(seed, 0))))
            is_large = max((array.n_bytes or 0 for array in arrays), default=0) * ran.n >= least
            if op.is_asynchronous:
                # Asynchronous slices fetch the parts of an array one after the other.
                if is_large and seed.opcode == "gather":
                    yield self.part, Value(op.chain[-1])
                continue
            for law in (self.part, self.zero) if seed.operands else ():
                if seed.opcode not in law.opcodes or not law.moves(seed):
                    continue
                if is_large:
                    yield law, Value(seed)
                if seed.opcode == "dynamic-slice":
                    starts |= starts_of(seed) if is_large else set()
                    small += [] if is_large else [seed]
        yield from ((self.part, Value(seed)) for seed in small if starts & starts_of(seed))

    def ops_of(self, kind: str, *laws: Law) -> list[Resized]:
        return [row for row in self._ops if row.kind == kind and row.law in laws]

    def left_of(self, law: Law, ran: Executions) -> float:
        """Return the part of an op's results that is left; results that nothing reads count as
        nothing."""
        op = ran.op.instruction
        made = [Value(op, path) for path, _ in op.leaves or ()] if op else []
        return max((_fraction(law, value) for value in made if consumers(value)), default=1.0)

    @cached_property
    def _ops(self) -> list[Resized]:
        """Return the ops that would take less time, each with the law that leaves least."""
        collectives = set(self._of.long_collectives)
        found = []
        for ran in self._of.long_ops:
            if op := ran.op.instruction:
                dots = op.parts_with(DOTS)
                kind = EXCHANGE if ran in collectives else MATMUL if dots else OTHER
                if kind == EXCHANGE or not op.is_asynchronous:
                    rows = (self._resized(law, kind, ran, op, dots) for law in self._laws[kind])
                    found += [min(filter(None, rows), key=lambda row: row.left, default=None)]
        return [row for row in found if row]

    def _resized(
        self, law: Law, kind: str, ran: Executions, op: Instruction, dots: Sequence[Instruction]
    ) -> Resized | None:
        found: _Found | None = None
        if kind == EXCHANGE:
            found = self._of_collective(law, ran, op)
        elif kind == MATMUL:
            found = self._of_matmul(law, ran, op, dots)
        elif law is self.repeat:
            found = self._of_lookup(ran, op) if self._looks_up else None
        elif law is self.sum:
            found = self._of_rows(op)
        elif _NEEDING_ALL.isdisjoint(op.opcodes):
            found = self._of_elements(law, op)
        if found is None or found[0] > _NEARLY_ALL:
            return None
        return Resized(law, kind, ran, *found)

    def _of_collective(self, law: Law, ran: Executions, op: Instruction) -> _Found | None:
        name = collective_name_of(ran.op)
        if (
            (law is self.zero and not adds(op))
            or (law is self.narrow and all(one.bits != 32 for one in op.chain[-1].arrays or ()))
            or (law is self.local and name != "all-gather")
            or law is (self.origin if name in _ADDING else self.addend)
        ):
            return None
        arrays = {path: array.n_bytes or 0 for path, array in op.chain[-1].leaves or () if array}
        largest = max(arrays.values(), default=0)
        now = then = 0.0
        found: tuple[Value, Moved] | None = None
        for path, n_bytes in arrays.items():
            # The compiler joins small arrays, such as the loss, with large ones.
            if _SMALL * n_bytes < largest:
                continue
            value = Value(op.chain[-1], path)
            # What is taken or made of the result. Other ops move past the collective.
            if law not in (self.part, self.local):
                value = next((edge.given for edge in edges_before(value)), value)
            moved = law.left(value)
            if moved and law in (self.sum, self.local) and self._left_among(law, ran, moved) < 1:
                moved = self._of_sum(law, op, moved)
            if moved is None or (left := self._left_among(law, ran, moved)) >= 1:
                return None
            found = found or (value, moved)
            now += n_bytes
            then += n_bytes * left
        return (then / now, *found) if found and now else None

    def _left_among(self, law: Law, ran: Executions, moved: Moved) -> float:
        """Return the part of an array that a collective has to move."""
        left = moved.left
        if law is self.local:
            # Each device has a result.
            left = min(1.0, left * max(1, devices_of(ran).size))
        parts = moved.parts.values() if law is self.part else ()
        takes = set[str]().union(*map(takes_of, parts))
        if law is self.zero or LOOKUP in takes:
            # Each device has elements at other places.
            left *= max(1, devices_of(ran).size)
            left = left if left < 0.5 else 1.0
        if takes & {DEVICE, LOOKUP} and collective_name_of(ran.op) == "all-reduce":
            # A reduce-scatter moves half the bytes of an all-reduce.
            left = max(left, 0.5)
        return left

    def _of_sum(self, law: Law, exchange: Instruction, moved: Moved) -> Moved | None:
        """Return the dimensions along which devices can reduce their parts, because the other
        numbers that they compute with are equal on all of them."""
        parts = {}
        for dims, left in moved.parts.items():
            passed = {step for label, _ in left for step in label[1:]}
            others = [one for by, i in passed for one in (*by.operands[:i], *by.operands[i + 1 :])]
            if law is self.local:
                others = [seed for (seed,), _ in left if isinstance(seed, Instruction)]
            if not others or self._of.equal_copies.are_equal(others, exchange.chain[-1]):
                parts[dims] = left
        return moved._replace(parts=parts) if parts else None

    def _of_matmul(
        self, law: Law, ran: Executions, op: Instruction, dots: Sequence[Instruction]
    ) -> _Found | None:
        # The compiler lets the op of a matmul sum its results, if nothing else needs them.
        is_summed = law is not self.sum or _makes_less(op, dots) or _is_summed_apart(op, dots)
        judge = partial(self._of_dot, law) if is_summed else in_other_order
        found = {dot: each for dot in dots if (each := judge(dot))}
        if law is self.sum and not found:
            found = {dot: each for dot in dots if (each := self.sum.with_batch(dot))}
        if not found:
            return None
        n_flops = {dot: flops_of_dot(dot) or 1 for dot in dots}
        needed = sum(found[dot][0] * n if dot in found else n for dot, n in n_flops.items())
        most = needed / sum(n_flops.values())
        _, value, moved = max(found.values(), key=lambda each: each[0])
        # The op reads and writes what is left of its arrays. A lookup writes all that it makes.
        is_whole = law is self.repeat and looks_up(moved)
        read = dict(self._reads(law, op, found) if isinstance(law, SeededLaw) else ())
        n_bytes = 0.0
        for array, use in self._of.arrays.uses_of.get(ran, ()):
            left = 1.0 if is_whole and use.is_write else _fraction(law, array.value)
            n_bytes += use.n_bytes * (left if use.is_write else read.get(array, left))
        time = n_bytes / float(self._of.roofs.hbm or math.inf)
        return max(most, time / max(1, ran.total)), value, moved

    def _reads(
        self, law: Law, op: Instruction, found: Mapping[Instruction, _Found]
    ) -> Iterator[tuple[StepArray | None, float]]:
        """Yield the arrays that an op reads, with the part of them that it needs."""
        array_at, body = self._of.arrays.array_at, op.called[0] if op.called else None
        for i, one in enumerate(op.operands):
            taken = body.parameters.get(i) if body else None
            yield array_at(Value(one)), _fraction(law, Value(taken or one))
        for dot, (_, value, moved) in found.items() if law is self.zero else ():
            for i, one in enumerate(dot.operands):
                # What is multiplied with zeros is not needed.
                if Value(one) != value:
                    both = {each[2 - i] for each in dims_of_dot(dot) if each[1 + i] is not None}
                    parts = {d: left for d, left in moved.parts.items() if both.issuperset(d)}
                    yield array_at(last_of(Value(one), is_copied)), moved._replace(parts=parts).left

    def _of_lookup(self, ran: Executions, op: Instruction) -> _Found | None:
        """Return what is left of an op that multiplies rows with what is looked up for each of
        them, and adds up, if it multiplied all rows with the table and looked up the sums."""
        for total in op.parts_with({"reduce"}):
            terms = last_of(Value(total.operands[0]), is_cast)
            factors = set(terms.instruction.operands)
            is_product = terms.instruction.opcode == "multiply" and len(factors) > 1 and adds(total)
            n_terms = terms.array.n_elements if terms.array else 0
            for one in factors if is_product else ():
                value = last_of(Value(one), is_cast)
                moved, sizes = self.repeat.left(value), value.array.dims if value.array else ()
                for dims, left in moved.parts.items() if moved else ():
                    if (
                        moved
                        and is_looked_up(left)
                        and {*dims}.isdisjoint(total.message.dimensions)
                    ):
                        n_rows = fraction(left) * math.prod(sizes[dim] for dim in dims)
                        flops = round(2 * n_rows * n_terms)
                        time = float(self._of.roofs.t_compute(flops, _DTYPE) or math.inf)
                        return max(fraction(left), time * ran.n / max(1, ran.total)), value, moved
        return None

    def _of_rows(self, op: Instruction) -> _Found | None:
        """Return what is left of an op that looks up or adds up rows, if a matmul that makes
        narrower rows ran before it."""
        if op.opcodes.isdisjoint(("gather", "scatter")):
            return None
        found = self._of_elements(self.sum, op)
        if found is None:
            return None
        _, value, moved = found
        for dims, left in moved.parts.items():
            # A label begins with the op of the sum.
            dot, *others = {label[0][0] for label, _ in left}
            if not others and dot.opcode in DOTS and all(map(is_one_number, _weights_of(left))):
                return fraction(left), value, Moved({dims: left}, dot)
        return None

    def _of_dot(self, law: Law, dot: Instruction) -> _Found | None:
        found: _Found | None = None
        # Where an operand has zeros, a matmul adds nothing. Where it repeats along what is summed,
        # the other operand can be summed first.
        is_made_larger = law in (self.zero, self.repeat)
        values = [Value(dot), *map(Value, dot.operands if is_made_larger else ())]
        for i, value in enumerate(values):
            moved = law.left(value)
            if moved is None or value.array is None:
                continue
            side_of = {dims[i]: tuple(dim is None for dim in dims) for dims in dims_of_dot(dot)}
            sides = {dims: {side_of.get(dim) for dim in dims} for dims in moved.parts}
            keys = {dims: left for dims, left in moved.parts.items() if len(sides[dims]) == 1}
            if law is self.part:
                # Single elements of a result are no smaller matmul, but sums on the vector unit.
                keys = {d: _slower(left, sides[d]) for d, left in moved.parts.items()}
            if law is self.repeat and i:
                # The other operand can differ along dimensions that both have.
                keys = {dims: left for dims, left in keys.items() if sides[dims] != {_BOTH}}
            if law is self.sum:
                keys = {
                    dims: part
                    for dims, part in keys.items()
                    if self._can_be_first(value, part, side_of, *sides[dims])
                }
            left = moved._replace(parts=keys).left
            moved = moved._replace(parts={dims: moved.parts[dims] for dims in keys})
            if law is self.repeat:
                rows = {dim for dims in keys for dim in dims}
                alike = {side_of.get(dim) for dim in rows}
                n = math.prod(
                    size for d, size in enumerate(value.array.dims) if side_of.get(d) in alike
                )
                left = max(n * left, FEWEST_ROWS) / max(n, FEWEST_ROWS)
            if left < (found[0] if found else 1):
                found = left, value, moved
        return found

    def _can_be_first(
        self, made: Value, left: Left, side_of: Mapping[int | None, Side], own: Side | None
    ) -> bool:
        """Return whether a sum can be made before a matmul: it adds rows of one operand, with
        weights that are equal for all rows of the other operand."""
        if not own or not any(own):
            return False
        others = {(dim,) for dim, side in side_of.items() if side != own and any(side[1:])}
        return all(
            is_one_number(each)
            or (
                (repeated := self.repeat.left(each))
                and each.array
                and made.array
                and each.array.dims == made.array.dims
                and repeated.parts.keys() >= others
            )
            for each in _weights_of(left)
        )

    def _of_elements(self, law: Law, op: Instruction) -> _Found | None:
        made = [Value(op, path) for path, array in op.leaves or () if array]
        summed = [Value(one.operands[0]) for one in op.parts_with({"reduce"}) if one.operands]
        # The op makes arrays of which a part is left, or sums arrays which are mostly zero.
        made = made if law is self.part or all(map(law.left, made)) else summed
        found = [(moved.left, value, moved) for value in made if (moved := law.left(value))]
        return max(found, key=lambda each: each[0]) if found and len(found) == len(made) else None


def _fraction(law: Law, value: Value) -> float:
    moved = law.left(value)
    return moved.left if moved else 1.0


def _slower(left: Left, sides: Collection[object]) -> Left:
    return left if len(sides) == 1 else scaled(left, (), FEWEST_ROWS)


def _weights_of(left: Left) -> Iterator[Value]:
    """Yield the arrays with which the terms of sums are multiplied, except by plain matmuls."""
    for by, place in {step for label, _ in left for step in label[1:]}:
        if not is_plain(by):
            yield from (Value(one) for i, one in enumerate(by.operands) if i != place)


def _is_summed_apart(op: Instruction, dots: Sequence[Instruction]) -> bool:
    """Return whether matmuls make more elements than they read, which another op pools, scatters
    or multiplies."""
    readers = [user.users[0] if is_layout(user) and user.users else user for user in op.users]
    is_pooled = any(not _ADDING_APART.isdisjoint(user.opcodes) for user in readers)
    if not is_pooled and (not readers or any(DOTS.isdisjoint(user.opcodes) for user in readers)):
        return False
    sizes = [[array_of(one) for one in (dot, *dot.operands)] for dot in dots]
    return all(
        made and all(one and one.n_elements <= made.n_elements for one in given)
        for made, *given in sizes
    )


def _makes_less(op: Instruction, dots: Sequence[Instruction]) -> bool:
    """Return whether an op makes at most half of the elements that its matmuls compute."""
    made = max((array.n_elements for _, array in op.leaves or () if array), default=0)
    return all((array := array_of(dot)) and 2 * made <= array.n_elements for dot in dots)


def multiplies(ran: Executions) -> bool:
    return ran.op.dot is not None or bool(ran.op.kernel)
