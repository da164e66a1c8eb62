"""The step: how it is picked, its clocks, its totals, and the modes summary and by_source."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from statistics import median_low
from typing import Any, TypeVar

from tests.naive.frames import INNERMOST_FIRST, majority
from tests.naive.op import (
    KINDS,
    PHASES,
    Event,
    LineEvent,
    Op,
    Plane,
    Span,
    count_by,
    duration,
    fact_sum,
    grouped,
    hbm_bytes_sum,
    length,
    longest,
    number,
    pct,
    time_by,
    union,
)

Json = dict[str, Any]
Key = TypeVar("Key", bound=tuple[str, ...])


@dataclass
class Options:
    """The options of the command line by name."""

    device: str | None = None  # the default depends on the mode
    step: int | str | None = None  # "all" for every op of the device
    step_id: str | None = None
    steps: str | None = None
    include_comm: bool = False
    top: int | None = None
    include_data_move: bool = False
    no_comm_stalls: bool = False
    chip: str | None = None
    peak_tflops_bf16: float | None = None
    peak_tflops_fp8: float | None = None
    peak_tflops_fp32: float | None = None
    peak_tflops_fp16: float | None = None
    peak_hbm_gibps: float | None = None
    kernel_cost: Sequence[str] = ()
    bytes: str = "accessed"
    model_flops: float | None = None
    tokens: float | str | None = None
    flops_per_token: float | str | None = None
    params: float | str | None = None
    n_devices: float | str | None = None
    own: Sequence[str] = ()
    flags: str | None = None
    depth: int | str = 4
    below: str = ""
    merge_layers: bool = False
    op: str | None = None
    plane: str | None = None
    line: str | None = None
    grep: str | None = None
    sample: int | None = None


class AbsentError(Exception):
    def __init__(self, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.answer: Json = {"reason": reason, **more}


# --- picking the step ----------------------------------------------------------------------------


@dataclass
class Step:
    """A step, or all ops of the device (without an index)."""

    index: int | None
    name: str | None
    on_trace: Span
    on_device: Span | None = None
    n_events: int = 0

    def admits(self, start: int | None) -> bool:
        """Return whether an op that starts then, by the trace's clock, is in the step."""
        return self.index is None or self.on_trace.holds(start)


def read_steps(plane: Plane, line_name: str) -> list[Step]:
    """Return the events of a line that have a valid time."""
    timed = [(span, e) for e in plane.events_of(line_name) if (span := e.on_trace) is not None]
    timed.sort(key=lambda each: each[0].start)
    starts = [e.start for e in plane.events_of("XLA Ops")]
    return [
        Step(
            index=i,
            name=plane.ops[e.metadata_id].text if e.metadata_id in plane.ops else None,
            on_trace=span,
            on_device=e.on_device,
            n_events=sum(map(span.holds, starts)),
        )
        for i, (span, e) in enumerate(timed)
    ]


def as_busy_as_any(steps: list[Step]) -> list[Step]:
    most = max(step.n_events for step in steps)
    return [step for step in steps if step.n_events == most]


def busiest(steps: list[Step]) -> Step:
    """Return the step with most ops: the typical one of several, the middle one if none has ops."""
    if all(step.n_events == 0 for step in steps):
        return steps[len(steps) // 2]
    typical = sorted(
        as_busy_as_any(steps), key=lambda step: (step.on_trace.duration, step.on_trace.start)
    )
    return typical[(len(typical) - 1) // 2]


def why_picked(step: Step, steps: list[Step], n_on_line: int) -> str:
    if step.n_events == 0:
        return "~no op starts in any step; took the middle one"
    n_as_busy = len(as_busy_as_any(steps))
    clause = f"; typical of {n_as_busy} as busy" if n_as_busy > 1 else ""
    return (
        f"auto-picked busiest step (idx={step.index}, n_xla_ops_events={step.n_events} of "
        f"{n_on_line} in {len(steps)} steps{clause})"
    )


def meant(asked: str, names: Iterable[str]) -> str | None:
    """Return the name itself, or the only one with that prefix; a number is never a prefix."""
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
        name = meant(options.step_id, names)
        matches = [step for step in steps if name is not None and step.name == name]
        if name not in (None, options.step_id):
            notes.append("~what the prefix was taken for")
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
        notes.append("no op starts in this step: it shows idle time only")
    return step


# --- the two clocks ------------------------------------------------------------------------------


@dataclass
class Clocks:
    """The relation of the trace's clock to the device's, by ops that have both times."""

    timed: list[tuple[Span, Span]]  # on the trace's clock, on the device's

    def delta(self, time: int) -> int:
        """Return the difference from the trace's clock to the device's at a time."""
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
    """Return the step's time on the clock of its ops."""
    if clocks.timed and step.on_device is not None:
        return step.on_device
    # The first op's difference applies, so no op begins before the window.
    first = min(events, key=lambda e: e.start, default=None)
    delta = first.on_device.start - first.on_trace.start if first else 0
    start = step.on_trace.start + delta
    return Span(start, max(start, step.on_trace.end + clocks.delta(step.on_trace.end)))


# --- tables --------------------------------------------------------------------------------------


def times(events: list[Event]) -> Json:
    return {
        "n_executions": len(events),
        "total_dur_ps": duration(events),
        "min_dur_ps": min(e.duration for e in events),
        "max_dur_ps": max(e.duration for e in events),
        "avg_dur_ps": round(duration(events) / len(events)),
    }


def longest_first(groups: dict[Key, list[Event]]) -> list[list[Event]]:
    ranked = sorted(groups, key=lambda group: (-duration(groups[group]), group))
    return [groups[group] for group in ranked]


def tail_of(left_out: list[list[Event]]) -> Json:
    return {"n_groups_omitted": len(left_out), "dur_ps": sum(map(duration, left_out))}


@dataclass
class Picked:
    """The picked step: its window and its events, by the device's clock or, if there is none,
    by the trace's. Printed times are relative to `base`."""

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
    step_source: str | None  # the line that has the steps
    host: Plane | None = None

    @property
    def is_timed(self) -> bool:
        """Return whether times are by the device's clock."""
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
        """Return the parts of the window in which one of the events runs."""
        return union((max(e.start, self.window.start), min(e.end, self.window.end)) for e in events)

    def stack_order(self) -> str | None:
        """Return the frame order of most ops that have a stack."""
        orders = [op.stack_order for op in ops_of(self.events) if op.stack_order is not None]
        return (majority(orders) or INNERMOST_FIRST) if orders else None

    def note_doubtful_stacks(self) -> None:
        doubtful = [e for e in self.leaves if e.op.is_stack_doubtful]
        if doubtful:
            self.notes.append(
                f"{len(ops_of(doubtful))} ops ({duration(doubtful)} ps) have a source that is not "
                "their stack's innermost frame: the stack may be false"
            )

    @property
    def program_op(self) -> Op | None:
        """Return the first op of the program that took most of the step."""
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

    # summary

    def summary(self) -> Json:
        kinds = ("compute", "comm") if self.options.include_comm else ("compute",)
        groups = grouped(self.of_kind(*kinds), lambda e: e.group)
        ranked = longest_first(groups)
        top = 50 if self.options.top is None else self.options.top
        rows = []
        for rank, events in enumerate(ranked[:top], 1):
            row = {"rank": rank, **self.group_row(events)}
            if self.options.include_comm:
                row["kind"] = events[0].op.kind
            rows.append(row)
        return {
            "top_compute_groups": rows,
            "tail_compute": tail_of(ranked[top:]),
            "by_kind_rollup": {
                kind: {
                    "n": len(self.of_kind(kind)),
                    "dur_ps": duration(self.of_kind(kind)),
                    "pct_of_step": pct(duration(self.of_kind(kind)), self.duration),
                }
                for kind in KINDS
            },
            "by_hlo_category": self.by_hlo_category(),
            "steps": self.step_rows(),
            "steps_rollup": self.steps_rollup(),
            "by_phase_rollup": self.by_phase_rollup(),
            "idle_gaps": self.idle_gaps(),
            "comm_rollup": self.comm_rollup(),
        }

    def group_row(self, events: list[Event]) -> Json:
        """Return the fields that groups have in summary and in by_source."""
        first, example = events[0].op, longest(events)
        return {
            "agg_key": first.agg_key,
            "agg_key_kind": first.agg_key_kind,
            "source_inner": first.source_inner,
            "source_user": first.source_user,
            "tf_op": first.tf_op,
            "source_stack": first.source_stack,
            **times(events),
            "pct_of_compute": pct(duration(events), duration(self.of_kind("compute"))),
            "pct_of_step": pct(duration(events), self.duration),
            "hlo_categories": count_by(events, lambda op: op.category),
            "flops_sum": number(fact_sum(e.op.flops for e in events)),
            "bytes_accessed_sum": number(fact_sum(e.op.bytes_accessed for e in events)),
            "example_hlo_op": example.op.text,
            "example_hlo_op_dur_ps": example.duration,
            "phases": time_by(events, lambda op: op.phase),
        }

    def by_hlo_category(self) -> list[Json]:
        def label(event: Event) -> tuple[str, str]:
            op = event.op
            return op.category, "container" if op.is_container else op.kind

        groups = grouped(self.events, label)
        return [
            {
                "hlo_category": group[0],
                "kind": group[1],
                "n_executions": len(groups[group]),
                "total_dur_ps": duration(groups[group]),
                "pct_of_step": pct(duration(groups[group]), self.duration),
            }
            for group in sorted(groups, key=lambda group: (-duration(groups[group]), group))
        ]

    def step_rows(self) -> list[Json]:
        return [
            {
                "index": step.index,
                "name": step.name,
                "duration_ps": step.on_trace.duration,
                "n_xla_ops_events": step.n_events,
                **({"picked": True} if step is self.step else {}),
            }
            for step in self.steps
        ]

    def by_phase_rollup(self) -> Json:
        compute = self.of_kind("compute")
        phases = {p: [e for e in compute if e.op.phase == p] for p in PHASES}
        return {
            phase: {
                "n": len(events),
                "dur_ps": duration(events),
                "pct_of_compute": pct(duration(events), duration(compute)),
            }
            for phase, events in phases.items()
        }

    def gaps(self) -> list[Span]:
        """Return the times when no leaf runs, the longest first, then by time."""
        busy = self.covered(self.leaves)
        first, end = self.window.start, self.window.end
        edges = [first, *(edge for interval in busy for edge in interval), end]
        gaps = [Span(s, e) for s, e in zip(edges[::2], edges[1::2], strict=True) if s < e]
        return sorted(gaps, key=lambda gap: (-gap.duration, gap.start))

    def before(self, gap: Span) -> Event | None:
        """Return the event that ends where the gap begins; the one that began first."""
        ending = [e for e in self.leaves if e.duration > 0 and e.end == gap.start]
        is_edge = gap.start == self.window.start
        return None if is_edge else min(ending, key=lambda e: e.start)

    def behind(self, gap: Span) -> Event | None:
        starting = [e for e in self.leaves if e.duration > 0 and e.start == gap.end]
        return None if gap.end == self.window.end else starting[0]

    def gap_row(self, gap: Span) -> Json:
        before, behind = self.before(gap), self.behind(gap)
        around = [e for e in self.containers if e.start <= gap.start < e.end]
        # The innermost container began last. Of those that began together it ends first, and
        # the file has it after the containers around it.
        around.sort(key=lambda e: (-e.start, e.end))
        ties = [e for e in around if (e.start, e.end) == (around[0].start, around[0].end)]
        return {
            "start_ps": gap.start - self.base,
            "dur_ps": gap.duration,
            "pct_of_step": pct(gap.duration, self.duration),
            "after_hlo_op": None if before is None else before.op.text,
            "before_hlo_op": None if behind is None else behind.op.text,
            "inside": ties[-1].op.hlo.name if ties else None,
        }

    def idle_gaps(self) -> list[Json]:
        return [self.gap_row(gap) for gap in self.gaps()[:10]]

    def steps_rollup(self) -> Json:
        spans = [step.on_trace for step in self.steps]
        by_name = grouped(self.steps, lambda step: name_in_rollup(step, self.step_source))
        ranked = sorted(
            by_name, key=lambda name: (-step_time(by_name[name]), name is None, name or "")
        )
        between = time_between(spans)
        return {
            "n": len(spans),
            "n_without_ops": len([step for step in self.steps if step.n_events == 0]),
            "between_steps_ps": between,
            "between_steps_pct": pct(between, whole_time(spans)),
            "by_name": [
                {
                    "name": name,
                    "n": len(by_name[name]),
                    "total_dur_ps": step_time(by_name[name]),
                    "median_dur_ps": median_low(s.on_trace.duration for s in by_name[name]),
                    "min_dur_ps": min(s.on_trace.duration for s in by_name[name]),
                    "max_dur_ps": max(s.on_trace.duration for s in by_name[name]),
                }
                for name in ranked
            ],
        }

    def comm_rollup(self) -> list[Json]:
        exposed = [e for e in self.leaves if e.op.is_wait or e.op.is_synchronous_comm]
        groups = grouped(exposed, lambda e: e.op.waits_for)
        return [
            {
                "waits_for": name,
                "n": len(groups[name]),
                "sync_dur_ps": duration([e for e in groups[name] if not e.op.is_wait]),
                "wait_dur_ps": duration([e for e in groups[name] if e.op.is_wait]),
                "pct_of_step": pct(duration(groups[name]), self.duration),
                "longest_hlo_op": longest(groups[name]).op.text,
            }
            for name in sorted(groups, key=lambda name: (-duration(groups[name]), name))
        ]

    # by_source

    def by_source(self) -> Json:
        kinds = ["compute"]
        kinds += ["comm"] if self.options.include_comm else []
        kinds += ["data_move"] if self.options.include_data_move else []
        groups = grouped(self.of_kind(*kinds), lambda e: e.group)
        shown, tail = self.shown(groups)
        return {
            "groups": [self.by_source_row(events) for events in shown],
            **tail,
            "totals": {"n_groups_total": len(groups)},
        }

    def shown(self, groups: dict[Key, list[Event]]) -> tuple[list[list[Event]], Json]:
        """Return all groups in order of appearance, or with --top the longest and a tail."""
        if self.options.top is None:
            return list(groups.values()), {}
        ranked = longest_first(groups)
        tail = tail_of(ranked[self.options.top :])
        return ranked[: self.options.top], {"tail": tail}

    def by_source_row(self, events: list[Event]) -> Json:
        known_inputs = [e for e in events if e.op.operand_dtype is not None]
        return {
            **self.group_row(events),
            "kind": events[0].op.kind,
            "model_flops_sum": number(fact_sum(e.op.model_flops for e in events)),
            "dtypes": count_by(events, lambda op: op.dtype),
            "dtype_uncertain": any(e.op.dtype_uncertain for e in events),
            "hbm_bytes_sum": number(hbm_bytes_sum(events)),
            "operand_dtypes": time_by(known_inputs, lambda op: str(op.operand_dtype)),
        }


def whole_time(spans: list[Span]) -> int:
    return max(s.end for s in spans) - min(s.start for s in spans) if spans else 0


def time_between(spans: list[Span]) -> int:
    """Return the time that is in none of the spans."""
    return whole_time(spans) - length(union((span.start, span.end) for span in spans))


def step_time(steps: list[Step]) -> int:
    return sum(step.on_trace.duration for step in steps)


def name_in_rollup(step: Step, source: str | None) -> str | None:
    """Return the name of a step; None for the profiler's numbered steps."""
    is_number = bool(step.name) and all(c in "0123456789" for c in step.name or "")
    return None if is_number and source == "steps" else step.name or "<none>"


def notes_of_all(steps: list[Step]) -> list[str]:
    """Return the notes on time that is in no step's figures."""
    notes = []
    idle = [step for step in steps if step.n_events == 0]
    if idle:
        notes.append(f"{len(idle)} of {len(steps)} steps have no op ({step_time(idle)} ps)")
    spans = [step.on_trace for step in steps]
    between, whole = time_between(spans), whole_time(spans)
    if between > Fraction(whole, 100):
        notes.append(
            f"{between} ps between steps ({pct(between, whole)} % of the capture) are in no step"
        )
    return notes


def ops_of(events: list[Event]) -> list[Op]:
    """Return each op once."""
    return [its_events[0].op for its_events in grouped(events, lambda e: id(e.op)).values()]


def settle_stacks(plane: Plane, ops: list[Op], own: Sequence[str], notes: list[str]) -> None:
    """Decide the frame order of a device's stacks by these ops, before stacks are read."""
    order = majority(op.order_by_source for op in ops)
    order = order or majority(op.order_by_program for op in ops)
    if order is None and any(op.is_order_guessed for op in ops):
        notes.append("order of stack frames unknown; assuming innermost first")
    for op in plane.ops.values():
        op.silent_order = order or INNERMOST_FIRST
        op.own = own


def executions_in(plane: Plane, steps: list[Step]) -> list[LineEvent]:
    """Return the valid executions of ops that start in any of these steps."""
    return [
        e
        for e in plane.events_of("XLA Ops")
        if (span := e.on_trace) is not None and any(step.admits(span.start) for step in steps)
    ]


def read_picked(
    plane: Plane,
    options: Options,
    notes: list[str],
    steps: list[Step],
    step: Step,
    step_source: str | None,
) -> Picked:
    """Return the picked step with its events."""
    on_line = plane.events_of("XLA Ops")
    # Aggregated events have no time, so every step lacks them.
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
        step_source=step_source,
    )
