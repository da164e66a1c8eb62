"""Find collectives that run in each iteration of a loop although once would be enough.

needs: a program
headline: Communication that a loop repeats

What it finds: A loop, for example over microbatches, runs a collective in each round, but running
it once, after or before the loop, gives the same result.

Why it costs: All rounds but one are superfluous. The gain is the time that the step saves if only
one round runs these collectives. It can exceed their exposed time, because they also make other
collectives wait for the links.

How the program shows it: Each loop has one row, which is `seen` if accumulations take at least half
of its exposed time.

- The result of a collective passes only through linear and layout ops, and is added to an element
  of the loop's state that nothing else in the body reads (`seen`). A residual stream is no such
  element, because the next layer reads it. An inner loop may first write the results into slices of
  a larger array that the outer loop adds up.
- The operands of a collective are the same in each round (`likely`). For example, a weight is
  gathered again for each microbatch, possibly in an inner loop over layers.

What to change: Add up local values in the loop, and reduce the sum once after the loop. Gather
weights once, before the loop.

When it is intended: Gathering weights before the loop, or reducing the sum after it, takes more
memory.

Example:

    # Before: one all-reduce for each microbatch
    for batch in microbatches:
        grads += psum(grad(batch), "data")
    # After: one all-reduce
    for batch in microbatches:
        grads += grad(batch)
    grads = psum(grads, "data")
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from _analysis.arrays.engine import Once
from _analysis.arrays.graph import (
    DOTS,
    STRUCTURE,
    WHILE,
    Value,
    body_of,
    callers,
    consumers,
    is_layout,
    loop_around,
    operand,
    parameter,
    producers,
    reach,
)
from _analysis.causes.shared.cause import LIKELY, SEEN, Cause, Confidence
from _analysis.causes.shared.step_program import (
    StepProgram,
    counts_of,
    total_of,
)
from _light import NamedTuple
from _pipeline.executions import Executions
from _proto.hlo.program import Computation, Instruction

# Linear ops: adding up their results over all iterations equals applying the op to the sum.
_LINEAR = frozenset("add subtract multiply divide negate convert select".split())
_COPIES = ("copy", "copy-start", "copy-done")
_COUNTERS = ("s32", "u32", "s64")
_CONSTANT = frozenset(("constant", "iota", "replica-id", "partition-id"))

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


class _Repeated(NamedTuple):
    """The collectives that a loop repeats: `summed` if their results are added up, `same` if their
    operands are the same in each iteration."""

    summed: list[Executions]
    same: list[Executions]


def find(of: StepProgram) -> Iterator[Cause]:
    rows: dict[Instruction, _Repeated] = {}
    for executions in of.long_collectives:
        here = executions.op.instruction
        if here and (found := _repeated_by(here)):
            loop, confidence = found
            row = rows.setdefault(loop, _Repeated([], []))
            (row.summed if confidence == SEEN else row.same).append(executions)
    for loop, row in rows.items():
        trips = of.trips(loop)
        if trips is not None and trips > 1:
            yield _cause(of, trips, row)


def _repeated_by(collective: Instruction) -> tuple[Instruction, Confidence] | None:
    """Return the loop that repeats a collective needlessly, and the confidence of the cause."""
    loop = loop_around(collective.computation)
    if loop is None:
        return None
    accumulating = _accumulates_in(collective, loop)
    if accumulating is not None:
        return accumulating, SEEN
    same = _same_each_round(collective, loop)
    return (same, LIKELY) if same else None


def _accumulates_in(collective: Instruction, loop: Instruction) -> Instruction | None:
    """Return the loop that adds up the results of a collective, or None if no loop does."""
    starts = [Value(collective, path) for path, _ in collective.leaves or ()]
    if len(starts) > 1:
        starts.append(Value(collective))
    for within in _loops_from(loop):
        body = body_of(within)
        if body is None or body.root is None:
            return None
        flow = reach(starts, _within(body), _is_linear)
        ends = [value for value in flow.passed if value.instruction is body.root and value.path]
        if any(_is_accumulator(body, value, flow.passed) for value in ends):
            return within
        # Results that were written into slices of the state leave this loop with the state, so
        # follow them into the next outer loop.
        if not ends:
            return None
        starts = [Value(within, value.path) for value in ends]
    return None


def _within(body: Computation) -> Callable[[Value], list[Value]]:
    """Return a variant of `consumers` that stays within one iteration of a loop."""

    def step(value: Value) -> list[Value]:
        is_end = value.instruction is body.root
        return [] if is_end else consumers(value)

    return step


def _is_linear(value: Value) -> bool:
    here = value.instruction
    return here.opcode in _LINEAR or here.opcode == "dynamic-update-slice" or is_layout(here)


def _is_accumulator(body: Computation, end: Value, results: set[Value]) -> bool:
    """Return True if the loop only adds results of a collective to the element `end` of its
    state."""
    state = parameter(body, 0)
    if state is None:
        return False
    flow = reach([Value(state, end.path)], _within(body), _is_linear)
    ends = {value for value in flow.passed if value.instruction is body.root}
    if flow.stopped or ends != {end}:
        return False
    return any(value.instruction.opcode == "add" for value in flow.passed & results)


def _same_each_round(collective: Instruction, loop: Instruction) -> Instruction | None:
    """Return the innermost loop whose iterations all pass the same operands to a collective.

    An inner loop may take the operands from slices of an array, such as the weights of all layers.
    The slices are the same in each iteration of an outer loop that passes this array on unchanged.
    """
    starts = producers(Value(collective))
    for within in _loops_from(loop):
        body = body_of(within)
        state = parameter(body, 0) if body else None
        elements = _elements_of(starts, state) if state else None
        if not elements or state is None:
            return None
        changed = {element for element in elements if not _is_handed_on(state, element)}
        if not changed:
            return within
        arrays = [Value(state, (element,)).array for element in changed]
        if any(array is None or array.dims or array.dtype not in _COUNTERS for array in arrays):
            return None
        before = operand(within, 0)
        starts = [Value(before, (element,)) for element in elements - changed] if before else []
    return None


def _loops_from(loop: Instruction) -> Iterator[Instruction]:
    """Yield a loop and the loops around it, innermost first."""
    yield loop
    yield from (caller for caller in callers(loop.computation) if caller.opcode == WHILE)


def _elements_of(values: list[Value], state: Instruction) -> set[int] | None:
    """Return the indices of the elements of a loop's state from which values are computed; None if
    anything else, except constants, contributes to the values."""
    flow = reach(values, producers, lambda value: value.instruction.opcode not in DOTS)
    if flow.stopped:
        return None
    elements = set()
    for here, path in flow.passed:
        if here.opcode == WHILE:
            return None
        if here is state and path:
            elements.add(path[0])
        elif not here.operands and here.opcode not in (*_CONSTANT, *STRUCTURE):
            return None
    return elements


def _is_handed_on(state: Instruction, element: int) -> bool:
    """Return True if an iteration passes on an element of the state unchanged.

    A copy of the element to another memory space does not count as a change.
    """
    root = state.computation.root
    if root is None:
        return False
    walk = reach(
        [Value(root, (element,))], producers, lambda value: value.instruction.opcode in _COPIES
    )
    return Value(state, (element,)) in walk.passed and not walk.stopped


def _cause(of: StepProgram, trips: int, row: _Repeated) -> Cause:
    members = [*row.summed, *row.same]
    parts = []
    if row.summed:
        parts.append(f"only adds up the results of {counts_of(row.summed)}")
        once, helps = "Reducing the sum once, after the loop,", FOR_SUMS
    if row.same:
        parts.append(f"repeats {counts_of(row.same)} on the same data")
        once, helps = "Running them once, before the loop,", FOR_SAME_DATA
    if row.summed and row.same:
        once, helps = "Running each once, after or before the loop,", FOR_BOTH
    return Cause(
        f"A loop of {trips} rounds {' and '.join(parts)}, with most time at <line>. {once} would"
        " save <gain>.",
        helps,
        # Gathering the same array in each iteration may be intended, to save memory.
        SEEN if 2 * total_of(row.summed) >= total_of(members) else LIKELY,
        members,
        [Once(members, trips)],
    )
