"""Find the likely line of an op without a source line: the line of the data that it moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from _breakdown.analysis.roof.exposed import collective_of
from _breakdown.light import NamedTuple
from _breakdown.pipeline import frames
from _breakdown.pipeline.groups import Group, group_by, most, summed
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.vocabulary import COMM, COMPUTE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _breakdown.pipeline.normalize import Step
    from _proto.hlo.program import Instruction

# Origin of a likely line if it is the op's own line. `_proto/hlo/nearest_line.py` returns the other
# three origins.
OWN: Final = "own"
# Origin of a line that the other ops of the op's scope have, and of a line that contradicts the
# op's scope.
LIKELY: Final = "likely"
DOUBTFUL: Final = "doubtful"
SourceIs = Literal["own", "inside", "producer", "consumer", "likely", "doubtful"]


class LikelyLine(NamedTuple):
    """A source line, the innermost line of the user's own code in the same stack, and how the
    source line was found."""

    line: str | None
    line_user: str | None
    how: SourceIs | None

    @property
    def place(self) -> str | None:
        """Return the line that tables show: that of the user's own code, else the innermost."""
        return self.line_user or self.line


NO_LINE = LikelyLine(None, None, None)


class LikelyGroup(NamedTuple):
    """The part of a group that likely belongs to one line."""

    likely: LikelyLine
    group: Group


def likely_line(op: Op) -> LikelyLine:
    """Return the source line of the data that an op without a stack moves or waits for."""
    if op.likely_line is None:
        # The modes of a page ask for the same lines.
        op.likely_line = find_likely_line(op)
    found: LikelyLine = op.likely_line
    return found


def find_likely_line(op: Op) -> LikelyLine:
    here = op.instruction
    if here is None or (op.source and not here.line):
        return LikelyLine(op.source_inner, op.source_user, OWN) if op.source_inner else NO_LINE
    # Attribute reductions and transfers to the host to the code that produces the data, because
    # that is the code to change. Other transfers fetch data for the code that consumes it.
    is_reduction = op.kind == COMM and collective_of(op) in ("reduce-scatter", "all-reduce")
    return likely_line_of(here, op.is_own, is_reduction or op.is_to_host)


def line_of(op: Op) -> LikelyLine:
    """Return the innermost line of an op's stack, or the likely line if the op has no stack.

    Mark a line that contradicts the op's scope. Math without an own line gets the likely line of
    its scope.
    """
    found = LikelyLine(op.source_inner, op.source_user, OWN) if op.source_stack else likely_line(op)
    if op.around is None:
        return found
    line = found.line_user or found.line
    is_suspect = line and found.how == OWN and op.around.is_elsewhere(line)
    if line and is_suspect and op.around.contradicts(op.scope, op.path, op.stack, line):
        return found._replace(how=DOUBTFUL)
    if found.line_user is None and op.kind == COMPUTE:
        near = op.around.line_near(op.scope)
        if near:
            return LikelyLine(found.line or near, near, LIKELY)
    return found


def time_of_line(step: Step, group: Group) -> int | None:
    """Return the time of all leaf ops of a group's line, whatever their kind; None if the group has
    no line, or several."""
    places, times = step.once(time_of_line, lambda: _lines_of(step))
    (place, *others) = {places[ran.metadata_id] for ran in group.members}
    # The trace and the program can name different lines.
    others += {group.op.source_user or group.op.source_inner} - {None, place}
    return None if place is None or others else times[place]


def _lines_of(step: Step) -> tuple[dict[int, str | None], dict[str | None, int]]:
    """Return the line of each op by metadata id, and the time of each line."""
    places = {ran.metadata_id: line_of(ran.op).place for ran in step.leaves}
    return places, summed((places[ran.metadata_id], ran.total) for ran in step.leaves)


def likely_line_of(
    instruction: Instruction, is_own: Callable[[str], bool], producer_first: bool = False
) -> LikelyLine:
    # The parts of an asynchronous op without own lines have the same line.
    first = instruction if instruction.line else instruction.chain[0]
    known = instruction.program.derived.setdefault(likely_line_of, {})
    key = first, is_own, producer_first
    found: LikelyLine | None = known.get(key)
    if found is None:
        found = known[key] = find_likely_line_of(instruction, is_own, producer_first)
    return found


def find_likely_line_of(
    instruction: Instruction, is_own: Callable[[str], bool], producer_first: bool
) -> LikelyLine:
    # Import late, because captures without programs do not need the module.
    from _proto.hlo.nearest_line import nearest_line

    likely = nearest_line(instruction, producer_first)
    if likely is None:
        return NO_LINE
    if likely.instruction.frame:
        line_user = likely.instruction.line_where(is_own)
    else:
        line_user = frames.innermost_own([likely.line], is_own)
    return LikelyLine(likely.line, line_user, likely.how)


def likely_groups(group: Group) -> list[LikelyGroup]:
    """Split a group by likely line. Parts are sorted by time, longest first; ops without a line
    come last."""
    found = {id(ran.op): line_of(ran.op) for ran in group.members}
    by_line = group_by(group.members, lambda op: found[id(op)][:2])
    parts = []
    for (line, line_user), of_line in by_line.items():
        how = most((found[id(ran.op)].how, ran.total) for ran in of_line.members)
        parts.append(LikelyGroup(LikelyLine(line, line_user, how), of_line))
    return sorted(parts, key=rank_of)


def rank_of(part: LikelyGroup) -> tuple[bool, int, str, str]:
    line, line_user, _ = part.likely
    return line is None, -part.group.total, line or "", line_user or ""
