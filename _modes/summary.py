"""The costliest source lines, and the step's time by kind and category."""

from __future__ import annotations

from _analysis.exposed import exposed
from _analysis.gaps import Surroundings, longest_gaps
from _analysis.report import Report
from _analysis.rows import durations, gap_row, group_fields, tail_fields
from _pipeline.device import STEPS
from _pipeline.groups import Group, group_by, percent, ranked_by, source_key
from _pipeline.step_pick import time_between
from _pipeline.vocabulary import COMM, COMPUTE, PHASES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from _analysis.exposed import Exposed
    from _pipeline.context import Context
    from _pipeline.device import Device, StepEvent
    from _pipeline.normalize import Step

    Json = dict[str, Any]

# Idle gaps in the answer.
N_GAPS = 10


def summary(step: Step, context: Context, *, top: int = 50, include_comm: bool = False) -> Report:
    kinds = (COMPUTE, COMM) if include_comm else (COMPUTE,)
    groups = [group for _, group in ranked_by(step.of_kinds(*kinds), source_key)]
    rows = []
    for rank, group in enumerate(groups[:top], 1):
        row = {"rank": rank, **group_fields(group, step)}
        rows.append({**row, "kind": group.op.kind} if include_comm else row)
    longest = longest_gaps(step, N_GAPS)
    around = Surroundings(step, longest)
    return Report(
        {
            "top_compute_groups": rows,
            "tail_compute": tail_fields(groups[top:]),
            "by_kind_rollup": {
                kind: {
                    "n": group.n,
                    "dur_ps": group.total,
                    "pct_of_step": percent(group.total, step.duration),
                }
                for kind, group in step.by_kind.items()
            },
            "by_phase_rollup": phase_rollup(step.by_kind[COMPUTE]),
            "by_hlo_category": category_rows(step),
            "comm_rollup": [exposed_row(each, step) for each in exposed(step)],
            "kernels": [kernel_row(kernel, group, step) for kernel, group in kernels(step)],
            "idle_gaps": [gap_row(around.gap(*gap), step) for gap in longest],
            "steps": [step_row(each, step) for each in step.device.steps],
            "steps_rollup": steps_rollup(step.device),
        }
    )


def phase_rollup(compute: Group) -> Json:
    phases = group_by(compute.members, lambda op: op.phase)
    of_phase = {phase: phases.get(phase) or Group([]) for phase in PHASES}
    return {
        phase: {
            "n": group.n,
            "dur_ps": group.total,
            "pct_of_compute": percent(group.total, compute.total),
        }
        for phase, group in of_phase.items()
    }


def category_rows(step: Step) -> list[Json]:
    ranked = ranked_by([*step.leaves, *step.containers], lambda op: (op.category, op.kind))
    return [
        {
            "hlo_category": category,
            "kind": kind,
            "n_executions": group.n,
            "total_dur_ps": group.total,
            "pct_of_step": percent(group.total, step.duration),
        }
        for (category, kind), group in ranked
    ]


def exposed_row(each: Exposed, step: Step) -> Json:
    return {
        "waits_for": each.waits_for,
        "n": each.group.n,
        "sync_dur_ps": each.sync,
        "wait_dur_ps": each.waits.total,
        "pct_of_step": percent(each.group.total, step.duration),
        "longest_hlo_op": each.group.longest.op.text,
    }


def kernels(step: Step) -> list[tuple[str, Group]]:
    """Custom kernels by name, costliest first."""
    return ranked_by((each for each in step.leaves if each.op.kernel), lambda op: op.kernel)


def kernel_row(kernel: str, group: Group, step: Step) -> Json:
    hlo = group.longest.op.hlo
    return {
        "kernel": kernel,
        "n_executions": group.n,
        **durations(group),
        "pct_of_step": percent(group.total, step.duration),
        "source_inner": group.op.source_inner,
        "source_user": group.op.source_user,
        "tf_op": group.op.tf_op,
        "phases": group.time_by(lambda op: op.phase),
        "shapes_in": [array.text for array in hlo.operands],
        "shapes_out": [hlo.shape],
    }


def step_row(each: StepEvent, step: Step) -> Json:
    row = {
        "index": each.index,
        "name": each.name,
        "duration_ps": each.duration,
        "n_xla_ops_events": each.n_events,
    }
    return {**row, "picked": True} if each is step.picked else row


def steps_rollup(device: Device) -> Json:
    steps = device.steps
    between, whole = time_between(steps)
    by_name: dict[str | None, list[int]] = {}
    for each in steps:
        name = each.name or "<none>"
        # The profiler numbers steps, all of one loop.
        is_number = device.step_source == STEPS and name.isascii() and name.isdecimal()
        by_name.setdefault(None if is_number else name, []).append(each.duration)
    ranked = sorted(by_name, key=lambda name: (-sum(by_name[name]), name is None, name))
    return {
        "n": len(steps),
        "n_without_ops": sum(not each.n_events for each in steps),
        "between_steps_ps": between,
        "between_steps_pct": percent(between, whole),
        "by_name": [{"name": name, **durations_of(by_name[name])} for name in ranked],
    }


def durations_of(durations: list[int]) -> Json:
    return {
        "n": len(durations),
        "total_dur_ps": sum(durations),
        "median_dur_ps": sorted(durations)[(len(durations) - 1) // 2],
        "min_dur_ps": min(durations),
        "max_dur_ps": max(durations),
    }
