"""Find ops whose result a later op mostly discards."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.dims import TAKING
from _breakdown.analysis.arrays.graph import LAYOUT, STRUCTURE
from _breakdown.analysis.causes.shared.cause import SEEN, Cause
from _breakdown.analysis.causes.shared.resized import Resized, cause_of, longest_of, sizes_of
from _breakdown.analysis.causes.shared.sentences import line_says
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of, total_of
from _breakdown.analysis.sizes.edges import MATMUL, OTHER
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted, time

WHAT_HELPS = (
    "Take the part first: pick the positions or rows, and apply the layer or function only to"
    " these."
)
FOR_COPIES = (
    "Take the part from the whole array, with all indices at once: pass an array to a loop as it"
    " is, not as what it scans, and index it with the layer and the rows."
)
_COPYING = STRUCTURE | LAYOUT | TAKING | {"constant"}


FOR_ZEROS = (
    "Compute only with the elements that are not zero: pad or scatter results as late as possible,"
    " and multiply by a vector instead of a diagonal matrix."
)


def find(of: StepProgram) -> Iterator[Cause]:
    sizes = sizes_of(of)
    explained = of.explained_by("large_intermediate", "parameter_relayout")
    found = [
        *sizes.ops_of(MATMUL, sizes.part, sizes.zero),
        *(
            row
            for row in sizes.ops_of(OTHER, sizes.part, sizes.zero)
            if id(row.ran) not in explained and not _writes_zeros(of, row)
        ),
    ]
    for rows in grouped((of.place_at(row.moved.seed).source_user, row) for row in found).values():
        # A mask has rows of both laws, if a softmax follows.
        longest = longest_of([row for row in rows if row.law is sizes.part] or rows)
        array, copied, remedy, does = longest.value.array, "", WHAT_HELPS, "takes"
        op = longest.ran.op.instruction
        if longest.law is sizes.zero:
            does, remedy = "leaves zeros except for", FOR_ZEROS
        elif op and op.opcodes <= _COPYING:
            copied = f", of which {line_says(place_of(longest.ran.op))} copies all"
            remedy = FOR_COPIES
        n = array.n_elements if array else 0
        says = (
            f"<line> {does} {round(longest.moved.left * n)} of the {n} elements of {longest.shape}"
            f"{copied}. Computing only this part would save <gain> of the"
            f" {time(total_of([row.ran for row in rows]))} in {counted(len(rows), 'op')}."
        )
        yield cause_of(rows, says, remedy, SEEN, of.place_at(longest.moved.seed))


def _writes_zeros(of: StepProgram, row: Resized) -> bool:
    """Return whether an op itself puts an array between zeros, and returns all of them."""
    is_zero = row.law is sizes_of(of).zero and row.value.instruction is row.ran.op.instruction
    return is_zero and of.executed(row.moved.seed) is row.ran
