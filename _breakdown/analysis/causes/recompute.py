"""Find ops of the forward pass that run again in the backward pass."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from _breakdown.analysis.causes.shared.cause import LIKELY, Cause, StepFacts
from _breakdown.analysis.causes.shared.checkpoints import common_place_of, recomputed_in
from _breakdown.analysis.causes.shared.step_program import collective_name_of, total_of
from _breakdown.analysis.memory.allocator import runtime_of
from _breakdown.analysis.roof.exposed import is_exposed
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.units import size, time

REMEDY = (
    "If memory is free, save more activations: use a checkpoint policy that keeps the outputs of"
    " matmuls, or remove the checkpoint in some layers."
)


def find(facts: StepFacts) -> Iterator[Cause]:
    left_out = facts.explained_by("recomputed_repeatedly")
    # Exclude ops of depth 0: the compiler recomputes them without a checkpoint if memory is short.
    members = [
        again.executions
        for again in recomputed_in(facts.step)
        if again.depth and id(again.executions) not in left_out
    ]
    # Communication that runs again counts apart, because something else can remove it.
    kinds = grouped((_is_communication(ran), ran) for ran in members)
    work, sent = kinds.get(False, []), kinds.get(True, [])
    if not work:
        return
    device = facts.step.device
    runtime = runtime_of(device.trace, device.plane.name, facts.context)
    free = runtime.min_available if runtime else None
    kept = _bytes_to_keep(facts, members)
    memory = f"takes {size(kept)}" if kept else "takes memory"
    if free is not None:
        memory += f" ({size(free)} of HBM stayed free)"
    also = f", besides {time(total_of(sent))} of communication" if sent else ""
    yield Cause(
        "The checkpoint at <line> runs forward work again in the backward pass, which takes"
        f" {time(total_of(work))}{also}. Saving activations instead {memory} and time, too, so the"
        " step can also become slower.",
        REMEDY,
        LIKELY,
        work,
        place=common_place_of(members),
    )


def _is_communication(ran: Executions) -> bool:
    return is_exposed(ran.op) and collective_name_of(ran.op) is not None


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
