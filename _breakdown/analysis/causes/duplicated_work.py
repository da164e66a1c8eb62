"""Find work that several devices do in the same way, although each could do a part of it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.duplicates import Duplicates
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of_longest, total_of
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.vocabulary import COMPUTE
from _breakdown.units import size

# An op of this time, in picoseconds, does not get shorter: it mostly waits for memory.
_SHORTEST = 2_000_000
_LOST = (
    " find the op at which an array loses its sharding, such as a constraint, a reshape whose"
    " divided dimension is not the first of those that it merges, or a sort along the divided"
    " dimension. Constrain what it gets and returns (with_sharding_constraint)."
)
# Advice if a collective makes an input whole, and if inputs of the program are whole.
FOR_PARTS = (
    "Keep the array divided: let each device compute on its part, and exchange the results. If the"
    f" compiler added the collective,{_LOST}"
)
FOR_INPUTS = (
    "Split a weight that is whole on each device, or divide the inputs of the program."
    f" Otherwise{_LOST}"
)


def find(of: StepProgram) -> Iterator[Cause]:
    duplicates = Duplicates(of)
    explained = of.explained_by("oversized_transfer", "sum_too_late")
    for members in duplicates.groups():
        saved = {
            change.ran: change.ran.total - change.time for change in duplicates.divided(members)
        }
        computing = sum(saved[ran] for ran in members if ran.op.kind == COMPUTE)
        # Copies and collectives alone are the business of other rules.
        is_work = max(of.floor, sum(saved[ran] for ran in members) / 2) <= computing
        is_long = any(ran.total > ran.n * _SHORTEST for ran in members)
        if is_work and is_long and explained.isdisjoint(map(id, saved)):
            yield _cause(duplicates, members)


def _cause(duplicates: Duplicates, members: Sequence[Executions]) -> Cause:
    ranked = sorted(members, key=lambda ran: -ran.total)
    longest = ranked[0]
    inputs = list(duplicates.inputs(members))
    why = ""
    if inputs:
        array = max((array for array, _ in inputs), key=lambda array: array.shape.n_bytes or 0)
        why = f", such as {array.shape.text} ({size(array.shape.n_bytes or 0)}) after a collective"
    return Cause(
        f"{duplicates.n_of[longest]} devices run the same ops on the same data at <line>: the"
        f" inputs are whole on each of them{why}. Dividing the work would save <gain>.",
        FOR_PARTS if inputs else FOR_INPUTS,
        LIKELY,
        [*members, *(ran for _, makers in inputs for ran in makers)],
        duplicates.divided(members),
        place=place_of_longest(_most_of(ranked)),
    )


def _most_of(ranked: Sequence[Executions]) -> list[Executions]:
    """Return the longest ops that together take nine tenths of the time."""
    sums = accumulate((ran.total for ran in ranked), initial=0)
    total = total_of(ranked)
    return [ran for ran, before in zip(ranked, sums, strict=False) if 10 * before < 9 * total]
