"""An operand of f32 that makes all that follows it f32.

    table = sinusoid(T, D)              # f32
    x = x + table                       # bf16 + f32 gives f32
    for layer in layers:                # all layers now read, write, gather and multiply f32
        x = x + mlp(norm(x))

It is seen where a convert from a narrower float, which the user's program has, reaches a dot or a
kernel before the program narrows the value again. The walk follows the value through elementwise
and layout ops, collectives, loops, and dots and kernels that return f32. The compiler narrows
operands of dots itself, by converts without a name, so a dot with bf16 operands and an f32 result
still says that the program multiplies f32. A norm or softmax that computes in f32 and converts its
result back reaches no dot.

A convert with the stack of the op that takes it is an implicit promotion: that is seen. An explicit
cast may be intended: that is likely. If the value of one line makes the other operand of a second
line f32, the second is a symptom.
"""

from __future__ import annotations

from typing import NamedTuple

from _analysis.causes.cause import LIKELY, SEEN, Cause, Evidence
from _analysis.causes.graph import (
    DOTS,
    ELEMENTWISE,
    STRUCTURE,
    Reached,
    Value,
    consumers,
    is_layout,
    reach,
)
from _analysis.causes.sentences import duration, percent_of, short
from _analysis.causes.step_program import own_line_of
from _analysis.ledger import COLLECTIVE, DATA_MOVEMENT, KERNEL, MEMORY_BOUND
from _proto.hlo.collectives import collective_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from _analysis.causes.step_program import StepProgram
    from _analysis.ledger import Entry
    from _output.fields.bottleneck import Confidence
    from _proto.hlo.program import Instruction

NAME: Final = "widened_dtype"
_NARROW = ("bf16", "f16", "f8")
_WIDE = "f32"
# Smaller arrays, such as statistics and weights of norms, cost nothing.
_MIN_ELEMENTS = 1 << 16
_MOVING = frozenset("broadcast concatenate dynamic-slice dynamic-update-slice pad slice".split())
# Classes of ops that twice the bytes slow down; kernels by an amount that is unknown.
_SLOWED = (COLLECTIVE, DATA_MOVEMENT, MEMORY_BOUND, KERNEL)
_USERS_CONVERT = "convert_element_type"


class _Widening(NamedTuple):
    """A convert that widens a value, the op that takes the result, and where the result goes."""

    convert: Instruction
    join: Instruction
    reached: Reached

    @property
    def is_implicit(self) -> bool:
        frame = self.convert.message.metadata.stack_frame_id
        is_join = self.join.opcode in ELEMENTWISE and len(self.join.operands) > 1
        return is_join and frame != 0 and self.join.message.metadata.stack_frame_id == frame

    def array_text(self) -> str:
        source = Value(self.convert.operands[0]).array
        return source.text if source else ""


def find(of: StepProgram) -> list[Cause]:
    by_line: dict[str | None, list[_Widening]] = {}
    for each in of.program.instructions():
        if each.opcode == "convert" and _is_widening(each):
            reached = reach([Value(each)], consumers, _stays_wide)
            if any(_multiplies(value.instruction) for value in reached.passed | reached.stopped):
                line = own_line_of(each, of.is_own) or each.line
                by_line.setdefault(line, []).append(_Widening(each, _join_of(each), reached))
    causes = [
        _cause(of, line, widenings)
        for line, widenings in by_line.items()
        if not any(_makes(by_line[other], widenings) for other in by_line if other != line)
    ]
    return [cause for cause in causes if cause]


def _is_widening(convert: Instruction) -> bool:
    """Tell if the user's program, not the compiler, converts a large array to f32."""
    name = convert.op_name
    if not name or not name.endswith(_USERS_CONVERT) or not convert.operands:
        return False
    to, source = Value(convert).array, Value(convert.operands[0]).array
    return (
        to is not None
        and source is not None
        and to.dtype == _WIDE
        and source.dtype.startswith(_NARROW)
        and to.n_elements >= _MIN_ELEMENTS
    )


def _is_wide(instruction: Instruction) -> bool:
    arrays = instruction.arrays or ()
    return any(each.dtype == _WIDE and each.n_elements >= _MIN_ELEMENTS for each in arrays)


def _only_moves(instruction: Instruction) -> bool:
    return (
        instruction.opcode in _MOVING
        or is_layout(instruction)
        or instruction.is_asynchronous
        or collective_name(instruction.opcode) is not None
    )


def _multiplies(instruction: Instruction) -> bool:
    return instruction.opcode in DOTS or instruction.is_kernel


def _stays_wide(value: Value) -> bool:
    here = value.instruction
    if here.opcode == "convert":
        # The compiler narrows operands of dots without a name.
        return not here.op_name or _is_wide(here)
    if _multiplies(here):
        return _is_wide(here)
    return here.opcode in ELEMENTWISE or _only_moves(here)


def _join_of(convert: Instruction) -> Instruction:
    """Return the first op that computes with the widened value, or else the convert."""
    reached = reach([Value(convert)], consumers, lambda value: _only_moves(value.instruction))
    taking = [value.instruction for value in reached.stopped]
    same = convert.message.metadata.stack_frame_id
    return next(
        (each for each in taking if each.message.metadata.stack_frame_id == same),
        next(iter(taking), convert),
    )


def _makes(first: list[_Widening], second: list[_Widening]) -> bool:
    """Tell if the second line is a symptom of the first."""

    def feeds(some: list[_Widening], others: list[_Widening]) -> bool:
        passed = {value.instruction for each in some for value in each.reached.passed}
        return all(each.join in passed for each in others)

    return feeds(first, second) and not feeds(second, first)


def _cause(of: StepProgram, line: str | None, widenings: list[_Widening]) -> Cause | None:
    smallest = min(array.n_elements for w in widenings if (array := Value(w.convert).array))
    values = {v for each in widenings for v in each.reached.passed | each.reached.stopped}
    affected = _affected(of, values, smallest / 4)
    kernels = sum(each.total for each in affected if each.name == KERNEL)
    total = sum(each.total for each in affected) - kernels
    gain = total // 2
    dots = {v.instruction for v in values if v.instruction.opcode in DOTS}
    first = next((each for each in widenings if each.is_implicit), widenings[0])
    where = short(line) if line else "an unknown line"
    after = f"{len(dots)} matmuls" if dots else "its kernels"
    confidence: Confidence = SEEN if first.is_implicit else LIKELY
    if first.is_implicit:
        what = f"{where} combines {first.array_text()} with an f32 operand ({first.join.opcode})"
        helps = (
            "Cast the f32 operand of this line to the dtype of the other one, for example with "
            "`.astype(x.dtype)`, or cast the result back."
        )
    else:
        what = f"{where} casts {first.array_text()} to f32"
        helps = "Cast back to the narrower dtype before the matmuls, unless they need f32."
    says = (
        f"{what}, and the result stays f32 through {after} and what follows: {duration(total)} of "
        f"memory-bound, copying and communicating ops move twice the bytes. Staying narrow would "
        f"save about {duration(gain)} ({percent_of(gain, of.step)} of the step)"
    )
    if kernels:
        says += f" and a part of {duration(kernels)} in kernels that read f32"
    if confidence == LIKELY:
        says += ". The cast is explicit, so f32 may be intended here"
    convert = first.convert
    owner = of.executed(convert)
    scope = owner.op.scope.name if owner and owner.op.scope else None
    return Cause(
        NAME,
        gain,
        f"{says}.",
        helps,
        confidence,
        Evidence([each.executions for each in affected], shape=first.array_text()),
        own_line_of(convert, of.is_own),
        convert.line,
        scope,
        unknown_ps=kernels or None,
    )


def _affected(of: StepProgram, values: set[Value], min_elements: float) -> list[Entry]:
    """Return what ran of the ops that make or read an f32 array of the walk, but the optimizer."""
    found: dict[int, Entry] = {}
    for here in {value.instruction for value in values}:
        arrays = here.arrays or ()
        if not any(each.dtype == _WIDE and each.n_elements >= min_elements for each in arrays):
            continue
        for each in (here, *(u for u in here.users if u.opcode not in STRUCTURE - {"fusion"})):
            executed = of.executed(each)
            if executed and executed.op.phase != "other" and executed.op.instruction:
                entry = of.entry_of[executed.op.instruction]
                if entry.name in _SLOWED:
                    found[id(entry)] = entry
    return list(found.values())
