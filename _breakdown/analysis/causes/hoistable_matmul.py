"""Find matmuls in a loop's body that one matmul before the loop could do for all rounds."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Remove, Retime
from _breakdown.analysis.causes.shared.cause import SEEN, Cause
from _breakdown.analysis.causes.shared.loop_matmuls import (
    bias_gradients,
    inputs_of,
    moves_slices,
    only_dot,
    slices_for,
)
from _breakdown.analysis.causes.shared.step_program import StepProgram, own_line_of, place_of
from _breakdown.analysis.roof.ledger import COMPUTE_BOUND, Entry
from _breakdown.units import size
from _proto.hlo.program import Instruction

# One part in 32 of the memory of the smallest chips.
_MOST_BYTES = 1 << 29
# The efficiency of large matmuls if the step has none.
_EFFICIENCY = 0.5
_LATER = ("backward", "recompute")

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
        if loop and entry.t_compute and (dot := only_dot(entry))
    ]
    for loop, entry, dot in matmuls:
        trips = of.trips(loop) or 1
        n_bytes = sum(array.n_bytes or 0 for array in dot.arrays or ()) * trips
        is_later = entry.executions.op.phase in _LATER
        if is_later or trips == 1 or not 0 < n_bytes <= _MOST_BYTES:
            continue
        if not of.rounds_of(loop).is_independent(dot):
            continue
        line, inputs = own_line_of(dot, of.is_own), inputs_of(of, dot)
        again = [
            other
            for _, other, its in matmuls
            if other.executions.op.phase in _LATER
            and own_line_of(its, of.is_own) == line
            and inputs & inputs_of(of, its)
        ]
        if "recompute" in {other.executions.op.phase for other in again}:
            continue
        yield _cause(of, loop, [entry, *again], efficiency, n_bytes)


def _cause(
    of: StepProgram, loop: Instruction, matmuls: list[Entry], efficiency: float, n_bytes: int
) -> Cause:
    members = [entry.executions for entry in matmuls]
    # More rows cannot make a matmul less efficient.
    efficiency = max(efficiency, float(matmuls[0].t_compute) / max(1, matmuls[0].total))
    then = [min(entry.total, float(entry.t_compute) / efficiency) for entry in matmuls]
    of_inputs = list(slices_for(of, members[0]))
    stored = [ran for member in members[1:] for ran in slices_for(of, member)]
    summed = list(bias_gradients(of, members))
    # Without a slice of the inputs, assume the time of the longest op of the loop that only moves
    # slices.
    others = (entry.total for entry in of.by_loop[loop] if moves_slices(entry.executions))
    then[0] += 0 if of_inputs else max(others, default=0)
    return Cause(
        f"<line> multiplies in each of {of.trips(loop)} rounds of a loop, although the matmul needs"
        f" no other round. One matmul before the loop, whose result has {size(n_bytes)}, would save"
        " <gain>.",
        REMEDY,
        SEEN,
        [*members, *summed, *stored],
        [
            Remove(summed),
            *map(Retime, members, then),
            *(Retime(ran, ran.total / 2) for ran in stored),
        ],
        place=place_of(members[0].op),
    )
