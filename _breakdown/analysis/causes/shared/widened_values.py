"""Follow values that become f32 in the user's program, and find where they stay f32."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.graph import (
    DOTS,
    ELEMENTWISE,
    Value,
    consumers,
    is_backward,
    is_layout,
    origins,
    walk,
)
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _proto.hlo.collectives import collective_name
from _proto.hlo.program import Instruction

_NARROW, WIDE = ("bf16", "f16", "f8"), "f32"
# Smaller arrays, such as statistics and weights of norms, cost almost nothing.
MIN_ELEMENTS = 1 << 16
_MOVING = frozenset("concatenate dynamic-slice dynamic-update-slice pad slice".split())
_USERS_CONVERT = "convert_element_type"


def widened_in(of: StepProgram) -> Iterator[Instruction]:
    """Yield the converts of the user's forward pass from a narrower float to f32."""
    for here in of.with_opcodes("convert"):
        if not (here.op_name or "").endswith(_USERS_CONVERT):
            continue
        if not is_backward(here) and here.operands and _is_large(Value(here)):
            source = Value(here.operands[0]).array
            # The compiler keeps a convert from f32 to f32 if it has removed the convert before it.
            if source and source.dtype.startswith((*_NARROW, WIDE)):
                yield here


def _is_large(value: Value, *dtypes: str) -> bool:
    array = value.array
    if array is None or array.n_elements < MIN_ELEMENTS:
        return False
    return array.dtype.startswith(dtypes or WIDE)


def multiplies(here: Instruction) -> bool:
    return here.opcode in DOTS or here.is_kernel


def _only_moves(here: Instruction) -> bool:
    moves = here.opcode in _MOVING or is_layout(here) or here.is_asynchronous
    return moves or collective_name(here.opcode) is not None


def stays_wide(value: Value) -> bool:
    """Return whether a value that is computed from an f32 value is f32 in the user's program."""
    here = value.instruction
    if is_backward(here):
        return False
    if here.opcode == "convert" and not here.op_name:
        # The compiler narrows operands of matmuls. Its converts to f32 are inside bf16 ops.
        return _is_large(value, *_NARROW)
    if _only_moves(here):
        return _is_large(value, WIDE, *_NARROW)
    return _is_large(value) and (here.opcode in ELEMENTWISE or multiplies(here))


def _is_computed(value: Value) -> bool:
    return value.instruction.opcode in ELEMENTWISE or _only_moves(value.instruction)


def joined(convert: Instruction) -> tuple[Instruction, Instruction, bool]:
    """Return a convert, the first op that computes with its result, and whether both have the same
    stack: an implicit promotion."""
    frame = convert.message.metadata.stack_frame_id
    found = walk([Value(convert)], consumers, lambda value: _only_moves(value.instruction))
    taking = [value.instruction for value, is_passed in found if not is_passed]
    same = [here for here in taking if frame and here.message.metadata.stack_frame_id == frame]
    joins = [here for here in same if here.opcode in ELEMENTWISE and len(here.operands) > 1]
    return convert, (joins or same or taking or [convert])[0], bool(joins)


def is_looked_up(convert: Instruction) -> bool:
    """Return whether the value is combined with rows of an f32 table, one for each token: such a
    stream was never narrower."""
    _, join, _ = joined(convert)
    sources = (
        source
        for operand in join.operands
        for source in origins(
            Value(operand), lambda value: _is_large(value) and _is_computed(value)
        )
    )
    return any(value.instruction.opcode == "gather" and _is_large(value) for value in sources)
