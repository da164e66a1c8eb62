"""Show data movement and waits by category and source line.

question: the time of data movement and waits, by category and source line
reads: a step
options: --no-comm-stalls, --include-comm, --top
example: --no-comm-stalls
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from _breakdown.analysis.report import coverage
from _breakdown.analysis.source.rows import (
    costliest_groups,
    duration_fields,
    left_out,
    likely_rows,
    row_key,
    scope_fields,
    source_fields,
    tail_row,
)
from _breakdown.light import NamedTuple
from _breakdown.output.columns import AVERAGE, CATEGORY, KIND, LINE, RUNS, TOTAL
from _breakdown.output.merged import merged_lines
from _breakdown.output.phrases import Next, at_line_of, bracketed, short
from _breakdown.output.screen import Column, Part, Says, Table
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.groups import Group, group_by, percent
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.vocabulary import COMM, COMM_STALL, COMPUTE, DATA_MOVE
from _breakdown.units import part_of, time
from _proto.hlo.text import dtype_and_layout_change

Json = dict[str, Any]

N_SHAPES_PER_SIDE = 4

STALLS = (
    "waits for asynchronous communication are listed as 'async-done (comm stall)'; "
    "pass --no-comm-stalls to omit them"
)


def non_compute(
    step: Step,
    context: Context,
    *,
    include_comm: bool = False,
    no_comm_stalls: bool = False,
    top: int | None = None,
) -> Json:
    def is_listed(op: Op) -> bool:
        if is_stall(op):
            return not no_comm_stalls
        return op.kind == DATA_MOVE or (include_comm and op.kind == COMM)

    listed = Group(step.leaves).where(is_listed)
    groups, omitted = costliest_groups(
        listed.members, lambda op: (op.agg_key, op.kind, category_of(op)), top
    )
    if any(is_stall(ran.op) for ran in listed.members):
        context.note(STALLS)
    categories = group_by(listed.members, lambda op: (category_of(op), op.kind))
    tail = {} if top is None else {"tail": tail_row(omitted)}
    return {
        "by_category": [category_row(group) for group in categories.values()],
        "by_source_within_category": [source_row(group) for group in groups],
        **tail,
        "totals": {
            "non_compute_duration_ps": listed.total,
            "non_compute_pct_of_step": percent(listed.total, step.duration),
            "non_compute_pct_of_compute": percent(listed.total, step.by_kind[COMPUTE].total),
            "left_out_ps": left_out(step, listed.members),
        },
    }


def is_stall(op: Op) -> bool:
    return op.kind == COMM and op.is_wait


def category_of(op: Op) -> str:
    return COMM_STALL if is_stall(op) else op.category


def category_row(group: Group) -> Json:
    return {
        "hlo_category": category_of(group.op),
        "kind": group.op.kind,
        "n_executions": group.n,
        **duration_fields(group),
        "n_groups": len(group_by(group.members, lambda op: op.agg_key)),
        "agg_key_coverage": coverage(group),
    }


def source_row(group: Group) -> Json:
    dtype, layout = changes_of(group)
    return {
        "hlo_category": category_of(group.op),
        "kind": group.op.kind,
        "row_key": row_key(group.op, category_of(group.op)),
        **source_fields(group.op, group),
        "source_stack": group.op.source_stack,
        **scope_fields(group.members),
        "likely_sources": likely_rows(group),
        "n_executions": group.n,
        **duration_fields(group),
        "shapes_in": group.distinct(shape_in, most=N_SHAPES_PER_SIDE),
        "shapes_out": group.distinct(shape_out, most=N_SHAPES_PER_SIDE),
        "dtype_change": dtype.is_seen,
        "dtype_change_dur_ps": dtype.duration,
        "layout_change": layout.is_seen,
        "layout_change_dur_ps": layout.duration,
        "example_hlo_op": group.longest.op.text,
    }


def shape_in(op: Op) -> str | None:
    array = op.hlo.moved_array
    return array.text if array else None


def shape_out(op: Op) -> str | None:
    return op.hlo.shape or None


class Change(NamedTuple):
    """Result of comparing the dtypes (or layouts) before and after a group's ops.

    `is_seen` is True if they differ for some ops, and `duration` is the total time of those ops.
    Both are None if no op can be compared.
    """

    is_seen: bool | None
    duration: int | None


def changes_of(group: Group) -> tuple[Change, Change]:
    """Return the group's dtype change and its layout change."""
    dtypes: list[tuple[int, bool | None]] = []
    layouts: list[tuple[int, bool | None]] = []
    for ran in group.members:
        # An op that only starts a transfer ends before the data has moved.
        if not ran.op.has_only_started:
            dtype, layout = dtype_and_layout_change(ran.op.hlo)
            dtypes.append((ran.total, dtype))
            layouts.append((ran.total, layout))
    return change_of(dtypes), change_of(layouts)


def change_of(compared: Iterable[tuple[int, bool | None]]) -> Change:
    known = [(total, changed) for total, changed in compared if changed is not None]
    if not known:
        return Change(None, None)
    return Change(
        any(changed for _, changed in known), sum(total for total, changed in known if changed)
    )


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "by_source_within_category"

PARTS: tuple[Part, ...] = (
    Says(
        "\nThis step has no data movement or waits to list. --include-comm also lists synchronous"
        " collectives, and --mode comm shows all communication.",
        when="!by_category",
    ),
    Says(
        "not listed: {totals.left_out_ps.comm:time} of communication (--include-comm)",
        when="totals.left_out_ps.comm",
    ),
    Table(
        "data movement and waits take {totals.non_compute_duration_ps:time},"
        " {totals.non_compute_pct_of_step:percent} of the step",
        "by_category",
        (TOTAL, RUNS, AVERAGE, Column("groups", "n_groups", "count"), KIND, CATEGORY),
        by="total_dur_ps",
        size="total_dur_ps",
        what="category",
        tail={"time": ""},
    ),
    Table(
        "by line; casts and layout are the times of ops that change dtype or layout",
        "by_source_within_category",
        (
            TOTAL,
            RUNS,
            Column("casts", "dtype_change_dur_ps", "time"),
            Column("layout", "layout_change_dur_ps", "time"),
            CATEGORY,
            LINE,
            # The likely line has a column of its own, because it is inferred and applies only to
            # the costliest part of the group.
            Column(
                "likely line",
                ("likely_sources.0.source_user", "likely_sources.0.source_inner"),
                "file",
                null="",
                least=18,
            ),
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
    totals = answer["totals"]
    listed = totals["non_compute_duration_ps"]
    yield (
        f"Data movement and waits take {part_of(listed, answer['step_duration_ps'])}"
        f"{bracketed(totals['non_compute_pct_of_step'])}."
    )
    rows = answer["by_source_within_category"]
    if rows:
        top = merged_lines(rows, with_scope=answer["totals"]["common_line"] is not None)[0]
        line = at_line_of(top, answer)
        took = time(top["total_dur_ps"])
        yield f"The largest part is {short(top['hlo_category'])}{line}: {took}."
    left_out = totals["left_out_ps"]["comm"]
    if left_out:
        yield f"The list omits {time(left_out)} of communication."


def next_steps(answer: Json) -> Iterator[Next]:
    yield Next("where the step loses time, and why", ("--mode", "bottleneck"))
