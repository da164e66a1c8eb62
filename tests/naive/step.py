"""Implement the step naively: picking it, clocks, totals, and the mode `by_source`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from tests.naive.frames import INNERMOST_FIRST, majority
from tests.naive.op import (
    KINDS,
    Event,
    LineEvent,
    Op,
    Plane,
    Span,
    count_by,
    duration,
    grouped,
    length,
    pct,
    time_by,
    union,
)

Json = dict[str, Any]


@dataclass
class Options:
    """Hold the command-line options."""

    device: str = "/device:TPU:0"
    step: int | str | None = None  # The value "all" selects every op of the device.
    step_id: str | None = None
    own: Sequence[str] = ()
    top: int | None = None
    include_comm: bool = False
    include_data_move: bool = False
    peers: bool = False


class AbsentError(Exception):
    def __init__(self, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.answer: Json = {"reason": reason, **more}


@dataclass
class Step:
    """Represent a step or, without an index, the whole line of ops."""

    index: int | None
    name: str | None
    on_trace: Span
    on_device: Span | None = None
    n_events: int = 0
    kind: object = None
    # Without an index: the time without programs that the capture cuts off.
    limit: Span | None = None

    def admits(self, start: int | None) -> bool:
        """Return True if an op that starts at `start` on the trace's clock belongs to the step."""
        if self.index is None:
            return self.limit is None or self.limit.holds(start)
        return self.on_trace.holds(start)


def read_steps(plane: Plane, line_name: str) -> list[Step]:
    """Return the events with a valid time on a line, as steps sorted by start."""
    timed = [(span, e) for e in plane.events_of(line_name) if (span := e.on_trace) is not None]
    timed.sort(key=lambda pair: pair[0].start)
    steps = [
        Step(
            index=i,
            name=plane.ops[e.metadata_id].text if e.metadata_id in plane.ops else None,
            on_trace=span,
            on_device=e.on_device,
        )
        for i, (span, e) in enumerate(timed)
    ]
    count_starts(steps, plane)
    return steps


def count_starts(steps: list[Step], plane: Plane) -> None:
    starts = [e.start for e in plane.events_of("XLA Ops")]
    for step in steps:
        step.n_events = sum(map(step.on_trace.holds, starts))


def without_cut_off(steps: list[Step]) -> list[Step]:
    """Return the programs without the first and the last if these have fewer ops than all others of
    their name, which are equal and at least three."""
    found = []
    for step in steps:
        inner = [s.n_events for s in steps[1:-1] if s.name == step.name and s is not step]
        is_edge = step in (steps[0], steps[-1])
        is_cut = is_edge and len(inner) > 2 and step.n_events < min(inner) == max(inner)
        if not is_cut:
            found.append(step)
    for i, step in enumerate(found):
        step.index = i
    return found


def as_busy_as_any(steps: list[Step]) -> list[Step]:
    most = max(step.n_events for step in steps)
    return [step for step in steps if step.n_events == most]


def busiest(steps: list[Step]) -> Step:
    """Return the step with the most ops; among several such steps, the one of median duration. If
    no step has ops, return the middle step.
    """
    if all(step.n_events == 0 for step in steps):
        return steps[len(steps) // 2]
    typical = sorted(
        as_busy_as_any(steps), key=lambda step: (step.on_trace.duration, step.on_trace.start)
    )
    return typical[(len(typical) - 1) // 2]


def whole_capture(steps: list[Step], ops: list[Span]) -> Step:
    """Return all ops and steps as one step, measured by the core if steps with times on the
    device's clock begin before all ops and end after them."""
    spans = [*ops, *(step.on_trace for step in steps)]
    whole = Span(min(span.start for span in spans), max(span.end for span in spans))
    on_device = None
    if whole.start < min(op.start for op in ops) and max(op.end for op in ops) < whole.end:
        edges = [
            step
            for step in steps
            if step.on_trace.start == whole.start or step.on_trace.end == whole.end
        ]
        times = [step.on_device for step in edges if step.on_device is not None]
        if len(times) == len(edges):
            on_device = Span(min(t.start for t in times), max(t.end for t in times))
    return Step(None, None, whole, on_device)


def typical(steps: list[Step]) -> tuple[Step, int]:
    """Return the cycle of median duration among those of the kind with the most time, and the
    number of these."""
    kinds = list(dict.fromkeys(step.kind for step in steps))
    times = [sum(step.on_trace.duration for step in steps if step.kind == kind) for kind in kinds]
    alike = [step for step in steps if step.kind == kinds[times.index(max(times))]]
    alike.sort(key=lambda step: (step.on_trace.duration, step.on_trace.start))
    return alike[(len(alike) - 1) // 2], len(alike)


def why_picked(step: Step, steps: list[Step], n_on_line: int) -> str:
    if step.n_events == 0:
        return "~no op starts in any step; took the middle one"
    n_as_busy = len(as_busy_as_any(steps))
    clause = f"; median of {n_as_busy} equally busy" if n_as_busy > 1 else ""
    return (
        f"auto-picked the busiest step (index {step.index}, {step.n_events} of {n_on_line} ops in "
        f"{counted(len(steps), 'step')}{clause})"
    )


def matching_name(asked: str, names: Iterable[str]) -> str | None:
    """Return the name that equals `asked`, else the only name with this prefix; a number is never a
    prefix."""
    distinct_names = set(names)
    if asked in distinct_names:
        return asked
    longer = [name for name in distinct_names if name[: len(asked)] == asked]
    return longer[0] if len(longer) == 1 and not asked.isdecimal() else None


def pick_step(steps: list[Step], options: Options, n_on_line: int, notes: list[str]) -> Step:
    if isinstance(options.step, int):
        index = options.step + (len(steps) if options.step < 0 else 0)
        matches = [step for step in steps if step.index == index]
    elif options.step_id is not None:
        names = {step.name for step in steps if step.name is not None}
        name = matching_name(options.step_id, names)
        matches = [step for step in steps if name is not None and step.name == name]
        if name not in (None, options.step_id):
            notes.append("~what the prefix was taken for")
    elif any(step.kind for step in steps):
        step, n = typical(steps)
        notes.append(
            f"auto-picked the cycle of median duration (index {step.index}) among the {n} of the"
            " kind with the most time"
        )
        matches = [step]
    else:
        matches = steps
    if not matches:
        raise AbsentError("step_not_found", available_steps=[step.name for step in steps])
    step = busiest(matches)
    if matches is steps:
        notes.append(why_picked(step, steps, n_on_line))
    elif len(matches) > 1:
        notes.append("~several steps of that name; picked among them as among all")
    if step.n_events == 0:
        notes.append("no op starts in this step, so the answer has only idle time")
    return step


@dataclass
class Clocks:
    """Convert between the trace's clock and the device's clock, using ops with times on both."""

    # Each pair is (span on the trace's clock, span on the device's clock).
    timed: list[tuple[Span, Span]]

    def delta(self, time: int) -> int:
        """Return the offset of the device's clock from the trace's clock, at a time on the trace's
        clock."""
        starts = [(on_trace.start, on_device.start) for on_trace, on_device in self.timed]
        ends = [(on_trace.end, on_device.end) for on_trace, on_device in self.timed]
        if not starts:
            return 0
        before = [times for times in starts + ends if times[0] <= time]
        on_trace, on_device = max(before) if before else min(starts)
        return on_device - on_trace

    def moved(self, span: Span) -> Span:
        start = span.start + self.delta(span.start)
        return Span(start, max(start, span.end + self.delta(span.end)))


def window_of(step: Step, events: list[Event], clocks: Clocks) -> Span:
    """Return the step's window on the clock that its ops use."""
    if clocks.timed and step.on_device is not None:
        return step.on_device
    # Shift the start by as much as the first op, so that no op starts before the window.
    first = min(events, key=lambda e: e.start, default=None)
    delta = first.on_device.start - first.on_trace.start if first else 0
    start = step.on_trace.start + delta
    return Span(start, max(start, step.on_trace.end + clocks.delta(step.on_trace.end)))


@dataclass
class Picked:
    """Represent the picked step: its window and its events. Times are on the device's clock if it
    is known, otherwise on the trace's clock.

    Printed times are relative to `base`.
    """

    plane: Plane
    options: Options
    notes: list[str]
    steps: list[Step]
    step: Step
    window: Span
    base: int
    events: list[Event]
    n_dropped: int
    clocks: Clocks

    @property
    def is_timed(self) -> bool:
        """Return True if times are on the device's clock."""
        return bool(self.clocks.timed)

    @property
    def duration(self) -> int:
        return self.window.duration

    @property
    def clocks_differ(self) -> bool:
        by = [abs(e.on_trace.duration - e.on_device.duration) for e in self.events]
        return 100 * sum(by) > duration(self.events) or 100 * max([0, *by]) > self.duration

    @cached_property
    def containers(self) -> list[Event]:
        return [e for e in self.events if e.op.is_container]

    @cached_property
    def leaves(self) -> list[Event]:
        return [e for e in self.events if not e.op.is_container]

    def of_kind(self, *kinds: str) -> list[Event]:
        return [e for e in self.leaves if e.op.kind in kinds]

    def covered(self, events: list[Event]) -> list[tuple[int, int]]:
        """Return the intervals in the window in which at least one event runs."""
        return union((max(e.start, self.window.start), min(e.end, self.window.end)) for e in events)

    def stack_order(self) -> str | None:
        """Return the frame order of most ops with a stack."""
        orders = [op.stack_order for op in ops_of(self.events) if op.stack_order is not None]
        return (majority(orders) or INNERMOST_FIRST) if orders else None

    def note_doubtful_stacks(self) -> None:
        doubtful = [e for e in self.leaves if e.op.is_stack_doubtful]
        if doubtful:
            self.notes.append(
                f"in {counted(len(ops_of(doubtful)), 'op')} ({readable(duration(doubtful))}), the"
                " source is not the innermost frame of the stack, so the stack may be wrong"
            )

    @property
    def program_op(self) -> Op | None:
        """Return the first leaf op of the program whose leaves take the most time in the step."""
        by_id = grouped(self.leaves, lambda e: e.op.program_id)
        by_id.pop(None, None)
        chosen = max(by_id, key=lambda i: duration(by_id[i]), default=None)
        return None if chosen is None else by_id[chosen][0].op

    def program(self) -> Json:
        op = self.program_op
        entry = None if op is None else op.entry
        return {
            "name": None if entry is None else entry.name,
            "program_id": None if op is None else str(op.program_id),
            "n_programs": len({e.op.program_id for e in self.events} - {None}),
            "hlo": entry is not None and entry.hlo is not None,
        }

    def totals(self) -> Json:
        kind_events = {kind: self.of_kind(kind) for kind in KINDS}
        whiles = [e for e in self.containers if e.op.category == "while"]
        waits = [e for e in self.leaves if e.op.is_wait]
        busy = length(self.covered(self.leaves))
        coverage = count_by(self.leaves, lambda op: op.agg_key_kind)
        return {
            "n_events_total": len(self.leaves),
            **{f"n_events_{kind}": len(events) for kind, events in kind_events.items()},
            "n_events_container": len(self.containers),
            "n_events_unresolved": self.n_dropped,
            **{f"{kind}_duration_ps": duration(events) for kind, events in kind_events.items()},
            "non_while_duration_ps_sum": duration(self.leaves),
            "while_container_duration_ps": duration(whiles),
            "while_pct_of_step": pct(duration(whiles), self.duration),
            "container_durations_ps": time_by(self.containers, lambda op: op.category),
            "container_self_duration_ps": length(self.covered(self.events)) - busy,
            "busy_duration_ps": busy,
            "idle_duration_ps": self.duration - busy,
            "idle_pct_of_step": pct(self.duration - busy, self.duration),
            "wait_duration_ps": duration(waits),
            "wait_pct_of_step": pct(duration(waits), self.duration),
            "agg_key_coverage": {k: coverage.get(k, 0) for k in ("stack", "tf_op", "no_source")},
            "unknown_categories": count_by(
                [e for e in self.leaves if not e.op.is_known], lambda op: op.category
            ),
        }

    def by_source(self) -> Json:
        kinds = ["compute"]
        kinds += ["comm"] if self.options.include_comm else []
        kinds += ["data_move"] if self.options.include_data_move else []
        groups = grouped(self.of_kind(*kinds), lambda e: (e.op.agg_key, e.op.kind))
        shown, top, tail = list(groups.values()), self.options.top, {}
        if top is not None:
            ranked = [
                groups[key] for key in sorted(groups, key=lambda k: (-duration(groups[k]), k))
            ]
            shown, omitted = ranked[:top], ranked[top:]
            tail = {"n_groups_omitted": len(omitted), "dur_ps": sum(map(duration, omitted))}
        return {
            "groups": [self.by_source_row(events) for events in shown],
            **({} if top is None else {"tail": tail}),
            "totals": {
                "n_groups_total": len(groups),
                "left_out_ps": {
                    kind: 0 if kind in kinds else duration(self.of_kind(kind))
                    for kind in ("data_move", "comm", "other")
                },
            },
        }

    def by_source_row(self, events: list[Event]) -> Json:
        first, total = events[0].op, duration(events)
        # The example of a group is the first of the longest executions.
        example = max(events, key=lambda e: e.duration)
        return {
            "agg_key": first.agg_key,
            "row_key": ("" if first.kind == "compute" else f"{first.kind}:") + first.agg_key,
            "agg_key_kind": first.agg_key_kind,
            "kind": first.kind,
            "source_inner": first.source_inner,
            "source_user": first.source_user,
            "tf_op": first.tf_op,
            "source_stack": first.source_stack,
            "n_executions": len(events),
            "total_dur_ps": total,
            "min_dur_ps": min(e.duration for e in events),
            "max_dur_ps": max(e.duration for e in events),
            "avg_dur_ps": round(total / len(events)),
            "pct_of_compute": pct(total, duration(self.of_kind("compute"))),
            "pct_of_step": pct(total, self.duration),
            "hlo_categories": count_by(events, lambda op: op.category),
            "example_hlo_op": example.op.text,
            "example_hlo_op_dur_ps": example.duration,
            "phases": time_by(events, lambda op: op.phase),
        }


def whole_time(spans: list[Span]) -> int:
    return max(s.end for s in spans) - min(s.start for s in spans) if spans else 0


def time_between(spans: list[Span]) -> int:
    """Return the uncovered time between the first start and the last end."""
    return whole_time(spans) - length(union((span.start, span.end) for span in spans))


def step_time(steps: list[Step]) -> int:
    return sum(step.on_trace.duration for step in steps)


def readable(ps: int) -> str:
    """Format a time in the largest unit in which it is at least 1."""
    power = min((len(str(ps)) - 1) // 3 * 3, 12)
    if not power:
        return f"{ps} ps"
    name = {3: "ns", 6: "us", 9: "ms", 12: "s"}[power]
    value = ps / 10**power
    return f"{value:.{2 if value < 9.995 else 1}f} {name}"


def counted(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def notes_of_all(steps: list[Step], *, with_pauses: bool = True) -> list[str]:
    """Return the notes about idle steps and, unless the step is the whole capture, about time
    between steps."""
    notes = []
    idle = [step for step in steps if step.n_events == 0]
    if idle:
        notes.append(
            f"no op starts in {len(idle)} of {counted(len(steps), 'step')}"
            f" ({readable(step_time(idle))} in total)"
        )
    spans = [step.on_trace for step in steps]
    between, whole = time_between(spans), whole_time(spans)
    if with_pauses and between > Fraction(whole, 100):
        notes.append(
            f"{readable(between)} ({float(Fraction(100 * between, whole)):.1f} % of the capture)"
            " pass between steps; --step all includes this time"
        )
    return notes


def ops_of(events: list[Event]) -> list[Op]:
    """Return the ops of the events, each once."""
    return [its_events[0].op for its_events in grouped(events, lambda e: id(e.op)).values()]


def decide_frame_orders(plane: Plane, ops: list[Op], own: Sequence[str], notes: list[str]) -> None:
    """Determine the frame order of stacks that do not show it, and add a note if it is assumed."""
    order = majority(op.order_by_source for op in ops)
    order = order or majority(op.order_by_program for op in ops)
    if order is None and any(op.is_order_guessed for op in ops):
        notes.append("order of stack frames unknown; assuming innermost first")
    for op in plane.ops.values():
        op.silent_order = order or INNERMOST_FIRST
        op.own = own


def executions_in(plane: Plane, steps: list[Step]) -> list[LineEvent]:
    """Return the events with a valid time that start in one of the given steps."""
    return [
        e
        for e in plane.events_of("XLA Ops")
        if (span := e.on_trace) is not None and any(step.admits(span.start) for step in steps)
    ]


def read_picked(
    plane: Plane, options: Options, notes: list[str], steps: list[Step], step: Step
) -> Picked:
    """Return the picked step with its events."""
    on_line = plane.events_of("XLA Ops")
    # Aggregated events have no time, so count them as dropped in every step.
    dropped = [
        e
        for e in on_line
        if e.start is None
        or (step.admits(e.start) and (e.duration < 0 or e.metadata_id not in plane.ops))
    ]
    if dropped:
        notes.append("~some events dropped: unresolved, aggregated or of negative duration")
    admitted = [
        (e, span)
        for e in on_line
        if (span := e.on_trace) is not None
        and e.metadata_id in plane.ops
        and step.admits(span.start)
    ]
    clocks = Clocks([(span, e.on_device) for e, span in admitted if e.on_device is not None])
    events = [
        Event(plane.ops[e.metadata_id], span, e.on_device or clocks.moved(span))
        for e, span in admitted
    ]
    return Picked(
        plane=plane,
        options=options,
        notes=notes,
        steps=steps,
        step=step,
        window=window_of(step, events, clocks),
        base=0 if clocks.timed else plane.lines_named("XLA Ops")[0].timestamp_ps,
        events=events,
        n_dropped=len(dropped),
        clocks=clocks,
    )
