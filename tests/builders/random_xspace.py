"""Make random XSpaces: small and unusual, but similar to real traces.

`random_case(rng)` returns the bytes of a file, a mode and options, for comparing the program with
the naive implementation. Times come from a coarse grid and names from small pools, so that ties,
shared groups, and touching or overlapping ops are frequent. Some files have only the trace's clock.
In others, the core's clock agrees with the trace's clock or differs from it.
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import _peaks
from _breakdown.pipeline import vocabulary
from tests.builders.random_programs import PLACES, RandomPrograms
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    Stat,
    StatNames,
    Value,
    bytes_field,
    compressed,
    double,
    encode,
    int64,
    int_field,
    memory_access_breakdown,
    raw,
    ref,
    string,
    text_field,
    uint64,
)
from tests.harness import DEMO, LISTED_MODES, MODES


def words(text: str) -> list[str]:
    return text.split()


# The pool is the program's vocabulary, so new categories are included automatically.
OPCODES = [category for category in vocabulary.KIND_OF if " " not in category]
FUSIONS = [
    f"{family} fusion"
    for family in words(
        "loop input output custom convolution all-reduce all-gather all-reduce-scatter gather "
        "scatter megacore brand-new infeed"
    )
]
# Opcodes in the HLO texts, by category.
SPECIAL_CATEGORIES = {
    "data formatting": words("copy transpose reshape dynamic-reshape"),
    "non-fusion elementwise": words("add multiply convert convert subtract compare tanh"),
    "convolution base-dilated": ["convolution"],
    "convolution window-dilated": ["convolution"],
    "host send": ["send"],
    "host send-done": ["send-done"],
    "host recv": ["recv"],
    "host recv-done": ["recv-done"],
    "SparseCoreV0 infeed wait": ["infeed"],
    "SparseCoreV0 outfeed": ["outfeed"],
    "all-gather-update": ["all-gather-done"],
    "reduce-scatter-start": ["async-start"],
    "ragged-all-to-all-done": ["async-done"],
}
UNKNOWN_CATEGORIES = ["quantum-leap", "copies", "host copy", "convolutional", "brand-new-done"]
MATH_CATEGORIES = [
    *("convolution fusion", "loop fusion", "output fusion", "custom fusion", "custom-call"),
    *("custom-call", "custom-call", "non-fusion elementwise", "dot", "convolution", "reduce"),
]
FREQUENT_CATEGORIES = [
    *("copy-done", "copy-start", "data formatting", "all-reduce", "all-gather-done", "slice"),
    *("while", "conditional", "call", "megacore fusion", "async-start", "async-done", "async-done"),
    *("fusion", "loopfusion"),
    *MATH_CATEGORIES,
]

# Categories of communication and data movement. The tool treats these in more different ways than
# other categories.
MOVING_CATEGORIES = [
    *words("async-start async-done async-done async-done copy-start copy-done copy-done copy"),
    *words("all-reduce reduce-scatter all-gather-start all-gather-done recv-done send slice"),
    *("custom fusion", "custom fusion", "all-reduce-scatter fusion", "loop fusion", "dot"),
]

ASYNC_NAMES = [
    *words("all-gather all-reduce reduce-scatter all-to-all ragged-all-to-all send recv"),
    *words("collective-permute collective-broadcast slice dynamic-slice dynamic-update-slice"),
    *words("copy pad concatenate sparse-core-data-format gather_offload scatter_offload"),
    # These names have no known prefix, or a letter directly after the prefix.
    *words("slicer copying padded sender all-gathering async-collective host gather barrier"),
]
ASYNC_FUSIONS = [
    *words("async-collective-start async-collective-start_2 async-collective-done"),
    *words("async-collective-done7 async-collective-doner async-collective-update"),
]
NAMES = words("fusion add_fusion multiply_reduce-fusion copy constant_dynamic-slice_fusion")
KERNELS = ["flash_attention", "my_kernel"]
SUFFIXES = ["", "", ".1", ".48", ".remat", ".remat2", ".clone.3", ".200.cloned.1", ".7..sunk"]
ASYNC_SUFFIXES = ["", "-done", "_async_done", ".call-done", "2", ".5.cloned.1.call-start"]
CUSTOM_CALL_TARGETS = [*["tpu_custom_call"] * 4, "ConcatBitcast", "TODO(b/522284627)"]

# Ops from real traces: category, name, output shape, and the rest of the HLO text.
SEEN_OPS = [
    (
        "async-done",
        "%all-gather.200.cloned.1.call-done",
        "s32[4,4,2048]{2,1,0:T(4,128)}",
        "async-done(((s32[1,4,2048]{2,1,0:T(4,128)}), s32[4,4,2048]{2,1,0:T(4,128)}, "
        "(s32[8192]{0:T(1024)})) %all-gather.200.cloned.1.call-update)",
    ),
    (
        "async-start",
        "%slice-start.12",
        "((s8[8388608]{0:T(1024)(128)(4,1)}), s8[4194304]{0:T(1024)(128)(4,1)S(1)}, s32[]{:S(2)})",
        "async-start(s8[8388608]{0:T(1024)(128)(4,1)} %bitcast.578), calls=%async_computation.75",
    ),
    (
        "custom-call",
        "%custom-call.77",
        "f32[4,1024,512]{2,1,0:T(8,128)S(1)}",
        "custom-call(s8[4194304]{0:T(1024)(128)(4,1)S(1)} %slice-done.10), "
        'custom_call_target="ConcatBitcast"',
    ),
    (
        "all-to-all",
        "%all-to-all.2",
        "bf16[2,4,2048,256]{3,2,1,0:T(8,128)(2,1)S(1)}",
        "all-to-all(bf16[2,4,2048,256]{3,2,1,0:T(8,128)(2,1)S(1)} %bitcast.510), channel_id=66, "
        "replica_groups=mesh['axis_0'=4,'axis_1'=2] {'axis_0':(2)2}, dimensions={0}",
    ),
    (
        "copy-done",
        "%copy-done.2",
        "f32[5,1024,1024,256]{3,2,1,0:T(8,128)S(5)}",
        "copy-done((f32[5,1024,1024,256]{3,2,1,0:T(8,128)S(5)}, "
        "f32[5,1024,1024,256]{3,2,1,0:T(8,128)}, u32[]{:S(2)}) %copy-start.2)",
    ),
]
NO_HLO = ["", "jit_step(9646411105960254074)"]


# Stacks, outermost frame first; a trace can contain them in reverse.
STACKS: list[list[str]] = [
    *(["model.py:7:3"], ["<embedded module '_launcher'>:153:2", "model/layer.py:30:14"], []),
    *(['a dir/my "file".py:12'], ["outer.py:1:1", "no_line_at_all"], ["x.py:1:2"]),
    *(["outer.py:1:1", "indented.py:5:9"], ["C:\\code\\m.py:3:4"], ["odd:12:7:9"]),
    *(["\u00fc.py:8:1"], ["x.py:1:2", "model.py:7:3", "x.py:1:2"]),
    # These stacks begin and end at the same line, or in two files with the same name.
    *(["x.py:1:2", "model.py:7:3", "x.py:1:9"], ["a/x.py:1:2", "model.py:7:3", "b/x.py:1:2"]),
]
# Stack frames at lines that also occur in the programs.
PLACED = [f"{file}:{line}:5" for file, line in PLACES]
# Stack frames at lines that do not occur in the programs.
FRAMES = [
    *("train.py:1:5", "my-site-packages/own.py:4:1", "lib/python3.11/own.py:2:2"),
    *("/usr/lib/python3.11/threading.py:5:6", "/venv/lib/python3/dist-packages/torch/x.py:3:3"),
    *("<frozen runpy>:198:0", "site-packages/jax/core.py:9:9", "/a/dir <b>/linears.py:118:20"),
    *("/v/site-packages/levanter/models/llama.py:8:1", "/home/dev/flax/flax/linen/linear.py:7:3"),
    *("<ipython-input-3-0a>:2:1", "C:\\py\\site-packages\\optax\\_src\\base.py:1:1"),
]
TF_OPS = [
    *("jit(f)/jvp(layer)/dot_general:", "jit(f)/transpose(jvp(layer))/dot_general:", "", " "),
    *("jit(f)/jvp()/checkpoint/rematted_computation/mul:", "jit(f)/adam/add:", "jit(f)/transpose:"),
    *("params_and_buffers['vllm_model.model.layers.0.w']:", "opt['a/b'][0].mu:", "add", "jit(g):"),
    *("jit(f)/jit(main)/transpose(jvp(vmap(Model/layers_0)))/attn/bhqk,bkhd->bqhd/dot_general:",),
    *("jit(f)/while/body/closed_call/jvp(mlp)/jit(silu):", "jit(f)/adam/add;jit(f)/mlp/mul:"),
    *('jit(f)/x["q/k"]/call(a/b)/mul:', "jvp(layer)//mul:", "jit(f)/pmap(jit(g))/pjit/layer:"),
    *("jit(f)/jvp(layer)_1/mul:", "jit(f)/jit(g)(h)/mul", "jit(f)/layer{a/b}/mul:", "jit(f)/main:"),
]
SOURCES = ["model.py:7", "other dir/x.py:9", "", "odel.py:7", "no_line_at_all", "<stdin>:1"]
# XLA writes -1 for unknown counts.
COUNTS = [int64(0), uint64(7), uint64(10**9), int64(5 * 10**13), double(3e6), int64(-1)]
PLAUSIBLE_COUNTS = [int64(4096), uint64(10**9), int64(5 * 10**13), double(1e12), uint64(10**6)]
MATH_DTYPES = words("bf16 bf16 bf16 f32 f8e4m3fn f16")
DTYPES = words("bf16 bf16 f32 f32 f16 f8e4m3fn f8e5m2 s32 s8 u8 s4 u32 pred f64 c64 f4e2m1fn")
UNKNOWN_FIELDS = int_field(15, 1) + bytes_field(200, b"later") + b"\x85\x01abcd"


def chance(rng: random.Random, probability: float) -> bool:
    return rng.random() < probability


class TextMaker:
    """Generate HLO texts from a small grammar."""

    def __init__(self, rng: random.Random, dtypes: Sequence[str]) -> None:
        self.rng = rng
        self.dtypes = dtypes
        self.is_on_chip = False  # True while writing a text whose arrays are all on chip.

    def array(self) -> str:
        rng = self.rng
        dims = rng.choices((1, 1, 2, 8, 16, 128, 2048), k=rng.choice((0, 1, 1, 2, 2, 3, 4)))
        shown = [f"<={d}" if chance(rng, 0.05) else str(d) for d in dims]
        text = f"{rng.choice(self.dtypes)}[{','.join(shown)}]"
        if not self.is_on_chip and chance(rng, 0.15):
            return text
        order = list(range(len(dims)))[::-1]
        if chance(rng, 0.3):
            rng.shuffle(order)
        tiling = rng.choice(("", "", "T(8,128)", "T(8,128)(2,1)", "T(1024)", "T(1)L(128)"))
        spaces = (
            ("S(1)", "S(1)", "S(2)") if self.is_on_chip else ("", "", "", "S(0)", "S(1)", "S(5)")
        )
        layout = tiling + rng.choice(spaces)
        return f"{text}{{{','.join(map(str, order))}{':' if layout else ''}{layout}}}"

    def shape(self, depth: int = 0) -> str:
        if depth > 2 or chance(self.rng, 0.75):
            return self.array()
        elements = [self.shape(depth + 1) for _ in range(self.rng.randrange(8))]
        if len(elements) > 5:
            elements[5] = "/*index=5*/" + elements[5]
        return f"({', '.join(elements)})"

    def name(self, opcode: str) -> str:
        rng = self.rng
        if opcode.startswith("async-"):
            return rng.choice(ASYNC_NAMES) + rng.choice(ASYNC_SUFFIXES)
        if chance(rng, 0.2 if opcode == "fusion" else 0.02):
            return rng.choice(ASYNC_FUSIONS) + rng.choice(SUFFIXES)
        names = KERNELS if opcode == "custom-call" else [*NAMES, opcode]
        return rng.choice(names) + rng.choice(SUFFIXES)

    def operand(self, output: str) -> str:
        shape = output if chance(self.rng, 0.3) else self.shape()
        return self.rng.choice((f"{shape} %p.1", f"{shape} %p.1", "%bare.2"))

    def operands(self, opcode: str, output: str) -> str:
        if opcode == "constant":
            return self.rng.choice(("5", "{1, 2}", "(1, {2, 3})", "-inf", '"a)b"'))
        if opcode == "parameter":
            return "0"
        if opcode == "copy-done":
            whole = f"({output}, {self.array()}, u32[]{{:S(2)}}) %copy-start.1"
            return self.rng.choice((whole, whole, whole, "%bare.2", f"{self.array()} %p.1"))
        return ", ".join(self.operand(output) for _ in range(self.rng.choice((0, 1, 1, 2, 3))))

    def text(self, opcode: str) -> tuple[str, str]:
        """Return an HLO text with the given opcode, and its output shape."""
        rng = self.rng
        self.is_on_chip = chance(rng, 0.3)
        output = self.shape()
        attributes = rng.choice(("", ', metadata={op_name="a(b,\\"c\\")"}', ", dims={0,1}"))
        if opcode == "custom-call" and chance(rng, 0.9):
            attributes += f', custom_call_target="{rng.choice(CUSTOM_CALL_TARGETS)}"'
        attributes += rng.choice(("", ", calls=%fused.1", ", dim_labels=b01f_01io->b01f"))
        operands = self.operands(opcode, output)
        return f"%{self.name(opcode)} = {output} {opcode}({operands}){attributes}", output


def random_category(rng: random.Random, is_plausible: bool) -> tuple[str | None, str]:
    """Return a tuple: a category or None; and an opcode, which matches a known category."""
    choice = rng.randrange(20)
    if is_plausible and choice < 16:
        category = rng.choice(MATH_CATEGORIES)
    elif choice == 16:
        return rng.choice((None, "")), rng.choice(OPCODES)
    elif choice == 17:
        return rng.choice(UNKNOWN_CATEGORIES), rng.choice(OPCODES)
    else:
        # The pool is the program's vocabulary, so new categories are included automatically.
        pools = (
            *(OPCODES, FUSIONS, list(SPECIAL_CATEGORIES), FREQUENT_CATEGORIES),
            list(vocabulary.KIND_OF),
        )
        category = rng.choice(rng.choice(pools))
    if category.endswith("fusion"):
        return category, "fusion"
    return category, rng.choice(SPECIAL_CATEGORIES.get(category, [category]))


def random_text_value(rng: random.Random, text: str) -> Value:
    return rng.choice((string, string, string, ref, compressed))(text)


def random_breakdown(rng: random.Random) -> Value:
    accesses = [
        (rng.choice((1, 2)), rng.choice((0, 1, 1, 3)), rng.choice((0, 512, 10**9)))
        for _ in range(rng.choice((0, 0, 1, 2, 3)))
    ]
    return raw(memory_access_breakdown(*accesses))


class OpPool:
    """Make the event metadata for a plane's ops.

    Ops share few stacks and tf_ops, so groups have several ops. In a plausible pool, the
    roofline applies to most ops; in other pools, any stat can be missing or odd.
    """

    def __init__(self, rng: random.Random, names: StatNames, programs: RandomPrograms) -> None:
        self.rng = rng
        self.names = names
        self.programs = programs
        self.stacks = [self.random_frames() for _ in range(rng.choice((1, 1, 3)))]
        self.tf_ops = rng.sample(TF_OPS, rng.choice((2, 6)))
        self.share_with_tf_op = rng.choice((0.5, 0.5, 0.9))
        # Profilers write all stacks in the same order, so this share is usually 0 or 1.
        self.share_turned = rng.choice((0, 0, 1, 1, 0.1, 0.5, 0.9))
        self.share_with_source = rng.choice((0, 0.1, 0.3, 0.9, 0.9))
        self.is_plausible = chance(rng, 0.5)
        # True if most ops move data. Then no op has a stack, so lines come from the program.
        self.is_all_moving = chance(rng, 0.35)
        self.texts = TextMaker(rng, MATH_DTYPES if self.is_plausible else DTYPES)

    def random_frames(self) -> list[str]:
        rng = self.rng
        if chance(rng, 0.4):
            return rng.choice(STACKS)
        ends = rng.sample(PLACED, 2) if chance(rng, 0.7) else []
        between = rng.sample([*FRAMES, *PLACED], rng.choice((0, 1, 1, 3)))
        return [*ends[:1], *between, *ends[1:]]

    def stat(self, name: str, value: Value) -> Stat:
        return self.names.stat(name, value)

    def random_metadata(self, metadata_id: int | None) -> EventMetadata:
        rng = self.rng
        category, opcode = random_category(rng, self.is_plausible)
        if self.is_all_moving and chance(rng, 0.8):
            category = rng.choice(MOVING_CATEGORIES)
            opcode = "fusion" if category.endswith("fusion") else category
        text, shape = self.texts.text(opcode)
        if chance(rng, 0.15):
            category, name, shape, rest = rng.choice(SEEN_OPS)
            text = f"{name} = {shape} {rest}"
        elif chance(rng, 0.07):
            text = rng.choice(NO_HLO)
        frames = rng.choice(self.stacks)
        if self.is_all_moving or chance(rng, 0.4):
            frames = []
        text, program_id = self.programs.place(text, self.random_place(frames))
        stats = [*self.random_sources(frames), *self.random_counts()]
        if program_id is not None:
            stats.append(self.stat("program_id", program_id))
        if category is not None:
            stats.append(self.stat("hlo_category", random_text_value(rng, category)))
        if chance(rng, 0.9):
            stats.append(self.stat("shape_with_layout", random_text_value(rng, shape)))
        rng.shuffle(stats)
        return EventMetadata(metadata_id, text, stats, extra=rng.choice((b"", UNKNOWN_FIELDS)))

    def random_place(self, frames: Sequence[str]) -> int | None:
        """Return the index in PLACED of the frame at one end of a stack, or None."""
        if not frames:
            return None
        frame = self.rng.choice((frames[-1], frames[-1], frames[0]))
        return PLACED.index(frame) if frame in PLACED else None

    def random_sources(self, frames: Sequence[str]) -> list[Stat]:
        rng = self.rng
        stats = []
        if frames or chance(rng, 0.05):
            stack = random_text_value(rng, self.written(frames))
            stats.append(self.stat("source_stack", stack))
        if chance(rng, self.share_with_tf_op):
            stats.append(self.stat("tf_op", random_text_value(rng, rng.choice(self.tf_ops))))
        if chance(rng, 0.05 if self.is_all_moving else self.share_with_source):
            source = random_text_value(rng, self.random_source(frames))
            stats.append(self.stat("source", source))
        return stats

    def written(self, frames: Sequence[str]) -> str:
        turned = frames[::-1] if chance(self.rng, self.share_turned) else frames
        return "\n".join(turned) + self.rng.choice(("", "\n"))

    def random_source(self, frames: Sequence[str]) -> str:
        """Return a source, usually the innermost frame's line, sometimes without its folders."""
        rng = self.rng
        if not frames or chance(rng, 0.15):
            return rng.choice(SOURCES)
        frame = rng.choice((*[frames[-1]] * 6, frames[0], rng.choice(frames)))
        line = frame.rpartition(":")[0] if frame.count(":") > 1 else frame
        return line.rpartition("/")[2] if chance(rng, 0.3) else line

    def random_counts(self) -> list[Stat]:
        rng = self.rng
        counts = PLAUSIBLE_COUNTS if self.is_plausible else COUNTS
        stats = [
            self.stat(name, rng.choice(counts))
            for name in ("flops", "model_flops", "bytes_accessed")
            if chance(rng, 0.8)
        ]
        if chance(rng, 0.7):
            stats.append(self.stat("memory_access_breakdown", random_breakdown(rng)))
        return stats

    def move_facts(self, metadata: Sequence[EventMetadata], events: Sequence[Event]) -> None:
        """Move stats from the metadata to events, and add some contradictory stats."""
        rng = self.rng
        moved: dict[int, list[Stat]] = {}
        for entry in metadata:
            if chance(rng, 0.7):
                moved[entry.id or 0] = [stat for stat in entry.stats if chance(rng, 0.5)]
                entry.stats = [stat for stat in entry.stats if stat not in moved[entry.id or 0]]
        share_with_facts = rng.choice((0.1, 0.5, 1.0))
        for event in events:
            stats = moved.get(event.metadata_id or 0, [])
            if chance(rng, share_with_facts):
                event.stats += rng.sample(stats, rng.randint(0, len(stats)))
            if chance(rng, 0.2):
                event.stats += [*self.random_counts(), *self.random_sources(self.stacks[0])]
            if chance(rng, 0.1):
                rng.shuffle(event.stats)


TimedEvent = tuple[Event, int]


class TraceClock:
    """Convert the times of a plane's events to stored offsets."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.origin_ns = rng.choice((0, 0, 0, 5, 1_741_722_097_000_000_000))
        self.base_ps = rng.choice((0, 0, 7000, 2**40, 2**62))
        # Multiply all times by this factor. Large factors make ops last microseconds.
        self.scale = rng.choice((1, 1, 1, 10**5, 10**6))

    def scaled(self, events: Sequence[TimedEvent]) -> list[TimedEvent]:
        for event, _ in events:
            if event.duration_ps is not None:
                event.duration_ps *= self.scale
        return [(event, time * self.scale) for event, time in events]

    def random_line(self, name: str, events: Sequence[TimedEvent]) -> Line:
        """Return a line with events at times relative to the plane's origin."""
        timestamp_ns = max(0, self.origin_ns - self.rng.choice((0, 0, 0, 1, 3)))
        behind_ps = (self.origin_ns - timestamp_ns) * 1000 + self.base_ps
        for event, time in events:
            if event.num_occurrences is None:
                # An offset of 0 can be omitted.
                event.offset_ps = behind_ps + time or self.rng.choice((0, None))
        return Line(
            name, [event for event, _ in events], timestamp_ns or self.rng.choice((0, None))
        )

    def random_lines(self, name: str, events: Sequence[TimedEvent]) -> list[Line]:
        """Return the events in one line, or sometimes in two lines with the same name."""
        cut = self.rng.randrange(len(events) + 1) if chance(self.rng, 0.15) else None
        parts = [events] if cut is None else [events[:cut], events[cut:]]
        return [self.random_line(name, part) for part in parts]


class CoreClock:
    """Add the core's measured times to events, as stats.

    The trace's clock is a distorted copy of the core's clock: it drifts, jumps, and shows some ops
    without duration. On some planes, both clocks agree; other planes have only the trace's clock.
    """

    def __init__(self, rng: random.Random, names: StatNames, scale: int = 1) -> None:
        self.rng = rng
        self.names = names
        self.scale = scale
        self.is_there = chance(rng, 0.65)
        self.is_bent = chance(rng, 0.7)
        self.origin = rng.choice((0, 0, 1000, 19_689_715_469_500, 2**62))
        self.rate = rng.choice((1, 1, 2, 3)) if self.is_bent else 1
        self.jumps = [
            (rng.randrange(0, 600, 10) * scale, rng.choice((-300, -20, -10, 5, 10, 200)) * scale)
            for _ in range(rng.choice((0, 1, 3)) if self.is_bent else 0)
        ]
        self.share_measured = rng.choice((1.0, 1.0, 0.9, 0.5, 0.1))
        self.share_with_more = rng.choice((0, 0, 0.1, 1.0))
        self.grain = rng.choice((1, 1, 1, 50)) if self.is_bent else 1
        self.integer = rng.choice((uint64, uint64, int64))

    def at(self, time: int) -> int:
        jumped = sum(by for place, by in self.jumps if place <= time)
        fine = self.origin + time * self.rate + jumped
        return max(0, fine - fine % self.grain)

    def measure(self, events: Sequence[TimedEvent]) -> None:
        """Add the core's times to some or all events; sometimes, one of the two stats is
        missing."""
        for event, time in events:
            stats = []
            if self.is_there and chance(self.rng, self.share_measured):
                stats = self.times(time, max(0, event.duration_ps or 0))
            elif chance(self.rng, 0.1):
                stats = self.rng.sample(self.times(time, 20), 1)
            if chance(self.rng, self.share_with_more):
                stats += self.more()
            if chance(self.rng, 0.2):
                self.rng.shuffle(stats)
            event.stats += stats

    def times(self, time: int, duration: int) -> list[Stat]:
        rng = self.rng
        start, end = self.at(time), self.at(time + duration)
        if self.is_bent and chance(rng, 0.1):
            end = start + rng.choice((0, 10, 100, 2000)) * self.scale
        stats = []
        for name, value in (
            ("device_offset_ps", start),
            ("device_duration_ps", max(0, end - start)),
        ):
            stats.append(self.names.stat(name, self.integer(value)))
        return stats

    def more(self) -> list[Stat]:
        """Return additional stats of events."""
        pool = [
            self.names.stat("flow", uint64(616168051)),
            self.names.stat("_a", int64(1)),
            self.names.stat("hlo_op", string("copy-done.1")),
            self.names.stat("all_reduce_unique_id", uint64(131073)),
        ]
        return self.rng.sample(pool, self.rng.choice((1, 1, 2, 3)))

    def distort(self, ops: list[TimedEvent]) -> list[TimedEvent]:
        """On the trace's clock, set some ops' durations to 0, and let most of these ops start with
        the preceding op.
        """
        if not (self.is_there and self.is_bent) or chance(self.rng, 0.3):
            return ops
        bent: list[TimedEvent] = []
        for event, time in ops:
            is_drawn_instant = (event.duration_ps or 0) > 0 and chance(self.rng, 0.2)
            if is_drawn_instant:
                event.duration_ps = self.rng.choice((None, 0))
            joins = is_drawn_instant and bent and chance(self.rng, 0.7)
            bent.append((event, bent[-1][1] if joins else time))
        return bent


def random_metadata_ids(rng: random.Random, n: int) -> list[int | None]:
    """Return distinct ids; None means id 0, which protobuf does not write."""
    ids: list[int | None] = list(rng.sample([*range(1, 40), 2**40 + 3, 2**62, 2**63 - 1], n))
    if ids and chance(rng, 0.2):
        ids[0] = rng.choice((0, None))
    return ids


def random_event(rng: random.Random, ids: Sequence[int | None], is_long: bool) -> Event:
    event = Event(rng.choice(ids) if ids and chance(rng, 0.99) else 2**45)
    durations = (500, 250, 100, 0) if is_long else (None, 0, 10, 10, 20, 30, 50, 400, 10**9)
    event.duration_ps = rng.choice(durations)
    if chance(rng, 0.01):
        event.num_occurrences = rng.choice((0, 1, 12))
    event.extra = rng.choice((b"", b"", UNKNOWN_FIELDS))
    return event


FEW = (0, 1, 4, 10, 10, 20, 20, 20, 40, 40, 60)
# Numbers of ops for the mode `record`; a step with 100 ops can lack just one percent of them.
MANY = (0, 1, 10, 20, 60, 100, 100)


def random_ops(
    rng: random.Random, metadata: Sequence[EventMetadata], numbers: Sequence[int] = FEW
) -> list[TimedEvent]:
    """Return events with their times, either back to back or scattered over a coarse grid."""
    is_packed = chance(rng, 0.5)
    ids = [m.id for m in metadata]
    now = 0
    out = []
    for _ in range(rng.choice(numbers)):
        event = random_event(rng, ids, is_long=chance(rng, 0.1))
        time = now if is_packed else rng.randrange(60) * 10
        out.append((event, time))
        now += max(0, event.duration_ps or 0) + rng.choice((0, 0, 10))
    if chance(rng, 0.3):
        rng.shuffle(out)
    return out


STEP_NAMES = ("0", "1", "2", "3", "4", "train", "step 7", "")
PROGRAMS = ("jit_f(12190760917235803885)", "jit_g(7)", "jit_f(7)")


def random_steps(
    rng: random.Random,
    metadata: list[EventMetadata],
    span: int,
    n_rounds: int,
    names: Sequence[str],
    first_id: int,
) -> list[TimedEvent]:
    """Return events of steps, or of program executions, and add their names to the metadata.

    In half of the cases, the steps do not overlap. If the ops are repeated, each repetition then
    has one step.
    """
    out = []
    tidy = chance(rng, 0.5)
    few_names = rng.sample(names, 2)
    n = n_rounds if tidy and n_rounds > 1 else rng.randrange(6)
    for i in range(n):
        length = max(10, span // n) if tidy else rng.choice((None, 50, 100, 300, 300, 600))
        time = i * (length or 0) if tidy else rng.randrange(0, min(span, 600) + 40, 10)
        if tidy and chance(rng, 0.2):
            length = rng.choice((10, 20, 50))
        if chance(rng, 0.97):
            name = names[i % len(names)] if tidy else rng.choice(few_names)
            metadata.append(EventMetadata(first_id + i, name))
        out.append((Event(first_id + i, duration_ps=length), time))
    if chance(rng, 0.3):
        rng.shuffle(out)
    return out


BRANCHES = 2**43  # The metadata ids of conditionals start here.


def with_branches(
    rng: random.Random, names: StatNames, metadata: list[EventMetadata], ops: list[TimedEvent]
) -> list[TimedEvent]:
    """Insert conditionals that usually start at the same time as an op."""
    out = list(ops)
    for i in range(rng.choice((1, 1, 2, 3))):
        at = rng.randrange(len(out) + 1)
        time = out[at][1] if at < len(out) else rng.randrange(0, 600, 10)
        event = Event(BRANCHES + i, duration_ps=rng.choice((None, 10, 30, 100, 100, 300)))
        out.insert(at, (event, time))
        text = f"%conditional.{i} = () conditional(s32[] %p.1), branch_computations={{%a, %b}}"
        category = names.stat("hlo_category", string("conditional"))
        metadata.append(EventMetadata(BRANCHES + i, text, [category]))
    return out


DEVICE_TYPES = [
    *("TPU v7x", "TPU7x", "TPU v6 Lite", "TPU v5 Lite", "TPU v5", "TPU v4", "TPU v12 Max"),
    *("", None),
]


WAITS = 2**47  # The metadata ids of waits start here.
WAIT_NAMES = (
    *("barrier-cores", "barrier-cores", "dependency-wait", "dependency-wait", "other", None),
    *("ep_run_kernel", "ep_wait_in", "part/wait"),
)


def random_waits(
    rng: random.Random, metadata: list[EventMetadata], ops: Sequence[TimedEvent], span: int
) -> list[TimedEvent]:
    """Return waits and kernel regions. Some begin or end at an op's start or end, and some last for
    the whole span.
    """
    out = []
    for i, name in enumerate(rng.choices(WAIT_NAMES, k=rng.choice((1, 2, 5, 10)))):
        if name is not None:
            metadata.append(EventMetadata(WAITS + i, name))
        length = rng.choice((0, 10, 20, 50, 50, 300))
        time = rng.randrange(0, min(span, 600) + 40, 10)
        if ops and chance(rng, 0.5):
            op, start = rng.choice(ops)
            time = rng.choice((start - length, start, start + max(0, op.duration_ps or 0)))
        if chance(rng, 0.1):
            time, length = 0, span
        out.append((Event(WAITS + i, duration_ps=length), max(0, time)))
    return out


def random_plane_stats(rng: random.Random, names: StatNames) -> list[Stat]:
    stats = [
        names.stat("peak_teraflops_per_second", rng.choice((double(918.0), int64(459)))),
        names.stat("peak_hbm_bw_gigabytes_per_second", double(1638.0)),
    ]
    device_type = rng.choice(DEVICE_TYPES)
    if device_type is not None:
        stats.append(names.stat("device_type_string", random_text_value(rng, device_type)))
    if chance(rng, 0.3):
        stats.append(names.stat("has_megacore", int64(rng.choice((0, 1, 1)))))
    return stats


def random_plane(
    rng: random.Random,
    name: str,
    programs: RandomPrograms,
    numbers: Sequence[int] = FEW,
    clock: TraceClock | None = None,
) -> Plane:
    """Return a device that runs its ops up to four times."""
    names = StatNames(rng.choice((1, 1, 2**44)))
    pool = OpPool(rng, names, programs)
    ids = random_metadata_ids(rng, rng.choice((1, 3, 6, 12, 30)))
    metadata = [pool.random_metadata(metadata_id) for metadata_id in ids]
    clock = clock or TraceClock(rng)
    core = CoreClock(rng, names, clock.scale)
    ops = random_ops(rng, metadata, numbers)
    if chance(rng, 0.3):
        ops = with_branches(rng, names, metadata, ops)
    span = max([1, *(time + (event.duration_ps or 0) for event, time in ops)])
    is_short = len(ops) <= 20 or numbers is MANY
    n_rounds = rng.choice((1, 1, 2, 3, 4)) if is_short else 1
    # The mode `record` accepts steps whose numbers of ops differ by less than 2 %.
    share_left_out = rng.choice((0, 0, 0.01, 0.05, 0.5))
    ops = [
        (replace(event, stats=[]), time + i * span)
        for i in range(n_rounds)
        for event, time in ops
        if not chance(rng, share_left_out)
    ]
    span *= n_rounds
    waits = random_waits(rng, metadata, ops, span) if chance(rng, 0.6) else []
    ops = clock.scaled(ops)
    core.measure(ops)
    ops = core.distort(ops)
    if chance(rng, 0.3):
        pool.move_facts(metadata, [event for event, _ in ops])
    lines = []
    for line_name, step_names, first_id, share in (
        ("Steps", STEP_NAMES, 2**41, 0.7),
        ("XLA Modules", PROGRAMS, 2**42, 0.85),
    ):
        if chance(rng, share):
            steps = random_steps(rng, metadata, span, n_rounds, step_names, first_id)
            steps = clock.scaled(steps)
            if chance(rng, 0.6):
                core.measure(steps)
            lines += clock.random_lines(line_name, steps)
    if chance(rng, 0.98):
        lines += clock.random_lines("XLA Ops", ops)
    waits = clock.scaled(waits)
    if chance(rng, 0.5):
        core.measure(waits)
    lines += clock.random_lines("XLA TraceMe", waits)
    if chance(rng, 0.3):
        lines += clock.random_lines("_counters_", waits)
    lines.append(clock.random_line("Async XLA Ops", random_ops(rng, metadata)))
    if chance(rng, 0.2):
        rng.shuffle(lines)
    stats = random_plane_stats(rng, names)
    return Plane(name, lines, metadata, names.metadata(), stats, id=rng.choice((None, 0, 3)))


THREADS = ("main/1", "main/1", "py_execute/2", "VLLM::Engine", "1", "", "", "")
HOST_EVENTS = (
    *("$core.py:958 loop", "$array.py:635 _value", "PjitFunction(f)", "Acquire semaphore"),
    *("np.asarray(jax.Array)", "", "$core.py:958 loop"),
)


def random_calls(rng: random.Random, n: int, span: int) -> list[tuple[int, int]]:
    """Return starts and ends of a thread's events, nested like function calls."""
    edges = sorted(rng.randrange(0, span, 10) for _ in range(2 * n))
    calls: list[tuple[int, int]] = []
    under_way: list[int] = []
    for edge in edges:
        if under_way and chance(rng, 0.5):
            calls.append((under_way.pop(), edge))
        else:
            under_way.append(edge)
    calls += [(start, span) for start in under_way]
    return calls if chance(rng, 0.3) else sorted(calls, key=lambda call: (call[0], -call[1]))


def random_host(rng: random.Random, clock: TraceClock) -> Plane:
    metadata = [EventMetadata(i or None, name) for i, name in enumerate(HOST_EVENTS)]
    names = StatNames()
    lines = []
    for thread in rng.choices(THREADS, k=rng.choice((0, 1, 2, 3, 8, 20))):
        events: list[TimedEvent] = []
        calls = random_calls(rng, rng.choice((0, 1, 3, 10, 20)), rng.choice((100, 600, 600)))
        for start, end in calls:
            event = Event(rng.choice((None, *range(1, len(HOST_EVENTS)))), None, end - start)
            if chance(rng, 0.2):
                # Some profilers omit a duration of 0.
                event.duration_ps = event.duration_ps or None
            if chance(rng, 0.2):
                event.stats = [names.stat("_c", rng.choice((int64(3), string("x"), double(0.5))))]
            events.append((event, start))
        lines.append(clock.random_line(thread, clock.scaled(events)))
        lines[-1].id = rng.choice((None, 0, 1, 2, -(2**62)))
    return Plane("/host:CPU", lines, metadata, names.metadata())


OWN = ["layer", "/", ".py", "site-packages", "<", "\u00fc", "nowhere", "train.py:1", "A DIR"]


PIPELINE_OPTIONS = ("device", "step", "step_id", "own")


def random_pipeline_options(rng: random.Random, data: bytes) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if chance(rng, 0.1):
        options["device"] = rng.choice(("/device:TPU:1", "/device:TPU:0", "/device:TPU:9"))
    if chance(rng, 0.12):
        options["step"] = rng.choice((0, 0, 0, 1, 1, 2, -1, -1, -2, 7, -9))
    elif chance(rng, 0.1):
        options["step"] = "all"
    elif chance(rng, 0.12):
        names = [*STEP_NAMES, *PROGRAMS]
        # Prefer names that several steps share.
        weights = [data.count(text_field(2, name)) ** 2 for name in names]
        name = rng.choices([*names, "nowhere"], [*weights, 1])[0]
        length = rng.randint(1, max(1, len(name))) if chance(rng, 0.3) else len(name)
        options["step_id"] = name[:length]
    if chance(rng, 0.3):
        options["own"] = rng.sample(OWN, rng.choice((1, 1, 2)))
    return options


def random_kernel_costs(rng: random.Random, data: bytes) -> list[str]:
    present = [name for name in KERNELS if b"%" + name.encode() in data]
    names = rng.sample(KERNELS, 1) if chance(rng, 0.1) else present
    figures = ("1.2e12,3e9", "2e9,4096,bf16", "1e6,4096,fp32", "0,100", "5e9,0,bf16", "7,7,fp8")
    return [f"{name}={rng.choice(figures)}" for name in names]


OP_NAME_RE = re.compile(rb"%([\w.\-]+) = ")
# As op names, these texts are ambiguous or unknown. "1" is unknown because a number is never a
# prefix.
NO_OP_NAMES = ("", "1", "f", "nowhere", "%", "FUSION", "%fusion", "copy-done.1")
SCOPES = {
    "jit(f)/jvp(layer)/dot_general:": "layer",
    "jit(f)/adam/add:": "adam",
    "transpose(jvp(vmap(Model/layers_0)))": "Model/layers_0/attn",
    "jit(f)/while/body/closed_call/jvp(mlp)": "mlp/silu",
}
NO_SCOPES = ("nowhere", "lay", "ATTN", "while", "Model/layers_", "mlp/")


def random_scope(rng: random.Random, data: bytes) -> str:
    """Return a scope, usually one that occurs in the file."""
    present = [scope for path, scope in SCOPES.items() if path.encode() in data]
    if chance(rng, 0.15):
        return rng.choice(NO_SCOPES)
    parts = rng.choice(present or [""]).split("/")
    name = "/".join(parts[: rng.randrange(len(parts) + 1)])
    return name.replace("0", "*") if chance(rng, 0.3) else name


def random_kernel(rng: random.Random, data: bytes) -> str:
    """Return a kernel's name, an op's name, or a prefix of an op's name."""
    return rng.choice((*KERNELS, "my", "nowhere", random_op_name(rng, data)))


def random_op_name(rng: random.Random, data: bytes) -> str:
    """Return the name of an op in the file, or a prefix of it."""
    names = [name.decode() for name in OP_NAME_RE.findall(data)]
    if not names or chance(rng, 0.15):
        return rng.choice(NO_OP_NAMES)
    name: str = rng.choice(names)
    if chance(rng, 0.15):
        name = name[: rng.randrange(1, len(name) + 1)]
    return rng.choice(("", "", "%")) + name


Draw = Callable[[random.Random, bytes], Any]
FLAG_FILES = DEMO.parent / "flags"


def one_of(*values: Any) -> Draw:
    return lambda rng, _: rng.choice(values)


# For each option: the probability of passing it, and a function that draws its value.
OPTIONS: dict[str, tuple[float, Draw]] = {
    "--include-comm": (0.5, one_of(True)),
    "--peers": (0.3, one_of(True)),
    "--no-peers": (0.3, one_of(True)),
    "--include-data-move": (0.5, one_of(True)),
    "--no-comm-stalls": (0.5, one_of(True)),
    "--top": (0.4, one_of(0, 1, 2, 3, 100)),
    "--chip": (0.3, one_of(*_peaks.CHIPS, _peaks.PROFILE_CHIP)),
    **{
        f"--peak-{peak}": (0.3, one_of(1e-3, 1.0, 576.75, 3436.6, 1e9))
        for peak in (*(f"tflops-{dtype}" for dtype in _peaks.DTYPES), "hbm-gibps")
    },
    "--bytes": (0.3, one_of("hbm", "accessed")),
    "--kernel-cost": (0.5, random_kernel_costs),
    "--kernel": (0.3, random_kernel),
    "--flags": (0.5, one_of(*sorted(map(str, FLAG_FILES.iterdir())))),
    "--depth": (0.5, one_of(0, 1, 2, 3, "all", "all")),
    "--below": (0.4, random_scope),
    "--merge-layers": (0.4, one_of(True)),
    "--op": (0.5, random_op_name),
    "--model-flops": (0.3, one_of(0, 1, "1e9", "2.5e15")),
    "--tokens": (0.7, one_of(1, "4096", "1e6")),
    "--flops-per-token": (0.3, one_of("0.5", 12, "4.2e10")),
    "--params": (0.3, one_of("0.25", 1, "7e9")),
    "--n-devices": (0.5, one_of(1, 3, "2.56e2")),
    "--code": (0.1, one_of(os.path.dirname(__file__))),
}


def random_options(rng: random.Random, mode: str, data: bytes) -> dict[str, Any]:
    options = random_pipeline_options(rng, data)
    (of_mode,) = [known.options for known in LISTED_MODES if known.name == mode]
    # Options of the pipeline are drawn by `random_pipeline_options`.
    for flag in (flag for flag in of_mode if flag in OPTIONS):
        share, draw = OPTIONS[flag]
        if chance(rng, share):
            options[flag.removeprefix("--").replace("-", "_")] = draw(rng, data)
    if "peers" in options:
        options.pop("no_peers", None)
    # The program accepts only one of these options, so keep the last.
    useful = [name for name in ("model_flops", "flops_per_token", "params") if name in options]
    for name in useful[:-1]:
        del options[name]
    if useful[-1:] not in (["flops_per_token"], ["params"]):
        options.pop("n_devices", None)
    elif "tokens" not in options:
        options["tokens"] = 8
    return options


def command_line(options: dict[str, Any]) -> list[str]:
    """Convert options to command-line arguments."""
    words = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        if value is True:
            words.append(flag)
        elif isinstance(value, (list, tuple)):
            words += [word for item in value for word in (flag, str(item))]
        elif value is not None and value is not False:
            # A value that begins with a hyphen must be joined to its flag.
            words += [f"{flag}={value}"] if str(value).startswith("-") else [flag, str(value)]
    return words


def same_program(rng: random.Random, plane: Plane, name: str) -> Plane:
    """Return a copy of a device, with some ops left out and some durations changed."""
    share_left_out = rng.choice((0, 0, 0.01, 0.1))
    lines = []
    for line in plane.lines:
        events = line.events
        if line.name == "XLA Ops":
            events = [
                replace(event, duration_ps=rng.choice((None, 0, 10, 30, 400)))
                if chance(rng, 0.3)
                else event
                for event in events
                if not chance(rng, share_left_out)
            ]
        lines.append(replace(line, events=events))
    return replace(plane, name=name, lines=lines)


def encoded(rng: random.Random, planes: list[Plane]) -> bytes:
    """Return the bytes of a file with the given planes."""
    if chance(rng, 0.3):
        rng.shuffle(planes)
    return encode(Space(planes, hostnames=["host-0"], extra=rng.choice((b"", UNKNOWN_FIELDS))))


def random_case(rng: random.Random) -> tuple[bytes, str, dict[str, Any]]:
    """Return a tuple: the bytes of a file; a single-step mode; and the mode's options."""
    names = ["/device:TPU:0"] if chance(rng, 0.99) else []
    names += rng.choice(
        ([], [], ["/device:TPU:1"], ["/device:TPU:2"], ["/device:TPU:0 SparseCore 0"])
    )
    programs = RandomPrograms(rng)
    clock = TraceClock(rng)
    planes = [random_plane(rng, name, programs, clock=clock) for name in names]
    # Usually all planes share one clock.
    hosts = [random_host(rng, clock if chance(rng, 0.9) else TraceClock(rng))]
    hosts = rng.choice((hosts, hosts, hosts, hosts, [*hosts, *hosts], []))
    data = encoded(rng, planes + programs.planes() + hosts)
    mode = rng.choice(MODES)
    return data, mode, random_options(rng, mode, data)


def random_record_case(rng: random.Random) -> tuple[bytes, dict[str, Any]]:
    """Return a file with several devices and steps, and options for the mode `record`."""
    programs = RandomPrograms(rng)
    planes: list[Plane] = []
    for number in sorted(rng.sample((0, 1, 13), rng.choice((1, 2, 2, 3)))):
        name = f"/device:TPU:{number}"
        if planes and chance(rng, 0.7):
            planes.append(same_program(rng, rng.choice(planes), name))
        else:
            planes.append(random_plane(rng, name, programs, MANY))
    if chance(rng, 0.2):
        # The mode `record` ignores devices that are not TensorCores.
        name = rng.choice(
            ("/device:TPU:0 SparseCore 0", "/device:TPU:0 SparseCore A 1", "/device:GPU:0")
        )
        planes.append(same_program(rng, planes[0], name))
    others = programs.planes() if chance(rng, 0.4) else []
    data = encoded(rng, [*planes, *others, random_host(rng, TraceClock(rng))])
    options: dict[str, Any] = {}
    if chance(rng, 0.15):
        options["device"] = f"/device:TPU:{rng.choice((0, 1, 13))}"
    if chance(rng, 0.3):
        options["steps"] = rng.choice(("1:", ":2", "-2:", "1:3", ":", ":-1", "2:1", "9:", "-9:9"))
    return data, options
