"""A collective that stops the core although there is math that could run in the meantime.

    grads = all_reduce(grads)    # the core waits
    y = x @ w                    # this needs none of the result

An asynchronous collective runs beside the math. How much it can hide is the smaller of its own time
and of the time of math in the same computation that is neither before nor after it in the flow of
data; math hides only one collective. It is always likely: the links or the compiler may have a
reason. If some collectives of the same kind are asynchronous, the compiler has decided on each, and
there is no row. All-to-alls are left out, because no flag makes them asynchronous.
"""

from __future__ import annotations

from _analysis.causes.cause import LIKELY, Cause, Evidence
from _analysis.causes.sentences import duration, line_says, percent_of, plural
from _analysis.causes.step_program import collective_name_of, place_of_longest, total_of
from _analysis.hideable import independent
from _pipeline.vocabulary import COMPUTE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Sequence
    from typing import Final

    from _analysis.causes.step_program import StepProgram
    from _pipeline.executions import Executions
    from _proto.hlo.program import Computation, Instruction

NAME: Final = "synchronous_collective"
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
    asynchronous = {collective_name_of(each.op) for each in of.collectives if each.op.is_wait}
    rows: dict[str, list[Executions]] = {}
    for each in of.collectives:
        name = collective_name_of(each.op)
        if name in flags_of and name not in asynchronous and id(each) not in left_out:
            rows.setdefault(name, []).append(each)
    large = {name: row for name, row in rows.items() if total_of(row) >= of.floor}
    hideable = _hideable(of, [each for row in large.values() for each in row])
    return [_cause(of, name, flags_of[name], row, hideable) for name, row in large.items()]


def _hideable(of: StepProgram, collectives: Sequence[Executions]) -> dict[int, int]:
    """Map the ids of executions to the time that math of the same computation can hide."""
    hideable = {}
    by_computation: dict[Computation, list[tuple[Executions, Instruction]]] = {}
    for each in collectives:
        if each.op.instruction:
            place = each.op.instruction.computation
            by_computation.setdefault(place, []).append((each, each.op.instruction))
    for computation, found in by_computation.items():
        left = {
            instruction: executions.total
            for instruction in computation.instructions
            if (executions := of.ran.get(instruction)) and executions.op.kind == COMPUTE
        }
        free = independent(computation, [moved for _, moved in found], left)
        for each, moved in sorted(found, key=lambda pair: -pair[0].total):
            hidden = 0
            for math in free[moved]:
                # Math that hides this collective cannot hide another one.
                taken = min(left[math], each.total - hidden)
                left[math] -= taken
                hidden += taken
            hideable[id(each)] = hidden
    return hideable


def _cause(
    of: StepProgram,
    name: str,
    flags: Sequence[str],
    members: list[Executions],
    hideable: dict[int, int],
) -> Cause:
    gain = sum(hideable.get(id(each), 0) for each in members)
    total, place = total_of(members), place_of_longest(members)
    n = sum(each.n for each in members)
    listed = " and ".join(flag.format(name=name.replace("-", "_")) for flag in flags)
    return Cause(
        NAME,
        gain,
        f"{plural(n, name)} (most time at {line_says(place)}) stop the core for "
        f"{duration(total)}, and independent math of the same computation could hide "
        f"{duration(gain)} of it ({percent_of(gain, of.step)} of the step) if they ran "
        "asynchronously and the links are free.",
        f"Set {listed} to true in the compiler's options, or look for what switches it off.",
        LIKELY,
        Evidence(members, collective=name),
        *place,
    )
