"""Find weights that are read several times for few rows, although one call could read them once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.arrays.graph import DOTS, Value, is_same, producers, reach
from _breakdown.analysis.arrays.of_step import StepArray
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause, Place
from _breakdown.analysis.causes.shared.checkpoints import common_place_of
from _breakdown.analysis.causes.shared.sentences import short
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.light import NamedTuple
from _breakdown.pipeline import frames
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted, size
from _proto.hlo.flops import flops_of_dot
from _proto.hlo.program import Computation, Instruction

REMEDY = (
    "Concatenate the inputs of these calls along the batch, call the network once, and split its"
    " result."
)
# A recomputed matmul has the same inputs as the one of the forward pass.
_RECOMPUTE = "recompute"
# Smaller weights, such as those of a router, cost almost nothing.
_MIN_BYTES = 1 << 20


class _Calls(NamedTuple):
    """Ops that read the same weights for different inputs, and their time as a fraction of the
    present one if the weights are read once."""

    weights: frozenset[StepArray]
    members: list[Executions]
    factor: float


def find(of: StepProgram) -> Iterator[Cause]:
    hbm = of.roofs.hbm
    if not hbm:
        return
    matmuls = (ran for ran in of.long_ops if ran.op.dot and ran.op.phase != _RECOMPUTE)
    by_weights = grouped((_key(of, ran), ran) for ran in matmuls)
    found = []
    for key, members in by_weights.items():
        if key and len(members) > 1 and len(alone := _independent(members)) > 1:
            n_bytes = sum(array.shape.n_bytes or 0 for array in key[0])
            factor = _factor(of, alone, n_bytes / float(hbm))
            if factor < 1:
                found.append(_Calls(key[0], alone, factor))
    for places, calls in grouped((_diverging(each.members), each) for each in found).items():
        yield _cause(places, calls)


def _key(of: StepProgram, ran: Executions) -> tuple[frozenset[StepArray], str, Computation] | None:
    """Return the weights, phase and computation that ops have in common if they could be one."""
    here = ran.op.instruction
    if here is None:
        return None
    weights: set[StepArray] = set()
    for _, known in _dots(of, here):
        # Of two parameters, either can be the input.
        if len(known) > 1:
            return None
        weights.update(known)
    return (frozenset(weights), ran.op.phase, here.computation) if weights else None


def _dots(of: StepProgram, op: Instruction) -> Iterator[tuple[float, list[StepArray]]]:
    """Yield the time of each matmul of an op at the peak rate, and the parameters of the program
    that it multiplies, if reading them takes longer. The time is 0 if it is unknown."""
    entry, hbm = of.entry_of[op], float(of.roofs.hbm or 0)
    dots = op.parts_with(DOTS)
    # A single matmul has all flops of its op.
    flops = [flops_of_dot(dot) or 0 for dot in dots] if len(dots) > 1 else [1]
    for dot, n in zip(dots, flops, strict=True):
        time = float(entry.t_compute / entry.executions.n) * n / max(1, sum(flops))
        sizes = (
            sum(array.n_bytes or 0 for array in source.arrays or ()) for source in dot.operands
        )
        read = [
            array
            for source, size in zip(dot.operands, sizes, strict=True)
            if size >= _MIN_BYTES and time * hbm < size and (array := _parameter(of, source))
        ]
        yield time, read


def _parameter(of: StepProgram, source: Instruction) -> StepArray | None:
    """Return the parameter of the program of which an operand is a copy."""
    value = Value(source)
    for passed in reach([value], producers, is_same).passed:
        if passed.instruction.opcode == "parameter" and (array := of.arrays.array_at(passed)):
            array = of.arrays.source_of(array)
            if array.is_parameter and value.array:
                is_whole = array.shape.n_elements == value.array.n_elements
                return array if is_whole else None
    return None


def _independent(members: Sequence[Executions]) -> list[Executions]:
    """Return ops of which none needs the result of another one. `members` are in the order of the
    trace."""
    chosen: dict[Instruction, Executions] = {}
    for ran in members:
        here = ran.op.instruction
        if here and chosen.keys().isdisjoint(_needed_by(here)):
            chosen[here] = ran
    return list(chosen.values())


def _needed_by(here: Instruction) -> set[Instruction]:
    """Return all instructions of a computation that an instruction needs."""
    found, to_do = {here}, [here]
    while to_do:
        new = [source for source in to_do.pop().operands if source not in found]
        found.update(new)
        to_do += new
    return found


def _factor(of: StepProgram, members: Sequence[Executions], reading: float) -> float:
    """Return the time of one call for the rows of all, as a fraction of the present time.
    `reading` is the time to read the weights once at the peak bandwidth."""
    by_weights, others = [], 0.0
    for here in (ran.op.instruction for ran in members):
        dots = list(_dots(of, here)) if here else []
        if not all(time for time, _ in dots):
            return 1.0
        by_weights.append(sum(time for time, weights in dots if weights))
        # Other matmuls of the op, such as those of attention, stay the same.
        others += sum(time for time, weights in dots if not weights)
    now = sum(max(reading, each) for each in by_weights)
    return (max(reading, sum(by_weights)) + others) / (now + others)


def _diverging(members: Sequence[Executions]) -> tuple[str, ...]:
    """Return the outermost lines at which the stacks of ops differ; none if they are equal."""
    stacks = [
        [
            frames.line_of(each)
            for each in ran.op.stack.frames
            if ran.op.is_own(frames.file_of(each))
        ]
        for ran in members
        if ran.op.stack
    ]
    for lines in zip(*stacks, strict=False):
        if len(set(lines)) > 1:
            return tuple(dict.fromkeys(lines))
    return ()


def _cause(places: tuple[str, ...], calls: list[_Calls]) -> Cause:
    members = [ran for each in calls for ran in each.members]
    weights = {array for each in calls for array in each.weights}
    n_bytes = sum(array.shape.n_bytes or 0 for array in weights)
    n = max(len(each.members) for each in calls)
    others = f" (and {', '.join(map(short, places[1:]))})" if len(places) > 1 else ""
    return Cause(
        f"{counted(n, 'call')} at <line>{others} read the same {counted(len(weights), 'weight')}"
        f" ({size(n_bytes)}), each for few rows. One call for all rows would save <gain>.",
        REMEDY,
        LIKELY,
        members,
        [Retime(ran, ran.total * each.factor) for each in calls for ran in each.members],
        place=Place(places[0], places[0]) if places else common_place_of(members),
    )
