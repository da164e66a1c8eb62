"""Read the picked step on the other devices in a file, and on request the loads of all their
steps."""

from __future__ import annotations

from collections import Counter
from operator import attrgetter
from typing import NamedTuple

from _analysis.exposed import is_exposed
from _analysis.processes import work_on
from _analysis.recording import reasons_not_used
from _pipeline.clocks import ON_DEVICE
from _pipeline.device import TPU_RE, open_device
from _pipeline.event_iterate import admit, read_events
from _pipeline.idle_causes import BARRIER
from _pipeline.make_ops import make_ops
from _pipeline.no_answer import NoAnswer
from _pipeline.normalize import measure, step_of
from _pipeline.vocabulary import COMM, DMA, HOST, SPARSE_CORE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence, Set

    from _pipeline.context import Context
    from _pipeline.device import Device, StepEvent
    from _pipeline.event_iterate import Admitted
    from _pipeline.normalize import Step
    from _pipeline.ops import Op, Place

    # A step's name, and the number of earlier steps with the same name.
    StepKey = tuple[str | None, int]


class Loads(NamedTuple):
    """The loads of a device's used steps, and the mean time per step of each source line.

    The load of a step is its duration minus its communication time. Lines exclude communication.
    """

    steps: dict[StepKey, int]
    lines: dict[str, int]


class PeerDevice(NamedTuple):
    """A device's figures for the step, picklable so that worker processes can return them."""

    name: str
    # Durations of each collective's executions, sorted by start.
    durations: dict[Place, list[int]]
    # Ids of the programs that ran an op in the step.
    programs: frozenset[int | None]
    # Idle time at barriers, where the device waits for other devices.
    barrier: int
    # False if the core did not measure the times of any op; durations are then fitted to the host's
    # clock.
    is_measured: bool
    # Notes about events that were left out.
    notes: list[str]
    loads: Loads | None = None


class Execution(NamedTuple):
    """An execution of a collective."""

    # Start on the trace clock.
    start: int
    duration: int
    metadata_id: int


def tpus_of(device: Device) -> list[str]:
    """Return the names of the host's TPUs, sorted by number; empty if `device` is not a TPU."""
    names = [name for name in dict.fromkeys(device.planes) if TPU_RE.match(name)]
    return sorted(names, key=number_of) if device.plane.name in names else []


def number_of(name: str) -> int:
    match = TPU_RE.match(name)
    assert match, f"{name} is not a TPU"
    return int(match["number"])


def read_peers(
    step: Step, wanted: Set[Place], context: Context, *, with_loads: bool
) -> list[PeerDevice]:
    """Return all devices that have the step, including the picked device, sorted by number.

    `wanted` contains the program and name of each collective. Devices without the step are omitted,
    and a note reports them.
    """
    picked, trace = step.device, step.device.trace
    own = picked.plane.name
    key = _keys_of(picked.steps)[step.picked.index] if step.picked else None
    if with_loads and key is None:
        context.warn(
            "--peers can find the cause slow_device only in a single step; select one with --step"
        )
        with_loads = False

    def read(name: str) -> PeerDevice | str:
        try:
            of_device = context.with_own_notes()
            device = open_device(picked.path, trace, name, [], of_device, picked.is_own)
            return _read_device(device, key, wanted, of_device, with_loads=with_loads)
        except NoAnswer as failure:
            return failure.reason

    tpus = tpus_of(picked)
    # Read the picked device again if loads are needed: so far only one of its steps was read.
    to_read = [name for name in tpus if name != own or (with_loads and len(tpus) > 1)]
    results = work_on(read, to_read, "reading devices", context, trace.file_size)
    found = dict(zip(to_read, results, strict=True))
    if own not in found:
        found[own] = _peer_of(step, wanted)
    left_out = ((name, why) for name, why in found.items() if isinstance(why, str))
    context.warn(*(f"--peers: {name} is left out: {why}" for name, why in left_out))
    return [peer for name in tpus or [own] if isinstance(peer := found[name], PeerDevice)]


def _keys_of(steps: Iterable[StepEvent]) -> list[StepKey]:
    times: Counter[str | None] = Counter()
    keys = []
    for step in steps:
        keys.append((step.name, times[step.name]))
        times[step.name] += 1
    return keys


def _read_device(
    device: Device, key: StepKey | None, wanted: Set[Place], context: Context, *, with_loads: bool
) -> PeerDevice | str:
    """Read the step with the given key, or all steps if loads are needed. Without a key, read the
    entire line."""
    events = dict(zip(_keys_of(device.steps), device.steps, strict=True))
    if key is not None and key not in events:
        name, n_earlier = key
        if n_earlier:
            return f"it has fewer than {n_earlier + 1} steps named {name!r}"
        return f"it has no step named {name!r}"
    event = events[key] if key else None
    if not with_loads or event is None:
        admitted = read_events(device, event)
        if event is None and not admitted.pieces:
            raise NoAnswer("empty_xla_ops_line")
        ops = make_ops(device, [admitted], context)
        return _peer_of(step_of(device, event, admitted, ops), wanted)
    of_steps = admit(device, [(step.start, step.end) for step in device.steps])
    ops = make_ops(device, of_steps, context)
    peer = _peer_of(step_of(device, event, of_steps[event.index], ops), wanted)
    return peer._replace(loads=_loads_of(device, events, of_steps, ops))


def _peer_of(step: Step, wanted: Set[Place]) -> PeerDevice:
    places = {
        executions.metadata_id: executions.op.place
        for executions in step.leaves
        if executions.op.place in wanted
    }
    return PeerDevice(
        step.device.plane.name,
        {
            place: [execution.duration for execution in executions]
            for place, executions in executions_by_place(step, places).items()
        },
        frozenset(op.program_id for op in step.ops),
        step.causes.of_step[BARRIER],
        step.clock.name == ON_DEVICE or not step.admitted.pieces,
        step.admitted.notes,
    )


def executions_by_place(step: Step, places: Mapping[int, Place]) -> dict[Place, list[Execution]]:
    """Return the executions by the op's program and name, sorted by start; ties keep the file's
    order.

    `places` maps metadata ids to program and name; several metadata ids can have the same program
    and name.
    """
    found: dict[Place, list[Execution]] = {}
    for piece in step.admitted.pieces:
        if places.keys().isdisjoint(piece.distinct_ids):
            continue
        _, durations = step.clock.times(piece)
        columns = zip(piece.metadata_ids, piece.starts, durations, strict=True)
        for metadata_id, start, duration in columns:
            if metadata_id in places:
                execution = Execution(piece.base + start, duration, metadata_id)
                found.setdefault(places[metadata_id], []).append(execution)
    for executions in found.values():
        executions.sort(key=attrgetter("start"))
    return found


def _loads_of(
    device: Device,
    events: Mapping[StepKey, StepEvent],
    of_steps: Sequence[Admitted],
    ops: Mapping[int, Op],
) -> Loads:
    for event, admitted in zip(events.values(), of_steps, strict=True):
        event.n_events = admitted.n_started
    reasons = reasons_not_used(device, device.steps)
    leaves = {metadata_id: op for metadata_id, op in ops.items() if not op.is_container}
    comm = {
        metadata_id
        for metadata_id, op in leaves.items()
        if is_exposed(op) and op.waits_for not in (HOST, SPARSE_CORE, DMA)
    }
    line_of = {metadata_id: op.source_user for metadata_id, op in leaves.items() if op.kind != COMM}
    steps: dict[StepKey, int] = {}
    lines: Counter[str | None] = Counter()
    for (key, event), admitted, why_not in zip(events.items(), of_steps, reasons, strict=True):
        if why_not:
            continue
        _, (start, end), executions = measure(event, admitted, ops)
        steps[key] = end - start
        for metadata_id, of_op in executions.items():
            if metadata_id in comm:
                steps[key] -= of_op.total
            if metadata_id in line_of:
                lines[line_of[metadata_id]] += of_op.total
    means = {line: total // len(steps) for line, total in lines.items() if line}
    return Loads(steps, means)
