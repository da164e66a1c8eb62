"""Likely lines: whose data ops without a line of their own move or wait for."""

from __future__ import annotations

from _analysis.exposed import collective_of
from _pipeline import frames
from _pipeline.groups import group_by, how_most
from _proto.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from _pipeline.groups import Group
    from _pipeline.ops import Op
    from _proto.hlo.program import Instruction

# How a likely line is known: the first of four ways, see `_proto/hlo/nearest_line.py`.
OWN = "own"


@record
class LikelyLine:
    """A line that an op is likely due to, the user's own nearest to it, and how that is known."""

    line: str | None
    line_user: str | None
    how: str | None


NO_LINE = LikelyLine(None, None, None)


@record
class LikelyGroup:
    """What of a group is likely due to one line."""

    likely: LikelyLine
    group: Group


def likely_line(op: Op) -> LikelyLine:
    """Whose data an op without a line of its own moves or waits for."""
    if op.instruction is None:
        return LikelyLine(op.source_inner, op.source_user, OWN) if op.source_inner else NO_LINE
    # Sums are due to what is summed up, what goes to the host to what made it; all else is
    # fetched for who needs it.
    return likely_line_of(
        op.instruction,
        op.is_own,
        producer_first=collective_of(op) in ("reduce-scatter", "all-reduce") or op.is_to_host,
        sources={op.name: op.source} if op.source else {},
    )


def line_of(op: Op) -> LikelyLine:
    """The line of an op: that of its stack, if it has one."""
    if op.source_stack:
        return LikelyLine(op.source_inner, op.source_user, OWN)
    return likely_line(op)


def likely_line_of(
    instruction: Instruction,
    is_own: Callable[[str], bool],
    producer_first: bool = False,
    sources: Mapping[str, str] | None = None,
) -> LikelyLine:
    # Captures without programs are answered faster without this import.
    from _proto.hlo.nearest_line import nearest_line

    likely = nearest_line(instruction, producer_first, sources or {})
    if likely is None:
        return NO_LINE
    if likely.instruction.frame:
        line_user = likely.instruction.line_where(is_own)
    else:
        line_user = frames.innermost_own([likely.line], is_own)
    return LikelyLine(likely.line, line_user, likely.how)


def likely_groups(
    group: Group, line_of_op: Callable[[Op], LikelyLine] = likely_line
) -> list[LikelyGroup]:
    """A group by likely line, longest first; what has none comes last."""
    found = {id(each.op): line_of_op(each.op) for each in group.members}
    parts = []
    for line, of_line in group_by(group.members, lambda op: found[id(op)].line).items():
        how = how_most((found[id(each.op)].how, each.total) for each in of_line.members)
        first = found[id(of_line.op)]
        parts.append(LikelyGroup(LikelyLine(line, first.line_user, how), of_line))
    return sorted(
        parts,
        key=lambda each: (each.likely.line is None, -each.group.total, each.likely.line),
    )
