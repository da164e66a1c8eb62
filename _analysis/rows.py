"""Rows that several modes write of groups."""

from __future__ import annotations

from _analysis.likely_lines import NO_LINE, LikelyGroup, likely_groups
from _pipeline.groups import Group, group_by, percent, ranked_by
from _pipeline.vocabulary import COMPUTE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import Any

    from _analysis.gaps import Gap
    from _analysis.likely_lines import LikelyLine
    from _pipeline.executions import Executions
    from _pipeline.normalize import Step
    from _pipeline.ops import Op

    Json = dict[str, Any]

N_BREAKDOWN = 8


def durations(group: Group) -> Json:
    return {
        "total_dur_ps": group.total,
        "min_dur_ps": min(each.shortest for each in group.members),
        "max_dur_ps": group.longest.longest,
        "avg_dur_ps": round(group.total / group.n),
    }


def breakdown(group: Group) -> Json:
    """What a group is made of, by HLO signature; rows and overflow sum up to the group."""
    signatures = ranked_by(group.members, lambda op: op.signature)
    rows = []
    for signature, part in signatures[:N_BREAKDOWN]:
        longest = part.longest
        rows.append(
            {
                "signature": signature,
                "hlo_category": part.op.category,
                "total_dur_ps": part.total,
                "n_executions": part.n,
                "pct_of_group": percent(part.total, group.total),
                "example_hlo_op": longest.op.text,
                "example_hlo_op_dur_ps": longest.longest,
            }
        )
    rest = [part for _, part in signatures[N_BREAKDOWN:]]
    overflow = {
        "n_signatures": len(rest),
        "n_executions": sum(part.n for part in rest),
        "total_dur_ps": sum(part.total for part in rest),
    }
    return {"hlo_op_breakdown": rows, "hlo_op_breakdown_overflow": overflow if rest else None}


def source_fields(op: Op) -> Json:
    return {
        "agg_key": op.agg_key,
        "agg_key_kind": op.agg_key_kind,
        "source_inner": op.source_inner,
        "source_user": op.source_user,
        "tf_op": op.tf_op,
        "source_stack": op.source_stack,
    }


def group_fields(group: Group, step: Step) -> Json:
    """The fields that a group has in summary and by_source alike."""
    longest = group.longest
    return {
        **source_fields(group.op),
        "n_executions": group.n,
        **durations(group),
        "pct_of_compute": percent(group.total, step.by_kind[COMPUTE].total),
        "pct_of_step": percent(group.total, step.duration),
        "hlo_categories": group.executions_by(lambda op: op.category),
        "flops_sum": group.sum_of(lambda op: op.flops),
        "bytes_accessed_sum": group.sum_of(lambda op: op.bytes_accessed),
        "phases": group.time_by(lambda op: op.phase),
        "example_hlo_op": longest.op.text,
        "example_hlo_op_dur_ps": longest.longest,
        **breakdown(group),
        "likely_sources": likely_rows(group),
    }


N_LIKELY = 8


def likely_rows(group: Group) -> list[Json] | None:
    """Whose data a group without a stack is about; None where that isn't asked, or not known."""
    if group.op.source_stack or not any(each.op.program for each in group.members):
        return None
    return line_rows(likely_groups(group))


def line_rows(parts: Sequence[LikelyGroup]) -> list[Json]:
    """The longest by line; what has none, and all others, in a last row."""
    shown = [each for each in parts[:N_LIKELY] if each.likely.line]
    rest = Group([each for part in parts[len(shown) :] for each in part.group.members])
    if rest.members:
        shown.append(LikelyGroup(NO_LINE, rest))
    return [
        {
            **likely_fields(each.likely),
            "dur_ps": each.group.total,
            "n_executions": each.group.n,
        }
        for each in shown
    ]


def likely_fields(likely: LikelyLine) -> Json:
    return {
        "source_inner": likely.line,
        "source_user": likely.line_user,
        "source_is": likely.how,
    }


def tail_fields(groups: Iterable[Group]) -> Json:
    left_out = [group.total for group in groups]
    return {"n_groups_omitted": len(left_out), "dur_ps": sum(left_out)}


def topmost(
    members: Iterable[Executions], key: Callable[[Op], Any], top: int | None
) -> tuple[list[Group], list[Group]]:
    """The costliest groups, and the others; without a number all, in order of appearance."""
    if top is None:
        return list(group_by(members, key).values()), []
    ranked = [group for _, group in ranked_by(members, key)]
    return ranked[:top], ranked[top:]


def tail_if(top: int | None, omitted: Sequence[Group]) -> Json:
    return {} if top is None else {"tail": tail_fields(omitted)}


def operand_dtypes(group: Group) -> dict[str, int]:
    """Time by the dtype of each op's largest operand that a matrix unit could take."""
    fed = group.where(lambda op: op.operand_dtype)
    return fed.time_by(lambda op: op.operand_dtype or "")


def gap_row(gap: Gap, step: Step) -> Json:
    return {
        "start_ps": gap.start,
        "dur_ps": gap.duration,
        "pct_of_step": percent(gap.duration, step.duration),
        "after_hlo_op": gap.after.text if gap.after else None,
        "before_hlo_op": gap.before.text if gap.before else None,
        "inside": (gap.inside.name or None) if gap.inside else None,
    }


N_TF_OP = 200


def shortened(tf_op: str | None) -> str | None:
    return f"…{tf_op[-N_TF_OP:]}" if tf_op and len(tf_op) > N_TF_OP else tf_op
