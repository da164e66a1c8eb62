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
    TRANSFERRING,
    Kind,
)

REMEDY = (
    "Let the host work ahead: load and transfer the next batch, and save checkpoints, in another"
    " thread while the step runs. Do not wait for results (block_until_ready, float(loss), logging)"
    " after each step."
)
# What helps if the host also reads a result in the pause.
AFTER_READING = (
    "Launch the next step first if it does not need the result that the host reads here. Otherwise"
    " shorten what the host does from reading to launching: do before, while the step runs, what"
    " does not need the result, and compute the rest on the device."
)
# What helps if own code on another thread does the work.
ON_ANOTHER_THREAD = (
    "Start this work earlier (such as two batches ahead), shorten it, share it among processes, or"
    " hold no lock meanwhile: it is on another thread, but the thread that launches the steps waits"
    " for it."
)
# A server moved caches by un-jitted JAX ops, each of which is a program (tpu-inference 131).
ONE_PROGRAM = (
    "Put the JAX ops of this function into one jitted function: outside of one, each op is a"
    " program of its own, which the host has to launch."
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
    # A server sent all weights, of which few had changed, at each set of adapters (tpu-inference
    # 930).
    TRANSFERRING: (
        "Transfer only arrays that changed, all in one call of jax.device_put, and before the"
        " pause, while the step runs; keep the others on the device."
    ),
    SAVING: "Save checkpoints asynchronously, and less often.",
    PROFILING: "Nothing: the profiler itself needs this time.",
}


def find(groups: Iterable[PauseGroup]) -> Iterator[Cause]:
    for group in groups:
        if group.kind not in (READING, COMPILING):
            usual = AFTER_READING if group.host.reads else REMEDY
            if group.host.waiting and group.host.reported:
                usual = ON_ANOTHER_THREAD
            remedy = ONE_PROGRAM if group.n_programs else REMEDIES.get(group.kind, usual)
            yield cause_of(group, remedy, SEEN if group.host.is_certain else LIKELY)
