"""Follow the dimensions of arrays through instructions, such as the rows of a matmul's operand to
the rows of its result."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import prod

from _breakdown.analysis.arrays.graph import DOTS, ELEMENTWISE, operand
from _breakdown.light import NamedTuple
from _proto import hlo_pb2 as pb
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Array, order_of
from _proto.trace.wire import parse

# Instructions that return some of the elements of their first operand.
TAKING = frozenset(("slice", "dynamic-slice", "gather"))
# Instructions that put the elements of an operand between others.
PUTTING = frozenset(("pad", "dynamic-update-slice", "scatter"))
_SAME = ELEMENTWISE | {"copy", "copy-start", "copy-done", "dynamic-update-slice"}


class Link(NamedTuple):
    """Dimensions of an operand, and the dimensions of the result with the same elements.

    `taken` is the part of the operand's elements that are in the result, and `filled` the part of
    the result's elements that come from the operand. Without `outside`, a gather takes the elements
    to several dimensions; without `inside`, a scatter puts them there.
    """

    place: int
    inside: tuple[int, ...]
    outside: tuple[int, ...]
    taken: float = 1.0
    filled: float = 1.0


def links_of(here: Instruction) -> list[Link]:
    """Return the links between the dimensions of an instruction's operands and of its result.

    A dimension without a link, such as one that is summed, is used or filled as a whole.
    """
    result = array_of(here)
    operands = [array_of(operand(here, i)) for i in range(len(here.message.operand_ids))]
    if result is None:
        return []
    try:
        links = list(_links(here, result, operands))
    except (IndexError, ValueError):
        return []
    # Only damaged programs have dimensions that do not exist.
    exist = (_has(operands[it.place], it.inside) and _has(result, it.outside) for it in links)
    return links if all(exist) else []


def _has(array: Array | None, dims: Iterable[int | None]) -> bool:
    return {None, *range(len(array.dims) if array else 0)}.issuperset(dims)


def array_of(here: Instruction | None) -> Array | None:
    """Return the shape of an instruction's output, or None if it is not one array."""
    leaves = (here.leaves if here else None) or ()
    return leaves[0][1] if len(leaves) == 1 and leaves[0][0] == () else None


def _links(here: Instruction, result: Array, operands: Sequence[Array | None]) -> Iterator[Link]:
    opcode, dimensions = here.opcode, here.message.dimensions
    first = operands[0] if operands else None
    if opcode in _SAME:
        for place, array in enumerate(operands):
            if array and len(array.dims) == len(result.dims):
                yield from _of_part(place, array, result)
    elif first is None:
        return
    elif opcode in DOTS:
        yield from (
            Link(place, (inside,), (outside,))
            for outside, *insides in _dims_of_dot(here, result, operands)
            for place, inside in enumerate(insides)
            if outside is not None and inside is not None
        )
    elif opcode in ("bitcast", "reshape"):
        orders = [tuple(range(len(array.dims))) for array in (first, result)]
        if opcode == "bitcast":
            given = operand(here, 0)
            orders = [order_of(one.message.shape) for one in (given, here) if one]
        yield from _of_groups(first.dims, result.dims, *orders)
    elif opcode == "broadcast":
        yield from (Link(0, (i,), (outside,)) for i, outside in enumerate(dimensions))
    elif opcode == "transpose":
        yield from (Link(0, (inside,), (i,)) for i, inside in enumerate(dimensions))
    elif opcode == "reduce":
        kept = [dim for dim in range(len(first.dims)) if dim not in dimensions]
        yield from (Link(0, (inside,), (i,)) for i, inside in enumerate(kept))
    elif opcode in ("slice", "dynamic-slice", "pad"):
        yield from _of_part(0, first, result)
    elif opcode == "concatenate":
        for place, array in enumerate(operands):
            yield from _of_part(place, array, result) if array else ()
    elif opcode == "gather":
        yield from _of_gather(here, first, result)
    elif opcode == "scatter":
        yield from _of_scatter(here, operands, result)


def _of_part(place: int, part: Array, whole: Array) -> Iterator[Link]:
    """Yield the links of an operand that has the same dimensions as the result, but possibly other
    sizes."""
    for dim, sizes in enumerate(zip(part.dims, whole.dims, strict=True)):
        n, m = (max(1, size) for size in sizes)
        yield Link(place, (dim,), (dim,), min(1.0, m / n), min(1.0, n / m))


def _of_gather(here: Instruction, source: Array, result: Array) -> Iterator[Link]:
    numbers = parse(pb.GatherDimensionNumbers, here.message.gather_dimension_numbers)
    sizes = here.message.gather_slice_sizes
    whole = [dim for dim, size in enumerate(source.dims) if sizes[dim] == size]
    if numbers is None:
        return
    others = tuple(dim for dim in range(len(source.dims)) if dim not in whole)
    yield Link(0, others, (), min(1.0, max(1, result.n_elements) / max(1, source.n_elements)))
    # Other dimensions of the slices have a size of one, and are left out or are offsets, too.
    if len(numbers.offset_dims) == len(whole):
        for inside, outside in zip(whole, numbers.offset_dims, strict=True):
            yield Link(0, (inside,), (outside,))


def _of_scatter(
    here: Instruction, operands: Sequence[Array | None], result: Array
) -> Iterator[Link]:
    numbers = parse(pb.ScatterDimensionNumbers, here.message.scatter_dimension_numbers)
    if numbers is None or len(operands) != 3 or (updates := operands[2]) is None:
        return
    dims = range(len(result.dims))
    yield from (Link(0, (dim,), (dim,)) for dim in dims)
    window = [dim for dim in dims if dim not in numbers.inserted_window_dims]
    for inside, outside in zip(numbers.update_window_dims, window, strict=True):
        yield Link(2, (inside,), (outside,))
    filled = min(1.0, max(1, updates.n_elements) / max(1, result.n_elements))
    yield Link(2, (), tuple(numbers.inserted_window_dims), filled=filled)


def _of_groups(
    before: Sequence[int], after: Sequence[int], order: Sequence[int], new_order: Sequence[int]
) -> Iterator[Link]:
    """Yield the links of a reshape, which splits and joins dimensions in the given orders."""
    left = [dim for dim in order if before[dim] != 1]
    right = [dim for dim in new_order if after[dim] != 1]
    while left and right:
        some, others = [left.pop(0)], [right.pop(0)]
        while (n := prod(before[dim] for dim in some)) != (m := prod(after[dim] for dim in others)):
            (some if n < m else others).append((left if n < m else right).pop(0))
        yield Link(0, tuple(some), tuple(others))


Dims = tuple[int | None, int | None, int | None]


def dims_of_dot(here: Instruction) -> list[Dims]:
    """Return the dimensions of a matmul, each as the dimension of the result, of the left operand
    and of the right operand; None if the result or an operand does not have it."""
    result, left, right = (array_of(one) for one in (here, operand(here, 0), operand(here, 1)))
    try:
        found = _dims_of_dot(here, result, [left, right]) if result else []
    except (IndexError, ValueError):
        return []
    # Only damaged programs have dimensions that do not exist.
    columns = zip(*found, strict=True)
    return found if all(map(_has, (result, left, right), columns)) else []


def _dims_of_dot(here: Instruction, result: Array, operands: Sequence[Array | None]) -> list[Dims]:
    left, right = operands[:2]
    if left is None or right is None:
        return []
    if here.opcode == "dot":
        return _of_dot(here, left, right)
    data = here.message.convolution_dimension_numbers
    numbers = parse(pb.ConvolutionDimensionNumbers, data) if data else None
    if (
        numbers is None
        or here.message.batch_group_count > 1
        or here.message.feature_group_count > 1
    ):
        return []
    found: list[Dims] = [
        (numbers.output_batch_dimension, numbers.input_batch_dimension, None),
        (numbers.output_feature_dimension, None, numbers.kernel_output_feature_dimension),
        (None, numbers.input_feature_dimension, numbers.kernel_input_feature_dimension),
    ]
    for outside, inside, kernel in zip(
        numbers.output_spatial_dimensions,
        numbers.input_spatial_dimensions,
        numbers.kernel_spatial_dimensions,
        strict=True,
    ):
        n, m, k = result.dims[outside], left.dims[inside], right.dims[kernel]
        if k == 1:
            found.append((outside, inside, None) if n == m else (None, None, None))
        elif m == 1:
            found.append((outside, None, kernel) if n == k else (None, None, None))
        elif n == 1:
            found.append((None, inside, kernel))
        elif n == m == k:
            # A batched matmul is a convolution whose batch is a dilated dimension.
            found.append((outside, inside, kernel))
    return found


def _of_dot(here: Instruction, left: Array, right: Array) -> list[Dims]:
    data = here.message.dot_dimension_numbers
    numbers = parse(pb.DotDimensionNumbers, data) if data else None
    if numbers is None:
        return []
    batches = list(zip(numbers.lhs_batch_dimensions, numbers.rhs_batch_dimensions, strict=True))
    summed = list(
        zip(numbers.lhs_contracting_dimensions, numbers.rhs_contracting_dimensions, strict=True)
    )
    rows = [d for d in range(len(left.dims)) if d not in [pair[0] for pair in batches + summed]]
    columns = [d for d in range(len(right.dims)) if d not in [pair[1] for pair in batches + summed]]
    n = len(batches)
    return [
        *((i, *pair) for i, pair in enumerate(batches)),
        *((n + i, dim, None) for i, dim in enumerate(rows)),
        *((n + len(rows) + i, None, dim) for i, dim in enumerate(columns)),
        *((None, *pair) for pair in summed),
    ]
