"""Find matmuls that multiply f32 in several passes, because a higher precision is set."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.step_program import StepProgram, total_of
from _breakdown.units import counted, time
from _proto.hlo.dots import passes_of

# Phases of a program that trains; the optimizer has another.
_MODEL = ("forward", "recompute", "backward")
WHAT_HELPS = (
    "Leave out precision, and set jax_default_matmul_precision to default; keep a higher precision"
    " only around matmuls that need it."
)


def find(of: StepProgram) -> Iterator[Cause]:
    precise = {
        entry: passes
        for entry in of.ledger
        if entry.cost
        and entry.cost.precision.dtype == "fp32"
        and (here := entry.ran.op.instruction)
        and (passes := passes_of(here)) > 1
    }
    if precise and of.trains:
        precise = {e: n for e, n in precise.items() if e.ran.op.phase in _MODEL}
    if not precise:
        return
    members = [entry.ran for entry in precise]
    yield Cause(
        f"{counted(len(members), 'matmul')} of f32 take {time(total_of(members))}, with most time"
        f" at <line>, because the precision that is set needs {max(precise.values())} passes of"
        " bf16. One pass would save <gain>.",
        WHAT_HELPS,
        LIKELY,
        members,
        [
            Retime(entry.ran, max(entry.total / passes, float(entry.t_memory or 0)))
            for entry, passes in precise.items()
        ],
    )
