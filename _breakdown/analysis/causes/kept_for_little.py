"""Find arrays that are kept for all rounds of a loop, although only little of each round is used.

needs: a program
headline: Keeping an array of all rounds for little of it

What it finds: A large array that a loop fills round by round, such as the logits of all chunks, and
that is reduced after the loop, for example to an accuracy.

Why it costs: Each round copies its part into the array, and HBM must hold all rounds. The estimate
removes these copies. Reading the array again takes time, too, but so does reducing each round.
People who computed losses and metrics of 512 positions at a time, in a scan, kept 0.3 GB of logits
instead of 9.6 GB (axlearn, pull request 1236).

How the program shows it: The forward pass writes an array of at least 128 MiB slice by slice, in a
loop. All ops that read it are outside of the backward pass, have no matmul, and make at most an
eighth of its bytes of it.

What to change: Reduce in the loop, and return what is used of each round: from the body of
`lax.scan`, or from the function under `lax.map`.

When it is intended: The array is also written to disk, or looked at while debugging.

Example:

    # Before: all logits leave the scan
    _, logits = lax.scan(lambda _, x: (None, x @ head), None, chunks)
    hits = logits.argmax(-1) == labels
    # After
    both = chunks, labels
    _, hits = lax.scan(lambda _, c: (None, (c[0] @ head).argmax(-1) == c[1]), None, both)
"""

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
