"""Find kernels that wait for their input: kernels that spend time in regions that only wait for
copies.

    pl.BlockSpec((128, 128), …)                            # small blocks: little math per copy
    pl.BlockSpec((512, 512), …, pipeline_mode=pl.Buffered(3))

The Pallas pipeline copies the next block while the kernel's body computes the current one. If a
copy takes longer than the body, the kernel waits. The cause can be found only if the capture
contains the regions inside kernels. All executions of a kernel share one row.
"""

from __future__ import annotations

from typing import Final

from _analysis.causes.cause import SEEN, Cause, Evidence
from _analysis.causes.sentences import about, clipped, line_says
from _analysis.causes.step_program import place_of_longest, total_of
from _analysis.kernel.kernel_regions import Inside, Regions
from _analysis.remedies import CAUSES
from _pipeline.executions import Executions
from _pipeline.normalize import Step
from _units import time

NAME: Final = "kernel_waits_for_input"


def find(step: Step, inside: Inside) -> list[Cause]:
    members: dict[str, list[Executions]] = {}
    for executions in step.leaves:
        if executions.metadata_id in inside.of_kernel:
            members.setdefault(executions.op.kernel or "", []).append(executions)
    causes = []
    for kernel, of_kernel in members.items():
        regions = inside.of(executions.metadata_id for executions in of_kernel)
        if regions and regions.waiting:
            causes.append(_cause(step, kernel, of_kernel, regions))
    return causes


def _cause(step: Step, kernel: str, members: list[Executions], regions: Regions) -> Cause:
    waiting, total, place = regions.waiting, total_of(members), place_of_longest(members)
    return Cause(
        NAME,
        waiting,
        f"The kernel {clipped(kernel)} (at {line_says(place)}) waits for copies during"
        f" {time(waiting)} of its {time(total)}. Without these waits, the step would save"
        f" {about(waiting, step)}.",
        CAUSES[NAME],
        SEEN,
        Evidence(members),
        *place,
    )
