"""Find ops of the forward pass that run again in the backward pass."""

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
