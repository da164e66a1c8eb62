"""The naive implementation's step, and the modes that list what is in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    distinct,
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
    """The command line's options, by name."""

    device: str | None = None  # what that means is the mode's
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
    """A step, or (without an index) the whole of the ops."""

    index: int | None
    name: str | None
    on_trace: Span
    on_device: Span | None = None
    n_events: int = 0

    def admits(self, start: int | None) -> bool:
        """An op by its start on the trace's clock. One without a time belongs to no step."""
        return self.index is None or self.on_trace.holds(start)


def read_steps(plane: Plane, line_name: str) -> list[Step]:
    """The events of a line that have a valid time."""
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
    """The one with most ops; of equally busy ones the typical, if none has any the middle one."""
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
    """The name that is given, or the only one that it is a prefix of; a number is no prefix."""
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
    """What the ops that have device times tell of the trace's clock and the device's."""

    timed: list[tuple[Span, Span]]  # on the trace's clock, on the device's

    def delta(self, time: int) -> int:
        """From a time on the trace's clock to the device's."""
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
    """The step's time on the clock that its ops' times are on."""
    if clocks.timed and step.on_device is not None:
        return step.on_device
    # The first op's δ, not that of the step's own start: so no op lies before the window.
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


def breakdown(events: list[Event]) -> tuple[list[Json], Json | None]:
    signatures = grouped(events, lambda e: e.op.signature)
    ranked = sorted(signatures, key=lambda s: (-duration(signatures[s]), s))
    rows = [
        {
            "signature": signature,
            "hlo_category": signatures[signature][0].op.category,
            "total_dur_ps": duration(signatures[signature]),
            "n_executions": len(signatures[signature]),
            "pct_of_group": pct(duration(signatures[signature]), duration(events)),
            "example_hlo_op": longest(signatures[signature]).op.text,
            "example_hlo_op_dur_ps": longest(signatures[signature]).duration,
        }
        for signature in ranked[:8]
    ]
    left_out = [e for signature in ranked[8:] for e in signatures[signature]]
    overflow = {
        "n_signatures": len(ranked[8:]),
        "n_executions": len(left_out),
        "total_dur_ps": duration(left_out),
    }
    return rows, overflow if left_out else None


def longest_first(groups: dict[Key, list[Event]]) -> list[list[Event]]:
    ranked = sorted(groups, key=lambda group: (-duration(groups[group]), group))
    return [groups[group] for group in ranked]


def tail_of(left_out: list[list[Event]]) -> Json:
    return {"n_groups_omitted": len(left_out), "dur_ps": sum(map(duration, left_out))}


def likely_sources(events: list[Event]) -> list[Json] | None:
    """Of a group without a stack, whose programs are there."""
    if events[0].op.source_stack is not None or all(e.op.program is None for e in events):
        return None
    lines = grouped(events, lambda e: e.op.likely_source.line)
    ranked = sorted(
        (line for line in lines if line is not None),
        key=lambda line: (-duration(lines[line]), line),
    )
    rows = []
    for line in ranked[:8]:
        ways = grouped(lines[line], lambda e: str(e.op.likely_source.how))
        rows.append(
            {
                "source_inner": line,
                "source_user": lines[line][0].op.likely_user,
                "source_is": max(ways, key=lambda how: duration(ways[how])),
                "dur_ps": duration(lines[line]),
                "n_executions": len(lines[line]),
            }
        )
    shown = ranked[:8]
    rest = [e for e in events if e.op.likely_source.line not in shown]
    if rest:
        rows.append(
            {
                "source_inner": None,
                "source_user": None,
                "source_is": None,
                "dur_ps": duration(rest),
                "n_executions": len(rest),
            }
        )
    return rows


def also_fused(events: list[Event]) -> list[Json] | None:
    """The lines inside a group's fusions that aren't the group's."""
    ops = grouped(events, lambda e: id(e.op))
    programs = [(events[0].op, events[0].op.program) for events in ops.values()]
    if all(program is None for _, program in programs):
        return None
    lines = [
        line
        for op, program in programs
        if program is not None and op.instruction is not None
        for line in program.fused(op.instruction)
        if line != events[0].op.source_inner
    ]
    ranked = sorted(set(lines), key=lambda line: (-lines.count(line), line))
    return [{"source_inner": line, "n_instructions": lines.count(line)} for line in ranked[:8]]


def scopes(events: list[Event]) -> list[Json]:
    """Those that take most of a group's time."""
    parts = grouped(events, lambda e: e.op.scope and e.op.scope.name)
    ranked = sorted(parts, key=lambda scope: (-duration(parts[scope]), scope is None, scope or ""))
    return [{"scope": scope, "dur_ps": duration(parts[scope])} for scope in ranked[:4]]


def any_change(events: list[Event], change: Callable[[Op], bool | None]) -> bool | None:
    comparable = [e for e in events if change(e.op) is not None]
    return any(change(e.op) for e in comparable) if comparable else None


def change_time(events: list[Event], change: Callable[[Op], bool | None]) -> int | None:
    """The time of those seen to change; None where none could be compared."""
    comparable = [e for e in events if change(e.op) is not None]
    return duration([e for e in comparable if change(e.op)]) if comparable else None


@dataclass
class Picked:
    """The picked step: its window and the events admitted to it, all by the device's clock, or by
    the trace's where that is the only one. Shown are times less `base`."""

    plane: Plane
    plane_names: list[str]  # of the whole file
    options: Options
    notes: list[str]
    steps: list[Step]
    step: Step
    window: Span
    base: int
    events: list[Event]
    n_dropped: int
    clocks: Clocks
    step_source: str | None  # where the steps are from

    @property
    def is_timed(self) -> bool:
        """Whether by the device's clock."""
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
        """The parts of the window in which one of the events runs."""
        return union((max(e.start, self.window.start), min(e.end, self.window.end)) for e in events)

    def stack_order(self) -> str | None:
        """How most of the ops that have a stack have it."""
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
        """The first op of the program that took most of the step."""
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
            "kernels": self.kernels(),
        }

    def group_row(self, events: list[Event]) -> Json:
        """The fields that a group has in summary as in by_source."""
        first, example = events[0].op, longest(events)
        rows, overflow = breakdown(events)
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
            "hlo_op_breakdown": rows,
            "hlo_op_breakdown_overflow": overflow,
            "likely_sources": likely_sources(events),
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
        """When no leaf runs; the longest first, of these the earliest."""
        busy = self.covered(self.leaves)
        first, end = self.window.start, self.window.end
        edges = [first, *(edge for interval in busy for edge in interval), end]
        gaps = [Span(s, e) for s, e in zip(edges[::2], edges[1::2], strict=True) if s < e]
        return sorted(gaps, key=lambda gap: (-gap.duration, gap.start))

    def before(self, gap: Span) -> Event | None:
        """Of those that end where it begins, the one that began first."""
        ending = [e for e in self.leaves if e.duration > 0 and e.end == gap.start]
        is_edge = gap.start == self.window.start
        return None if is_edge else min(ending, key=lambda e: e.start)

    def behind(self, gap: Span) -> Event | None:
        starting = [e for e in self.leaves if e.duration > 0 and e.start == gap.end]
        return None if gap.end == self.window.end else starting[0]

    def gap_row(self, gap: Span) -> Json:
        before, behind = self.before(gap), self.behind(gap)
        around = [e for e in self.containers if e.start <= gap.start < e.end]
        # The innermost began last; of those that began together it ends first, and the file
        # lists it after the ones around it.
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

    def kernel_groups(self) -> dict[str, list[Event]]:
        return grouped([e for e in self.leaves if e.op.kernel], lambda e: str(e.op.kernel))

    def kernels(self) -> list[Json]:
        groups = self.kernel_groups()
        return [
            {
                "kernel": name,
                **times(groups[name]),
                "pct_of_step": pct(duration(groups[name]), self.duration),
                "source_inner": groups[name][0].op.source_inner,
                "source_user": groups[name][0].op.source_user,
                "tf_op": groups[name][0].op.tf_op,
                "phases": time_by(groups[name], lambda op: op.phase),
                "shapes_in": [a.text for a in longest(groups[name]).op.hlo.operand_arrays()],
                "shapes_out": [longest(groups[name]).op.shape_out],
            }
            for name in sorted(groups, key=lambda name: (-duration(groups[name]), name))
        ]

    # by_source

    def by_source(self, totals: Json) -> Json:
        kinds = ["compute"]
        kinds += ["comm"] if self.options.include_comm else []
        kinds += ["data_move"] if self.options.include_data_move else []
        groups = grouped(self.of_kind(*kinds), lambda e: e.group)
        totals["n_groups_total"] = len(groups)
        shown, tail = self.shown(groups)
        return {"groups": [self.by_source_row(events) for events in shown], **tail}

    def shown(self, groups: dict[Key, list[Event]]) -> tuple[list[list[Event]], Json]:
        """All groups as they appear, or with --top the longest, and what that leaves out."""
        if self.options.top is None:
            return list(groups.values()), {}
        ranked = longest_first(groups)
        tail = tail_of(ranked[self.options.top :])
        return ranked[: self.options.top], {"tail": tail}

    def by_source_row(self, events: list[Event]) -> Json:
        shapes = distinct(e.op.shape_with_layout for e in events)
        known_inputs = [e for e in events if e.op.operand_dtype is not None]
        return {
            **self.group_row(events),
            "kind": events[0].op.kind,
            "model_flops_sum": number(fact_sum(e.op.model_flops for e in events)),
            "dtypes": count_by(events, lambda op: op.dtype),
            "dtype_uncertain": any(e.op.dtype_uncertain for e in events),
            "shapes": shapes[:8],
            "shapes_truncated": len(shapes) > 8,
            "hbm_bytes_sum": number(hbm_bytes_sum(events)),
            "operand_dtypes": time_by(known_inputs, lambda op: str(op.operand_dtype)),
            "also_fused": also_fused(events),
            "scopes": scopes(events),
        }

    # non_compute

    def non_compute(self, totals: Json) -> Json:
        stall_label = "async-done (comm stall)"

        def is_stall(op: Op) -> bool:
            return op.kind == "comm" and op.is_wait

        def is_listed(op: Op) -> bool:
            if is_stall(op):
                return not self.options.no_comm_stalls
            return op.kind == "data_move" or (op.kind == "comm" and self.options.include_comm)

        def label(event: Event) -> tuple[str, str]:
            return stall_label if is_stall(event.op) else event.op.category, event.op.kind

        def source(event: Event) -> tuple[str, str, str]:
            category, kind = label(event)
            return event.op.agg_key, kind, category

        listed = [e for e in self.leaves if is_listed(e.op)]
        if any(is_stall(e.op) for e in listed):
            self.notes.append(
                f"asynchronous communication waits included as '{stall_label}'; "
                "pass --no-comm-stalls to leave them out"
            )
        totals["non_compute_duration_ps"] = duration(listed)
        totals["non_compute_pct_of_step"] = pct(duration(listed), self.duration)
        totals["non_compute_pct_of_compute"] = pct(duration(listed), totals["compute_duration_ps"])

        categories = []
        for (category, kind), events in grouped(listed, label).items():
            coverage = count_by(events, lambda op: op.agg_key_kind)
            categories.append(
                {
                    "hlo_category": category,
                    "kind": kind,
                    **times(events),
                    "n_groups": len({e.op.agg_key for e in events}),
                    "agg_key_coverage": {
                        k: coverage.get(k, 0) for k in ("stack", "tf_op", "no_source")
                    },
                }
            )
        shown, tail = self.shown(grouped(listed, source))
        sources = [{"hlo_category": label(events[0])[0], **moved(events)} for events in shown]
        return {"by_category": categories, "by_source_within_category": sources, **tail}


def moved(events: list[Event]) -> Json:
    """What non_compute says of a group."""
    first = events[0].op
    return {
        "kind": first.kind,
        "agg_key": first.agg_key,
        "agg_key_kind": first.agg_key_kind,
        "source_inner": first.source_inner,
        "source_user": first.source_user,
        "source_stack": first.source_stack,
        "tf_op": first.tf_op,
        **times(events),
        "shapes_in": distinct(e.op.shape_in for e in events)[:4],
        "shapes_out": distinct(e.op.shape_out for e in events)[:4],
        "dtype_change": any_change(events, lambda op: op.dtype_changes),
        "dtype_change_dur_ps": change_time(events, lambda op: op.dtype_changes),
        "layout_change": any_change(events, lambda op: op.layout_changes),
        "layout_change_dur_ps": change_time(events, lambda op: op.layout_changes),
        "likely_sources": likely_sources(events),
        "example_hlo_op": longest(events).op.text,
    }


def whole_time(spans: list[Span]) -> int:
    return max(s.end for s in spans) - min(s.start for s in spans) if spans else 0


def time_between(spans: list[Span]) -> int:
    """What of the whole is in none of them."""
    return whole_time(spans) - length(union((span.start, span.end) for span in spans))


def step_time(steps: list[Step]) -> int:
    return sum(step.on_trace.duration for step in steps)


def name_in_rollup(step: Step, source: str | None) -> str | None:
    """None for the profiler's numbered steps."""
    is_number = bool(step.name) and all(c in "0123456789" for c in step.name or "")
    return None if is_number and source == "steps" else step.name or "<none>"


def notes_of_all(steps: list[Step]) -> list[str]:
    """On the time that no step's figures show."""
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
    """Each once."""
    return [its_events[0].op for its_events in grouped(events, lambda e: id(e.op)).values()]


def settle_stacks(plane: Plane, ops: list[Op], own: Sequence[str], notes: list[str]) -> None:
    """Let these ops of a device tell how stacks are ordered; before anything asks for one."""
    order = majority(op.order_by_source for op in ops)
    order = order or majority(op.order_by_program for op in ops)
    if order is None and any(op.is_order_guessed for op in ops):
        notes.append("order of stack frames unknown; assuming innermost first")
    for op in plane.ops.values():
        op.silent_order = order or INNERMOST_FIRST
        op.own = own


def executions_in(plane: Plane, steps: list[Step]) -> list[LineEvent]:
    """The valid executions of ops that start in any of these steps."""
    return [
        e
        for e in plane.events_of("XLA Ops")
        if (span := e.on_trace) is not None and any(step.admits(span.start) for step in steps)
    ]


def read_picked(
    plane: Plane,
    plane_names: list[str],
    options: Options,
    notes: list[str],
    steps: list[Step],
    step: Step,
    step_source: str | None,
) -> Picked:
    """What is in a step."""
    on_line = plane.events_of("XLA Ops")
    # Aggregated events have no time and belong to no step: they are missing from each.
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
        plane_names=plane_names,
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
