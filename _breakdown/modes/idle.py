"""Show idle time: what the device waits for, and what the host does meanwhile.

question: why the device is idle, and what the host does at that time
reads: a step
options: --top
example: --step all
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import add
from typing import Any

from _breakdown.analysis.causes.shared.cause import Cause
from _breakdown.analysis.causes.shared.find import pause_causes
from _breakdown.analysis.idle.gaps import Gap, GapSurroundings, longest_gaps
from _breakdown.analysis.idle.host_activity import HostActivity
from _breakdown.analysis.idle.launches import Launches
from _breakdown.analysis.idle.periods import periods_of
from _breakdown.analysis.source.rows import gap_row, period_fields
from _breakdown.output.columns import STEP_SHARE, TIME
from _breakdown.output.phrases import Next, bracketed, pause_sentence
from _breakdown.output.screen import Column, End, Part, Says, Section, Table
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.device import AFTER_ALL, BEFORE_ALL, Device
from _breakdown.pipeline.groups import percent
from _breakdown.pipeline.host import Host
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.step_event import StepEvent
from _breakdown.pipeline.step_pick import time_between
from _breakdown.units import part_of, time
from _proto.errors import Damage
from _proto.trace.events import INT64_END
from _proto.trace.ranks import THREADS
from _proto.trace.trace import thread_planes

Json = dict[str, Any]
# The absolute start and end of a time window.
Window = tuple[int, int]

# Minimum duration in ps of a gap in which host events are counted.
COUNTED = 1_000_000


def idle(step: Step, context: Context, *, top: int = 10) -> Json:
    longest = longest_gaps(step, top)
    counted = [(start, end) for start, end in step.timeline.gaps if end - start >= COUNTED]
    around = GapSurroundings(step, {*longest, *counted})
    window_of = {gap: around.window(*gap) for gap in (*longest, *counted)}
    periods = periods_of(step.device, step.picked)
    of_picked = periods.of_picked if periods else None
    base = step.device.base
    activity = host_activity(
        step.device,
        [window for gap in longest if (window := window_of[gap])],
        [window for gap in counted if (window := window_of[gap])],
        (base + of_picked[0], base + of_picked[1]) if of_picked else None,
        step.admitted.span,
        context,
    )
    return {
        **period_fields(periods),
        "pause_causes": [pause_row(cause) for cause in pause_causes(step, periods, context)],
        "capture": capture_row(step.device.steps),
        "idle_by_cause": step.idle_causes.of_step,
        "gaps": [idle_row(around.gap(*gap), window_of[gap], activity, step) for gap in longest],
        "host_events": event_rows(activity) if activity else None,
    }


def pause_row(cause: Cause) -> Json:
    return {
        "cause": cause.name,
        "gain_ps": cause.measured.estimate if cause.measured else None,
        "source_user": cause.place.source_user if cause.place else None,
        "thread": cause.evidence["thread"],
        "waiting_thread": cause.evidence["waiting_thread"],
        "says": cause.says,
    }


def capture_row(steps: Sequence[StepEvent]) -> Json:
    between, whole = time_between(steps)
    return {
        "n_steps": len(steps),
        "dur_ps": whole,
        "in_no_step_ps": between,
        "in_no_step_pct": percent(between, whole),
    }


def idle_row(gap: Gap, window: Window | None, activity: HostActivity | None, step: Step) -> Json:
    causes = step.idle_causes.of_span(gap.start, gap.start + gap.duration)
    return {
        **gap_row(gap, step),
        "cause": {cause: duration for cause, duration in causes.items() if duration},
        "host": activity_rows(activity, window) if window and activity else None,
    }


def activity_rows(activity: HostActivity, window: Window) -> list[Json]:
    return [
        {
            "thread": row.thread,
            "event": row.event,
            "is_launching": row.is_launching,
            "dur_ps": row.duration,
            "in_period_ps": row.in_period,
            "still": row.is_still,
            "within": row.within,
        }
        for row in activity.during(window)
    ]


def event_rows(activity: HostActivity) -> list[Json]:
    return [
        {"event": event.name, "dur_ps": event.duration, "n_threads": event.n_threads}
        for event in activity.longest_events()
    ]


def host_activity(
    device: Device,
    shown: Sequence[Window],
    counted: Sequence[Window],
    period: Window | None,
    span: Window,
    context: Context,
) -> HostActivity | None:
    """Return the host's activity in the windows, which are given in absolute time. If the activity
    is unknown, return None and add a note with the reason."""
    planes = thread_planes(device.rank) if device.rank else []
    if not planes:
        why = "this file merges several ranks, and the device's rank is unknown"
        if device.rank:
            why = f"the file has no plane {THREADS}"
        context.warn(f"{why}, so the host's activity is unknown")
        return None
    windows = [*shown, *counted, *([period] if period else [])]
    try:
        threads = [device.trace.plane(name) for name in planes]
        launches = Launches(device, threads)
        context.warn(*launches.notes)
        if launches.contradict:
            return None
        host = Host(threads, list(map(launches.in_host_time, windows)))
        activity = HostActivity(host, launches, shown, counted, period)
    except Damage as error:
        where = device.trace.in_file(error)
        context.warn(f"the host's plane cannot be read: {where}, so the host's activity is unknown")
        return None
    if not (host.overlaps(*launches.window(*span)) or has_overlap(host, device)):
        context.warn(
            "the host's events do not overlap the device's ops in time, so the host's activity"
            " is unknown"
        )
        return None
    return activity


def has_overlap(host: Host, device: Device) -> bool:
    """Return True if host events overlap in time with the device's ops of any step."""
    spans = [(line.base_ps, span) for line in device.lines if (span := line.span_of_starts)]
    first = min((base + start for base, (start, _) in spans), default=AFTER_ALL)
    last = max((base + start for base, (_, start) in spans), default=BEFORE_ALL)
    # Host and device clocks that disagree usually differ by years. So first compare only the op
    # starts, allowing for ops of the maximum duration. Read all ends only if this cheap check finds
    # an overlap.
    return host.overlaps(first, last + INT64_END) and host.overlaps(*span_of_ops(device))


def span_of_ops(device: Device) -> Window:
    """Return the first start and last end of the device's ops, in absolute time."""
    first, last = AFTER_ALL, BEFORE_ALL
    for line in device.lines:
        for piece in line.events(BEFORE_ALL, AFTER_ALL):
            events = piece.lasting()
            ends = map(add, events.offsets, events.durations)
            first = min(first, line.base_ps + min(events.offsets, default=AFTER_ALL))
            last = max(last, line.base_ps + max(ends, default=BEFORE_ALL))
    return first, last


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "gaps"

PARTS: tuple[Part, ...] = (
    Says(
        "this step is 1 of {capture.n_steps:count}; {capture.in_no_step_ps:time} of"
        " {capture.dur_ps:time} ({capture.in_no_step_pct:percent}) pass between steps",
        when="step_source capture.n_steps",
    ),
    Table(
        "what pauses between steps wait for",
        "pause_causes",
        (
            Column("time", "gain_ps", "time"),
            Column("cause", "cause", "word"),
            Column("line", "source_user", "line", null=""),
            Column("thread", "thread", null=""),
            Column("waiting thread", "waiting_thread", null=""),
        ),
        size="gain_ps",
        what="row",
    ),
    Section(
        (
            Table(
                "why the device is idle",
                "idle_by_cause",
                (Column("cause", "key", "word"), Column("time", "value", "time")),
                unless_0="value",
                ends=(
                    End(
                        "totals.idle_duration_ps",
                        {"cause": "idle", "time": "totals.idle_duration_ps"},
                    ),
                ),
            ),
            Table(
                "the longest idle gaps",
                "gaps",
                (
                    TIME,
                    STEP_SHARE,
                    Column("cause", "cause", "word"),
                    Column("after", "after_hlo_op", "op", "(start)"),
                    Column("before", "before_hlo_op", "op", "(end)"),
                    Column("host", ("host.0.within.0", "host.0.event"), null=""),
                ),
                size="dur_ps",
                what="gap",
                tail={"time": ""},
            ),
        )
    ),
    Table(
        "what the host did in these gaps (gap 1 is the longest)",
        "gaps[].host",
        (
            Column("gap", "^", "count"),
            TIME,
            Column("in period", "in_period_ps", "time", null=""),
            Column("only waits", "still", "word"),
            Column("launches", "is_launching", "word", null=""),
            Column("thread", "thread"),
            Column("event", "event"),
            Column("within", "within", null=""),
        ),
        size="dur_ps",
        most=10,
        what="row",
    ),
    Table(
        "what the host did in all gaps of at least 1 us",
        "host_events",
        (TIME, Column("threads", "n_threads", "count"), Column("event", "event")),
        size="dur_ps",
        most=10,
        what="event",
    ),
)


HARDLY_PCT = 1


def sentences(answer: Json) -> Iterator[str]:
    pause = pause_sentence(answer)
    in_step = within_step(answer, "" if pause else "only ")
    # The larger time comes first.
    if (answer["between_steps_ps"] or 0) > answer["totals"]["idle_duration_ps"]:
        yield pause
        yield from in_step
    else:
        yield from in_step
        yield pause
    capture = answer["capture"]
    if pause:
        return
    if answer["step_id"] is not None and (capture["in_no_step_pct"] or 0) > HARDLY_PCT:
        outside = part_of(capture["in_no_step_ps"], capture["dur_ps"])
        share = bracketed(capture["in_no_step_pct"])
        yield f"In this capture, {outside}{share} pass between steps."


def within_step(answer: Json, only: str) -> Iterator[str]:
    totals = answer["totals"]
    idle = totals["idle_duration_ps"]
    taken = part_of(idle, answer["step_duration_ps"])
    where = "In this step" if answer["step_source"] else "In this capture"
    if (totals["idle_pct_of_step"] or 0) < HARDLY_PCT:
        yield f"{where}, the device is idle for {only}{taken}."
        return
    yield f"{where}, the device is idle for {taken}{bracketed(totals['idle_pct_of_step'])}."
    by_cause = answer["idle_by_cause"]
    durations = [
        (by_cause["barrier"], "waiting at barriers"),
        (by_cause["dependency"], "waiting for inputs"),
        (by_cause["in_container"], "inside loops or branches"),
        (by_cause["between_programs"], "between programs"),
        (by_cause["in_program"], "between ops"),
    ]
    longest, cause = max(durations)
    if longest and answer["totals"]["n_events_total"]:
        yield f"Most of this time is {cause}: {time(longest)}."


def next_steps(answer: Json) -> Iterator[Next]:
    if answer["step_source"]:
        yield Next(
            "why the device is idle in the whole capture", ("--mode", "idle", "--step", "all")
        )
