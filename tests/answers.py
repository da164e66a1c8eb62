"""Collect answers that together print every declared field, and null in every nullable field.

Tests of the pages, schemas and text output share these answers: see `BATCH` and tests/parallel.py.
"""

from __future__ import annotations

import functools
import itertools
import json
import shutil
import tempfile
from pathlib import Path
from unittest import mock

from _breakdown import command
from _breakdown.pipeline import load
from _proto import errors
from tests.analysis import small_programs
from tests.builders import (
    checkpoints,
    cycles,
    drawn,
    hlo_proto,
    host_threads,
    llo,
    pauses,
    peers,
    records,
    xspace,
)
from tests.builders.allocator import SIZES, allocator, with_host
from tests.builders.xspace import Space, StatValue, bytes_field, encode, op, tpu_plane, trace
from tests.harness import (
    AFTER,
    ALL_MODES,
    BEFORE,
    DEMO,
    FLAG_FILE,
    STEP_MODES,
    Json,
    Outcome,
    answer,
    run,
    run_as_printed,
    shared_file,
)
from tests.modes.small_steps import small_capture

# All test classes with this `batch` run in one process, which computes the answers only once.
BATCH = "answers of all modes"

ALL_SIZES: dict[str, StatValue] = dict.fromkeys((*SIZES, "fragmentation"), 1)
UNTRACED = xspace.Op("", {}, 0, 0)
KERNEL = ', custom_call_target="tpu_custom_call"'


def mixed_trace() -> bytes:
    """Return a trace with ops of unknown kind, events without metadata and ops without a source."""
    stack = "model.py:7:3"
    ops = [
        UNTRACED,
        # These ten ops share a group and have more different shapes than an answer lists.
        *(
            op(f"f{'x' * i}", "loop fusion", 10 * i, 10, stack=stack, shape=f"f32[{i + 1}]{{0}}")
            for i in range(10)
        ),
        op("a", "loop fusion", 100, 10, tf_op="jit(f)/add:", flops=8, bytes_accessed=64),
        op("b", "loop fusion", 110, 10, tf_op="jit(f)/sub:", shape="bf16[8]{0}", flops=8),
        op("bare", "convolution fusion", 120, 0, shape="bf16[8]{0}", flops=8, bytes_accessed=64),
        op("part", "mystery", 120, 10, shape="()"),
        op("k.1", "custom-call", 130, 10, attributes=KERNEL, shape="bf16[8]{0}"),
        op("copy.1", "data formatting", 140, 10, text="%copy.1 = f32[8] copy(f32[8] %x)"),
        op("all-reduce.1", "all-reduce", 150, 10),
        op("r", "convolution fusion", 160, 10, shape="bf16[9]{0}", flops=8, bytes_accessed=64),
    ]
    space = Space([tpu_plane(ops)])
    events = space.planes[0].lines[0].events
    events += [xspace.Event(999, 10, 1), xspace.Event(events[1].metadata_id, 10, -5)]
    return encode(space)


def unnamed_steps() -> bytes:
    plane = tpu_plane([op("a", "loop fusion", 0, 10)], steps=[("0", 0, 20)])
    plane.event_metadata = [entry for entry in plane.event_metadata if entry.name != "0"]
    return encode(Space([plane]))


def sourceless() -> bytes:
    """Return a trace whose ops have a source line neither in the trace nor in the program."""
    program = hlo_proto.hlo_proto({"main": [hlo_proto.op("a", "negate")]})
    ops = [
        op("a", category, 10 * i, 10, program_id=7)
        for i, category in enumerate(("loop fusion", "copy"))
    ]
    planes = [tpu_plane(ops), hlo_proto.metadata_plane({7: ("jit_f(7)", program)})]
    return encode(Space(planes))


def holding(buffers: bytes | None) -> bytes:
    """Return a trace of one op, whose program has the given buffer assignment."""
    program = hlo_proto.hlo_proto({"main": [hlo_proto.op("a", "negate")]}, buffers=buffers)
    plane = tpu_plane([op("a", "loop fusion", 0, 10, program_id=7)])
    return encode(Space([plane, hlo_proto.metadata_plane({7: ("f", program)})]))


def hand_made_memories() -> list[bytes]:
    """Return traces with incomplete buffer assignments."""
    return [
        # The first allocator event has all stats, the second has none.
        *(
            with_host(holding(hlo_proto.allocation(0, 64, live_out=True)), allocator((5, 0, says)))
            for says in (ALL_SIZES, {})
        ),
        # One allocation has no buffer, the other's buffer has no instruction, and the heap trace
        # contains an unknown instruction.
        holding(
            hlo_proto.buffer(1, 512, 99)
            + hlo_proto.allocation(0, 64, live_out=True)
            + hlo_proto.allocation(1, 512, (1, 0, 512))
            + hlo_proto.heap_trace((hlo_proto.ALLOC, 1, "gone", 0))
        ),
        # All sizes are 0, and without a heap trace the time of the peak is unknown.
        holding(hlo_proto.buffer(1, 0, 1) + hlo_proto.allocation(0, 0, (1, 0, 0), constant=True)),
    ]


def hand_made_programs() -> list[bytes]:
    """Return traces with incomplete programs."""
    nothing_declared = b'{"custom_call_config": {"cost_estimate": {}}}'
    main = [
        hlo_proto.op("p", "parameter", extra=b"\x1a\x01\xff"),
        hlo_proto.op("k", "custom-call", target="tpu_custom_call"),
        hlo_proto.op("l", "custom-call", target="tpu_custom_call", config=nothing_declared),
        hlo_proto.op("a", "all-reduce", config=b'{"retry_config": {"retry_count": "1"}}'),
    ]
    module = hlo_proto.module({"main": main}, extra=hlo_proto.aliases((0, ())))
    programs = [encode(hlo_proto.HloProto(module))]
    module.extra = hlo_proto.donors((0, ()))
    programs.append(encode(hlo_proto.HloProto(module)))
    module.entry_id = None
    programs.append(encode(hlo_proto.HloProto(module)))
    plane = tpu_plane([op("b", "loop fusion", 0, 10, program_id=7)])
    return [
        encode(Space([plane, hlo_proto.metadata_plane({7: ("f", program)})]))
        for program in programs
    ]


def not_donated() -> bytes:
    """Return a trace of a program that could donate its argument, but has no source lines."""
    main = [hlo_proto.op("x", "parameter"), hlo_proto.op("a", "negate", "x")]
    plane = tpu_plane([op("a", "loop fusion", 0, 10, program_id=7)])
    program = hlo_proto.hlo_proto({"main": main})
    return encode(Space([plane, hlo_proto.metadata_plane({7: ("f", program)})]))


def judged_without_roofs() -> bytes:
    """Return a trace of a group that has a verdict, although none of its ops has a roof."""
    in_vmem = xspace.memory_access_breakdown((1, 3, 64))
    sums: Json = {"flops": 8, "bytes_accessed": 64, "memory_access_breakdown": in_vmem}
    # Op `v` has neither flops nor bytes; op `w` has no fp32 peak, and moves no bytes in HBM.
    ops = [
        op("v", "convolution fusion", 0, 10, shape="bf16[8]{0}", stack="m.py:1"),
        op("w", "loop fusion", 10, 5, shape="f32[8]{0}", stack="m.py:1", **sums),
    ]
    return trace(ops)


def hand_made(mode: str) -> list[bytes]:
    if mode == "anatomy":
        return [*hand_made_traces(), measurements()]
    of_its_own = {
        "by_op": hand_made_ops,
        "by_array": hand_made_arrays,
        "idle": hand_made_idleness,
        "kernel": hand_made_kernels,
        "memory": hand_made_memories,
        "program": hand_made_programs,
    }
    return of_its_own.get(mode, hand_made_traces)()


def hand_made_ops() -> list[bytes]:
    """Return traces, in one of which two ops with similar names run once and twice."""
    names = ("f.1", "f.1", "f.2")
    ops = [op(name, "loop fusion", 10 * i, 10) for i, name in enumerate(names)]
    return [*hand_made_traces(), trace(ops)]


def hand_made_arrays() -> list[bytes]:
    """Return traces whose only op runs for 10 ps and for no time."""
    main = [hlo_proto.op("x", "parameter"), hlo_proto.op("a", "copy", "x")]
    programs = hlo_proto.metadata_plane({7: ("f", hlo_proto.hlo_proto({"main": main}))})
    return [
        encode(Space([tpu_plane([op("a", "data formatting", 0, dur, program_id=7)]), programs]))
        for dur in (10, 0)
    ]


def hand_made_idleness() -> list[bytes]:
    """Return traces with two kinds of idle gaps: with host activity, and without duration on the
    trace's clock."""
    ops = [op("a", "loop fusion", 0, 10), op("b", "loop fusion", 10, 10)]
    apart = tpu_plane(ops)
    apart.stat_metadata += [
        xspace.StatMetadata(91, "device_offset_ps"),
        xspace.StatMetadata(92, "device_duration_ps"),
    ]
    for start, event in zip((0, 50), apart.lines[0].events, strict=True):
        event.stats = [
            xspace.Stat(91 + i, xspace.uint64(time)) for i, time in enumerate((start, 10))
        ]
    calls = xspace.Line("main", [xspace.Event(1, 0, 2 * 10**6), xspace.Event(2, 20, 30)])
    names = [xspace.EventMetadata(1, "$train.py:3 main"), xspace.EventMetadata(2, "device_put")]
    host = xspace.Plane("/host:CPU", [calls], names)
    busy = tpu_plane([*ops, op("c", "loop fusion", 10**6 + 50, 5)])
    return [*hand_made_traces(), *(encode(Space([plane, host])) for plane in (apart, busy))]


def hand_made_kernels() -> list[bytes]:
    """Return traces of kernels with regions, and with schedules, with and without markers. One of
    the kernels has two different ops."""
    ops = [
        op("a.1", "custom-call", 0, 10, attributes=KERNEL),
        op("b.1", "custom-call", 10, 10, attributes=KERNEL),
        op("b.2", "custom-call", 20, 10, attributes=KERNEL, shape="bf16[8]{0}", flops=8),
    ]
    regions = [("ep_run_kernel", 0, 5), ("ep_wait_in", 1, 3), ("wait", 10, 12)]
    code = llo.region(
        0,
        8,
        llo.work(1, 1),
        llo.work(2, 3),
        llo.work(3, 4, llo.DMA_WAIT),
        llo.work(4, 6, llo.STORE, spill=True),
        llo.work(5, 7, registers=llo.SCALARS),
        llo.loop(2, 4, trips=3),
    )
    stacks = [
        llo.source(("k.py", 1), ("k.py", 2), ids=[1], scope="s"),
        llo.source(("k.py", 3), ids=[2]),
    ]
    marks = [llo.at_region(1, 0), *llo.scope(1, "ep_wait_in", 1, 2), llo.at_region(2, 4)]
    names = "jit_f(1)::a.1", "jit_f(1)::b.1"
    schedules = [(name, llo.schedule(code, sources=stacks, marks=marks)) for name in names]
    markers = [((1 << 27) | 1, 0), ((1 << 27) | 2, 4), ((1 << 27) | 1, 10)]
    return [
        *hand_made_traces(),
        drawn.traced(ops, regions),
        llo.traced_kernels(ops, schedules, markers, regions),
        llo.traced_kernels(ops, schedules),
    ]


def measurements() -> bytes:
    """Return a trace with counters, an event without a time, and a stat without a value."""
    reading = xspace.Stat(1, xspace.double(61.5))
    lines = [
        xspace.Line("_counters_", [xspace.Event(1, 5, 1, stats=[reading])], 2**62),
        xspace.Line("counters_0", [xspace.Event(9, num_occurrences=2, stats=[reading])]),
        xspace.Line("Steps"),
    ]
    stats = [reading, xspace.Stat(2, xspace.raw(b"raw")), xspace.Stat(3)]
    metadata = [xspace.EventMetadata(1, "HBM", stats)]
    plane = xspace.Plane("/device:TPU:0", lines, metadata, stats=stats)
    options = xspace.StatNames()
    stats = [options.stat("profile_options", xspace.int_field(2, 1))]
    task = xspace.Plane("Task Environment", stats=stats, stat_metadata=options.metadata())
    return encode(Space([plane, task]))


def hand_made_traces() -> list[bytes]:
    return [
        mixed_trace(),
        unnamed_steps(),
        sourceless(),
        # No op has a duration, so rates and percentages are null.
        trace(
            [
                op("v", "convolution fusion", 0, shape="bf16[8]{0}", flops=8, bytes_accessed=8,
                   memory_access_breakdown=b""),
                op("k", "custom-call", 0, attributes=KERNEL, shape="()"),
                op("all-reduce.1", "all-reduce", 0),
                op("mystery.1-done", "async-done", 0, tf_op="jit(f)/x:"),
            ]
        ),
        # One line has all of the time, and scopes separate it.
        trace(
            [
                op(f"s.{i}", "loop fusion", 10 * i, 10, stack="m.py:1:0", tf_op=f"jit(f)/l{i}/mul:")
                for i in range(3)
            ]
        ),
        # The step starts with a gap.
        trace([op("a", "loop fusion", 10, 10)], steps=[("0", 0, 30)]),
        # The only step has neither a duration nor ops.
        trace([], steps=[("0", 5, 0)]),
        # Without HBM traffic, `--bytes hbm` gives no intensity; without an fp32 peak, op `w` has no
        # roof.
        trace(
            [
                op("v", "convolution fusion", 0, 10, shape="bf16[8]{0}", flops=8, stack="m.py:1",
                   bytes_accessed=8, memory_access_breakdown=b""),
                op("w", "loop fusion", 10, 5, shape="f32[8]{0}", flops=8, stack="m.py:1",
                   bytes_accessed=8, memory_access_breakdown=b""),
                op("x", "loop fusion", 15, 5, shape="s32[]", flops=8, tf_op="jit(f)/x:"),
            ]
        ),
    ]  # fmt: skip


ALL_OPTIONS = {
    "bottleneck": [
        "--top=3",
        "--peers",
        "--model-flops=1e12",
        "--tokens=1e6",
        "--peak-tflops-fp32=70",
    ],
    "summary": ["--top=3", "--include-comm"],
    "by_source": ["--include-data-move", "--include-comm", "--top=3"],
    "by_scope": ["--depth=all", "--merge-layers", "--below="],
    "by_op": ["--top=3", "--peak-tflops-fp32=70", "--no-merge"],
    "by_array": ["--top=1000", "--peak-hbm-gibps=3000", "--no-merge"],
    "non_compute": ["--include-comm", "--top=3"],
    "roofline": ["--top=14", "--chip=profile", "--bytes=hbm", "--peak-tflops-fp32=70"],
    "comm": ["--top=3", "--peers"],
    "memory": ["--top=3"],
    "idle": ["--top=3"],
    "kernel": ["--top=3", "--peak-tflops-fp32=70"],
    "program": ["--top=0", f"--flags={FLAG_FILE}"],
    "page": [],
    "export": ["--peak-tflops-fp32=70"],
    "record": ["--steps=1:"],
    "compare": ["--top=3", "--tokens=4096"],
    "spread": ["--top=1"],
    "anatomy": ["--plane=/device:TPU:0", "--sample=3"],
}
# Some fields of these modes are null, or shown, only if the options meet an incomplete trace.
INCOMPLETE = ("anatomy", "bottleneck", "comm", "program")
DEMO_KERNEL = "--kernel-cost=flash_attention=34359738368,67108864,bf16"


def with_code(folder: str) -> list[Json]:
    """Return answers with the source code of one file, and of none."""
    path = Path(folder, "model", "train.py")
    path.parent.mkdir()
    path.write_text("# a line\n" * 100, encoding="utf-8")
    captures = small_capture(), mixed_trace()
    return [answer(data, "bottleneck", "--code", folder) for data in captures]


@functools.cache
def answers() -> list[Json]:
    """Return answers in every mode, with and without options."""
    folder = tempfile.TemporaryDirectory()
    found = [demo("roofline", DEMO_KERNEL), *with_code(folder.name)]
    for mode in ALL_MODES:
        needed = {
            "compare": ["--baseline", str(BEFORE)],
            "page": ["--out", f"{folder.name}/step.html"],
            "export": ["--out", f"{folder.name}/step.db"],
        }.get(mode, [])
        if not needed:
            found.append(demo(mode))
        found.append(answer(small_capture(), mode, *needed, *ALL_OPTIONS[mode]))
        for data in hand_made(mode):
            is_for_all = mode in (*STEP_MODES, "anatomy")
            if is_for_all or run(data, "record").object["status"] == "ok":
                found.append(answer(data, mode, *needed))
                if mode in INCOMPLETE:
                    found.append(answer(data, mode, *ALL_OPTIONS[mode]))
    folder.cleanup()
    # The HBM bytes of this op are known, but not its total bytes.
    accesses = xspace.memory_access_breakdown((1, 1, 64))
    shape = "bf16[8]{0}"
    only_hbm = op("f", "add", 0, 5, shape=shape, flops=8, memory_access_breakdown=accesses)
    found.append(answer(trace([only_hbm]), "roofline", "--bytes=hbm"))
    found += [answer(judged_without_roofs(), "roofline", *by) for by in ((), ("--bytes=hbm",))]
    found.append(answer(hand_made_arrays()[0], "by_array", "--chip=profile"))
    # The path of this op contains a layer but no primitive.
    found.append(answer(trace([op("f", "loop fusion", 0, 5, tf_op="jit(f)/jit(g):")]), "by_scope"))
    found.append(answer(not_donated(), "bottleneck"))
    found += [answer(data, "bottleneck") for data in hand_made_kernels()]
    found.append(demo("kernel", "--kernel=flash_attention"))
    found.append(answer(peers.with_slow_device(), "bottleneck", "--peers"))
    found += with_evidence()
    found += single_ops()
    found += idle_hosts()
    found += captures()
    return found


def with_evidence() -> list[Json]:
    """Return answers with the evidence that the demo's causes lack: rounds of a loop, an unknown
    gain, and pauses."""
    rounds = [
        op("while.1", "while", 0, 400),
        *small_programs.rounds("reduced", "all-reduce", 0, 50, 4),
    ]
    recomputed = checkpoints.matmul(
        checkpoints.BACKWARD + checkpoints.AGAIN, 100, 90, checkpoints.STEP, checkpoints.LOSS
    )
    data = with_host(
        trace([recomputed], [("0", 0, 1000)]), allocator((100, 0, {"bytes_available": 7000}))
    )
    return [
        small_programs.bottleneck(small_programs.loop(small_programs.accumulating(), 3), rounds),
        answer(data, "bottleneck"),
        answer(data, "record"),
        pauses.answer_of(pauses.thread((pauses.FEED, 105, 199), ("$main.py:2 main", -10, 300))),
        *(answer(host_threads.waiting_for_a_loader(), mode) for mode in ("bottleneck", "idle")),
        answer(encode(Space([host_threads.device()])), "idle"),
    ]


def single_ops() -> list[Json]:
    """Return answers for single ops of most kinds, including ops with little information."""
    of_demo = ("flash_attention.3", "fusion.365", "while.43", "all-gather.116.cloned.1.call-done")
    found = [demo("by_op", f"--op={name}") for name in of_demo]
    for data in hand_made_traces():
        for row in answer(data, "by_op")["ops"]:
            found.append(answer(data, "by_op", "--top=0", f"--op={row['hlo_op']}"))
    # The program has neither shapes nor lines.
    parts = {
        "in": [hlo_proto.op("x", "parameter")],
        "main": [
            hlo_proto.op("y", "add"),
            hlo_proto.op("a", "fusion", "y", calls=["in"]),
            hlo_proto.op("z", "add", "a"),
        ],
    }
    for instruction in itertools.chain(*parts.values()):
        instruction.instruction.shape = None
    program = hlo_proto.hlo_proto(parts)
    plane = tpu_plane([op("a", "loop fusion", 0, 10, program_id=7)])
    metadata = hlo_proto.metadata_plane({7: ("f", program)})
    return [*found, answer(encode(Space([plane, metadata])), "by_op", "--op=a")]


def idle_hosts() -> list[Json]:
    """Return answers for gaps with host activity, and for a gap without duration on the trace's
    clock.
    """
    us = 10**6
    threads = (
        ("t", [("outer", 0, 99 * us), ("inner", 12 * us, 18 * us)]),
        ("u", [("e", 0, 99 * us)]),
    )
    ops: list[drawn.Drawn] = [("a", 0, 10 * us), ("b", 20 * us, 30 * us)]
    bent: list[drawn.Drawn] = [
        ("a", 0, 10, 1000, 10),
        ("b", 10, 20, 1050, 10),
        ("c", 25, 30, 1065, 5),
    ]
    planes = (
        (drawn.device(ops, (0, 40 * us)), drawn.host(*threads)),
        (drawn.device(bent, (0, 30)), drawn.host(*threads)),
    )
    return [answer(encode(Space(list(pair))), "idle") for pair in planes]


def odd_program(code: str = "") -> bytes:
    """Return a trace of a program whose shapes, shardings and VMEM use are unknown."""
    parts = [
        hlo_proto.op("x", "parameter", tf_op="x", extra=bytes_field(3, b"\xff")),
        hlo_proto.op("gather", "all-gather", "x"),
        hlo_proto.op(
            "kernel",
            "custom-call",
            "gather",
            target="tpu_custom_call",
            config=json.dumps({"custom_call_config": {"body": code}}).encode(),
        ),
    ]
    parts[0].instruction.shape = parts[1].instruction.shape = None
    program = hlo_proto.hlo_proto({"main": parts}, extra=hlo_proto.aliases((0, ())))
    plane = tpu_plane([op("gather", "all-gather", 0, 10, program_id=7)], [("0", 0, 20)])
    return encode(Space([plane, hlo_proto.metadata_plane({7: ("f", program)})]))


def comparisons_of_causes(folder: Path) -> list[Json]:
    """Return answers about causes that are new or gone: one of unknown gain, and a slow device."""
    folder.mkdir()
    made = answer(DEMO, "record")
    of_device = made["devices"][0]
    unknown = {"cause": "recompute", "gain_ps": None, "unknown_ps": 10**9, "device": None}
    slow = {"cause": "slow_device", "gain_ps": 10**9, "unknown_ps": None, "device": "TPU:1"}
    lines = [{**of_device["causes"][0], **facts} for facts in (unknown, slow)]
    paths = folder / "without.json", folder / "with.json"
    for path, causes in zip(paths, ([], lines), strict=True):
        of_device.update(causes=causes, examined=["recompute", "slow_device"])
        path.write_text(json.dumps(made))
    pairs = (paths, paths[::-1])
    return [answer(after, "compare", "--baseline", str(before)) for before, after in pairs]


def captures() -> list[Json]:
    """Return answers of `compare` and `spread`."""
    odd = odd_program()
    found = [
        answer(AFTER, "compare", "--baseline", str(BEFORE), "--fail-over=1", "--tokens=4096"),
        answer(AFTER, "compare", str(BEFORE), "--baseline", str(BEFORE)),
        answer(odd, "record"),
        answer(odd, "compare", "--baseline", str(shared_file("small.xplane.pb", small_capture()))),
    ]
    with tempfile.TemporaryDirectory() as folder:
        nameless = Path(folder) / "nameless.xplane.pb"
        nameless.write_bytes(unnamed_steps())
        instant = Path(folder) / "instant.xplane.pb"
        instant.write_bytes(trace([op("f", "loop fusion", 5, 0)]))
        found.append(answer(AFTER, "compare", "--baseline", str(instant)))
        other_code = Path(folder) / "other_code.xplane.pb"
        other_code.write_bytes(odd_program("other"))
        found.append(answer(odd, "compare", "--baseline", str(other_code)))
        found.append(answer(AFTER, "compare", "--baseline", str(nameless)))
        found += comparisons_of_causes(Path(folder) / "causes")
        found.append(answer(nameless, "compare", "--baseline", str(BEFORE)))
        names = [(host, f"/device:TPU:{number}") for host in "ab" for number in range(2)]
        for those in (names[1:2], names[2:]):
            slow = dict.fromkeys(those, lambda *_: 1.06)
            for record in records.pod(records.made_up(0), names, 6, slow=slow):
                (Path(folder) / f"{record['host']}.json").write_text(json.dumps(record))
            found.append(answer(folder, "spread"))
    for steps, durations in ((("1", "2"), (5, 5)), (("1", "1"), (0, 5))):
        with tempfile.TemporaryDirectory() as folder:
            for host, step, duration in zip("ab", steps, durations, strict=True):
                data = trace([op("f", "loop fusion", 5, duration)], [(step, 0, 20)])
                (Path(folder) / f"{host}.xplane.pb").write_bytes(data)
            found.append(answer(folder, "spread"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.xplane.pb"
        path.write_bytes(peers.with_slow_device())
        found.append(answer(path, "spread"))
    return found


def demo(mode: str, *options: str) -> Json:
    """Return a mode's answer for the demo."""
    outcome = run_as_printed(DEMO, mode, *options)
    if outcome.object["status"] != "ok":
        raise AssertionError(outcome)
    return outcome.object


@functools.cache
def error_answers() -> list[Outcome]:
    """Return error answers with every possible reason."""
    no_line = Space([xspace.Plane("/device:TPU:0", [xspace.Line("Steps")])])
    found = [
        run("no such path", "summary"),
        run(DEMO, "summary", "--device", "none"),
        run(encode(no_line), "summary"),
        run(trace([]), "summary"),
        run(mixed_trace(), "memory"),
        *(
            run(with_host(mixed_trace(), allocator((5, 0, says))), "memory")
            for says in (ALL_SIZES, {})
        ),
        run(holding(None), "memory"),
        run(mixed_trace(), "program"),
        run(DEMO, "program", "--flags", "no such path"),
        run(mixed_trace(), "page", "--out", "no such folder/step.html"),
        run(b"garbage", "summary"),
        run(measurements() + b"\x0a\x7f", "anatomy", *ALL_OPTIONS["anatomy"]),
        run(DEMO, "anatomy", "--plane", "none"),
        run(DEMO, "anatomy", "--plane", "0", "--line", "none"),
        run(encode(Space([xspace.Plane("/device:GPU:0")])), "summary"),
        run(DEMO, "summary", "--step", "99"),
        run(unnamed_steps(), "summary", "--step", "99"),
        run(DEMO, "summary", "--host", "none"),
        run(DEMO, "roofline", "--kernel-cost", "none=1,1"),
        run(DEMO, "by_op", "--op", "none"),
        run(DEMO, "by_scope", "--below", "none"),
        run(DEMO, "summary", "--chip", "v4"),
    ]
    with tempfile.TemporaryDirectory() as folder:
        found.append(run(folder, "summary"))
        (Path(folder) / "empty.json").touch()
        found.append(run(AFTER, "compare", "--baseline", f"{folder}/empty.json", "--fail-over=1"))
        found.append(
            run(
                mixed_trace(),
                *("page", "--out", f"{folder}/step.html", "--baseline", f"{folder}/none"),
            )
        )
        Path(folder, "empty.json").unlink()
        once = Path(folder, "once.xplane.pb")
        once.write_bytes(cycles.capture(["forward", "convert", "sample"]))
        found.append(run(cycles.capture(cycles.SERVING), "compare", "--baseline", str(once)))
        once.unlink()
        for made in (BEFORE, AFTER):
            shutil.copy(made, folder)
        found.append(run(folder, "spread"))
    no_mode = command.outcome_of([str(DEMO), "--mode=none"])
    found.append(Outcome(no_mode.fields, no_mode.status, no_mode.complaint))
    for missing in (
        errors.NoProtobuf("No module named 'google'"),
        errors.MissingPackage("no brotli: pip install brotli"),
    ):
        with mock.patch.object(load, "open_trace", side_effect=missing):
            found.append(run(mixed_trace(), "summary"))
    return found
