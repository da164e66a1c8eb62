"""Show data movement and waits by category and source line.

question: the time of data movement and waits, by category and source line
reads: a step
options: --no-comm-stalls, --include-comm, --top
example: --no-comm-stalls
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from _analysis.report import coverage
from _analysis.rows import (
    costliest_groups,
    duration_fields,
    left_out,
    likely_rows,
    scope_fields,
    source_fields,
    tail_row,
)
from _pipeline.context import Context
from _pipeline.groups import Group, group_by, percent
from _pipeline.normalize import Step
from _pipeline.ops import Op
from _pipeline.vocabulary import COMM, COMM_STALL, COMPUTE, DATA_MOVE
from _proto.hlo.text import dtype_and_layout_change

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.non_compute import Category, Movement, MovementKind, Returned
    from _output.fields.rows import TailIfAsked

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
) -> Returned:
    def is_listed(op: Op) -> bool:
        if is_stall(op):
            return not no_comm_stalls
        return op.kind == DATA_MOVE or (include_comm and op.kind == COMM)

    listed = Group(step.leaves).where(is_listed)
    groups, omitted = costliest_groups(
        listed.members, lambda op: (op.agg_key, op.kind, category_of(op)), top
    )
    if any(is_stall(executions.op) for executions in listed.members):
        context.note(STALLS)
    categories = group_by(listed.members, lambda op: (category_of(op), op.kind))
    tail: TailIfAsked = {} if top is None else {"tail": tail_row(omitted)}
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


def kind_of(op: Op) -> MovementKind:
    return COMM if op.kind == COMM else DATA_MOVE


def category_row(group: Group) -> Category:
    return {
        "hlo_category": category_of(group.op),
        "kind": kind_of(group.op),
        "n_executions": group.n,
        **duration_fields(group),
        "n_groups": len(group_by(group.members, lambda op: op.agg_key)),
        "agg_key_coverage": coverage(group),
    }


def source_row(group: Group) -> Movement:
    dtype, layout = changes_of(group)
    return {
        "hlo_category": category_of(group.op),
        "kind": kind_of(group.op),
        **source_fields(group.op),
        **scope_fields(group.members),
        "likely_sources": likely_rows(group),
        "n_executions": group.n,
        **duration_fields(group),
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
    for executions in group.members:
        # An op that only starts a transfer ends before the data has moved.
        if not executions.op.has_only_started:
            dtype, layout = dtype_and_layout_change(executions.op.hlo)
            dtypes.append((executions.total, dtype))
            layouts.append((executions.total, layout))
    return change_of(dtypes), change_of(layouts)


def change_of(compared: Iterable[tuple[int, bool | None]]) -> Change:
    known = [(total, changed) for total, changed in compared if changed is not None]
    if not known:
        return Change(None, None)
    return Change(
        any(changed for _, changed in known), sum(total for total, changed in known if changed)
    )
