"""Find ops on arrays of pairs, whose last dimension has two elements."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.step_program import StepProgram, total_of
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.vocabulary import COMPUTE, DATA_MOVE
from _breakdown.units import counted, time
from _proto.hlo.shapes import Array

# Ignore smaller arrays, which cost almost nothing.
_MIN_BYTES = 1 << 20

REMEDY = (
    "Compute on two separate arrays (jnp.split and jnp.concatenate) instead of pairs (reshape,"
    " x[..., ::2], jnp.stack). Only if neighbouring elements are a pair, reorder the columns of the"
    " weights, so that the pairs become two halves."
)


def find(of: StepProgram) -> Iterator[Cause]:
    hbm = of.roofs.hbm
    # Scores of groups of two heads can end in a dimension of 2 without being pairs.
    left_out = of.explained_by("large_intermediate", "parameter_relayout", "resharding")
    pairs = {
        ran: array for ran in of.long_ops if id(ran) not in left_out and (array := _pairs_of(ran))
    }
    if not pairs or not hbm:
        return
    members = list(pairs)
    total, shape = total_of(members), pairs[members[0]].text
    needed = {
        ran: min(ran.total, round(2 * ran.n * _n_bytes(array) / hbm))
        for ran, array in pairs.items()
    }
    yield Cause(
        f"{counted(len(members), 'op')} on arrays whose last dimension is 2, such as {shape}, take"
        f" {time(total)}, with most time at <line>. Moving the bytes takes only"
        f" {time(sum(needed.values()))}, so another layout would save <gain>.",
        REMEDY,
        LIKELY,
        members,
        [Retime(ran, least) for ran, least in needed.items()],
        evidence={"shape": shape},
    )


def _pairs_of(ran: Executions) -> Array | None:
    """Return a large array of pairs (last dimension 2) that an op writes or reads, or None."""
    here = ran.op.instruction
    if here is None or ran.op.kind not in (COMPUTE, DATA_MOVE) or ran.op.dot:
        return None
    operands = (array for arrays in here.operand_arrays for array in arrays or ())
    of_op = [*(here.arrays or ()), *operands]
    pairs = [array for array in of_op if len(array.dims) > 2 and array.dims[-1] == 2]
    if not pairs:
        return None
    # Exclude ops with a much larger array, because the pairs are only a part of their work.
    least = max(_MIN_BYTES, max(map(_n_bytes, of_op)) // 2)
    return next((array for array in pairs if _n_bytes(array) >= least), None)


def _n_bytes(array: Array) -> int:
    return array.n_bytes or 0
