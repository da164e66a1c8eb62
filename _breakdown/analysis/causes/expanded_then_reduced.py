"""Find ops that combine small arrays into a large one, and reduce it again."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from math import prod

from _breakdown.analysis.arrays.engine import Retime, removal_of
from _breakdown.analysis.arrays.graph import STRUCTURE, Value, is_layout, producers, walk
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.one_hots import is_one_hot
from _breakdown.analysis.causes.shared.step_program import StepProgram, own_line_of, total_of
from _breakdown.light import NamedTuple
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted, time
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Array

# The large array has at least this many times the elements of an array that the op moves. With
# fewer, the op has to go through most of the elements anyway.
_GROWING = 2
# A matmul over fewer elements does not fill the rows of a tile (16 in bf16), so it needs another
# layout. The change made one step 16.9 % faster (maxtext f9f46cc98, v5e), and another one slower.
_TINY = 16
# Instructions that make sums of products, for which a matmul is enough, and those that select
# elements, for which a sort or scatter is enough.
_PRODUCTS = frozenset("add convert multiply negate subtract".split())
_CHOICES = frozenset("and compare not or select xor".split())
# Instructions that fill an array of any size from few elements.
_SOURCES = frozenset("broadcast constant iota".split())

FOR_PLACES = (
    "Index with the numbers, or mark and count them with .at[].set, .at[].add or"
    " jax.ops.segment_sum, instead of comparing them with all indices (one_hot)."
)
FOR_ORDER = "Sort, and use searchsorted, cumsum or segment_sum, instead of comparing all pairs."
FOR_PRODUCTS = "Use einsum or a matmul instead (|a - b|² is |a|² - 2ab + |b|²)."


class _Expansion(NamedTuple):
    """A large array that an op makes of broadcasts and reduces, and the instruction to change."""

    ran: Executions
    shape: Array
    helps: str
    origin: Instruction
    # Whether the compiler may not run a matmul instead any faster.
    is_tiny: bool


def find(of: StepProgram) -> Iterator[Cause]:
    hbm = of.roofs.hbm
    if not hbm:
        return
    left_out = of.explained_by(
        "one_hot_matmul", "large_intermediate", "computed_then_dropped", "rewritten_buffer"
    )
    found = (_expansion(of, ran) for ran in of.long_ops if id(ran) not in left_out)
    kinds = grouped(((each.helps, each.is_tiny), each) for each in found if each)
    for (helps, is_tiny), expansions in kinds.items():
        members = [each.ran for each in expansions]
        longest = max(expansions, key=lambda each: each.ran.total)
        casts = list(_casts_for(of, members))
        affected = [*members, *casts]
        at = "mostly at <line>" if len(members) > 1 else "at <line>"
        place = of.place_at(longest.origin)
        yield Cause(
            f"Small arrays are combined into a large one ({longest.shape.text}) and reduced at once"
            f" in {counted(len(members), 'op')}, {at}, which takes {time(total_of(affected))}."
            " Without the large array, the step would save <gain>.",
            helps,
            SEEN if helps == FOR_PLACES else LIKELY,
            affected,
            [*(Retime(ran, _least_time(ran, hbm)) for ran in members), *removal_of(casts)],
            place=place if place.source_user else None,
            can_lose=is_tiny,
            evidence={"shape": longest.shape.text},
        )


def _expansion(of: StepProgram, ran: Executions) -> _Expansion | None:
    here = ran.op.instruction
    if here is None or here.opcode != "fusion" or ran.op.dot:
        return None
    reduces = [inner for inner in here.parts_with({"reduce"}) if inner.operands]
    most = max((array.n_elements for array in _moved(here)), default=0) if reduces else 0
    for reduce in reduces:
        large = Value(reduce.operands[0])
        if large.array and large.array.n_elements >= _GROWING * most and _combines(large):
            made = [large, *(value for value, _ in walk([large], producers, _combines))]
            makers = [value.instruction for value in made]
            origin = _origin(of, reduce, makers)
            helps = _remedy(reduce, makers)
            if helps and origin:
                is_tiny = helps == FOR_PRODUCTS and _n_summed(reduce, large.array) < _TINY
                return _Expansion(ran, large.array, helps, origin, is_tiny)
    return None


def _n_summed(reduce: Instruction, large: Array) -> int:
    """Return the number of elements of which a reduce makes one."""
    return prod(large.dims[dim] for dim in reduce.message.dimensions)


def _casts_for(of: StepProgram, members: list[Executions]) -> Iterator[Executions]:
    """Yield the ops that only cast operands, because the vector unit computes in f32."""
    readers = {ran.op.instruction for ran in members}
    sources = dict.fromkeys(source for here in readers if here for source in here.operands)
    for source in sources:
        if source.opcode == "convert" and source in of.ran_of and readers.issuperset(source.users):
            yield of.ran_of[source]


def _least_time(ran: Executions, hbm: Fraction) -> float:
    """Return the time that the bytes take that an op moves, also in VMEM, at the HBM's peak."""
    here = ran.op.instruction
    n_bytes = sum(array.n_bytes or 0 for array in _moved(here)) if here else 0
    return min(ran.total, ran.n * n_bytes / float(hbm))


def _moved(op: Instruction) -> Iterator[Array]:
    """Yield the arrays that an op reads and writes."""
    for arrays in (op.arrays, *op.operand_arrays):
        yield from arrays or ()


def _combines(value: Value) -> bool:
    here = value.instruction
    return here.opcode in _PRODUCTS | _CHOICES | STRUCTURE or is_layout(here)


def _remedy(reduce: Instruction, makers: list[Instruction]) -> str | None:
    """Return what to do instead of a reduce, or None if it needs all elements."""
    opcodes = {maker.opcode for maker in makers if not _combines(Value(maker))}
    if "broadcast" not in opcodes or not opcodes <= _SOURCES:
        return None
    if any(is_one_hot(Value(maker)) for maker in makers):
        return FOR_PLACES
    compares = [maker for maker in makers if maker.opcode == "compare"]
    if compares:
        return FOR_ORDER if all(_can_sort(compare, reduce) for compare in compares) else None
    is_sum = any(called.root and called.root.opcode == "add" for called in reduce.called)
    return FOR_PRODUCTS if is_sum and not _is_matmul(reduce) else None


def _can_sort(compare: Instruction, reduce: Instruction) -> bool:
    """Return whether a sort can replace a comparison of all pairs. Each element of one side must be
    compared with several elements of the sum."""
    sides = [_dims_of(Value(side)) for side in compare.operands]
    return any(sum(dim in side for side in sides) == 1 for dim in reduce.message.dimensions)


def _dims_of(value: Value) -> set[int]:
    """Return the dimensions along which an array of broadcasts has different elements."""
    made = [value, *(each for each, _ in walk([value], producers, _combines))]
    sources = (each.instruction for each in made if not _combines(each))
    return {dim for source in sources for dim in source.message.dimensions}


def _is_matmul(reduce: Instruction) -> bool:
    """Return whether a reduce was a matmul, which the compiler writes as products and their sum if
    it has few rows."""
    return (reduce.op_name or "").endswith("dot_general")


def _origin(of: StepProgram, reduce: Instruction, makers: list[Instruction]) -> Instruction | None:
    """Return the instruction that makes the array large; None if only a matmul does."""
    for maker in makers:
        if own_line_of(maker, of.is_own) and maker.op_name != reduce.op_name:
            return maker
    return None if _is_matmul(reduce) else reduce
