"""Every source line, complete."""

from __future__ import annotations

from collections import Counter

from _analysis.report import Report
from _analysis.rows import group_fields, operand_dtypes, tail_if, topmost
from _pipeline.groups import group_by, source_key
from _pipeline.vocabulary import COMM, COMPUTE, DATA_MOVE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from _pipeline.context import Context
    from _pipeline.groups import Group
    from _pipeline.normalize import Step

    Json = dict[str, Any]

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
) -> Report:
    kinds = [COMPUTE, *([DATA_MOVE] * include_data_move), *([COMM] * include_comm)]
    groups, omitted = topmost(step.of_kinds(*kinds), source_key, top)
    rows = []
    for group in groups:
        shapes = group.distinct(lambda op: op.shape)
        rows.append(
            {
                "kind": group.op.kind,
                **group_fields(group, step),
                "model_flops_sum": group.sum_of(lambda op: op.model_flops),
                "hbm_bytes_sum": group.hbm_bytes(),
                "dtypes": group.executions_by(lambda op: op.dtype),
                "dtype_uncertain": any(each.op.dtype_uncertain for each in group.members),
                "operand_dtypes": operand_dtypes(group),
                "also_fused": fused_rows(group),
                "scopes": scope_rows(group),
                "shapes": shapes[:N_SHAPES],
                "shapes_truncated": len(shapes) > N_SHAPES,
            }
        )
    return Report(
        {"groups": rows, **tail_if(top, omitted)},
        totals={"n_groups_total": len(groups) + len(omitted)},
    )


def lines_fused(group: Group) -> Counter[str]:
    """How many instructions inside a group's fusions have which line, that isn't the group's."""
    n_instructions: Counter[str] = Counter()
    for each in group.members:
        if each.op.instruction:
            for (line, _), n in each.op.instruction.lines_inside().items():
                n_instructions[line] += n
    del n_instructions[group.op.source_inner or ""]
    return n_instructions


def fused_rows(group: Group) -> list[Json] | None:
    """The other lines that take part in a group's ops."""
    if not any(each.op.program for each in group.members):
        return None
    ranked = sorted(lines_fused(group).items(), key=lambda item: (-item[1], item[0]))
    return [{"source_inner": line, "n_instructions": n} for line, n in ranked[:N_FUSED]]


def scope_rows(group: Group) -> list[Json]:
    """The scopes that take most of a group; ops without one come last of equals."""
    times = group_by(group.members, lambda op: op.scope.name if op.scope else None)
    ranked = sorted(
        times.items(), key=lambda item: (-item[1].total, item[0] is None, item[0] or "")
    )
    return [{"scope": scope, "dur_ps": part.total} for scope, part in ranked[:N_SCOPES]]
