"""Compute the figures of each step on each device of a trace, as stored in records."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import compress
from operator import attrgetter
from typing import Literal

from _breakdown.analysis.devices.cohort import StepSums
from _breakdown.analysis.devices.peer_devices import PeerDevice, counterpart_of, peer_of, peers_read
from _breakdown.analysis.idle.periods import periods_by_index
from _breakdown.analysis.processes import work_on
from _breakdown.analysis.roof.exposed import Part, part_of
from _breakdown.light import NamedTuple
from _breakdown.pipeline.clocks import ON_DEVICE, ON_TRACE, ClockName
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.device import BEFORE_ALL, STEPS, Device, Event, StepSource, open_device
from _breakdown.pipeline.event_iterate import ALWAYS, admit
from _breakdown.pipeline.groups import SourceKey, source_key, summed
from _breakdown.pipeline.idle_causes import barriers_of
from _breakdown.pipeline.make_ops import make_ops
from _breakdown.pipeline.no_answer import NoAnswer
from _breakdown.pipeline.normalize import Step, step_of
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.step_event import StepEvent, main_kind
from _breakdown.pipeline.texts import digest_of
from _breakdown.pipeline.timeline import events_of
from _breakdown.pipeline.vocabulary import CONTAINER
from _breakdown.pipeline.window_sums import WindowSums, sums_in, sums_of
from _breakdown.units import counted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.hlo.programs import Programs
    from _proto.trace.ranks import Rank
    from _proto.trace.trace import Trace

# A step is not used if its number of ops differs from the median by more than one op in
# `OPS_PER_OTHER`.
OPS_PER_OTHER = 50
CONDITIONAL = "conditional"
WhyNot = Literal["no_ops", "other_op_count", "other_program", "not_asked"]


class OpFacts(NamedTuple):
    """The properties of an op that a record lists. Devices mostly have equal ops."""

    source: str | None
    tf_op: str | None
    kernel: str | None


class GroupFacts:
    """A group, and the properties of its ops, by which it is recognised in another capture."""

    def __init__(self, op: Op) -> None:
        # Containers, such as loops, do not belong to any group.
        assert op.kind != CONTAINER
        self.kind, self.agg_key, self.agg_key_kind = op.kind, op.agg_key, op.agg_key_kind
        self.frames = op.stack.frames if op.stack else ()
        self.ops: set[OpFacts] = set()


class Leaf(NamedTuple):
    """An op that is not a container, and the sums that include its time."""

    op: Op
    key: SourceKey
    group: GroupFacts
    part: Part | None
    # True if the time of the op counts as waiting.
    is_wait: bool


class StepToRecord(NamedTuple):
    """A step of a device; `sums` and `times` are None if the step is not used."""

    # Index of the step in order of time.
    number: int
    name: str | None
    n_events: int
    duration: int
    # Time until the next step of the same name starts; None if there is no next step.
    period: int | None
    why_not: WhyNot | None
    sums: StepSums | None
    # Time and number of executions of each group.
    times: dict[SourceKey, tuple[int, int]] | None


class DeviceFacts(NamedTuple):
    """A recorded device."""

    device: str
    device_type: str | None
    clock: ClockName
    step_source: StepSource | None
    program: str
    # Id of the program that takes the most time in the steps read.
    program_id: int | None
    steps: list[StepToRecord]
    # Figures of the step that is compared with another device's; None if there is none.
    peer: PeerDevice | None
    groups: dict[SourceKey, GroupFacts]
    notes: list[str]


class Shared:
    """Facts that the devices recorded in one process share: most groups, and most ops."""

    def __init__(self) -> None:
        self._groups: dict[SourceKey, GroupFacts] = {}
        # The latest leaf with each metadata id.
        self._leaves: dict[int, Leaf] = {}
        # The texts of the latest program, and their digest.
        self._program: tuple[set[str], str] | None = None
        # The first device, with its ops.
        self.first: tuple[Device, dict[int, Op]] | None = None

    def digest_of(self, texts: set[str]) -> str:
        if self._program is None or self._program[0] != texts:
            self._program = texts, digest_of_all(texts)
        return self._program[1]

    def leaves_among(self, ops: Mapping[int, Op]) -> dict[int, Leaf]:
        """Return the ops that are not containers, and add them to their groups."""
        leaves = {}
        for metadata_id, op in ops.items():
            if not op.is_container:
                leaf = self._leaves.get(metadata_id)
                if leaf is None or leaf.op is not op:
                    leaf = self._leaves[metadata_id] = self._leaf_of(op)
                leaves[metadata_id] = leaf
        return leaves

    def _leaf_of(self, op: Op) -> Leaf:
        key = source_key(op)
        if key not in self._groups:
            self._groups[key] = GroupFacts(op)
        group = self._groups[key]
        group.ops.add(OpFacts(op.source_inner, op.tf_op, op.kernel))
        return Leaf(op, key, group, part_of(op), op.is_wait)

    def programs(self, rank: Rank | None, notes: list[str]) -> Programs | None:
        """Return the programs of the first device, which from now on note damage in `notes`. Return
        None for another rank, or if a program is damaged, because each device needs a note."""
        if self.first is None or rank is None:
            return None
        device, _ = self.first
        if device.rank is not rank or not device.programs.is_intact:
            return None
        device.programs.notes = notes
        return device.programs


def record_device(
    device: Device, asked: slice, compared: Step | None, shared: Shared, context: Context
) -> DeviceFacts:
    """Record a device: groups from all usable steps, but figures only for the steps selected by
    `asked`. Compare a step of another device with its counterpart."""
    steps = device.steps or [StepEvent(0, None, 0, 0, None)]
    windows = [(step.start, step.end) for step in device.steps] or [ALWAYS]
    admitted = admit(device, windows)
    for step_event, of_step in zip(steps, admitted, strict=True):
        step_event.n_events = of_step.n_started
    if not any(of_step.pieces for of_step in admitted):
        raise NoAnswer("empty_xla_ops_line")
    reasons = reasons_not_used(device, steps)
    is_used = [not why_not for why_not in reasons]
    ops = make_ops(device, list(compress(admitted, is_used)), context, shared.first)
    shared.first = shared.first or (device, ops)
    leaves = shared.leaves_among(ops)
    asked_for = set(range(len(steps))[asked])
    periods = periods_by_index(device)
    barriers = barriers_of(device)
    used = UsedSteps(ops, leaves)
    counterpart = peer = None
    if compared and compared.picked and compared.device.plane.name != device.plane.name:
        counterpart = counterpart_of(compared.picked, compared.device, device)
    recorded = []
    for event, of_step, reason in zip(steps, admitted, reasons, strict=True):
        sums, whole, barrier = None, None, 0
        picked = event if device.steps else None
        waits = barriers if picked is None else barriers_in(barriers, picked)
        if event is counterpart:
            # A step that is not used can have other ops.
            own = make_ops(device, [of_step], context.with_own_notes(), (device, ops))
            whole = step_of(device, event, of_step, own)
            peer = peer_of(whole)
        elif waits and not reason:
            whole = step_of(device, picked, of_step, ops)
        if not reason:
            sums = sums_in(whole) if whole else sums_of(picked, of_step, used.containers)
            barrier = whole.idle_during(waits) if whole else 0
            used.add(sums)
        why_not = reason or (None if event.index in asked_for else "not_asked")
        period = periods.get(event.index)
        recorded.append(record_step(event, sums, barrier, period, why_not, leaves))
        # The events need more memory than the sums of the steps that follow.
        of_step.pieces.clear()
    context.warn(*notes_on_dropped(admitted[0].n_aggregated + used.n_dropped))
    return DeviceFacts(
        device=device.plane.name,
        device_type=device.type,
        clock=used.clock,
        step_source=device.step_source if device.steps else None,
        program=shared.digest_of(used.texts),
        program_id=used.main_program,
        steps=recorded,
        peer=peer,
        groups={leaf.key: leaf.group for leaf in leaves.values()},
        notes=context.notes,
    )


class UsedSteps:
    """Facts about all used steps of a device. They are collected step by step, because the times of
    all ops in all steps need more memory than the events."""

    def __init__(self, ops: Mapping[int, Op], leaves: Mapping[int, Leaf]) -> None:
        self._ops, self._leaves = ops, leaves
        self.containers = ops.keys() - leaves.keys()
        self.clock: ClockName = ON_TRACE
        # Events left out, except aggregated events, which are in no step.
        self.n_dropped = 0
        self._branches = {i for i, op in ops.items() if op.category == CONDITIONAL}
        self._outside: set[int] = set()
        # Times of the programs; not computed if there is only one.
        programs = (leaf.op.program_id for leaf in leaves.values())
        self._times = {program: 0 for program in programs if program is not None}

    def add(self, step: WindowSums) -> None:
        if step.clock.name == ON_DEVICE:
            self.clock = ON_DEVICE
        self.n_dropped += step.admitted.n_dropped - step.admitted.n_aggregated
        if self._branches:
            self._outside |= ids_outside(self._branches, step)
        if len(self._times) > 1:
            for metadata_id, leaf in self._leaves.items():
                if leaf.op.program_id is not None:
                    self._times[leaf.op.program_id] += step.times.get(metadata_id, 0)

    @property
    def texts(self) -> set[str]:
        """Return the texts of all ops outside of branches. Ops in branches are excluded: steps that
        take different branches still run the same program."""
        outside = self._outside if self._branches else self._ops
        return {self._ops[metadata_id].text for metadata_id in outside}

    @property
    def main_program(self) -> int | None:
        """Return the id of the program that takes the most time; None if no op has a program id."""
        return max(self._times, key=self._times.__getitem__, default=None)


def notes_on_dropped(n_dropped: int) -> list[str]:
    if not n_dropped:
        return []
    return [
        f"left out {counted(n_dropped, 'event')} of the XLA Ops line (no metadata, no time or a"
        " negative duration)"
    ]


def barriers_in(barriers: Sequence[Event], step: StepEvent) -> Sequence[Event]:
    """Return the barriers that overlap a step; a core is at one barrier at a time."""
    first = bisect_right(barriers, step.start, key=attrgetter("end"))
    return barriers[first : bisect_left(barriers, step.end, key=attrgetter("start"))]


def record_step(
    event: StepEvent,
    step: WindowSums | None,
    barrier: int,
    period: int | None,
    why_not: WhyNot | None,
    leaves: Mapping[int, Leaf],
) -> StepToRecord:
    """Record a step. The step's duration is on the clock of its ops if these were read, else on the
    trace clock."""
    duration = step.duration if step else event.end - event.start
    sums = times = None
    if step and not why_not:
        sums, times = sums_of_leaves(step, barrier, leaves)
    return StepToRecord(
        event.index, event.name, event.n_events, duration, period, why_not, sums, times
    )


def sums_of_leaves(
    step: WindowSums, barrier: int, leaves: Mapping[int, Leaf]
) -> tuple[StepSums, dict[SourceKey, tuple[int, int]]]:
    """Return the sums of a step, and time and number of executions of each group."""
    times: dict[SourceKey, tuple[int, int]] = {}
    parts = {"comm": 0, "host": 0, None: 0}
    wait = 0
    for metadata_id, time in step.times.items():
        leaf = leaves.get(metadata_id)
        if leaf is None:
            continue
        total, n = times.get(leaf.key, (0, 0))
        times[leaf.key] = total + time, n + step.counts[metadata_id]
        parts[leaf.part] += time
        if leaf.is_wait:
            wait += time
    return StepSums(step.duration, step.busy, parts["comm"], parts["host"], wait, barrier), times


def reasons_not_used(device: Device, steps: Sequence[StepEvent]) -> list[WhyNot | None]:
    """Return, for each step, the reason why it is not used, or None if it is used. Steps must run
    the same program with about the same number of ops to be comparable."""
    n_ops = summed((step.kind, step.n_events) for step in steps)
    program = max(n_ops, key=n_ops.__getitem__)
    if device.has_cycles:
        program = main_kind(steps)
    # If all steps have names of their own, the names do not tell programs apart.
    has_programs = device.step_source != STEPS or len(n_ops) < len(steps)

    def is_other(step: StepEvent) -> bool:
        return has_programs and step.kind != program

    counts = sorted(step.n_events for step in steps if step.n_events and not is_other(step))
    middle = counts[(len(counts) - 1) // 2] if counts else 0

    def reason(step: StepEvent) -> WhyNot | None:
        if not step.n_events:
            return "no_ops"
        if is_other(step):
            return "other_program"
        is_usual = OPS_PER_OTHER * abs(step.n_events - middle) <= middle
        return None if is_usual else "other_op_count"

    return [reason(step) for step in steps]


def ids_outside(branches: Set[int], step: WindowSums) -> set[int]:
    """Return the metadata ids of the ops that a step executes outside of branches."""
    if branches.isdisjoint(step.times):
        return set(step.times)
    events = [
        (start, -duration, metadata_id not in branches, metadata_id)
        for start, duration, metadata_id in events_of(
            step.admitted.pieces, step.clock, step.times.keys()
        )
    ]
    found = set()
    branch_end = BEFORE_ALL
    # Sort events so that an op comes before the ops that it encloses.
    for start, negative_duration, is_no_branch, metadata_id in sorted(events):
        if start >= branch_end:
            found.add(metadata_id)
        if not is_no_branch:
            branch_end = max(branch_end, start - negative_duration)
    return found


def digest_of_all(texts: Iterable[str]) -> str:
    return digest_of("\n".join(sorted(texts)))


def record_devices(
    path: str,
    trace: Trace,
    names: Sequence[str],
    asked: slice,
    compared: Step | None,
    context: Context,
) -> list[DeviceFacts]:
    """Record the devices that have ops; if no device has ops, raise NoAnswer with the first
    device's reason. Compare a step of one of them with its counterparts."""
    shared = Shared()

    def record_one(name: str) -> DeviceFacts | NoAnswer:
        try:
            of_device = context.with_own_notes()
            programs = shared.programs(trace.rank_of(name), of_device.warnings)
            device = open_device(path, trace, name, [], of_device, programs=programs)
            return record_device(device, asked, compared, shared, of_device)
        except NoAnswer as failure:
            return failure

    found = work_on(record_one, names, "reading devices", context, trace.file_size)
    devices = [result for result in found if isinstance(result, DeviceFacts)]
    if not devices:
        raise next(result for result in found if isinstance(result, NoAnswer))
    if compared:
        peers_read(compared).update({each.device: each.peer for each in devices if each.peer})
    return devices
