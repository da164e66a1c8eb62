"""From a trace to its record: what all steps of all devices come down to."""

from __future__ import annotations

import os
from collections import Counter
from itertools import chain, compress

from _analysis.exposed import is_exposed
from _analysis.processes import SMALL_FILE, in_processes, in_turn
from _pipeline.clocks import ON_DEVICE, ON_TRACE
from _pipeline.context import SCHEMA_VERSION
from _pipeline.device import BEFORE_ALL, MODULES, TPU_RE, StepEvent, open_device
from _pipeline.event_iterate import ALWAYS, admit
from _pipeline.folders import host_of
from _pipeline.groups import source_key
from _pipeline.load import opened, opened_hosts
from _pipeline.make_ops import make_ops
from _pipeline.no_answer import NoAnswer, no_device
from _pipeline.normalize import step_of
from _pipeline.texts import LONGEST_TEXT, cut_texts, digest_of
from _pipeline.timeline import events_of
from _pipeline.vocabulary import DMA, HOST, SPARSE_CORE
from _proto.record import record
from _proto.trace import STDIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from typing import Any

    from _pipeline.context import Context
    from _pipeline.device import Device
    from _pipeline.groups import SourceKey
    from _pipeline.load import Place
    from _pipeline.normalize import Step
    from _pipeline.ops import Op
    from _proto.trace.trace import Trace

    Json = dict[str, Any]

FORMAT = 1
N_LISTED = 32
# One op more or less in so many makes no other step.
OPS_PER_OTHER = 50
CONDITIONAL = "conditional"
# Why a step is not used.
NO_OPS, OTHER_PROGRAM, OTHER_OP_COUNT = "no_ops", "other_program", "other_op_count"
NOT_ASKED = "not_asked"
# What tells a group from those of another capture, by what each of its ops adds.
FACTS: dict[str, Callable[[Op], Iterable[str]]] = {
    "sources": lambda op: [op.source_inner] if op.source_inner else [],
    "tf_ops": lambda op: [op.tf_op] if op.tf_op else [],
    "signatures": lambda op: [op.signature],
    "shapes": lambda op: [f"{array.dtype}[{array.dims}]" for array in op.hlo.outputs],
    "texts": lambda op: [op.text],
}


class GroupFacts:
    def __init__(self, op: Op) -> None:
        self.kind, self.agg_key, self.agg_key_kind = op.kind, op.agg_key, op.agg_key_kind
        self.frames = op.stack.frames if op.stack else ()
        self.of_ops: dict[str, set[str]] = {name: set() for name in FACTS}

    def add(self, op: Op) -> None:
        for name, fact in FACTS.items():
            self.of_ops[name].update(fact(op))

    def merge(self, other: GroupFacts) -> None:
        for name, facts in other.of_ops.items():
            self.of_ops[name] |= facts


@record
class RecordedStep:
    fields: Json
    # By group: time and executions. Of a used step, in order of appearance.
    times: dict[SourceKey, tuple[int, int]]


@record
class RecordedDevice:
    fields: Json
    steps: list[RecordedStep]
    groups: dict[SourceKey, GroupFacts]
    notes: list[str]


def record_device(
    device: Device, asked: slice, known: dict[SourceKey, GroupFacts], context: Context
) -> RecordedDevice:
    """Of all steps that are used; figures of those that are asked for.

    Devices have most of their groups in common, and what tells these, so that is held once.
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
    used = [
        None if why_not else step_of(device, step_event if device.steps else None, of_step, ops)
        for step_event, of_step, why_not in zip(steps, admitted, reasons, strict=True)
    ]
    read = [step for step in used if step]
    is_measured = any(step.clock.name == ON_DEVICE for step in read)
    fields = {
        "device": device.plane.name,
        "device_type": device.type,
        "clock": ON_DEVICE if is_measured else ON_TRACE,
        "step_source": device.step_source if device.steps else None,
        "program": digest_of_all(set(chain.from_iterable(map(texts_of_program, read)))),
    }
    n_aggregated = admitted[0].n_aggregated
    n_dropped = n_aggregated + sum(step.admitted.n_dropped - n_aggregated for step in read)
    if n_dropped:
        context.note(f"{n_dropped} XLA Ops events left out")
    asked_for = set(range(len(steps))[asked])
    recorded = [
        record_step(step_event, step, why_not, step_event.index in asked_for)
        for step_event, step, why_not in zip(steps, used, reasons, strict=True)
    ]
    ran = dict.fromkeys(each.op for step in read for each in step.leaves)
    return RecordedDevice(fields, recorded, facts_of(ran, known), context.notes)


def record_step(
    step_event: StepEvent, step: Step | None, why_not: str | None, is_asked: bool
) -> RecordedStep:
    """A step as it is drawn, or, where it is used, as it ran."""
    fields = {
        "index": step_event.index,
        "name": step_event.name,
        "used": False,
        "why_not": why_not,
        "n_xla_ops_events": step_event.n_events,
        "duration_ps": step.duration if step else step_event.end - step_event.start,
        **dict.fromkeys(("busy_ps", "comm_ps", "host_ps", "wait_ps")),
    }
    if step is None:
        return RecordedStep(fields, {})
    if not is_asked:
        return RecordedStep({**fields, "why_not": NOT_ASKED}, {})
    times: dict[SourceKey, tuple[int, int]] = {}
    for each in step.leaves:
        key = source_key(each.op)
        total, n = times.get(key, (0, 0))
        times[key] = total + each.total, n + each.n
    return RecordedStep({**fields, "used": True, **figures_of_record(step)}, times)


def facts_of(ops: Iterable[Op], known: dict[SourceKey, GroupFacts]) -> dict[SourceKey, GroupFacts]:
    """Of the groups of these ops, in order of appearance; what is known is added to."""
    groups = {}
    for op in ops:
        key = source_key(op)
        if key not in known:
            known[key] = GroupFacts(op)
        groups[key] = known[key]
        groups[key].add(op)
    return groups


def reasons_not_used(steps: Sequence[StepEvent], are_modules: bool) -> list[str | None]:
    """Why a step is left out, if it is: only steps that run the same ops are compared."""
    n_ops: Counter[str | None] = Counter()
    for step in steps:
        n_ops[step.name] += step.n_events
    program, _ = n_ops.most_common(1)[0]

    def is_other(step: StepEvent) -> bool:
        return are_modules and step.name != program

    counts = sorted(step.n_events for step in steps if step.n_events and not is_other(step))
    middle = counts[(len(counts) - 1) // 2] if counts else 0
    reasons: list[str | None] = []
    for step in steps:
        if not step.n_events:
            reasons.append(NO_OPS)
        elif is_other(step):
            reasons.append(OTHER_PROGRAM)
        else:
            is_usual = OPS_PER_OTHER * abs(step.n_events - middle) <= middle
            reasons.append(None if is_usual else OTHER_OP_COUNT)
    return reasons


def figures_of_record(step: Step) -> Json:
    stalls = [each for each in step.leaves if is_exposed(each.op)]
    return {
        "busy_ps": step.timeline.busy,
        "comm_ps": sum(
            each.total for each in stalls if each.op.waits_for not in (HOST, SPARSE_CORE, DMA)
        ),
        "host_ps": sum(each.total for each in stalls if each.op.waits_for == HOST),
        "wait_ps": sum(each.total for each in stalls if each.op.is_wait),
    }


def texts_of_program(step: Step) -> set[str]:
    """Of all ops but those in a branch: which one is taken makes no other program."""
    ops = step.ops
    if not any(op.category == CONDITIONAL for op in ops):
        return {op.text for op in ops}
    ids = set(chain.from_iterable(piece.metadata_ids for piece in step.admitted.pieces))
    events = [
        (start, -duration, op.category != CONDITIONAL, op.text)
        for start, duration, metadata_id in events_of(step.admitted.pieces, step.clock, ids)
        for op in [step.executions[metadata_id].op]
    ]
    texts = set()
    branch_end = BEFORE_ALL
    # What encloses others comes before them.
    for start, negative_duration, is_none, text in sorted(events):
        if start >= branch_end:
            texts.add(text)
        if not is_none:
            branch_end = max(branch_end, start - negative_duration)
    return texts


def digest_of_all(texts: Iterable[str]) -> str:
    return digest_of("\n".join(sorted(texts)))


def record_fields(devices: Sequence[RecordedDevice]) -> Json:
    groups: dict[SourceKey, GroupFacts] = {}
    for device in devices:
        for key, facts in device.groups.items():
            groups.setdefault(key, facts).merge(facts)
    frames: dict[str, int] = {}
    rows = [group_row(facts, frames) for facts in groups.values()]
    return {
        "frames": list(frames),
        "groups": rows,
        "devices": [device.fields for device in devices],
        "steps": [
            {"device": number, **step.fields, **figures_by_group(step, groups)}
            for number, device in enumerate(devices)
            for step in device.steps
        ],
    }


def group_row(facts: GroupFacts, frames: dict[str, int]) -> Json:
    """A row of a group; what frames it has are added to the list of all."""
    lists = {name: sorted(facts.of_ops[name]) for name in ("tf_ops", "signatures", "shapes")}
    return {
        "kind": facts.kind,
        "agg_key": facts.agg_key,
        "agg_key_kind": facts.agg_key_kind,
        "frames": [frames.setdefault(frame, len(frames)) for frame in facts.frames],
        # Whichever device comes first: without a stack there may be several.
        "source": min(facts.of_ops["sources"], default=None),
        **{name: facts[:N_LISTED] for name, facts in lists.items()},
        "truncated": any(len(facts) > N_LISTED for facts in lists.values()),
        "ops": digest_of_all(facts.of_ops["texts"]),
    }


def figures_by_group(step: RecordedStep, groups: Iterable[SourceKey]) -> Json:
    if not step.fields["used"]:
        return {"durs_ps": None, "ns": None}
    figures = [step.times.get(key, (0, 0)) for key in groups]
    return {
        name: without_last_zeros([each[i] for each in figures])
        for i, name in enumerate(("durs_ps", "ns"))
    }


def without_last_zeros(numbers: list[int]) -> list[int]:
    while numbers and not numbers[-1]:
        del numbers[-1]
    return numbers


def record_devices(
    path: str, trace: Trace, names: Sequence[str], asked: slice, context: Context
) -> list[RecordedDevice]:
    """Those of the devices that have ops; if none has, NoAnswer of the first."""
    known: dict[SourceKey, GroupFacts] = {}

    def record_one(name: str) -> RecordedDevice | tuple[str, Json]:
        try:
            of_device = context.with_own_notes()
            device = open_device(path, trace, name, [], of_device)
            return record_device(device, asked, known, of_device)
        except NoAnswer as absent:
            return absent.reason, absent.fields

    # What one process has normalized it needs no second time.
    is_large = trace.file_size > SMALL_FILE
    on_each = in_processes if is_large else in_turn
    found = on_each(record_one, names)
    devices = [each for each in found if isinstance(each, RecordedDevice)]
    if not devices:
        reason, fields = next(each for each in found if isinstance(each, tuple))
        raise NoAnswer(reason, **fields)
    return devices


def record_of_trace(place: Place, device: str | None, asked: slice, context: Context) -> Json:
    """Return the record of one host: of one device, or else of all that are TPUs and have ops."""
    with opened(place, device, context) as trace:
        return record_of_host(trace, place.path, device, asked, context)


def records_of_trace(path: str, device: str | None, context: Context) -> list[Json | NoAnswer]:
    """Return the records of all hosts in a file, or for a host why it has none.

    A host that has the device is recorded with this one alone, others with all of theirs.
    """
    with opened_hosts(path, context) as hosts:
        return [record_or_no_answer(trace, path, device, context) for trace in hosts]


def record_or_no_answer(
    trace: Trace, path: str, device: str | None, context: Context
) -> Json | NoAnswer:
    its_device = device if device in trace.plane_names else None
    try:
        return record_of_host(trace, path, its_device, slice(None), context.with_own_notes())
    except NoAnswer as absent:
        if not trace.host.is_one_of_several:
            raise
        detail = absent.fields.get("detail", absent.reason)
        absent.fields["detail"] = f"host {trace.host.label}: {detail}"
        return absent


def record_of_host(
    trace: Trace, path: str, device: str | None, asked: slice, context: Context
) -> Json:
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
    fields = {
        "status": "ok",
        "mode": "record",
        "schema_version": SCHEMA_VERSION,
        "profile_dir": context.request.profile,
        "xplane_file": os.path.basename(path),
        "notes": [*context.notes, *notes_of_record(devices)],
        "format": FORMAT,
        "run": os.path.basename(folder) if is_run else None,
        "host": host,
        **record_fields(devices),
    }
    keys = [group["agg_key"] for group in fields["groups"]]
    cut_texts(fields)
    for group, key in zip(fields["groups"], keys, strict=True):
        # Two keys can look the same once they are cut.
        if group["agg_key"] != key:
            end = f"…{digest_of(key)}"
            group["agg_key"] = key[: LONGEST_TEXT - len(end)] + end
    return fields


def notes_of_record(devices: Sequence[RecordedDevice]) -> Iterator[str]:
    """What is true of all is said once."""
    by_note: dict[str, list[str]] = {}
    for device in devices:
        for note in device.notes:
            by_note.setdefault(note, []).append(device.fields["device"])
    for note, names in by_note.items():
        yield note if len(names) == len(devices) else f"{', '.join(names)}: {note}"
    if not any(step.fields["used"] for device in devices for step in device.steps):
        yield "no step is used: steps say why_not"
