"""Find the values that softmaxes and losses exponentiate and sum, such as scores and logits."""

from __future__ import annotations

from collections.abc import Iterable

from _breakdown.analysis.arrays.graph import (
    ELEMENTWISE,
    Value,
    consumers,
    is_moved,
    is_same,
    producers,
    reach,
    walk,
)
from _proto.hlo.program import Instruction

# Name of the kernel into which XLA fuses a softmax and the following matmul.
SOFTMAX_KERNEL = "online-softmax"


def softmaxed_in(
    exponentials: Iterable[Instruction], calls: Iterable[Instruction]
) -> set[Instruction]:
    """Return the instructions that compute exponentials that are summed, back to the results of
    matmuls, with these matmuls."""
    ends = [
        value
        for value in map(Value, exponentials)
        if any(
            taker.instruction.opcode == "reduce" for taker, _ in walk([value], consumers, is_same)
        )
    ]
    ends += [Value(here) for here in calls if here.op_name == SOFTMAX_KERNEL]
    found = reach(ends, producers, lambda v: v.instruction.opcode in ELEMENTWISE or is_moved(v))
    return {value.instruction for value in found.passed | found.stopped}
