"""How far each source line is from what the chip could do."""

from __future__ import annotations

from _analysis.costs import DECLARED, costs_by_kernel, declared_notes
from _analysis.judging import SKIP_REASONS, Verdict, judge, parts_of, weighted_average
from _analysis.report import Report
from _analysis.roofs import peaks_used, roofs_of, rounded
from _analysis.rows import operand_dtypes
from _pipeline.groups import percent, ranked_by
from _pipeline.vocabulary import COMPUTE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from _analysis.judging import Part, Skipped
    from _analysis.roofs import Roofs
    from _pipeline.context import Context
    from _pipeline.normalize import Step

    Json = dict[str, Any]

N_TOP_SKIPPED = 10
N_TOP_SHORTFALL = 10
N_OVER_ROOF_NAMED = 3


def roofline(
    step: Step,
    context: Context,
    *,
    top: int | None = None,
    chip: str | None = None,
    peaks: Sequence[tuple[str, float]] = (),
    traffic: str = "accessed",
    kernel_cost: Sequence[tuple[str, int, int, str | None]] = (),
) -> Report:
    roofs = roofs_of(step.device, chip, dict(peaks))
    compute = step.by_kind[COMPUTE]
    verdicts: list[Verdict] = []
    skipped: list[Skipped] = []
    for part in parts_of(compute, costs_by_kernel(compute, kernel_cost, context)):
        judged = judge(part, roofs, hbm_only=traffic == "hbm")
        if isinstance(judged, Verdict):
            verdicts.append(judged)
        else:
            skipped.append(judged)
    shown = verdicts if top is None else by_shortfall(verdicts)[:top]
    context.notes += [*roofline_notes(verdicts), *roofs.choice.notes]
    return Report(
        {
            "chip": roofs.choice.chip,
            "peaks_used": {**peaks_used(roofs), "bytes": traffic},
            "step_summary": step_summary(verdicts, compute.total),
            "groups": [roofline_row(verdict) for verdict in shown],
            **({} if top is None else {"tail": tail_of(by_shortfall(verdicts)[top:])}),
            "skipped_groups": skipped_fields(skipped, roofs, hbm_only=traffic == "hbm"),
        },
    )


def by_shortfall(verdicts: Sequence[Verdict]) -> list[Verdict]:
    return sorted(
        verdicts,
        key=lambda each: (-each.shortfall, each.part.whole.op.agg_key, each.part.kernel or ""),
    )


def tail_of(verdicts: Sequence[Verdict]) -> Json:
    return {
        "n_groups_omitted": len(verdicts),
        "dur_ps": sum(verdict.total for verdict in verdicts),
        "shortfall_ps": sum(verdict.shortfall for verdict in verdicts),
    }


def roofline_row(verdict: Verdict) -> Json:
    part, group, total = verdict.part, verdict.part.group, verdict.total
    op = part.whole.op
    per_op = None if verdict.t_per_op is None else round(verdict.t_per_op)
    return {
        "agg_key": op.agg_key,
        "agg_key_kind": op.agg_key_kind,
        "source_inner": op.source_inner,
        "source_user": op.source_user,
        "tf_op": op.tf_op,
        "kernel": part.kernel,
        "cost_source": part.source,
        "hlo_categories": group.executions_by(lambda op: op.category),
        "n_executions": group.n,
        "total_dur_ps": total,
        "flops_sum": verdict.flops,
        "model_flops_sum": part.model_flops,
        "bytes_accessed_sum": part.bytes_accessed,
        "hbm_bytes_sum": part.hbm_bytes,
        "dtype": part.precision.dtype,
        "dtype_source": part.precision.source,
        "dtype_uncertain": part.precision.is_uncertain,
        "operand_dtypes": operand_dtypes(group),
        "arithmetic_intensity": (
            round(verdict.flops / verdict.n_bytes, 4) if verdict.n_bytes else None
        ),
        "ridge_point": rounded(verdict.ridge_point, 4),
        "bound": verdict.bound,
        "t_compute_theory_ps": round(verdict.t_compute),
        "t_hbm_theory_ps": round(verdict.t_hbm),
        "t_roofline_theory_ps": round(verdict.t_roofline),
        "t_roofline_per_op_ps": per_op,
        "mfu": verdict.utilization(verdict.t_compute),
        "hbm_util": verdict.utilization(verdict.t_hbm),
        "roofline_util": verdict.utilization(verdict.t_roofline),
        "shortfall_ps": verdict.shortfall,
        "shortfall_pct": rounded(100 * (1 - verdict.t_roofline / total), 3) if total else None,
        "shortfall_per_op_ps": None if per_op is None else total - per_op,
        "opaque_dur_ps": part.opaque_time,
    }


def step_summary(verdicts: Sequence[Verdict], compute: int) -> Json:
    over = [verdict for verdict in verdicts if verdict.is_over_roof]
    under = [verdict for verdict in verdicts if not verdict.is_over_roof]
    rooflined = sum(verdict.total for verdict in verdicts)
    known = [(each.total, round(each.t_per_op)) for each in verdicts if each.t_per_op is not None]
    return {
        "weighted_avg_mfu": weighted_average(verdicts, lambda each: each.t_compute),
        "weighted_avg_hbm_util": weighted_average(verdicts, lambda each: each.t_hbm),
        "weighted_avg_roofline_util": weighted_average(verdicts, lambda each: each.t_roofline),
        "over_roof": {
            "n_groups": len(over),
            "total_dur_ps": sum(verdict.total for verdict in over),
            "weighted_avg_mfu_without": weighted_average(under, lambda each: each.t_compute),
        },
        "step_shortfall_ps": sum(verdict.shortfall for verdict in verdicts),
        "t_roofline_per_op_ps": sum(roof for _, roof in known) if known else None,
        "shortfall_per_op_ps": sum(total - roof for total, roof in known) if known else None,
        "rooflined_dur_ps": rooflined,
        "step_compute_dur_ps_total": compute,
        "rooflined_pct_of_compute": percent(rooflined, compute),
        "skipped_pct_of_compute": percent(compute - rooflined, compute),
        "top_shortfall_groups": [
            {
                "agg_key": verdict.part.whole.op.agg_key,
                "source_inner": verdict.part.whole.op.source_inner,
                "tf_op": verdict.part.whole.op.tf_op,
                "total_dur_ps": verdict.total,
                "shortfall_ps": verdict.shortfall,
                "bound": verdict.bound,
            }
            for verdict in by_shortfall(verdicts)[:N_TOP_SHORTFALL]
        ],
    }


def skipped_fields(skipped: Sequence[Skipped], roofs: Roofs, hbm_only: bool) -> Json:
    counts = dict.fromkeys(SKIP_REASONS.values(), 0)
    for each in skipped:
        counts[SKIP_REASONS[each.reason]] += 1
    longest = sorted(
        skipped,
        key=lambda each: (-each.part.group.total, each.part.whole.op.agg_key, each.reason),
    )
    return {
        **counts,
        "total_dur_ps_skipped": sum(each.part.group.total for each in skipped),
        "top_skipped": [
            {
                "agg_key": each.part.whole.op.agg_key,
                "source_inner": each.part.whole.op.source_inner,
                "source_user": each.part.whole.op.source_user,
                "tf_op": each.part.whole.op.tf_op,
                "total_dur_ps": each.part.group.total,
                "hbm_util": hbm_util(each.part, roofs, hbm_only),
                "reason": each.reason,
                "top_signature": ranked_by(each.part.group.members, lambda op: op.signature)[0][0],
                "example_hlo_op": each.part.group.longest.op.text,
            }
            for each in longest[:N_TOP_SKIPPED]
        ],
    }


def hbm_util(part: Part, roofs: Roofs, hbm_only: bool) -> float | None:
    """That of what has no roof. Of a black box XLA writes that it moves nothing."""
    n_bytes, total = part.n_bytes(hbm_only), part.group.total
    if not part.bytes_accessed or n_bytes is None or roofs.hbm is None or not total:
        return None
    return rounded(n_bytes / roofs.hbm / total, 6)


def roofline_notes(verdicts: Sequence[Verdict]) -> list[str]:
    notes = []
    over = [verdict for verdict in verdicts if verdict.is_over_roof]
    if over:
        over.sort(key=lambda each: (-each.total, each.part.whole.op.agg_key))
        named = [
            each.part.whole.op.source_inner or each.part.whole.op.agg_key
            for each in over[:N_OVER_ROOF_NAMED]
        ]
        notes.append(
            f"{len(over)} groups have a roofline_util above 1, a wrong dtype, peak or flop count:"
            f" {', '.join(named)}{', …' * (len(over) > len(named))}"
        )
    notes += declared_notes({each.part.kernel for each in verdicts if each.part.source == DECLARED})
    n_differ = sum(each.part.model_flops not in (None, each.flops) for each in verdicts)
    if n_differ:
        notes.append(f"{n_differ} groups have a flops_sum that differs from model_flops_sum")
    return notes
