"""Find matmuls that the compiler runs in pieces, while devices pass on an operand in a ring."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from _breakdown.analysis.arrays.engine import Gain
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.step_program import StepProgram, total_of
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.vocabulary import COMM
from _breakdown.units import counted, time

_PERMUTE, _MATMUL = "collective-permute", "dot_general"
# The largest gain is that of other causes. The least is 0: the evidence from chips is of FSDP on
# v6e only, and a gather that nothing hides can take longer than the ring.
_MOST = 1.6
# A gain of less than 1 / `_SMALLEST` of the step is within what the gather can take.
_SMALLEST = 50

REMEDY = (
    "Try xla_tpu_all_gather_collective_matmul_mode=none and"
    " xla_tpu_reduce_scatter_collective_matmul_mode=none in the compiler options, and measure."
)


def find(of: StepProgram) -> Iterator[Cause]:
    # Permutes that the code calls have a primitive of their own, such as `ppermute`.
    rings = {
        ran.op.path
        for ran in of.collectives
        if ran.op.waits_for == _PERMUTE and ran.op.scope and ran.op.scope.primitive == _MATMUL
    }
    members = [ran for ran in of.leaves if rings and ran.op.path in rings and not _sums(ran)]
    pieces = [ran for ran in members if ran.op.dot]
    if not pieces:
        return
    # Without rings, no op cuts and joins pieces, and matmuls are as efficient as the others.
    between = [ran for ran in members if not ran.op.dot]
    whole = [ran for ran in of.leaves if ran.op.dot and ran.op.path not in rings]
    slow, fast = _flops_per_ps(of, pieces), _flops_per_ps(of, whole)
    lost = total_of(pieces) * max(0.0, 1 - slow / fast) if fast else 0.0
    saved = total_of(between) + lost
    if saved * _SMALLEST < of.step.duration:
        return
    share = 100 * slow / fast if fast else 100
    yield Cause(
        f"The compiler runs {counted(len(rings), 'matmul')} in pieces, most of them at <line>, to"
        " pass on operands from device to device meanwhile. Passing, cutting and joining takes"
        f" {time(total_of(between))}, and pieces reach {share:.0f} % of"
        " the speed of whole matmuls.",
        REMEDY,
        LIKELY,
        members,
        measured=Gain(round(saved), 0, round(_MOST * saved)),
    )


def _sums(ran: Executions) -> bool:
    """Return whether an op is another collective at the same matmul, which stays."""
    return ran.op.kind == COMM and ran.op.waits_for != _PERMUTE


def _flops_per_ps(of: StepProgram, dots: Sequence[Executions]) -> float:
    wanted = set(dots)
    entries = (entry for entry in of.ledger if entry.ran in wanted)
    flops = sum((entry.cost.flops or 0) * entry.ran.n for entry in entries if entry.cost)
    return flops / max(1, total_of(dots))
