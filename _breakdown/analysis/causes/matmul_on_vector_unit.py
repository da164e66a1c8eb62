"""Find matmuls that the compiler runs as multiplications and sums on the vector unit."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Gain
from _breakdown.analysis.arrays.graph import is_dot_general
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.sentences import clipped
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of_longest, total_of
from _breakdown.analysis.roof.limits import FAR_FROM_ROOF
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted, percentage
from _proto.hlo.program import Instruction

_MXU = frozenset(("dot", "convolution", "ragged-dot", "custom-call"))
# Ops that take at least 1 / `_SHORTEST` of the step are examined.
_SHORTEST = 300
# The matrix unit would not be faster at sums of fewer products.
_FEWEST_TERMS = 32
# In the only known pair of captures, such matmuls reached 80 % of the HBM's peak with the cache in
# another order; slower writes into it took half of the time that this saves.
_EFFICIENCY = 0.8
_ESTIMATE, _LEAST, _MOST = 0.6, 0.4, 1.0

REMEDY = (
    "Store the array with its dimensions in another order, such as a KV cache with the sequence"
    " last, and measure: writing into it can become slower."
)


def find(of: StepProgram) -> Iterator[Cause]:
    # A matrix for each row keeps products off the matrix unit in any order of dimensions.
    left_out = of.explained_by("repeated_rows")
    found = [
        (of.place_at(part)[:2], entry)
        for entry in of.ledger
        # Ops whose arrays are on the chip have no roof to compare with.
        if entry.t_memory
        and id(entry.ran) not in left_out
        and entry.total * _SHORTEST >= of.step.duration
        and (part := _sum_of(entry.ran.op.instruction))
    ]
    for (user, inner), entries in grouped(found).items():
        members = [entry.ran for entry in entries]
        at_roof = sum(float(entry.t_memory or 0) for entry in entries)
        total = total_of(members)
        if at_roof >= FAR_FROM_ROOF * total:
            continue
        saved = total - at_roof / _EFFICIENCY
        yield Cause(
            f"The core runs {counted(sum(ran.n for ran in members), 'matmul')} of"
            f" {_largest(of, members)} at <line> as multiplications and sums on the vector unit, at"
            f" {percentage(100 * at_roof / total)} of HBM's bandwidth, probably because of the"
            " array's order of dimensions. With another one, the step would save <gain>.",
            REMEDY,
            LIKELY,
            members,
            measured=Gain(*(round(part * saved) for part in (_ESTIMATE, _LEAST, _MOST))),
            place=place_of_longest(members)._replace(source_user=user, source_inner=inner),
        )


def _sum_of(here: Instruction | None) -> Instruction | None:
    """Return the sum of an op that multiplies matrices without the matrix unit."""
    if here is None or not _MXU.isdisjoint(here.opcodes):
        return None
    sums = (part for part in here.parts_with({"reduce"}) if _is_matmul(part))
    return next(sums, None)


def _is_matmul(part: Instruction) -> bool:
    terms, sums = next(iter(part.operand_arrays), None), part.arrays
    is_long = terms and sums and terms[0].n_elements >= _FEWEST_TERMS * sums[0].n_elements
    return bool(is_long) and is_dot_general(part)


def _largest(of: StepProgram, members: list[Executions]) -> str:
    """Return the name and shape of the largest array that the ops read."""
    uses = (use for ran in members for use in of.arrays.uses_of.get(ran, ()))
    read = [array for array, use in uses if not use.is_write]
    array = max(read, key=lambda array: array.shape.n_bytes or 0, default=None)
    if array is None:
        return "arrays"
    return f"{clipped(array.name)} ({array.shape.text})" if array.name else array.shape.text
