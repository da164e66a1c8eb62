"""Find the scores of attention: results of dots that go through a softmax and are multiplied again,
and are much larger than queries and keys."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from _breakdown.analysis.arrays.graph import (
    DOTS,
    ELEMENTWISE,
    Value,
    consumers,
    is_backward,
    is_moved,
    reach,
)
from _breakdown.analysis.causes.shared.softmaxes import SOFTMAX_KERNEL
from _breakdown.pipeline.groups import grouped
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Array

# Scores of short sequences are not much larger than queries and keys, so a kernel saves little. In
# recompiled pairs, it saved about as much as estimated at factors of 8 and 16, half of it at 4, and
# made the step slower at 2. A kernel stores each head in 128 lanes, so heads of 64 elements count
# twice.
_GROWING = 8
_LANES = 128

Dims = tuple[int, ...]


def scores_in(dots: Iterable[Instruction]) -> dict[Dims, list[Instruction]]:
    """Return the dots that make scores which a fused kernel could keep on the chip, by the sorted
    dimensions of the scores. `dots` are those before softmaxes."""
    grown = (here for here in dots if not is_backward(here) and _is_grown(here))
    scoring = [dot for dot in grown if _are_multiplied(_readers(dot))]
    return grouped((sorted_dims(s.dims), dot) for dot in scoring for s in dot.arrays or ())


def sorted_dims(dims: Dims) -> Dims:
    """Return the sorted dimensions, because compilers transpose arrays and add dimensions of size
    1."""
    return tuple(sorted(n for n in dims if n > 1))


def has_dims(array: Array, dims: Dims) -> bool:
    """Return whether an array has the dimensions of scores, or stacks scores of several layers."""
    own = list(sorted_dims(array.dims))
    for n in dims:
        if n not in own:
            return False
        own.remove(n)
    return len(own) <= 1


def _is_grown(dot: Instruction) -> bool:
    """Return whether a dot's result is much larger than both operands, as a kernel stores them."""
    operands = [array for arrays in dot.operand_arrays[:2] for array in arrays or ()]
    result = next(iter(dot.arrays or ()), None)
    return (
        result is not None
        and len(operands) == 2
        and all(result.n_elements >= _GROWING * _padded(a, result) for a in operands)
    )


def _padded(operand: Array, result: Array) -> float:
    """Return the elements of queries or keys, with heads padded to the lanes of a register."""
    width = list(operand.dims)
    for n in result.dims:
        if n in width:
            width.remove(n)
    return operand.n_elements * max(1, _LANES / max(1, prod(width)))


def _readers(dot: Instruction) -> set[Instruction]:
    """Return what reads a dot's result and the softmax of it, in the same pass."""
    found = reach(
        [Value(dot)], consumers, lambda v: v.instruction.opcode in ELEMENTWISE or is_moved(v)
    )
    return {value.instruction for value in found.stopped if not is_backward(value.instruction)}


def _are_multiplied(readers: set[Instruction]) -> bool:
    """Return whether another dot, or XLA's kernel for both, reads the weights of attention. The
    logits of a loss have no such reader."""
    return any(here.opcode in DOTS or here.op_name == SOFTMAX_KERNEL for here in readers)
