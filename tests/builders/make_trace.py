"""Write large synthetic traces that resemble real ones, for the benchmark and the tests.

    python3 -m tests.builders.make_trace OUT.xplane.pb [--factor F] [--instructions N]

Each device runs the same program in every step: some ops, then a `while` with a repeated body, then
more ops. At factor 1, each of 8 devices has 316 000 `XLA Ops` events, and the file has 3.5 million
events and about 120 MB. The factor scales the number of events, but not the number of ops (1000).
One event in twelve has no duration. With `--instructions`, the trace is another one: one step of a
program with this many instructions. Traces with equal arguments have equal bytes.

Writing is fast, because lines are encoded only once for all devices, as are the common parts of
events.
"""

from __future__ import annotations

import argparse
import functools
import os
import random
from collections.abc import Sequence
from typing import BinaryIO, NamedTuple

from tests.builders.hlo_proto import array, hlo_proto, metadata_plane, op as instruction, tuple_of
from tests.builders.xspace import (
    EventMetadata,
    Op,
    Plane,
    Space,
    StatNames,
    StatValue,
    bytes_field,
    encode,
    int_field,
    memory_access_breakdown,
    op as executed,
    text_field,
    tpu_plane,
    varint,
)

DEVICE = "/device:TPU:0"

N_OPS = 1000
N_BODY_OPS = 250
N_INSTANT = 12
N_HOST_NAMES = 200
N_HOST_LINES = 40
BLOCK_EVENTS = 1000

FIRST_OFFSET_PS = 5_353_251_593_250
STEP_GAP_PS = 90_000_000
FIRST_STEP_ID = 2_000_000


class Shape(NamedTuple):
    """Hold the parameters that determine a trace's size."""

    factor: float = 1.0
    # With 0 steps, the program runs once, and the trace has no Steps line.
    n_steps: int = 8
    n_devices: int = 8
    n_hosts: int = 1
    # Every plane except the first device's is written this many times.
    others: int = 1

    @property
    def trips(self) -> list[int]:
        """Return the loop iterations of each step: most in step 5, fewest in step 0."""
        n_runs = self.n_steps or 1
        trips = [max(1, round(155 * self.factor * 8 / n_runs))] * n_runs
        if n_runs > 5:
            trips[5] += 1
            trips[0] -= 1
        return trips

    def filler(self, n_blocks: int, n_ids: int) -> Pieces:
        """Return many events, in identical blocks, for a line that no mode reads."""
        rng = random.Random(3)
        block = b"".join(
            bytes_field(
                4,
                int_field(1, 1 + rng.randrange(n_ids))
                + int_field(2, FIRST_OFFSET_PS + i * 10**6)
                + int_field(3, rng.randrange(10**5, 10**6)),
            )
            for i in range(BLOCK_EVENTS)
        )
        return [block] * max(1, round(n_blocks * self.factor))


BF16 = "bf16[4,2048,4096]{2,1,0:T(8,128)(2,1)}"
F32 = "f32[4,256,512]{2,1,0:T(8,128)}"
SLICE = "s8[4194304]{0:T(1024)(128)(4,1)S(1)}"
FLAGS = "u32[]{:S(2)}"


class Form(NamedTuple):
    """Represent a kind of op: `%name.7 = shape opcode(operand, …), attributes`."""

    category: str
    name: str
    shape: str
    opcode: str
    operand: str
    attributes: str = ""

    @property
    def computes(self) -> bool:
        return self.category.endswith(("fusion", "elementwise", "reduce", "formatting"))


CALLS = ", kind=kLoop, calls=%fused_computation.{}"
KERNEL = ', custom_call_target="tpu_custom_call"'
COPY, SLICES = f"({BF16}, {BF16}, {FLAGS})", f"(({SLICE}), {SLICE}, {FLAGS})"
GROUPS = ", channel_id={}, replica_groups=[4,2]<=[2,4]T(1,0), dimensions={{0}}"
FORMS = (
    Form("loop fusion", "multiply_add_fusion", BF16, "fusion", BF16, CALLS),
    Form("convolution fusion", "convolution_bitcast_fusion", BF16, "fusion", BF16, CALLS),
    Form("copy-start", "copy-start", COPY, "copy-start", BF16),
    Form("copy-done", "copy-done", BF16, "copy-done", COPY),
    Form("output fusion", "add_fusion", F32, "fusion", BF16, CALLS),
    Form("async-start", "slice-start", SLICES, "async-start", SLICE, ", calls=%async.{}"),
    Form("async-done", "slice-done", SLICE, "async-done", SLICES),
    Form("custom-call", "flash_attention", f"({BF16}, {F32})", "custom-call", BF16, KERNEL),
    Form("data formatting", "copy", BF16, "copy", "bf16[4,2048,4096]{1,2,0:T(8,128)(2,1)}"),
    Form("custom fusion", "constant_dynamic-slice_fusion", F32, "fusion", F32, CALLS),
    Form("non-fusion elementwise", "convert", BF16, "convert", F32),
    Form("all-gather", "all-gather", BF16, "all-gather", BF16, GROUPS),
    Form("async-done", "all-gather.cloned.1.call-done", BF16, "async-done", f"(({BF16}), {BF16})"),
    Form("reduce", "reduce", F32, "reduce", BF16, ", dimensions={{1}}, to_apply=%region.{}"),
    Form("dynamic-slice", "dynamic-slice", F32, "dynamic-slice", F32),
)
WHILE = f"({BF16}, {F32})"
LOOP = Form("while", "while", WHILE, "while", WHILE, ", condition=%region_1, body=%region_0")


def text_of(form: Form, number: int, size: int) -> str:
    """Return an op's HLO text, with enough operands to reach about `size` characters."""
    head = f"%{form.name}.{number} = {form.shape} {form.opcode}("
    operands = [f"{form.operand} %param.{number}"]
    left = size - len(head)
    while left > 0 and form.opcode in ("fusion", "custom-call"):
        operands.append(f"{form.operand} %get-tuple-element.{number + len(operands)}")
        left -= len(operands[-1]) + 2
    return f"{head}{', '.join(operands)}){form.attributes.format(number)}"


def stats_of(form: Form, number: int, rng: random.Random) -> dict[str, StatValue]:
    size = 1 << rng.randrange(16, 26)
    stats: dict[str, StatValue] = {
        "hlo_category": form.category,
        "program_id": 12190760917235803885,
        "symbol_id": number,
        "bytes_accessed": 3 * size,
        "raw_bytes_accessed": 3 * size,
        "memory_access_breakdown": memory_access_breakdown((1, 1, 2 * size), (2, 3, size)),
        "shape_with_layout": form.shape,
    }
    if form.computes:
        stats |= {"flops": 1000 * size, "model_flops": 1000 * size}
    if form is not LOOP and not form.category.startswith("copy"):
        line = 1 + number // 4  # Several ops share a source line.
        frames = ["<embedded module '_launcher'>:153:2", "<embedded module '_launcher'>:35:2"]
        frames += [f"/src/train/{file}.py:{line + i}:4" for i, file in enumerate(("main", "step"))]
        frames += [f"/src/models/transformer/block_{line % 7}.py:{line}:12"]
        phase = ("jvp(layer)", "transpose(jvp(layer))", "optimizer")[number % 3]
        stats |= {
            "source": frames[-1].rpartition(":")[0],
            "source_stack": "\n".join(frames),
            "tf_op": f"jit(train_step)/jit(main)/{phase}/while/body/mul_{line}:",
        }
    return stats


def op_metadata(names: StatNames) -> list[EventMetadata]:
    """Return the metadata of the loop, of its body, and of the ops before and after the loop."""
    rng = random.Random(1)
    metadata = []
    for number in range(1, N_OPS + 1):
        form = LOOP if number == 1 else FORMS[number % len(FORMS)]
        text = text_of(form, number, int(200 * 50 ** rng.random() ** 2))
        stats = [names.stat(*item) for item in stats_of(form, number, rng).items()]
        metadata.append(EventMetadata(number, text, stats, text[1:].partition(" ")[0]))
    return metadata


class Execution(NamedTuple):
    """Hold the bytes around an event's offset, which the event contains twice."""

    duration: int
    head: bytes
    middle: bytes
    tail: bytes

    @staticmethod
    def of(op: int, duration: int, stat_ids: Sequence[int]) -> Execution:
        offset_stat, duration_stat = (int_field(1, stat_id) for stat_id in stat_ids)
        # Each offset is a varint of seven bytes, so the length of the first stat is known.
        n_offset = len(varint(FIRST_OFFSET_PS))
        return Execution(
            duration,
            head=int_field(1, op) + varint(2 << 3),
            middle=(
                # The duration field is omitted if it is 0.
                (int_field(3, duration) if duration else b"")
                + varint(4 << 3 | 2)
                + varint(len(offset_stat) + 1 + n_offset)
                + offset_stat
                + varint(3 << 3)
            ),
            tail=bytes_field(4, duration_stat + int_field(3, duration)),
        )

    def event(self, offset: int) -> bytes:
        at = varint(offset)
        event = b"".join((self.head, at, self.middle, at, self.tail))
        return bytes((4 << 3 | 2, len(event))) + event


def executions_of(op: int, stat_ids: Sequence[int], rng: random.Random) -> list[Execution]:
    """Return possible executions of an op; the first has no duration."""
    typical = rng.lognormvariate(15.5, 0.8)
    durations = [int(typical * rng.uniform(0.9, 1.1)) for _ in range(1, N_INSTANT)]
    return [Execution.of(op, duration, stat_ids) for duration in (0, *durations)]


class Program:
    """Hold a device's steps and the encoded events of its ops line."""

    def __init__(self, trips: Sequence[int], stat_ids: Sequence[int]) -> None:
        self.slices: list[bytes] = []
        self.steps: list[tuple[int, int]] = []
        rng = random.Random(2)
        ops = [executions_of(op, stat_ids, rng) for op in range(1, N_OPS + 1)]
        body, around = ops[1 : 1 + N_BODY_OPS], ops[1 + N_BODY_OPS :]
        before, after = around[: len(around) // 2], around[len(around) // 2 :]

        def pick(choices: list[list[Execution]]) -> list[Execution]:
            return [ways[int(rng.random() * N_INSTANT)] for ways in choices]

        now = FIRST_OFFSET_PS
        for n_trips in trips:
            start = now
            now = self._append(pick(before), now)
            loop = [pick(body) for _ in range(n_trips)]
            whole = sum(execution.duration for trip in loop for execution in trip)
            self._append([Execution.of(1, whole, stat_ids)], now)
            for trip in loop:
                now = self._append(trip, now)
            now = self._append(pick(after), now)
            self.steps.append((start, now - start + STEP_GAP_PS // 3))
            now += STEP_GAP_PS
        if len(varint(now)) != len(varint(FIRST_OFFSET_PS)):
            raise ValueError("the trace is too long: its offsets don't all take seven bytes")

    def _append(self, executions: list[Execution], now: int) -> int:
        events = []
        for execution in executions:
            events.append(execution.event(now))
            now += execution.duration
        self.slices.append(b"".join(events))
        return now


class Hole:
    """Represent a run of zero bytes that takes no space on disk."""

    def __init__(self, size: int) -> None:
        self.size = size

    def __len__(self) -> int:
        return self.size


# A message as a list of byte strings, which are concatenated only when written.
Pieces = list[bytes | Hole]


def wrapped(number: int, pieces: Pieces) -> Pieces:
    """Return a length-delimited field with the given content."""
    return [varint(number << 3 | 2) + varint(sum(map(len, pieces))), *pieces]


def line(line_id: int, name: str, timestamp_ns: int, events: Pieces) -> Pieces:
    head = int_field(1, line_id) + text_field(2, name) + int_field(3, timestamp_ns)
    return wrapped(3, [head, *events])


@functools.cache
def device_pieces(shape: Shape) -> Pieces:
    """Return the fields of a device plane, except its name."""
    names = StatNames()
    stat_ids = names.id_of("device_offset_ps"), names.id_of("device_duration_ps")
    metadata = op_metadata(names)
    program = Program(shape.trips, stat_ids)
    steps: Pieces = []
    for i, (start, duration) in enumerate(program.steps):
        step = int_field(1, FIRST_STEP_ID + i) + int_field(2, start) + int_field(3, duration)
        steps.append(bytes_field(4, step))
        metadata.append(EventMetadata(FIRST_STEP_ID + i, f"{100 + i}"))
    facts = [
        names.stat("device_type_string", "TPU v7x"),
        names.stat("peak_teraflops_per_second", 1153.5),
        names.stat("peak_hbm_bw_gigabytes_per_second", 3690.0),
    ]
    return [
        *(line(1, "Steps", 0, steps) if shape.n_steps else []),
        *line(2, "XLA Modules", 0, steps),
        *line(3, "XLA Ops", 0, [*program.slices]),
        *line(4, "Async XLA Ops", 0, shape.filler(60, N_OPS)),
        encode(Plane(None, [], metadata, names.metadata(), facts)),
    ]


def host_pieces(shape: Shape) -> Pieces:
    """Return the fields of a host plane with many threads, except its name; times are since the
    epoch."""
    events = shape.filler(12, N_HOST_NAMES)
    names = [EventMetadata(i, f"Thunk::Execute#{i}") for i in range(1, N_HOST_NAMES + 1)]
    threads = [
        piece
        for i in range(N_HOST_LINES)
        for piece in line(3117377 + i, f"tf_XLAEigen/{i}", 1_758_000_000_000_000_000, events)
    ]
    return [*threads, encode(Plane(None, [], names))]


def write_plane(file: BinaryIO, name: str, pieces: Pieces) -> None:
    for piece in wrapped(1, [text_field(2, name), *pieces]):
        if isinstance(piece, Hole):
            file.seek(len(piece), os.SEEK_CUR)
        else:
            file.write(piece)


def write_trace(path: str | os.PathLike[str], shape: Shape | None = None) -> None:
    shape = shape or Shape()
    with open(path, "wb") as file:
        host = host_pieces(shape)
        for i in range(shape.n_hosts * shape.others):
            write_plane(file, f"/host:other-{i}" if i else "/host:CPU", host)
        device = device_pieces(shape._replace(others=1))
        for i in range(1 + (shape.n_devices - 1) * shape.others):
            write_plane(file, f"/device:TPU:{i}", device)


def write_sparse_trace(path: str | os.PathLike[str], hole: int) -> None:
    """Write a small trace with two holes of `hole` bytes, which readers of the ops must skip.

    One hole is in a plane before the device's plane, the other in a line before `XLA Ops`. Each
    hole is the value of a stat.
    """
    device = device_pieces(Shape(factor=0.01))
    bytes_value = wrapped(6, [Hole(hole)])
    with open(path, "wb") as file:
        write_plane(file, "/device:TPU:1", [*wrapped(6, bytes_value), *device])
        events = wrapped(4, wrapped(4, bytes_value))
        write_plane(file, DEVICE, [*line(5, "Scalar Unit", 0, events), *device])


def write_program_trace(path: str | os.PathLike[str], n_instructions: int) -> None:
    """Write a trace with one step of a program. Each of the program's layers has ten instructions,
    among them a fusion that updates a slice of an array."""
    whole = array("f32", 4, 8, 128)
    computations = {}
    main = [
        instruction("x", "parameter"),
        instruction("i", "constant", shape=array("s32")),
        instruction("state", "parameter", number=1, shape=whole),
    ]
    ran: list[Op] = []
    before, state = "x", "state"
    for layer in range(n_instructions // 10):
        line = f"m.py:{layer % 50 + 1}"
        negate, bitcast, fusion, copy, add = (
            f"{name}.{layer}" for name in ("negate", "bitcast", "fusion", "copy", "add")
        )
        computations[f"fused.{layer}"] = [
            instruction(f"p.{layer}", "parameter", shape=whole),
            instruction(f"q.{layer}", "parameter", number=1),
            instruction(f"k.{layer}", "parameter", number=2, shape=array("s32")),
            instruction(f"n.{layer}", "negate", f"q.{layer}"),
            instruction(
                f"u.{layer}", "dynamic-update-slice",
                f"p.{layer}", f"n.{layer}", *[f"k.{layer}"] * 3, shape=whole,
            ),
        ]  # fmt: skip
        calls = [f"fused.{layer}"]
        main += [
            instruction(negate, "negate", before, line=line),
            instruction(bitcast, "bitcast", negate),
            instruction(fusion, "fusion", state, bitcast, "i", shape=whole, calls=calls, line=line),
            instruction(copy, "copy", bitcast),
            instruction(add, "add", copy, bitcast),
        ]
        before, state = add, fusion
        for name in (negate, fusion, copy, add):
            category = "data formatting" if name == copy else "loop fusion"
            accesses = memory_access_breakdown((1, 1, 4096), (2, 1, 4096))
            ran.append(
                executed(
                    name, category, len(ran) * 10, 9, program_id=7, bytes_accessed=8192,
                    tf_op=f"jit(f)/layer_{layer}/neg:", memory_access_breakdown=accesses,
                )
            )  # fmt: skip
    out = tuple_of(array("f32", 8, 128), whole)
    main.append(instruction("out", "tuple", before, state, shape=out))
    program = metadata_plane({7: ("jit_f(7)", hlo_proto({**computations, "main": main}))})
    space = Space([tpu_plane(ran, [("0", 0, len(ran) * 10)]), program])
    with open(path, "wb") as file:
        file.write(encode(space))


def main() -> None:
    parser = argparse.ArgumentParser(prog="make_trace")
    parser.add_argument("path", metavar="OUT.xplane.pb")
    parser.add_argument("--factor", type=float, default=1.0, help="scales the events (1)")
    parser.add_argument("--others", type=int, default=1, help="copies of the other planes (1)")
    parser.add_argument("--devices", type=int, default=8, help="devices (8)")
    parser.add_argument("--steps", type=int, default=8, help="steps of each device (8)")
    parser.add_argument("--instructions", type=int, help="write a program of this size instead")
    given = parser.parse_args()
    if given.instructions:
        write_program_trace(given.path, given.instructions)
    else:
        shape = Shape(given.factor, given.steps, given.devices, others=given.others)
        write_trace(given.path, shape)


if __name__ == "__main__":
    main()
