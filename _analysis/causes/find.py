"""Find the causes in a step: run the detectors on the step and its programs, and rank the
causes."""

from __future__ import annotations

from collections.abc import Sequence

from _analysis.causes import kernel_waits_for_input, recompute
from _analysis.causes.cause import Cause
from _analysis.causes.sentences import listed
from _analysis.comm.peers import Peers
from _analysis.idle.periods import Periods
from _analysis.kernel.kernel_regions import Inside
from _analysis.roof.ledger import Entry
from _analysis.roof.roofs import Roofs
from _pipeline.context import Context
from _pipeline.normalize import Step

# Causes that gain less than 1 / `_SMALLEST_PART` of the step or period are omitted. Programs that
# take less than this share of the step are not examined.
_SMALLEST_PART = 200


def causes_of(
    step: Step,
    ledger: Sequence[Entry],
    inside: Inside,
    roofs: Roofs,
    periods: Periods | None,
    peers: Peers | None,
    context: Context,
) -> list[Cause]:
    """Return the causes, sorted by gain, largest first.

    Recomputation comes after all other causes that cost time, because saving the activations takes
    time, too, so the gain can be far smaller than the estimate. In two examined pairs of captures
    that differ only in recomputation, the step without recomputation was even slower. Causes that
    cost only memory come last.
    """
    found = [
        *recompute.find(step, context),
        *kernel_waits_for_input.find(step, inside),
        *_of_programs(step, ledger, roofs, context),
    ]
    if peers:
        from _analysis.causes import slow_device

        found += slow_device.find(step, peers)
    causes = [
        cause
        for cause in found
        if cause.gain_bytes or (cause.gain_ps and cause.gain_ps * _SMALLEST_PART >= step.duration)
    ]
    if periods and periods.mean_pause * _SMALLEST_PART >= periods.mean > 0:
        # Reading the host's events takes time, so read them only if there is a pause.
        from _analysis.causes import pause_between_steps

        causes += [
            cause
            for cause in pause_between_steps.find(step, periods, context)
            if cause.gain_ps * _SMALLEST_PART >= periods.mean
        ]
    causes.sort(
        key=lambda cause: (
            not cause.gain_ps,
            cause.cause == recompute.RECOMPUTE,
            -cause.gain_ps,
            -(cause.gain_bytes or 0),
        )
    )
    context.warn(*_overlap_notes(causes))
    return causes


def _of_programs(
    step: Step, ledger: Sequence[Entry], roofs: Roofs, context: Context
) -> list[Cause]:
    entries_of: dict[int | None, list[Entry]] = {}
    for entry in ledger:
        entries_of.setdefault(entry.executions.op.program_id, []).append(entry)
    found: list[Cause] = []
    has_program = not ledger
    for entries in entries_of.values():
        if sum(entry.total for entry in entries) * _SMALLEST_PART < step.duration:
            continue
        program = entries[0].executions.op.program
        if program is not None:
            # Import late, because captures without programs do not need these modules.
            from _analysis.causes.in_program import causes_in_program
            from _analysis.causes.step_program import StepProgram

            has_program = True
            found += causes_in_program(StepProgram(step, program, entries, roofs))
    if not has_program:
        context.warn(
            "the capture does not contain the program of this step, so causes can only"
            " include pause_between_steps, recompute, recomputed_repeatedly,"
            " kernel_waits_for_input and slow_device"
        )
    return found


def _overlap_notes(causes: Sequence[Cause]) -> list[str]:
    """Return a note that lists the causes that share executions, if there are any."""
    members = [
        {executions.metadata_id for executions in cause.evidence.executions} for cause in causes
    ]
    overlapping: list[str] = [
        cause.cause
        for i, (cause, mine) in enumerate(zip(causes, members, strict=True))
        if any(mine & others for j, others in enumerate(members) if j != i)
    ]
    if not overlapping:
        return []
    names = listed(list(dict.fromkeys(overlapping)))
    return [f"don't add up the gains of {names}, because they share executions"]
