"""Find matmuls that multiply f32 in several passes, because a higher precision is set.

needs: a program
headline: Matmuls in higher precision

What it finds: Matmuls and convolutions of f32 operands with `precision` HIGH or HIGHEST, often
because `jax_default_matmul_precision` was set to compare results with another machine.

Why it costs: The matrix unit multiplies bf16. At the default precision, it rounds f32 operands and
multiplies them once. At HIGH, it multiplies parts of them in 3 passes, and at HIGHEST in 6, or half
as many if one operand is bf16. The gain assumes one pass, but at least the time that the bytes need
at the peak bandwidth.

How the program shows it: An operand of the matmul is f32 and has a higher precision. All such
matmuls are one cause, because one setting often decides on all of them; the line is the one with
the most time. In a program with a backward pass, only the forward and the backward pass count,
because an optimizer that multiplies matrices may need f32. The cause is always `likely`. Operands
that were bf16 before they became f32 need no more passes, because the compiler undoes the cast.

What to change: Leave out `precision`, or set `jax_default_matmul_precision` to `default`, and keep
a higher precision for the few matmuls that need it, with `jax.default_matmul_precision` around
them.

When it is intended: Linear algebra, such as solving equations or orthogonalising matrices, physics,
and positions or logits that must be exact.

Example:

    # Before: six passes for each matmul of the layer
    h = jnp.dot(x, w, precision=lax.Precision.HIGHEST)
    # After: one pass
    h = jnp.dot(x, w)
"""

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
        and (here := entry.executions.op.instruction)
        and (passes := passes_of(here)) > 1
    }
    if precise and of.trains:
        precise = {e: n for e, n in precise.items() if e.executions.op.phase in _MODEL}
    if not precise:
        return
    members = [entry.executions for entry in precise]
    yield Cause(
        f"{counted(len(members), 'matmul')} of f32 take {time(total_of(members))}, with most time"
        f" at <line>, because the precision that is set needs {max(precise.values())} passes of"
        " bf16. One pass would save <gain>.",
        WHAT_HELPS,
        LIKELY,
        members,
        [
            Retime(entry.executions, max(entry.total / passes, float(entry.t_memory or 0)))
            for entry, passes in precise.items()
        ],
    )
