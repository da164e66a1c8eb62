"""Find the causes of a step: run the detectors on its programs and rank what they find."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from _analysis.causes.cause import Cause
    from _analysis.ledger import Entry
    from _analysis.roofs import Roofs
    from _pipeline.context import Context
    from _pipeline.normalize import Step

# Rows that gain less are left out: a share of the step of 1 / 200.
_SMALLEST_SHARE = 200


def causes_of(
    step: Step, ledger: Sequence[Entry], roofs: Roofs
) -> list[Cause]:
    from _analysis.causes import collective_in_loop, widened_dtype
    from _analysis.causes.step_program import StepProgram
    from _analysis.causes import recompute
    found = recompute.find(step)
    for program_id, program in {e.executions.op.program_id: e.executions.op.program for e in ledger}.items():
        if program is not None:
            of = StepProgram(step, program_id, program, ledger, roofs)
            for d in (collective_in_loop, widened_dtype):
                found += d.find(of)
            from _analysis.causes import resharding, layout_change
            r = resharding.find(of)
            from _analysis.causes import one_hot_matmul, synchronous_collective, not_donated, large_intermediate
            found += large_intermediate.find(of)
            found += one_hot_matmul.find(of) + not_donated.find(of) + synchronous_collective.find(of, {id(e) for c in found if c.confidence == "seen" for e in c.executions})
            found += r + layout_change.find(of, {id(e) for c in r for e in c.executions})
    return sorted(found, key=lambda c: -c.gain_ps)
