"""Build the rows that several modes print."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import _peaks
from _breakdown.analysis.roof.costs import bytes_of, sum_of_bytes
from _breakdown.analysis.source.likely_lines import (
    DOUBTFUL,
    NO_LINE,
    OWN,
    LikelyGroup,
    LikelyLine,
    SourceIs,
    likely_groups,
    line_of,
    time_of_line,
)
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import Group, group_by, most, percent, ranked_by, summed
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.scopes import common_scope
from _breakdown.pipeline.vocabulary import COMPUTE, KINDS, OTHER
from _proto.hlo.text import dtype_class

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _breakdown.analysis.idle.gaps import Gap
    from _breakdown.analysis.idle.periods import Occurrences, Periods
    from _breakdown.analysis.roof.roofs import Roofs
    from _proto.hlo.backend_config import DeclaredCost

Json = dict[str, Any]

N_BREAKDOWN = 8
N_LIKELY = 8


def op_name(op: Op) -> str:
    """Return the name of the op's instruction, or the op's full text if it has no name."""
    return op.name or op.text.removeprefix("%")


def duration_fields(group: Group) -> Json:
    return {
        "total_dur_ps": group.total,
        "min_dur_ps": min(ran.shortest for ran in group.members),
        "max_dur_ps": group.longest.longest,
        "avg_dur_ps": round(group.total / group.n),
    }


def source_fields(op: Op, group: Group) -> Json:
    """Return the key and the line of an op for all ops of its group."""
    return {
        "agg_key": op.agg_key,
        "agg_key_kind": op.agg_key_kind,
        "source_inner": op.source_inner,
        "source_user": op.source_user,
        "source_is": source_is(group),
        "tf_op": op.tf_op,
    }


def source_is(group: Group) -> SourceIs | None:
    """Return whether the line of a group with a stack is the ops' own line, or doubtful for most of
    the time; None without a stack."""
    if not group.op.source_stack:
        return None
    how = most((line_of(ran.op).how, ran.total) for ran in group.members)
    return DOUBTFUL if how == DOUBTFUL else OWN


def scope_fields(members: Sequence[Executions], layers: str | None = None) -> Json:
    """Return the innermost scope that contains the ops, and the number of scopes. If the ops were
    grouped by scope, pass the name of their layers."""
    if len(members) == 1:
        scope = members[0].op.scope
        n_scopes = len({scope.parts for scope in members[0].op.all_scopes})
        return {"scope": scope.name if scope else None, "n_scopes": n_scopes}
    scopes = {scope for member in members for scope in member.op.all_scopes}
    n_scopes = len({scope.parts for scope in scopes})
    time_in_none = sum(member.total for member in members if not member.op.all_scopes)
    if not scopes or 2 * time_in_none > sum(member.total for member in members):
        return {"scope": None, "n_scopes": n_scopes}
    name = layers if layers and n_scopes > 1 else common_scope(scopes).name
    return {"scope": name, "n_scopes": n_scopes}


def row_key(op: Op, category: str = "") -> str:
    """Return a key that differs between all rows of a table: the op's key, and before it what else
    separates the rows."""
    kind = "" if op.kind == COMPUTE else op.kind
    return ":".join(filter(None, (kind, category, op.agg_key)))


def group_fields(group: Group, step: Step) -> Json:
    """Return the fields of a group that the modes `summary` and `by_source` have in common."""
    longest = group.longest
    signatures = [part for _, part in ranked_by(group.members, lambda op: op.signature)]
    shown, omitted = signatures[:N_BREAKDOWN], signatures[N_BREAKDOWN:]
    n_bytes = sum_of_bytes((member.n, *bytes_of(member.op)) for member in group.members)
    return {
        "row_key": row_key(group.op),
        **source_fields(group.op, group),
        "source_stack": group.op.source_stack,
        **scope_fields(group.members),
        "n_executions": group.n,
        **duration_fields(group),
        "line_dur_ps": time_of_line(step, group) if group.op.source_inner else None,
        "pct_of_compute": percent(group.total, step.by_kind[COMPUTE].total),
        "pct_of_step": percent(group.total, step.duration),
        "hlo_categories": group.executions_by(lambda op: op.category),
        "flops_sum": group.sum_of(lambda op: op.flops),
        # Exclude opaque ops, because XLA can report 0 flops for a kernel.
        "flops_known_pct": percent(
            group.where(lambda op: op.flops is not None and not op.is_opaque).total, group.total
        ),
        "bytes_accessed_sum": n_bytes.accessed,
        "hbm_bytes_sum": n_bytes.hbm,
        "xla_bytes_accessed_sum": group.sum_of(lambda op: op.bytes_accessed),
        "phases": group.time_by(lambda op: op.phase),
        "example_hlo_op": longest.op.text,
        "example_hlo_op_dur_ps": longest.longest,
        "hlo_op_breakdown": [signature_row(part, group) for part in shown],
        "hlo_op_breakdown_overflow": overflow_row(omitted) if omitted else None,
        "likely_sources": likely_rows(group),
    }


def signature_row(part: Group, group: Group) -> Json:
    longest = part.longest
    return {
        "signature": part.op.signature,
        "hlo_category": part.op.category,
        "total_dur_ps": part.total,
        "n_executions": part.n,
        "pct_of_group": percent(part.total, group.total),
        "example_hlo_op": longest.op.text,
        "example_hlo_op_dur_ps": longest.longest,
    }


def overflow_row(parts: Sequence[Group]) -> Json:
    return {
        "n_signatures": len(parts),
        "n_executions": sum(part.n for part in parts),
        "total_dur_ps": sum(part.total for part in parts),
    }


def likely_rows(group: Group) -> list[Json] | None:
    """Return the likely lines of a group without a stack; None if the group has a stack or no
    program."""
    if group.op.source_stack or not any(ran.op.program for ran in group.members):
        return None
    return line_rows(likely_groups(group))


def line_rows(parts: Sequence[LikelyGroup]) -> list[Json]:
    """Return the longest lines; the last row sums the rest and the time without a line."""
    shown = [part for part in parts[:N_LIKELY] if part.likely.line]
    omitted = parts[len(shown) :]
    rest = Group([ran for part in omitted for ran in part.group.members])
    if rest.members:
        shown.append(LikelyGroup(NO_LINE, rest))
    return [
        {
            **likely_fields(part.likely),
            "dur_ps": part.group.total,
            "n_executions": part.group.n,
        }
        for part in shown
    ]


def likely_fields(likely: LikelyLine) -> Json:
    return {
        "source_inner": likely.line,
        "source_user": likely.line_user,
        "source_is": likely.how,
    }


def tail_row(omitted: Sequence[Group]) -> Json:
    return {"n_groups_omitted": len(omitted), "dur_ps": sum(group.total for group in omitted)}


def left_out(step: Step, listed: Iterable[Executions]) -> Json:
    """Return the time of the ops that a mode does not list, for each kind except compute."""
    times = summed((ran.op.kind, ran.total) for ran in listed)
    return {
        kind: step.by_kind[kind].total - times.get(kind, 0) for kind in KINDS if kind != COMPUTE
    }


def costliest_groups(
    members: Iterable[Executions], key: Callable[[Op], Any], top: int | None
) -> tuple[list[Group], list[Group]]:
    """Return the `top` groups with the most time, and the other groups, both in order of time. If
    `top` is None, return all groups in order of appearance."""
    if top is None:
        return list(group_by(members, key).values()), []
    ranked = [group for _, group in ranked_by(members, key)]
    return ranked[:top], ranked[top:]


def operand_dtypes(group: Group) -> dict[str, int]:
    """Return the time by dtype of the matrix unit's input, for ops with a known input dtype."""
    fed = group.where(lambda op: op.operand_dtype)
    return fed.time_by(lambda op: op.operand_dtype or "")


def period_fields(periods: Periods | None) -> Json:
    alike = periods if periods and not periods.is_mixed else None
    return {
        "period_ps": alike.mean if alike else None,
        "period_median_ps": alike.median if alike else None,
        "between_steps_ps": alike.mean_pause if alike else None,
        "between_steps_median_ps": alike.median_pause if alike else None,
        "pauses": occurrences_row(periods.occurrences(periods.pauses)) if periods else None,
    }


def occurrences_row(occurrences: Occurrences | None) -> Json | None:
    if occurrences is None:
        return None
    return {
        "n": len(occurrences.gaps),
        "n_gaps": occurrences.n_gaps,
        "when": occurrences.when,
        "min_ps": occurrences.shortest,
        "max_ps": occurrences.longest,
        "pct_of_period": occurrences.share,
    }


def gap_row(gap: Gap, step: Step) -> Json:
    return {
        "start_ps": gap.start,
        "dur_ps": gap.duration,
        # A step with a gap has a duration above 0, so this does not divide by zero.
        "pct_of_step": round(100 * gap.duration / step.duration, 3),
        "after_hlo_op": gap.after.text if gap.after else None,
        "before_hlo_op": gap.before.text if gap.before else None,
        "inside": (gap.inside.name or None) if gap.inside else None,
    }


def declared_row(cost: DeclaredCost) -> Json:
    return {
        "flops": cost.flops,
        "bytes_accessed": cost.bytes_accessed,
    }


def recompute_fields(step: Step) -> Json:
    time = Group(step.leaves).where(lambda op: op.phase == "recompute").total
    return {
        "recompute_total_dur_ps": time,
        "recompute_total_pct_of_step": percent(time, step.duration),
    }


def chip_fields(roofs: Roofs) -> Json:
    return {"chip": roofs.choice.chip, "chip_is_assumed": roofs.choice.is_assumed}


def peaks_used(roofs: Roofs) -> Json:
    peaks = roofs.choice.peaks
    ridge_points = {dtype: roofs.ridge_point(dtype) for dtype in _peaks.DTYPES}
    return {
        **{f"peak_tflops_{dtype}": peaks.tflops(dtype) for dtype in _peaks.DTYPES},
        "peak_hbm_gibps": peaks.hbm_gibps,
        "ridge_points": {
            dtype: ridge_point
            for dtype, ridge_point in ridge_points.items()
            if ridge_point is not None
        },
        "source": peaks.source,
        "unit": "GiB/s (base-1024) per device",
    }


def with_reads(row: Json) -> Json:
    """Add `reads`: the dtypes of operands in memory, except the dtype that determines the
    peak. `f32` is spelled `fp32`, as that dtype is."""
    named = {spelled(name) for name in row.get("operand_dtypes") or ()}
    return {**row, "reads": sorted(named - {row["dtype"]})}


def spelled(hlo_dtype: str) -> str:
    """Return the dtype that a peak is for, or the name in HLO if there is no such peak."""
    dtype = dtype_class(hlo_dtype)
    return hlo_dtype if dtype == OTHER else dtype
