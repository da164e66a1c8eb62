"""Tell what an op does, as far as advice depends on it.

Advice about a slice or a cast is for code that slices or casts: it needs the primitive of the
user's program. The compiler adds such ops for its own reasons, which the user's code does not show.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection
from typing import Final

from _breakdown.analysis.arrays.graph import (
    WHILE,
    Value,
    is_layout,
    is_same,
    operand,
    origins,
    producers,
    walk,
)
from _breakdown.analysis.roof.exposed import only_starts
from _breakdown.analysis.roof.ledger import (
    COLLECTIVE,
    COMPUTE_BOUND,
    DATA_MOVEMENT,
    MEMORY_BOUND,
    LedgerEntry,
)
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.vocabulary import HOST, SPARSE_CORE
from _proto.hlo.program import Instruction
from _proto.hlo.text import HBM, ArrayText, named_after

ALL_TO_ALL: Final = "`all-to-all`"
SMALL: Final = "collective of at most 64 KiB"
COMBINED: Final = "collective that the compiler combined from several"
STOPS: Final = "other synchronous collective"
WAIT: Final = "wait"
OFFLOADED: Final = "wait for a gather or scatter on a SparseCore"
TO_HOST: Final = "copy to the host"
FROM_HOST: Final = "copy from the host"
CALLBACK: Final = "infeed, outfeed, callback"
CAST: Final = "cast"
PARTS: Final = "slice, concatenate"
PAD: Final = "pad"
BROADCAST: Final = "broadcast"
SORT: Final = "sort"
INVERSE: Final = "sort of the order that another sort returned"
TOP_K: Final = "`top_k`"
GATHER: Final = "gather, scatter"
KNOWN_PLACES: Final = "gather from places that do not depend on data"
LAYOUT: Final = "copy, transpose, reshape"
SAVED: Final = "slice of an array that a loop saves for the backward pass"
SMALL_MATMUL: Final = "matmul with a dimension below 1024"
FEW_ROWS: Final = "matmul with fewer than 512 rows"
PALLAS: Final = "kernel"
WIDE_PALLAS: Final = "kernel with f32 operands"
REDUCE: Final = "reduction to an eighth or less"
WIDE: Final = "other, if a third of the bytes are f32"
VECTOR: Final = "other math, if moving the bytes takes less than 5 % of the time"

# A link carries this number of bytes in about a microsecond, which is the latency of a collective.
_SMALL_BYTES = 1 << 16
# Four tiles of the matrix unit: larger dimensions hardly fill the tiles any better.
_LARGE_DIMENSION = 1024
# With more rows, reading the weights takes less time than multiplying (v6e: 560 flops per byte).
_FEW_ROWS = 512
# A reduction returns at most 1 / _SHRINKING of the elements.
_SHRINKING = 8
_HALF, _THIRD = 0.5, 0.33
# Vector work takes this many times as long as moving the bytes.
_VECTOR_TIMES = 20
_CALLS = re.compile(r"(?:ragged_)?all_to_all|psum\w*|pmax|pmin|all_gather|ppermute|reduce_scatter")
_CASTS = ("convert_element_type",)
# An update in place is no such part: it splits and joins nothing.
_CUTS = re.compile(r"slice|dynamic_slice|concatenate|squeeze|split")
_GATHERS = re.compile(r"(?<!all-)(?:gather|scatter)(?!_offload)")
_MATMULS = re.compile(r"(?:convolution|dot|ragged-dot)\b")
_COPIES = frozenset(("copy", "transpose", "reshape"))
# Opcodes that compute nothing.
_MOVES = _COPIES | frozenset(
    "bitcast broadcast concatenate constant dynamic-slice dynamic-update-slice fusion "
    "get-tuple-element pad parameter reduce-precision slice tuple".split()
)
_NO_WORK = frozenset("bitcast constant fusion get-tuple-element parameter tuple".split())
# Part of the paths of the slices that a scan takes and updates.
_OF_SCAN = re.compile(r"/while/body/jit\(dynamic_(?:update_)?index_in_dim\)/")
# A scattered or gathered row of this length fills the lanes of a tile.
_WIDE_ROW = 128
_SLICES = frozenset(("dynamic-slice", "dynamic-update-slice"))
# Instructions between an op and a kernel.
_PASSING = ("bitcast", "get-tuple-element")


def kind_of(entry: LedgerEntry) -> str | None:
    """Return the kind of an op for which advice is known, or None."""
    op = entry.ran.op
    if entry.name == COLLECTIVE:
        return _kind_of_collective(op)
    if entry.name == HOST:
        return _kind_of_host_transfer(op)
    if entry.name == DATA_MOVEMENT and (op.is_wait or op.is_start) and op.waits_for != SPARSE_CORE:
        return WAIT if op.is_wait else None
    if op.is_wait and named_after(op.name, ("gather_offload", "scatter_offload")):
        return OFFLOADED
    if op.kernel or entry.kernel:
        return WIDE_PALLAS if _share_of_f32(op.hlo.operands) > _HALF else PALLAS
    if op.dot or _MATMULS.match(op.category):
        return _kind_of_matmul(entry)
    opcodes = _opcodes(op)
    if "sort" in opcodes and "top_k" not in _primitive(op):
        # The compiler sorts the indices of scatters by itself.
        if "sort" not in _primitive(op):
            return None
        return INVERSE if op.instruction and _inverts(op.instruction) else SORT
    if "top_k" in _primitive(op) or "topk" in op.name.lower():
        return TOP_K
    if _is_gather(op):
        return _kind_of_gather(op)
    is_move = opcodes <= _MOVES and not opcodes <= _NO_WORK
    if entry.name == DATA_MOVEMENT or is_move or _CUTS.fullmatch(_primitive(op)):
        return _kind_of_movement(op, opcodes)
    return _kind_of_math(entry, opcodes)


def _kind_of_collective(op: Op) -> str | None:
    if op.is_wait:
        return WAIT
    if only_starts(op):
        return None
    is_called = _CALLS.fullmatch(_primitive(op))
    if op.waits_for.endswith("all-to-all"):
        return None if is_called else ALL_TO_ALL
    n_bytes = [array.n_bytes for array in op.outputs]
    if n_bytes and None not in n_bytes and sum(n or 0 for n in n_bytes) <= _SMALL_BYTES:
        return SMALL
    if is_called:
        # The program may need this collective in every round.
        return None
    return COMBINED if len(n_bytes) > 1 else STOPS


def _kind_of_host_transfer(op: Op) -> str:
    if op.category.startswith(("infeed", "outfeed", "host ")):
        return CALLBACK
    return TO_HOST if op.is_to_host else FROM_HOST


def _kind_of_matmul(entry: LedgerEntry) -> str | None:
    op, cost = entry.ran.op, entry.cost
    if _convolves(op):
        # Convolutions have other dimensions than matmuls.
        return None
    output = max(op.outputs, key=lambda array: array.n_elements, default=None)
    sides = _sides(output) if output else (0, 0)
    if entry.name == COMPUTE_BOUND:
        depth = cost.flops / 2 / (sides[0] * sides[1] or 1) if cost and cost.flops else 0
        return SMALL_MATMUL if min(*sides, depth) < _LARGE_DIMENSION else None
    if min(sides) < _FEW_ROWS:
        return None if _is_batched(op, cost.flops if cost else None) else FEW_ROWS
    return WIDE if _is_wide(op) else None


def _convolves(op: Op) -> bool:
    """Return True for a convolution of the user's program. The compiler runs batched matmuls as
    convolutions, too; PyTorch does not say which primitive an op comes from."""
    if primitive := _primitive(op):
        return primitive.startswith("conv")
    parts = op.instruction.parts_with({"convolution"}) if op.instruction else []
    return any(part.message.window for part in parts)


def _is_batched(op: Op, flops: int | None) -> bool:
    """Return True if a matmul multiplies pairs of matrices, such as an attention's scores and
    values, so that no operand is a weight."""
    here = op.instruction
    dots = [part for part in (here, *here.inside()) if _MATMULS.match(part.opcode)] if here else []
    if len(dots) != 1 or not flops:
        return False
    output, *operands = (
        sum(array.n_elements for array in arrays or ())
        for arrays in (dots[0].arrays, *dots[0].operand_arrays)
    )
    # Without batches, the operands have m * k and k * n elements, and the output has m * n.
    depth = flops / 2 / max(1, output)
    return math.prod(operands[:2]) >= 2 * output * depth**2


def _sides(output: ArrayText) -> tuple[int, int]:
    """Return the number of elements along the longest dimension, and along all others."""
    longest = max((int(n) for n in re.findall(r"\d+", output.dims)), default=1)
    return longest, output.n_elements // (longest or 1)


def _inverts(sort: Instruction) -> bool:
    """Return True if a sort's keys are the indices that another sort returned with its own keys."""
    keys = operand(sort, 0)
    for value in origins(Value(keys), is_same) if keys else ():
        of = operand(value.instruction, 1) if value.path == (1,) else None
        if of and value.instruction.opcode == "sort" and of.opcode == "iota":
            return True
    return False


def _is_gather(op: Op) -> bool:
    if op.category == "select-and-scatter":
        return False
    words = f"{op.category} {op.hlo.opcode} {op.name}"
    is_fused = op.category == "custom fusion" and _GATHERS.search(_primitive(op))
    return bool(is_fused or _GATHERS.search(words))


def _kind_of_gather(op: Op) -> str | None:
    rows = [int(n) for array in op.outputs for n in re.findall(r"\d+", array.dims)[-1:]]
    if max(rows, default=1) >= _WIDE_ROW:
        return None
    gathers = op.instruction.parts_with({"gather"}) if op.instruction else []
    places = [places for here in gathers if (places := operand(here, 1))]
    return GATHER if not places or any(map(_depends_on_data, places)) else KNOWN_PLACES


def _depends_on_data(here: Instruction) -> bool:
    """Return True if an array is computed from a parameter of the program or the state of a
    loop."""
    return any(
        value.instruction.opcode == "parameter"
        and ((caller := value.instruction.computation.caller) is None or caller.opcode == WHILE)
        for value, _ in ((Value(here), True), *walk([Value(here)], producers, lambda _: True))
    )


def _kind_of_movement(op: Op, opcodes: frozenset[str]) -> str | None:
    primitive = _primitive(op)
    if opcodes - _NO_WORK <= _COPIES and opcodes & _COPIES:
        return _kind_of_copy(op)
    if primitive in _CASTS and "convert" in opcodes:
        return CAST
    if _is_next_to_kernel(op):
        # A kernel's arrays have the shapes that the kernel demands.
        return None
    if primitive == "pad":
        # A pad without `jnp.pad` is the gradient of a slice, or a part of an associative scan.
        return PAD if "jit(_pad)/" in (op.path or "") else None
    if _is_saved(op, opcodes):
        return WIDE if _is_wide(op) else SAVED
    if _CUTS.fullmatch(primitive):
        # A scan takes slices of its operands by itself.
        return None if _OF_SCAN.search(op.path or "") else PARTS
    # In the backward pass, a broadcast is the gradient of a sum.
    is_spread = any(array.rank for array in op.hlo.operands) and op.phase != "backward"
    return BROADCAST if primitive == "broadcast_in_dim" and is_spread else None


def _kind_of_copy(op: Op) -> str | None:
    source, copy = op.hlo.operands[:1], op.hlo.outputs[:1]
    if _OF_SCAN.search(op.path or "") or _adds_dimension(op):
        return None
    if op.hlo.opcode == "copy" and source and copy:
        layouts = [(array.dtype, array.order_and_tiles) for array in (source[0], copy[0])]
        if layouts[0] == layouts[1]:
            # The layout stays as it is, so another order of axes does not help.
            return None
    return LAYOUT


def _adds_dimension(op: Op) -> bool:
    """Return True if a reshape only adds or drops dimensions of length 1, as a scan does."""
    shapes = [op.hlo.operands[:1], op.hlo.outputs[:1]]
    dims = [[n for n in array.dims.split(",") if n != "1"] for arrays in shapes for array in arrays]
    return op.hlo.opcode == "reshape" and len(dims) == 2 and dims[0] == dims[1]


def _kind_of_math(entry: LedgerEntry, opcodes: frozenset[str]) -> str | None:
    op = entry.ran.op
    if _SHRINKING * _largest(op.outputs) <= _n_reduced(op):
        return None if _is_next_to_kernel(op) else REDUCE
    if entry.t_memory is not None and _VECTOR_TIMES * entry.t_memory < entry.total:
        return VECTOR
    return WIDE if entry.name == MEMORY_BOUND and _is_wide(op) else None


def _primitive(op: Op) -> str:
    """Return the primitive of the user's program, such as `dot_general`; empty if unknown."""
    return (op.scope.primitive if op.scope else None) or ""


def _opcodes(op: Op) -> frozenset[str]:
    """Return the opcodes of the instructions that an op runs. If the program is unknown, take those
    of a fusion from its name, such as `copy_bitcast_fusion`."""
    here = op.instruction
    if here:
        return here.opcodes
    is_fusion = op.hlo.opcode in ("", "fusion")
    return frozenset(op.hlo.base_name.split("_") if is_fusion else (op.hlo.opcode,))


def _largest(arrays: list[ArrayText]) -> int:
    return max((array.n_elements for array in arrays), default=0)


def _n_reduced(op: Op) -> int:
    """Return the number of elements of the largest array that an op reduces; 0 if there is none."""
    if op.instruction is None:
        return _largest(op.hlo.operands) if _primitive(op).startswith("reduce_") else 0
    reduced = (
        array.n_elements
        for part in op.instruction.parts_with({"reduce"})
        for operand in part.operand_arrays[:1]
        for array in operand or ()
    )
    return max(reduced, default=0)


def _is_wide(op: Op) -> bool:
    """Return True if bf16 instead of f32 would save much of the bytes in HBM."""
    arrays = [array for array in (*op.outputs, *op.hlo.operands) if array.memory_space == HBM]
    return _share_of_f32(arrays) > _THIRD


def _share_of_f32(arrays: list[ArrayText]) -> float:
    n_bytes = sum(array.n_bytes or 0 for array in arrays)
    n_wide = sum(array.n_bytes or 0 for array in arrays if array.dtype == "f32")
    return n_wide / n_bytes if n_bytes else 0


def _is_saved(op: Op, opcodes: frozenset[str]) -> bool:
    """Return True if an op writes an array that a loop saves for the backward pass, or reads it."""
    if op.instruction is None or not opcodes & _SLICES:
        return False
    if op.phase == "forward":
        return "dynamic-update-slice" in opcodes
    if op.phase not in ("backward", "recompute"):
        return False
    parts = (op.instruction, *op.instruction.inside())
    sources = (operand(part, 0) for part in parts if part.opcode == "dynamic-slice")
    return any(_is_made_by_slices(source) for source in sources if source)


def _is_made_by_slices(array: Instruction) -> bool:
    """Return True if an array was written slice by slice, also if it comes from another loop."""
    to_do, begun = [Value(array)], set()
    while to_do:
        for value in origins(to_do.pop(), lambda value: is_layout(value.instruction)):
            here = value.instruction
            if here.opcode == "dynamic-update-slice":
                return True
            loop = here.computation.caller if here.opcode == "parameter" else None
            before = operand(loop, 0) if loop and loop.opcode == WHILE else None
            if before and value not in begun:
                begun.add(value)
                to_do.append(Value(before, value.path))
    return False


def _is_next_to_kernel(op: Op) -> bool:
    """Return True if an op reads what a kernel writes, or writes what a kernel reads."""
    here = op.instruction
    if here is None:
        return False
    before = any(_origin(operand, _PASSING).is_kernel for operand in here.operands)
    return before or any(map(_is_kernel_after, here.users))


def _origin(here: Instruction, passing: Collection[str]) -> Instruction:
    """Return the first instruction that is not one of the given opcodes, backwards along first
    operands."""
    # In a damaged program, an instruction can be its own operand.
    seen: set[Instruction] = set()
    while here.opcode in passing and here.operands and here not in seen:
        seen.add(here)
        here = here.operands[0]
    return here


def _is_kernel_after(here: Instruction) -> bool:
    reached, to_do = {here}, [here]
    for each in to_do:
        new = set(each.users) - reached if each.opcode in _PASSING else set()
        reached |= new
        to_do += new
    return any(each.is_kernel for each in reached)
