"""Open a device of a trace, and read its steps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from itertools import accumulate
from operator import attrgetter
from typing import Final, Literal

from _breakdown.light import NamedTuple
from _breakdown.pipeline import frames
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.cycles import cycles_of
from _breakdown.pipeline.no_answer import NoAnswer, no_device
from _breakdown.pipeline.step_event import StepEvent
from _breakdown.units import counted
from _proto.trace.ranks import TPU_RE, Rank, planes_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.hlo.programs import Programs
    from _proto.trace.joined import AnyLine, AnyPlane
    from _proto.trace.plane import Stats
    from _proto.trace.trace import Trace

# Steps come from the Steps line. Without one, they are the cycles in which the programs on the XLA
# Modules line repeat, or single programs.
STEPS: Final = "steps"
CYCLES: Final = "cycles"
MODULES: Final = "modules"
StepSource = Literal["steps", "cycles", "modules"]
STEPS_LINE, MODULES_LINE, OPS_LINE = "Steps", "XLA Modules", "XLA Ops"
# A program is cut off if it differs from at least this many others.
_LEAST_WHOLE = 3
# Values earlier and later than any 64-bit time, in nanoseconds or picoseconds.
BEFORE_ALL, AFTER_ALL = -(1 << 80), 1 << 80


class Event(NamedTuple):
    """An event of a line, such as a barrier or a program. Times are relative to the base time of
    the ops line."""

    name: str | None
    # Start and end on the trace's clock.
    start: int
    end: int
    # Start and end on the device's clock, if the core measured them.
    measured: tuple[int, int] | None


class Device(NamedTuple):
    """One device of a trace. Times are relative to the base time of the device's ops line."""

    path: str
    trace: Trace
    plane: AnyPlane
    # The process that wrote the plane, or None if unknown, as in some merged captures.
    rank: Rank | None
    programs: Programs
    lines: Sequence[AnyLine]
    base: int
    steps: list[StepEvent]
    step_source: StepSource
    # Start and end of the time without the programs that the capture cuts off, or None if it cuts
    # off none.
    whole: tuple[int, int] | None
    stats: Stats
    # Host names of the run, and plane names in the file.
    hosts: list[str]
    planes: list[str]
    # A function that returns True for the name of a file that contains the user's own code.
    is_own: Callable[[str], bool]

    @property
    def type(self) -> str | None:
        name = self.stats.get("device_type_string")
        return (name if isinstance(name, str) else "") or None

    @property
    def has_cycles(self) -> bool:
        """Return whether a step is a cycle of programs."""
        return self.step_source == CYCLES

    @property
    def n_events(self) -> int:
        return sum(line.n_events for line in self.lines)

    def events_on(self, line_name: str, names: Container[str] | None = None) -> Iterator[Event]:
        """Yield a line's events that have a valid duration and one of the names."""
        return events_of(self.plane, self.plane.lines(line_name), self.base, names)


def tpus_of(device: Device) -> list[str]:
    """Return the names of the host's TPUs, sorted by number; empty if `device` is not a TPU."""
    names = [name for name in dict.fromkeys(device.planes) if TPU_RE.match(name)]
    return sorted(names, key=number_of) if device.plane.name in names else []


def number_of(name: str) -> int:
    match = TPU_RE.match(name)
    assert match, f"{name} is not a TPU"
    return int(match["number"])


def open_device(
    path: str,
    trace: Trace,
    name: str,
    hosts: list[str],
    context: Context,
    is_own: Callable[[str], bool] = frames.is_not_plumbing,
    programs: Programs | None = None,
) -> Device:
    """Return the named device with its steps; raise NoAnswer if it is missing or has no ops line.

    Pass the `programs` of another device of the same rank to read them only once.
    """
    # Import late, because the module requires protobuf, which may be missing.
    from _proto.hlo.programs import Programs

    found = planes_named(name, trace.plane_names)
    if not found:
        raise no_device(trace.plane_names)
    if len(found) > 1:
        context.note(
            f"using {found[0]}, one of {len(found)} planes of {name} (--device selects another)"
        )
    name = found[0]
    plane = trace.plane(name)
    lines = plane.lines(OPS_LINE)
    if not lines:
        raise NoAnswer("no_xla_ops_line", available_lines=plane.line_names)
    base = lines[0].base_ps
    steps, source, whole = steps_of(plane, lines, base, context)
    return Device(
        path=path,
        trace=trace,
        plane=plane,
        rank=trace.rank_of(name),
        programs=programs or Programs(trace, name, context.warnings),
        lines=lines,
        base=base,
        steps=steps,
        step_source=source,
        whole=whole,
        stats=plane.stats(),
        hosts=hosts,
        planes=trace.plane_names,
        is_own=is_own,
    )


def steps_of(
    plane: AnyPlane, lines: Sequence[AnyLine], base: int, context: Context
) -> tuple[list[StepEvent], StepSource, tuple[int, int] | None]:
    """Return the steps of a plane, their source, and the time without the programs that the capture
    cuts off, or None if it cuts off none."""
    steps = noted_steps(plane, STEPS_LINE, base, context)
    if steps:
        return steps, STEPS, None
    programs = noted_steps(plane, MODULES_LINE, base, context)
    count_starts(programs, lines, base)
    steps = whole_programs(programs)
    n_cut = len(programs) - len(steps)
    whole = (steps[0].start, steps[-1].end) if n_cut else None
    if n_cut:
        context.warn(
            f"left out {counted(n_cut, 'program')} that the capture cuts off: fewer ops start in it"
            " than in all others of this name"
        )
    cycles = cycles_of(steps)
    if cycles:
        context.note(cycles.note)
        return cycles.steps, CYCLES, whole
    if steps:
        repeats = len({step.name for step in steps}) < len(steps)
        context.note(
            "the trace has no Steps line, so each execution of a program (XLA Modules) counts as a"
            f" step{'' if repeats else '; no program runs twice'}"
        )
    return steps, MODULES, whole


def noted_steps(plane: AnyPlane, line_name: str, base: int, context: Context) -> list[StepEvent]:
    """Return a line's events as steps, and add a warning if events are left out."""
    steps, n_dropped = read_steps(plane, line_name, base)
    if n_dropped:
        context.warn(
            f"left out {counted(n_dropped, 'event')} of the {line_name} line (no valid time)"
        )
    return steps


def read_steps(plane: AnyPlane, line_name: str, base: int) -> tuple[list[StepEvent], int]:
    """Return a line's events as steps sorted by start, and the number of events without a valid
    time."""
    lines = plane.lines(line_name)
    events = sorted(events_of(plane, lines, base), key=attrgetter("start"))
    steps: list[StepEvent] = []
    for event in events:
        kind = kind_of(event.name, line_name)
        step = StepEvent(len(steps), event.name, event.start, event.end, event.measured, kind)
        steps.append(step)
    return steps, sum(line.n_events for line in lines) - len(steps)


def kind_of(name: str | None, line_name: str) -> str | None:
    """Return the name by which steps are grouped; None if the name is a number.

    The profiler gives each step of a loop its own number, so all numbered steps are in one group.
    """
    name = name or "<none>"
    is_number = line_name == STEPS_LINE and name.isascii() and name.isdecimal()
    return None if is_number else name


def events_of(
    plane: AnyPlane, lines: Iterable[AnyLine], base: int, names: Container[str] | None = None
) -> Iterator[Event]:
    """Yield the events of lines that have a valid duration and one of the names; None means all
    names."""
    name_of: dict[int, str | None] = {}
    for line in lines:
        shift = line.base_ps - base
        for events in line.events(BEFORE_ALL, AFTER_ALL):
            for metadata_id, offset, duration, measured in events.rows():
                if metadata_id not in name_of:
                    metadata = plane.metadata(metadata_id)
                    name_of[metadata_id] = metadata.name if metadata else None
                name = name_of[metadata_id]
                if duration >= 0 and (names is None or name in names):
                    start = offset + shift
                    span = (measured[0], sum(measured)) if measured else None
                    yield Event(name, start, start + duration, span)


def whole_programs(programs: list[StepEvent]) -> list[StepEvent]:
    """Return the programs without the first and the last one if the capture cuts them off: if fewer
    ops start in them than in all others of the same name, which are at least three and equal."""

    def is_whole(edge: StepEvent) -> bool:
        others = [of.n_events for of in programs[1:-1] if of.name == edge.name]
        return len(others) < _LEAST_WHOLE or not edge.n_events < min(others) == max(others)

    edges = {id(edge) for edge in (programs[:1] + programs[-1:]) if not is_whole(edge)}
    whole = [program for program in programs if id(program) not in edges]
    for index, program in enumerate(whole):
        program.index = index
    return whole


def count_starts(steps: Sequence[StepEvent], lines: Sequence[AnyLine], base: int) -> None:
    """Set `n_events` of each step to the number of ops that start in it."""
    # A border is the start or the end of a step. The number of ops that start before a border is
    # the sum of two counts: `within` counts ops in lists of starts that cross the border, and
    # `before` counts ops in lists that end before it. `before` counts each list only at the first
    # border after the list, so `accumulate` adds the counts of earlier borders.
    borders = sorted({border for step in steps for border in (step.start, step.end)})
    within = dict.fromkeys(borders, 0)
    before = [0] * (len(borders) + 1)
    for line in lines:
        shift = line.base_ps - base
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
