"""Find attention that computes scores which a positional mask mostly discards."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product

from _breakdown.analysis.arrays.dims import array_of
from _breakdown.analysis.arrays.elements import Element, Elements, Index
from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.arrays.graph import (
    DOTS,
    STRUCTURE,
    WHILE,
    Value,
    consumers,
    is_elementwise,
    producers,
    walk,
)
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.light import NamedTuple
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Array

# At most this part may be kept: see the docstring.
_KEPT = 0.25
# Positions at which a mask is computed: first some, to leave out causal masks, then enough to know
# the part to about 2 %.
_FIRST, _SAMPLES = 24, 512
# The side of the blocks in which work can be skipped: that of the largest matrix unit.
_BLOCK = 256
# Smaller dimensions are no positions.
_POSITIONS = 64
# Larger arrays fit in no memory, but a damaged program can have them. An array of this size has at
# most six dimensions of positions, so a block has at most 64 corners.
_MOST_ELEMENTS = _POSITIONS**6
# Multiples of powers of this number fill a space of so many dimensions evenly: it is the inverse of
# the root of x ** (n + 1) == x + 1.
_N_COORDINATES = 6
_ROOT = 0.8986537126286992
# A softmax makes zeros of what is below: exp(-100) is nothing beside the largest, which is 1.
_LOWEST = -100
_SLICES = frozenset(("dynamic-slice", "dynamic-update-slice"))
_MASK = "pred"
# Unrolled layers have a matmul each.
_LAYERS = 20

WHAT_HELPS = (
    "Compute only the blocks in which the mask keeps something: slice the keys to the window of"
    " each block of queries, or use a kernel that skips blocks."
)


def find(of: StepProgram) -> Iterator[Cause]:
    masks = _Masks(of)
    found = [
        (of.place_at(dot).source_user, (dot, kept))
        for ran in of.leaves
        if ran.total * _LAYERS >= of.floor and ran.op.dot and (here := ran.op.instruction)
        for dot in here.parts_with(DOTS)
        if dot in of.softmaxed and (kept := masks.kept_of(dot)).elements <= _KEPT
    ]
    for members in grouped(found).values():
        yield _cause(of, dict(members))


class _Kept(NamedTuple):
    """The part of an array that a mask keeps, and the part in blocks of which it keeps anything."""

    elements: float
    blocks: float


_ALL = _Kept(1.0, 1.0)


class _Masks:
    """The masks of a program, computed at some positions."""

    def __init__(self, of: StepProgram) -> None:
        self._of = of
        self._elements = Elements(self._round_of)
        self._sample = 0
        self._trips: dict[Instruction, int] = {}

    def kept_of(self, dot: Instruction) -> _Kept:
        """Return the part of a matmul's result that no mask drops."""
        largest, to_do = _Kept(0.0, 0.0), [Value(dot)]
        seen = set(to_do)
        for value in to_do:
            takers = consumers(value)
            for taker in takers:
                by = taker.instruction
                try:
                    kept = self._kept_by(by, value.instruction)
                except (ArithmeticError, IndexError, ValueError):
                    # Only damaged programs have dimensions that do not exist.
                    return _ALL
                if kept.elements <= _KEPT:
                    largest = max(largest, kept)
                elif by.opcode == WHILE or not (by.opcode in STRUCTURE or is_elementwise(taker)):
                    return _ALL
                elif taker not in seen:
                    seen.add(taker)
                    to_do.append(taker)
            if not takers:
                return _ALL
        return largest

    def _kept_by(self, by: Instruction, source: Instruction) -> _Kept:
        """Return the part of an operand that an instruction keeps if it applies a mask."""
        array = array_of(by)
        drops = self._drops(by, source) if by.opcode in ("add", "select") else None
        if array is None or drops is None or array.n_elements > _MOST_ELEMENTS:
            return _ALL
        kept = self._sampled(array, drops, range(1, 1 + _FIRST), with_blocks=False)
        if kept.elements <= 1.5 * _KEPT:
            kept = self._sampled(array, drops, range(1, 1 + _SAMPLES), with_blocks=True)
        return kept

    def _sampled(
        self,
        array: Array,
        drops: Callable[[Index], bool],
        samples: Sequence[int],
        *,
        with_blocks: bool,
    ) -> _Kept:
        n_elements = n_blocks = 0
        for self._sample in samples:
            index = tuple(int(self._at(i) * size) for i, size in enumerate(array.dims))
            is_kept = not drops(index)
            n_elements += is_kept
            if with_blocks:
                n_blocks += is_kept or not all(map(drops, _corners(index, array.dims)))
        return _Kept(n_elements / len(samples), n_blocks / len(samples))

    def _drops(self, by: Instruction, source: Instruction) -> Callable[[Index], bool] | None:
        """Return the function that tells which elements of an operand a mask drops; None if an
        instruction applies no mask that depends only on positions."""
        given = [None if one is source else self._function(one) for one in by.operands]
        if by.opcode == "add" and len(given) == 2:
            bias = given[0] or given[1]
            return bias and (lambda index: (bias(index) or 0) <= _LOWEST)
        if by.opcode != "select" or len(given) != 3 or not (mask := given[0]):
            return None
        # The operand is dropped where the mask chooses the constant.
        return (lambda index: mask(index) is (given[1] is not None)) if any(given[1:]) else None

    def _function(self, here: Instruction) -> Element | None:
        array, function = array_of(here), self._elements.function(Value(here))
        if function is None or array is None or array.dims:
            return function
        return lambda _: function(())

    def _round_of(self, loop: Instruction) -> int:
        if loop not in self._trips:
            self._trips[loop] = self._of.trips(loop) or 1
        # The first dimension after the last coordinate is the batch, of which no mask depends.
        coordinate = _N_COORDINATES - 1 + list(self._trips).index(loop)
        return int(self._at(coordinate) * self._trips[loop])

    def _at(self, coordinate: int) -> float:
        """Return a coordinate of the current sample, between 0 and 1."""
        return (0.5 + self._sample * _ROOT ** (1 + coordinate % _N_COORDINATES)) % 1


def _corners(index: Index, dims: Index) -> Iterable[Index]:
    """Yield the corners of the block of an element."""
    ends = []
    for at, size in zip(index, dims, strict=True):
        first = at // _BLOCK * _BLOCK
        last = min(first + _BLOCK, size) - 1
        ends.append((first, last) if size >= _POSITIONS else (at,))
    return product(*ends)


def _work_on(of: StepProgram, dot: Instruction) -> Iterator[Executions]:
    """Yield the ops that make, change or read the result of a matmul and its gradient, element by
    element, and the matmuls that read them."""
    array = array_of(dot)
    least = array.n_elements if array else 0

    def around(value: Value) -> list[Value]:
        near = consumers(value) + producers(value)
        # Other layers can share a mask.
        return [
            one
            for one in near
            if one.array and one.array.n_elements >= least and one.array.dtype != _MASK
        ]

    passed = [
        value
        for value, is_passed in walk(
            [Value(dot)], around, lambda v: is_elementwise(v) or v.instruction.opcode in _SLICES
        )
        if is_passed or value.instruction.opcode in DOTS
    ]
    for value in (Value(dot), *passed):
        here = value.instruction
        for part in (here, *(user for user in here.users if user.opcode in DOTS)):
            if ran := of.executed(part):
                yield ran


def _cause(of: StepProgram, kept_of: dict[Instruction, _Kept]) -> Cause:
    left_of: dict[Executions, float] = {}
    for dot, kept in kept_of.items():
        for ran in _work_on(of, dot):
            left_of[ran] = max(kept.blocks, left_of.get(ran, 0.0))
    largest = max(kept_of, key=of.time_of)
    array = array_of(largest)
    text = array.text if array else "an array"
    matmuls = [ran for ran in left_of if ran.op.dot]
    return Cause(
        f"<line> computes {text}, of which a mask of positions keeps about"
        f" {100 * kept_of[largest].elements:.0f} %, and {counted(len(matmuls), 'matmul')}"
        " compute or read all of it. Skipping whole blocks would save <gain>.",
        WHAT_HELPS,
        LIKELY,
        matmuls,
        [Retime(ran, left * ran.total) for ran, left in left_of.items()],
        place=of.place_at(largest),
        evidence={"shape": text},
    )
