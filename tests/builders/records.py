"""Represent programs as lists of ops, edit their source code, and make records of their runs.

`of_demo()` returns the program of the trace in tests/data, and `made_up()` a random program. An
edit turns a program into a new program. An op's `origin` lists the original program's ops that it
comes from, so a test knows which lines correspond. `record()` simulates a run and returns the
object that the mode `record` would print.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import random
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import Any, NamedTuple

from tests.harness import DEMO
from tests.naive import op as naive_op, step as naive_step, wire as naive_wire

Json = dict[str, Any]
DEVICE = "/device:TPU:0"


class Frame(NamedTuple):
    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True)
class Op:
    """Represent an op of a program, with the total time of its executions in a step."""

    origin: frozenset[int]
    kind: str
    category: str
    frames: tuple[Frame, ...]
    tf_op: str | None
    text: str
    signature: str
    shape: str
    duration: int
    n: int = 1

    @cached_property
    def agg_key(self) -> str:
        if self.frames:
            stack = "\n".join(map(str, self.frames))
            return "stack:" + hashlib.sha1(stack.encode()).hexdigest()[:16]
        return f"tfop:{self.tf_op}" if self.tf_op else f"<no source>:{self.category}"

    @property
    def agg_key_kind(self) -> str:
        return "stack" if self.frames else "tf_op" if self.tf_op else "no_source"

    @property
    def key(self) -> tuple[str, str]:
        return self.kind, self.agg_key


Program = list[Op]
Edit = Callable[[Program], Program]


def groups_of(program: Program) -> dict[tuple[str, str], list[Op]]:
    groups: dict[tuple[str, str], list[Op]] = {}
    for op in program:
        groups.setdefault(op.key, []).append(op)
    return groups


@cache
def demo() -> tuple[Op, ...]:
    [path] = DEMO.glob("plugins/profile/*/*.xplane.pb.gz")
    data = gzip.decompress(path.read_bytes())
    planes = [naive_wire.fields(p) for p in naive_wire.every(naive_wire.fields(data), 1)]
    plane = next(naive_op.decode_plane(p) for p in planes if naive_op.plane_name(p) == DEVICE)
    first = naive_step.read_steps(plane, "Steps")[0].on_trace
    runs: dict[int, list[int]] = {}
    for event in plane.events_of("XLA Ops"):
        if event.start is not None and first.start <= event.start < first.end:
            runs.setdefault(event.metadata_id, []).append(event.duration)
    ops = []
    for origin, (metadata_id, durations) in enumerate(runs.items()):
        op = plane.ops[metadata_id]
        if op.is_container:
            continue
        frames = []
        for frame in (op.source_stack or "").split():
            file, line, column = frame.rsplit(":", 2)
            frames.append(Frame(file, int(line), int(column)))
        ops.append(
            Op(
                frozenset([origin]),
                op.kind,
                op.category,
                tuple(frames),
                op.tf_op,
                op.text,
                f"{(op.hlo.name or '').rstrip('.0123456789')} [{op.category}]",
                op.hlo.output,
                sum(durations),
                len(durations),
            )
        )
    return tuple(ops)


def of_demo() -> Program:
    return list(demo())


PRIMITIVES = (
    ("dot_general", "compute", "convolution fusion"),
    ("mul", "compute", "loop fusion"),
    ("add", "compute", "loop fusion"),
    ("reduce_sum", "compute", "loop fusion"),
    ("gather", "data_move", "gather"),
    ("transpose", "data_move", "data formatting"),
    ("convert_element_type", "data_move", "convert"),
    ("all_gather", "comm", "all-gather"),
)


def made_up(seed: int, n_calls: int = 30) -> Program:
    """Return a random call tree over some files; a leaf is a line with ops in one or two phases."""
    rng = random.Random(seed)
    root = "/home/dev/" + rng.choice(["proj", "exp/model", "src"])
    names = ["train", "model", "layers/attention", "layers/mlp", "layers/norm", "nn/__init__",
             "layers/__init__", "optim", "loss"]  # fmt: skip
    files = [f"{root}/{name}.py" for name in names]
    main = files[0]
    program: Program = []

    def leaf(frames: tuple[Frame, ...], scope: str, looped: bool) -> None:
        primitive, kind, category = rng.choice(PRIMITIVES)
        phases = rng.choice([("jvp()",), ("jvp()", "transpose(jvp())"), ("",)])
        for phase in phases:
            for _ in range(rng.choice([1, 1, 2])):
                parts = ["jit(train_step)", phase, "while/body/closed_call" if looped else ""]
                if "transpose" in phase and rng.random() < 0.5:
                    parts.append("rematted_computation")
                number = len(program)
                shape = f"bf16[{rng.choice([8, 64, 1024])},{rng.choice([128, 4096])}]"
                what = category.split()[-1]
                program.append(
                    Op(
                        frozenset([number]),
                        kind,
                        category,
                        frames,
                        "/".join(part for part in (*parts, scope, primitive) if part) + ":",
                        f"%{what}.{number} = {shape} {what}({shape} %p.{number + 7})",
                        f"{what} [{category}]",
                        shape,
                        round(rng.lognormvariate(18, 1.5)),
                        rng.choice([1, 4, 16]),
                    )
                )

    def calls(frames: tuple[Frame, ...], scope: str, depth: int, looped: bool) -> None:
        file = rng.choice(files)
        line = rng.randrange(10, 200)
        column = rng.choice([4, 8, 11])
        for _ in range(rng.randrange(2, 5)):
            # Lines that are close together and at the same column are hard to distinguish.
            line += rng.choice([1, 1, 2, 3])
            if rng.random() < 0.4:
                column = rng.choice([4, 8, 11, 12, 20])
            here = (*frames, Frame(file, line, column))
            inner = f"{scope}/{rng.choice('abcdef')}" if rng.random() < 0.3 else scope
            if depth > 0 and rng.random() < 0.6:
                calls(here, inner, depth - 1, looped or rng.random() < 0.2)
            else:
                leaf(here, inner, looped)

    while len(groups_of(program)) < n_calls:
        calls(
            (Frame(main, 67, 0), Frame(main, 58, 11)), rng.choice(["", "block", "head"]), 3, False
        )
    for what in ("copy", "copy-done", "bitcast"):
        for _ in range(3):
            program.append(without_stack(len(program), what, rng.randrange(10**5, 10**7)))
    return program


def without_stack(number: int, what: str, duration: int) -> Op:
    """Return an op without a stack that moves data."""
    text = f"%{what}.{number} = f32[8] {what}(f32[8] %q.{number})"
    tf_op = f"w['{what}']:" if what == "copy" else None
    signature, origin = f"{what} [{what}]", frozenset([number])
    return Op(origin, "data_move", what, (), tf_op, text, signature, "f32[8]", duration)


def with_frames(program: Program, edit: Callable[[Frame], Frame]) -> Program:
    return [replace(op, frames=tuple(map(edit, op.frames))) for op in program]


def with_tf_ops(program: Program, edit: Callable[[str], str]) -> Program:
    return [replace(op, tf_op=op.tf_op and edit(op.tf_op)) for op in program]


def renumber(program: Program, seed: int = 1) -> Program:
    """Change all SSA names, as recompiling the program does."""
    rng = random.Random(seed)
    other: dict[str, str] = {}

    def number(found: re.Match[str]) -> str:
        return other.setdefault(found[0], f".{rng.randrange(10_000, 99_999)}{len(other)}")

    def tf_op(op: Op) -> str | None:
        # An op without a function name has its own name as tf_op, so rename that, too.
        is_name = op.tf_op and re.fullmatch(r"[\w-]+\.\d+:", op.tf_op)
        return re.sub(r"\.\d+", number, op.tf_op or "") if is_name else op.tf_op

    return [replace(op, text=re.sub(r"\.\d+", number, op.text), tf_op=tf_op(op)) for op in program]


def shift(file: str, lines: int, columns: int = 0, after: int = 0, until: int = 10**9) -> Edit:
    """Move a range of lines within a file."""

    def moved(frame: Frame) -> Frame:
        if frame.file != file or not after < frame.line <= until:
            return frame
        return Frame(file, frame.line + lines, frame.column + columns)

    return lambda program: with_frames(program, moved)


def move_files(old: str, new: str) -> Edit:
    def moved(frame: Frame) -> Frame:
        return frame._replace(file=frame.file.replace(old, new, 1))

    return lambda program: with_frames(program, moved)


def launch_from(*launcher: Frame) -> Edit:
    def edit(program: Program) -> Program:
        return [replace(op, frames=launcher + op.frames if op.frames else ()) for op in program]

    return edit


def insert_frame(caller: Frame, helper: Frame) -> Edit:
    """Insert a helper function between `caller` and the functions that it calls."""

    def edit(program: Program) -> Program:
        edited = []
        for op in program:
            frames: list[Frame] = []
            for at, frame in enumerate(op.frames):
                frames.append(frame)
                if frame == caller and at + 1 < len(op.frames):
                    frames.append(helper)
            edited.append(replace(op, frames=tuple(frames)))
        return edited

    return edit


def rename_scope(old: str, new: str) -> Edit:
    def edit(tf_op: str) -> str:
        return "/".join(new if part == old else part for part in tf_op.split("/"))

    return lambda program: with_tf_ops(program, edit)


def fuse(key: tuple[str, str], into: tuple[str, str]) -> Edit:
    """Fuse all ops of a group into an op of another group."""

    def edit(program: Program) -> Program:
        gone = [op for op in program if op.key == key]
        kept = [op for op in program if op.key != key]
        at = next(index for index, op in enumerate(kept) if op.key == into)
        origin = kept[at].origin.union(*(op.origin for op in gone))
        time = kept[at].duration + sum(op.duration for op in gone) // 2
        kept[at] = replace(kept[at], origin=origin, duration=time, text=kept[at].text + " fused")
        return kept

    return edit


def split_op(place: int) -> Edit:
    def edit(program: Program) -> Program:
        op = program[place]
        halves = [
            replace(op, text=f"{op.text} half{half}", duration=op.duration // 2) for half in (0, 1)
        ]
        return [*program[:place], *halves, *program[place + 1 :]]

    return edit


def unroll(scope: str = "while/body/closed_call/", n_trips: int = 4) -> Edit:
    """Unroll a loop: repeat its ops for each iteration."""

    def edit(program: Program) -> Program:
        edited = []
        for op in program:
            if op.tf_op is None or scope not in op.tf_op:
                edited.append(op)
                continue
            for trip in range(n_trips):
                edited.append(
                    replace(
                        op,
                        tf_op=op.tf_op.replace(scope, ""),
                        text=f"{op.text} trip.{trip}",
                        duration=op.duration // n_trips,
                        n=max(1, op.n // n_trips),
                    )
                )
        return edited

    return edit


def slow_down(key: tuple[str, str], factor: float) -> Edit:
    def edit(program: Program) -> Program:
        return [
            replace(op, duration=round(op.duration * factor)) if op.key == key else op
            for op in program
        ]

    return edit


def chain(*edits: Edit) -> Edit:
    def edit(program: Program) -> Program:
        for one_edit in edits:
            program = one_edit(program)
        return program

    return edit


def digest(texts: Iterable[str]) -> str:
    return hashlib.sha1("\n".join(sorted(set(texts))).encode()).hexdigest()[:16]


def distinct(values: Iterable[str | None]) -> list[str]:
    return sorted({value for value in values if value})[:32]


def record(
    program: Program,
    n_steps: int = 1,
    *,
    jitter: float = 0.0,
    seed: int = 0,
    idle: float = 0.05,
    devices: Sequence[str] = (DEVICE,),
    host: str = "host",
    step_source: str = "steps",
) -> Json:
    """Return the record of a run of some steps, with independent jitter for each execution."""
    rng = random.Random(seed)
    groups = groups_of(program)
    frames = {frame: None for op in program for frame in map(str, op.frames)}
    place = {frame: index for index, frame in enumerate(frames)}
    return {
        "status": "ok",
        "mode": "record",
        "profile_dir": "somewhere",
        "xplane_file": f"{host}.xplane.pb",
        "notes": [],
        "format": 1,
        "run": "2026_11_21_00_00_00",
        "host": host,
        "frames": list(frames),
        "groups": [facts_of_group(*key, ops, place) for key, ops in groups.items()],
        "devices": [
            {
                "device": device,
                "device_type": "TPU7x",
                "clock": "device",
                "step_source": step_source,
                "program": digest(op.text for op in program),
                "causes": [],
                "examined": [],
            }
            for device in devices
        ],
        "steps": [
            {
                "device": device,
                "index": index,
                "name": f"step {index}" if step_source == "steps" else "jit_train_step(1)",
                **figures_of_step(groups, jitter, rng, idle),
            }
            for device in range(len(devices))
            for index in range(n_steps)
        ],
    }


def facts_of_group(kind: str, agg_key: str, ops: list[Op], place: dict[str, int]) -> Json:
    first = ops[0]
    return {
        "kind": kind,
        "agg_key": agg_key,
        "agg_key_kind": first.agg_key_kind,
        "frames": [place[str(frame)] for frame in first.frames],
        "source": str(first.frames[-1]).rpartition(":")[0] if first.frames else None,
        "tf_ops": distinct(op.tf_op for op in ops),
    }


def figures_of_step(
    groups: dict[tuple[str, str], list[Op]], jitter: float, rng: random.Random, idle: float
) -> Json:
    durs = [
        sum(
            max(0, round(op.duration * rng.gauss(1, jitter / math.sqrt(op.n))))
            if jitter
            else op.duration
            for op in ops
        )
        for ops in groups.values()
    ]
    comm = sum(d for (kind, _), d in zip(groups, durs, strict=True) if kind == "comm")
    ns = [sum(op.n for op in ops) for ops in groups.values()]
    return {
        "used": True,
        "why_not": None,
        "n_xla_ops_events": sum(ns),
        "duration_ps": round(sum(durs) * (1 + idle)),
        "busy_ps": sum(durs),
        "comm_ps": comm,
        "host_ps": 0,
        "wait_ps": comm // 2,
        "durs_ps": durs,
        "ns": ns,
    }


Name = tuple[str, str]


def pod(
    program: Program,
    names: Sequence[Name],
    n_steps: int = 5,
    *,
    jitter: float = 0.01,
    seed: int = 0,
    slow: dict[Name, Callable[[str, str], float]] | None = None,
    idle: dict[Name, int] | None = None,
    from_host: dict[Name, int] | None = None,
    step_source: str = "steps",
) -> list[Json]:
    """Return the records of all hosts in a run whose collectives wait for the last device.

    `slow` maps devices to functions that return the factor by which an op is slower. `idle` adds
    idle time to every step, and `from_host` adds time spent waiting for the host.
    """
    rng = random.Random(seed)
    base = record(program)
    groups = [(group["kind"], group["agg_key"]) for group in base["groups"]]
    [plain] = base["steps"]
    collective = next(at for at, (kind, _) in enumerate(groups) if kind == "comm")
    hosts = {host: [name for name in names if name[0] == host] for host, _ in names}
    steps: dict[Name, list[Json]] = {name: [] for name in names}
    for index in range(n_steps):
        work: dict[Name, tuple[list[int], int, int, int]] = {}
        for name in names:
            factor = (slow or {}).get(name)
            durs = [
                dur
                if key[0] == "comm"
                else round(dur * (factor(*key) if factor else 1) * rng.gauss(1, jitter))
                for key, dur in zip(groups, plain["durs_ps"], strict=True)
            ]
            own = sum(dur for (kind, _), dur in zip(groups, durs, strict=True) if kind != "comm")
            more = (idle or {}).get(name, 0), (from_host or {}).get(name, 0)
            work[name] = durs, own, 10**8 + more[0], 10**7 + more[1]
        last = max(sum(times[1:]) for times in work.values())
        for name, (durs, own, idle_ps, host_ps) in work.items():
            durs[collective] += last - own - idle_ps - host_ps
            comm = sum(dur for (kind, _), dur in zip(groups, durs, strict=True) if kind == "comm")
            busy = sum(durs) + host_ps
            step = {"index": index, "durs_ps": durs, "busy_ps": busy, "host_ps": host_ps}
            step |= {"comm_ps": comm, "duration_ps": busy + idle_ps, "name": f"step {index}"}
            if step_source == "modules":
                step["name"] = "jit_train_step(1)"
            steps[name].append({**plain, **step})
    base["devices"][0]["step_source"] = step_source
    return [of_host(base, there, steps) for there in hosts.values()]


def of_host(base: Json, names: Sequence[Name], steps: dict[Name, list[Json]]) -> Json:
    """Return a host's record, made from the record of a single device."""
    [(host, _), *_] = names
    return {
        **base,
        "host": host,
        "xplane_file": f"{host}.xplane.pb",
        "devices": [{**base["devices"][0], "device": device} for _, device in names],
        "steps": [{**step, "device": at} for at, name in enumerate(names) for step in steps[name]],
    }
