"""One device of a trace: its lines of ops, and its steps."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from itertools import accumulate

from _pipeline import frames
from _pipeline.ops import Op, as_text
from _pipeline.request import Absent, no_device
from _proto.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence, Set

    from _proto.hlo.programs import Programs
    from _proto.trace.joined import AnyLine, AnyPlane
    from _proto.trace.plane import Metadata, Stats
    from _proto.trace.ranks import Rank
    from _proto.trace.trace import Trace

# A TensorCore; a plane of a SparseCore has more behind the number, one of a subprocess its id.
TPU_RE = re.compile(r"/device:TPU:(?P<number>\d+)(?: \[\d+\])?\Z")
# Where steps come from; the latter where there is no Steps line.
STEPS, MODULES = "steps", "modules"
STEPS_LINE, MODULES_LINE, OPS_LINE = "Steps", "XLA Modules", "XLA Ops"
# Beyond any int64 of nanoseconds or picoseconds.
BEFORE_ALL, AFTER_ALL = -(1 << 80), 1 << 80


@record
class StepEvent:
    """A step as the trace draws it; times on the offset base of the ops line."""

    index: int
    name: str | None
    start: int
    end: int
    # Its start and end by the device's clock, where its event tells.
    device_span: tuple[int, int] | None
    n_events: int

    @property
    def duration(self) -> int:
        return self.end - self.start


@record
class Device:
    """What all steps of one device share. Times stand on the offset base of its ops line."""

    trace: Trace
    plane: AnyPlane
    # The process that wrote it; None where a merged capture doesn't tell.
    rank: Rank | None
    programs: Programs
    lines: Sequence[AnyLine]
    base: int
    steps: list[StepEvent]
    step_source: str
    stats: Stats
    # What else the capture has: the hosts of its run, the planes of this file.
    hosts: list[str]
    planes: list[str]
    # Whether a file is the user's own code.
    is_own: Callable[[str], bool]
    _ops: dict[int, Op | None]

    def op(self, metadata_id: int) -> Op | None:
        """Each entry of the metadata is normalized once, whoever asks."""
        if metadata_id not in self._ops:
            self.normalize(metadata_id, self.plane.metadata(metadata_id))
        return self._ops[metadata_id]

    def normalize(self, metadata_id: int, metadata: Metadata | None) -> None:
        """Make the op of an entry of the metadata."""
        self._ops[metadata_id] = Op(metadata, self.programs, self.is_own) if metadata else None

    def not_normalized(self, metadata_ids: Set[int]) -> set[int]:
        return set(metadata_ids) - self._ops.keys()

    @property
    def type(self) -> str | None:
        return as_text(self.stats.get("device_type_string")) or None

    @property
    def n_events(self) -> int:
        return sum(line.n_events for line in self.lines)


def open_device(
    trace: Trace,
    name: str,
    hosts: list[str],
    notes: list[str],
    is_own: Callable[[str], bool] = frames.is_not_library,
) -> Device:
    # It imports protobuf, which may be missing.
    from _proto.hlo.programs import Programs

    if name not in trace.plane_names:
        raise no_device(trace.plane_names)
    plane = trace.plane(name)
    lines = plane.lines(OPS_LINE)
    if not lines:
        raise Absent("no_xla_ops_line", available_lines=plane.line_names)
    base = lines[0].base_ps
    steps, source = read_steps(plane, STEPS_LINE, base, notes), STEPS
    if not steps:
        steps, source = read_steps(plane, MODULES_LINE, base, notes), MODULES
        if steps:
            notes.append("no Steps line; executions of programs (XLA Modules) are taken as steps")
    return Device(
        trace=trace,
        plane=plane,
        rank=trace.rank_of(name),
        programs=Programs(trace, name),
        lines=lines,
        base=base,
        steps=steps,
        step_source=source,
        stats=plane.stats(),
        hosts=hosts,
        planes=trace.plane_names,
        is_own=is_own,
        _ops={},
    )


def read_steps(plane: AnyPlane, line_name: str, base: int, notes: list[str]) -> list[StepEvent]:
    """The events of a line as steps, sorted by start."""
    steps = []
    n_dropped = 0
    names: dict[int, str | None] = {}
    for line in plane.lines(line_name):
        shift = line.base_ps - base
        n_dropped += line.n_aggregated
        for events in line.events(BEFORE_ALL, AFTER_ALL):
            for metadata_id, offset, duration, measured in events.rows():
                if duration < 0:
                    n_dropped += 1
                    continue
                if metadata_id not in names:
                    metadata = plane.metadata(metadata_id)
                    names[metadata_id] = metadata.name if metadata else None
                start = offset + shift
                span = (measured[0], sum(measured)) if measured else None
                steps.append(StepEvent(0, names[metadata_id], start, start + duration, span, 0))
    if n_dropped:
        notes.append(
            f"{n_dropped} events of the {line_name} line left out: they have no valid time"
        )
    steps.sort(key=lambda step: step.start)
    for index, step in enumerate(steps):
        step.index = index
    return steps


def count_starts(device: Device) -> None:
    """Count into each step the ops that start in it."""
    steps = device.steps
    # How many start before a border is the sum of two: of the lists that reach around it the
    # part before it, and all of the lists that end before it, noted at the first such border.
    borders = sorted({border for step in steps for border in (step.start, step.end)})
    within = dict.fromkeys(borders, 0)
    before = [0] * (len(borders) + 1)
    for line in device.lines:
        shift = line.base_ps - device.base
        for offsets in line.starts():
            first = bisect_right(borders, offsets[0] + shift)
            last = bisect_right(borders, offsets[-1] + shift)
            for border in borders[first:last]:
                within[border] += bisect_left(offsets, border - shift)
            before[last] += len(offsets)
    n_before = {
        border: within[border] + n for border, n in zip(borders, accumulate(before), strict=False)
    }
    for step in steps:
        step.n_events = n_before[step.end] - n_before[step.start]
