"""The mode record: all steps of all devices of a file, by line."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

from tests.naive.op import (
    Event,
    Plane,
    Span,
    complete_ops,
    distinct,
    duration,
    grouped,
    text_of,
)
from tests.naive.program import COLLECTIVES, TRANSFERS
from tests.naive.step import (
    AbsentError,
    Json,
    Options,
    Picked,
    Step,
    executions_in,
    ops_of,
    read_picked,
    read_steps,
    settle_stacks,
)

WAITED_FOR = (*COLLECTIVES, *TRANSFERS, "collective")


def is_tpu(name: str) -> bool:
    return name.startswith("/device:TPU:") and name[len("/device:TPU:") :].isdigit()


def digest(texts: Iterable[str]) -> str:
    return hashlib.sha1("\n".join(sorted(set(texts))).encode()).hexdigest()[:16]


def is_inside(e: Event, branching: Event) -> bool:
    """Return whether an event runs in a branch of a conditional. Longer events that start with
    the conditional enclose it, and so does one of two with the same times."""
    if e is branching or not branching.on_device.holds(e.start):
        return False
    if e.start > branching.start or e.duration < branching.duration:
        return True
    is_alike = e.duration == branching.duration
    return is_alike and (e.op.category != "conditional" or branching.op.text < e.op.text)


def outside_of_branches(picked: Picked) -> list[Event]:
    """Return the events that run whatever branch is taken."""
    branching = [e for e in picked.containers if e.op.category == "conditional"]
    return [e for e in picked.events if not any(is_inside(e, each) for each in branching)]


@dataclass
class Device:
    """A device with its steps."""

    plane: Plane
    source: str | None
    steps: list[Step]

    @staticmethod
    def of(plane: Plane) -> Device:
        for line_name, source in (("Steps", "steps"), ("XLA Modules", "modules")):
            steps = read_steps(plane, line_name)
            if steps:
                return Device(plane, source, steps)
        on_line = plane.events_of("XLA Ops")
        spans = [e.on_trace for e in on_line if e.metadata_id in plane.ops]
        valid = [span for span in spans if span is not None]
        if not valid:
            return Device(plane, None, [])
        whole = Span(min(span.start for span in valid), max(span.end for span in valid))
        n_starts = sum(e.start is not None for e in on_line)
        return Device(plane, None, [Step(None, None, whole, n_events=n_starts)])

    @property
    def has_ops(self) -> bool:
        spans = [
            e.on_trace for e in self.plane.events_of("XLA Ops") if e.metadata_id in self.plane.ops
        ]
        return any(step.admits(span.start) for span in spans if span for step in self.steps)

    def why_not(self, step: Step) -> str | None:
        """Return why a step isn't used, regardless of --steps."""
        if step.n_events == 0:
            return "no_ops"
        alike = self.steps
        if self.source == "modules":
            by_program = grouped(self.steps, lambda step: step.name)
            most = max(by_program, key=lambda name: sum(s.n_events for s in by_program[name]))
            if step.name != most:
                return "other_program"
            alike = by_program[most]
        counts = sorted(s.n_events for s in alike if s.n_events > 0)
        median = counts[(len(counts) - 1) // 2]
        return None if 50 * abs(step.n_events - median) <= median else "other_op_count"

    @property
    def used(self) -> list[Step]:
        return [step for step in self.steps if self.why_not(step) is None]


class Record:
    def __init__(self, planes: list[Plane], options: Options) -> None:
        self.options = options
        first = {plane.name: plane for plane in reversed(planes)}
        asked = [
            plane
            for plane in planes
            if first[plane.name] is plane
            if (plane.name == options.device if options.device else is_tpu(plane.name))
        ]
        if not asked:
            names = distinct(plane.name for plane in planes)
            available = [name for name in names if name.startswith("/device:")]
            raise AbsentError("device_not_found", available_devices=available)
        devices = [Device.of(plane) for plane in asked]
        for device in devices:
            complete_ops(device.plane, executions_in(device.plane, device.steps))
        self.devices = [device for device in devices if device.has_ops]
        if not self.devices:
            # The modes of one step give the same reason for the first device.
            if asked[0].lines_named("XLA Ops"):
                raise AbsentError("empty_xla_ops_line")
            names = distinct(line.name for line in asked[0].lines)
            raise AbsentError("no_xla_ops_line", available_lines=names)
        self.picked = {
            id(step): read_picked(device.plane, options, [], device.steps, step, device.source)
            for device in self.devices
            for step in device.used
        }
        for device in self.devices:
            of_steps = [self.picked[id(step)].events for step in device.used]
            settle_stacks(device.plane, ops_of([e for events in of_steps for e in events]), (), [])
        leaves = [e for picked in self.picked.values() for e in picked.leaves]
        self.groups = grouped(leaves, lambda e: (e.op.kind, e.op.agg_key))
        self.frames = distinct(
            frame for events in self.groups.values() for frame in events[0].op.frames
        )

    def answer(self) -> Json:
        return {
            "format": 1,
            "frames": self.frames,
            "groups": [self.group_row(events) for events in self.groups.values()],
            "devices": [self.device_row(device) for device in self.devices],
            "steps": [
                self.step_row(place, device, step)
                for place, device in enumerate(self.devices)
                for step in device.steps
            ],
        }

    def group_row(self, events: list[Event]) -> Json:
        first = events[0].op
        ops = [e.op for e in events]
        sources = [op.source_inner for op in ops if op.source_inner is not None]
        return {
            "kind": first.kind,
            "agg_key": first.agg_key,
            "agg_key_kind": first.agg_key_kind,
            "frames": [self.frames.index(frame) for frame in first.frames],
            "source": min(sources, default=None),
            "ops": digest(op.text for op in ops),
        }

    def device_row(self, device: Device) -> Json:
        of_steps = [self.picked[id(step)] for step in device.used]
        return {
            "device": device.plane.name,
            "device_type": text_of(device.plane.stats, "device_type_string") or None,
            "clock": "device" if any(picked.is_timed for picked in of_steps) else "trace",
            "step_source": device.source,
            "program": digest(e.op.text for p in of_steps for e in outside_of_branches(p)),
        }

    def step_row(self, place: int, device: Device, step: Step) -> Json:
        why_not = device.why_not(step)
        duration_ps = step.on_trace.duration
        if why_not is None:
            duration_ps = self.picked[id(step)].duration
            if step not in device.steps[self.asked()]:
                why_not = "not_asked"
        return {
            "device": place,
            "index": device.steps.index(step),
            "name": step.name,
            "used": why_not is None,
            "why_not": why_not,
            "n_xla_ops_events": step.n_events,
            "duration_ps": duration_ps,
            **(
                self.figures(self.picked[id(step)])
                if why_not is None
                else dict.fromkeys(("busy_ps", "comm_ps", "host_ps", "wait_ps", "durs_ps", "ns"))
            ),
        }

    def asked(self) -> slice:
        """Return the slice of --steps."""
        if self.options.steps is None:
            return slice(None)
        start, end = self.options.steps.split(":")
        return slice(int(start) if start else None, int(end) if end else None)

    def figures(self, picked: Picked) -> Json:
        by_group = [
            [e for e in picked.leaves if (e.op.kind, e.op.agg_key) == group]
            for group in self.groups
        ]
        exposed = [e for e in picked.leaves if e.op.is_wait or e.op.is_synchronous_comm]
        return {
            "busy_ps": picked.totals()["busy_duration_ps"],
            "comm_ps": duration([e for e in exposed if e.op.waits_for in WAITED_FOR]),
            "host_ps": duration([e for e in exposed if e.op.waits_for == "host"]),
            "wait_ps": duration([e for e in picked.leaves if e.op.is_wait]),
            "durs_ps": without_trailing_zeros(map(duration, by_group)),
            "ns": without_trailing_zeros(map(len, by_group)),
        }


def without_trailing_zeros(figures: Iterable[int]) -> list[int]:
    kept = list(figures)
    while kept and kept[-1] == 0:
        kept.pop()
    return kept
