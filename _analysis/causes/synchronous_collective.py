"""Find collectives that block the core although independent math could run at the same time.

    grads = all_reduce(grads)    # the core waits
    y = x @ w                    # this needs none of the result

An asynchronous collective could overlap with this math. The gain is the time that the step saves if
all these collectives begin as early as possible; the core keeps the order of the trace (see
`links.py`). All collectives are in one row, because a flag switches all of them and they share the
links. The cause is always `likely`: the compiler may have a reason, and it hides less if memory is
short. If some collectives with an opcode are asynchronous, the compiler has decided on each of them
individually, so this opcode is excluded. All-to-alls are also excluded, because no flag makes them
asynchronous.

Without the latency hiding scheduler, the compiler still makes collectives asynchronous, but waits
for each of them as soon as it has begun. In this case, the row also includes asynchronous
collectives.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Final

from _analysis.causes.cause import LIKELY, Cause, Evidence
from _analysis.causes.sentences import about, line_says, listed, only
from _analysis.causes.step_program import (
    StepProgram,
    collective_name_of,
    counts_of,
    place_of_longest,
    total_of,
)
from _analysis.remedies import CAUSES
from _pipeline.executions import Executions
from _units import time

NAME: Final = "synchronous_collective"
_OFFLOADED = ("all-gather", "all-reduce", "reduce-scatter")
_OFFLOAD = "xla_tpu_enable_sparse_core_collective_offload_"
_SCHEDULER = "xla_tpu_enable_latency_hiding_scheduler"
_FUSION_FLAGS = (
    "xla_tpu_enable_async_collective_fusion",
    "xla_tpu_enable_async_collective_fusion_fuse_{name}",
    _SCHEDULER,
)
_PERMUTE_FLAGS = ("xla_enable_async_collective_permute",)
# For each chip and collective, the flags that make the collective asynchronous.
_FLAGS: dict[str, dict[str, tuple[str, ...]]] = {
    "v5e": {"all-gather": _FUSION_FLAGS, "all-reduce": _FUSION_FLAGS},
    **{chip: dict.fromkeys(_OFFLOADED, (f"{_OFFLOAD}{{name}}",)) for chip in ("v6e", "v7x")},
}


def find(of: StepProgram, left_out: Container[int]) -> list[Cause]:
    """Return the causes; `left_out` contains the ids of executions that belong to other causes."""
    flags_of = {**_FLAGS.get(of.roofs.choice.chip, {}), "collective-permute": _PERMUTE_FLAGS}
    asynchronous = {
        collective_name_of(executions.op) for executions in of.collectives if executions.op.is_wait
    }
    at_once = of.links.waited_for_at_once()
    by_name: dict[str, list[Executions]] = {}
    flags: dict[str, None] = {}
    for executions in of.collectives:
        name, here = collective_name_of(executions.op), executions.op.instruction
        if name is None or id(executions) in left_out:
            continue
        if here in at_once:
            flags[_SCHEDULER] = None
        elif name in flags_of and name not in asynchronous:
            flags |= dict.fromkeys(
                flag.format(name=name.replace("-", "_")) for flag in flags_of[name]
            )
        else:
            continue
        by_name.setdefault(name, []).append(executions)
    members = [executions for group in by_name.values() for executions in group]
    if not members or total_of(members) < of.floor:
        return []
    by_time = sorted(by_name, key=lambda name: -total_of(by_name[name]))
    place, total = place_of_longest(members), total_of(members)
    # The replay can also shorten the waits for other collectives, which are not part of this cause.
    gain = min(total, of.links.saved_if_asynchronous(members))
    return [
        Cause(
            NAME,
            gain,
            f"The core stops for {time(total)} in {counts_of(members)}, with most time at"
            f" {line_says(place)}. If this communication were asynchronous, math that does not need"
            f" its results could hide {about(gain, of.step)}.",
            CAUSES[NAME].format(flags=listed(list(flags))),
            LIKELY,
            Evidence(members, collective=only(by_time)),
            *place,
        )
    ]
