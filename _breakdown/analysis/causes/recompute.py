"""Find ops of the forward pass that run again in the backward pass.

needs: only the trace

What it finds: All ops that a checkpoint recomputes, except those of `recomputed_repeatedly`.

Why it costs: Each block runs twice, memory for time. The gain is unknown: a program with a
checkpoint does not show how long it takes to write and read the activations instead. A step can
become slower without its checkpoint. So this cause ranks after all others that cost time, and is in
no headline.

How the program shows it: The path of an op has `checkpoint` and `rematted_computation`. The cause
is always `likely`, because the checkpoint may be there to save memory. Ops that the compiler
recomputes without a checkpoint, because memory is short, are excluded. The sentence says how many
bytes would have to be kept: the recomputed arrays that the backward pass reads, for all rounds of a
loop, except gathered weights.

What to change: If memory is free, save more activations: use a checkpoint policy
that keeps the outputs of matmuls, or remove the checkpoint in some layers.

When it is intended: Most often. Treat it as a mistake only if memory is free.

Example:

    # Before: recomputes everything
    block = jax.checkpoint(block)
    # After: recomputes only what is cheap
    block = jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from _breakdown.analysis.causes.shared.cause import LIKELY, Cause, StepFacts
from _breakdown.analysis.causes.shared.checkpoints import common_place_of, recomputed_in
from _breakdown.analysis.causes.shared.step_program import collective_name_of, total_of
from _breakdown.analysis.memory.allocator import runtime_of
from _breakdown.pipeline.executions import Executions
from _breakdown.units import size, time

REMEDY = (
    "If memory is free, save more activations: use a checkpoint policy that keeps the outputs of"
    " matmuls, or remove the checkpoint in some layers."
)


def find(facts: StepFacts) -> Iterator[Cause]:
    left_out = facts.explained_by("recomputed_repeatedly")
    # Exclude ops of depth 0: the compiler recomputes them without a checkpoint if memory is short.
    members = [
        work.executions
        for work in recomputed_in(facts.step)
        if work.depth and id(work.executions) not in left_out
    ]
    if not members:
        return
    device = facts.step.device
    runtime = runtime_of(device.trace, device.plane.name, facts.context)
    free = runtime.min_available if runtime else None
    kept = _bytes_to_keep(facts, members)
    memory = f"takes {size(kept)}" if kept else "takes memory"
    if free is not None:
        memory += f" ({size(free)} of HBM stayed free)"
    yield Cause(
        "The checkpoint at <line> runs forward work again in the backward pass, which takes"
        f" {time(total_of(members))}. Saving activations instead {memory} and time, too, so the"
        " step can also become slower.",
        REMEDY,
        LIKELY,
        members,
        place=common_place_of(members),
    )


def _bytes_to_keep(facts: StepFacts, members: Sequence[Executions]) -> int:
    """Return the bytes of the arrays that only recomputed ops write, and the backward pass
    reads."""
    recomputed = {ran for ran in members if collective_name_of(ran.op) != "all-gather"}
    return sum(
        (array.shape.n_bytes or 0) * max(use.executions.n for use in array.writes)
        for array in facts.arrays
        if array.writes
        and all(use.executions in recomputed for use in array.writes)
        and any(
            use.executions.op.phase == "backward" for use in facts.arrays.effective_reads(array)
        )
    )
