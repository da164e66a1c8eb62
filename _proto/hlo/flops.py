"""Count the flops of matmuls and convolutions from their shapes and dimension numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd, prod

from _proto import hlo_pb2 as pb
from _proto.hlo.program import Instruction
from _proto.trace.wire import parse

_DOTS = frozenset(("convolution", "dot"))
_WITHOUT_FLOPS = (*_DOTS, "bitcast", "broadcast", "constant", "fusion", "parameter", "tuple")
# Positions in larger windows are not counted, so that a damaged program cannot take long.
_LARGEST_WINDOW = 1 << 16


def flops_of(op: Instruction) -> int | None:
    """Return the flops of the dots that an op is or contains; None if there are none, or if their
    flops are unknown."""
    if op.opcode not in ("fusion", *_DOTS):
        return None
    found = [flops_of_dot(dot) for dot in op.parts_with(_DOTS)]
    return sum(flops for flops in found if flops) if found and all(found) else None


def other_flops(op: Instruction) -> int:
    """Return the most flops that the instructions of an op can have besides its dots: one for each
    element that an instruction reads or returns."""
    return sum(_n_elements(part) for part in op.inside() if part.opcode not in _WITHOUT_FLOPS)


def _n_elements(part: Instruction) -> int:
    shapes = [part.arrays, *part.operand_arrays]
    return max((array.n_elements for arrays in shapes for array in arrays or ()), default=0)


def flops_of_dot(dot: Instruction) -> int | None:
    """Return the flops of a `dot` or `convolution`, or None if the shapes or the dimension numbers
    are missing or contradict each other."""
    shapes = [dot.arrays, *dot.operand_arrays[:2]]
    arrays = [listed[0] for listed in shapes if listed is not None and len(listed) == 1]
    if len(arrays) != 3 or any(array.is_dynamic for array in arrays):
        return None
    try:
        count = _of_dot if dot.opcode == "dot" else _of_convolution
        return count(dot, *(array.dims for array in arrays))
    except (IndexError, ValueError, ZeroDivisionError):
        return None


def _of_dot(
    dot: Instruction, output: Sequence[int], left: Sequence[int], _: Sequence[int]
) -> int | None:
    data = dot.message.dot_dimension_numbers
    numbers = parse(pb.DotDimensionNumbers, data) if data else None
    if numbers is None:
        return None
    return 2 * prod(output) * prod(left[place] for place in numbers.lhs_contracting_dimensions)


def _of_convolution(
    dot: Instruction, output: Sequence[int], left: Sequence[int], right: Sequence[int]
) -> int | None:
    """Count like XLA: only window positions that contain an element of the input.

    On TPU a batched matmul is a convolution whose batch is a dilated dimension, so most positions
    of its window contain no element.
    """
    data = dot.message.convolution_dimension_numbers
    numbers = parse(pb.ConvolutionDimensionNumbers, data) if data else None
    window = parse(pb.Window, dot.message.window)
    if numbers is None or window is None:
        return None
    n_positions = 1
    for dimension, at_left, at_right, at_output in zip(
        window.dimensions,
        numbers.input_spatial_dimensions,
        numbers.kernel_spatial_dimensions,
        numbers.output_spatial_dimensions,
        strict=True,
    ):
        if right[at_right] > _LARGEST_WINDOW:
            return None
        n_positions *= _positions(left[at_left], right[at_right], output[at_output], dimension)
    n_groups = dot.message.batch_group_count or 1
    n_features = right[numbers.kernel_input_feature_dimension]
    n_outputs = output[numbers.output_feature_dimension]
    n_batches = left[numbers.input_batch_dimension] // n_groups
    return 2 * n_positions * n_features * n_outputs * n_batches


def _positions(n_left: int, n_right: int, n_output: int, window: pb.Window.Dimension) -> int:
    """Count the pairs of an output position and a window position that meet an element of the input
    and not its padding or the holes of its dilation."""
    stride, dilation = window.stride or 1, window.base_dilation or 1
    common = gcd(stride, dilation)
    step = dilation // common
    inverse = pow(stride // common, -1, step)
    n = 0
    for place in range(n_right):
        # The output position x meets the input at x * stride - before.
        before = window.padding_low - place * (window.window_dilation or 1)
        if before % common:
            continue
        last = min(n_output - 1, ((n_left - 1) * dilation + before) // stride)
        first = max(0, -(-before // stride))
        first += (before // common * inverse - first) % step
        n += max(0, last - first + step) // step
    return n
