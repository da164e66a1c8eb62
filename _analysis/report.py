"""The fields that all modes of one step print."""

from __future__ import annotations

import os
from typing import NamedTuple

from _pipeline.context import SCHEMA_VERSION
from _pipeline.groups import Group, group_by, percent
from _pipeline.texts import cut_texts
from _pipeline.vocabulary import KEY_KINDS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from _pipeline.context import Context
    from _pipeline.normalize import Step

    Json = dict[str, Any]


class Report(NamedTuple):
    """The fields of one mode, and what it adds to the totals of all modes."""

    fields: Json
    totals: Json | None = None


def answer_of(step: Step, report: Report, context: Context) -> Json:
    """Return the whole answer of a mode of one step."""
    head = head_of(step, context)
    fields = {
        **head,
        "totals": {**head["totals"], **(report.totals or {})},
        **report.fields,
    }
    cut_texts(fields)
    return fields


def head_of(step: Step, context: Context) -> Json:
    """Return the fields that the answers of all modes of one step have."""
    request = context.request
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
        "program": program_fields(step),
        "step_id": step.picked.index if step.picked else None,
        "step_name": step.picked.name if step.picked else None,
        "step_window_ps": [step.timeline.start, step.timeline.end],
        "step_duration_ps": step.duration,
        "notes": context.notes,
        "totals": totals_of(step),
    }


def totals_of(step: Step) -> Json:
    """Return the sums over the step that all modes print."""
    leaves = Group(step.leaves)
    timeline = step.timeline
    containers = {
        category: group.total
        for category, group in group_by(step.containers, lambda op: op.category).items()
    }
    in_while = containers.get("while", 0)
    idle = timeline.duration - timeline.busy
    waits = leaves.where(lambda op: op.is_wait)
    unknown = leaves.where(lambda op: not op.is_known)
    return {
        "n_events_total": leaves.n,
        **{f"n_events_{kind}": group.n for kind, group in step.by_kind.items()},
        "n_events_container": sum(executions.n for executions in step.containers),
        "n_events_unresolved": step.admitted.n_dropped,
        **{f"{kind}_duration_ps": group.total for kind, group in step.by_kind.items()},
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
    """Return the program that takes most of the step; None if no op has a program."""
    of_program = group_by(step.leaves, lambda op: op.program_id)
    of_program.pop(None, None)
    return max(of_program, key=lambda each: of_program[each].total, default=None)


def program_fields(step: Step) -> Json:
    executions = [*step.leaves, *step.containers]
    n_programs = len({each.op.program_id for each in executions} - {None})
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
    """Count executions by the kind of their key."""
    return dict.fromkeys(KEY_KINDS, 0) | group.executions_by(lambda op: op.agg_key_kind)
