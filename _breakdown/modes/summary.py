"""Show the costliest source lines, and the step's time by kind, phase and category.

question: the costliest source lines, and the step's time by kind and category
reads: a step
options: --top, --include-comm
example: --top 10
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from _breakdown.analysis.idle.gaps import GapSurroundings, longest_gaps
from _breakdown.analysis.idle.periods import periods_of
from _breakdown.analysis.roof.exposed import Exposed, exposed
from _breakdown.analysis.source.likely_lines import line_of
from _breakdown.analysis.source.rows import (
    costliest_groups,
    duration_fields,
    gap_row,
    group_fields,
    period_fields,
    recompute_fields,
    tail_row,
)
from _breakdown.output.columns import (
    ALL_OPS,
    AVERAGE,
    CATEGORY,
    KIND,
    LINE,
    MOSTLY,
    OP_LINE,
    PHASE_INITIALS,
    RUNS,
    STEP_SHARE,
    TIME,
    TOTAL,
)
from _breakdown.output.merged import costliest_line
from _breakdown.output.phrases import Next, at_line_of, bracketed, pause_sentence
from _breakdown.output.screen import Column, End, Part, Says, Table
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.device import Device
from _breakdown.pipeline.groups import Group, group_by, grouped, percent, ranked_by, source_key
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.step_durations import durations_of
from _breakdown.pipeline.step_event import StepEvent
from _breakdown.pipeline.step_pick import time_between
from _breakdown.pipeline.vocabulary import COMM, COMPUTE, PHASES
from _breakdown.units import part_of, time

Json = dict[str, Any]

# Maximum number of idle gaps in the answer.
N_GAPS = 10


def summary(step: Step, context: Context, *, top: int = 50, include_comm: bool = False) -> Json:
    kinds = (COMPUTE, COMM) if include_comm else (COMPUTE,)
    groups, omitted = costliest_groups(step.of_kinds(*kinds), source_key, top)
    gaps = longest_gaps(step, N_GAPS)
    around = GapSurroundings(step, gaps)
    durations = durations_of(step)
    return {
        **period_fields(periods_of(step.device, step.picked)),
        "top_compute_groups": [
            ranked_row(rank, group, step, include_comm) for rank, group in enumerate(groups, 1)
        ],
        "tail_compute": tail_row(omitted),
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


def ranked_row(rank: int, group: Group, step: Step, include_comm: bool) -> Json:
    kind = {"kind": group.op.kind} if include_comm else {}
    return {"rank": rank, **group_fields(group, step), **kind}


def kind_row(group: Group, step: Step) -> Json:
    return {
        "n": group.n,
        "dur_ps": group.total,
        "pct_of_step": percent(group.total, step.duration),
    }


def phase_rollup(compute: Group) -> dict[str, Json]:
    phases = group_by(compute.members, lambda op: op.phase)
    return {phase: phase_row(phases.get(phase) or Group([]), compute) for phase in PHASES}


def phase_row(group: Group, compute: Group) -> Json:
    return {
        "n": group.n,
        "dur_ps": group.total,
        "pct_of_compute": percent(group.total, compute.total),
    }


def category_rows(step: Step) -> list[Json]:
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


def exposed_row(target: Exposed, step: Step) -> Json:
    return {
        "waits_for": target.waits_for,
        "n": target.n,
        "sync_dur_ps": target.sync,
        "wait_dur_ps": target.waits.total,
        "pct_of_step": percent(target.group.total, step.duration),
        "longest_hlo_op": target.group.longest.op.text,
    }


def kernels(step: Step) -> list[tuple[str, Group]]:
    """Return the custom kernels by name, costliest first."""
    executions = [ran for ran in step.leaves if ran.op.kernel]
    return ranked_by(executions, lambda op: op.kernel)


def kernel_row(kernel: str, group: Group, step: Step) -> Json:
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


def step_row(event: StepEvent, duration: int, step: Step) -> Json:
    picked = {"picked": True} if event is step.picked else {}
    return {
        "index": event.index,
        "name": event.name,
        "duration_ps": duration,
        "n_xla_ops_events": event.n_events,
        **picked,
    }


def steps_rollup(device: Device, durations: Mapping[int, int]) -> Json:
    steps = device.steps
    between, whole = time_between(steps)
    by_name = grouped((step.kind, durations[step.index]) for step in steps)
    ranked = sorted(by_name.items(), key=lambda item: (-sum(item[1]), item[0] is None, item[0]))
    return {
        "n": len(steps),
        "n_without_ops": sum(not step.n_events for step in steps),
        "between_steps_ps": between,
        "between_steps_pct": percent(between, whole),
        "by_name": [step_name_row(name, durations) for name, durations in ranked],
    }


def step_name_row(name: str | None, durations: Sequence[int]) -> Json:
    return {
        "name": name,
        "n": len(durations),
        "total_dur_ps": sum(durations),
        # For an even number of steps, take the lower of the two middle durations.
        "median_dur_ps": sorted(durations)[(len(durations) - 1) // 2],
        "min_dur_ps": min(durations),
        "max_dur_ps": max(durations),
    }


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "top_compute_groups"

PARTS: tuple[Part, ...] = (
    Table(
        "where the step goes",
        "by_kind_rollup",
        (Column("kind", "key", "word"), TIME, STEP_SHARE, Column("runs", "n", "count")),
        unless_0="n",
        ends=(
            End(
                "totals.idle_duration_ps",
                {
                    "kind": "idle",
                    "time": "totals.idle_duration_ps",
                    "% step": "totals.idle_pct_of_step",
                },
            ),
            End("step_duration_ps", {"kind": "step", "time": "step_duration_ps"}),
        ),
    ),
    Table(
        "the costliest lines of math; phases: forward (F), backward (B), recompute (R), other (O)",
        "top_compute_groups",
        (TOTAL, STEP_SHARE, ALL_OPS, RUNS, KIND, PHASE_INITIALS, MOSTLY, LINE),
        merges_lines=True,
        size="total_dur_ps",
        what="group",
        omitted="tail_compute.n_groups_omitted",
        tail={"time": "tail_compute.dur_ps"},
    ),
    Table(
        "compute by phase",
        "by_phase_rollup",
        (
            Column("phase", "key", "word"),
            TIME,
            Column("% compute", "pct_of_compute", "percent"),
            Column("runs", "n", "count"),
        ),
        unless_0="n",
    ),
    Says(
        "recomputation takes {recompute_total_dur_ps:time}"
        " ({recompute_total_pct_of_step:percent} of the step), including communication and copies",
        when="recompute_total_dur_ps",
    ),
    Table(
        "communication and waiting",
        "comm_rollup",
        (
            Column("waits for", "waits_for", "word"),
            Column("on core", "sync_dur_ps", "time"),
            Column("waiting", "wait_dur_ps", "time"),
            STEP_SHARE,
            Column("runs", "n", "count"),
            Column("longest op", "longest_hlo_op", "op"),
        ),
        size="pct_of_step",
        whole="",
        tail={"waiting": "", "on core": ""},
        takes_top=True,
    ),
    Table(
        "kernels",
        "kernels",
        (TOTAL, STEP_SHARE, RUNS, AVERAGE, Column("kernel", "kernel"), PHASE_INITIALS, OP_LINE),
        size="total_dur_ps",
        takes_top=True,
        what="kernel",
        tail={"time": ""},
    ),
    Table(
        "by category; containers enclose other ops",
        "by_hlo_category",
        (CATEGORY, KIND, TOTAL, STEP_SHARE, RUNS),
        size="total_dur_ps",
        takes_top=True,
        what="category",
        tail={"time": ""},
    ),
    Table(
        "the longest idle gaps",
        "idle_gaps",
        (
            TIME,
            STEP_SHARE,
            Column("after", "after_hlo_op", "op", "(start)"),
            Column("before", "before_hlo_op", "op", "(end)"),
            Column("inside", "inside", null=""),
        ),
        size="dur_ps",
        takes_top=True,
        what="gap",
        tail={"time": ""},
    ),
    Table(
        "steps by name; {steps_rollup.n_without_ops:count} of {steps_rollup.n:count} have no ops;"
        " time between steps: {steps_rollup.between_steps_ps:time}",
        "steps_rollup.by_name",
        (
            Column("step", "name", null="(numbered)"),
            Column("n", "n", "count"),
            TOTAL,
            Column("median", "median_dur_ps", "time"),
            Column("min", "min_dur_ps", "time"),
            Column("max", "max_dur_ps", "time"),
        ),
    ),
    Table(
        "all steps, on the {clock:word}'s clock",
        "steps",
        (
            Column("index", "index", "count"),
            Column("step", "name"),
            Column("time", "duration_ps", "time"),
            Column("ops", "n_xla_ops_events", "count"),
            Column("picked", "picked", "word", null=""),
        ),
        most=10,
        takes_top=True,
        what="step",
        tail={"time": ""},
    ),
)


KINDS = {"compute": "math", "data_move": "data movement", "comm": "communication"}


def sentences(answer: Json) -> Iterator[str]:
    step = answer["step_duration_ps"]
    rollup = answer["by_kind_rollup"]
    shares = [
        " of ".join((time(rollup[kind]["dur_ps"]), name))
        for kind, name in KINDS.items()
        if rollup[kind]["dur_ps"]
    ]
    idle = answer["totals"]["idle_duration_ps"]
    pause = pause_sentence(answer)
    pause_first = (answer["between_steps_ps"] or 0) > idle
    if pause_first:
        yield pause
    if idle:
        shares.append(f"{time(idle)} idle")
    yield f"{whole_in_words(answer)} {time(step)}: {', '.join(shares) or 'nothing ran in it'}."
    groups = answer["top_compute_groups"]
    if groups:
        top, taken_ps = costliest_line(groups, answer)
        line = at_line_of(top, answer) or " unknown"
        taken = part_of(taken_ps, step) + bracketed(percent(taken_ps, step))
        yield f"The costliest listed line, with all of its ops, is{line}: {taken}."
    if not pause_first:
        yield pause


def whole_in_words(answer: Json) -> str:
    if answer["step_id"] is not None:
        return "The step takes"
    n_steps = answer["steps_rollup"]["n"]
    return f"All {n_steps} steps, with pauses, take" if n_steps > 1 else "The capture takes"


def next_steps(answer: Json) -> Iterator[Next]:
    yield Next("where the step loses time, and why", ("--mode", "bottleneck"))
