"""Find arrays that are kept for all rounds of a loop for little of each round."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Change, Remove, Resize
from _breakdown.analysis.arrays.graph import loop_around
from _breakdown.analysis.arrays.of_step import TEMPORARY, StepArray
from _breakdown.analysis.causes.shared.cause import SEEN, Cause
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.units import size

# About 1 % of the memory of the chips with the least HBM, 16 GB. Smaller arrays save little.
_LEAST_BYTES = 128 << 20
# As for `large_intermediate`: a change of dtype at most quarters the bytes of floats.
_SHRINKING = 8

WHAT_HELPS = (
    "Reduce in the loop, and return only what is used of each round, for example from the body of"
    " lax.scan."
)


def find(of: StepProgram) -> Iterator[Cause]:
    uses_of = of.arrays.uses_of
    for array in of.arrays if of.by_loop else ():
        if not _is_filled_by_loop(of, array):
            continue
        readers = list(dict.fromkeys(use.executions for use in of.arrays.effective_reads(array)))
        made = sum(
            (result.shape.n_bytes or 0) * ran.n
            for ran in readers
            for result, use in uses_of[ran]
            if use.is_write and result.origin is None
        )
        if (
            not readers
            or _SHRINKING * made > array.written
            or any(ran.op.phase in ("backward", "recompute") or ran.op.dot for ran in readers)
        ):
            continue
        # An op that computes a round's part and writes it to the array must still compute it.
        copying = [
            ran
            for ran in array.makers
            if not ran.op.dot
            and not ran.op.kernel
            and all(other is array for other, use in uses_of[ran] if use.is_write)
        ]
        changes: list[Change] = [Remove(copying)] if copying else [Resize(array.value, 0)]
        n_bytes = array.shape.n_bytes or 0
        yield Cause(
            f"<line> keeps {array.shape.text} ({size(n_bytes)}) of all rounds of a loop, and later"
            f" ops make only {size(made)} of it. Reducing it in each round would save <gain>.",
            WHAT_HELPS,
            SEEN,
            [*array.makers, *readers],
            changes,
            evidence={"shape": array.shape.text},
        )


def _is_filled_by_loop(of: StepProgram, array: StepArray) -> bool:
    n_bytes = array.shape.n_bytes or 0
    return (
        array.value.instruction.program is of.program
        and n_bytes >= _LEAST_BYTES
        and of.arrays.kind_of(array) == TEMPORARY
        and bool(array.makers)
        and all(
            ran.op.phase not in ("backward", "recompute")
            and ran.op.instruction is not None
            and loop_around(ran.op.instruction.computation) is not None
            for ran in array.makers
        )
        and any(use.n_bytes < n_bytes * use.executions.n for use in array.writes)
    )
