"""Find ops whose result a later op mostly discards."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.dims import PUTTING, TAKING, array_of
from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.arrays.graph import (
    DOTS,
    STRUCTURE,
    Value,
    consumers,
    inputs_of_chain,
    is_elementwise,
    operand,
    origins,
    producers,
)
from _breakdown.analysis.arrays.parts import Dims, Parts, fraction
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause, Place
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of, total_of
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.pipeline.vocabulary import COMPUTE
from _breakdown.units import counted, time
from _proto.hlo.program import Instruction

# At most 1 / `_PART` must be used. Padding, shifts by a position and borders drop less.
_PART = 2
# A part of the result of these instructions can take as long as the whole: its elements need those
# at other places, as in a cumsum, and a kernel can need a padded dimension.
_NEEDING_ALL = frozenset(("custom-call", "fft", "reduce-window", "sort"))
# A matmul takes at most about this many times as long as writing its result: it sums some thousand
# products for each element. Smaller results cannot be worth a cause.
_LONGEST = 32
_LAYERS = 20

WHAT_HELPS = (
    "Take the part first: pick the positions or rows, and apply the layer or function only to"
    " these."
)


def find(of: StepProgram) -> Iterator[Cause]:
    search = _Search(of.parts)
    least = of.floor * float(of.roofs.hbm or 0) / _LONGEST
    ops = [(here, least / ran.n) for ran in of.leaves if (here := ran.op.instruction)]
    for op, least_bytes in ops:
        search.find_drops(op, least_bytes)
    # Map the line of each op to the line that drops a part of its result, which is also the line of
    # the ops that make the gradient.
    dropped_at: dict[str | None, Place] = {}
    dropped = dict.fromkeys(of.executed(value.instruction) for value in search.left)
    explained = of.explained_by("large_intermediate")
    for each in dropped:
        made = search.made_by(each) if each and _is_long(of, each) and _is_divisible(each) else None
        if made and (made.instruction in search.dots or id(each) not in explained):
            place, own = of.place_at(search.seed_of[made]), of.place_at(made.instruction)
            dropped_at[own.source_user] = dropped_at[place.source_user] = place
    dropped_at.pop(None, None)
    if not dropped_at:
        return
    for op, least_bytes in ops:
        search.find_zeros(op, least_bytes)
    found = grouped(
        (at, ran)
        for value in search.left
        for part in (value.instruction, *value.instruction.users)
        if (ran := of.executed(part))
        and _is_divisible(ran)
        and (at := dropped_at.get(place_of(ran.op).source_user))
    )
    for place, members in found.items():
        yield from _cause(search, list(dict.fromkeys(members)), place)


def _is_long(of: StepProgram, ran: Executions) -> bool:
    """Return whether an op is worth a look, if each unrolled layer has one like it."""
    return ran.total * _LAYERS >= of.floor


def _is_divisible(ran: Executions) -> bool:
    """Return whether an op takes less time for a part of its result."""
    here = ran.op.instruction
    return here is not None and all(_NEEDING_ALL.isdisjoint(part.opcodes) for part in here.chain)


class _Search:
    """The values of which a program drops a part, or which are zero except for a part."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._seen: set[tuple[Value, Dims]] = set()
        # Map values to the part of them that is used and not zero.
        self.left: dict[Value, float] = {}
        # What drops the part or sets it to zero.
        self.seed_of: dict[Value, Instruction] = {}
        # The matmuls that make or read such values.
        self.dots: set[Instruction] = set()

    def find_drops(self, op: Instruction, least_bytes: float) -> None:
        """Follow what slices and gathers drop, back to what computes it."""
        for seed in op.parts_with(TAKING):
            # Asynchronous slices fetch the parts of an array one after the other.
            if op.is_asynchronous and seed.opcode != "gather":
                continue
            whole, part = array_of(operand(seed, 0)), array_of(seed)
            if (
                whole is None
                or part is None
                or part.n_elements * _PART > whole.n_elements
                or (whole.n_bytes or 0) < least_bytes
            ):
                continue
            starts = inputs_of_chain(op) if op.is_asynchronous else seed.operands[:1]
            for given in starts:
                array = array_of(given)
                if array is None or array.dims != whole.dims or not _is_computed(Value(given)):
                    continue
                links = [x for x in self._parts.links(seed) if x.place == 0 and x.taken < 1]
                self._follow(seed, [(Value(given), x.inside) for x in links], is_back=True)

    def find_zeros(self, op: Instruction, least_bytes: float) -> None:
        """Follow arrays that are mostly zeros to the ops that read them."""
        for seed in op.parts_with(PUTTING):
            if (
                (whole := array_of(seed))
                and (whole.n_bytes or 0) >= least_bytes
                and (given := operand(seed, 0))
            ):
                zeros = origins(Value(given), lambda _: False)
                starts = [Value(seed), *zeros]
                links = [x for x in self._parts.links(seed) if x.filled < 1]
                to_do = [(value, x.outside) for value in starts for x in links]
                self._follow(seed, to_do, is_back=False)

    def _follow(self, seed: Instruction, to_do: list[tuple[Value, Dims]], *, is_back: bool) -> None:
        """Follow dropped dimensions to producers, and dimensions with zeros to consumers."""
        part_of = self._parts.used if is_back else self._parts.filled
        for value, dims in to_do:
            if (value, dims) in self._seen:
                continue
            self._seen.add((value, dims))
            left = fraction(part_of(value, dims))
            if left * _PART > 1:
                continue
            self.left[value] = min(left, self.left.get(value, left))
            self.seed_of.setdefault(value, seed)
            to_do += self._before(value, dims) if is_back else self._after(value, dims)

    def _before(self, value: Value, dims: Dims) -> Iterator[tuple[Value, Dims]]:
        here = value.instruction
        if here.opcode in STRUCTURE or here.opcode == "copy-done":
            yield from ((source, dims) for source in producers(value))
            return
        if here.opcode in DOTS:
            self.dots.add(here)
        if here.opcode == "add" and _joins_others(here):
            return
        for place, source in enumerate(here.operands):
            if links := self._parts.back(here, place, dims):
                yield Value(source), tuple(dim for link in links for dim in link.inside)

    def _after(self, value: Value, dims: Dims) -> Iterator[tuple[Value, Dims]]:
        for taker in consumers(value):
            by = taker.instruction
            if by.opcode in STRUCTURE or by.opcode == "copy-done":
                yield taker, dims
                continue
            if by.opcode in DOTS:
                self.dots.add(by)
            for place, source in enumerate(by.operands):
                if source is value.instruction and (links := self._parts.onward(by, place, dims)):
                    yield taker, tuple(dim for link in links for dim in link.outside)

    def dot_of(self, op: Instruction) -> Instruction | None:
        """Return the matmul of an op if only a part of it is used and not zero."""
        return next((dot for dot in op.parts_with(DOTS) if dot in self.dots), None)

    def made_by(self, ran: Executions) -> Value | None:
        """Return the result of an op's matmul if only a part of it is used, or the largest result
        of the op if only a part of each is used."""
        op = ran.op.instruction
        if op is None or ran.op.kind != COMPUTE:
            return None
        if dot := self.dot_of(op):
            return Value(dot)
        made = {Value(op, path): array for path, array in op.leaves or () if array}
        if not made or not all(value in self.left for value in made):
            return None
        return max(made, key=lambda value: made[value].n_elements)

    def left_of(self, op: Instruction) -> float:
        """Return the part of an op's work that is used and not zero."""
        dot = self.dot_of(op)
        if dot is not None:
            return min(self.left.get(Value(one), 1.0) for one in (dot, *dot.operands))
        results = [self.left.get(Value(op, path), 1.0) for path, _ in op.leaves or ()]
        if max(results, default=1.0) < 1:
            return max(results)
        values = [Value(one, path) for one in (op, *op.operands) for path, _ in one.leaves or ()]
        sizes = {value: value.array.n_elements for value in values if value.array}
        left = sum(n * self.left.get(value, 1.0) for value, n in sizes.items())
        return left / max(1, sum(sizes.values()))


def _is_computed(value: Value) -> bool:
    """Return whether an array is neither an input of the program nor the state of a loop."""
    return any(one.instruction.opcode not in STRUCTURE for one in origins(value, lambda _: False))


def _joins_others(add: Instruction) -> bool:
    """Return whether a sum adds arrays that are computed from different ones, as the sum after each
    block of a model does; a bias, or two functions of an array, are not."""
    first, second = (_sources_of(operand(add, place)) for place in (0, 1))
    return bool(first - second) and bool(second - first)


def _sources_of(here: Instruction | None) -> set[Value]:
    """Return the arrays from which a value is computed, element by element."""
    found = origins(Value(here), is_elementwise) if here else set()
    return {
        value
        for value in found
        if not is_elementwise(value)
        and value.instruction.opcode not in ("broadcast", "constant", "iota")
        and (value.instruction.opcode not in STRUCTURE or not producers(value))
    }


def _cause(search: _Search, ops: list[Executions], place: Place) -> Iterator[Cause]:
    left_of = {
        ran: search.left_of(here)
        for ran in ops
        if (here := ran.op.instruction) and not here.is_asynchronous
    }
    made = {ran: value for ran in left_of if (value := search.made_by(ran))}
    if not made:
        return
    longest = max(made, key=lambda ran: ran.total)
    whole = made[longest].array
    if whole is None:
        return
    yield Cause(
        f"<line> takes {round(left_of[longest] * whole.n_elements)} of the {whole.n_elements}"
        f" elements of {whole.text}. Computing only this part would save <gain> of the"
        f" {time(total_of(list(left_of)))} in {counted(len(left_of), 'op')}.",
        WHAT_HELPS,
        LIKELY,
        list(left_of),
        [Retime(ran, left * ran.total) for ran, left in left_of.items()],
        place=place,
        evidence={"shape": whole.text},
    )
