"""Find shardings that disagree, so that an array must be split along a different axis between two
ops.

    x = with_sharding_constraint(x, P("fsdp", None, None))    # split by batch
    h = with_sharding_constraint(h, P(None, "fsdp", None))    # split by sequence

Between ops with different shardings, the compiler inserts an all-to-all, with copies before and
after it. All-to-alls that the user wrote have the primitive `all_to_all` or `ragged_all_to_all`;
all others result from shardings. Collectives with the primitive `sharding_constraint` or `reshard`
have the constraint's source line, so the cause is `seen`. Most programs no longer contain the
constraint's line, because the compiler has propagated the sharding. Then the cause is `likely` and
reports the line with the most time, which is often near the constraint. An intended dispatch of
tokens to experts also causes such all-to-alls.

In the optimizer, a collective-permute of an elementwise op is also a resharding: the op's operands,
such as parameters and the optimizer's state, are sharded differently. (Within the model, the
compiler also creates permutes for matmuls that it runs in pieces.)

Each set of replica groups has one row for the model and one row for the optimizer. A row includes
the copies that are connected to its collectives solely through layout ops. Finally, rows of the
same line and confidence are joined. This includes the rows of `larger_array.py`,
`needless_whole.py` and `repeated_kernel.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from _analysis.causes.cause import LIKELY, SEEN, Cause, Evidence
from _analysis.causes.graph import Value, consumers, is_layout, producers, reach
from _analysis.causes.sentences import about, line_says
from _analysis.causes.step_program import (
    StepProgram,
    collective_name_of,
    place_of,
    place_of_longest,
)
from _analysis.remedies import CAUSES
from _pipeline.executions import Executions
from _pipeline.ops import Op
from _pipeline.vocabulary import DATA_MOVE, SPARSE_CORE
from _units import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.bottleneck import Confidence

NAME: Final = "resharding"
_ALL_TO_ALLS = ("all-to-all", "ragged-all-to-all")
_INTENDED = ("all_to_all", "ragged_all_to_all")
_CONSTRAINTS = ("sharding_constraint", "reshard")
_PERMUTE = "collective-permute"
# The phase of ops that are neither forward nor backward, such as an optimizer's ops.
_OUTSIDE = "other"
# Elementwise ops need no communication unless their operands are sharded differently.
_ELEMENTWISE = frozenset("add div max min mul select_n sub".split())


class _Row(NamedTuple):
    """The properties that the collectives of a row have in common."""

    is_outside: bool
    label: str | None
    size: int | None


def find(of: StepProgram) -> list[Cause]:
    rows: dict[_Row, list[Executions]] = {}
    permutes = []
    for executions in of.collectives:
        primitive = executions.op.scope.primitive if executions.op.scope else None
        name = collective_name_of(executions.op)
        if (name in _ALL_TO_ALLS and primitive not in _INTENDED) or primitive in _CONSTRAINTS:
            rows.setdefault(_row_of(executions.op), []).append(executions)
        elif name == _PERMUTE and primitive in _ELEMENTWISE and executions.op.phase == _OUTSIDE:
            permutes.append(executions)
    for executions in permutes:
        row = next((row for row, members in rows.items() if _share_line(executions, members)), None)
        rows.setdefault(row or _row_of(executions.op), []).append(executions)
    return [_cause(of, row, members) for row, members in rows.items()]


def _row_of(op: Op) -> _Row:
    who = op.inside.who if op.inside else None
    return _Row(op.phase == _OUTSIDE, who.label if who else None, who.size if who else None)


def _share_line(permute: Executions, members: list[Executions]) -> bool:
    line = place_of(permute.op).source_inner
    return line is not None and any(place_of(member.op).source_inner == line for member in members)


def copies_of(of: StepProgram, collectives: list[Executions]) -> list[Executions]:
    """Return the executions of the layout ops before and after collectives."""
    starts = [
        Value(executions.op.instruction) for executions in collectives if executions.op.instruction
    ]
    found: dict[int, Executions] = {}
    for step in (producers, consumers):
        walk = reach(starts, step, lambda value: is_layout(value.instruction))
        for value in walk.passed:
            executed = of.ran.get(value.instruction)
            if executed and (executed.op.kind == DATA_MOVE or executed.op.waits_for == SPARSE_CORE):
                found[id(executed)] = executed
    return list(found.values())


def is_constraint(op: Op) -> bool:
    return op.scope is not None and op.scope.primitive in _CONSTRAINTS


def _cause(of: StepProgram, row: _Row, members: list[Executions]) -> Cause:
    constraints = [member for member in members if is_constraint(member.op)]
    copies = copies_of(of, members)
    gain = of.links.saved_without([*members, *copies])
    place = place_of_longest(constraints or members)
    n = sum(member.n for member in members)
    names = sorted({name for member in members if (name := collective_name_of(member.op))})
    what_moves = names[0] if len(names) == 1 else None
    what = counted(n, what_moves or "collective")
    groups = f" among {row.size} devices" if row.size else ""
    verb = "changes" if n == 1 else "change"
    if constraints:
        why = "whose sharding constraint requires this"
        helps = CAUSES["resharding, constraint"]
    elif row.is_outside:
        why = "which calls no collective; its operands probably have different shardings"
        helps = CAUSES["resharding, optimizer"]
    else:
        why = "which calls no all_to_all (intended if the line dispatches tokens to experts)"
        helps = CAUSES["resharding, model"]
    says = (
        f"{what}{groups} {verb} how arrays are sharded, with most time at {line_says(place)},"
        f" {why}. Matching shardings would save {about(gain, of.step)}."
    )
    return Cause(
        NAME,
        gain,
        says,
        helps,
        SEEN if constraints else LIKELY,
        Evidence([*members, *copies], collective=what_moves, n_participants=row.size),
        *place,
    )


def joined(of: StepProgram, causes: Iterable[Cause]) -> list[Cause]:
    """Join causes of the same line, because one sharding often produces several patterns."""
    by_line: dict[tuple[str | None, Confidence], list[Cause]] = {}
    for cause in sorted(causes, key=lambda cause: -cause.gain_ps):
        by_line.setdefault((cause.source_user, cause.confidence), []).append(cause)
    return [
        cause
        for (line, _), group in by_line.items()
        for cause in ([_together(of, group)] if line and len(group) > 1 else group)
    ]


def _together(of: StepProgram, causes: list[Cause]) -> Cause:
    first = causes[0]
    gain = sum(cause.gain_ps for cause in causes)
    members = {
        id(executions): executions for cause in causes for executions in cause.evidence.executions
    }
    return first._replace(
        gain_ps=gain,
        # The sentence tells one gain: that of all patterns together.
        says=first.says.replace(
            about(first.gain_ps, of.step),
            f"{about(gain, of.step)}, with all collectives and copies at this line",
        ),
        evidence=first.evidence._replace(executions=list(members.values())),
    )
