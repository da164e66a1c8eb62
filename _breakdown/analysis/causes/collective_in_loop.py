"""Find collectives that run in each iteration of a loop although once would be enough."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.arrays.graph import (
    DOTS,
    STRUCTURE,
    WHILE,
    Reached,
    Value,
    body_of,
    callers,
    consumers,
    is_layout,
    operand,
    parameter,
    producers,
    reach,
    walk,
)
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause, Confidence
from _breakdown.analysis.causes.shared.step_program import StepProgram, counts_of, total_of
from _breakdown.pipeline.executions import Executions
from _proto.hlo.program import Computation, Instruction

# Linear ops: adding up their results over all rounds equals applying the op to the sum.
_LINEAR = frozenset(
    "add collective-permute collective-permute-done concatenate convert"
    " divide dynamic-slice dynamic-update-slice multiply negate pad select slice subtract".split()
)
_COPIES = ("copy", "copy-start", "copy-done")
_COUNTERS = ("s32", "u32", "s64")
# Instructions without operands that are the same in each round.
_SAME = STRUCTURE | {"constant", "iota", "replica-id", "partition-id"}

FOR_SUMS = (
    "Add up the local values in the loop and run the collective once on the sum, after the loop. A"
    " reduce-scatter then needs memory for the sum of the whole array on each device."
)
FOR_SAME_DATA = (
    "Run the collective before the loop and pass the result into the loop, if memory allows."
)
FOR_BOTH = (
    "If memory allows, gather the weights before the loop, differentiate with respect to the"
    " gathered weights, add up local gradients in the loop, and reduce the sums once after the"
    " loop."
)


def find(of: StepProgram) -> Iterator[Cause]:
    rows: dict[Instruction, dict[Executions, Confidence]] = {}
    for ran in of.long_collectives:
        here = ran.op.instruction
        around = callers(here.computation) if here else ()
        loops = [caller for caller in around if caller.opcode == WHILE]
        if here and (loop := _adding(here, loops)):
            rows.setdefault(loop, {})[ran] = SEEN
        elif here and (loop := _repeating(here, loops)):
            # Gathering the same array in each round may be intended, to save memory.
            rows.setdefault(loop, {})[ran] = LIKELY
    for loop, row in rows.items():
        if (trips := of.trips(loop) or 0) > 1:
            yield _cause(trips, row)


def _adding(collective: Instruction, loops: Sequence[Instruction]) -> Instruction | None:
    """Return the innermost loop that adds up the results of a collective."""
    starts = {Value(collective), *(Value(collective, path) for path, _ in collective.leaves or ())}
    for loop in loops:
        body = body_of(loop)
        if body is None:
            return None
        flow = _linear_flow(starts, body)
        ends = _ends(flow, body)
        if any(_is_accumulator(body, end, flow.passed) for end in ends):
            return loop
        # Results that were written into slices of the state leave this loop with the state.
        starts = {Value(loop, end.path) for end in ends}
    return None


def _linear_flow(starts: Iterable[Value], body: Computation) -> Reached:
    """Follow values through linear ops to the end of a round."""
    return reach(
        starts,
        lambda value: [] if value.instruction is body.root else consumers(value),
        lambda value: value.instruction.opcode in _LINEAR or is_layout(value.instruction),
    )


def _ends(flow: Reached, body: Computation) -> set[Value]:
    return {value for value in flow.passed if value.instruction is body.root and value.path}


def _is_accumulator(body: Computation, end: Value, results: set[Value]) -> bool:
    """Return whether the loop only adds results of a collective to a part of its state."""
    state = parameter(body, 0)
    if state is None:
        return False
    flow = _linear_flow([Value(state, end.path)], body)
    if flow.stopped or _ends(flow, body) != {end}:
        return False
    return any(value.instruction.opcode == "add" for value in flow.passed & results)


def _repeating(collective: Instruction, loops: Sequence[Instruction]) -> Instruction | None:
    """Return the innermost loop whose rounds all pass the same operands to a collective.

    An inner loop may take the operands from slices of an array, such as the weights of all layers.
    The slices are the same in each round of an outer loop that passes this array on unchanged.
    """
    starts = producers(Value(collective))
    for loop in loops:
        body, before = body_of(loop), operand(loop, 0)
        state = parameter(body, 0) if body else None
        used = _used_parts(starts, state) if state else None
        if state is None or before is None or not used:
            return None
        changed = {part for part in used if not _is_passed_on(part)}
        if not changed:
            return loop
        arrays = [part.array for part in changed]
        if any(array is None or array.dims or array.dtype not in _COUNTERS for array in arrays):
            return None
        starts = [Value(before, part.path) for part in used - changed]
    return None


def _used_parts(values: list[Value], state: Instruction) -> set[Value] | None:
    """Return the parts of a loop's state from which values are computed; None if anything else,
    except constants, contributes to the values."""
    used = set()
    flow = walk(values, producers, lambda value: value.instruction.opcode not in DOTS)
    for value, is_passed in chain(((value, True) for value in values), flow):
        here = value.instruction
        if not is_passed or here.opcode == WHILE or not (here.operands or here.opcode in _SAME):
            return None
        if here is state and value.path:
            used.add(Value(state, value.path[:1]))
    return used


def _is_passed_on(part: Value) -> bool:
    """Return whether a round passes on a part of the state unchanged, possibly as a copy in another
    memory space."""
    root = part.instruction.computation.root
    ends = [Value(root, part.path)] if root else []
    flow = reach(ends, producers, lambda value: value.instruction.opcode in _COPIES)
    return part in flow.passed and not flow.stopped


def _cause(trips: int, row: Mapping[Executions, Confidence]) -> Cause:
    summed = [ran for ran, confidence in row.items() if confidence == SEEN]
    same = [ran for ran, confidence in row.items() if confidence == LIKELY]
    does, when, helps = [], [], FOR_BOTH
    if summed:
        does.append(f"only adds up the results of {counts_of(summed)}")
        when.append("after")
    if same:
        does.append(f"repeats {counts_of(same)} on the same data")
        when.append("before")
    if not (summed and same):
        helps = FOR_SUMS if summed else FOR_SAME_DATA
    return Cause(
        f"A loop of {trips} rounds {' and '.join(does)}, with most time at <line>. Running each"
        f" once, {' or '.join(when)} the loop, would save <gain>.",
        helps,
        SEEN if total_of(summed) >= total_of(same) else LIKELY,
        [*summed, *same],
        [Retime(ran, ran.total / trips) for ran in (*summed, *same)],
    )
