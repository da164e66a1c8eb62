"""Find collectives that bring whole arrays to devices that each keep only a part."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.resized import cause_of, sizes_of
from _breakdown.analysis.causes.shared.step_program import (
    StepProgram,
    collective_name_of,
    counts_of,
)
from _breakdown.analysis.sizes.edges import EXCHANGE
from _breakdown.pipeline.groups import grouped

FOR_SUMS = (
    "Use psum_scatter instead of psum and a slice, or give the result the sharding of its slices,"
    " so that the compiler creates a reduce-scatter."
)
FOR_GATHERS = (
    "Look near this line for a with_sharding_constraint, in_specs or parameter spec that splits a"
    " different dimension than its neighbours. If there is none, try constraints on the"
    " activations, and measure."
)


def find(of: StepProgram) -> Iterator[Cause]:
    sizes = sizes_of(of)
    cut = [row for row in sizes.ops_of(EXCHANGE, sizes.part) if row.is_own_part]
    by_name = grouped((collective_name_of(row.ran.op), row) for row in cut)
    for name, rows in by_name.items():
        is_sum = name == "all-reduce"
        what = "sums are" if is_sum else "arrays are"
        instead = "A reduce-scatter" if is_sum else "Matching shardings"
        says = (
            f"Whole {what} sent to all devices by {counts_of([row.ran for row in rows])}, with most"
            f" time at <line>, but each device then keeps only a part. {instead} would save <gain>."
        )
        remedy = FOR_SUMS if is_sum else FOR_GATHERS
        yield cause_of(rows, says, remedy, SEEN if is_sum else LIKELY)
