"""Find the ops that checkpoints recompute, and how many checkpoints enclose each of them.

The path of an op lists each enclosing `checkpoint` before `rematted_computation`; their number is
the op's depth.
"""

from __future__ import annotations

from collections.abc import Sequence

from _breakdown.analysis.causes.shared.cause import CausePlace
from _breakdown.analysis.causes.shared.step_program import place_of_longest
from _breakdown.light import NamedTuple
from _breakdown.pipeline import frames
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.ops import Op

REPEATED_PART = "rematted_computation"
_CHECKPOINTS = frozenset(("checkpoint", "remat", "remat2"))
_DOT = "dot_general"


class Recomputed(NamedTuple):
    """The executions of a recomputed op, the parts of its path, and the indices of the parts that
    are checkpoints."""

    ran: Executions
    parts: tuple[str, ...]
    checkpoints: tuple[int, ...]

    @property
    def depth(self) -> int:
        return len(self.checkpoints)

    @property
    def path(self) -> tuple[str, ...]:
        """Return the path without checkpoints, which is the same for all repetitions of an op."""
        return tuple(part for part in self.parts if part not in (*_CHECKPOINTS, REPEATED_PART))

    def prefix(self, place: int) -> tuple[str, ...]:
        """Return the parts of the path up to and including one of the checkpoints."""
        return self.parts[: self.checkpoints[place] + 1]


def recomputed_in(step: Step) -> list[Recomputed]:
    return [_recomputed(ran) for ran in step.leaves if ran.op.phase == "recompute"]


def _recomputed(ran: Executions) -> Recomputed:
    parts = parts_of(ran.op)
    if REPEATED_PART not in parts:
        return Recomputed(ran, parts, ())
    last = len(parts) - 1 - parts[::-1].index(REPEATED_PART)
    places = tuple(i for i, part in enumerate(parts[:last]) if part in _CHECKPOINTS)
    return Recomputed(ran, parts, places)


def parts_of(op: Op) -> tuple[str, ...]:
    return tuple((op.tf_op or "").rstrip(":").split("/"))


def multiplies(op: Op) -> bool:
    return bool(op.kernel) or (op.scope is not None and op.scope.primitive == _DOT)


def common_place_of(members: Sequence[Executions]) -> CausePlace:
    """Return the innermost line of the user's own code that all stacks share. If the stacks contain
    the shared lines in different orders, use the stack of the op that takes the most time."""
    stacks = [ran for ran in members if ran.op.stack]
    if not stacks:
        return place_of_longest(members)
    longest = max(stacks, key=lambda ran: ran.total)
    common = set(map(frames.line_of, _frames(longest.op)))
    for ran in stacks:
        common &= set(map(frames.line_of, _frames(ran.op)))
    own = [f for f in _frames(longest.op) if frames.line_of(f) in common]
    line = frames.innermost_own(own, longest.op.is_own)
    if line is None:
        return place_of_longest(members)
    return CausePlace(line, line)


def _frames(op: Op) -> tuple[str, ...]:
    return op.stack.frames if op.stack else ()
