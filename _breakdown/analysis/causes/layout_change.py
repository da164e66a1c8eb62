"""Find copies inside the program that only change the order of an array's elements in memory."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import removal_of
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.copies import changes_layout
from _breakdown.analysis.causes.shared.sentences import clipped
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted

REMEDY = (
    "Use the same order of dimensions before and after the copies: let einsum transpose, and avoid"
    " reshapes that split or interleave the last dimension."
)


def find(of: StepProgram) -> Iterator[Cause]:
    left_out = of.explained_by(
        "parameter_relayout", "array_of_pairs", "resharding", "computed_then_dropped"
    )
    changes = [
        ran
        for ran in of.long_ops
        if id(ran) not in left_out and ran.op.instruction and changes_layout(ran.op.instruction)
    ]
    places = ((place_of(ran.op), ran) for ran in changes)
    rows = grouped((place.source_user or place.source_inner, ran) for place, ran in places)
    for members in rows.values():
        longest = max(members, key=lambda ran: ran.total)
        shape = longest.op.instruction.shape if longest.op.instruction else None
        n = sum(ran.n for ran in members)
        only, them = ("only changes", "it") if n == 1 else ("only change", "them")
        yield Cause(
            f"{counted(n, 'copy')} at <line> {only} the layout of arrays such as"
            f" {clipped(shape or '?')}. Without {them}, the step would save <gain>.",
            REMEDY,
            LIKELY,
            members,
            removal_of(members),
            evidence={"shape": shape},
        )
