"""A second, naive implementation of the analysis, to hold the real one against.

It is written from the specification alone and shares no code with the program. It decodes the
whole file with a slow wire decoder, keeps every event as a plain object and computes each figure
by its own comprehension over those objects, as close to the wording of its definition as Python
allows. No accumulators, no fast paths, quadratic where that is simpler: whatever it gets wrong, it
should not get wrong in the way fast code does.

`analyse(data, mode, **options)` returns what the program prints, less the fields that name files.
Notes whose wording isn't specified begin with "~".
"""

from __future__ import annotations

from typing import Any

from tests.naive_bottleneck import Bottleneck
from tests.naive_op import (
    Event,
    Plane,
    Span,
    decode_plane,
    distinct,
    plane_name,
    text_of,
)
from tests.naive_program import decode_entries
from tests.naive_roofline import Roofline
from tests.naive_step import (
    AbsentError,
    Clocks,
    Json,
    Options,
    Picked,
    Step,
    pick_step,
    read_steps,
    window_of,
)
from tests.naive_wire import Message, every, fields


def analyse(data: bytes, mode: str, **given: Any) -> Json:
    """What the program says about a file's bytes."""
    options = Options(**given)
    notes: list[str] = []
    common: Json = {"mode": mode, "device": options.device, "notes": notes}
    try:
        return {"status": "ok", **common, **analyse_device(data, mode, options, notes)}
    except AbsentError as absent:
        return {"status": "absent", **common, **absent.answer}


def planes_of(data: bytes) -> list[Message]:
    return [fields(plane) for plane in every(fields(data), 1)]


def find_plane(data: bytes, options: Options) -> Plane:
    """The device's plane, each op of it with what lies beside the trace."""
    planes = planes_of(data)
    chosen = [plane for plane in planes if plane_name(plane) == options.device]
    if not chosen:
        names = distinct(map(plane_name, planes))
        raise AbsentError("device_not_found", available_devices=names)
    plane = decode_plane(chosen[0])
    if not plane.lines_named("XLA Ops"):
        names = distinct(line.name for line in plane.lines)
        raise AbsentError("no_xla_ops_line", available_lines=names)
    beside = [plane for plane in planes if plane_name(plane) == "/host:metadata"]
    entries = decode_entries(beside[0]) if beside else {}
    for op in plane.ops.values():
        op.entry = None if op.program_id is None else entries.get(op.program_id)
    return plane


def analyse_device(data: bytes, mode: str, options: Options, notes: list[str]) -> Json:
    plane = find_plane(data, options)
    on_line = plane.events_of("XLA Ops")
    usable = [
        (e, span)
        for e in on_line
        if (span := e.on_trace) is not None and e.metadata_id in plane.ops
    ]
    steps, source = read_steps(plane, "Steps"), "steps"
    if not steps:
        steps, source = read_steps(plane, "XLA Modules"), "modules"
        if steps:
            notes.append("no Steps line; executions of programs (XLA Modules) are taken as steps")

    if options.step != "all" and (steps or options.step is not None or options.step_id is not None):
        step = pick_step(steps, options, len(on_line), notes)
    elif not usable:
        raise AbsentError("empty_xla_ops_line")
    else:
        if not steps:
            notes.append("no Steps line; using the whole XLA Ops window")
        first, end = min(span.start for _, span in usable), max(span.end for _, span in usable)
        step = Step(None, None, Span(first, end))

    # Aggregated events have no time and belong to no step: they are missing from each.
    dropped = [
        e
        for e in on_line
        if e.start is None
        or (step.admits(e.start) and (e.duration < 0 or e.metadata_id not in plane.ops))
    ]
    if dropped:
        notes.append("~some events dropped: unresolved, aggregated or of negative duration")

    admitted = [(e, span) for e, span in usable if step.admits(span.start)]
    clocks = Clocks([(span, e.on_device) for e, span in admitted if e.on_device is not None])
    events = [
        Event(plane.ops[e.metadata_id], span, e.on_device or clocks.moved(span))
        for e, span in admitted
    ]
    picked = Picked(
        plane=plane,
        plane_names=[plane_name(message) for message in planes_of(data)],
        options=options,
        notes=notes,
        steps=steps,
        step=step,
        window=window_of(step, events, clocks),
        base=0 if clocks.timed else plane.lines_named("XLA Ops")[0].timestamp_ps,
        events=events,
        n_dropped=len(dropped),
    )
    if picked.clocks_differ:
        notes.append("~the trace's clock differs from the device's; other steps are by the trace's")
    totals = picked.totals()
    answer: Json = {
        "device_type": text_of(plane.stats, "device_type_string") or None,
        "clock": "device" if clocks.timed else "trace",
        "step_source": None if step.index is None else source,
        "program": picked.program(),
        "step_id": step.index,
        "step_name": step.name,
        "step_window_ps": [picked.window.start - picked.base, picked.window.end - picked.base],
        "step_duration_ps": picked.duration,
        "totals": totals,
    }
    if mode == "summary":
        answer |= picked.summary()
    elif mode == "by_source":
        answer |= picked.by_source(totals)
    elif mode == "non_compute":
        answer |= picked.non_compute(totals)
    elif mode == "roofline":
        answer |= Roofline(picked).answer()
    else:
        answer |= Bottleneck(picked).answer()
    return answer
