"""Find collectives and matmuls of arrays that are summed afterwards, although the sums could be
made first."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.resized import cause_of, longest_of, sizes_of
from _breakdown.analysis.causes.shared.sentences import line_says
from _breakdown.analysis.causes.shared.step_program import (
    StepProgram,
    counts_of,
    place_of_longest,
)
from _breakdown.analysis.sizes.edges import EXCHANGE, MATMUL
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted

FOR_COLLECTIVES = (
    "Sum first, and let the collective move the sums: take the psum or the sharding constraint of"
    " the summed array instead of the array before the sum."
)
FOR_MATMULS = "Sum the rows first, with their weights, and multiply the sums."


def find(of: StepProgram) -> Iterator[Cause]:
    sizes = sizes_of(of)
    found = [row for kind in (EXCHANGE, MATMUL) for row in sizes.ops_of(kind, sizes.sum)]
    keyed = (((row.kind, of.place_at(row.moved.seed).source_user), row) for row in found)
    for (kind, _), rows in grouped(keyed).items():
        ops, longest = [row.ran for row in rows], longest_of(rows)
        is_sent = kind == EXCHANGE
        before = counts_of(ops) if is_sent else counted(len(ops), "matmul")
        says = (
            f"<line> sums {longest.shape} over {round(1 / longest.moved.left)} elements, after"
            f" {before} at {line_says(place_of_longest(ops))}"
            f" {'moved' if is_sent else 'computed'} all of them. Summing first"
            f"{', and moving the sums,' if is_sent else ''} would save <gain>."
        )
        remedy = FOR_COLLECTIVES if is_sent else FOR_MATMULS
        place = of.place_at(longest.moved.seed)
        yield cause_of(rows, says, remedy, SEEN if is_sent else LIKELY, place)
