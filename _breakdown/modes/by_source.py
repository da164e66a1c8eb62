"""List all math by source line, and data movement and communication if requested.

question: the cost of math by source line; with options, also of communication and data movement
reads: a step
options: --include-data-move, --include-comm, --top
example: --include-data-move
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from _breakdown.analysis.source.loops import Loops, loops_of
from _breakdown.analysis.source.rows import (
    costliest_groups,
    group_fields,
    left_out,
    operand_dtypes,
    tail_row,
)
from _breakdown.output.columns import (
    ALL_OPS,
    KIND,
    LINE,
    LOOP,
    MOSTLY,
    PHASE_INITIALS,
    RUNS,
    STEP_SHARE,
    TOTAL,
)
from _breakdown.output.merged import costliest_line
from _breakdown.output.phrases import Next, at_line_of
from _breakdown.output.screen import Column, Part, Says, Section, Table
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.groups import Group, group_by, source_key
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.vocabulary import COMM, COMPUTE, DATA_MOVE
from _breakdown.units import counted, part_of, time
from _proto.hlo.nearest_line import lines_inside

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
) -> Json:
    kinds = [COMPUTE]
    if include_data_move:
        kinds.append(DATA_MOVE)
    if include_comm:
        kinds.append(COMM)
    listed = step.of_kinds(*kinds)
    groups, omitted = costliest_groups(listed, source_key, top)
    loops = loops_of(step, (member for group in groups for member in group.members))
    tail = {} if top is None else {"tail": tail_row(omitted)}
    return {
        "groups": [group_row(group, step, loops) for group in groups],
        **tail,
        "totals": {
            "n_groups_total": len(groups) + len(omitted),
            "left_out_ps": left_out(step, listed),
        },
    }


def group_row(group: Group, step: Step, loops: Loops) -> Json:
    shapes = group.distinct(lambda op: op.shape, most=N_SHAPES + 1)
    return {
        "kind": group.op.kind,
        **group_fields(group, step),
        "loop": loops.row(group.members),
        "model_flops_sum": group.sum_of(lambda op: op.model_flops),
        "dtypes": group.executions_by(lambda op: op.dtype),
        "dtype_uncertain": any(ran.op.dtype_uncertain for ran in group.members),
        "operand_dtypes": operand_dtypes(group),
        "also_fused": fused_rows(group),
        "scopes": scope_rows(group),
        "shapes": shapes[:N_SHAPES],
        "shapes_truncated": len(shapes) > N_SHAPES,
    }


def fused_rows(group: Group) -> list[Json] | None:
    """Return the other source lines fused into the group's ops, or None if unknown."""
    if not any(ran.op.program for ran in group.members):
        return None
    ranked = sorted(lines_fused(group).items(), key=lambda item: (-item[1], item[0]))
    return [{"source_inner": line, "n_instructions": n} for line, n in ranked[:N_FUSED]]


def lines_fused(group: Group) -> Counter[str]:
    """Count the instructions inside the group's fusions by source line, excluding the group's own
    line."""
    n_instructions: Counter[str] = Counter()
    for ran in group.members:
        if ran.op.instruction:
            n_instructions.update(lines_inside(ran.op.instruction))
    del n_instructions[group.op.source_inner or ""]
    return n_instructions


def scope_rows(group: Group) -> list[Json]:
    """Return the scopes that take the most time; in a tie, ops without a scope come last."""
    by_scope = group_by(group.members, lambda op: op.scope.name if op.scope else None)
    ranked = sorted(
        by_scope.items(), key=lambda item: (-item[1].total, item[0] is None, item[0] or "")
    )
    return [{"scope": scope, "dur_ps": part.total} for scope, part in ranked[:N_SCOPES]]


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "groups"
PARTS: tuple[Part, ...] = (
    Section(
        (
            Says(
                "not listed: {totals.left_out_ps.comm:time} of communication (--include-comm)",
                when="totals.left_out_ps.comm",
            ),
            Says(
                "not listed: {totals.left_out_ps.data_move:time} of data movement"
                " (--include-data-move)",
                when="totals.left_out_ps.data_move",
            ),
        )
    ),
    Table(
        "lines by time, from {totals.n_groups_total:count} groups of ops with the same stack and"
        " kind; math takes {totals.compute_duration_ps:time}",
        "groups",
        (
            TOTAL,
            STEP_SHARE,
            ALL_OPS,
            RUNS,
            KIND,
            PHASE_INITIALS,
            MOSTLY,
            LOOP,
            Column("scope", "scopes.0.scope", "file", null=""),
            LINE,
        ),
        by="total_dur_ps",
        merges_lines=True,
        size="total_dur_ps",
        what="group",
        omitted="tail.n_groups_omitted",
        tail={"time": "tail.dur_ps"},
    ),
)


def sentences(answer: Json) -> Iterator[str]:
    step, totals, groups = answer["step_duration_ps"], answer["totals"], answer["groups"]
    if not totals["n_groups_total"]:
        yield "No math ran in this step."
        return
    n_groups = counted(totals["n_groups_total"], "group")
    if groups:
        top, taken_ps = costliest_line(groups, answer)
        line, took = at_line_of(top, answer), part_of(taken_ps, step)
        if line:
            costliest = f"the costliest line, with all of its ops, is{line}: {took}"
        else:
            costliest = f"ops without a source line take most: {took}{likely_line_of(top)}"
        yield f"{n_groups} of ops by source line; {costliest}."
    else:
        yield f"The answer lists none of {n_groups} of ops."
    left_out = [
        " of ".join((time(duration), name))
        for name, duration in (
            ("communication", totals["left_out_ps"]["comm"]),
            ("data movement", totals["left_out_ps"]["data_move"]),
        )
        if duration
    ]
    if left_out:
        yield f"The list omits {' and '.join(left_out)}."


def likely_line_of(row: Json) -> str:
    """Return ` (likely LINE)` for a row without a line, or nothing if no line is likely."""
    likely: Json = next(iter(row["likely_sources"] or ()), {})
    line = at_line_of(likely).removeprefix(" at ")
    return f" (likely {line})" if line else ""


def next_steps(answer: Json) -> Iterator[Next]:
    yield Next("how far each line is from its roof", ("--mode", "roofline"))
