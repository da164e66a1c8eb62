"""List all math by source line, and data movement and communication if requested."""

from __future__ import annotations

from collections import Counter

from _analysis.loops import Loops
from _analysis.rows import costliest_groups, group_fields, left_out, operand_dtypes, tail_row
from _pipeline.context import Context
from _pipeline.groups import Group, group_by, source_key
from _pipeline.normalize import Step
from _pipeline.vocabulary import COMM, COMPUTE, DATA_MOVE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.by_source import AlsoFused, ListedKind, Returned, ScopeShare
    from _output.fields.by_source import Group as GroupRow
    from _output.fields.rows import TailIfAsked

N_SHAPES = 8
N_FUSED = 8
N_SCOPES = 4


def by_source(
    step: Step,
    context: Context,
    *,
    include_data_move: bool = False,
    include_comm: bool = False,
    top: int | None = None,
) -> Returned:
    kinds: dict[str, ListedKind] = {COMPUTE: COMPUTE}
    if include_data_move:
        kinds[DATA_MOVE] = DATA_MOVE
    if include_comm:
        kinds[COMM] = COMM
    listed = step.of_kinds(*kinds)
    groups, omitted = costliest_groups(listed, source_key, top)
    loops = Loops(step, [member for group in groups for member in group.members])
    tail: TailIfAsked = {} if top is None else {"tail": tail_row(omitted)}
    return {
        "groups": [group_row(group, kinds[group.op.kind], step, loops) for group in groups],
        **tail,
        "totals": {
            "n_groups_total": len(groups) + len(omitted),
            "left_out_ps": left_out(step, listed),
        },
    }


def group_row(group: Group, kind: ListedKind, step: Step, loops: Loops) -> GroupRow:
    shapes = group.distinct(lambda op: op.shape)
    return {
        "kind": kind,
        **group_fields(group, step),
        "loop": loops.row(group.members),
        "model_flops_sum": group.sum_of(lambda op: op.model_flops),
        "hbm_bytes_sum": group.hbm_bytes(),
        "dtypes": group.executions_by(lambda op: op.dtype),
        "dtype_uncertain": any(executions.op.dtype_uncertain for executions in group.members),
        "operand_dtypes": operand_dtypes(group),
        "also_fused": fused_rows(group),
        "scopes": scope_rows(group),
        "shapes": shapes[:N_SHAPES],
        "shapes_truncated": len(shapes) > N_SHAPES,
    }


def fused_rows(group: Group) -> list[AlsoFused] | None:
    """Return the other source lines fused into the group's ops, or None if unknown."""
    if not any(executions.op.program for executions in group.members):
        return None
    ranked = sorted(lines_fused(group).items(), key=lambda item: (-item[1], item[0]))
    return [{"source_inner": line, "n_instructions": n} for line, n in ranked[:N_FUSED]]


def lines_fused(group: Group) -> Counter[str]:
    """Count the instructions inside the group's fusions by source line, excluding the group's own
    line."""
    n_instructions: Counter[str] = Counter()
    for executions in group.members:
        if executions.op.instruction:
            for (line, _), n in executions.op.instruction.lines_inside().items():
                n_instructions[line] += n
    del n_instructions[group.op.source_inner or ""]
    return n_instructions


def scope_rows(group: Group) -> list[ScopeShare]:
    """Return the scopes that take the most time; in a tie, ops without a scope come last."""
    by_scope = group_by(group.members, lambda op: op.scope.name if op.scope else None)
    ranked = sorted(
        by_scope.items(), key=lambda item: (-item[1].total, item[0] is None, item[0] or "")
    )
    return [{"scope": scope, "dur_ps": part.total} for scope, part in ranked[:N_SCOPES]]
