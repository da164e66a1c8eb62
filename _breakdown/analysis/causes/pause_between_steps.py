"""Find pauses between steps in which the device waits for the host.

needs: a pause between steps
headline: Waiting for the host

What it finds: No step runs for at least 0.5 % of the period, while the host works or waits.

Why it costs: The device is idle. The gain is the time of the pauses divided by the number of
periods, so its share is relative to the period, not to the step. `--step all` contains the pauses:
there, the gain is their whole time.

How the program shows it: The trace does. All pauses between the steps of the picked step's name
count. The host does what the calls that cover at least half of a pause say, on a thread that
launches programs. Pauses in which the host does the same are one cause. If a single pause takes
more than half of the total time, and at least twice as long as the next, it is a cause of its own.
The line is the innermost of these calls in own code, or the function of the same file by which
other code enters the file, unless this function also launches a step. The cause is `likely` if the
only calls are loops around the steps. Pauses in which the host reads a result or compiles are the
causes `host_sync` and `recompilation`.

What to change: Let the host work ahead: load and transfer the next batch, and save checkpoints, in
another thread while the step runs. Read results of earlier steps only.

When it is intended: Evaluation or a checkpoint after many steps; a single pause is named as such.

Example:

    # Before: the device waits for the loader, and for the log
    for batch in loader:
        state, loss = train_step(state, batch)
        log(float(loss))
    # After: the next batch is loaded during the step, and the loss of the step before is read
    previous = 0.0
    for batch in prefetched(loader):
        state, loss = train_step(state, batch)
        log(float(previous))
        previous = loss
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.pauses import OTHER, Group, cause_of

REMEDY = (
    "Let the host work ahead: load and transfer the next batch, and save checkpoints, in another"
    " thread while the step runs. Do not wait for results (block_until_ready, float(loss), logging)"
    " after each step."
)


def find(groups: Iterable[Group]) -> Iterator[Cause]:
    for group in groups:
        if group.kind == OTHER:
            # A loop around the steps runs in every pause, so it does not explain one.
            is_vague = all(call.is_loop for call in group.reason.host.calls)
            yield cause_of(group, REMEDY, LIKELY if is_vague else SEEN)
