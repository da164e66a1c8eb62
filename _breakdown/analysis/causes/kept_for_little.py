"""Find arrays that are kept for all rounds of a loop for little of each round."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Change, Resize, removal_of
from _breakdown.analysis.arrays.graph import WHILE, Value, body_of, operand, parameter
from _breakdown.analysis.arrays.of_step import TEMPORARY
from _breakdown.analysis.causes.shared.cause import SEEN, Cause
from _breakdown.analysis.causes.shared.resized import multiplies, sizes_of
from _breakdown.analysis.causes.shared.step_program import StepProgram
from _breakdown.analysis.sizes.edges import last_of
from _breakdown.units import size
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Path

# One of at least four layers, for example.
_LITTLE = 1 / 4
# The phases in which an array is read for gradients.
_FOR_GRADIENTS = ("backward", "recompute")

WHAT_HELPS = (
    "Reduce in the loop, and return only what is used of each round, for example from the body of"
    " lax.scan."
)


def find(of: StepProgram) -> Iterator[Cause]:
    least = of.floor * float(of.roofs.hbm or 0)
    large = (
        (loop, path, shape)
        for loop in of.with_opcodes(WHILE)
        for path, shape in loop.leaves or ()
        if shape and (shape.n_bytes or 0) >= least and _is_filled(loop, path)
    )
    for loop, path, shape in large:
        array, moved = (
            of.arrays.array_at(Value(loop, path)),
            sizes_of(of).little.left(Value(loop, path)),
        )
        if not array or not moved or moved.left > _LITTLE or of.arrays.kind_of(array) != TEMPORARY:
            continue
        readers = list(dict.fromkeys(use.ran for use in of.arrays.effective_reads(array)))
        if any(ran.op.phase in _FOR_GRADIENTS for ran in (*readers, *array.makers)):
            continue
        # An op that computes a round's part and writes it to the array must still compute it.
        copying = [
            ran
            for ran in array.makers
            if not multiplies(ran)
            and all(made is array for made, use in of.arrays.uses_of[ran] if use.is_write)
        ]
        changes: list[Change] = [*removal_of(copying)] if copying else [Resize(array.value, 0)]
        # Nothing has to be filled before the rounds write their parts.
        filling = [use.ran for use in array.writes if use.is_filling]
        changes += removal_of(filling)
        n_bytes = shape.n_bytes or 0
        yield Cause(
            f"<line> takes or makes only {size(round(n_bytes * moved.left))} of {shape.text}"
            f" ({size(n_bytes)}), which a loop keeps for it from all rounds. Reducing it in each"
            " round would save <gain>.",
            WHAT_HELPS,
            SEEN,
            [*array.makers, *readers],
            changes,
            place=of.place_at(moved.seed),
            evidence={"shape": shape.text},
        )


def _is_filled(loop: Instruction, path: Path) -> bool:
    """Return whether each round of a loop writes a part of an element of its state."""
    update = last_of(Value(loop, path)).instruction
    start = operand(update, 0) if update.opcode == "dynamic-update-slice" else None
    body = body_of(loop)
    state = parameter(body, 0) if body else None
    return start is not None and last_of(Value(start)) == (state, path)
