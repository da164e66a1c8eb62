#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["protobuf>=4.21.1"]
# ///
"""Where does a TPU step's time go, by source line?

Reads an XProf trace (`*.xplane.pb`) and prints one JSON object on stdout, in one of four modes:

    summary      the costliest source lines, and the step's time by kind and category
    by_source    every source line, complete
    non_compute  what is data movement and waiting rather than math
    roofline     how far each source line is from what the chip could do

All modes share one pipeline: find the file, pick a step, normalize its ops, fold their events,
and hand the step to a function that turns it into a dict.
"""

from __future__ import annotations

import argparse
import gc
import heapq
import json
import math
import os
import re
import sys
import time
from bisect import bisect_left, insort
from contextlib import suppress
from dataclasses import dataclass, field, replace

# Type checkers take a variable of this name as true. No line that runs needs what it guards, and
# importing it would take as long as parsing the command line.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from dataclasses import dataclass as record
    from fractions import Fraction
    from typing import Any, NoReturn, TextIO, TypeVar

    K = TypeVar("K")
    Json = dict[str, Any]
else:
    # Records are not compared and not printed: making the methods takes 3 ms of every start.
    record = dataclass(slots=True, eq=False, repr=False)

# From a clone this file is a script; installed, it is the package of its neighbours.
if TYPE_CHECKING or not __package__:
    import _peaks
    import _proto
else:
    from . import _peaks, _proto

__version__ = "1.0.0"

# ----------------------------------------------------------------------------------------------
# Vocabulary: every category has one kind.

COMPUTE, DATA_MOVE, COMM, OTHER = KINDS = ("compute", "data_move", "comm", "other")
CONTAINER = "container"
NO_CATEGORY = "<none>"
CAST = "convert"
COMM_STALL = "async-done (comm stall)"

COLLECTIVES = (
    "all-reduce, all-gather, reduce-scatter, all-to-all, ragged-all-to-all, collective-permute, "
    "collective-broadcast, send, recv"
).split(", ")
HOST_TRANSFERS = ("host send", "host recv")
ASYNC = ("async-start", "async-update", "async-done")

CATEGORIES = {
    CONTAINER: "while, conditional, call, megacore fusion",
    COMPUTE: (
        "fusion, convolution, dot, ragged-dot, custom-call, non-fusion elementwise, reduce, "
        "reduce-window, select-and-scatter, scatter, sort, topk, map, fft, cholesky, "
        "triangular-solve, rng, "
        # the elementwise opcodes
        "abs, add, and, atan2, cbrt, ceil, clamp, compare, complex, cosine, "
        "count-leading-zeros, divide, erf, exponential, exponential-minus-one, floor, imag, "
        "is-finite, log, log-plus-one, logistic, maximum, minimum, multiply, negate, not, or, "
        "popcnt, power, real, remainder, round-nearest-afz, round-nearest-even, rsqrt, select, "
        "shift-left, shift-right-arithmetic, shift-right-logical, sign, sine, sqrt, subtract, "
        "tan, tanh, xor"
    ),
    DATA_MOVE: (
        "data formatting, copy, copy-start, copy-done, convert, bitcast-convert, "
        "stochastic-convert, reduce-precision, bitcast, broadcast, concatenate, "
        "dynamic-reshape, dynamic-slice, dynamic-update-slice, gather, iota, pad, reshape, "
        "reverse, set-dimension-size, slice, transpose"
    ),
    COMM: ", ".join(
        [
            "all-reduce fusion, all-gather fusion, all-reduce-scatter fusion",
            *(
                name + suffix
                for name in (*COLLECTIVES, *HOST_TRANSFERS)
                for suffix in ("", "-start", "-update", "-done")
            ),
            # unless they are named after a local transfer: see `kind_of`
            *ASYNC,
        ]
    ),
    OTHER: (
        "tuple, get-tuple-element, parameter, constant, after-all, add-dependency, domain, "
        "opt-barrier, partition-id, replica-id, get-dimension-size"
    ),
}
KIND_OF = {name: kind for kind, names in CATEGORIES.items() for name in names.split(", ")}

# Families that no list could complete: the first that fits decides.
FAMILIES = (
    (COMM, re.compile(r"infeed|outfeed")),
    (COMPUTE, re.compile(r" fusion\Z|\A(?:convolution |rng-|batch-norm-)")),
)


def starts_with_name(names: Iterable[str]) -> re.Pattern[str]:
    """Matches the name of an op called after one of these: `slice-done.10`, not `slices`."""
    return re.compile(rf"({'|'.join(names)})(?:\Z|[-_.0-9])")


COLLECTIVE_NAME = starts_with_name(COLLECTIVES)
# Moved within the device, by a DMA engine or a SparseCore.
SPARSE_CORE_NAME = starts_with_name(
    ["sparse-core-data-format", "gather_offload", "scatter_offload"]
)
DMA_NAME = starts_with_name(
    ["slice", "dynamic-slice", "dynamic-update-slice", "copy", "pad", "concatenate"]
)

MATMUL_CATEGORY = re.compile(
    r"\A(?:convolution(?: .*)?|dot|ragged-dot|output fusion|custom fusion|custom-call)\Z"
)


def kind_of(category: str, op_name: str) -> str | None:
    """The kind of a category; None where the category stands in no row."""
    if category in ASYNC and (DMA_NAME.match(op_name) or SPARSE_CORE_NAME.match(op_name)):
        return DATA_MOVE
    kind = KIND_OF.get(category)
    if kind is None:
        kind = next((kind for kind, family in FAMILIES if family.search(category)), None)
    return kind


# ----------------------------------------------------------------------------------------------
# HLO text: `%name = shape opcode(operands), attributes`.

NAME = r"%?(?P<name>[\w.\-]+)"
ARRAY = r"\b(?P<dtype>[a-z][a-z0-9]*)\[(?P<dims>[0-9,<=? ]*)\](?:\{(?P<layout>[^{}]*)\})?"
OPCODE = r"\s*(?P<opcode>[a-z][\w\-]*)\("
# A layout is `minor_to_major:T(tile)(tile)…S(memory space)`, all of it optional.
TILES = r"T(?P<tiles>(?:\([^()]*\))+)"
TARGET = r'custom_call_target="(?P<target>[^"]*)"'

RESULT_RE = re.compile(rf"\s*(?:ROOT\s+)?{NAME}\s*(?:=\s*|\Z)")
ARRAY_RE = re.compile(ARRAY)
ARRAY_OR_PARENTHESIS_RE = re.compile(rf"{ARRAY}|[()]")
OPCODE_RE = re.compile(OPCODE)
TILES_RE = re.compile(TILES)
TARGET_RE = re.compile(TARGET)
SSA_PART_RE = re.compile(r"\d+|(?:clone|cloned|remat)\d*")
HOST_MEMORY = "S(5)"
# Shaped like arrays, but nothing is in them.
NO_DATA = ("token", "opaque")


@record
class Array:
    """The shape of an array, as written and taken apart."""

    text: str
    dtype: str
    dims: str
    layout: str | None

    @property
    def rank(self) -> int:
        return self.dims.count(",") + 1 if self.dims else 0

    @property
    def n_elements(self) -> int:
        # A dynamic dimension, `<=128`, counts with its bound.
        # Python reads no number of thousands of digits, nor need it: the text is nonsense then.
        dims = re.findall(r"\d+", self.dims)
        return math.prod(int(dim) if len(dim) < 20 else 1 << 64 for dim in dims)

    def order_and_tiles(self) -> tuple[str, str] | None:
        if self.layout is None:
            return None
        order, _, rest = self.layout.partition(":")
        tiles = TILES_RE.search(rest)
        return order, tiles["tiles"] if tiles else ""


@record
class Instruction:
    """What an HLO text says. Tuples are flattened to their arrays, in order."""

    text: str
    name: str
    shape: str
    outputs: list[Array]
    # Empty where the text is no more than a name.
    opcode: str
    operands_at: int
    _operands: list[Array] | None = None

    @property
    def operands(self) -> list[Array]:
        """Parsed when first asked for: there can be hundreds, and few modes ask."""
        if self._operands is None:
            self._operands = parse_shape(self.text, self.operands_at)[0] if self.opcode else []
        return self._operands

    @property
    def target(self) -> str | None:
        if self.opcode != "custom-call":
            return None
        target = TARGET_RE.search(self.text, self.operands_at)
        return target["target"] if target else None

    @property
    def base_name(self) -> str:
        """The name without its SSA parts: `fusion.48.clone.3` is a `fusion`."""
        parts = self.name.split(".")
        named = ".".join(part for part in parts if not SSA_PART_RE.fullmatch(part))
        return named or self.name


def parse_hlo(text: str) -> Instruction | None:
    """Parse an op's HLO text, as far as it is one; None where it doesn't even begin with a name."""
    result = RESULT_RE.match(text)
    if result is None:
        return None
    start = result.end()
    outputs, end = parse_shape(text, start)
    opcode = OPCODE_RE.match(text, end)
    return Instruction(
        text,
        result["name"],
        text[start:end],
        outputs,
        opcode["opcode"] if opcode else "",
        opcode.end() - 1 if opcode else end,
    )


def parse_shape(text: str, start: int) -> tuple[list[Array], int]:
    """The arrays of the array, tuple or operand list that begins at `start`, and where it ends.

    Between the parentheses may stand names, commas and `/*index=5*/` comments: passed over.
    """
    if not text.startswith("(", start):
        only = ARRAY_RE.match(text, start)
        if only is None:
            return [], start
        return [Array(*only.group(0, 1, 2, 3))] * (only[1] not in NO_DATA), only.end()
    arrays = []
    depth = 0
    for token in ARRAY_OR_PARENTHESIS_RE.finditer(text, start):
        if token.lastindex:
            if token[1] not in NO_DATA:
                arrays.append(Array(*token.group(0, 1, 2, 3)))
        elif token[0] == "(":
            depth += 1
        else:
            depth -= 1
            if depth == 0:
                return arrays, token.end()
    return arrays, len(text)


def main_dtype(arrays: list[Array]) -> str:
    """The dtype of the array of most elements, the first of several."""
    dtypes = {array.dtype for array in arrays}
    if len(dtypes) == 1:
        return dtypes.pop()
    return max(arrays, key=lambda array: array.n_elements).dtype


def dtype_class(hlo_dtype: str) -> str:
    if hlo_dtype.startswith("f8"):
        return "fp8"
    return {"bf16": "bf16", "f32": "fp32", "f16": "fp16"}.get(hlo_dtype, OTHER)


MATMUL_INPUT_RE = re.compile(r"b?f\d\w*|[su][1-8]")


def matmul_inputs(hlo: Instruction) -> list[Array]:
    """The operands that a matrix unit could take: not scalars; floats or narrow integers."""
    fit = {dtype for dtype in {a.dtype for a in hlo.operands} if MATMUL_INPUT_RE.fullmatch(dtype)}
    return [a for a in hlo.operands if a.dims and a.dtype in fit]


def moved_array(hlo: Instruction) -> Array | None:
    """The array whose data the op moves: its first operand, for want of any better word."""
    # The operand of a copy-done is (destination, source, context), the first shaped as its output.
    place = len(hlo.outputs) if hlo.opcode == "copy-done" and len(hlo.operands) > 1 else 0
    return hlo.operands[place] if place < len(hlo.operands) else None


def dtype_and_layout_change(hlo: Instruction) -> tuple[bool | None, bool | None]:
    """Whether an op changes the dtype, and the layout; None where that can't be compared."""
    if not hlo.outputs:
        return None, None
    before, after = moved_array(hlo), hlo.outputs[0]
    if before is None:
        return None, None
    layouts = before.order_and_tiles(), after.order_and_tiles()
    comparable = None not in layouts and before.rank == after.rank
    return before.dtype != after.dtype, layouts[0] != layouts[1] if comparable else None


# ----------------------------------------------------------------------------------------------
# The normalized step: ops, their runs, and the time between them.

# Further than any int64 of nanoseconds or picoseconds reaches.
ALL_TIME = -(1 << 80), 1 << 80
PHASES = ("forward", "backward", "recompute", "other", "unknown")
STACK, TF_OP, NO_SOURCE = KEY_KINDS = ("stack", "tf_op", "no_source")


@record
class Op:
    """What is true of every execution of an op: one entry of the event metadata, normalized."""

    text: str
    hlo: Instruction | None
    category: str
    kind: str
    known: bool
    agg_key: str
    agg_key_kind: str
    source_stack: str | None
    source_inner: str | None
    tf_op: str | None
    phase: str
    shape: str | None
    dtype: str
    dtype_is_given: bool
    flops: int | None
    model_flops: int | None
    bytes_accessed: int | None
    hbm_bytes: int | None
    has_endless_fact: bool
    signature: str

    @property
    def name(self) -> str:
        return self.hlo.name if self.hlo else ""

    @property
    def is_wait(self) -> bool:
        """Whether the core stands still until something asynchronous is done."""
        return self.category.endswith("-done")

    @property
    def dtype_uncertain(self) -> bool:
        """Whether a matrix unit may have worked in another precision than the output shows."""
        if self.dtype_is_given or self.dtype == OTHER or not MATMUL_CATEGORY.match(self.category):
            return False
        inputs = matmul_inputs(self.hlo) if self.hlo else []
        return not inputs or any(dtype_class(array.dtype) != self.dtype for array in inputs)

    @property
    def is_opaque(self) -> bool:
        """Whether it is a black box to XLA: a kernel, a buffer placeholder."""
        return self.category == "custom-call" and not self.flops

    @property
    def kernel(self) -> str | None:
        """The name of the custom (Pallas) kernel that it runs."""
        if self.hlo is None or self.hlo.target != "tpu_custom_call":
            return None
        return self.hlo.base_name


@record
class Runs:
    """The executions of an op within the step."""

    op: Op
    n: int = 0
    total: int = 0
    shortest: int = ALL_TIME[1]
    longest: int = -1
    # Which event was the longest, by its place in the file; the first of several.
    longest_at: int = 0


@record
class Gap:
    """A stretch of the step in which no leaf op runs, and what stands around it."""

    start: int
    duration: int
    after: Op | None
    before: Op | None
    inside: Op | None


@record
class StepEvent:
    """An event of the Steps line; times on the offset base of the ops line."""

    index: int
    name: str | None
    start: int
    end: int
    n_events: int = 0


@record
class Step:
    """A step with all that the modes ask of it."""

    picked: StepEvent | None
    start: int
    end: int
    # Leaves and containers, in order of appearance.
    runs: list[Runs]
    containers: list[Runs]
    n_dropped: int
    busy: int
    container_self: int
    # The longest, in order.
    gaps: list[Gap]
    steps: list[StepEvent]
    device_stats: dict[str, _proto.Value]

    @property
    def duration(self) -> int:
        return self.end - self.start

    def of_kind(self, *kinds: str) -> list[Runs]:
        return [runs for runs in self.runs if runs.op.kind in kinds]


class Absent(Exception):
    """There is no answer; why, and what else the answer's object says."""

    def __init__(self, reason: str, exit_status: int, **fields: object) -> None:
        super().__init__(reason)
        self.reason = reason
        self.exit_status = exit_status
        self.fields = fields


# ----------------------------------------------------------------------------------------------
# Stage 1, find: from a path to trace files.

DEVICE = "/device:TPU:0"
SUFFIXES = (".xplane.pb", ".xplane.pb.gz")
STEPS_LINE, OPS_LINE = "Steps", "XLA Ops"


def find_files(profile: str, notes: list[str]) -> dict[str, str]:
    """The trace files that a path means, by host; a note says which run was taken."""
    try:
        if not os.path.isdir(profile):
            os.stat(profile)
            return {host_of(profile): profile}
        files = files_in(profile)
        if files:
            return files
        folder = os.path.join(profile, "plugins", "profile")
        if not os.path.isdir(folder):
            folder = profile
        files = files_of_newest_run(folder, notes)
        if files:
            return files
    except (FileNotFoundError, NotADirectoryError):
        raise Absent("no_xplane_pb", 0, detail="no such path") from None
    except (OSError, ValueError) as error:
        raise unreadable(profile, error) from None
    detail = "no .xplane.pb file in this directory, nor in a run below it or its plugins/profile"
    raise Absent("no_xplane_pb", 0, detail=detail)


def files_of_newest_run(folder: str, notes: list[str]) -> dict[str, str]:
    """Runs are named by time: the greatest name that holds a trace."""
    refused = None
    runs = [run for run in os.listdir(folder) if os.path.isdir(os.path.join(folder, run))]
    for run in sorted(runs, reverse=True):
        try:
            files = files_in(os.path.join(folder, run))
        except OSError as error:
            notes.append(f"run {run} can't be listed: {error.strerror}")
            refused = error
            continue
        if files:
            notes.append(f"run {run} taken" + (", the newest with a trace" * (len(runs) > 1)))
            return files
    if refused is not None:
        raise refused
    return {}


def files_in(folder: str) -> dict[str, str]:
    """The trace files in a folder, by host; of a plain and a gzipped one of one name the plain."""
    files: dict[str, str] = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        if name.endswith(SUFFIXES) and not os.path.isdir(path):
            files.setdefault(host_of(path), path)
    return dict(sorted(files.items()))


def host_of(path: str) -> str:
    return re.sub(r"\.xplane\.pb(?:\.gz)?\Z", "", os.path.basename(path))


def unreadable(path: str, error: Exception) -> Absent:
    what = str(error)
    if isinstance(error, OSError):
        what = f"byte 0: {error.strerror or what}"
    return Absent("unreadable_xplane_pb", 1, detail=f"{os.path.basename(path)}: {what}")


# ----------------------------------------------------------------------------------------------
# Stage 2, pick: from the Steps line to one window on the ops line.


@record
class StepChoice:
    """What the command line says of the step: an index, a name, or nothing."""

    index: int | None = None
    name: str | None = None


def read_steps(plane: _proto.Plane, base: int, notes: list[str]) -> list[StepEvent]:
    """The events of the Steps line, sorted by start, on the offset base of the ops line."""
    spans = []
    n_dropped = 0
    for line in plane.lines(STEPS_LINE):
        shift = line.base_ps - base
        n_dropped += line.n_aggregated
        for events in line.events(*ALL_TIME):
            for metadata_id, offset, duration in events:
                if duration < 0:
                    n_dropped += 1
                else:
                    spans.append((offset + shift, duration, metadata_id))
    if n_dropped:
        notes.append(f"{n_dropped} events of the Steps line left out: they have no valid time")
    spans.sort(key=lambda span: span[0])
    names: dict[int, str | None] = {}
    for _, _, metadata_id in spans:
        if metadata_id not in names:
            metadata = plane.metadata(metadata_id)
            names[metadata_id] = metadata.name if metadata else None
    return [
        StepEvent(index, names[metadata_id], start, start + duration)
        for index, (start, duration, metadata_id) in enumerate(spans)
    ]


def count_starts(lines: Sequence[_proto.Line], base: int, steps: Sequence[StepEvent]) -> None:
    """Count into each step the ops that start in it."""
    for line in lines:
        shift = line.base_ps - base
        for offsets in line.starts():
            first, last = offsets[0] + shift, offsets[-1] + shift
            for step in steps:
                if step.start <= last and first < step.end:
                    step.n_events += bisect_left(offsets, step.end - shift)
                    step.n_events -= bisect_left(offsets, step.start - shift)


def pick_step(
    steps: Sequence[StepEvent], choice: StepChoice, n_events: int, notes: list[str]
) -> StepEvent | None:
    """The step that the choice names, or else the busiest; None where there are no steps."""
    if choice.index is not None:
        if -len(steps) <= choice.index < len(steps):
            return steps[choice.index]
        raise step_not_found(steps, f"no step {choice.index} among {len(steps)}")
    if choice.name is not None:
        named = [step for step in steps if step.name == choice.name]
        if not named:
            raise step_not_found(steps, f"no step is named {choice.name!r}")
        if len(named) > 1:
            notes.append(
                f"{len(named)} steps are named {choice.name!r}; took the earliest"
                f" (idx={named[0].index})"
            )
        return named[0]
    if not steps:
        return None
    busiest = max(steps, key=lambda step: step.n_events)
    if busiest.n_events:
        notes.append(
            f"auto-picked busiest step (idx={busiest.index}, n_xla_ops_events={busiest.n_events}"
            f" of {n_events} in {len(steps)} steps)"
        )
        return busiest
    middle = steps[len(steps) // 2]
    notes.append(f"no op starts in any step; took the middle one (idx={middle.index})")
    return middle


def step_not_found(steps: Sequence[StepEvent], detail: str) -> Absent:
    return Absent("step_not_found", 1, detail=detail, available_steps=[step.name for step in steps])


# ----------------------------------------------------------------------------------------------
# Stage 3, normalize: each metadata entry once.

FRAME_RE = re.compile(r"(.*:\d+):\d+\Z", re.DOTALL)


def normalize(metadata: _proto.Metadata) -> Op:
    stats = metadata.stats
    hlo = parse_hlo(metadata.name)
    name = hlo.name if hlo else ""
    category = as_text(stats.get("hlo_category")) or NO_CATEGORY
    if category == "non-fusion elementwise" and hlo and hlo.opcode == CAST:
        # The profiler hides casts among the elementwise math.
        category = CAST
    kind = kind_of(category, name)
    stack: str | None = as_text(stats.get("source_stack"))
    frames = [frame.strip() for frame in stack.split("\n") if frame.strip()] if stack else []
    tf_op = as_text(stats.get("tf_op")) or None
    if frames:
        frame = FRAME_RE.match(frames[-1])
        source_inner = frame[1] if frame else frames[-1]
    else:
        stack = None
        source_inner = as_text(stats.get("source")) or None
    agg_key, agg_key_kind = agg_key_of(stack, tf_op, category)
    shape = as_text(stats.get("shape_with_layout")) or None
    outputs = (hlo.outputs if hlo else []) or parse_shape(shape or "", 0)[0]
    dtype = dtype_class(main_dtype(outputs)) if outputs else OTHER
    return Op(
        text=metadata.name,
        hlo=hlo,
        category=category,
        kind=kind or OTHER,
        known=kind is not None,
        agg_key=agg_key,
        agg_key_kind=agg_key_kind,
        source_stack=stack,
        source_inner=source_inner,
        tf_op=tf_op,
        phase=phase_of(name, tf_op),
        shape=shape,
        dtype=dtype,
        dtype_is_given=False,
        flops=as_count(stats.get("flops")),
        model_flops=as_count(stats.get("model_flops")),
        bytes_accessed=as_count(stats.get("bytes_accessed")),
        hbm_bytes=as_count(metadata.hbm_bytes),
        signature=signature_of(category, hlo),
        has_endless_fact=any(
            isinstance(value := stats.get(fact), float) and not math.isfinite(value)
            for fact in ("flops", "model_flops", "bytes_accessed")
        ),
    )


def as_text(value: _proto.Value | None) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else ""


def as_count(value: _proto.Value | None) -> int | None:
    """Flops or bytes; None for what can't be a count (the compiler writes -1 for unknown)."""
    if isinstance(value, (int, float)) and 0 <= value < 1 << 63:
        return int(value)
    return None


def agg_key_of(stack: str | None, tf_op: str | None, category: str) -> tuple[str, str]:
    if stack:
        import hashlib

        digest = hashlib.sha1(stack.encode(), usedforsecurity=False).hexdigest()
        return f"stack:{digest[:16]}", STACK
    if tf_op:
        return f"tfop:{tf_op}", TF_OP
    return f"<no source>:{category}", NO_SOURCE


def phase_of(name: str, tf_op: str | None) -> str:
    if tf_op is None:
        return "unknown"
    if ".remat" in name or "/rematted_computation/" in tf_op:
        return "recompute"
    if "transpose(" in tf_op and "jvp" in tf_op:
        return "backward"
    return "forward" if "jvp(" in tf_op else "other"


def signature_of(category: str, hlo: Instruction | None) -> str:
    if hlo and hlo.opcode == "custom-call" and hlo.target:
        return f"custom-call:{hlo.target}"
    if hlo and (category.endswith("fusion") or category in ASYNC):
        return f"{hlo.base_name} [{category}]"
    opcode = hlo.opcode if hlo else ""
    return f"{opcode or '<no text>'} [{category}]"


# ----------------------------------------------------------------------------------------------
# Stage 4, fold: the events of the window into the runs of their ops, and into a timeline.

N_GAPS = 10
Span = tuple[int, int, Op]


class Timeline:
    """Sweeps over ops in order of their start: when is a leaf running, when none?

    An instant op takes no time, so it neither ends a gap nor counts as a neighbour of one.
    """

    def __init__(self, window: StepEvent | None) -> None:
        """Without a window it spans from the first start to the last end."""
        self.start, self.end = (window.start, window.end) if window else ALL_TIME
        self.busy = 0
        self.container_self = 0
        self._is_open = window is None
        self._covered = self.start
        self._last_start = self._last_end = ALL_TIME[0]
        self._last_leaf: Op | None = None
        # Containers that may not be over yet, the innermost last.
        self._containers: list[Span] = []
        # The last stretch without a break in which some container runs.
        self._contained_from = self._contained = self.start
        self._gaps: list[tuple[tuple[int, int], Gap]] = []

    def feed(self, spans: Sequence[Span]) -> bool:
        """Take (start, end, op) that start where the last one did, or later; else return False."""
        if self._is_open and spans and self.start == ALL_TIME[0]:
            self.start = self._covered = spans[0][0]
            self._contained_from = self._contained = self.start
        last_start = self._last_start
        for start, end, op in spans:
            if start < last_start:
                return False
            last_start = start
            if end > self._last_end:
                self._last_end = end
            if op.kind == CONTAINER:
                self._begin_container((start, end, op))
            elif end > self._covered and end > start:
                if start > self._covered:
                    self._add_gap(start, op)
                    self._covered = start
                end_within = min(end, self.end)
                self.busy += end_within - self._covered
                self._covered = end_within
                self._last_leaf = op
        self._last_start = last_start
        return True

    def finish(self) -> None:
        if self._is_open:
            self.end = self._last_end
        if self._covered < self.end:
            self._add_gap(self.end, None)

    def longest_gaps(self) -> list[Gap]:
        return [gap for _, gap in sorted(self._gaps, reverse=True)]

    def _begin_container(self, span: Span) -> None:
        start, end, _ = span
        while self._containers and self._containers[-1][1] <= self._covered:
            self._containers.pop()
        # Of those that begin together the first to end is the innermost.
        insort(self._containers, span, key=lambda c: (c[0], -c[1]))
        if start > self._contained:
            self.container_self += self._contained_since(self._covered, start)
            self._contained_from = self._contained = start
        self._contained = max(self._contained, end)

    def _contained_since(self, start: int, end: int) -> int:
        """How much of the last contained stretch lies between two times."""
        return max(0, min(self._contained, end) - max(self._contained_from, start))

    def _add_gap(self, end: int, before: Op | None) -> None:
        start = self._covered
        self.container_self += self._contained_since(start, end)
        rank = end - start, -start
        if len(self._gaps) < N_GAPS or rank > self._gaps[0][0]:
            gap = Gap(start, end - start, self._last_leaf, before, self._innermost(start))
            heapq.heappush(self._gaps, (rank, gap))
            if len(self._gaps) > N_GAPS:
                heapq.heappop(self._gaps)

    def _innermost(self, at: int) -> Op | None:
        """The innermost container around a time no earlier than at the last call."""
        later = []
        inside = None
        while self._containers and inside is None:
            start, end, op = self._containers[-1]
            if start <= at < end:
                inside = op
            else:
                span = self._containers.pop()
                if end > at:
                    later.append(span)
        self._containers += reversed(later)
        return inside


def fold(
    plane: _proto.Plane,
    lines: Sequence[_proto.Line],
    base: int,
    window: StepEvent | None,
    notes: list[str],
) -> tuple[list[Runs], Timeline, int]:
    """Fold all events that start in the window; without one, all there are.

    Returns the runs in order of appearance, the timeline, and how many events were dropped.
    """
    ops: dict[int, Op | None] = {}
    runs_of: dict[int, Runs] = {}
    timeline = Timeline(window)
    in_order = True
    n_unresolved = n_negative = place = 0
    for events in read_events(lines, base, window):
        spans = []
        for metadata_id, start, duration in events:
            place += 1
            runs = runs_of.get(metadata_id)
            if runs is None or duration < 0:
                if metadata_id not in ops:
                    metadata = plane.metadata(metadata_id)
                    ops[metadata_id] = normalize(metadata) if metadata else None
                op = ops[metadata_id]
                if op is None:
                    n_unresolved += 1
                    continue
                if duration < 0:
                    n_negative += 1
                    continue
                runs = runs_of[metadata_id] = Runs(op)
            runs.n += 1
            runs.total += duration
            if duration > runs.longest:
                runs.longest, runs.longest_at = duration, place
            if duration < runs.shortest:
                runs.shortest = duration
            spans.append((start, start + duration, runs.op))
        in_order = in_order and timeline.feed(spans)
    if not in_order:
        # Rare: a line that isn't sorted, or several lines. All spans at once, then.
        timeline = Timeline(window)
        timeline.feed(
            sorted(
                (
                    (start, start + duration, runs_of[metadata_id].op)
                    for events in read_events(lines, base, window)
                    for metadata_id, start, duration in events
                    if duration >= 0 and metadata_id in runs_of
                ),
                key=lambda span: span[0],
            )
        )
    timeline.finish()
    n_aggregated = sum(line.n_aggregated for line in lines)
    for n, what in (
        (n_unresolved, "have a metadata id that resolves to nothing"),
        (n_negative, "have a negative duration"),
        (n_aggregated, "tell how often something occurred instead of when"),
    ):
        if n:
            notes.append(f"{n} XLA Ops events left out: they {what}")
    n_endless = sum(runs.op.has_endless_fact for runs in runs_of.values())
    if n_endless:
        notes.append(f"flops or bytes of {n_endless} ops are not finite: treated as absent")
    return list(runs_of.values()), timeline, n_unresolved + n_negative + n_aggregated


def read_events(
    lines: Sequence[_proto.Line], base: int, window: StepEvent | None
) -> Iterator[list[tuple[int, int, int]]]:
    """The (metadata id, start, duration) of all events of the window, in the file's order."""
    for line in lines:
        shift = line.base_ps - base
        bounds = (window.start - shift, window.end - shift) if window else ALL_TIME
        for events in line.events(*bounds):
            yield [(i, offset + shift, d) for i, offset, d in events] if shift else events


# ----------------------------------------------------------------------------------------------
# The stages in a row.


def step_of_plane(plane: _proto.Plane, choice: StepChoice, notes: list[str]) -> Step:
    """All that the modes ask of the step that the choice names."""
    lines = plane.lines(OPS_LINE)
    if not lines:
        raise Absent("no_xla_ops_line", 0, available_lines=plane.line_names)
    base = lines[0].base_ps
    steps = read_steps(plane, base, notes)
    count_starts(lines, base, steps)
    picked = pick_step(steps, choice, sum(line.n_events for line in lines), notes)
    runs, timeline, n_dropped = fold(plane, lines, base, picked, notes)
    if picked is None:
        if not runs:
            raise Absent("empty_xla_ops_line", 0)
        notes.append("no Steps line; using the whole XLA Ops window")
    return Step(
        picked=picked,
        start=timeline.start,
        end=timeline.end,
        runs=[each for each in runs if each.op.kind != CONTAINER],
        containers=[each for each in runs if each.op.kind == CONTAINER],
        n_dropped=n_dropped,
        busy=timeline.busy,
        container_self=timeline.container_self,
        gaps=timeline.longest_gaps(),
        steps=steps,
        device_stats=plane.stats(),
    )


def step_of_files(
    files: dict[str, str],
    host: str | None,
    device: str,
    choice: StepChoice,
    notes: list[str],
    on_read: Callable[[int, int], None] | None,
) -> tuple[str, Step]:
    """The step of that host's file, or else of the first that can be read and has the device."""
    if host is not None:
        if host not in files:
            raise Absent(
                "host_not_found", 1, detail=f"no host {host!r}", available_hosts=list(files)
            )
        files = {host: files[host]}
    failures: list[Absent] = []
    devices: list[str] = []
    for path in files.values():
        n_notes = len(notes)
        try:
            with _proto.open_trace(path, on_read) as trace:
                if device not in trace.plane_names:
                    devices += trace.plane_names
                    continue
                if len(files) > 1:
                    name = os.path.basename(path)
                    notes.append(f"{name} taken, of {len(files)} files; --host takes another")
                return path, step_of_plane(trace.plane(device), choice, notes)
        except (_proto.Damage, OSError) as error:
            failures.append(unreadable(path, error))
            del notes[n_notes:]
            if len(files) > 1:
                notes.append(f"a file can't be read: {failures[-1].fields['detail']}")
    if len(failures) == len(files):
        raise failures[0]
    raise Absent("device_not_found", 0, available_devices=list(dict.fromkeys(devices)))


# ----------------------------------------------------------------------------------------------
# Aggregation: runs into groups, groups into numbers.


@record
class Group:
    """Runs that belong together; times and counts are over all their executions."""

    runs: list[Runs]

    @property
    def op(self) -> Op:
        """The first member, which speaks for the group."""
        return self.runs[0].op

    @property
    def n(self) -> int:
        return sum(runs.n for runs in self.runs)

    @property
    def total(self) -> int:
        return sum(runs.total for runs in self.runs)

    @property
    def longest(self) -> Runs:
        return max(self.runs, key=lambda runs: (runs.longest, -runs.longest_at))

    def durations(self) -> Json:
        return {
            "total_dur_ps": self.total,
            "min_dur_ps": min(runs.shortest for runs in self.runs),
            "max_dur_ps": self.longest.longest,
            "avg_dur_ps": round(self.total / self.n),
        }

    def sum_of(self, fact: Callable[[Op], int | None]) -> int | None:
        """Sum a fact over the executions that carry it; None where none does."""
        facts = [(runs.n, fact(runs.op)) for runs in self.runs]
        known = [n * value for n, value in facts if value is not None]
        return sum(known) if known else None

    def executions_by(self, fact: Callable[[Op], str]) -> dict[str, int]:
        return {key: group.n for key, group in group_by(self.runs, fact).items()}

    def time_by(self, fact: Callable[[Op], str]) -> dict[str, int]:
        return {key: group.total for key, group in group_by(self.runs, fact).items()}

    def hbm_bytes(self) -> int | None:
        """Bytes to and from HBM; None where a member that moves bytes doesn't say where."""
        if any(runs.op.bytes_accessed and runs.op.hbm_bytes is None for runs in self.runs):
            return None
        return self.sum_of(lambda op: op.hbm_bytes)

    @property
    def dtype_uncertain(self) -> bool:
        return any(runs.op.dtype_uncertain for runs in self.runs)

    def operand_dtypes(self) -> dict[str, int]:
        """Time by the dtype of each op's largest operand that a matrix unit could take."""
        times: dict[str, int] = {}
        for runs in self.runs:
            inputs = matmul_inputs(runs.op.hlo) if runs.op.hlo else []
            if inputs:
                hlo_dtype = main_dtype(inputs)
                named = dtype_class(hlo_dtype)
                dtype = hlo_dtype if named == OTHER else named
                times[dtype] = times.get(dtype, 0) + runs.total
        return times

    def distinct(self, fact: Callable[[Op], str | None]) -> list[str]:
        return list(dict.fromkeys(x for runs in self.runs if (x := fact(runs.op)) is not None))


def group_by(runs: Iterable[Runs], key: Callable[[Op], K]) -> dict[K, Group]:
    """Group runs by a fact of their op; groups and members in order of appearance."""
    groups: dict[K, Group] = {}
    for each in runs:
        of_key = key(each.op)
        if of_key in groups:
            groups[of_key].runs.append(each)
        else:
            groups[of_key] = Group([each])
    return groups


def source_key(op: Op) -> tuple[str, str]:
    """Groups never mix kinds."""
    return op.agg_key, op.kind


def percent(part: float, whole: int) -> float | None:
    return round(100 * part / whole, 3) if whole else None


def total_of(runs: Iterable[Runs]) -> int:
    return sum(each.total for each in runs)


N_BREAKDOWN = 8
N_SHAPES = 8
N_SHAPES_PER_SIDE = 4


def ranked_by(runs: Iterable[Runs], key: Callable[[Op], Any]) -> list[tuple[Any, Group]]:
    """Groups by a fact, costliest first; ties by the fact itself."""
    return sorted(group_by(runs, key).items(), key=lambda item: (-item[1].total, item[0]))


def breakdown(group: Group) -> Json:
    """What a group is made of, by HLO signature; rows and overflow sum up to the group."""
    signatures = ranked_by(group.runs, lambda op: op.signature)
    total = group.total
    rows = []
    for signature, part in signatures[:N_BREAKDOWN]:
        longest = part.longest
        rows.append(
            {
                "signature": signature,
                "hlo_category": part.op.category,
                "total_dur_ps": part.total,
                "n_executions": part.n,
                "pct_of_group": percent(part.total, total),
                "example_hlo_op": longest.op.text,
                "example_hlo_op_dur_ps": longest.longest,
            }
        )
    rest = [part for _, part in signatures[N_BREAKDOWN:]]
    overflow = {
        "n_signatures": len(rest),
        "n_executions": sum(part.n for part in rest),
        "total_dur_ps": sum(part.total for part in rest),
    }
    return {"hlo_op_breakdown": rows, "hlo_op_breakdown_overflow": overflow if rest else None}


def source_fields(op: Op) -> Json:
    return {
        "agg_key": op.agg_key,
        "agg_key_kind": op.agg_key_kind,
        "source_inner": op.source_inner,
        "tf_op": op.tf_op,
        "source_stack": op.source_stack,
    }


def group_fields(group: Group, compute: int, step: Step) -> Json:
    """The fields that a group has in summary and by_source alike."""
    longest = group.longest
    return {
        **source_fields(group.op),
        "n_executions": group.n,
        **group.durations(),
        "pct_of_compute": percent(group.total, compute),
        "pct_of_step": percent(group.total, step.duration),
        "hlo_categories": group.executions_by(lambda op: op.category),
        "flops_sum": group.sum_of(lambda op: op.flops),
        "bytes_accessed_sum": group.sum_of(lambda op: op.bytes_accessed),
        "phases": group.time_by(lambda op: op.phase),
        "example_hlo_op": longest.op.text,
        "example_hlo_op_dur_ps": longest.longest,
        **breakdown(group),
    }


def totals_of(step: Step) -> Json:
    """The same numbers in all modes."""
    n_of = {kind: sum(runs.n for runs in step.of_kind(kind)) for kind in KINDS}
    time_of = {kind: total_of(step.of_kind(kind)) for kind in KINDS}
    containers = {
        category: group.total
        for category, group in group_by(step.containers, lambda op: op.category).items()
    }
    in_while = containers.get("while", 0)
    idle = step.duration - step.busy
    wait = total_of(runs for runs in step.runs if runs.op.is_wait)
    unknown = group_by((runs for runs in step.runs if not runs.op.known), lambda op: op.category)
    return {
        "n_events_total": sum(n_of.values()),
        **{f"n_events_{kind}": n for kind, n in n_of.items()},
        "n_events_container": sum(runs.n for runs in step.containers),
        "n_events_unresolved": step.n_dropped,
        **{f"{kind}_duration_ps": duration for kind, duration in time_of.items()},
        "non_while_duration_ps_sum": sum(time_of.values()),
        "while_container_duration_ps": in_while,
        "while_pct_of_step": percent(in_while, step.duration),
        "container_durations_ps": containers,
        "container_self_duration_ps": step.container_self,
        "busy_duration_ps": step.busy,
        "idle_duration_ps": idle,
        "idle_pct_of_step": percent(idle, step.duration),
        "wait_duration_ps": wait,
        "wait_pct_of_step": percent(wait, step.duration),
        "agg_key_coverage": coverage(step.runs),
        "unknown_categories": {category: group.n for category, group in unknown.items()},
    }


def coverage(runs: Iterable[Runs]) -> dict[str, int]:
    """Executions by the tier of their source key."""
    counts = dict.fromkeys(KEY_KINDS, 0)
    for each in runs:
        counts[each.op.agg_key_kind] += each.n
    return counts


# ----------------------------------------------------------------------------------------------
# The modes: each a function from the normalized step to what it adds to the answer.


@record
class Answer:
    """What a mode says beyond what all say."""

    fields: Json
    totals: Json = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def summary(step: Step, *, top: int = 50, include_comm: bool = False) -> Answer:
    compute = total_of(step.of_kind(COMPUTE))
    kinds = (COMPUTE, COMM) if include_comm else (COMPUTE,)
    groups = [group for _, group in ranked_by(step.of_kind(*kinds), source_key)]
    rows = []
    for rank, group in enumerate(groups[:top], 1):
        row = {"rank": rank, **group_fields(group, compute, step)}
        rows.append({**row, "kind": group.op.kind} if include_comm else row)
    tail = groups[top:]
    return Answer(
        {
            "top_compute_groups": rows,
            "tail_compute": {
                "n_groups_omitted": len(tail),
                "dur_ps": sum(group.total for group in tail),
            },
            "by_kind_rollup": {
                kind: {
                    "n": sum(runs.n for runs in step.of_kind(kind)),
                    "dur_ps": (duration := total_of(step.of_kind(kind))),
                    "pct_of_step": percent(duration, step.duration),
                }
                for kind in KINDS
            },
            "by_phase_rollup": phase_rollup(step, compute),
            "by_hlo_category": category_rows(step),
            "comm_rollup": comm_rollup(step),
            "kernels": kernel_rows(step),
            "idle_gaps": [gap_row(gap, step) for gap in step.gaps],
            "steps": [step_row(each, step) for each in step.steps],
        }
    )


def phase_rollup(step: Step, compute: int) -> Json:
    rollup = {}
    for phase in PHASES:
        runs = [each for each in step.of_kind(COMPUTE) if each.op.phase == phase]
        rollup[phase] = {
            "n": sum(each.n for each in runs),
            "dur_ps": total_of(runs),
            "pct_of_compute": percent(total_of(runs), compute),
        }
    return rollup


def step_row(each: StepEvent, step: Step) -> Json:
    row = {
        "index": each.index,
        "name": each.name,
        "duration_ps": each.end - each.start,
        "n_xla_ops_events": each.n_events,
    }
    return {**row, "picked": True} if each is step.picked else row


def category_rows(step: Step) -> list[Json]:
    ranked = ranked_by([*step.runs, *step.containers], lambda op: (op.category, op.kind))
    return [
        {
            "hlo_category": category,
            "kind": kind,
            "n_executions": group.n,
            "total_dur_ps": group.total,
            "pct_of_step": percent(group.total, step.duration),
        }
        for (category, kind), group in ranked
    ]


def comm_rollup(step: Step) -> list[Json]:
    """What the core waits for: synchronous collectives, and the ends of asynchronous ops."""
    exposed = [
        runs
        for runs in step.runs
        if runs.op.is_wait
        or (runs.op.kind == COMM and not runs.op.category.endswith(("-start", "-update")))
    ]
    rows = []
    for name, group in ranked_by(exposed, waits_for):
        wait = total_of(runs for runs in group.runs if runs.op.is_wait)
        rows.append(
            {
                "waits_for": name,
                "n": group.n,
                "sync_dur_ps": group.total - wait,
                "wait_dur_ps": wait,
                "pct_of_step": percent(group.total, step.duration),
                "longest_hlo_op": group.longest.op.text,
            }
        )
    return rows


def waits_for(op: Op) -> str:
    """Whom the core waits for in an op that is communication or a wait."""
    name = op.name if op.category in ASYNC else op.category.replace(" ", "-")
    if name.startswith("all-reduce-scatter"):
        return "reduce-scatter"
    collective = COLLECTIVE_NAME.match(name)
    if collective:
        return collective[1]
    arrays = [*op.hlo.outputs, *op.hlo.operands] if op.hlo else []
    if (op.kind == COMM and op.category not in ASYNC) or any(
        HOST_MEMORY in (array.layout or "") for array in arrays
    ):
        # What is communication and no collective goes to the host and back.
        return "host"
    if "sparse-core" in op.name or "offload" in op.name:
        return "sparse_core"
    return "dma"


def kernel_rows(step: Step) -> list[Json]:
    rows = []
    for kernel, group in ranked_by((r for r in step.runs if r.op.kernel), lambda op: op.kernel):
        hlo = group.longest.op.hlo
        rows.append(
            {
                "kernel": kernel,
                "n_executions": group.n,
                **group.durations(),
                "pct_of_step": percent(group.total, step.duration),
                "source_inner": group.op.source_inner,
                "tf_op": group.op.tf_op,
                "phases": group.time_by(lambda op: op.phase),
                "shapes_in": [array.text for array in hlo.operands] if hlo else [],
                "shapes_out": [hlo.shape] if hlo else [],
            }
        )
    return rows


def gap_row(gap: Gap, step: Step) -> Json:
    return {
        "start_ps": gap.start,
        "dur_ps": gap.duration,
        "pct_of_step": percent(gap.duration, step.duration),
        "after_hlo_op": gap.after.text if gap.after else None,
        "before_hlo_op": gap.before.text if gap.before else None,
        "inside": (gap.inside.name or None) if gap.inside else None,
    }


def by_source(step: Step, *, include_data_move: bool = False, include_comm: bool = False) -> Answer:
    kinds = [COMPUTE, *([DATA_MOVE] * include_data_move), *([COMM] * include_comm)]
    compute = total_of(step.of_kind(COMPUTE))
    rows = []
    for group in group_by(step.of_kind(*kinds), source_key).values():
        shapes = group.distinct(lambda op: op.shape)
        rows.append(
            {
                "kind": group.op.kind,
                **group_fields(group, compute, step),
                "model_flops_sum": group.sum_of(lambda op: op.model_flops),
                "hbm_bytes_sum": group.hbm_bytes(),
                "dtypes": group.executions_by(lambda op: op.dtype),
                "dtype_uncertain": group.dtype_uncertain,
                "operand_dtypes": group.operand_dtypes(),
                "shapes": shapes[:N_SHAPES],
                "shapes_truncated": len(shapes) > N_SHAPES,
            }
        )
    return Answer({"groups": rows}, totals={"n_groups_total": len(rows)})


def non_compute(step: Step, *, include_comm: bool = False, no_comm_stalls: bool = False) -> Answer:
    def is_stall(op: Op) -> bool:
        return op.kind == COMM and op.is_wait

    def is_listed(op: Op) -> bool:
        if is_stall(op):
            return not no_comm_stalls
        return op.kind == DATA_MOVE or (include_comm and op.kind == COMM)

    def label(op: Op) -> tuple[str, str]:
        return COMM_STALL if is_stall(op) else op.category, op.kind

    runs = [runs for runs in step.runs if is_listed(runs.op)]
    duration = total_of(runs)
    by_category = []
    for (category, kind), group in group_by(runs, label).items():
        by_category.append(
            {
                "hlo_category": category,
                "kind": kind,
                "n_executions": group.n,
                **group.durations(),
                "n_groups": len(group_by(group.runs, lambda op: op.agg_key)),
                "agg_key_coverage": coverage(group.runs),
            }
        )
    by_source_within = []
    for (category, kind, _), group in group_by(runs, lambda op: (*label(op), op.agg_key)).items():
        changes = [changes_of(runs.op) for runs in group.runs]
        by_source_within.append(
            {
                "hlo_category": category,
                "kind": kind,
                **source_fields(group.op),
                "n_executions": group.n,
                **group.durations(),
                "shapes_in": group.distinct(shape_in)[:N_SHAPES_PER_SIDE],
                "shapes_out": group.distinct(shape_out)[:N_SHAPES_PER_SIDE],
                "dtype_change": any_known(dtype for dtype, _ in changes),
                "layout_change": any_known(layout for _, layout in changes),
                "example_hlo_op": group.longest.op.text,
            }
        )
    stalls = (
        "asynchronous communication waits included as 'async-done (comm stall)'; "
        "pass --no-comm-stalls to leave them out"
    )
    return Answer(
        {"by_category": by_category, "by_source_within_category": by_source_within},
        totals={
            "non_compute_duration_ps": duration,
            "non_compute_pct_of_step": percent(duration, step.duration),
            "non_compute_pct_of_compute": percent(duration, total_of(step.of_kind(COMPUTE))),
        },
        notes=[stalls] if any(is_stall(each.op) for each in runs) else [],
    )


def changes_of(op: Op) -> tuple[bool | None, bool | None]:
    if op.hlo is None or op.category.endswith("-start") or op.hlo.opcode.endswith("-start"):
        # Nothing has moved yet.
        return None, None
    return dtype_and_layout_change(op.hlo)


def shape_in(op: Op) -> str | None:
    array = moved_array(op.hlo) if op.hlo else None
    return array.text if array else None


def shape_out(op: Op) -> str | None:
    return op.hlo.shape if op.hlo and op.hlo.shape else None


def any_known(answers: Iterable[bool | None]) -> bool | None:
    """True where one is; None where none is known."""
    known = [answer for answer in answers if answer is not None]
    return any(known) if known else None


# The roofline. Every ratio is kept exact until it is rounded, once, for output.

N_TOP_SKIPPED = 10
N_TOP_SHORTFALL = 10
OPAQUE, XLA = "opaque", "xla"
SKIP_REASONS = {
    OPAQUE: "n_no_flops",
    "no_flops": "n_no_flops",
    "no_bytes": "n_no_bytes",
    "dtype_other": "n_dtype_other",
    "peak_unknown_for_dtype": "n_peak_unknown_for_dtype",
}


def exact(number: float) -> Fraction:
    from fractions import Fraction  # not at start-up: no other mode needs it

    return Fraction(number)


def rounded(number: Fraction, digits: int) -> float | None:
    try:
        return round(float(number), digits)
    except OverflowError:  # peaks at the edge of what a float can be
        return None


@record
class KernelCost:
    """What the user says of a kernel, per execution."""

    kernel: str
    flops: int
    n_bytes: int
    dtype: str | None


@record
class Part:
    """What of a source group is judged by itself: what XLA knows of it, or one kernel."""

    whole: Group
    group: Group
    is_opaque: bool
    cost: KernelCost | None
    # Time of the source group that XLA knows nothing of, told with what it knows.
    opaque_time: int

    @property
    def kernel(self) -> str:
        return self.cost.kernel if self.cost else ""

    @property
    def dtype(self) -> str:
        """The dtype that holds most of the time, the first of several."""
        times = self.group.time_by(lambda op: op.dtype)
        return max(times, key=lambda dtype: times[dtype])


def split_by_knowledge(runs: Sequence[Runs], costs: dict[str, KernelCost]) -> list[Part]:
    """Take the opaque executions out of their source groups, and kernels of known cost."""

    def knowledge(op: Op) -> str:
        if op.kernel in costs:
            return f"kernel {op.kernel}"
        return OPAQUE if op.is_opaque else XLA

    parts = []
    for whole in group_by(runs, source_key).values():
        pieces = group_by(whole.runs, knowledge)
        opaque_time = pieces[OPAQUE].total if OPAQUE in pieces else 0
        for known_by, piece in sorted(pieces.items(), key=lambda item: item[0] != XLA):
            cost = costs.get(piece.op.kernel or "")
            parts.append(
                Part(
                    whole,
                    Group([with_cost(runs, cost) for runs in piece.runs]) if cost else piece,
                    is_opaque=known_by == OPAQUE,
                    cost=cost,
                    opaque_time=opaque_time if known_by == XLA else 0,
                )
            )
    return parts


def with_cost(runs: Runs, cost: KernelCost) -> Runs:
    op = replace(
        runs.op,
        flops=cost.flops,
        model_flops=None,
        bytes_accessed=cost.n_bytes,
        hbm_bytes=cost.n_bytes,
        dtype=cost.dtype or runs.op.dtype,
        dtype_is_given=cost.dtype is not None,
    )
    return replace(runs, op=op)


@record
class Roofs:
    """Peaks as exact rates per picosecond, and which bytes count against them."""

    flops: dict[str, Fraction]
    hbm: Fraction | None
    hbm_only: bool

    def ridge_point(self, dtype: str) -> Fraction | None:
        return self.flops[dtype] / self.hbm if self.hbm and dtype in self.flops else None

    def bytes_of(self, group: Group) -> int | None:
        if self.hbm_only:
            return group.hbm_bytes()
        return group.sum_of(lambda op: op.bytes_accessed)

    def per_op(self, group: Group) -> Fraction | None:
        """The sum of each execution's own roof; None where one of them can't be known."""
        if self.hbm is None or self.bytes_of(group) is None:
            return None
        roof = exact(0)
        for runs in group.runs:
            op = runs.op
            n_bytes = op.hbm_bytes if self.hbm_only else op.bytes_accessed
            t = (n_bytes or 0) / self.hbm
            # A matrix unit doesn't take other dtypes: of such ops the bytes are the roof.
            if op.flops and op.dtype != OTHER:
                if op.dtype not in self.flops:
                    return None
                t = max(t, op.flops / self.flops[op.dtype])
            roof += runs.n * t
        return roof


@record
class Verdict:
    """How far a part is from its roof: times in picoseconds, exact."""

    part: Part
    flops: int
    n_bytes: int
    t_compute: Fraction
    t_hbm: Fraction
    t_per_op: Fraction | None
    ridge_point: Fraction

    @property
    def total(self) -> int:
        return self.part.group.total

    @property
    def t_roofline(self) -> Fraction:
        return max(self.t_compute, self.t_hbm)

    @property
    def shortfall(self) -> int:
        return self.total - round(self.t_roofline)

    @property
    def bound(self) -> str:
        # arithmetic intensity >= ridge point, without dividing by no bytes
        return "compute" if self.t_compute >= self.t_hbm else "memory"

    def utilization(self, t: Fraction) -> float | None:
        return rounded(t / self.total, 6) if self.total else None


def judge(part: Part, roofs: Roofs) -> Verdict | str:
    """The verdict on a part, or the reason why there is none."""
    group, dtype = part.group, part.dtype
    flops = group.sum_of(lambda op: op.flops)
    n_bytes = roofs.bytes_of(group)
    if part.is_opaque:
        return OPAQUE
    if not flops:
        return "no_flops"
    if n_bytes is None or (n_bytes == 0 and not roofs.hbm_only):
        return "no_bytes"
    if dtype == OTHER:
        return "dtype_other"
    ridge_point = roofs.ridge_point(dtype)
    if ridge_point is None or roofs.hbm is None:
        return "peak_unknown_for_dtype"
    t_compute, t_hbm = flops / roofs.flops[dtype], n_bytes / roofs.hbm
    return Verdict(part, flops, n_bytes, t_compute, t_hbm, roofs.per_op(group), ridge_point)


def roofline(
    step: Step,
    *,
    chip: str = _peaks.DEFAULT_CHIP,
    traffic: str = "accessed",
    kernel_cost: Sequence[KernelCost] = (),
    **overrides: float,
) -> Answer:
    own = peaks_of_device(step)
    peaks = _peaks.override(own if chip == _peaks.PROFILE_CHIP else _peaks.builtin(chip), overrides)
    tflops = {dtype: peaks.tflops(dtype) for dtype in _peaks.DTYPES}
    roofs = Roofs(
        {dtype: exact(peak) for dtype, peak in tflops.items() if peak is not None},
        None if peaks.hbm_gibps is None else exact(peaks.hbm_gibps) * 2**30 / 10**12,
        hbm_only=traffic == "hbm",
    )
    compute = step.of_kind(COMPUTE)
    verdicts: list[Verdict] = []
    skipped: list[tuple[Part, str]] = []
    for part in split_by_knowledge(compute, kernels_by_cost(step, kernel_cost)):
        verdict = judge(part, roofs)
        if isinstance(verdict, Verdict):
            verdicts.append(verdict)
        else:
            skipped.append((part, verdict))
    ridge_points = {dtype: roofs.ridge_point(dtype) for dtype in roofs.flops}
    return Answer(
        {
            "chip": chip,
            "peaks_used": {
                **{f"peak_tflops_{dtype}": peak for dtype, peak in tflops.items()},
                "peak_hbm_gibps": peaks.hbm_gibps,
                "ridge_points": {
                    dtype: rounded(ridge, 4)
                    for dtype, ridge in ridge_points.items()
                    if ridge is not None
                },
                "source": peaks.source,
                "unit": "GiB/s (base-1024) per device",
                "bytes": traffic,
            },
            "step_summary": step_summary(verdicts, total_of(compute)),
            "groups": [roofline_row(verdict) for verdict in verdicts],
            "skipped_groups": skipped_fields(skipped),
        },
        notes=[*roofline_notes(verdicts), *chip_notes(step, chip, own, peaks)],
    )


def kernels_by_cost(step: Step, costs: Sequence[KernelCost]) -> dict[str, KernelCost]:
    kernels = list(dict.fromkeys(runs.op.kernel for runs in step.runs if runs.op.kernel))
    for cost in costs:
        if cost.kernel not in kernels:
            raise Absent(
                "kernel_not_found",
                1,
                detail=f"no kernel of the step is named {cost.kernel!r}",
                available_kernels=kernels,
            )
    return {cost.kernel: cost for cost in costs}


def roofline_row(verdict: Verdict) -> Json:
    part, group, total = verdict.part, verdict.part.group, verdict.total
    op = part.whole.op
    per_op = None if verdict.t_per_op is None else round(verdict.t_per_op)
    return {
        "agg_key": op.agg_key,
        "agg_key_kind": op.agg_key_kind,
        "source_inner": op.source_inner,
        "tf_op": op.tf_op,
        "kernel": part.kernel or None,
        "cost_source": "user" if part.cost else XLA,
        "hlo_categories": group.executions_by(lambda op: op.category),
        "n_executions": group.n,
        "total_dur_ps": total,
        "flops_sum": verdict.flops,
        "model_flops_sum": group.sum_of(lambda op: op.model_flops),
        "bytes_accessed_sum": group.sum_of(lambda op: op.bytes_accessed),
        "hbm_bytes_sum": group.hbm_bytes(),
        "dtype": part.dtype,
        "dtype_uncertain": group.dtype_uncertain,
        "operand_dtypes": group.operand_dtypes(),
        "arithmetic_intensity": (
            round(verdict.flops / verdict.n_bytes, 4) if verdict.n_bytes else None
        ),
        "ridge_point": rounded(verdict.ridge_point, 4),
        "bound": verdict.bound,
        "t_compute_theory_ps": round(verdict.t_compute),
        "t_hbm_theory_ps": round(verdict.t_hbm),
        "t_roofline_theory_ps": round(verdict.t_roofline),
        "t_roofline_per_op_ps": per_op,
        "mfu": verdict.utilization(verdict.t_compute),
        "hbm_util": verdict.utilization(verdict.t_hbm),
        "roofline_util": verdict.utilization(verdict.t_roofline),
        "shortfall_ps": verdict.shortfall,
        "shortfall_pct": rounded(100 * (1 - verdict.t_roofline / total), 3) if total else None,
        "shortfall_per_op_ps": None if per_op is None else total - per_op,
        "opaque_dur_ps": part.opaque_time,
    }


def step_summary(verdicts: Sequence[Verdict], compute: int) -> Json:
    rooflined = sum(verdict.total for verdict in verdicts)

    def average(t_of: Callable[[Verdict], Fraction]) -> float | None:
        weighed = sum((t_of(each) for each in verdicts if each.total), exact(0))
        return rounded(weighed / rooflined, 6) if rooflined else None

    largest = sorted(
        verdicts, key=lambda each: (-each.shortfall, each.part.whole.op.agg_key, each.part.kernel)
    )
    known = [(each.total, round(each.t_per_op)) for each in verdicts if each.t_per_op is not None]
    return {
        "weighted_avg_mfu": average(lambda verdict: verdict.t_compute),
        "weighted_avg_hbm_util": average(lambda verdict: verdict.t_hbm),
        "weighted_avg_roofline_util": average(lambda verdict: verdict.t_roofline),
        "step_shortfall_ps": sum(verdict.shortfall for verdict in verdicts),
        "t_roofline_per_op_ps": sum(roof for _, roof in known) if known else None,
        "shortfall_per_op_ps": sum(total - roof for total, roof in known) if known else None,
        "rooflined_dur_ps": rooflined,
        "step_compute_dur_ps_total": compute,
        "rooflined_pct_of_compute": percent(rooflined, compute),
        "skipped_pct_of_compute": percent(compute - rooflined, compute),
        "top_shortfall_groups": [
            {
                "agg_key": verdict.part.whole.op.agg_key,
                "source_inner": verdict.part.whole.op.source_inner,
                "tf_op": verdict.part.whole.op.tf_op,
                "total_dur_ps": verdict.total,
                "shortfall_ps": verdict.shortfall,
                "bound": verdict.bound,
            }
            for verdict in largest[:N_TOP_SHORTFALL]
        ],
    }


def skipped_fields(skipped: Sequence[tuple[Part, str]]) -> Json:
    counts = dict.fromkeys(SKIP_REASONS.values(), 0)
    for _, reason in skipped:
        counts[SKIP_REASONS[reason]] += 1
    longest = sorted(
        skipped, key=lambda entry: (-entry[0].group.total, entry[0].whole.op.agg_key, entry[1])
    )
    return {
        **counts,
        "total_dur_ps_skipped": sum(part.group.total for part, _ in skipped),
        "top_skipped": [
            {
                "agg_key": part.whole.op.agg_key,
                "source_inner": part.whole.op.source_inner,
                "tf_op": part.whole.op.tf_op,
                "total_dur_ps": part.group.total,
                "reason": reason,
                "top_signature": ranked_by(part.group.runs, lambda op: op.signature)[0][0],
                "example_hlo_op": part.group.longest.op.text,
            }
            for part, reason in longest[:N_TOP_SKIPPED]
        ],
    }


def roofline_notes(verdicts: Sequence[Verdict]) -> list[str]:
    notes = []
    n_over = sum(verdict.t_roofline > verdict.total > 0 for verdict in verdicts)
    if n_over:
        notes.append(
            f"{n_over} groups have a roofline_util above 1: a wrong dtype, peak or flop count"
        )
    n_differ = 0
    for verdict in verdicts:
        model_flops = verdict.part.group.sum_of(lambda op: op.model_flops)
        n_differ += model_flops not in (None, verdict.flops)
    if n_differ:
        notes.append(f"{n_differ} groups have a flops_sum that differs from model_flops_sum")
    return notes


def peaks_of_device(step: Step) -> _peaks.Peaks:
    """The peaks that the trace gives for its own device."""

    def positive(name: str) -> float | None:
        value = step.device_stats.get(name)
        return float(value) if isinstance(value, (int, float)) and 0 < value < math.inf else None

    return _peaks.of_profile(
        positive("peak_teraflops_per_second"), positive("peak_hbm_bw_gigabytes_per_second")
    )


def chip_notes(step: Step, chip: str, own: _peaks.Peaks, used: _peaks.Peaks) -> list[str]:
    """Whether the peaks in use are those of the device that the trace is of."""
    notes = []
    device_type = as_text(step.device_stats.get("device_type_string"))
    fits = _peaks.chip_of(device_type)
    if device_type and chip not in (fits, _peaks.PROFILE_CHIP):
        notes.append(
            f"the trace is of a {device_type!r}, the peaks are those of {chip}:"
            f" --chip {fits or _peaks.PROFILE_CHIP} fits"
        )
    for what, its_own, in_use in (
        ("bf16 peak is {:.6g} TFLOPS", own.bf16, used.bf16),
        ("HBM peak is {:.6g} GiB/s", own.hbm_gibps, used.hbm_gibps),
    ):
        if its_own and in_use and abs(its_own - in_use) > 0.02 * in_use:
            notes.append(f"the trace's own {what.format(its_own)}, the one used is {in_use:.6g}")
    return notes


# ----------------------------------------------------------------------------------------------
# The command line. A mode is a row of MODES; an option is a row of OPTIONS.


@record
class Mode:
    name: str
    run: Callable[..., Answer]
    says: str
    options: tuple[str, ...]
    example: str


MODES = (
    Mode(
        "summary",
        summary,
        "the costliest source lines, and the step's time by kind and category",
        ("--top", "--include-comm"),
        "--top 10",
    ),
    Mode(
        "by_source",
        by_source,
        "every source line, complete",
        ("--include-data-move", "--include-comm"),
        "--include-data-move",
    ),
    Mode(
        "non_compute",
        non_compute,
        "what is data movement and waiting rather than math",
        ("--no-comm-stalls", "--include-comm"),
        "--no-comm-stalls",
    ),
    Mode(
        "roofline",
        roofline,
        "how far each source line is from what the chip could do",
        (
            "--chip",
            *(f"--peak-tflops-{dtype}" for dtype in _peaks.DTYPES),
            "--peak-hbm-gibps",
            "--bytes",
            "--kernel-cost",
        ),
        "--peak-tflops-fp32 70",
    ),
)


def natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def count(text: str) -> int:
    """Of flops or bytes: also written as 1.2e12."""
    number = int(text) if text.isdecimal() else float(text)
    if not (0 <= number < 1 << 63 and number == int(number)):
        raise ValueError
    return int(number)


def peak(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise ValueError
    return number


def cost(text: str) -> KernelCost:
    name, _, figures = text.rpartition("=")
    flops, n_bytes, *rest = figures.split(",")
    (dtype,) = rest or (None,)
    if not name or dtype not in (None, *_peaks.DTYPES):
        raise ValueError
    return KernelCost(name, count(flops), count(n_bytes), dtype)


def converter(convert: Callable[[str], Any], wanted: str) -> Callable[[str], Any]:
    """For argparse, whose refusal then says what would have been right."""

    def convert_or_refuse(text: str) -> Any:
        try:
            return convert(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"takes {wanted}, not {text!r}") from None

    return convert_or_refuse


TO_NATURAL = converter(natural, "a whole number from 0")
TO_INDEX = converter(int, "a whole number")
TO_PEAK = converter(peak, "a finite number above 0")
TO_COST = converter(
    cost, f"NAME=FLOPS,BYTES[,DTYPE], where DTYPE is one of {', '.join(_peaks.DTYPES)}"
)


# What argparse is told of each option. None has a default here: the modes have them.
OPTIONS: dict[str, Json] = {
    "--device": {"metavar": "NAME", "help": f"exact name of the plane (default: {DEVICE})"},
    "--host": {
        "metavar": "NAME",
        "help": "which file of a multi-host run: its name without .xplane.pb"
        " (default: the first by name that can be read and has the device)",
    },
    "--step": {
        "metavar": "N",
        "type": TO_INDEX,
        "help": "which step by time, from 0; negative from the end (default: the busiest)",
    },
    "--step-id": {"metavar": "NAME", "help": "which step, by its exact name"},
    "--top": {"metavar": "K", "type": TO_NATURAL, "help": "how many groups (default: 50)"},
    "--include-comm": {"action": "store_true", "help": "also rank or list communication"},
    "--include-data-move": {"action": "store_true", "help": "also list data movement"},
    "--no-comm-stalls": {"action": "store_true", "help": "leave out waits for communication"},
    "--chip": {
        "choices": [*_peaks.CHIPS, _peaks.PROFILE_CHIP],
        "help": "whose peaks; profile: those that the trace gives"
        f" (default: {_peaks.DEFAULT_CHIP})",
    },
    **{
        f"--peak-tflops-{dtype}": {
            "dest": dtype,
            "metavar": "X",
            "type": TO_PEAK,
            "help": f"override the {dtype} peak",
        }
        for dtype in _peaks.DTYPES
    },
    "--peak-hbm-gibps": {
        "dest": "hbm_gibps",
        "metavar": "X",
        "type": TO_PEAK,
        "help": "override the HBM peak, in GiB/s",
    },
    "--bytes": {
        "dest": "traffic",
        "choices": ["accessed", "hbm"],
        "help": "count the bytes of all memories, or of HBM alone (default: accessed)",
    },
    "--kernel-cost": {
        "metavar": "NAME=FLOPS,BYTES[,DTYPE]",
        "type": TO_COST,
        "action": "append",
        "help": "what one execution of a custom kernel costs (repeatable)",
    },
}
PIPELINE_OPTIONS = ("--device", "--host", "--step", "--step-id")


class BadArguments(Exception):
    def __init__(self, usage: str, detail: str) -> None:
        super().__init__(detail)
        self.usage = usage


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadArguments(self.format_usage(), message)

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        # After --help. Flushed here, where `main` still catches what happens.
        write(sys.stdout, "")
        super().exit(status, message)


@record
class Request:
    """The command line, understood."""

    profile: str
    mode: Mode
    device: str
    host: str | None
    choice: StepChoice
    mode_options: Json


def parse_command_line(argv: Sequence[str] | None) -> Request:
    parser = Parser(
        prog="compute_breakdown",
        usage="%(prog)s PROFILE --mode MODE [options]",
        description="Where does a TPU step's time go, by source line? Prints one JSON object.",
        argument_default=argparse.SUPPRESS,
        # Of a given width: to ask the terminal, argparse imports a module that takes 3 ms.
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=80),
        allow_abbrev=False,
    )
    parser.add_argument(
        "profile",
        metavar="PROFILE",
        help="an .xplane.pb file, plain or gzipped, or a run or log directory that holds some",
    )
    parser.add_argument(
        "--mode", required=True, metavar="MODE", choices=[mode.name for mode in MODES],
        help=", ".join(mode.name for mode in MODES),
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"%(prog)s {__version__}")
    modes_of: dict[str, list[str]] = {}
    dest_of = {flag: parser.add_argument(flag, **OPTIONS[flag]).dest for flag in PIPELINE_OPTIONS}
    for mode in MODES:
        says = f"{mode.says}\nexample: %(prog)s PROFILE --mode {mode.name} {mode.example}"
        shared = [flag for flag in mode.options if flag in modes_of]
        if shared:
            says += f"\nalso takes {', '.join(shared)}"
        section = parser.add_argument_group(f"--mode {mode.name}", says)
        for flag in mode.options:
            if flag not in shared:
                dest_of[flag] = section.add_argument(flag, **OPTIONS[flag]).dest
            modes_of.setdefault(flag, []).append(mode.name)
    given = vars(parser.parse_args(argv))
    mode = next(mode for mode in MODES if mode.name == given["mode"])
    for flag, names in modes_of.items():
        if dest_of[flag] in given and flag not in mode.options:
            parser.error(f"{flag} belongs to --mode {' or '.join(names)}")
    if "step" in given and "step_id" in given:
        parser.error("--step and --step-id exclude each other")
    kernels = [cost.kernel for cost in given.get("kernel_cost", ())]
    if len(set(kernels)) < len(kernels):
        parser.error("--kernel-cost was given twice for one kernel")
    return Request(
        profile=given["profile"],
        mode=mode,
        device=given.get("device", DEVICE),
        host=given.get("host"),
        choice=StepChoice(given.get("step"), given.get("step_id")),
        mode_options={
            dest_of[flag]: given[dest_of[flag]] for flag in mode.options if dest_of[flag] in given
        },
    )


class Progress:
    """One line on a terminal that erases itself, for runs that take longer than a second."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._due = time.monotonic() + 1
        self._shown = False

    def __call__(self, position: int, size: int) -> None:
        now = time.monotonic()
        if now >= self._due:
            self._due = now + 0.1
            self._shown = True
            self._stream.write(f"\r\x1b[Kreading: {position >> 20} of {size >> 20} MiB")
            self._stream.flush()

    def erase(self) -> None:
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()


def answer(request: Request, notes: list[str]) -> Json:
    """The whole pipeline."""
    progress = Progress(sys.stderr) if sys.stderr and sys.stderr.isatty() else None
    try:
        files = find_files(request.profile, notes)
        path, step = step_of_files(
            files, request.host, request.device, request.choice, notes, progress
        )
        said = request.mode.run(step, **request.mode_options)
    finally:
        if progress:
            progress.erase()
    return {
        "status": "ok",
        "mode": request.mode.name,
        "profile_dir": request.profile,
        "xplane_file": os.path.basename(path),
        "device": request.device,
        "step_id": step.picked.index if step.picked else None,
        "step_name": step.picked.name if step.picked else None,
        "step_window_ps": [step.start, step.end],
        "step_duration_ps": step.duration,
        "notes": [*notes, *said.notes],
        "totals": {**totals_of(step), **said.totals},
        **said.fields,
    }


def run(argv: Sequence[str] | None) -> tuple[Json, int, str]:
    """The object to print, the exit status, and what to say on stderr."""
    request = None
    usage = ""
    notes: list[str] = []
    try:
        request = parse_command_line(argv)
        return answer(request, notes), 0, ""
    except BadArguments as error:
        usage = error.usage
        absent = Absent("bad_arguments", 2, detail=str(error))
    except Absent as error:
        absent = error
    except MemoryError:
        absent = Absent("unreadable_xplane_pb", 1, detail="not enough memory to read it")
    except ImportError as error:
        advice = f"{error}; it takes protobuf 4.21.1 or newer: pip install 'protobuf>=4.21.1'"
        absent = Absent("protobuf_not_installed", 1, detail=advice)
    fields: Json = {
        "status": "absent",
        "reason": absent.reason,
        "mode": request.mode.name if request else None,
        "profile_dir": request.profile if request else None,
        "device": request.device if request else None,
        "notes": notes,
        **absent.fields,
    }
    complaint = ""
    if absent.exit_status:
        detail = absent.fields.get("detail", "")
        line = f"compute_breakdown: {absent.reason}: {detail}"
        complaint = f"{usage}{''.join(c if c.isprintable() else '?' for c in line)}\n"
    return fields, absent.exit_status, complaint


def main(argv: Sequence[str] | None = None) -> int:
    # Nothing here makes cycles; looking for them all the same takes a sixth of the time.
    gc.disable()
    try:
        fields, status, complaint = run(argv)
        # Escaped so that the line can be put into a page as it is.
        line = json.dumps(fields, allow_nan=False).replace("</", r"<\/")
        write(sys.stdout, f"{line}\n")
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        # What couldn't be written must not be tried again on the way out.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            return 141
        status, complaint = 1, f"compute_breakdown: can't write: {error.strerror}\n"
    with suppress(OSError):
        write(sys.stderr, complaint)
    return status


def write(stream: TextIO | None, text: str) -> None:
    """Write and flush; a stream that was closed from the start is None."""
    if stream is not None:
        stream.write(text)
        stream.flush()


if __name__ == "__main__":
    sys.exit(main())
