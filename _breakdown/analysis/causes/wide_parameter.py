"""Find parameters that every step reads in a wider dtype than it computes in."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Change, Resize, removal_of
from _breakdown.analysis.arrays.graph import STRUCTURE
from _breakdown.analysis.arrays.of_step import is_float
from _breakdown.analysis.causes.shared.cause import SEEN, Cause
from _breakdown.analysis.causes.shared.resized import sizes_of
from _breakdown.analysis.causes.shared.sentences import clipped
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.pipeline.executions import Executions
from _breakdown.units import counted, size
from _proto.hlo.text import HBM

REMEDY = (
    "Cast weights once, when they are loaded (param_dtype in Flax), and pass inputs in the dtype in"
    " which the step computes."
)
# Smaller parameters, such as scales of norms, cost almost nothing.
_MIN_BYTES = 1 << 20
# Bits of the floats that parameters have if nobody forgot their dtype.
_NARROW = 16


def find(of: StepProgram) -> Iterator[Cause]:
    if of.trains:
        return
    sizes = sizes_of(of)
    wide = {
        array: moved.left
        for array in of.arrays
        if array.is_parameter
        and not array.written
        and not array.is_result
        and (array.shape.n_bytes or 0) >= _MIN_BYTES
        and is_float(array.shape.dtype)
        and (array.shape.bits or 0) > _NARROW
        and (moved := sizes.narrow.left(array.value))
    }
    if not wide:
        return
    readers = dict.fromkeys(use.ran for array in wide for use in array.reads)
    casts = [ran for ran in readers if _only_casts(ran)]
    changes: list[Change] = [Resize(array.value, narrow) for array, narrow in wide.items()]
    largest = max(wide, key=lambda array: array.read)
    total = sum(array.read for array in wide)
    yield Cause(
        f"Each step reads {counted(len(wide), 'parameter')} such as"
        f" {clipped(largest.name or largest.shape.text)}, and casts what it reads to a"
        f" narrower dtype, mostly at <line>. Of the {size(total)} that are read, half or more is"
        " not needed: storing the narrow dtype would save <gain>.",
        REMEDY,
        SEEN,
        list(readers),
        [*changes, *removal_of(casts)],
        evidence={"shape": largest.shape.text},
    )


def _only_casts(ran: Executions) -> bool:
    """Return whether an op only casts an array in HBM. The layout of the result can differ, because
    another layout costs nothing there."""
    here = ran.op.instruction
    if here is None or len(here.operands) != 1:
        return False
    if any(array.memory_space != HBM for array in here.arrays or ()):
        return False
    return "convert" in here.opcodes and here.opcodes <= STRUCTURE | {"bitcast", "convert", "copy"}
