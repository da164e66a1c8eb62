"""Implement the core a second time, naively, so that random tests can compare the program with it.

This implementation follows only the specification and shares no code with the program. A slow wire
decoder decodes the whole file, every event is a plain object, and each figure is computed by a
separate comprehension over these objects. It avoids accumulators and fast paths, and may take
quadratic time, so its errors are unlike those of fast code.

`analyse(data, **options)` returns the answer of `by_source` that the program should print, without
the fields that contain file names and without `UNREAD`. Notes without a specified wording begin
with "~".
"""

from __future__ import annotations

from typing import Any

from tests.naive.cycles import cycles_of
from tests.naive.op import Plane, Span, complete_ops, decode_plane, distinct, plane_name, text_of
from tests.naive.program import decode_entries
from tests.naive.step import (
    AbsentError,
    Json,
    Options,
    Step,
    count_starts,
    decide_frame_orders,
    executions_in,
    notes_of_all,
    ops_of,
    pick_step,
    read_picked,
    read_steps,
    whole_capture,
    without_cut_off,
)
from tests.naive.wire import Message, every, fields

# The naive implementation omits these fields. Hand-written cases, invariants and golden answers
# test these fields.
UNREAD = frozenset(
    "also_fused bytes_accessed_sum capture common_line dtype_uncertain dtypes flops_known_pct "
    "flops_sum hbm_bytes_sum hlo_op_breakdown hlo_op_breakdown_overflow likely_sources loop "
    "line_dur_ps model_flops_sum n_scopes operand_dtypes runtime scope scopes shapes "
    "shapes_truncated source_is xla_bytes_accessed_sum".split()
)


def analyse(data: bytes, **given: Any) -> Json:
    """Return the answer of `by_source` that the program should print for a file's bytes."""
    options = Options(**given)
    notes: list[str] = []
    common: Json = {"mode": "by_source", "schema_version": "4.0", "notes": notes}
    planes = [fields(plane) for plane in every(fields(data), 1)]
    try:
        common["device"] = options.device
        device = find_device(planes, options)
        return {"status": "ok", **common, **analyse_step(device, options, notes)}
    except AbsentError as absent:
        return {"status": "absent", **common, "device": options.device, **absent.answer}


def find_device(planes: list[Message], options: Options) -> Plane:
    """Return the device's plane, with the programs joined to its ops."""
    chosen = [plane for plane in planes if plane_name(plane) == options.device]
    if not chosen:
        names = distinct(map(plane_name, planes))
        devices = [name for name in names if name.startswith("/device:")]
        # A SparseCore's name has words after the number, so only TensorCores end with a number.
        devices = [
            name for name in devices if name.removeprefix("/device:TPU:").isdecimal()
        ] or devices
        raise AbsentError("device_not_found", available_devices=devices)
    device = decode_plane(chosen[0])
    metadata = [plane for plane in planes if plane_name(plane) == "/host:metadata"]
    entries = decode_entries(metadata[0]) if metadata else {}
    for op in device.ops.values():
        op.entries = entries
    return device


def steps_of(device: Plane, notes: list[str]) -> tuple[list[Step], str, Span | None]:
    """Return the steps, what they are, and the time of whole programs if the capture cuts off
    others."""
    steps = read_steps(device, "Steps")
    if steps:
        return steps, "steps", None
    programs = read_steps(device, "XLA Modules")
    limit = None
    steps = without_cut_off(programs)
    if len(steps) < len(programs):
        limit = Span(steps[0].on_trace.start, steps[-1].on_trace.end)
        notes.append("~programs that the capture cuts off")
    cycles = cycles_of(steps)
    if cycles:
        count_starts(cycles, device)
        return cycles, "cycles", limit
    if steps:
        notes.append(
            "the trace has no Steps line, so each execution of a program (XLA Modules) counts"
            " as a step"
        )
    return steps, "modules", limit


def analyse_step(device: Plane, options: Options, notes: list[str]) -> Json:
    if not device.lines_named("XLA Ops"):
        names = distinct(line.name for line in device.lines)
        raise AbsentError("no_xla_ops_line", available_lines=names)
    on_line = device.events_of("XLA Ops")
    steps, source, limit = steps_of(device, notes)
    if options.step != "all" and (steps or options.step is not None or options.step_id is not None):
        step = pick_step(steps, options, len(on_line), notes)
        notes += notes_of_all(steps)
    else:
        notes += notes_of_all(steps, with_pauses=False)
        usable = [
            span
            for e in on_line
            if e.metadata_id in device.ops
            and (span := e.on_trace)
            and (limit is None or limit.holds(span.start))
        ]
        if not usable:
            raise AbsentError("empty_xla_ops_line")
        if not steps:
            notes.append(
                "the trace has no Steps line; using the time of the whole XLA Ops line as the step"
            )
        step = whole_capture(steps, usable)
        step.limit = limit

    complete_ops(device, executions_in(device, [step]))
    picked = read_picked(device, options, notes, steps, step)
    if picked.clocks_differ:
        notes.append("~the trace's clock differs from the device's; other steps are by the trace's")
    decide_frame_orders(device, ops_of(picked.events), options.own, notes)
    picked.note_doubtful_stacks()
    by_source = picked.by_source()
    return {
        "device_type": text_of(device.stats, "device_type_string") or None,
        "clock": "device" if picked.is_timed else "trace",
        "stack_order": picked.stack_order(),
        "step_source": None if step.index is None else source,
        "program": picked.program(),
        "step_id": step.index,
        "step_name": step.name,
        "step_window_ps": [picked.window.start - picked.base, picked.window.end - picked.base],
        "step_duration_ps": picked.duration,
        **by_source,
        "totals": {**picked.totals(), **by_source["totals"]},
    }
