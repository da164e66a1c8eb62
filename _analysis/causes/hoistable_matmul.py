"""Find matmuls in a loop's body that one matmul before the loop could do for all rounds.

needs: a program
headline: A matmul in each round of a loop

What it finds: A matmul that each round of a loop does although its operands need no other round,
such as the projection of the inputs of a recurrent network inside `lax.scan`.

Why it costs: A round has few rows, so that the matrix unit is mostly idle, and the gradient of the
weight is accumulated in each round: all of it is read and written. In a library for reinforcement
learning, projecting the inputs of a GRU before the scan and reducing the gradients after it made a
training step ten times faster on a CPU.

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

from collections.abc import Iterable, Iterator, Sequence

from _analysis.arrays.engine import Change, Remove, Retime
from _analysis.arrays.graph import DOTS, loop_around
from _analysis.causes.shared.cause import SEEN, Cause
from _analysis.causes.shared.recurrences import Rounds
from _analysis.causes.shared.step_program import (
    StepProgram,
    own_line_of,
    place_of,
    total_of,
)
from _analysis.roof.ledger import COMPUTE_BOUND, Entry
from _pipeline.executions import Executions
from _pipeline.groups import grouped
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Array
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
    in_loops = grouped(
        (loop_around(here.computation), entry) for here, entry in of.entry_of.items()
    )
    efficiency = _efficiency_of(in_loops.pop(None, ()))
    by_line = grouped(
        (own_line_of(dot, of.is_own), entry)
        for entries in in_loops.values()
        for entry in entries
        if (dot := _dot_of(entry)) is not None
    )
    for loop, entries in in_loops.items():
        slow = [
            (entry, dot)
            for entry in entries
            if entry.name == COMPUTE_BOUND
            and _SLOW * entry.t_compute < efficiency * entry.total
            and (dot := _dot_of(entry)) is not None
        ]
        if not slow or loop is None or (of.trips(loop) or 0) < 2:
            continue
        rounds = Rounds(loop)
        for entry, dot in slow:
            same_line = by_line[own_line_of(dot, of.is_own)]
            phases = {other.executions.op.phase for other in same_line}
            n_bytes = sum(array.n_bytes or 0 for array in dot.arrays or ()) * entry.executions.n
            is_forward = entry.executions.op.phase not in ("backward", "recompute")
            if (
                is_forward
                and "recompute" not in phases
                and rounds.is_independent(dot)
                and n_bytes <= _MOST_BYTES
            ):
                backward = [each for each in same_line if each.executions.op.phase == "backward"]
                yield from _cause(of, [entry, *backward], entries, efficiency, n_bytes)


def _dot_of(entry: Entry) -> Instruction | None:
    """Return the only matmul of an op, or None."""
    here = entry.executions.op.instruction
    dots = [part for part in (here, *here.inside()) if part.opcode in DOTS] if here else []
    return dots[0] if len(dots) == 1 else None


def _efficiency_of(entries: Iterable[Entry]) -> float:
    """Return the efficiency of the step's matmuls outside of loops."""
    math = [entry for entry in entries if entry.name == COMPUTE_BOUND]
    total = sum(entry.total for entry in math)
    return float(sum(entry.t_compute for entry in math) / total) if total else _EFFICIENCY


def _cause(
    of: StepProgram,
    matmuls: Sequence[Entry],
    entries: Iterable[Entry],
    efficiency: float,
    n_bytes: int,
) -> Iterator[Cause]:
    """Yield the cause if the matmuls save more time than the slices of the result need."""
    slices = [ran for entry in matmuls for ran in _only_slices_for(of, entry)]
    of_inputs = [ran for ran in slices if ran.op.phase != "backward"]
    read = sum(ran.n * (array.n_bytes or 0) for ran in of_inputs for array in _arrays(ran))
    # A slice of the result takes as long per byte as a slice of the inputs, or as the longest op of
    # the loop that only moves slices.
    others = (entry.total for entry in entries if _moves_slices(entry.executions.op.instruction))
    needed = total_of(of_inputs) * n_bytes / read if read else max(others, default=0)
    then = [float(entry.t_compute) / efficiency for entry in matmuls]
    members = [entry.executions for entry in matmuls]
    if total_of(members) + total_of(slices) - sum(then) - needed < of.floor:
        return
    changes: list[Change] = [Remove(slices)]
    changes += [Retime(ran, new) for ran, new in zip(members, then, strict=True)]
    changes[1] = Retime(members[0], then[0] + needed)
    yield Cause(
        f"<line> multiplies in each of {members[0].n} rounds of a loop, although the matmul needs"
        f" no other round. One matmul before the loop, whose result has {size(n_bytes)}, would save"
        " <gain>.",
        REMEDY,
        SEEN,
        [*members, *slices],
        changes,
        place=place_of(members[0].op),
    )


def _only_slices_for(of: StepProgram, entry: Entry) -> Iterator[Executions]:
    """Yield the ops that only take a slice for this op."""
    here = entry.executions.op.instruction
    for source in here.operands if here else ():
        ran = of.ran.get(source)
        if ran and list(source.users) == [here] and _moves_slices(source):
            yield ran


def _moves_slices(op: Instruction | None) -> bool:
    opcodes = {part.opcode for part in (op, *op.inside())} if op else set()
    return not opcodes.isdisjoint(_SLICES) and opcodes.isdisjoint(DOTS)


def _arrays(ran: Executions) -> Sequence[Array]:
    return (ran.op.instruction.arrays if ran.op.instruction else None) or ()
