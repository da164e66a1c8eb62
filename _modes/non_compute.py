"""What is data movement and waiting rather than math."""

from __future__ import annotations

from _analysis.report import Report, coverage
from _analysis.rows import durations, likely_rows, source_fields, tail_if, topmost
from _pipeline.groups import Group, group_by, percent
from _pipeline.vocabulary import COMM, COMM_STALL, COMPUTE, DATA_MOVE
from _proto.hlo.text import dtype_and_layout_change
from _proto.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from _pipeline.context import Context
    from _pipeline.normalize import Step
    from _pipeline.ops import Op

    Json = dict[str, Any]

N_SHAPES_PER_SIDE = 4


STALLS = (
    "asynchronous communication waits included as 'async-done (comm stall)'; "
    "pass --no-comm-stalls to leave them out"
)


def is_stall(op: Op) -> bool:
    return op.kind == COMM and op.is_wait


def label(op: Op) -> tuple[str, str]:
    return COMM_STALL if is_stall(op) else op.category, op.kind


def non_compute(
    step: Step,
    context: Context,
    *,
    include_comm: bool = False,
    no_comm_stalls: bool = False,
    top: int | None = None,
) -> Report:
    def is_listed(op: Op) -> bool:
        if is_stall(op):
            return not no_comm_stalls
        return op.kind == DATA_MOVE or (include_comm and op.kind == COMM)

    listed = Group(step.leaves).where(is_listed)
    groups, omitted = topmost(listed.members, lambda op: (op.agg_key, op.kind, label(op)[0]), top)
    if any(is_stall(each.op) for each in listed.members):
        context.note(STALLS)
    return Report(
        {
            "by_category": list(map(category_row, group_by(listed.members, label).values())),
            "by_source_within_category": list(map(source_row, groups)),
            **tail_if(top, omitted),
        },
        totals={
            "non_compute_duration_ps": listed.total,
            "non_compute_pct_of_step": percent(listed.total, step.duration),
            "non_compute_pct_of_compute": percent(listed.total, step.by_kind[COMPUTE].total),
        },
    )


def category_row(group: Group) -> Json:
    category, kind = label(group.op)
    return {
        "hlo_category": category,
        "kind": kind,
        "n_executions": group.n,
        **durations(group),
        "n_groups": len(group_by(group.members, lambda op: op.agg_key)),
        "agg_key_coverage": coverage(group),
    }


def source_row(group: Group) -> Json:
    category, kind = label(group.op)
    dtype, layout = changes(group)
    return {
        "hlo_category": category,
        "kind": kind,
        **source_fields(group.op),
        "likely_sources": likely_rows(group),
        "n_executions": group.n,
        **durations(group),
        "shapes_in": group.distinct(shape_in)[:N_SHAPES_PER_SIDE],
        "shapes_out": group.distinct(shape_out)[:N_SHAPES_PER_SIDE],
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


@record
class Change:
    """Whether ops of a group change something, and how long those run that do.

    Both None where that can't be compared for any of them.
    """

    is_seen: bool | None
    duration: int | None


def changes(group: Group) -> tuple[Change, Change]:
    """Of the dtype, and of the layout."""
    of_members = [(each, changes_of(each.op)) for each in group.members]
    dtype, layout = (
        [(each.total, changed[i]) for each, changed in of_members if changed[i] is not None]
        for i in range(2)
    )
    return change_of(dtype), change_of(layout)


def change_of(comparable: Sequence[tuple[int, bool | None]]) -> Change:
    if not comparable:
        return Change(None, None)
    return Change(
        any(changed for _, changed in comparable),
        sum(total for total, changed in comparable if changed),
    )


def changes_of(op: Op) -> tuple[bool | None, bool | None]:
    if op.has_only_started:
        return None, None
    return dtype_and_layout_change(op.hlo)
