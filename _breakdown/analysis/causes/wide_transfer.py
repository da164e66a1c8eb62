"""Find collectives that move numbers in a wider dtype than the ops before or after them use."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.resized import cause_of, sizes_of
from _breakdown.analysis.causes.shared.step_program import StepProgram, total_of
from _breakdown.analysis.sizes.edges import EXCHANGE
from _breakdown.units import time

REMEDY = (
    "Let the collective move the narrow dtype: cast to it before a gather, so that gradients are"
    " added up in this dtype, too, or before a reduction of your own. Cast to a wider dtype, and"
    " apply scales, after the collective."
)


def find(of: StepProgram) -> Iterator[Cause]:
    sizes = sizes_of(of)
    found = sizes.ops_of(EXCHANGE, sizes.narrow, sizes.origin, sizes.addend)
    if rows := [row for row in found if not row.is_repeated]:
        says = (
            f"{time(total_of([row.ran for row in rows]))} of collectives, most of it at <line>, go"
            " to numbers in a wider dtype than the ops beside them use. Casting first would save"
            " <gain>."
        )
        yield cause_of(rows, says, REMEDY, LIKELY)
