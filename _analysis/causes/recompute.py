"""Find ops of the forward pass that run again in the backward pass.

    step = checkpoint(block)                # each block runs twice: memory for time
    loss = checkpoint(loss_of_all_blocks)   # and now all blocks run three times

The cause `recompute` covers all ops that a checkpoint recomputes, except those of
`recomputed_repeatedly`. The confidence of `recompute` is always `likely`, because the checkpoint
may be there to save memory.

The cause `recomputed_repeatedly` covers ops that are recomputed twice because one checkpoint
contains another. The path of an op lists each enclosing `checkpoint` before `rematted_computation`;
their number is the op's depth. The cause is `seen` if a matmul or kernel of depth 2 or more also
runs at depth 1, with the same path apart from the checkpoints. The outer checkpoint is superfluous
if there is a loop between the two checkpoints. It is also superfluous if the inner checkpoints
contain nearly all of its backward matmuls and kernels, because it then saves little additional
memory. Otherwise the inner checkpoint is superfluous.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final, NamedTuple

from _analysis.causes.cause import LIKELY, SEEN, Cause, Evidence, Place
from _analysis.causes.sentences import about, line_says
from _analysis.causes.step_program import place_of_longest, total_of
from _analysis.memory.allocator import runtime_of
from _analysis.remedies import CAUSES
from _pipeline import frames
from _pipeline.context import Context
from _pipeline.executions import Executions
from _pipeline.normalize import Step
from _pipeline.ops import Op
from _units import size

REPEATED: Final = "recomputed_repeatedly"
RECOMPUTE: Final = "recompute"
_CHECKPOINTS = frozenset(("checkpoint", "remat", "remat2"))
_REPEATED_PART = "rematted_computation"
_DOT = "dot_general"


class _Recomputed(NamedTuple):
    """The executions of a recomputed op, the parts of its path, and the indices of the parts that
    are checkpoints."""

    executions: Executions
    parts: tuple[str, ...]
    checkpoints: tuple[int, ...]

    @property
    def depth(self) -> int:
        return len(self.checkpoints)

    @property
    def path(self) -> tuple[str, ...]:
        """Return the path without checkpoints, which is the same for all repetitions of an op."""
        return tuple(part for part in self.parts if part not in (*_CHECKPOINTS, _REPEATED_PART))


def find(step: Step, context: Context) -> list[Cause]:
    recomputed = [found for executions in step.leaves if (found := _recomputed(executions))]
    once = {work.path for work in recomputed if work.depth == 1}
    twice = [
        work
        for work in recomputed
        if work.depth > 1 and _multiplies(work.executions.op) and work.path in once
    ]
    causes = []
    excess: list[Executions] = []
    if twice:
        is_outer = _is_outer_in_excess(step, twice)
        place = -2 if is_outer else -1
        prefixes = {(*_prefix(work, place), _REPEATED_PART) for work in twice}
        # Ops that only the inner checkpoint recomputes must still be recomputed once if it is
        # removed, so their time would not be saved.
        excess = [
            work.executions
            for work in recomputed
            if _starts(work.parts, prefixes) and (is_outer or work.path in once)
        ]
        if excess:
            causes.append(_repeated(step, excess, is_outer, recomputed))
    counted = set(map(id, excess))
    # Exclude ops of depth 0: the compiler recomputes them without a checkpoint if memory is short.
    rest = [work for work in recomputed if work.depth and id(work.executions) not in counted]
    if rest:
        causes.append(_recompute(step, rest, context))
    return causes


def _recomputed(executions: Executions) -> _Recomputed | None:
    op = executions.op
    if op.phase != RECOMPUTE:
        return None
    parts = _parts_of(op)
    if _REPEATED_PART not in parts:
        return _Recomputed(executions, parts, ())
    last = len(parts) - 1 - parts[::-1].index(_REPEATED_PART)
    places = tuple(i for i, part in enumerate(parts[:last]) if part in _CHECKPOINTS)
    return _Recomputed(executions, parts, places)


def _parts_of(op: Op) -> tuple[str, ...]:
    return tuple((op.tf_op or "").rstrip(":").split("/"))


def _prefix(work: _Recomputed, place: int) -> tuple[str, ...]:
    """Return the parts of the path up to and including one of the checkpoints."""
    return work.parts[: work.checkpoints[place] + 1]


def _starts(parts: tuple[str, ...], prefixes: Collection[tuple[str, ...]]) -> bool:
    return any(parts[: len(prefix)] == prefix for prefix in prefixes)


def _is_outer_in_excess(step: Step, twice: Sequence[_Recomputed]) -> bool:
    if any("while" in work.parts[work.checkpoints[-2] : work.checkpoints[-1]] for work in twice):
        return True
    outer, inner = ({_prefix(work, place) for work in twice} for place in (-2, -1))
    in_outer = in_inner = 0
    for executions in step.leaves:
        if executions.op.phase == "backward" and _multiplies(executions.op):
            parts = _parts_of(executions.op)
            in_outer += executions.total * _starts(parts, outer)
            in_inner += executions.total * _starts(parts, inner)
    return 10 * in_inner >= 9 * in_outer


def _multiplies(op: Op) -> bool:
    return bool(op.kernel) or (op.scope is not None and op.scope.primitive == _DOT)


def _place(members: Sequence[Executions]) -> Place:
    """Return the innermost line of the user's own code that all stacks share. If the stacks contain
    the shared lines in different orders, use the stack of the op that takes the most time."""
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
        f"The checkpoint at {line_says(place)} contains other checkpoints ({line_says(inner)})"
        if is_outer
        else f"The checkpoint at {line_says(place)} is inside another checkpoint"
    )
    return Cause(
        REPEATED,
        gain,
        f"{which}, so the same forward work is recomputed twice. The second time takes "
        f"{about(gain, step)}.",
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
        f"The checkpoint at {line_says(place)} runs forward work again in the backward pass, which "
        f"takes {about(gain, step)}. Saving activations instead {memory} and "
        "time, too, so the real gain may be small or zero.",
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
