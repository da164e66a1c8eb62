"""Find the likely line of an op without a source line: the line of the data that it moves."""

from __future__ import annotations

from typing import NamedTuple

from _analysis.exposed import collective_of
from _pipeline import frames
from _pipeline.groups import group_by, how_most

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Final

    from _output.fields.units import SourceIs
    from _pipeline.groups import Group
    from _pipeline.ops import Op
    from _proto.hlo.program import Instruction

# Origin of a likely line if it is the op's own line. `_proto/hlo/nearest_line.py` returns the other
# three origins.
OWN: Final = "own"


class LikelyLine(NamedTuple):
    """A source line, the innermost line of the user's own code in the same stack, and how the
    source line was found."""

    line: str | None
    line_user: str | None
    how: SourceIs | None


NO_LINE = LikelyLine(None, None, None)


class LikelyGroup(NamedTuple):
    """The part of a group that likely belongs to one line."""

    likely: LikelyLine
    group: Group


def likely_line(op: Op) -> LikelyLine:
    """Return the source line of the data that an op without a stack moves or waits for."""
    if op.instruction is None:
        return LikelyLine(op.source_inner, op.source_user, OWN) if op.source_inner else NO_LINE
    # Attribute reductions and transfers to the host to the code that produces the data, because
    # that is the code to change. Other transfers fetch data for the code that consumes it.
    return likely_line_of(
        op.instruction,
        op.is_own,
        producer_first=collective_of(op) in ("reduce-scatter", "all-reduce") or op.is_to_host,
        sources={op.name: op.source} if op.source else {},
    )


def line_of(op: Op) -> LikelyLine:
    """Return the innermost line of an op's stack, or the likely line if the op has no stack."""
    if op.source_stack:
        return LikelyLine(op.source_inner, op.source_user, OWN)
    return likely_line(op)


def likely_line_of(
    instruction: Instruction,
    is_own: Callable[[str], bool],
    producer_first: bool = False,
    sources: Mapping[str, str] | None = None,
) -> LikelyLine:
    # Import late, because captures without programs do not need the module.
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
    """Split a group by likely line. Parts are sorted by time, longest first; ops without a line
    come last."""
    found = {id(executions.op): line_of_op(executions.op) for executions in group.members}
    parts = []
    for line, of_line in group_by(group.members, lambda op: found[id(op)].line).items():
        how = how_most(
            (found[id(executions.op)].how, executions.total) for executions in of_line.members
        )
        first = found[id(of_line.op)]
        parts.append(LikelyGroup(LikelyLine(line, first.line_user, how), of_line))
    return sorted(
        parts,
        key=lambda part: (part.likely.line is None, -part.group.total, part.likely.line),
    )
