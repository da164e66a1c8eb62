"""Find large arrays that are written to memory only to be read and reduced again."""

from __future__ import annotations

from collections.abc import Iterator
from math import floor

from _breakdown.analysis.arrays.engine import Resize, removal_of
from _breakdown.analysis.arrays.graph import DOTS
from _breakdown.analysis.arrays.of_step import TEMPORARY, StepArray
from _breakdown.analysis.causes.shared.attention_scores import has_dims, scores_in
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.resized import LITTLE, multiplies, sizes_of
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of_longest
from _breakdown.analysis.sizes.edges import OTHER
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.units import size

# Scores that stay on the chip have no bytes in HBM. At exactly 0, the engine would also remove the
# matmuls that make them, but a kernel still needs these.
_ON_THE_CHIP = 2**-20

FOR_REDUCED = (
    "Make only the elements that are used: for example logsumexp minus the selected logit instead"
    " of log_softmax, or rows that are taken before they are cast. Chunks free more memory, but are"
    " usually slower."
)
# Rows that are only added up are no logits.
FOR_ROWS = (
    "Reduce where the array is made, for example in the same einsum or kernel, instead of writing"
    " it first."
)
FOR_SCORES = (
    "Use a fused attention kernel (flash or splash attention), or compute attention in blocks."
)


def find(of: StepProgram) -> Iterator[Cause]:
    # Arrays whose bytes take less time than the smallest reported gain are not worth a row.
    least = floor(of.floor * of.roofs.hbm / 2) if of.roofs.hbm is not None else None
    large = [
        array
        for array in of.arrays
        if least is not None
        and array.moved > least
        and array.value.instruction.program is of.program
        and of.arrays.kind_of(array) == TEMPORARY
    ]
    yield from _reduced(of, large)
    yield from _scores(of, large)


def _reduced(of: StepProgram, large: list[StepArray]) -> Iterator[Cause]:
    """Yield the arrays of which only small arrays are made."""
    sizes = sizes_of(of)
    uses_of, repeating = of.arrays.uses_of, of.explained_by("broadcast_in_memory")
    found = {
        array: of.place_at(moved.seed)
        for array in large
        if array.reads and array.makers and array.origin is None
        if not repeating.issuperset(map(id, array.makers))
        # An op can write what it computes of an array instead of the array, but not a matmul, a
        # kernel or a collective.
        if not any(multiplies(use.ran) for use in array.uses)
        if set(of.collectives).isdisjoint(array.makers)
        # Loops write an array for many rounds slice by slice, and can read it in this way.
        if array.written == (array.shape.n_bytes or 0) * sum(use.ran.n for use in array.writes)
        if (moved := sizes.little.left(array.value)) and moved.left <= LITTLE
    }
    gradients = grouped(
        (of.place_at(each.moved.seed).source_user, each) for each in sizes.ops_of(OTHER, sizes.zero)
    )
    by_line = grouped((place.source_user, array) for array, place in found.items())
    for line, arrays in by_line.items():
        writers = list(dict.fromkeys(ran for array in arrays for ran in array.makers))
        only_for_them = [
            ran for ran in writers if all(a in found for a, use in uses_of[ran] if use.is_write)
        ]
        readers = [use.ran for array in arrays for use in array.reads]
        # Without the array, there is no gradient that puts what was taken between zeros. What also
        # makes another array, of which only a part is used, can compute this part.
        more = [
            *(gradients.get(line, []) if line else []),
            *(row for row in sizes.ops_of(OTHER, sizes.part) if row.ran in writers),
        ]
        biggest = max(arrays, key=lambda array: array.moved)
        shape = biggest.shape.text
        yield Cause(
            f"<line> writes {shape} ({size(biggest.shape.n_bytes or 0)}) to memory, and everything"
            " made of it has at most an eighth of its size. Without the array, the step would save"
            " <gain>.",
            FOR_ROWS if _only_across_rows(readers) else FOR_REDUCED,
            SEEN,
            list(dict.fromkeys([*writers, *readers, *(each.ran for each in more)])),
            [
                *(Resize(array.value, 0) for array in arrays),
                *removal_of(only_for_them),
                *(each.change for each in more),
            ],
            place=place_of_longest(writers),
            evidence={"shape": shape},
        )


def _only_across_rows(readers: list[Executions]) -> bool:
    """Return whether ops reduce arrays, but never along the last dimension."""
    heres = (ran.op.instruction for ran in readers)
    reduces = [part for here in heres if here for part in here.parts_with({"reduce"})]
    return bool(reduces) and not any(
        len(array.dims) - 1 in part.message.dimensions
        for part in reduces
        for array in part.operand_arrays[0] or ()
    )


def _scores(of: StepProgram, large: list[StepArray]) -> Iterator[Cause]:
    softmaxed = (dot for dot in of.with_opcodes(*DOTS) if dot in of.softmaxed)
    for dims, dots in scores_in(softmaxed).items():
        arrays = [array for array in large if has_dims(array.shape, dims)]
        if not arrays:
            continue
        dot = min(dots, key=lambda dot: of.order.get(dot, len(of.order)))
        shape = max(arrays, key=lambda array: array.moved).shape.text
        moved = sum(array.moved for array in arrays)
        yield Cause(
            f"<line> computes all attention scores, and writes them to memory ({shape}): ops move"
            f" {size(moved)} of them. A fused kernel keeps them on the chip, and would save"
            " <gain>.",
            FOR_SCORES,
            LIKELY,
            list(dict.fromkeys(use.ran for array in arrays for use in array.uses)),
            [Resize(array.value, _ON_THE_CHIP) for array in arrays],
            place=of.place_at(dot),
            evidence={"shape": shape},
        )
