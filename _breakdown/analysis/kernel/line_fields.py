"""Turn the schedules and lines of kernels into fields."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from _breakdown.analysis.kernel.kernel_lines import rows_of, usage_of
from _breakdown.analysis.kernel.line_times import marked_executions
from _breakdown.analysis.kernel.schedules import Spans, schedules_of
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.groups import Group, percent
from _breakdown.pipeline.normalize import Step
from _proto.llo import Schedule

Json = dict[str, Any]

MEASURED, STATIC = "measured", "static"
NO_SOURCES = "schedules of kernels have no source lines; to see them"
MEASURED_LINES = (
    "time by line in a kernel is measured between markers, and divided evenly among the bundles"
    " between two markers; a line takes at least this, because instructions that the compiler"
    " creates late have no line"
)
STATIC_LINES = (
    "the capture has no markers inside kernels, so time by line is static: shares of the schedule's"
    " bundles, as often as loops with constant bounds run, with all ifs taken and without waits; to"
    " measure it"
)


class LineFields:
    """The lines of a step's kernels."""

    def __init__(
        self, step: Step, kernels: Sequence[Group], spans: Spans, flags: str, context: Context
    ) -> None:
        self._schedules = schedules_of(step.device, kernels, spans, context)
        self._marked = marked_executions(step, self._schedules)
        if any(not schedule.has_sources for schedule in self._schedules.values()):
            context.warn(f"{NO_SOURCES}, {flags}")
        if self._marked:
            context.note(MEASURED_LINES)
        elif self._schedules:
            context.warn(f"{STATIC_LINES}, {flags}")

    def fields(self, kernel: Group, longest: int, top: int) -> Json | None:
        """Return the fields of a kernel, or None if it has no schedule."""
        rows = rows_of(kernel.members, self._schedules, self._marked)
        schedule = self._schedules.get(longest)
        is_measured = any(ran.metadata_id in self._marked for ran in kernel.members)
        return (
            {
                "schedule": schedule and schedule_fields(schedule),
                **line_fields(rows, kernel.total, top, is_measured=is_measured),
            }
            if rows
            else None
        )

    def of_region(self, name: str, longest: int) -> Json | None:
        schedule = self._schedules.get(longest)
        return of_schedule(name, schedule) if schedule else None


def of_schedule(region: str, schedule: Schedule) -> Json | None:
    """Return what the schedule says about the places of a named region."""
    places = schedule.named.get(region)
    if not places:
        return None
    counts = [
        sum(start <= bundle < end for bundle in bundles for start, end in places)
        for bundles in (schedule.spills, schedule.fills)
    ]
    return {"usage": usage_of(schedule, places), "spills": counts[0], "fills": counts[1]}


def schedule_fields(schedule: Schedule) -> Json:
    """Return the size of a schedule, and how much of it only moves registers to memory and back."""
    return {
        "n_bundles": schedule.n_bundles,
        "stores": schedule.n_stores,
        "spills": len(schedule.spills),
        "fills": len(schedule.fills),
        "spilled_bytes": schedule.spilled_bytes,
    }


def line_fields(rows: list[Json], total: int, top: int, *, is_measured: bool) -> Json:
    omitted = rows[top:]
    tail = {"n_rows_omitted": len(omitted), "dur_ps": sum(row["dur_ps"] for row in omitted)}
    for row in (*rows, tail):
        row["pct_of_kernel"] = percent(row["dur_ps"], total) or 0.0
        if not is_measured:
            row["dur_ps"] = None
    return {
        "lines_are": MEASURED if is_measured else STATIC,
        "lines": rows[:top],
        "lines_tail": tail,
    }
