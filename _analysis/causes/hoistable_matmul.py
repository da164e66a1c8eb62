"""Find matmuls in a loop's body that one matmul before the loop could do for all rounds.

needs: a program
headline: A matmul in each round of a loop

What it finds: A matmul that each round of a loop does although its operands need no other round,
such as the projection of the inputs of a recurrent network inside `lax.scan`.

Why it costs: A round has few rows, so that the matrix unit is mostly idle, and the gradient of the
weight is read and written in each round. In a library for reinforcement learning, projecting the
inputs of a GRU before the scan and reducing the gradients after it made the forward and backward
passes ten times faster on a CPU.

How the program shows it: A matmul in the body of a `while`, at most half as efficient as the large
matmuls of the step. It depends on the loop's inputs, but on nothing that a round carries to the
next one, and on no collective in the body. It belongs to the forward pass and is not recomputed,
and its results for all rounds take at most 1 GiB. The gain is that of one matmul at the efficiency
of large ones, here and in the backward pass, minus the time to take a slice of the result in each
round.

What to change: Multiply all rounds' inputs before the loop, and pass the result to it.

When it is intended: The results of all rounds do not fit into memory.

Example:

    # Before: each of the 512 rounds multiplies 64 rows
    h = jax.lax.scan(lambda h, x: 2 * (cell(h, x @ wx),), h0, xs)[1]
    # After: one matmul of 512 * 64 rows
    h = jax.lax.scan(lambda h, gx: 2 * (cell(h, gx),), h0, xs @ wx)[1]
"""

from __future__ import annotations

from collections.abc import Iterator

from _analysis.arrays.engine import Remove, Retime
from _analysis.arrays.graph import DOTS, Value, is_same, producers, reach
from _analysis.arrays.of_step import StepArray
from _analysis.causes.shared.cause import SEEN, Cause
from _analysis.causes.shared.recurrences import Rounds
from _analysis.causes.shared.step_program import StepProgram, own_line_of, place_of, total_of
from _analysis.roof.ledger import COMPUTE_BOUND, Entry
from _pipeline.executions import Executions
from _proto.hlo.program import Instruction
from _units import size

# A sixteenth of the memory of the smallest chips.
_MOST_BYTES = 1 << 30
# The efficiency of large matmuls if the step has none.
_EFFICIENCY = 0.5
# Matmuls at more than 1 / `_SLOW` of the efficiency of large ones would gain little.
_SLOW = 2
_SLICES = frozenset(("dynamic-slice", "dynamic-update-slice"))

REMEDY = (
    "Do the matmul once for all rounds before the loop, and pass its result to lax.scan; the"
    " gradient of its weight is then one matmul, too."
)


def find(of: StepProgram) -> Iterator[Cause]:
    large = [entry for entry in of.by_loop.get(None, ()) if entry.name == COMPUTE_BOUND]
    total = sum(entry.total for entry in large)
    efficiency = float(sum(entry.t_compute for entry in large) / total) if total else _EFFICIENCY
    matmuls = [
        (loop, entry, dot)
        for loop, entries in of.by_loop.items()
        for entry in entries
        if loop and entry.t_compute and (dot := _only_dot(entry))
    ]
    for loop, entry, dot in matmuls:
        is_slow = _SLOW * entry.t_compute < efficiency * entry.total
        if not is_slow or entry.executions.op.phase in ("backward", "recompute"):
            continue
        line, inputs = own_line_of(dot, of.is_own), _inputs_of(of, dot)
        again = [
            other
            for _, other, its in matmuls
            if other.executions.op.phase in ("backward", "recompute")
            and own_line_of(its, of.is_own) == line
            and inputs & _inputs_of(of, its)
        ]
        if "recompute" in {other.executions.op.phase for other in again}:
            continue
        n_bytes = sum(array.n_bytes or 0 for array in dot.arrays or ()) * entry.executions.n
        if n_bytes <= _MOST_BYTES and Rounds(loop).is_independent(dot):
            yield from _cause(of, loop, [entry, *again], efficiency, n_bytes)


def _only_dot(entry: Entry) -> Instruction | None:
    """Return the matmul of an op; None if it has none or several."""
    here = entry.executions.op.instruction
    dots = [part for part in (here, *here.inside()) if part.opcode in DOTS] if here else []
    return dots[0] if len(dots) == 1 else None


def _inputs_of(of: StepProgram, dot: Instruction) -> set[StepArray]:
    """Return the arrays outside of the loop of which a matmul reads the whole or slices."""
    passed = reach([Value(dot)], producers, lambda v: is_same(v) or v.instruction.opcode in _SLICES)
    arrays = (of.arrays.array_at(v) for v in passed.passed if v.instruction.opcode == "parameter")
    return {of.arrays.source_of(array) for array in arrays if array}


def _cause(
    of: StepProgram, loop: Instruction, matmuls: list[Entry], efficiency: float, n_bytes: int
) -> Iterator[Cause]:
    """Yield the cause if the matmuls save more time than the slices of the result need."""
    members = [entry.executions for entry in matmuls]
    then = [float(entry.t_compute) / efficiency for entry in matmuls]
    slices = [ran for member in members for ran in _slices_for(of, member)]
    # A slice of the result takes as long per byte as a slice of the inputs, or as the longest op of
    # the loop that only moves slices.
    of_inputs = list(_slices_for(of, members[0]))
    uses = [use for ran in of_inputs for _, use in of.arrays.uses_of.get(ran, ())]
    read = sum(use.n_bytes for use in uses if not use.is_write)
    others = (entry.total for entry in of.by_loop[loop] if _moves_slices(entry.executions))
    needed = total_of(of_inputs) * n_bytes / read if read else max(others, default=0)
    if total_of([*members, *slices]) - sum(then) - needed < of.floor:
        return
    then[0] += needed
    yield Cause(
        f"<line> multiplies in each of {members[0].n} rounds of a loop, although the matmul needs"
        f" no other round. One matmul before the loop, whose result has {size(n_bytes)}, would save"
        " <gain>.",
        REMEDY,
        SEEN,
        [*members, *slices],
        [Remove(slices), *map(Retime, members, then)],
        place=place_of(members[0].op),
    )


def _slices_for(of: StepProgram, matmul: Executions) -> Iterator[Executions]:
    """Yield the ops that only take a slice for a matmul."""
    here = matmul.op.instruction
    for source in here.operands if here else ():
        ran = of.ran.get(source)
        if ran and list(source.users) == [here] and _moves_slices(ran):
            yield ran


def _moves_slices(ran: Executions) -> bool:
    here = ran.op.instruction
    opcodes = {part.opcode for part in (here, *here.inside())} if here else set()
    return not opcodes.isdisjoint(_SLICES) and opcodes.isdisjoint(DOTS)
