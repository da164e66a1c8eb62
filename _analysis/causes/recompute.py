"""Work of the forward pass that runs again in the backward pass.

    step = checkpoint(block)                # each block runs twice: memory for time
    loss = checkpoint(loss_of_all_blocks)   # and now all blocks run three times

`recompute` is all work that a checkpoint repeats. It is always likely: not to repeat it takes
memory, which may be why the checkpoint is there.

`recomputed_repeatedly` is work that is repeated twice, since a checkpoint contains another. The
path of an op names each `checkpoint` that it is in, before `rematted_computation`; their number is
the op's depth. It is seen where a matmul or kernel of depth 2 runs more often in the recomputation
than in the forward pass. If a loop is between the two checkpoints, the outer one repeats the whole
loop and saves little that the inner one does not save: then the outer one is in excess. Otherwise
it is the inner one.
"""

from __future__ import annotations

from typing import NamedTuple

from _analysis.allocator import runtime_of
from _analysis.causes.cause import LIKELY, SEEN, Cause, Evidence
from _analysis.causes.sentences import duration, line_says, percent_of, size
from _analysis.causes.step_program import Place, place_of_longest, total_of
from _analysis.remedies import CAUSES
from _pipeline import frames
from _pipeline.groups import group_by

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Final

    from _pipeline.context import Context
    from _pipeline.executions import Executions
    from _pipeline.normalize import Step
    from _pipeline.ops import Op

REPEATED: Final = "recomputed_repeatedly"
RECOMPUTE: Final = "recompute"
_CHECKPOINTS = frozenset(("checkpoint", "remat", "remat2"))
_REPEATED_PART = "rematted_computation"
_DOT = "dot_general"


class _Recomputed(NamedTuple):
    """The executions of a recomputed op; `checkpoints` are places of parts of its path."""

    executions: Executions
    parts: tuple[str, ...]
    checkpoints: tuple[int, ...]

    @property
    def depth(self) -> int:
        return len(self.checkpoints)

    @property
    def excess_prefix(self) -> tuple[str, ...]:
        """Return the parts before what a checkpoint in excess repeats."""
        outer, inner = self.checkpoints[-2:]
        if "while" in self.parts[outer:inner]:
            return self.parts[: outer + 1]
        return self.parts[: inner + 1]


def find(step: Step, context: Context) -> list[Cause]:
    recomputed = [found for executions in step.leaves if (found := _recomputed(executions))]
    twice = [work for work in recomputed if work.depth > 1]
    causes = []
    excess: list[Executions] = []
    if twice and _runs_more_often(step, twice):
        prefixes = {(*work.excess_prefix, _REPEATED_PART) for work in twice}
        excess = [
            work.executions
            for work in recomputed
            if any(work.parts[: len(prefix)] == prefix for prefix in prefixes)
        ]
        is_outer = any(
            work.excess_prefix != work.parts[: work.checkpoints[-1] + 1] for work in twice
        )
        causes.append(_repeated(step, excess, is_outer, recomputed))
    counted = set(map(id, excess))
    # The compiler itself recomputes without a checkpoint, if memory is short.
    rest = [work for work in recomputed if work.depth and id(work.executions) not in counted]
    if rest:
        causes.append(_recompute(step, rest, context))
    return causes


def _recomputed(executions: Executions) -> _Recomputed | None:
    op = executions.op
    if op.phase != RECOMPUTE:
        return None
    parts = tuple((op.tf_op or "").rstrip(":").split("/"))
    if _REPEATED_PART not in parts:
        return _Recomputed(executions, parts, ())
    last = len(parts) - 1 - parts[::-1].index(_REPEATED_PART)
    places = tuple(i for i, part in enumerate(parts[:last]) if part in _CHECKPOINTS)
    return _Recomputed(executions, parts, places)


def _runs_more_often(step: Step, twice: Sequence[_Recomputed]) -> bool:
    """Tell if a matmul or kernel of depth 2 runs more often recomputed than forward."""
    keys = {key for work in twice if (key := _work_of(work.executions.op))}
    runs = {
        phase: group_by(of_phase.members, _work_of)
        for phase, of_phase in group_by(step.leaves, lambda op: op.phase).items()
    }
    forward, again = runs.get("forward", {}), runs.get(RECOMPUTE, {})
    return any(key in forward and again[key].n > forward[key].n for key in keys)


def _work_of(op: Op) -> tuple[str, str] | None:
    """Return the scope and the primitive or kernel of a matmul or kernel."""
    scope = op.scope
    if scope is None:
        return None
    if op.kernel:
        return scope.name, op.kernel
    return (scope.name, _DOT) if scope.primitive == _DOT else None


def _place(members: Sequence[Executions]) -> Place:
    """Return the innermost own line that is in all stacks, by the stack of the longest op."""
    stacks = [executions for executions in members if executions.op.stack]
    if not stacks:
        return place_of_longest(members)
    longest = max(stacks, key=lambda executions: executions.total)
    common = set(map(frames.line_of, _frames(longest.op)))
    for executions in stacks:
        common &= set(map(frames.line_of, _frames(executions.op)))
    own = [f for f in _frames(longest.op) if frames.line_of(f) in common]
    line = frames.innermost_own(own, longest.op.is_own)
    if line is None:
        return place_of_longest(members)
    return Place(line, line, None)


def _frames(op: Op) -> tuple[str, ...]:
    return op.stack.frames if op.stack else ()


def _repeated(
    step: Step, excess: list[Executions], is_outer: bool, recomputed: Sequence[_Recomputed]
) -> Cause:
    gain, place = total_of(excess), _place(excess)
    inner = _place([work.executions for work in recomputed if work.depth > 1])
    which = (
        f"The checkpoint at {line_says(place)} contains a loop of other checkpoints "
        f"({line_says(inner)})"
        if is_outer
        else f"The checkpoint at {line_says(place)} is inside another checkpoint"
    )
    return Cause(
        REPEATED,
        gain,
        f"{which}, so the same forward work is recomputed twice: the second time takes "
        f"{duration(gain)} ({percent_of(gain, step)} of the step).",
        CAUSES["recomputed_repeatedly, outer" if is_outer else "recomputed_repeatedly, inner"],
        SEEN,
        Evidence(excess, by_depth=_by_depth(recomputed)),
        *place,
    )


def _recompute(step: Step, recomputed: list[_Recomputed], context: Context) -> Cause:
    members = [work.executions for work in recomputed]
    gain, place = total_of(members), _place(members)
    runtime = runtime_of(step.device.trace, step.device.plane.name, context)
    free = runtime.min_available if runtime else None
    memory = "costs memory" if free is None else f"costs memory ({size(free)} of HBM stayed free)"
    return Cause(
        RECOMPUTE,
        gain,
        f"The checkpoint at {line_says(place)} runs forward work again in the backward pass: "
        f"{duration(gain)} ({percent_of(gain, step)} of the step). Saving activations instead "
        f"{memory} and the time to write and read them, so less or nothing may be won.",
        CAUSES[RECOMPUTE],
        LIKELY,
        Evidence(members, by_depth=_by_depth(recomputed), hbm_free=free),
        *place,
    )


def _by_depth(recomputed: Sequence[_Recomputed]) -> dict[int, int]:
    times: dict[int, int] = {}
    for work in recomputed:
        times[work.depth] = times.get(work.depth, 0) + work.executions.total
    return dict(sorted(times.items()))
