"""Find pauses between steps in which the host compiles a program.

needs: a pause between steps
headline: Compiling between steps

What it finds: After the first step of the capture, the host lowers or compiles a program while the
device waits.

Why it costs: Compiling takes seconds or minutes, and the device waits for the compiled program. The
gain is the time of the pauses divided by the number of periods.

How the program shows it: The host's threads in the trace do: at least half of the pause, the
launching thread is in a function of JAX that lowers or compiles. The cause is `likely`, because a
program that is compiled for the first time, such as an evaluation, is compiled only once. The line
is the innermost call of own code around it.

What to change: Call the jitted function with equal shapes, dtypes, shardings and static arguments
in all steps: pad batches to a few sizes. Compile all sizes before the loop, and keep compiled
programs on disk (`jax_compilation_cache_dir`). `jax_explain_cache_misses` logs why a program was
compiled again. People with padded batch sizes and a warm-up saw pauses of minutes disappear from
serving.

When it is intended: The first evaluation, or the first batch of a new size.

Example:

    # Before: the last batch is smaller, so the step is compiled again
    for batch in batches:
        state = train_step(state, batch)
    # After: all batches have the same size
    for batch in batches:
        state = train_step(state, padded(batch, BATCH_SIZE))
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.pauses import COMPILING, Group, cause_of

REMEDY = (
    "Use equal shapes, dtypes, shardings and static arguments in all steps, for example padded"
    " batches. Compile other programs before the loop; jax_explain_cache_misses logs why one is"
    " compiled again."
)


def find(groups: Iterable[Group]) -> Iterator[Cause]:
    for group in groups:
        if group.kind == COMPILING:
            yield cause_of(group, REMEDY, LIKELY)
