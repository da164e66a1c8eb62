"""The step by op: what each one costs, and of a single one all that is known."""

from __future__ import annotations

from _analysis.costs import DECLARED, OPAQUE, cost_of, costs_by_kernel, declared_notes
from _analysis.exposed import is_exposed
from _analysis.ledger import entry_of
from _analysis.likely_lines import line_of
from _analysis.one_op import found_as, name_of, one_op
from _analysis.report import Report
from _analysis.roofs import peaks_used, roofs_of
from _analysis.rows import durations, likely_fields
from _pipeline.groups import group_by, percent, sum_if_known
from _pipeline.vocabulary import COMPUTE
from _proto.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from _analysis.costs import KernelCost
    from _analysis.roofs import Roofs
    from _pipeline.context import Context
    from _pipeline.executions import Executions
    from _pipeline.groups import Group
    from _pipeline.normalize import Step

    Json = dict[str, Any]


def by_op(
    step: Step,
    context: Context,
    *,
    top: int = 50,
    chip: str | None = None,
    peaks: Sequence[tuple[str, float]] = (),
    kernel_cost: Sequence[tuple[str, int, int, str | None]] = (),
    op: str | None = None,
) -> Report:
    roofs = roofs_of(step.device, chip, dict(peaks))
    judge = Judge(step, roofs, costs_by_kernel(step.by_kind[COMPUTE], kernel_cost, context))
    ranked = ranked_ops(step.leaves)
    containers = ranked_ops(step.containers)
    rows = [judge.row(rank, group) for rank, group in enumerate(ranked[:top], 1)]
    fields: Json = {
        "ops": rows,
        "tail": {
            "n_ops_omitted": len(ranked[top:]),
            "dur_ps": sum(group.total for group in ranked[top:]),
        },
        "containers": [container_row(group) for group in containers],
        "chip": roofs.choice.chip,
        "peaks_used": peaks_used(roofs),
    }
    if op is not None:
        group = found_as(op, [*ranked, *containers], context)
        row = judge.row(ranked.index(group) + 1 if group in ranked else None, group)
        fields["op"] = {**row, **one_op(group, step)}
        rows = [*rows, row]
    declared = {row["kernel"] for row in rows if row["cost_source"] == DECLARED}
    context.notes += [*declared_notes(declared), *roofs.choice.notes]
    return Report(fields)


def ranked_ops(executions: Iterable[Executions]) -> list[Group]:
    """Ops by program and name, costliest first."""
    groups = group_by(executions, lambda op: (op.program_id, name_of(op)))
    ranked = sorted(
        groups.items(),
        # Of several programs those that have an id come behind.
        key=lambda item: (-item[1].total, item[0][1], -1 if item[0][0] is None else item[0][0]),
    )
    return [group for _, group in ranked]


def container_row(group: Group) -> Json:
    return {
        "hlo_op": name_of(group.op),
        "hlo_category": group.op.category,
        "n_executions": group.n,
        "total_dur_ps": group.total,
    }


@record
class Judge:
    """Tells of an op what it costs, and what of its time the chip needs."""

    step: Step
    roofs: Roofs
    by_user: Mapping[str, KernelCost]

    def row(self, rank: int | None, group: Group) -> Json:
        """What is true of an op's first execution, and sums over all."""
        op = group.op
        cost = cost_of(op, self.by_user)
        is_opaque = cost.source == OPAQUE
        # What the trace has of a black box's flops is no figure.
        flops = None if is_opaque else cost.flops
        n_bytes = cost.bytes_accessed if cost.hbm_bytes is None else cost.hbm_bytes
        times = durations(group)
        # A container's counts leave out how often its body runs, so its rates would mean nothing.
        average = None if op.is_container else times["avg_dur_ps"]
        verdict = self.verdict(group)
        return {
            "rank": rank,
            "hlo_op": name_of(op),
            "program_id": None if op.program_id is None else str(op.program_id),
            "hlo_category": op.category,
            "kind": op.kind,
            "class": verdict.pop("class"),
            "n_executions": group.n,
            **times,
            "pct_of_step": percent(group.total, self.step.duration),
            "phase": op.phase,
            "scope": op.scope.name if op.scope else None,
            "tf_op": op.tf_op,
            **likely_fields(line_of(op)),
            "shape": op.hlo.shape or op.shape,
            "dtype": cost.precision.dtype,
            "dtype_source": cost.precision.source,
            "cost_source": None if is_opaque else cost.source,
            "flops": flops,
            "bytes_accessed": cost.bytes_accessed,
            "hbm_bytes": cost.hbm_bytes,
            # A flop in a picosecond is a TFLOP in a second, a byte a TB.
            "achieved_tflops": rate(flops, average),
            "achieved_gbps": rate(n_bytes and 1000 * n_bytes, average),
            **verdict,
            "waits_for": op.waits_for if is_exposed(op) else None,
        }

    def verdict(self, group: Group) -> Json:
        op = group.op
        if op.is_container:
            return dict.fromkeys(("class", "at_roof_ps", "lost_ps", "kernel"))
        entries = [entry_of(each, self.roofs, self.by_user) for each in group.members]
        return {
            "class": entries[0].name,
            "at_roof_ps": sum_if_known((1, entry.at_roof) for entry in entries),
            "lost_ps": sum_if_known((1, entry.lost) for entry in entries),
            "kernel": entries[0].kernel or op.kernel,
        }


def rate(amount: int | None, duration: int | None) -> float | None:
    return round(amount / duration, 3) if amount and duration else None
