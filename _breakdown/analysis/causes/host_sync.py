"""Find pauses between steps in which the host reads a result of the device.

needs: a pause between steps
headline: Reading results between steps

What it finds: The thread that launches the steps reads or awaits a result of the device, and
launches the next step only afterwards.

Why it costs: The device has nothing to do from the end of a step until the result has reached the
host, and the host has prepared and launched the next step. The gain is the time of the pauses
divided by the number of periods.

How the program shows it: The host's threads in the trace do: at least half of the pause, the
launching thread is in a function of JAX that returns a value of an array, such as `float(loss)`,
`.item()`, `np.asarray`, `jax.device_get` or `block_until_ready`. The line is the innermost call of
own code around it. The cause is `likely` if no call covers half of the pause, but the launching
thread waits for a result when the pause begins.

What to change: Fetch results later, for example the loss of the step before, or only after many
steps. `copy_to_host_async` starts the transfer without waiting. Keep decisions that need a result
in the jitted function (`lax.cond`, `lax.while_loop`). In serving, people who launched the next step
before they read the tokens of the last one removed pauses of several ms in each step.

When it is intended: The host needs the result to decide what runs next, or the loop measures the
time of each step.

Example:

    # Before: each step begins only after its predecessor's loss has arrived
    for batch in batches:
        state, loss = train_step(state, batch)
        log(float(loss))
    # After: the loss of the step before is read while the next step runs
    for batch in batches:
        state, loss = train_step(state, batch)
        if previous is not None:
            log(float(previous))
        previous = loss
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.pauses import READING, Group, cause_of

REMEDY = (
    "Launch the next step before the result is read: read the loss of the step before, or only"
    " after many steps, and start transfers with copy_to_host_async."
)


def find(groups: Iterable[Group]) -> Iterator[Cause]:
    for group in groups:
        if group.kind == READING:
            yield cause_of(group, REMEDY, LIKELY if group.reason.is_start else SEEN)
