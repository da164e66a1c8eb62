"""Build the fields that all single-step modes have in their answers."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from _breakdown.analysis.common_line import common_line_of, warning_about
from _breakdown.pipeline.context import SCHEMA_VERSION, Context
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import Group, group_by, grouped, percent
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.texts import cut_texts
from _breakdown.pipeline.vocabulary import COMM, COMPUTE, DATA_MOVE, KEY_KINDS, OTHER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.hlo.program import Instruction

Json = dict[str, Any]
# Executions by instruction.
Runs = dict["Instruction | None", list[Executions]]


def answer_of(step: Step, fields: Mapping[str, Any], context: Context) -> Json:
    """Return the complete answer of a single-step mode. The mode's own totals are added to the
    common totals."""
    head = head_of(step, context)
    totals = {**head["totals"], **fields.get("totals", {})}
    answer = {**head, **fields, "totals": totals}
    cut_texts(answer)
    return answer


def head_of(step: Step, context: Context) -> Json:
    # A page contains the totals twice.
    request, totals = context.request, step.once(totals_of, lambda: totals_of(step))
    if totals["common_line"] and request.mode not in totals["common_line"]["separated_by"]:
        context.warn(warning_about(totals["common_line"]))
    return {
        "status": "ok",
        "mode": request.mode,
        "schema_version": SCHEMA_VERSION,
        "profile_dir": request.profile,
        "xplane_file": os.path.basename(step.device.path),
        "device": step.device.plane.name,
        "device_type": step.device.type,
        "clock": step.clock.name,
        "stack_order": step.stack_order,
        "step_source": step.device.step_source if step.picked else None,
        "program": program_of_step(step),
        "step_id": step.picked.index if step.picked else None,
        "step_name": step.picked.name if step.picked else None,
        "step_window_ps": [step.timeline.start, step.timeline.end],
        "step_duration_ps": step.duration,
        "notes": context.notes,
        "totals": totals,
    }


def totals_of(step: Step) -> Json:
    """Return the totals of the step that all single-step modes print."""
    leaves, by_kind, timeline = Group(step.leaves), step.by_kind, step.timeline
    containers = {
        category: group.total
        for category, group in group_by(step.containers, lambda op: op.category).items()
    }
    in_while = containers.get("while", 0)
    idle = timeline.duration - timeline.busy
    waits = leaves.where(lambda op: op.is_wait)
    unknown = leaves.where(lambda op: not op.is_known)
    return {
        "common_line": common_line_of(step),
        "n_events_total": leaves.n,
        "n_events_compute": by_kind[COMPUTE].n,
        "n_events_data_move": by_kind[DATA_MOVE].n,
        "n_events_comm": by_kind[COMM].n,
        "n_events_other": by_kind[OTHER].n,
        "n_events_container": sum(ran.n for ran in step.containers),
        "n_events_unresolved": step.admitted.n_dropped,
        "compute_duration_ps": by_kind[COMPUTE].total,
        "data_move_duration_ps": by_kind[DATA_MOVE].total,
        "comm_duration_ps": by_kind[COMM].total,
        "other_duration_ps": by_kind[OTHER].total,
        "non_while_duration_ps_sum": leaves.total,
        "while_container_duration_ps": in_while,
        "while_pct_of_step": percent(in_while, step.duration),
        "container_durations_ps": containers,
        "container_self_duration_ps": timeline.container_self,
        "busy_duration_ps": timeline.busy,
        "idle_duration_ps": idle,
        "idle_pct_of_step": percent(idle, step.duration),
        "wait_duration_ps": waits.total,
        "wait_pct_of_step": percent(waits.total, step.duration),
        "agg_key_coverage": coverage(leaves),
        "unknown_categories": unknown.executions_by(lambda op: op.category),
    }


def program_id_of(step: Step) -> int | None:
    """Return the id of the program that takes the most time in the step; None if no op has a
    program."""
    return step.once(program_id_of, lambda: _main_program(step))


def _main_program(step: Step) -> int | None:
    by_program = group_by(step.leaves, lambda op: op.program_id)
    by_program.pop(None, None)
    return max(by_program, key=lambda program_id: by_program[program_id].total, default=None)


def runs_of(step: Step, program_id: int) -> Runs:
    """Return the executions of a program's ops by instruction; several ops can run the same
    instruction."""
    # Check the id first: `op.instruction` would read other programs, which may be damaged.
    return grouped(
        (ran.op.instruction, ran)
        for ran in (*step.leaves, *step.containers)
        if ran.op.program_id == program_id and ran.op.instruction
    )


def program_of_step(step: Step) -> Json:
    executions = [*step.leaves, *step.containers]
    n_programs = len({op_executions.op.program_id for op_executions in executions} - {None})
    program_id = program_id_of(step)
    if program_id is None:
        return {"name": None, "program_id": None, "n_programs": n_programs, "hlo": False}
    programs = step.device.programs
    return {
        "name": programs.names.get(program_id),
        "program_id": str(program_id),
        "n_programs": n_programs,
        "hlo": programs.has_hlo(program_id),
    }


def coverage(group: Group) -> dict[str, int]:
    """Count executions for each kind of key that groups can have."""
    return dict.fromkeys(KEY_KINDS, 0) | group.executions_by(lambda op: op.agg_key_kind)
