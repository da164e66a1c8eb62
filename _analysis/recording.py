"""Record a trace: compute the figures of all steps of all devices, and build the rows that `record`
prints.

`compare` and `spread` read these rows, either from a file or directly from a trace.
"""

from __future__ import annotations

import os
from collections import Counter
from itertools import chain, compress
from typing import NamedTuple

from _analysis.exposed import is_exposed
from _analysis.periods import periods_by_index
from _analysis.processes import work_on
from _analysis.record_format import FORMAT
from _pipeline.clocks import ON_DEVICE, ON_TRACE
from _pipeline.context import SCHEMA_VERSION
from _pipeline.device import BEFORE_ALL, MODULES, TPU_RE, StepEvent, open_device
from _pipeline.event_iterate import ALWAYS, admit
from _pipeline.folders import host_of
from _pipeline.groups import source_key
from _pipeline.load import opened, opened_hosts
from _pipeline.make_ops import make_ops
from _pipeline.no_answer import NoAnswer, no_device
from _pipeline.texts import LONGEST_TEXT, cut_texts, digest_of
from _pipeline.timeline import events_of
from _pipeline.vocabulary import CONTAINER, DMA, HOST, SPARSE_CORE
from _pipeline.window_sums import sums_of
from _proto.trace import STDIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    from _output.fields.record import (
        Answer,
        RecordDevice,
        RecordGroup,
        RecordProgram,
        RecordStep,
        WhyNot,
    )
    from _output.fields.units import Clock, StepSource
    from _pipeline.context import Context
    from _pipeline.device import Device
    from _pipeline.groups import SourceKey
    from _pipeline.load import Place
    from _pipeline.ops import Op
    from _pipeline.window_sums import WindowSums
    from _proto.trace.trace import Trace

# Maximum number of texts in a list of a group.
N_LISTED = 32
# A step counts as different if the number of ops differs by more than one op in OPS_PER_OTHER.
OPS_PER_OTHER = 50
CONDITIONAL = "conditional"


class GroupFacts:
    """The facts by which a group is found in another capture, collected from all ops of the
    group."""

    def __init__(self, op: Op) -> None:
        # Containers, such as loops, are in no group.
        assert op.kind != CONTAINER
        self.kind, self.agg_key, self.agg_key_kind = op.kind, op.agg_key, op.agg_key_kind
        self.frames = op.stack.frames if op.stack else ()
        self.sources: set[str] = set()
        self.tf_ops: set[str] = set()
        self.signatures: set[str] = set()
        self.kernels: set[str] = set()
        self.shapes: set[str] = set()
        self.texts: set[str] = set()

    def add(self, op: Op) -> None:
        if op.source_inner:
            self.sources.add(op.source_inner)
        if op.tf_op:
            self.tf_ops.add(op.tf_op)
        self.signatures.add(op.signature)
        if op.kernel:
            self.kernels.add(op.kernel)
        self.shapes.update(f"{array.dtype}[{array.dims}]" for array in op.hlo.outputs)
        self.texts.add(op.text)

    def merge(self, other: GroupFacts) -> None:
        self.sources |= other.sources
        self.tf_ops |= other.tf_ops
        self.signatures |= other.signatures
        self.kernels |= other.kernels
        self.shapes |= other.shapes
        self.texts |= other.texts


class StepFigures(NamedTuple):
    """The figures of a used step, in picoseconds."""

    busy: int
    comm: int
    host: int
    wait: int
    # Time and number of executions by group.
    times: dict[SourceKey, tuple[int, int]]


class StepOfDevice(NamedTuple):
    """A step of a device. A step with figures is used."""

    # Index of the step by time.
    number: int
    name: str | None
    n_events: int
    duration: int
    # Time until the next step of its name starts; None if there is none.
    period: int | None
    why_not: WhyNot | None
    figures: StepFigures | None


class DeviceFacts(NamedTuple):
    """A recorded device."""

    device: str
    device_type: str | None
    clock: Clock
    step_source: StepSource | None
    program: str
    # The id of the program that takes most time in the used steps.
    program_id: int | None
    steps: list[StepOfDevice]
    groups: dict[SourceKey, GroupFacts]
    notes: list[str]


def record_device(
    device: Device, asked: slice, known: dict[SourceKey, GroupFacts], context: Context
) -> DeviceFacts:
    """Record a device: facts about all steps that can be used, and figures of the steps in a slice.

    `known` holds the facts of each group once, because devices share most groups.
    """
    steps = device.steps or [StepEvent(0, None, 0, 0, None, 0)]
    windows = [(step.start, step.end) for step in device.steps] or [ALWAYS]
    admitted = admit(device, windows)
    for step_event, of_step in zip(steps, admitted, strict=True):
        step_event.n_events = of_step.n_started
    if not any(of_step.pieces for of_step in admitted):
        raise NoAnswer("empty_xla_ops_line")
    reasons = reasons_not_used(steps, are_modules=device.step_source == MODULES)
    is_used = [not why_not for why_not in reasons]
    ops = make_ops(device, list(compress(admitted, is_used)), context)
    containers = {metadata_id for metadata_id, op in ops.items() if op.is_container}
    used = [
        None if why_not else sums_of(step_event if device.steps else None, of_step, ops, containers)
        for step_event, of_step, why_not in zip(steps, admitted, reasons, strict=True)
    ]
    read = [step for step in used if step]
    n_aggregated = admitted[0].n_aggregated
    n_dropped = n_aggregated + sum(step.admitted.n_dropped - n_aggregated for step in read)
    if n_dropped:
        context.warn(
            f"{n_dropped} XLA Ops events left out: no metadata, no time or a negative duration"
        )
    asked_for = set(range(len(steps))[asked])
    periods = periods_by_index(device)
    ran = dict.fromkeys(executions.op for step in read for executions in step.leaves)
    return DeviceFacts(
        device=device.plane.name,
        device_type=device.type,
        clock=ON_DEVICE if any(step.clock.name == ON_DEVICE for step in read) else ON_TRACE,
        step_source=device.step_source if device.steps else None,
        program=digest_of_all(set(chain.from_iterable(map(texts_of_program, read)))),
        program_id=main_program_of(read),
        steps=[
            record_step(event, step, periods.get(event.index), why_not, event.index in asked_for)
            for event, step, why_not in zip(steps, used, reasons, strict=True)
        ],
        groups=facts_of(ran, known),
        notes=context.notes,
    )


def main_program_of(steps: Iterable[WindowSums]) -> int | None:
    """Return the id of the program that takes most time; None if no op has one."""
    times: Counter[int] = Counter()
    for step in steps:
        for executions in step.leaves:
            if executions.op.program_id is not None:
                times[executions.op.program_id] += executions.total
    return max(times, key=times.__getitem__, default=None)


def record_step(
    event: StepEvent,
    step: WindowSums | None,
    period: int | None,
    why_not: WhyNot | None,
    is_asked: bool,
) -> StepOfDevice:
    """Record a step. Times are on the clock of the step's ops if these were read, else on the
    trace's clock."""
    duration = step.duration if step else event.end - event.start
    if step and not is_asked:
        why_not = "not_asked"
    figures = figures_of(step) if step and is_asked else None
    return StepOfDevice(event.index, event.name, event.n_events, duration, period, why_not, figures)


def figures_of(step: WindowSums) -> StepFigures:
    times: dict[SourceKey, tuple[int, int]] = {}
    for executions in step.leaves:
        key = source_key(executions.op)
        total, n = times.get(key, (0, 0))
        times[key] = total + executions.total, n + executions.n
    comm = host = wait = 0
    for executions in step.leaves:
        op = executions.op
        if not is_exposed(op):
            continue
        if op.waits_for == HOST:
            host += executions.total
        elif op.waits_for not in (SPARSE_CORE, DMA):
            comm += executions.total
        if op.is_wait:
            wait += executions.total
    return StepFigures(step.busy, comm, host, wait, times)


def facts_of(ops: Iterable[Op], known: dict[SourceKey, GroupFacts]) -> dict[SourceKey, GroupFacts]:
    """Return the groups of some ops in order of appearance, and add the ops to the known groups."""
    groups = {}
    for op in ops:
        key = source_key(op)
        if key not in known:
            known[key] = GroupFacts(op)
        groups[key] = known[key]
        groups[key].add(op)
    return groups


def reasons_not_used(steps: Sequence[StepEvent], are_modules: bool) -> list[WhyNot | None]:
    """Return, for each step, the reason why the step is not used, or None. Only steps with equal
    ops are compared."""
    n_ops: Counter[str | None] = Counter()
    for step in steps:
        n_ops[step.name] += step.n_events
    program, _ = n_ops.most_common(1)[0]

    def is_other(step: StepEvent) -> bool:
        return are_modules and step.name != program

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


def texts_of_program(step: WindowSums) -> set[str]:
    """Return the texts of all ops outside branches, because a step that takes another branch still
    runs the same program."""
    ops = [executions.op for executions in step.sums.values()]
    if not any(op.category == CONDITIONAL for op in ops):
        return {op.text for op in ops}
    ids = set(chain.from_iterable(piece.metadata_ids for piece in step.admitted.pieces))
    events = [
        (start, -duration, op.category != CONDITIONAL, op.text)
        for start, duration, metadata_id in events_of(step.admitted.pieces, step.clock, ids)
        for op in [step.sums[metadata_id].op]
    ]
    texts = set()
    branch_end = BEFORE_ALL
    # Sort events so that an op comes before the ops that it encloses.
    for start, negative_duration, is_no_branch, text in sorted(events):
        if start >= branch_end:
            texts.add(text)
        if not is_no_branch:
            branch_end = max(branch_end, start - negative_duration)
    return texts


def digest_of_all(texts: Iterable[str]) -> str:
    return digest_of("\n".join(sorted(texts)))


def record_devices(
    path: str, trace: Trace, names: Sequence[str], asked: slice, context: Context
) -> list[DeviceFacts]:
    """Record the devices that have ops; if no device has ops, raise NoAnswer with the first
    reason."""
    known: dict[SourceKey, GroupFacts] = {}

    def record_one(name: str) -> DeviceFacts | tuple[str, dict[str, Any]]:
        try:
            of_device = context.with_own_notes()
            device = open_device(path, trace, name, [], of_device)
            return record_device(device, asked, known, of_device)
        except NoAnswer as failure:
            # Return reason and fields separately, because exceptions with keywords cannot be
            # pickled.
            return failure.reason, failure.fields

    found = work_on(record_one, names, "reading devices", context, trace.file_size)
    devices = [result for result in found if isinstance(result, DeviceFacts)]
    if not devices:
        reason, fields = next(result for result in found if not isinstance(result, DeviceFacts))
        raise NoAnswer(reason, **fields)
    return devices


# ----------------------------------------------------------------------------------------------
# Rows


def record_of_trace(place: Place, device: str | None, asked: slice, context: Context) -> Answer:
    """Return the record of a host, with one device or all TPUs that have ops."""
    with opened(place, device, context) as trace:
        return record_of_host(trace, place.path, device, asked, context)


def records_of_trace(path: str, device: str | None, context: Context) -> list[Answer | NoAnswer]:
    """Return, for each host in a file, the record, or the exception that says why there is none.

    A host that has the device is recorded with this device alone; any other host is recorded with
    all devices.
    """
    with opened_hosts(path, context) as hosts:
        return [record_or_no_answer(trace, path, device, context) for trace in hosts]


def record_or_no_answer(
    trace: Trace, path: str, device: str | None, context: Context
) -> Answer | NoAnswer:
    its_device = device if device in trace.plane_names else None
    try:
        return record_of_host(trace, path, its_device, slice(None), context.with_own_notes())
    except NoAnswer as failure:
        if not trace.host.is_one_of_several:
            raise
        detail = failure.fields.get("detail", failure.reason)
        failure.fields["detail"] = f"host {trace.host.label}: {detail}"
        return failure


def record_of_host(
    trace: Trace, path: str, device: str | None, asked: slice, context: Context
) -> Answer:
    names = [name for name in trace.plane_names if device in (None, name)]
    if device is None:
        names = [name for name in names if TPU_RE.match(name)]
    if not names:
        raise no_device(trace.plane_names)
    devices = record_devices(path, trace, names, asked, context)
    folder = os.path.dirname(os.path.abspath(path))
    is_run = path != STDIN and os.path.basename(os.path.dirname(folder)) == "profile"
    host = host_of(path)
    if trace.host.is_one_of_several:
        host = trace.host.name or f"{host}:{trace.host.number}"
    groups: dict[SourceKey, GroupFacts] = {}
    for of_device in devices:
        for key, facts in of_device.groups.items():
            groups.setdefault(key, facts).merge(facts)
    digests = digests_of_programs(trace, devices, context)
    frames: dict[str, int] = {}
    group_rows = [group_row(facts, frames) for facts in groups.values()]
    answer: Answer = {
        "status": "ok",
        "mode": "record",
        "schema_version": SCHEMA_VERSION,
        "profile_dir": context.request.profile,
        "xplane_file": os.path.basename(path),
        "notes": [*context.notes, *notes_of_record(devices)],
        "format": FORMAT,
        "run": os.path.basename(folder) if is_run else None,
        "host": host,
        "frames": list(frames),
        "groups": group_rows,
        "programs": list(digests.values()),
        "devices": [device_row(of_device, list(digests)) for of_device in devices],
        "steps": [
            step_row(number, step, groups)
            for number, of_device in enumerate(devices)
            for step in of_device.steps
        ],
    }
    keys = [row["agg_key"] for row in group_rows]
    cut_texts(answer)
    for row, whole_key in zip(group_rows, keys, strict=True):
        # Two different keys can be equal after the cut.
        if row["agg_key"] != whole_key:
            end = f"…{digest_of(whole_key)}"
            row["agg_key"] = whole_key[: LONGEST_TEXT - len(end)] + end
    return answer


def group_row(facts: GroupFacts, frames: dict[str, int]) -> RecordGroup:
    """Return the row of a group, and add the group's frames to the list of all frames."""
    tf_ops, signatures = sorted(facts.tf_ops), sorted(facts.signatures)
    shapes = sorted(facts.shapes)
    return {
        "kind": facts.kind,
        "agg_key": facts.agg_key,
        "agg_key_kind": facts.agg_key_kind,
        "frames": [frames.setdefault(frame, len(frames)) for frame in facts.frames],
        # Without a stack, a group may have several sources; take the minimum, so that the order of
        # devices does not matter.
        "source": min(facts.sources, default=None),
        "tf_ops": tf_ops[:N_LISTED],
        "signatures": signatures[:N_LISTED],
        "shapes": shapes[:N_LISTED],
        "kernel": min(facts.kernels, default=None),
        "truncated": max(len(tf_ops), len(signatures), len(shapes)) > N_LISTED,
        "ops": digest_of_all(facts.texts),
    }


def digests_of_programs(
    trace: Trace, devices: Iterable[DeviceFacts], context: Context
) -> dict[int, RecordProgram]:
    """Return the digests of the devices' programs by id, as far as the trace has the programs."""
    from _analysis.program_digest import digest_of_program
    from _proto.hlo.programs import Programs

    notes: list[str] = []
    digests: dict[int, RecordProgram] = {}
    for device in devices:
        program_id = device.program_id
        if program_id is None or program_id in digests:
            continue
        program = Programs(trace, device.device, notes).program(program_id)
        digest = digest_of_program(program) if program else None
        if digest:
            digests[program_id] = digest
    context.warn(*notes)
    return digests


def device_row(device: DeviceFacts, program_ids: list[int]) -> RecordDevice:
    program_id = device.program_id
    return {
        "device": device.device,
        "device_type": device.device_type,
        "clock": device.clock,
        "step_source": device.step_source,
        "program": device.program,
        "hlo": program_ids.index(program_id) if program_id in program_ids else None,
    }


def step_row(device: int, step: StepOfDevice, groups: Iterable[SourceKey]) -> RecordStep:
    figures = step.figures
    times = [figures.times.get(key, (0, 0)) for key in groups] if figures else []
    return {
        "device": device,
        "index": step.number,
        "name": step.name,
        "used": figures is not None,
        "why_not": step.why_not,
        "n_xla_ops_events": step.n_events,
        "duration_ps": step.duration,
        "period_ps": step.period,
        "busy_ps": figures.busy if figures else None,
        "comm_ps": figures.comm if figures else None,
        "host_ps": figures.host if figures else None,
        "wait_ps": figures.wait if figures else None,
        "durs_ps": without_last_zeros([total for total, _ in times]) if figures else None,
        "ns": without_last_zeros([n for _, n in times]) if figures else None,
    }


def without_last_zeros(numbers: list[int]) -> list[int]:
    while numbers and not numbers[-1]:
        del numbers[-1]
    return numbers


def notes_of_record(devices: Sequence[DeviceFacts]) -> Iterator[str]:
    """Yield the notes of all devices. A note that all devices share is given once, without names of
    devices."""
    by_note: dict[str, list[str]] = {}
    for device in devices:
        for note in device.notes:
            by_note.setdefault(note, []).append(device.device)
    for note, names in by_note.items():
        yield note if len(names) == len(devices) else f"{', '.join(names)}: {note}"
    if not any(step.figures for device in devices for step in device.steps):
        yield "no step is used; why_not of each step gives the reason"
