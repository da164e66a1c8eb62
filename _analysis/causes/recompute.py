"""Find ops of the forward pass that run again in the backward pass.

needs: only the trace

What it finds: All ops that a checkpoint recomputes, except those of `recomputed_repeatedly`.

Why it costs: Each block runs twice, memory for time. The gain is the time of the recomputation. It
is often far smaller, because saving activations takes time, too, so this cause ranks after all
others that cost time, and is in no headline.

How the program shows it: The path of an op has `checkpoint` and `rematted_computation`. The cause
is always `likely`, because the checkpoint may be there to save memory. Ops that the compiler
recomputes without a checkpoint, because memory is short, are excluded.

What to change: If memory is free (`hbm_free_bytes`), save more activations: use a checkpoint policy
that keeps the outputs of matmuls, or remove the checkpoint in some layers.

When it is intended: Most often. Treat it as a mistake only if memory is free.

Example:

    # Before: recomputes everything
    block = jax.checkpoint(block)
    # After: recomputes only what is cheap
    block = jax.checkpoint(block, policy=jax.checkpoint_policies.dots_saveable)
"""

from __future__ import annotations

from collections.abc import Iterator

from _analysis.causes.shared.cause import LIKELY, Cause, StepFacts
from _analysis.causes.shared.checkpoints import common_place_of, recomputed_in
from _analysis.causes.shared.step_program import total_of
from _analysis.memory.allocator import runtime_of
from _units import size, time

REMEDY = (
    "If memory is free, save more activations: use a checkpoint policy that keeps the outputs of"
    " matmuls, or remove the checkpoint in some layers."
)


def find(facts: StepFacts) -> Iterator[Cause]:
    left_out = facts.explained_by("recomputed_repeatedly")
    # Exclude ops of depth 0: the compiler recomputes them without a checkpoint if memory is short.
    recomputed = [
        work
        for work in recomputed_in(facts.step)
        if work.depth and id(work.executions) not in left_out
    ]
    if not recomputed:
        return
    members = [work.executions for work in recomputed]
    device = facts.step.device
    runtime = runtime_of(device.trace, device.plane.name, facts.context)
    free = runtime.min_available if runtime else None
    memory = "costs memory" if free is None else f"costs memory ({size(free)} of HBM stayed free)"
    yield Cause(
        "The checkpoint at <line> runs forward work again in the backward pass, which takes"
        f" {time(total_of(members))}. Saving activations instead {memory} and time, too, so the"
        " step can also become slower.",
        REMEDY,
        LIKELY,
        members,
        place=common_place_of(members),
    )
