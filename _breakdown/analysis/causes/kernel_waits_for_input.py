"""Find kernels that wait for their input."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Gain
from _breakdown.analysis.causes.shared.cause import SEEN, Cause, StepFacts
from _breakdown.analysis.causes.shared.sentences import clipped
from _breakdown.pipeline.groups import group_by
from _breakdown.units import time

REMEDY = (
    "Use more buffers (pipeline_mode=pl.Buffered(3)), so that copies start earlier. Or move fewer"
    " bytes: a narrower dtype, or blocks that stay in VMEM between grid steps. Or try larger"
    " blocks, so that there is more math for each byte that is copied, and measure."
)


def find(facts: StepFacts) -> Iterator[Cause]:
    inside = facts.inside
    observed = [ran for ran in facts.step.leaves if ran.metadata_id in inside.of_kernel]
    for kernel, group in group_by(observed, lambda op: op.kernel or "").items():
        regions = inside.of(ran.metadata_id for ran in group.members)
        if regions and regions.waiting:
            uses = (use for ran in group.members for use in facts.arrays.uses_of.get(ran, ()))
            in_memory = facts.roofs.t_memory(sum(use.n_bytes for _, use in uses)) or 0
            avoidable = max(0, min(regions.waiting, group.total - round(in_memory)))
            yield Cause(
                f"The kernel {clipped(kernel)} (at <line>) waits for copies during"
                f" {time(regions.waiting)} of its {time(group.total)}. Without these waits, the"
                " step would save <gain>.",
                REMEDY,
                SEEN,
                group.members,
                measured=Gain.at_most(avoidable),
            )
