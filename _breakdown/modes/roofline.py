"""Show how close each source line comes to the chip's peak rates.

question: how close each source line comes to the peak rates of the chip
reads: a step
options: --top, peaks, --bytes, --kernel-cost
example: --peak-tflops-fp32 70
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, Literal

from _breakdown.analysis.roof.costs import OPAQUE, costs_by_kernel, declared_notes
from _breakdown.analysis.roof.judging import (
    GroupPart,
    Skipped,
    Verdict,
    judge,
    parts_of,
    weighted_average,
)
from _breakdown.analysis.roof.ledger import is_declared, ledger_of
from _breakdown.analysis.roof.limits import limit_of
from _breakdown.analysis.roof.roofs import Roofs, over_roof_note, roofs_of, rounded
from _breakdown.analysis.source.rows import (
    chip_fields,
    operand_dtypes,
    peaks_used,
    scope_fields,
    source_fields,
    source_is,
    with_reads,
)
from _breakdown.output.columns import LIMIT, LINE, OF_ROOF, PEAKS, TOTAL
from _breakdown.output.phrases import Next, at_line_of
from _breakdown.output.screen import Column, End, Part, Says, Table
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.groups import percent, ranked_by, sum_known
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.vocabulary import COMPUTE
from _breakdown.units import counted, time
from _proto.hlo.text import DtypeClass

Json = dict[str, Any]

N_TOP_SKIPPED = 10
N_TOP_SHORTFALL = 10


def roofline(
    step: Step,
    context: Context,
    *,
    top: int | None = None,
    chip: str | None = None,
    peaks: Sequence[tuple[str, float]] = (),
    traffic: Literal["accessed", "hbm"] = "accessed",
    kernel_cost: Sequence[tuple[str, int, int, DtypeClass | None]] = (),
) -> Json:
    roofs = roofs_of(step.device, chip, dict(peaks))
    hbm_only = traffic == "hbm"
    compute = step.by_kind[COMPUTE]
    verdicts: list[Verdict] = []
    skipped: list[Skipped] = []
    parts = parts_of(ledger_of(step, roofs, costs_by_kernel(compute, kernel_cost, context)))
    for part in parts:
        judged = judge(part, roofs, hbm_only)
        if isinstance(judged, Verdict):
            verdicts.append(judged)
        else:
            skipped.append(judged)
    ranked = sorted(verdicts, key=shortfall_rank)
    shown = verdicts if top is None else ranked[:top]
    tail = {} if top is None else {"tail": tail_row(ranked[top:])}
    context.warn(*roofline_notes(verdicts))
    context.note(*roofs.choice.notes)
    return {
        **chip_fields(roofs),
        "peaks_used": {**peaks_used(roofs), "bytes": traffic},
        "step_summary": step_summary(ranked, parts, compute.total),
        "groups": [roofline_row(verdict) for verdict in shown],
        **tail,
        "skipped_groups": skipped_fields(skipped, roofs, hbm_only),
    }


def shortfall_rank(verdict: Verdict) -> tuple[int, str]:
    """Return a verdict's sort key: largest shortfall first."""
    return -verdict.shortfall, verdict.part.op.agg_key


def tail_row(verdicts: Sequence[Verdict]) -> Json:
    return {
        "n_groups_omitted": len(verdicts),
        "dur_ps": sum(verdict.total for verdict in verdicts),
        "shortfall_ps": sum(verdict.shortfall for verdict in verdicts),
    }


def per_op_fields(parts: Sequence[GroupPart]) -> Json:
    return {
        "t_roofline_per_op_ps": sum_known((1, part.at_roof) for part in parts),
        "shortfall_per_op_ps": sum_known((1, part.lost) for part in parts),
    }


def roofline_row(verdict: Verdict) -> Json:
    part, group, total = verdict.part, verdict.part.group, verdict.total
    return {
        **source_fields(part.op, group),
        **scope_fields(group.members),
        "kernel": part.kernels[0][0] if part.kernels else None,
        "kernel_dur_ps": sum(duration for _, duration in part.kernels),
        "cost_source": verdict.source,
        "hlo_categories": group.executions_by(lambda op: op.category),
        "n_executions": group.n,
        "total_dur_ps": total,
        "flops_sum": verdict.flops,
        "flops_known_pct": percent(part.time_with_flops, total),
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
        "ridge_point": verdict.ridge_point,
        "bound": verdict.bound,
        "limited_by": limit_of(part.entries),
        "t_compute_theory_ps": round(verdict.t_compute),
        "t_hbm_theory_ps": round(verdict.t_hbm),
        "t_roofline_theory_ps": round(verdict.t_roofline),
        **per_op_fields([part]),
        "mfu": verdict.utilization(verdict.t_compute),
        "hbm_util": verdict.utilization(verdict.t_hbm),
        "roofline_util": verdict.utilization(verdict.t_roofline),
        "shortfall_ps": verdict.shortfall,
        "shortfall_pct": rounded(100 * (1 - verdict.t_roofline / total), 3) if total else None,
        "opaque_dur_ps": part.opaque_time,
    }


def step_summary(ranked: Sequence[Verdict], parts: Sequence[GroupPart], compute: int) -> Json:
    """Return averages and sums over the verdicts, which must be sorted by shortfall, and over all
    parts."""
    entries = [entry for part in parts for entry in part.entries]
    judged = [entry for entry in entries if entry.lost is not None]
    over = [verdict for verdict in ranked if verdict.is_over_roof]
    rooflined = sum(verdict.total for verdict in ranked)
    return {
        "weighted_avg_mfu": weighted_average(ranked, lambda verdict: verdict.t_compute),
        "weighted_avg_hbm_util": weighted_average(ranked, lambda verdict: verdict.t_hbm),
        "weighted_avg_roofline_util": weighted_average(ranked, lambda verdict: verdict.t_roofline),
        "over_roof": {
            "n_groups": len(over),
            "total_dur_ps": sum(verdict.total for verdict in over),
        },
        "step_shortfall_ps": sum(verdict.shortfall for verdict in ranked),
        **per_op_fields(parts),
        "without_roof_ps": compute - sum(entry.total for entry in judged),
        "rooflined_dur_ps": rooflined,
        "step_compute_dur_ps_total": compute,
        "rooflined_pct_of_compute": percent(rooflined, compute),
        "skipped_pct_of_compute": percent(compute - rooflined, compute),
        "top_shortfall_groups": [shortfall_row(verdict) for verdict in ranked[:N_TOP_SHORTFALL]],
    }


def shortfall_row(verdict: Verdict) -> Json:
    op = verdict.part.op
    return {
        "agg_key": op.agg_key,
        "source_inner": op.source_inner,
        "tf_op": op.tf_op,
        "total_dur_ps": verdict.total,
        "shortfall_ps": verdict.shortfall,
        "bound": verdict.bound,
    }


def skipped_fields(skipped: Sequence[Skipped], roofs: Roofs, hbm_only: bool) -> Json:
    n = Counter(reason for _, reason in skipped)
    longest = sorted(
        skipped,
        key=lambda group: (-group.part.group.total, group.part.op.agg_key, group.reason),
    )
    return {
        "n_no_flops": n[OPAQUE] + n["no_flops"],
        "n_no_bytes": n["no_bytes"],
        "n_dtype_other": n["dtype_other"],
        "n_peak_unknown_for_dtype": n["peak_unknown_for_dtype"],
        "total_dur_ps_skipped": sum(part.group.total for part, _ in skipped),
        "top_skipped": [
            skipped_row(group, hbm_util(group.part, roofs, hbm_only))
            for group in longest[:N_TOP_SKIPPED]
        ],
    }


def skipped_row(skipped: Skipped, utilization: float | None) -> Json:
    part, op = skipped.part, skipped.part.op
    return {
        "agg_key": op.agg_key,
        "source_inner": op.source_inner,
        "source_user": op.source_user,
        "source_is": source_is(part.group),
        "tf_op": op.tf_op,
        "total_dur_ps": part.group.total,
        **per_op_fields([part]),
        "hbm_util": utilization,
        "reason": skipped.reason,
        "top_signature": ranked_by(part.group.members, lambda op: op.signature)[0][0],
        "example_hlo_op": part.group.longest.op.text,
    }


def hbm_util(part: GroupPart, roofs: Roofs, hbm_only: bool) -> float | None:
    """Return the HBM utilization of ops without a verdict; None if the bytes are unknown."""
    t_hbm, total = roofs.t_memory(part.n_bytes(hbm_only)), part.group.total
    # XLA writes 0 bytes for an opaque op, so 0 means unknown.
    if not part.bytes_accessed or t_hbm is None or not total:
        return None
    return rounded(t_hbm / total, 6)


def roofline_notes(verdicts: Sequence[Verdict]) -> list[str]:
    notes = []
    over = [verdict for verdict in verdicts if verdict.is_over_roof]
    if over:
        over.sort(key=lambda verdict: (-verdict.total, verdict.part.op.agg_key))
        ops = [verdict.part.op for verdict in over]
        notes.append(
            over_roof_note(
                f"roofline_util exceeds 1 in {counted(len(over), 'group')}, because a dtype,"
                " a peak or a flop count is wrong",
                (op.source_inner or op.agg_key for op in ops),
            )
        )
    entries = [entry for verdict in verdicts for entry in verdict.part.entries]
    notes += declared_notes({entry.kernel for entry in entries if is_declared(entry)})
    n_differ = sum(verdict.part.differs_from_model for verdict in verdicts)
    if n_differ:
        notes.append(f"flops_sum differs from model_flops_sum in {counted(n_differ, 'group')}")
    return notes


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "groups"
LOST = Column("lost", "shortfall_per_op_ps", "time")


def prepared(fields: Json) -> Json:
    """Add what only text shows: the utilization of HBM, which `hbm_util` is not if it counts the
    bytes of all memories, and the sums over the groups, unless `--top` omits some."""
    if "groups" not in fields:
        return fields
    is_hbm = fields["peaks_used"]["bytes"] == "hbm"
    rows = [{**row, "hbm": hbm_of(row, is_hbm)} for row in fields["groups"]]
    fields = {**fields, "groups": rows, "hbm_of_groups": None, "lost_of_groups": None}
    whole = sum(row["total_dur_ps"] for row in rows)
    if whole and not fields.get("tail", {}).get("n_groups_omitted"):
        busy = sum((row["hbm"] or 0) * row["total_dur_ps"] for row in rows)
        fields["hbm_of_groups"] = busy / whole
        fields["lost_of_groups"] = sum(row["shortfall_per_op_ps"] or 0 for row in rows)
    return fields


def hbm_of(row: Json, is_hbm: bool) -> float | None:
    """Return the utilization of HBM; if the bytes in HBM are unknown, that of all memories. Pass
    whether the row's utilization counts only the bytes in HBM."""
    counted, in_hbm = row["bytes_accessed_sum"], row["hbm_bytes_sum"]
    util: float | None = row["hbm_util"]
    return (
        util if is_hbm or util is None or in_hbm is None or not counted else util * in_hbm / counted
    )


def with_roof(row: Json) -> Json:
    at_roof, lost = row["t_roofline_per_op_ps"], row["shortfall_per_op_ps"]
    share = 100 * at_roof / (at_roof + lost) if at_roof else None
    is_over = (row.get("roofline_util") or 0) > 1
    mark = "faster than its roof" if is_over else None
    return {**row, "pct_of_roof": share, "mark": mark, "weight": weight_of(row)}


def weight_of(row: Json) -> int:
    """Return what is lost in a row at most: all time of ops whose roof is unknown counts."""
    return int(row["total_dur_ps"] - (row["t_roofline_per_op_ps"] or 0))


PARTS: tuple[Part, ...] = (
    Table(
        "lines by time lost beyond the roof; mfu, hbm: utilization in percent; in brackets: dtypes"
        " read",
        "groups",
        (
            LOST,
            TOTAL,
            Column("mfu", "mfu", "share"),
            Column("hbm", "hbm", "share"),
            OF_ROOF,
            Column("bound", "bound", "word", least=7),
            LIMIT,
            Column("dtype", "dtype", "word", also=(" ({reads})",), least=12),
            Column("flop/byte", "arithmetic_intensity", "number", gives_way=True),
            Column("kernel", "kernel", null="", gives_way=True),
            LINE._replace(also=(" ({mark})",)),
        ),
        derive=lambda rows: [with_roof(with_reads(row)) for row in rows],
        by="weight",
        size="total_dur_ps",
        what="group",
        omitted="tail.n_groups_omitted",
        tail={"time": "tail.dur_ps"},
        ends=(
            End(
                "step_summary.rooflined_dur_ps",
                {
                    "line": "all",
                    "time": "step_summary.rooflined_dur_ps",
                    "lost": "lost_of_groups",
                    "mfu": "step_summary.weighted_avg_mfu",
                    "hbm": "hbm_of_groups",
                },
            ),
        ),
    ),
    Says(
        "\nThese lines take {step_summary.rooflined_pct_of_compute:percent} of math."
        " The flops, bytes or peak of the other {skipped_groups.total_dur_ps_skipped:time} are"
        " unknown."
    ),
    Table(
        "the costliest lines of which flops, bytes or a peak are unknown",
        "skipped_groups.top_skipped",
        (
            LOST._replace(null="?"),
            TOTAL,
            OF_ROOF,
            Column("why", "reason", "word", least=22),
            Column("mostly", "top_signature", "what"),
            LINE,
        ),
        derive=lambda rows: [with_roof(row) for row in rows],
        size="total_dur_ps",
        takes_top=True,
        what="group",
        tail={"time": ""},
    ),
    PEAKS,
)


def sentences(answer: Json) -> Iterator[str]:
    summary = answer["step_summary"]
    math, unknown = summary["step_compute_dur_ps_total"], summary["without_roof_ps"]
    lost = summary["shortfall_per_op_ps"]
    if not math:
        yield "No math ran in this step."
    elif lost is None:
        yield f"Math takes {time(math)}; its roof is unknown."
    else:
        rest = f", and the roof of {time(unknown)} is unknown" if unknown else ""
        yield f"Math takes {time(math)}: {time(lost)} is beyond the roof{rest}."
        yield from largest_loss(answer)


def largest_loss(answer: Json) -> Iterator[str]:
    """Yield a sentence about the row that loses the most time, if a row loses time; kernels of
    unknown cost have a mode of their own."""
    rows = [*answer["groups"], *answer["skipped_groups"]["top_skipped"]]
    rows = [row for row in rows if row.get("reason") != OPAQUE]
    top = max(rows, key=weight_of, default=None)
    if top and (most := weight_of(top)):
        is_known = most == top["shortfall_per_op_ps"]
        is_at, up_to = ("is", "") if is_known else ("may be", "up to ")
        line = at_line_of(top, answer) or " without a source line"
        yield f"The largest listed loss {is_at}{line}: {up_to}{time(most)}."


def next_steps(answer: Json) -> Iterator[Next]:
    yield Next("where the step loses time, and why", ("--mode", "bottleneck"))
