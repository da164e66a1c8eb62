"""Convert a window's events to a step, which contains all data that modes need (the stage
normalize)."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import sub
from typing import Any, TypeVar

from _breakdown.light import cached_property
from _breakdown.pipeline.clocks import ON_DEVICE, ON_TRACE, Clock, clock_of, shifts_nearby
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.device import AFTER_ALL, MODULES_LINE, Device, Event
from _breakdown.pipeline.event_iterate import Admitted
from _breakdown.pipeline.executions import Executions, fold
from _breakdown.pipeline.frames import StackOrder
from _breakdown.pipeline.groups import Group, group_by
from _breakdown.pipeline.idle_causes import (
    AT_BARRIER,
    FOR_INPUTS,
    WAITS_LINE,
    IdleCauses,
    NamedSpan,
)
from _breakdown.pipeline.intervals import Cover, union
from _breakdown.pipeline.make_ops import majority_order, make_ops
from _breakdown.pipeline.no_answer import NoAnswer
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.step_event import StepEvent
from _breakdown.pipeline.surroundings import Surroundings
from _breakdown.pipeline.timeline import Timeline, events_of, timeline_of
from _breakdown.pipeline.vocabulary import KINDS, LeafKind
from _breakdown.units import counted, time

T = TypeVar("T")


class Step:
    """A window of a device, with its ops, executions and timeline."""

    def __init__(
        self,
        device: Device,
        picked: StepEvent | None,
        # The step's events, and the clock used for its times.
        admitted: Admitted,
        clock: Clock,
        timeline: Timeline,
        # Executions by metadata id, in order of appearance.
        executions: Mapping[int, Executions],
    ) -> None:
        self.device = device
        self.picked = picked
        self.admitted = admitted
        self.clock = clock
        self.timeline = timeline
        self.executions = executions
        self.leaves = [ran for ran in executions.values() if not ran.op.is_container]
        self.containers = [ran for ran in executions.values() if ran.op.is_container]
        self._known: dict[Hashable, Any] = {}

    def once(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return `compute()`, or what an earlier call with this key returned, because the modes of
        a page need the same figures."""
        if key not in self._known:
            self._known[key] = compute()
        found: T = self._known[key]
        return found

    @cached_property
    def by_kind(self) -> dict[LeafKind, Group]:
        """Group the leaves by kind; a kind without leaves gets an empty group."""
        by_kind = group_by(self.leaves, lambda op: op.kind)
        return {kind: by_kind.get(kind) or Group([]) for kind in KINDS}

    @property
    def duration(self) -> int:
        return self.timeline.duration

    @property
    def edges(self) -> tuple[int, int]:
        """Return start and end of the step on the trace's clock."""
        window = self.picked or capture_of(self.device, self.admitted)
        return window.start, window.end

    @cached_property
    def idle_causes(self) -> IdleCauses:
        """Find the causes of the step's idle time."""
        containers = {ran.metadata_id for ran in self.containers}
        enclosing = events_of(self.admitted.pieces, self.clock, containers)
        programs, waits = self.on_clock(
            [
                list(self.device.events_on(MODULES_LINE)),
                list(self.device.events_on(WAITS_LINE, (AT_BARRIER, FOR_INPUTS))),
            ]
        )
        return IdleCauses(self.timeline, programs, waits, enclosing)

    def idle_during(self, events: Sequence[Event]) -> int:
        """Return how long the device is idle during events of one of its other lines."""
        (spans,) = self.on_clock([events])
        cover = Cover.of(union((start, end) for start, end, _ in spans))
        return self.timeline.gaps.within_all(cover.starts, cover.ends)

    def on_clock(self, events_of_lines: Sequence[Sequence[Event]]) -> list[list[NamedSpan]]:
        """Convert the events of each line to the step's clock.

        An event without device times belongs to the nearest op, as a barrier belongs to the op that
        waits at it. So the event's start and end are each shifted by the same offset as the nearest
        measured start or end of an op. A start equal to the step's start on the trace's clock is
        converted to the step's start on the step's clock, and an end equal to the step's end is
        converted to the step's end.
        """
        if self.clock.name != ON_DEVICE:
            return [
                [(event.start, event.end, event.name) for event in events]
                for events in events_of_lines
            ]
        first, last = self.edges
        unmeasured = [event for events in events_of_lines for event in events if not event.measured]
        times = {event.start for event in unmeasured if event.start != first}
        times |= {event.end for event in unmeasured if event.end != last}
        shifts = shifts_nearby(self.admitted.pieces, times)

        def shifted(event: Event) -> tuple[int, int]:
            start, end = self.timeline.start, self.timeline.end
            if event.start != first:
                start = event.start + shifts[event.start]
            if event.end != last:
                end = event.end + shifts[event.end]
            return start, max(start, end)

        return [
            [(*(event.measured or shifted(event)), event.name) for event in events]
            for events in events_of_lines
        ]

    @property
    def ops(self) -> list[Op]:
        return [ran.op for ran in (*self.leaves, *self.containers)]

    @property
    def stack_order(self) -> StackOrder | None:
        """Return the frame order of most stacks in the step, or None if it has no stacks."""
        return majority_order(self.ops)

    def of_kinds(self, *kinds: str) -> list[Executions]:
        return [ran for ran in self.leaves if ran.op.kind in kinds]


def normalize(
    device: Device, picked: StepEvent | None, admitted: Admitted, context: Context
) -> Step:
    """Build a step from its events, and add notes about them."""
    context.warn(*admitted.notes)
    if picked and picked.n_events != admitted.n_started:
        # `count_starts` assumes one start per event, which can be wrong for unusual events.
        context.warn(
            f"the first count found {picked.n_events} events in this step, but {admitted.n_started}"
            " start in it; some events have several start times, so counts of other steps may"
            " also be wrong"
        )
        picked.n_events = admitted.n_started
    if picked is None:
        if not admitted.pieces:
            raise NoAnswer("empty_xla_ops_line")
        if not device.steps:
            context.note(
                "the trace has no Steps line; using the time of the whole XLA Ops line as the step"
            )
    step = step_of(device, picked, admitted, make_ops(device, [admitted], context))
    around = surroundings_of(step.leaves)
    for op in step.ops:
        op.around = around
    context.note(*clock_notes(step))
    context.warn(*false_stack_notes(step))
    own = context.request.mode_options.get("own")
    if own and not any(op.source_user for op in step.ops):
        context.warn(
            f"no op of this step has a source line in a file that --own {' --own '.join(own)}"
            " selects; pass a part of a file's path"
        )
    return step


def surroundings_of(leaves: Sequence[Executions]) -> Surroundings:
    # Read paths in the trace only, because programs take long to read.
    paths = (ran.op.tf_op for ran in leaves if ran.op.tf_op)
    lines = (
        (ran.op.tf_op, ran.op.source_user, ran.total)
        for ran in leaves
        if ran.op.tf_op and ran.op.source_user
    )
    return Surroundings(paths, lines)


def step_of(
    device: Device, picked: StepEvent | None, admitted: Admitted, ops: Mapping[int, Op]
) -> Step:
    """Build the step of a window; `ops` may include ops that do not run in the window."""
    clock, window = measure(picked or capture_of(device, admitted), admitted)
    timeline = timeline_of(admitted, clock, ops, window)
    return Step(device, picked, admitted, clock, timeline, fold(ops, admitted, clock))


def capture_of(device: Device, admitted: Admitted) -> StepEvent:
    """Return the whole capture as a step. It contains all ops and all steps, and so the time before
    the first op of a step and after the last one."""
    first, last = admitted.span
    start = min([first, *(step.start for step in device.steps)])
    end = max([last, *(step.end for step in device.steps)])
    # The core measured the capture if it measured steps that contain all ops.
    edges = [step for step in device.steps if step.start == start or step.end == end]
    spans = [step.device_span for step in edges if step.device_span]
    is_measured = edges and len(spans) == len(edges) and start < first and last < end
    device_span = (min(spans)[0], max(span[1] for span in spans)) if is_measured else None
    return StepEvent(0, None, start, end, device_span)


def measure(step: StepEvent, admitted: Admitted) -> tuple[Clock, tuple[int, int]]:
    """Return the clock of a step, and the step's start and end on this clock."""
    # If the core measured the step's start and end, the clock need not convert the end.
    clock = clock_of(admitted.pieces, [] if step.device_span else [step.end])
    return clock, window_of(step, admitted, clock)


def window_of(step: StepEvent, admitted: Admitted, clock: Clock) -> tuple[int, int]:
    """Convert a step's start and end from the trace's clock to the given clock."""
    if step.device_span and clock.name == ON_DEVICE:
        return step.device_span
    # No admitted op starts before the step. To keep this true, shift the step's start by the same
    # offset as the op that starts first on the step's clock, even if `clock.shifted` would use
    # another offset.
    first, shift = AFTER_ALL, 0
    for piece in admitted.pieces:
        starts, _ = clock.times(piece)
        # Most starts are already in order, so sorting is faster than `min`.
        if (lowest := sorted(starts)[0]) < first:
            first = lowest
            shift = first - piece.base - piece.starts[starts.index(first)]
    start = step.start + shift
    return start, max(start, clock.shifted(step.end))


def clock_notes(step: Step) -> list[str]:
    """Return a note if durations on the two clocks differ by more than 1 % in total, or if those of
    one op differ by more than 1 % of the step."""
    if step.clock.name == ON_TRACE:
        return []
    measured = off = worst = 0
    for piece in step.admitted.pieces:
        _, durations = step.clock.times(piece)
        differences = list(map(abs, map(sub, piece.durations, durations)))
        measured += sum(durations)
        off += sum(differences)
        worst = max(worst, *differences)
    if 100 * off <= measured and 100 * worst <= step.duration:
        return []
    return [
        "durations use the device's clock; on the trace's clock, which trace viewers"
        f" use, op durations differ by {time(off)} in total and by up to"
        f" {time(worst)} for one op"
    ]


def false_stack_notes(step: Step) -> list[str]:
    """Return a note about ops whose `source` disagrees with their stack."""
    false = Group(step.leaves).where(lambda op: op.has_other_source)
    if not false.members:
        return []
    return [
        f"in {counted(len(false.members), 'op')} ({time(false.total)}), the source is not the"
        " innermost frame of the stack, so the stack may be wrong"
    ]
