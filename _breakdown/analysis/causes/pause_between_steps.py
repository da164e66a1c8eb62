"""Find pauses between steps in which the device waits for the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.pauses import PauseGroup, cause_of
from _breakdown.analysis.idle.host_words import (
    COLLECTING,
    COMPILING,
    LOADING,
    PROFILING,
    READING,
    SAVING,
    SENDING,
    Kind,
)

REMEDY = (
    "Let the host work ahead: load and transfer the next batch, and save checkpoints, in another"
    " thread while the step runs. Do not wait for results (block_until_ready, float(loss), logging)"
    " after each step."
)
# What helps against work of other kinds.
REMEDIES: dict[Kind, str] = {
    # A server stopped collecting so often with `gc.freeze()` and higher thresholds (JetStream 158).
    COLLECTING: (
        "Let Python collect less often: gc.freeze() after the start, higher thresholds"
        " (gc.set_threshold), or gc.disable() and gc.collect() at times without load."
    ),
    LOADING: "Load all programs before the loop: call each once with every shape.",
    # A server passed fewer leaves and scalars that stay on the device (sglang-jax 1652).
    SENDING: (
        "Pass fewer arguments: keep scalars and unchanged arrays on the device, and join small"
        " arrays into one."
    ),
    SAVING: "Save checkpoints asynchronously, and less often.",
    PROFILING: "Nothing: the profiler itself needs this time.",
}


def find(groups: Iterable[PauseGroup]) -> Iterator[Cause]:
    for group in groups:
        if group.kind not in (READING, COMPILING):
            remedy = REMEDIES.get(group.kind, REMEDY)
            yield cause_of(group, remedy, SEEN if group.host.is_certain else LIKELY)
