"""Find large arrays that are written to memory only to be read and reduced again."""

from __future__ import annotations

from collections.abc import Iterator
from math import floor

from _breakdown.analysis.arrays.engine import Change, Remove, Resize
from _breakdown.analysis.arrays.graph import DOTS, Value, is_backward
from _breakdown.analysis.arrays.of_step import TEMPORARY, StepArray, Use
from _breakdown.analysis.causes.shared.attention_scores import has_dims, scores_in, sorted_dims
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of, place_of_longest
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.units import size

# What is made of an array is small if it has at most 1 / `_SHRINKING` of the array's bytes: a row
# of a vocabulary becomes one number, but a change of dtype only halves or quarters the bytes.
_SHRINKING = 8
# Scores that stay on the chip have no bytes in HBM. At exactly 0, the engine would also remove the
# matmuls that make them, but a kernel still needs these.
_ON_THE_CHIP = 2**-20

FOR_REDUCED = (
    "Reduce before writing: compute only the elements that are used, for example logsumexp minus"
    " the selected logit instead of log_softmax. Chunks free more memory, but are usually slower."
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
    yield from _Reduced(of, large).causes()
    yield from _scores(of, large)


class _Reduced:
    """The arrays of which only small arrays are made."""

    def __init__(self, of: StepProgram, large: list[StepArray]) -> None:
        self.of, self.uses_of = of, of.arrays.uses_of
        self.repeating = of.explained_by("broadcast_in_memory")
        self.left_out: dict[Value, StepArray] = {}
        # Arrays that are made of each other have one line.
        self.line_of: dict[Value, str | None] = {}
        place = {ran: place for place, ran in enumerate(of.leaves)}
        last = {
            a.value: max((place[use.executions] for use in a.writes), default=-1) for a in large
        }
        # Judge what is made of an array before the array.
        for array in sorted(large, key=lambda array: -last[array.value]):
            if self.is_only_reduced(array):
                self.left_out[array.value] = array
                self.line_of[array.value] = next(
                    (
                        self.line_of[made.value]
                        for made, _ in self.made_of(array)
                        if made.value in self.left_out
                    ),
                    place_of(array.makers[0].op).source_user,
                )

    def causes(self) -> Iterator[Cause]:
        arrays_of = grouped((self.line_of[value], array) for value, array in self.left_out.items())
        for arrays in arrays_of.values():
            writers = list(dict.fromkeys(ran for array in arrays for ran in array.makers))
            only_for_them = [
                ran
                for ran in writers
                if all(a.value in self.left_out for a, use in self.uses_of[ran] if use.is_write)
            ]
            changes: list[Change] = [Resize(array.value, 0) for array in arrays]
            gradients = list(self.gradients(arrays))
            changes.append(Remove([*only_for_them, *gradients]))
            readers = [use.executions for array in arrays for use in array.reads]
            biggest = max(arrays, key=lambda array: array.moved)
            shape = biggest.shape.text
            yield Cause(
                f"<line> writes {shape} ({size(biggest.shape.n_bytes or 0)}) to memory, and"
                " everything made of it has at most an eighth of its size. Without the array, the"
                " step would save <gain>.",
                FOR_REDUCED,
                SEEN,
                list(dict.fromkeys([*writers, *readers, *gradients])),
                changes,
                place=place_of_longest(writers),
                evidence={"shape": shape},
            )

    def is_only_reduced(self, array: StepArray) -> bool:
        n_bytes = array.shape.n_bytes or 0
        n_bytes_made = sum(
            (made.shape.n_bytes or 0) * use.executions.n
            for made, use in self.made_of(array)
            if made.value not in self.left_out
        )
        is_written_whole = all(use.n_bytes == n_bytes * use.executions.n for use in array.writes)
        return (
            bool(array.reads and array.makers)
            and not self.repeating.issuperset(map(id, array.makers))
            and array.origin is None
            and not any(_multiplies(use.executions) for use in array.uses)
            # Loops write an array for many rounds slice by slice, and can read it in this way.
            and is_written_whole
            and _SHRINKING * n_bytes_made <= array.written
        )

    def made_of(self, array: StepArray) -> Iterator[tuple[StepArray, Use]]:
        for ran in dict.fromkeys(use.executions for use in array.reads):
            yield from ((made, use) for made, use in self.uses_of[ran] if use.is_write)

    def gradients(self, arrays: list[StepArray]) -> Iterator[Executions]:
        """Yield the ops of the backward pass that build an array's gradient of a few values, and
        reduce it at once: without the array, there is no such gradient."""
        lines = {place_of(use.executions.op).source_user for a in arrays for use in a.reads}
        shapes = {sorted_dims(array.shape.dims) for array in arrays}
        smallest = min(array.shape.n_bytes or 0 for array in arrays)
        for ran in self.of.leaves:
            here = ran.op.instruction
            if here is None or ran.op.phase != "backward" or _multiplies(ran):
                continue
            if any(
                is_backward(select)
                and self.of.place_at(select).source_user in lines
                and any(sorted_dims(shape.dims) in shapes for shape in select.arrays or ())
                for select in here.parts_with({"select"})
            ) and all(
                _SHRINKING * (array.shape.n_bytes or 0) <= smallest
                for array, _ in self.uses_of.get(ran, ())
            ):
                yield ran


def _multiplies(ran: Executions) -> bool:
    return ran.op.dot is not None or bool(ran.op.kernel)


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
            list(dict.fromkeys(use.executions for array in arrays for use in array.uses)),
            [Resize(array.value, _ON_THE_CHIP) for array in arrays],
            place=of.place_at(dot),
            evidence={"shape": shape},
        )
