"""Find collectives of arrays that are summed afterwards, although the sums could move instead."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.causes.shared.cause import SEEN, Cause
from _breakdown.analysis.causes.shared.resized import cause_of, longest_of, sizes_of
from _breakdown.analysis.causes.shared.sentences import line_says
from _breakdown.analysis.causes.shared.step_program import (
    StepProgram,
    counts_of,
    place_of_longest,
)
from _breakdown.analysis.sizes.edges import EXCHANGE
from _breakdown.pipeline.groups import grouped

REMEDY = (
    "Sum first, and let the collective move the sums: take the psum or the sharding constraint of"
    " the summed array instead of the array before the sum."
)


def find(of: StepProgram) -> Iterator[Cause]:
    sizes = sizes_of(of)
    found = sizes.ops_of(EXCHANGE, sizes.sum)
    for rows in grouped((of.place_at(row.moved.seed).source_user, row) for row in found).values():
        ops, longest = [row.ran for row in rows], longest_of(rows)
        says = (
            f"<line> sums {longest.shape} over {round(1 / longest.left)} elements, after"
            f" {counts_of(ops)} at {line_says(place_of_longest(ops))} moved all of them. Summing"
            " first, and moving the sums, would save <gain>."
        )
        yield cause_of(rows, says, REMEDY, SEEN, of.place_at(longest.moved.seed))
