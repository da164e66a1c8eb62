"""Build the rows of a record. The mode `record` prints these rows; `compare` and `spread` read them
from a file, or build them directly from a trace."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from _breakdown.analysis.devices.record_format import FORMAT
from _breakdown.analysis.records.recording import (
    DeviceFacts,
    GroupFacts,
    StepToRecord,
    record_devices,
)
from _breakdown.pipeline.context import SCHEMA_VERSION, Context
from _breakdown.pipeline.device import open_device
from _breakdown.pipeline.event_iterate import read_events
from _breakdown.pipeline.folders import host_of
from _breakdown.pipeline.groups import SourceKey, grouped
from _breakdown.pipeline.load import Place, opened, opened_hosts
from _breakdown.pipeline.no_answer import NoAnswer, no_device
from _breakdown.pipeline.normalize import Step, normalize
from _breakdown.pipeline.step_pick import StepChoice, pick_step
from _breakdown.pipeline.texts import LONGEST_TEXT, cut_texts, digest_of
from _proto.trace import STDIN
from _proto.trace.ranks import TPU_RE, planes_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _breakdown.analysis.causes.shared.cause import StepFacts
    from _breakdown.analysis.causes.shared.facts import FoundCauses
    from _proto.hlo.programs import Programs
    from _proto.trace.trace import Trace

Json = dict[str, Any]

# Maximum number of paths in a group's row.
MOST_PATHS = 32


def record_of_trace(
    place: Place, device: str | None, asked: slice, context: Context, *, has_causes: bool
) -> Json:
    """Return the record of a host; it contains `device`, or without `device` all TPUs with ops.
    Causes take as long as the rest."""
    with opened(place, device, context) as trace:
        return record_of_host(trace, place.path, device, asked, context, has_causes=has_causes)


def records_of_trace(path: str, device: str | None, context: Context) -> list[Json | NoAnswer]:
    """Return, for each host in a file, its record, or a NoAnswer with the reason why it has none.
    If the file has only one host, raise this NoAnswer instead.

    Hosts that have the given device are recorded with this device only, and other hosts with all
    their TPUs.
    """
    with opened_hosts(path, context) as hosts:
        return [record_or_no_answer(trace, path, device, context) for trace in hosts]


def record_or_no_answer(
    trace: Trace, path: str, device: str | None, context: Context
) -> Json | NoAnswer:
    its_device = trace.device_named(device) if device else None
    try:
        own_notes = context.with_own_notes()
        return record_of_host(trace, path, its_device, slice(None), own_notes, has_causes=False)
    except NoAnswer as failure:
        if not trace.host.is_one_of_several:
            raise
        failure.fields["detail"] = f"host {trace.host.label}: {failure.why}"
        return failure


def record_of_host(
    trace: Trace, path: str, device: str | None, asked: slice, context: Context, *, has_causes: bool
) -> Json:
    names = list(filter(TPU_RE.match, trace.plane_names))
    if device is not None:
        names = planes_named(device, trace.plane_names)[:1]
    if not names:
        raise no_device(trace.plane_names)
    # Import late, because the module requires protobuf, which may be missing.
    from _proto.hlo.programs import Programs

    programs = Programs(trace, names[0])
    own_notes = context.with_own_notes()
    step = default_step(path, trace, names[0], programs, own_notes) if has_causes else None
    devices = record_devices(path, trace, names, asked, step, context)
    first = devices[0].device
    if first != names[0]:
        programs = Programs(trace, first)
        step = default_step(path, trace, first, programs, own_notes) if has_causes else None
    groups = merged_groups(devices)
    digests = digests_of_programs(trace, devices, programs, context)
    found = found_in(step, own_notes) if step else None
    frames: dict[str, int] = {}
    group_rows = [group_row(facts, frames) for facts in groups.values()]
    answer: Json = {
        "status": "ok",
        "mode": "record",
        "schema_version": SCHEMA_VERSION,
        "profile_dir": context.request.profile,
        "xplane_file": os.path.basename(path),
        "notes": [*context.notes, *notes_of_record(devices)],
        "format": FORMAT,
        **place_of(trace, path),
        "frames": list(frames),
        "groups": group_rows,
        "programs": list(digests.values()),
        # Only the first device has causes.
        "devices": [
            device_row(of_device, list(digests), found if of_device is devices[0] else None)
            for of_device in devices
        ],
        "steps": [
            step_row(number, step, groups)
            for number, of_device in enumerate(devices)
            for step in of_device.steps
        ],
    }
    keys = [row["agg_key"] for row in group_rows]
    cut_texts(answer)
    for row, whole_key in zip(group_rows, keys, strict=True):
        # Append a hash to a truncated key, because different keys can have the same beginning.
        if row["agg_key"] != whole_key:
            end = f"…{digest_of(whole_key)}"
            row["agg_key"] = whole_key[: LONGEST_TEXT - len(end)] + end
    return answer


def place_of(trace: Trace, path: str) -> Json:
    """Return the names of the run and of the host."""
    folder = os.path.dirname(os.path.abspath(path))
    is_run = path != STDIN and os.path.basename(os.path.dirname(folder)) == "profile"
    host = host_of(path)
    if trace.host.is_one_of_several:
        host = trace.host.name or f"{host}:{trace.host.number}"
    return {"run": os.path.basename(folder) if is_run else None, "host": host}


def merged_groups(devices: Iterable[DeviceFacts]) -> dict[SourceKey, GroupFacts]:
    groups: dict[SourceKey, GroupFacts] = {}
    for of_device in devices:
        for key, facts in of_device.groups.items():
            groups.setdefault(key, facts).ops |= facts.ops
    return groups


def group_row(facts: GroupFacts, frames: dict[str, int]) -> Json:
    """Return the row of a group, and add its frames to the table of all frames."""
    sources, tf_ops, kernels = map(set, zip(*facts.ops, strict=True))
    return {
        "kind": facts.kind,
        "agg_key": facts.agg_key,
        "agg_key_kind": facts.agg_key_kind,
        "frames": [frames.setdefault(frame, len(frames)) for frame in facts.frames],
        # A group without a stack can have several sources; take the minimum, so that the order of
        # devices does not matter.
        "source": min(filter(None, sources), default=None),
        "tf_ops": sorted(filter(None, tf_ops))[:MOST_PATHS],
        "kernel": min(filter(None, kernels), default=None),
    }


def default_step(
    path: str, trace: Trace, name: str, programs: Programs, context: Context
) -> Step | None:
    """Return the step that modes of one step pick, or None if the device has no ops."""
    with suppress(NoAnswer):
        device = open_device(path, trace, name, [], context, programs=programs)
        picked = pick_step(device, StepChoice(), context)
        return normalize(device, picked, read_events(device, picked), context)
    return None


def found_in(step: Step, context: Context) -> FoundCauses:
    # Import late, because most records that `compare` and `spread` make of traces need no causes.
    from _breakdown.analysis.causes.shared.facts import found_by_default

    return found_by_default(step, context)


def digests_of_programs(
    trace: Trace, devices: Sequence[DeviceFacts], of_first: Programs, context: Context
) -> dict[int, Json]:
    """Map program ids to the digests of the devices' programs; programs missing from the trace are
    omitted."""
    from _breakdown.analysis.records.program_digest import digest_of_program
    from _proto.hlo.programs import Programs

    notes = of_first.notes
    digests: dict[int, Json] = {}
    for device in devices:
        program_id = device.program_id
        if program_id is None or program_id in digests:
            continue
        programs = of_first if device is devices[0] else Programs(trace, device.device, notes)
        program = programs.program(program_id)
        digest = digest_of_program(program) if program else None
        if digest:
            digests[program_id] = digest
    # The devices have noted the damage of programs that they have read.
    of_devices = {note for device in devices for note in device.notes}
    context.warn(*(note for note in notes if note not in of_devices))
    return digests


def cause_row(row: Mapping[str, Any]) -> Json:
    """Return the fields of a cause that `compare` needs."""
    names = ("cause", "gain_ps", "unknown_ps", "gain_bytes", "source_user", "scope")
    return {**{name: row[name] for name in names}, "device": row["evidence"].get("device")}


def device_row(device: DeviceFacts, program_ids: list[int], found: FoundCauses | None) -> Json:
    program_id = device.program_id
    return {
        "device": device.device,
        "device_type": device.device_type,
        "clock": device.clock,
        "step_source": device.step_source,
        "program": device.program,
        "hlo": program_ids.index(program_id) if program_id in program_ids else None,
        "causes": found and [cause_row(row) for row in found.causes],
        "examined": found and found.examined,
        "mfu_at_least": found and mfu_of(found.facts),
    }


def mfu_of(facts: StepFacts) -> float | None:
    from _breakdown.analysis.loss.budget import Budget

    return Budget(facts.step, facts.ledger).mfu_at_least(facts.periods)


def step_row(device: int, step: StepToRecord, groups: Iterable[SourceKey]) -> Json:
    sums = step.sums
    times = None if step.times is None else [step.times.get(key, (0, 0)) for key in groups]
    return {
        "device": device,
        "index": step.number,
        "name": step.name,
        "used": sums is not None,
        "why_not": step.why_not,
        "n_xla_ops_events": step.n_events,
        "duration_ps": step.duration,
        "period_ps": step.period,
        "busy_ps": sums.busy if sums else None,
        "comm_ps": sums.comm if sums else None,
        "host_ps": sums.host if sums else None,
        "wait_ps": sums.wait if sums else None,
        "barrier_ps": sums.barrier if sums else None,
        "durs_ps": times and without_last_zeros([total for total, _ in times]),
        "ns": times and without_last_zeros([n for _, n in times]),
    }


def without_last_zeros(numbers: list[int]) -> list[int]:
    while numbers and not numbers[-1]:
        del numbers[-1]
    return numbers


def notes_of_record(devices: Sequence[DeviceFacts]) -> Iterator[str]:
    """Yield the notes of all devices. A note common to all devices is yielded once, without device
    names."""
    by_note = grouped((note, device.device) for device in devices for note in device.notes)
    for note, names in by_note.items():
        yield note if len(names) == len(devices) else f"{', '.join(names)}: {note}"
    if not any(step.sums for device in devices for step in device.steps):
        yield "no step is used; the why_not of each step gives the reason"
