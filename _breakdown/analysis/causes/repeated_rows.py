"""Find matmuls of rows that are copies of each other."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.causes.shared.cause import SEEN, Cause
from _breakdown.analysis.causes.shared.resized import cause_of, longest_of, sizes_of
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of, total_of
from _breakdown.analysis.sizes.edges import MATMUL
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted, time

REMEDY = (
    "Apply the layer to the small array and broadcast its result, instead of broadcasting the input"
    " of the layer."
)


def find(of: StepProgram) -> Iterator[Cause]:
    sizes = sizes_of(of)
    found = sizes.ops_of(MATMUL, sizes.repeat)
    for rows in grouped((place_of(row.ran.op).source_user, row) for row in found).values():
        total = time(total_of([row.ran for row in rows]))
        says = (
            f"{total} in {counted(len(rows), 'op')} at <line> go to a matmul of rows that are"
            f" repeated {round(1 / longest_of(rows).moved.left)} times. Multiplying one copy would"
            " save <gain>."
        )
        yield cause_of(rows, says, REMEDY, SEEN)
