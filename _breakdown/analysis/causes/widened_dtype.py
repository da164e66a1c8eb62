"""Find the lines at which large values become f32, and then stay f32 for the following ops."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from math import inf

from _breakdown.analysis.arrays.engine import Resize
from _breakdown.analysis.arrays.graph import Value, consumers, reach
from _breakdown.analysis.arrays.of_step import TEMPORARY, StepArray
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.step_program import StepProgram, own_line_of
from _breakdown.analysis.causes.shared.widened_values import (
    MIN_ELEMENTS,
    WIDE,
    is_looked_up,
    joined,
    multiplies,
    stays_wide,
    widened_in,
)
from _breakdown.units import counted, size
from _proto.hlo.program import Instruction

WHAT_HELPS = (
    "If f32 is not intended, cast the f32 operand to the other operand's dtype, as in"
    " `x + table.astype(x.dtype)`, or cast the result back."
)


def find(of: StepProgram) -> Iterator[Cause]:
    arrays = _wide_arrays(of)
    # Most programs have few f32 arrays, so do not follow their values.
    moving = {use.ran for array in arrays if _is_forward(array) for use in array.uses}
    if sum(ran.total for ran in moving) < of.floor:
        return
    written = {
        Value(here, use.path): array
        for array in arrays
        for use in array.writes
        if (here := use.ran.op.instruction)
    }

    def stays(value: Value) -> bool:
        return value.instruction not in of.softmaxed and stays_wide(value)

    def arrays_in(values: Iterable[Value]) -> list[StepArray]:
        return list(dict.fromkeys(written[value] for value in values if value in written))

    by_line: dict[str | None, list[Instruction]] = {}
    for convert in sorted(widened_in(of), key=lambda convert: _place(of, convert)):
        if convert not in of.softmaxed:
            by_line.setdefault(own_line_of(convert, of.is_own) or convert.line, []).append(convert)
    explained: set[Value] = set()
    for converts in by_line.values():
        starts = [Value(convert) for convert in converts]
        if explained and explained.issuperset(Value(joined(convert)[1]) for convert in converts):
            continue
        region = reach(starts, consumers, stays).passed
        dots = [value for value in region if multiplies(value.instruction)]
        # What a matmul makes of the value counts only if it is written to HBM in f32.
        is_carried = any(array.moved for array in arrays_in(reach(dots, consumers, stays).passed))
        wide = arrays_in(region) if is_carried else []
        if wide and not any(map(is_looked_up, converts)):
            explained |= region
            yield _cause(of, converts, [*wide, *_because_of(arrays, wide)])


def _cause(of: StepProgram, converts: list[Instruction], arrays: list[StepArray]) -> Cause:
    # An implicit promotion tells more about the place than an explicit cast.
    convert, join, is_implicit = next(
        (found for found in map(joined, converts) if found[2]), joined(converts[0])
    )
    ran = dict.fromkeys(use.ran for array in arrays for use in array.uses if use.n_bytes)
    in_hbm = [array for array in arrays if array.moved]
    source = Value(convert.operands[0]).array
    shape = source.text if source else ""
    how = f"combines {shape} with an f32 operand ({join.opcode})"
    return Cause(
        f"<line> {how if is_implicit else f'casts {shape} to f32'}, so"
        f" {counted(len(in_hbm), 'array')} in memory are f32. Half of the"
        f" {size(sum(array.moved for array in in_hbm))} that ops move of them would save"
        f" <gain>{'' if is_implicit else ' (unless f32 is intended)'}.",
        WHAT_HELPS,
        LIKELY,
        list(ran),
        [Resize(array.value, 0.5) for array in in_hbm],
        place=of.place_at(join),
        evidence={"shape": shape},
    )


def _place(of: StepProgram, here: Instruction) -> float:
    """Return the position of an instruction in the order of the trace."""
    ran = of.executed(here)
    return of.order.get(ran.op.instruction, inf) if ran and ran.op.instruction else inf


def _wide_arrays(of: StepProgram) -> list[StepArray]:
    return [
        array
        for array in of.arrays
        if array.shape.dtype == WIDE
        and array.shape.n_elements >= MIN_ELEMENTS
        and not array.is_parameter
        and array.value.instruction.program is of.program
        and of.arrays.kind_of(array) == TEMPORARY
    ]


def _is_forward(array: StepArray) -> bool:
    phases = {ran.op.phase for ran in array.makers}
    return bool(array.moved) and "backward" not in phases and "other" not in phases


def _because_of(arrays: Iterable[StepArray], wide: Collection[StepArray]) -> Iterator[StepArray]:
    """Yield copies of the widened arrays, and f32 arrays that the backward pass makes in their
    shapes: their gradients. Arrays that are only filled are not among them."""
    shapes, known = {_shape(array) for array in wide}, {array.value for array in wide}
    for array in arrays:
        is_gradient = _shape(array) in shapes and any(
            ran.op.phase == "backward" and ran.op.hlo.opcode != "broadcast" for ran in array.makers
        )
        if array.value not in known and (is_gradient or array.origin in known):
            known.add(array.value)
            yield array


def _shape(array: StepArray) -> tuple[int, ...]:
    """Return the sorted dimensions, because compilers transpose arrays."""
    return tuple(sorted(n for n in array.shape.dims if n > 1))
