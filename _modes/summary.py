"""Show the costliest source lines, and the step's time by kind, phase and category.

question: the costliest source lines, and the step's time by kind and category
reads: a step
options: --top, --include-comm
example: --top 10
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from _analysis.idle.gaps import Surroundings, longest_gaps
from _analysis.idle.periods import common_name, periods_of
from _analysis.likely_lines import line_of
from _analysis.roof.exposed import Exposed, exposed
from _analysis.rows import (
    duration_fields,
    gap_row,
    group_fields,
    period_fields,
    recompute_fields,
    tail_row,
)
from _pipeline.context import Context
from _pipeline.device import Device, StepEvent
from _pipeline.groups import Group, group_by, percent, ranked_by, source_key
from _pipeline.normalize import Step
from _pipeline.step_durations import durations_of
from _pipeline.step_pick import time_between
from _pipeline.vocabulary import COMM, COMPUTE, PHASES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.summary import (
        CategoryRow,
        CommRow,
        ComputeGroup,
        Fields,
        Kernel,
        KindIfAsked,
        KindRow,
        PhaseRow,
        PickedIfPicked,
        StepNameRow,
        StepsRollup,
    )
    from _output.fields.summary import Step as StepRow

# Maximum number of idle gaps in the answer.
N_GAPS = 10


def summary(step: Step, context: Context, *, top: int = 50, include_comm: bool = False) -> Fields:
    kinds = (COMPUTE, COMM) if include_comm else (COMPUTE,)
    groups = [group for _, group in ranked_by(step.of_kinds(*kinds), source_key)]
    gaps = longest_gaps(step, N_GAPS)
    around = Surroundings(step, gaps)
    durations = durations_of(step)
    return {
        **period_fields(periods_of(step.device, step.picked)),
        "top_compute_groups": [
            ranked_row(rank, group, step, include_comm)
            for rank, group in enumerate(groups[:top], 1)
        ],
        "tail_compute": tail_row(groups[top:]),
        "by_kind_rollup": {kind: kind_row(group, step) for kind, group in step.by_kind.items()},
        "by_phase_rollup": phase_rollup(step.by_kind[COMPUTE]),
        **recompute_fields(step),
        "by_hlo_category": category_rows(step),
        "comm_rollup": [exposed_row(target, step) for target in exposed(step)],
        "kernels": [kernel_row(kernel, group, step) for kernel, group in kernels(step)],
        "idle_gaps": [gap_row(around.gap(*gap), step) for gap in gaps],
        "steps": [step_row(event, durations[event.index], step) for event in step.device.steps],
        "steps_rollup": steps_rollup(step.device, durations),
    }


def ranked_row(rank: int, group: Group, step: Step, include_comm: bool) -> ComputeGroup:
    kind: KindIfAsked = {}
    if include_comm:
        kind = {"kind": COMM if group.op.kind == COMM else COMPUTE}
    return {"rank": rank, **group_fields(group, step), **kind}


def kind_row(group: Group, step: Step) -> KindRow:
    return {
        "n": group.n,
        "dur_ps": group.total,
        "pct_of_step": percent(group.total, step.duration),
    }


def phase_rollup(compute: Group) -> dict[str, PhaseRow]:
    phases = group_by(compute.members, lambda op: op.phase)
    return {phase: phase_row(phases.get(phase) or Group([]), compute) for phase in PHASES}


def phase_row(group: Group, compute: Group) -> PhaseRow:
    return {
        "n": group.n,
        "dur_ps": group.total,
        "pct_of_compute": percent(group.total, compute.total),
    }


def category_rows(step: Step) -> list[CategoryRow]:
    ranked = ranked_by([*step.leaves, *step.containers], lambda op: (op.category, op.kind))
    return [
        {
            "hlo_category": group.op.category,
            "kind": group.op.kind,
            "n_executions": group.n,
            "total_dur_ps": group.total,
            "pct_of_step": percent(group.total, step.duration),
        }
        for _, group in ranked
    ]


def exposed_row(target: Exposed, step: Step) -> CommRow:
    return {
        "waits_for": target.waits_for,
        "n": target.group.n,
        "sync_dur_ps": target.sync,
        "wait_dur_ps": target.waits.total,
        "pct_of_step": percent(target.group.total, step.duration),
        "longest_hlo_op": target.group.longest.op.text,
    }


def kernels(step: Step) -> list[tuple[str, Group]]:
    """Return the custom kernels by name, costliest first."""
    executions = [executions for executions in step.leaves if executions.op.kernel]
    return ranked_by(executions, lambda op: op.kernel)


def kernel_row(kernel: str, group: Group, step: Step) -> Kernel:
    hlo = group.longest.op.hlo
    likely = line_of(group.op)
    return {
        "kernel": kernel,
        "n_executions": group.n,
        **duration_fields(group),
        "pct_of_step": percent(group.total, step.duration),
        "source_inner": likely.line,
        "source_user": likely.line_user,
        "tf_op": group.op.tf_op,
        "phases": group.time_by(lambda op: op.phase),
        "shapes_in": [array.text for array in hlo.operands],
        "shapes_out": [hlo.shape],
    }


def step_row(event: StepEvent, duration: int, step: Step) -> StepRow:
    picked: PickedIfPicked = {"picked": True} if event is step.picked else {}
    return {
        "index": event.index,
        "name": event.name,
        "duration_ps": duration,
        "n_xla_ops_events": event.n_events,
        **picked,
    }


def steps_rollup(device: Device, durations: Mapping[int, int]) -> StepsRollup:
    steps = device.steps
    between, whole = time_between(steps)
    by_name: dict[str | None, list[int]] = {}
    for step in steps:
        by_name.setdefault(common_name(device, step), []).append(durations[step.index])
    ranked = sorted(by_name.items(), key=lambda item: (-sum(item[1]), item[0] is None, item[0]))
    return {
        "n": len(steps),
        "n_without_ops": sum(not step.n_events for step in steps),
        "between_steps_ps": between,
        "between_steps_pct": percent(between, whole),
        "by_name": [step_name_row(name, durations) for name, durations in ranked],
    }


def step_name_row(name: str | None, durations: Sequence[int]) -> StepNameRow:
    return {
        "name": name,
        "n": len(durations),
        "total_dur_ps": sum(durations),
        # For an even number of steps, take the lower of the two middle durations.
        "median_dur_ps": sorted(durations)[(len(durations) - 1) // 2],
        "min_dur_ps": min(durations),
        "max_dur_ps": max(durations),
    }
