"""Read the picked step on the other devices in a file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import compress
from operator import attrgetter

from _breakdown.analysis.devices.cohort import StepSums
from _breakdown.analysis.processes import work_on
from _breakdown.analysis.roof.exposed import part_of
from _breakdown.light import NamedTuple
from _breakdown.pipeline.clocks import ON_DEVICE
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.device import Device, open_device, tpus_of
from _breakdown.pipeline.event_iterate import read_events
from _breakdown.pipeline.idle_causes import barriers_of
from _breakdown.pipeline.make_ops import make_ops
from _breakdown.pipeline.no_answer import NoAnswer
from _breakdown.pipeline.normalize import Step, step_of
from _breakdown.pipeline.ops import Place
from _breakdown.pipeline.step_event import StepEvent
from _breakdown.pipeline.vocabulary import COMM
from _proto.errors import Damage

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _breakdown.analysis.devices.record_format import RecordedStep

# A step's name, and the number of earlier steps with the same name.
StepKey = tuple[str | None, int]


class PeerDevice(NamedTuple):
    """A device's figures for the step, picklable so that worker processes can return them."""

    name: str
    # Identifies the device among the devices of all hosts; None if unknown.
    core_id: int | None
    # Durations of each collective's executions, sorted by start.
    durations: dict[Place, list[int]]
    # Ids of the programs that ran an op in the step.
    programs: frozenset[int | None]
    # False if the core did not measure the times of any op; durations are then fitted to the host's
    # clock.
    is_measured: bool
    # Notes about events that were left out.
    notes: list[str]
    sums: StepSums
    # Time of each source line, excluding communication.
    lines: dict[str, int]


class CollectiveRun(NamedTuple):
    """An execution of a collective."""

    # Start on the trace clock.
    start: int
    duration: int
    metadata_id: int


def read_peers(step: Step, context: Context) -> tuple[list[PeerDevice], list[str]]:
    """Return all devices that have the step, including the picked device, sorted by number, and
    notes about devices that are left out because they do not have it."""
    picked, trace = step.device, step.device.trace
    own = picked.plane.name

    def read(name: str) -> PeerDevice | str:
        try:
            of_device = context.with_own_notes()
            programs = picked.programs if trace.rank_of(name) is picked.rank else None
            device = open_device(picked.path, trace, name, [], of_device, picked.is_own, programs)
            return _read_device(device, of_device, step)
        except NoAnswer as failure:
            return failure.reason
        except Damage as damage:
            # The picked device is intact, so its answer is right without this device.
            damage = trace.in_file(damage)
            return f"it is damaged at byte {damage.offset}: {damage.what}"

    tpus = tpus_of(picked)
    found: dict[str, PeerDevice | str] = {**peers_read(step), own: peer_of(step)}
    to_read = [name for name in tpus if name not in found]
    results = work_on(read, to_read, "reading devices", context, trace.file_size)
    found |= zip(to_read, results, strict=True)
    left_out = ((name, why) for name, why in found.items() if isinstance(why, str))
    notes = [f"other devices: {name} is left out: {why}" for name, why in left_out]
    return [peer for name in tpus or [own] if isinstance(peer := found[name], PeerDevice)], notes


def peers_read(step: Step) -> dict[str, PeerDevice]:
    """Return the devices of which a record has read the step before, by name."""
    return step.once(peers_read, dict)


def keys_of(steps: Iterable[StepEvent | RecordedStep]) -> list[StepKey]:
    """Return the keys by which steps of different devices are recognised as the same: the k-th step
    named `x` matches the k-th step named `x` on other devices."""
    times: Counter[str | None] = Counter()
    keys = []
    for step in steps:
        keys.append((step.name, times[step.name]))
        times[step.name] += 1
    return keys


def counterpart_of(picked: StepEvent, of: Device, on: Device) -> StepEvent | str:
    """Return the step of another device that is the same as a device's picked step, or why there is
    none.

    Steps of other sources have equal keys. The captures of two devices can begin in different
    cycles, so a cycle's counterpart is the one of its kind that begins nearest.
    """
    if of.has_cycles:
        alike = [step for step in on.steps if step.kind == picked.kind]
        start = picked.start + of.base - on.base
        nearest = min(alike, key=lambda step: abs(step.start - start), default=None)
        return nearest or f"it has no step named {picked.name!r}"
    key = name, n_earlier = keys_of(of.steps)[picked.index]
    events = dict(zip(keys_of(on.steps), on.steps, strict=True))
    if n_earlier and key not in events:
        return f"it has fewer than {n_earlier + 1} steps named {name!r}"
    return events.get(key) or f"it has no step named {name!r}"


def _read_device(device: Device, context: Context, picked: Step) -> PeerDevice | str:
    """Read the same step as `picked` on another device: the entire line if no step is picked."""
    event = None
    if picked.picked:
        found = counterpart_of(picked.picked, picked.device, device)
        if isinstance(found, str):
            return found
        event = found
    admitted = read_events(device, event)
    if event is None and not admitted.pieces:
        raise NoAnswer("empty_xla_ops_line")
    of_picked = {metadata_id: ran.op for metadata_id, ran in picked.executions.items()}
    ops = make_ops(device, [admitted], context, (picked.device, of_picked))
    return peer_of(step_of(device, event, admitted, ops))


def peer_of(step: Step) -> PeerDevice:
    """Return the figures of a device for its step."""
    # Import late, because the module requires protobuf, which may be missing.
    from _proto.trace.trace import global_core_id

    places = {ran.metadata_id: ran.op.place for ran in step.leaves if part_of(ran.op) == "comm"}
    return PeerDevice(
        step.device.plane.name,
        global_core_id(step.device.stats),
        {
            place: [execution.duration for execution in executions]
            for place, executions in executions_by_place(step, places).items()
        },
        frozenset(op.program_id for op in step.ops),
        step.clock.name == ON_DEVICE or not step.admitted.pieces,
        step.admitted.notes,
        step_sums(step),
        lines_of(step),
    )


def executions_by_place(
    step: Step, places: Mapping[int, Place]
) -> dict[Place, list[CollectiveRun]]:
    """Return the executions by the op's program and name, sorted by start; ties keep the file's
    order.

    `places` maps metadata ids to program and name; several metadata ids can have the same program
    and name.
    """
    found: dict[Place, list[CollectiveRun]] = {}
    for piece in step.admitted.pieces:
        if places.keys().isdisjoint(piece.distinct_ids):
            continue
        _, durations = step.clock.times(piece)
        is_wanted = list(map(places.__contains__, piece.metadata_ids))
        columns = (piece.starts, durations, piece.metadata_ids)
        for start, duration, metadata_id in zip(
            *(compress(column, is_wanted) for column in columns), strict=True
        ):
            execution = CollectiveRun(piece.base + start, duration, metadata_id)
            found.setdefault(places[metadata_id], []).append(execution)
    for executions in found.values():
        executions.sort(key=attrgetter("start"))
    return found


def step_sums(step: Step) -> StepSums:
    """Add up the times of a step, as mode `spread` does from a record."""
    parts = {"comm": 0, "host": 0, None: 0}
    wait = 0
    for ran in step.leaves:
        op = ran.op
        parts[part_of(op)] += ran.total
        wait += ran.total if op.is_wait else 0
    barrier = step.idle_during(barriers_of(step.device))
    return StepSums(step.duration, step.timeline.busy, parts["comm"], parts["host"], wait, barrier)


def lines_of(step: Step) -> dict[str, int]:
    """Return the time of each source line, excluding communication."""
    lines: Counter[str] = Counter()
    for ran in step.leaves:
        if ran.op.kind != COMM and ran.op.source_user:
            lines[ran.op.source_user] += ran.total
    return lines
