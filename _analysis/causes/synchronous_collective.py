"""A collective that stops the core although there is math that could run in the meantime.

    grads = all_reduce(grads)    # the core waits
    y = x @ w                    # this needs none of the result

An asynchronous collective runs beside the math. The gain is the time that the step saves if all
these collectives run on the links, one after another, while the core takes its ops in the order of
the trace. The compiler can also change this order, but the gain was 1.7 times too high when any
order was allowed. Flags switch the collectives together and they share the links, so all are one
row. It is always likely: the compiler may have a reason, and it hides less where memory is short.
If some collectives of the same kind are asynchronous, the compiler has decided on each, and they
are left out. So are all-to-alls, because no flag makes them asynchronous.
"""

from __future__ import annotations

from collections import deque
from heapq import heappop, heappush

from _analysis.causes.cause import LIKELY, Cause, Evidence
from _analysis.causes.sentences import duration, line_says, listed, only, percent_of, plural
from _analysis.causes.step_program import collective_name_of, place_of_longest, total_of
from _analysis.remedies import CAUSES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence
    from typing import Final

    from _analysis.causes.step_program import StepProgram
    from _pipeline.executions import Executions
    from _proto.hlo.program import Computation, Instruction

NAME: Final = "synchronous_collective"
# An op is short if it takes at most this part of the collectives' mean time.
_SHORT = 20
_OFFLOADED = ("all-gather", "all-reduce", "reduce-scatter")
_OFFLOAD = "xla_tpu_enable_sparse_core_collective_offload_"
_FUSION_FLAGS = (
    "xla_tpu_enable_async_collective_fusion",
    "xla_tpu_enable_async_collective_fusion_fuse_{name}",
)
_PERMUTE_FLAGS = ("xla_enable_async_collective_permute",)
# The flags that make a collective asynchronous on a chip.
_FLAGS: dict[str, dict[str, tuple[str, ...]]] = {
    "v5e": {"all-gather": _FUSION_FLAGS, "all-reduce": _FUSION_FLAGS},
    **{chip: dict.fromkeys(_OFFLOADED, (f"{_OFFLOAD}{{name}}",)) for chip in ("v6e", "v7x")},
}


def find(of: StepProgram, left_out: Container[int]) -> list[Cause]:
    """Find collectives that math could hide; `left_out` has the ids of executions to skip."""
    flags_of = {**_FLAGS.get(of.roofs.choice.chip, {}), "collective-permute": _PERMUTE_FLAGS}
    asynchronous = {
        collective_name_of(executions.op) for executions in of.collectives if executions.op.is_wait
    }
    by_name: dict[str, list[Executions]] = {}
    for executions in of.collectives:
        name = collective_name_of(executions.op)
        if name in flags_of and name not in asynchronous and id(executions) not in left_out:
            by_name.setdefault(name, []).append(executions)
    members = [executions for group in by_name.values() for executions in group]
    if not members or total_of(members) < of.floor:
        return []
    by_time = sorted(by_name, key=lambda name: -total_of(by_name[name]))
    flags = dict.fromkeys(
        flag.format(name=name.replace("-", "_")) for name in by_time for flag in flags_of[name]
    )
    place, total, gain = place_of_longest(members), total_of(members), _hidden(of, members)
    counts = [plural(sum(executions.n for executions in by_name[name]), name) for name in by_time]
    return [
        Cause(
            NAME,
            gain,
            f"{listed(counts)} (most time at {line_says(place)}) stop the core for "
            f"{duration(total)}. Math that needs none of their results could hide up to "
            f"{duration(gain)} of it ({percent_of(gain, of.step)} of the step) if they ran "
            "asynchronously.",
            CAUSES[NAME].format(flags=listed(list(flags))),
            LIKELY,
            Evidence(members, collective=only(by_time)),
            *place,
        )
    ]


def _hidden(of: StepProgram, members: Sequence[Executions]) -> int:
    """Return the time that the step loses if collectives run beside the math."""
    by_computation: dict[Computation, set[Instruction]] = {}
    for executions in members:
        if executions.op.instruction:
            place = executions.op.instruction.computation
            by_computation.setdefault(place, set()).add(executions.op.instruction)
    return sum(
        _total(of, computation.instructions) - _asynchronous(of, computation, on_links)
        for computation, on_links in by_computation.items()
    )


def _total(of: StepProgram, instructions: Iterable[Instruction]) -> int:
    return sum(of.time_of(instruction) for instruction in instructions)


def _asynchronous(of: StepProgram, computation: Computation, on_links: set[Instruction]) -> int:
    """Return the time of a computation if some ops run on the links and all others on the core.

    The links take the first op of the trace's order that has its operands. The core keeps the
    order; only short ops, such as the cast of a weight before it is gathered, run as soon as they
    can.
    """
    short = _total(of, on_links) // len(on_links) // _SHORT
    missing = {
        instruction: len({o for o in instruction.operands if o.computation is computation})
        for instruction in computation.instructions
    }
    to_run = [instruction for instruction in missing if of.time_of(instruction)]
    to_run.sort(key=lambda instruction: of.order.get(instruction, 0))
    place_of: dict[Instruction, int] = {}
    in_order: deque[int] = deque()
    for place, here in enumerate(to_run):
        is_short = of.time_of(here) <= short and here not in on_links
        place_of[here] = place - len(to_run) if is_short else place
        if here not in on_links and not is_short:
            in_order.append(place)
    waiting: dict[bool, list[tuple[int, Instruction]]] = {False: [], True: []}
    running: list[tuple[int, int, Instruction]] = []
    is_busy = {False: False, True: False}
    now = 0
    ready = [instruction for instruction in missing if not missing[instruction]]
    while True:
        while ready:
            here = ready.pop()
            if here in place_of:
                heappush(waiting[here in on_links], (place_of[here], here))
            else:
                ready += _released(here, missing)
        for on_link, queue in waiting.items():
            if not queue or is_busy[on_link]:
                continue
            place, here = queue[0]
            if not on_link and place >= 0:
                if place != in_order[0]:
                    continue
                in_order.popleft()
            heappop(queue)
            heappush(running, (now + of.time_of(here), place, here))
            is_busy[on_link] = True
        if not running:
            # In a damaged program, ops can wait for ever.
            return now + _total(of, (to_run[place] for place in in_order))
        now, _, here = heappop(running)
        is_busy[here in on_links] = False
        ready += _released(here, missing)


def _released(finished: Instruction, missing: dict[Instruction, int]) -> list[Instruction]:
    """Return the users of an op that have all operands now that it has finished."""
    released = []
    for user in dict.fromkeys(finished.users):
        missing[user] -= 1
        if not missing[user]:
            released.append(user)
    return released
