"""Find the dots that an instruction is or contains, their precision, and the dtypes that they
read."""

from __future__ import annotations

from collections.abc import Sequence

from _breakdown.light import NamedTuple
from _proto import hlo_pb2 as pb
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Array
from _proto.hlo.text import OTHER, DtypeClass, dtype_class
from _proto.trace.wire import parse

_DOTS = frozenset(("convolution", "dot"))
# Passes of bf16 at the precisions HIGH and HIGHEST, if one operand is f32 and if both are. A matmul
# of 4096 rows takes 2.7 and 5.9 times as long, and with one operand at HIGHEST 2.9 times.
_PASSES = {1: (2, 3), 2: (3, 6)}
# Opcodes that change only dtype, layout or shape, and can be between a fusion's parameter and its
# dot.
_CONVERTS = ("convert", "bitcast", "copy", "reshape", "transpose")
# Relative widths of dtype classes: the wider class of two operands decides the peak.
_WIDTH = {"int4": 0, "int8": 1, "fp8": 1, "bf16": 2, "fp16": 2, "fp32": 3, OTHER: 4}


class Dot(NamedTuple):
    """The precision at which the matrix unit runs an op.

    `dtype` is the class that decides the peak. `operand_dtype` is the HLO dtype of the widest
    operand.
    """

    dtype: DtypeClass
    operand_dtype: str


def dot_of(op: Instruction) -> Dot | None:
    """Return the precision of the dots that an op is or contains: the widest among the operands of
    all dots.

    Return None if there is no dot, or if a dot is unreadable.
    """
    classes: list[DtypeClass] = []
    arrays: list[Array] = []
    for dot in op.parts_with(_DOTS):
        operands = _operands(dot)
        if operands is None:
            return None
        for dtype, array in operands:
            classes.append(dtype)
            arrays.append(array)
    if not arrays:
        return None
    widest = max(arrays, key=lambda array: array.bits or 0)
    return Dot(max(classes, key=_WIDTH.__getitem__), widest.dtype)


def passes_of(op: Instruction) -> int:
    """Return how often the matrix unit multiplies f32 operands of an op's dots, in parts that are
    bf16: more than once at a higher precision."""
    most = 1
    for part in op.parts_with(_DOTS):
        precision = _precision_of(part)
        stated = precision.operand_precision if precision else ()
        if passes := _PASSES.get(max(stated, default=0)):
            wide = [bool(arrays and arrays[0].dtype == "f32") for arrays in part.operand_arrays[:2]]
            most = max(most, passes[all(wide)] if any(wide) else 1)
    return most


def dtypes_read(op: Instruction) -> list[str] | None:
    """Return the distinct HLO dtypes that the operands of an op's dots have in memory.

    Return None if there is no dot, or if an operand is unreadable.
    """
    dtypes: list[str] = []
    for dot in op.parts_with(_DOTS):
        for operand_id in dot.message.operand_ids[:2]:
            operand = dot.computation.instruction(operand_id)
            arrays = operand and _before_converts(operand, op).arrays
            if not arrays or len(arrays) != 1:
                return None
            dtypes.append(arrays[0].dtype)
    return list(dict.fromkeys(dtypes)) or None


def _before_converts(value: Instruction, op: Instruction) -> Instruction:
    """Follow a value in a fusion back through conversions; return the operand of `op` that it comes
    from, or the first value in the fusion that is not the result of a conversion."""
    passed: set[Instruction] = set()
    while value.computation is not op.computation and value not in passed:
        passed.add(value)
        before: Sequence[Instruction | None] = ()
        if value.opcode == "parameter" and value.computation.caller:
            before = value.computation.caller.operands[value.message.parameter_number :]
        elif value.opcode == "fusion":
            before = [computation.root for computation in value.called]
        elif value.opcode in _CONVERTS:
            before = value.operands
        if not before or before[0] is None:
            break
        value = before[0]
    return value


def _operands(dot: Instruction) -> list[tuple[DtypeClass, Array]] | None:
    """Return the dot's operands that decide its dtype, each with the dtype class in which the
    matrix unit multiplies it."""
    precision = _precision_of(dot)
    if precision is None:
        return None
    stated = [*precision.operand_precision, 0, 0]
    operands = []
    for i, arrays in enumerate(dot.operand_arrays[:2]):
        if arrays is None or len(arrays) != 1:
            return None
        dtype: DtypeClass = dtype_class(arrays[0].dtype)
        if dtype == "fp32" and not stated[i] and not precision.algorithm:
            # At default precision, the matrix unit multiplies f32 operands in a single bf16 pass.
            dtype = "bf16"
        operands.append((dtype, arrays[0]))
    if len(operands) != 2:
        return None
    # The matrix unit converts a `pred` operand (a one-hot matrix) to the dtype of the other
    # operand.
    return [operand for operand in operands if operand[1].dtype != "pred"] or operands


def _precision_of(dot: Instruction) -> pb.PrecisionConfig | None:
    precision = parse(pb.PrecisionConfig, dot.message.precision_config)
    if precision is None:
        dot.program.complain(f"the precision of {dot.name} is unreadable")
    return precision
