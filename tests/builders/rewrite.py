"""Simulate runs of the demo's program, edited or unedited, and write their traces.

    trace(records.of_demo(), 6, jitter=0.01, seed=1)    the file of one host
    pod(records.of_demo(), names, 5, slow={...})        the files of all hosts of a run

A program is a list of ops as in records.py, which also defines the edits. Each step repeats the
first step of the demo. An op takes the time that the program specifies, plus jitter. Later ops are
shifted accordingly, and loops enclose their ops. Devices wait for each other in collectives. The
traces contain the core's lines, with times on both clocks. The traces contain no compiled program,
because edits do not change it.
"""

from __future__ import annotations

import gzip
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from tests.builders.records import DEVICE, Name, Op, Program
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    StatNames,
    bytes_field,
    encode,
    int_field,
    varint,
)
from tests.harness import DEMO
from tests.naive import op as naive_op, step as naive_step, wire as naive_wire

STEP, MODULE = 2_000_000, 1  # Metadata ids of the first step and of the program's executions.
FIRST_STEP_NAME = 100
PAUSE_PS = 10_000_000
# The core's clock is behind the trace's clock by this time.
BEHIND_PS = 14_000


@dataclass(frozen=True)
class Executed:
    """Represent an execution of an op. `origin` is the op's index in `of_demo()`, or None for a
    loop.
    """

    metadata_id: int
    origin: int | None
    span: naive_op.Span


@dataclass(frozen=True)
class Template:
    plane: naive_op.Plane
    step: naive_op.Span
    executed: list[Executed]
    # Two lists in the order of `of_demo()`: each op's metadata id, and its executions' durations.
    metadata_ids: list[int]
    durations: list[list[int]]


@cache
def template() -> Template:
    [path] = DEMO.glob("plugins/profile/*/*.xplane.pb.gz")
    space = naive_wire.fields(gzip.decompress(path.read_bytes()))
    planes = [naive_wire.fields(plane) for plane in naive_wire.every(space, 1)]
    plane = next(naive_op.decode_plane(p) for p in planes if naive_op.plane_name(p) == DEVICE)
    first = naive_step.read_steps(plane, "Steps")[0].on_trace
    origins: dict[int, int] = {}
    durations: list[list[int]] = []
    executed = []
    for event in plane.events_of("XLA Ops"):
        span = event.on_trace
        if span is not None and first.holds(span.start):
            # Ops are numbered by first appearance, including loops, as in `of_demo()`.
            origin = origins.setdefault(event.metadata_id, len(origins))
            if origin == len(durations):
                durations.append([])
            durations[origin].append(span.duration)
            is_loop = plane.ops[event.metadata_id].is_container
            executed.append(Executed(event.metadata_id, None if is_loop else origin, span))
    return Template(plane, first, executed, list(origins), durations)


@dataclass(frozen=True)
class Leaf:
    """Represent an execution of the op at a given position in the program."""

    place: int
    # The time since the end of the preceding leaf, and the leaf's duration.
    gap: int
    duration: float


@dataclass(frozen=True)
class Loop:
    """Represent a loop; `start` and `end` are (number of preceding leaves, time after the last of
    them)."""

    metadata_id: int
    start: tuple[int, int]
    end: tuple[int, int]


@dataclass(frozen=True)
class Schedule:
    program: Program
    leaves: list[Leaf]
    loops: list[Loop]
    # The time from the end of the last op to the end of the step.
    rest: int

    @property
    def waits(self) -> list[int]:
        """Return the indices of leaves that last until all devices have arrived."""
        ops = (self.program[leaf.place] for leaf in self.leaves)
        return [at for at, op in enumerate(ops) if is_joined(op)]


def is_joined(op: Op) -> bool:
    """Return True if an op communicates on the core or waits for communication."""
    return op.kind == "comm" and not op.category.endswith(("-start", "-update"))


def descent(op: Op) -> int:
    """Return the demo's op from which an op takes its executions. For a fused op, prefer a part
    that is executed as often as the fused op."""
    n = {origin: len(template().durations[origin]) for origin in op.origin}
    return min(op.origin, key=lambda origin: (n[origin] != op.n, origin))


def parts_of(program: Program) -> dict[tuple[int, int], list[tuple[int, float]]]:
    """Return, for each execution in the demo, the ops that run instead and their durations.

    Ops that come from the same op of the demo take its executions in turn.
    """
    taken: dict[int, int] = {}
    parts: dict[tuple[int, int], list[tuple[int, float]]] = {}
    for place, op in enumerate(program):
        origin = descent(op)
        durations = template().durations[origin]
        first = taken.get(origin, 0)
        numbers = [number % len(durations) for number in range(first, first + op.n)]
        taken[origin] = first + op.n
        whole = sum(durations[number] for number in numbers)
        for number in numbers:
            share = durations[number] / whole if whole else 1 / op.n
            parts.setdefault((origin, number), []).append((place, op.duration * share))
    return parts


def schedule_of(program: Program) -> Schedule:
    parts = parts_of(program)
    seen: dict[int, int] = {}
    leaves: list[Leaf] = []
    open_loops: list[tuple[Executed, tuple[int, int]]] = []
    loops: list[Loop] = []
    last = template().step.start
    for execution in [*template().executed, None]:
        while open_loops and (
            execution is None or execution.span.start >= open_loops[-1][0].span.end
        ):
            loop, start = open_loops.pop()
            loops.append(Loop(loop.metadata_id, start, (len(leaves), loop.span.end - last)))
        if execution is None:
            break
        if execution.origin is None:
            open_loops.append((execution, (len(leaves), execution.span.start - last)))
            continue
        number = seen.get(execution.origin, 0)
        seen[execution.origin] = number + 1
        gap = execution.span.start - last
        for place, duration in parts.get((execution.origin, number), []):
            leaves.append(Leaf(place, gap, duration))
            gap = 0
        last = execution.span.end
    return Schedule(program, leaves, loops, template().step.end - last)


Factor = Callable[[Op], float]


def run_once(
    schedule: Schedule, jitter: float, rng: random.Random, factor: Factor | None = None
) -> list[int]:
    """Return the duration of each leaf in a step; `factor` returns an op's slowdown."""
    factors = [factor(op) if factor else 1.0 for op in schedule.program]
    return [
        max(0, round(leaf.duration * factors[leaf.place] * (rng.gauss(1, jitter) if jitter else 1)))
        for leaf in schedule.leaves
    ]


def join(schedule: Schedule, durations: list[int], end: int) -> None:
    """Extend all communication evenly until the step is as long as on the slowest device."""
    missing = end - length_of(schedule, durations)
    waits = schedule.waits
    reached = list(accumulate(durations[at] + 1 for at in waits))
    for number, at in enumerate(waits):
        before = reached[number - 1] if number else 0
        durations[at] += missing * reached[number] // reached[-1] - missing * before // reached[-1]


def length_of(schedule: Schedule, durations: Sequence[int]) -> int:
    return sum(leaf.gap for leaf in schedule.leaves) + sum(durations)


Figures = list[list[int]]


def run(
    schedule: Schedule,
    names: Sequence[Name],
    n_steps: int,
    jitter: float,
    seed: int,
    slow: dict[Name, Factor],
) -> dict[Name, Figures]:
    """Return, for each device and step, the duration of each leaf."""
    rng = random.Random(seed)
    runs: dict[Name, Figures] = {name: [] for name in names}
    for _ in range(n_steps):
        step = {name: run_once(schedule, jitter, rng, slow.get(name)) for name in names}
        end = max(length_of(schedule, durations) for durations in step.values())
        for name, durations in step.items():
            join(schedule, durations, end)
            runs[name].append(durations)
    return runs


def trace(
    program: Program,
    n_steps: int = 3,
    *,
    jitter: float = 0.0,
    seed: int = 0,
    host: str = "host",
    devices: Sequence[str] = (DEVICE,),
) -> bytes:
    """Return the trace of one host whose devices run `n_steps` steps of a program."""
    names = [(host, device) for device in devices]
    return pod(program, names, n_steps, jitter=jitter, seed=seed)[host]


def pod(
    program: Program,
    names: Sequence[Name],
    n_steps: int = 5,
    *,
    jitter: float = 0.0,
    seed: int = 0,
    slow: dict[Name, Factor] | None = None,
) -> dict[str, bytes]:
    """Return the trace of each host in a run; devices are given as (host, device).

    `slow` maps devices to functions that return the factor by which an op is slower. Devices that
    are early wait in collectives for the last device.
    """
    schedule = schedule_of(program)
    runs = run(schedule, names, n_steps, jitter, seed, slow or {})
    writer = Writer(schedule, n_steps)
    planes: dict[str, list[Plane]] = {}
    for name, steps in runs.items():
        planes.setdefault(name[0], []).append(writer.plane(name[1], steps))
    return {host: encode(Space(there, hostnames=[host])) for host, there in planes.items()}


class Writer:
    """Write device planes; parts that they share are encoded only once."""

    def __init__(self, schedule: Schedule, n_steps: int) -> None:
        self.schedule = schedule
        self.names = StatNames()
        ops = template().plane.ops
        loops = {loop.metadata_id for loop in schedule.loops}
        self.first_id = max(loops, default=MODULE) + 1
        metadata = [
            *(self.metadata(i, ops[i].text, ops[i].stats) for i in (MODULE, *sorted(loops))),
            *(self.metadata_of(i, op) for i, op in enumerate(schedule.program, self.first_id)),
            *(EventMetadata(STEP + i, str(FIRST_STEP_NAME + i)) for i in range(n_steps)),
        ]
        stats = [self.names.stat(*stat) for stat in template().plane.stats.items()]
        self.offset_stat, self.duration_stat, _ = (
            int_field(1, self.names.id_of(name)) + b"\x18"
            for name in ("device_offset_ps", "device_duration_ps", "step_num")
        )
        self.shared = encode(Plane(None, [], metadata, self.names.metadata(), stats))

    def metadata(
        self, metadata_id: int, text: str, stats: dict[str, naive_wire.StatValue]
    ) -> EventMetadata:
        named = [self.names.stat(*stat) for stat in stats.items()]
        return EventMetadata(metadata_id, text, named)

    def metadata_of(self, metadata_id: int, op: Op) -> EventMetadata:
        """Return an op's stats from the demo, updated where edits change them."""
        was = template().plane.ops[template().metadata_ids[descent(op)]].stats
        frames = list(map(str, op.frames))
        now = {
            "tf_op": op.tf_op,
            "source_stack": "\n".join(frames) or None,
            "source": frames[-1].rpartition(":")[0] if frames else None,
        }
        stats = {name: value for name, value in was.items() if name not in now}
        stats |= {name: value for name, value in now.items() if value is not None}
        return self.metadata(metadata_id, op.text, stats)

    def plane(self, device: str, steps: Sequence[list[int]]) -> Plane:
        """Return a device's plane; `steps` has the durations of all leaves, by step."""
        start = template().step.start
        ops: list[bytes] = []
        executions, named = [], []
        for number, durations in enumerate(steps):
            end = start + length_of(self.schedule, durations)
            ops += self.events(start, durations)
            executions.append(Event(MODULE, start, end - start))
            end += self.schedule.rest
            step_num = self.names.stat("step_num", FIRST_STEP_NAME + number)
            named.append(Event(STEP + number, start, end - start, stats=[step_num]))
            start = end + PAUSE_PS
        lines = [
            Line("Steps", named, id=1),
            Line("XLA Modules", executions, id=2),
            Line("XLA Ops", id=3, extra=b"".join(ops)),
        ]
        return Plane(device, lines, extra=self.shared)

    def events(self, start: int, durations: list[int]) -> list[bytes]:
        """Return a step's events as encoded fields, sorted by start, loops before their first
        op."""
        schedule = self.schedule
        starts, ends = [], [start]
        for leaf, duration in zip(schedule.leaves, durations, strict=True):
            starts.append(ends[-1] + leaf.gap)
            ends.append(starts[-1] + duration)
        events = [
            self.event(self.first_id + leaf.place, *span)
            for leaf, *span in zip(schedule.leaves, starts, durations, strict=True)
        ]
        # Insert the last loop first, so that the other positions stay valid.
        for loop in sorted(schedule.loops, key=lambda loop: loop.start, reverse=True):
            first, end = (ends[n] + later for n, later in (loop.start, loop.end))
            event = encode(Event(loop.metadata_id, first, end - first))
            events.insert(loop.start[0], bytes_field(4, event))
        return events

    def event(self, metadata_id: int, start: int, duration: int) -> bytes:
        lasts = varint(duration)
        return bytes_field(
            4,
            b"".join(
                (
                    int_field(1, metadata_id),
                    int_field(2, start),
                    # The duration field is omitted if it is 0.
                    b"\x18" + lasts if duration else b"",
                    bytes_field(4, self.offset_stat + varint(start - BEHIND_PS)),
                    bytes_field(4, self.duration_stat + lasts),
                )
            ),
        )
