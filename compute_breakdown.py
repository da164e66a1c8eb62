#!/usr/bin/env python3
# /// script
# requires-python = ">=3.10"
# dependencies = ["protobuf>=4.21.1"]
# ///
"""Where does a TPU step's time go, by source line?

Reads an XProf trace (`*.xplane.pb`) and prints one JSON object, in one of these modes:

    bottleneck   where to look first: what the step's time is lost to, and on which lines
    summary      the costliest source lines, and the step's time by kind and category
    by_source    every source line, complete
    non_compute  what is data movement and waiting rather than math
    roofline     how far each source line is from what the chip could do
    comm         what communication costs, what hides it, and what it moves
    memory       what fills the HBM when it is fullest, by buffer and source line
    record       all steps of all devices as one small object, to be kept and compared
    compare      what a change did: two captures line by line, and what of it is more than noise
    spread       which device of which host is slow, and on which lines

The modes of one step share one pipeline: find the files, open a device, pick a step, admit the
events that start in it, fold them into executions of ops and a timeline, and hand the step to a
function that turns it into a dict. A record goes the same way for each step of each device; the
last two read records, or traces into records, and leave the rest to `_records`.
"""

from __future__ import annotations

import os
import signal
import sys

# Whether this is the command: a script, `python -m`, or what the package calls.
IS_COMMAND = __name__.endswith("__main__")
if IS_COMMAND and sys.version_info < (3, 10):
    # So far, and in its syntax to the end, this file is for older ones as well.
    this = ".".join(map(str, sys.version_info[:3]))
    sys.exit(f"compute_breakdown: it takes Python 3.10 or newer, this is {this}")
if IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # While the rest loads Ctrl-C ends it without a traceback; once it runs, see `main`.
    signal.signal(signal.SIGINT, signal.SIG_DFL)

# ruff: noqa: E402

import argparse
import errno
import gc
import heapq
import json
import math
import re
import time
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict, deque
from contextlib import contextmanager, suppress
from functools import cache, cached_property, lru_cache, partial
from itertools import accumulate, chain, compress, starmap
from operator import add, eq, itemgetter, le, sub

# Type checkers take a variable of this name as true. No line that runs needs what it guards, and
# importing it would take as long as parsing the command line.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
    from fractions import Fraction
    from typing import Any, NoReturn, TextIO, TypeVar

    K = TypeVar("K")
    N = TypeVar("N", int, Fraction)
    T = TypeVar("T")
    Json = dict[str, Any]
    Columns = tuple[Sequence[int], Sequence[int], Sequence[int]]
    # Told what is done, how many bytes of it, and of how many.
    OnRead = Callable[[str, int, int], None]

# From a clone this file is a script; installed, it stands in a package with its neighbours.
if TYPE_CHECKING or not __package__:
    if sys.flags.isolated or getattr(sys.flags, "safe_path", False):
        # Python was told not to look beside the script. But this is where its other half is.
        sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))
    import _peaks
    import _proto
    from _proto import record

    if TYPE_CHECKING:
        import _records
else:
    from . import _peaks, _proto
    from ._proto import record

__version__ = "1.0.0"

# ----------------------------------------------------------------------------------------------
# Vocabulary: every category has one kind.

COMPUTE, DATA_MOVE, COMM, OTHER = KINDS = ("compute", "data_move", "comm", "other")
CONTAINER = "container"
NO_CATEGORY = "<none>"
LONGEST_CATEGORY = 1000
CAST = "convert"
COMM_STALL = "async-done (comm stall)"

COLLECTIVES = (
    "all-reduce, all-gather, reduce-scatter, all-to-all, ragged-all-to-all, collective-permute, "
    "collective-broadcast, send, recv"
).split(", ")
HOST_TRANSFERS = ("host send", "host recv")
ASYNC = ("async-start", "async-update", "async-done")
ASYNC_COLLECTIVE_START, ASYNC_COLLECTIVE_DONE = "async-collective-start", "async-collective-done"

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

# On v5e and its like an asynchronous collective is a pair of fusions. (Those between the two are
# math that carries pieces of it.)
ASYNC_COLLECTIVE_NAME = starts_with_name([ASYNC_COLLECTIVE_START, ASYNC_COLLECTIVE_DONE])

MATMUL_CATEGORY = re.compile(
    r"\A(?:convolution(?: .*)?|dot|ragged-dot|output fusion|custom fusion|custom-call)\Z"
)


def kind_of(category: str, op_name: str) -> str | None:
    """The kind of a category; None where the category stands in no row."""
    kind = KIND_OF.get(category) or kind_of_family(category)
    if category in ASYNC and (DMA_NAME.match(op_name) or SPARSE_CORE_NAME.match(op_name)):
        return DATA_MOVE
    if kind != CONTAINER and async_collective(category, op_name):
        return COMM
    return kind


@cache
def kind_of_family(category: str) -> str | None:
    return next((kind for kind, family in FAMILIES if family.search(category)), None)


def async_collective(category: str, op_name: str) -> str | None:
    """Which end of an asynchronous collective an op is, if it is a fusion that is one."""
    name = ASYNC_COLLECTIVE_NAME.match(op_name) if category.endswith("fusion") else None
    return name[1] if name else None


def dtype_of(outputs: list[_proto.Array]) -> str:
    return _proto.dtype_class(_proto.main_dtype(outputs)) if outputs else OTHER


@cache
def dtype_of_shape(shape: str) -> str:
    return dtype_of(_proto.parse_shape(shape)[0])


def as_text(value: _proto.Value | None) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value if isinstance(value, str) else ""


def as_count(value: _proto.Value | None) -> int | None:
    """Flops or bytes; None for what can't be a count (the compiler writes -1 for unknown)."""
    if isinstance(value, (int, float)) and 0 <= value < 1 << 63:
        return int(value)
    return None


# ----------------------------------------------------------------------------------------------
# Ops: what is true of every execution of one.

# How a likely line is known: the first of four ways, see the program's search.
OWN = "own"
# What is waited for that is no collective, or one that nobody names.
SOME_COLLECTIVE = "collective"
HOST, SPARSE_CORE, DMA = "host", "sparse_core", "dma"
PHASES = ("forward", "backward", "recompute", "other", "unknown")
STACK, TF_OP, NO_SOURCE = KEY_KINDS = ("stack", "tf_op", "no_source")

FRAME_RE = re.compile(r"(.*:\d+):\d+\Z", re.DOTALL)
# In the stat memory_access_breakdown.
HBM_SPACE = 1
MATMUL_INPUT_RE = re.compile(r"b?f\d\w*|[su][1-8]")


# Where an op stands: in which program, by which name.
Place = tuple["int | None", str]


class Op:
    """One entry of the event metadata, normalized; what few modes ask for, when it is asked for."""

    def __init__(self, metadata: _proto.Metadata, programs: _proto.Programs) -> None:
        stats = metadata.stats
        self.metadata = metadata
        self._programs = programs
        self.hlo = _proto.HloText(metadata.name)
        # No category is that long. Many ops may share it, and have names made of it.
        self.category = cut(as_text(stats.get("hlo_category")), LONGEST_CATEGORY) or NO_CATEGORY
        if self.category == "non-fusion elementwise" and self.hlo.opcode == CAST:
            # The profiler hides casts among the elementwise math.
            self.category = CAST
        kind = kind_of(self.category, self.hlo.name)
        self.kind = kind or OTHER
        self.is_known = kind is not None
        self.async_collective = async_collective(self.category, self.hlo.name)
        stack = as_text(stats.get("source_stack"))
        self.source_stack = stack if stack.strip() else None
        self.tf_op = as_text(stats.get("tf_op")) or None
        self.agg_key, self.agg_key_kind = agg_key_of(self.source_stack, self.tf_op, self.category)

    def __repr__(self) -> str:
        return f"Op({self.text!r})"

    @property
    def text(self) -> str:
        return self.metadata.name

    @property
    def name(self) -> str:
        return self.hlo.name

    @property
    def is_container(self) -> bool:
        return self.kind == CONTAINER

    @property
    def is_wait(self) -> bool:
        """Whether the core stands still until something asynchronous is done."""
        return self.category.endswith("-done") or self.async_collective == ASYNC_COLLECTIVE_DONE

    @property
    def is_start(self) -> bool:
        """Whether it only sets off what another op waits for."""
        return self.category.endswith("-start") or self.async_collective == ASYNC_COLLECTIVE_START

    @property
    def begins(self) -> bool:
        """Whether it begins what another op waits for, and has a name by which to tell.

        Starts do, and what is sent or received.
        """
        is_half = self.category in ("send", "recv", *HOST_TRANSFERS)
        return bool(self.name) and not self.is_container and (self.is_start or is_half)

    @property
    def source(self) -> str | None:
        """The line that the trace gives beside the stack."""
        return as_text(self.metadata.stats.get("source")) or None

    @cached_property
    def source_inner(self) -> str | None:
        """The innermost frame, as `file:line`; without a stack, what else tells the line."""
        if self.source_stack is None:
            return self.source
        last = self.source_stack.rstrip().rpartition("\n")[2].strip()
        frame = FRAME_RE.match(last)
        return frame[1] if frame else last

    @cached_property
    def waits_for(self) -> str:
        """Whom the core waits for, if this is communication or a wait."""
        name = self.name if self.category in ASYNC else self.category.replace(" ", "-")
        if name.startswith("all-reduce-scatter"):
            return "reduce-scatter"
        collective = COLLECTIVE_NAME.match(name)
        if collective:
            return collective[1]
        if self.async_collective:
            return self.inside.opcode if self.inside else SOME_COLLECTIVE
        if self.kind == COMM and self.category in ASYNC:
            return SOME_COLLECTIVE
        arrays = [*self.hlo.outputs, *self.hlo.operands]
        if self.kind == COMM or any(array.memory_space == _proto.HOST_MEMORY for array in arrays):
            # What is communication and no collective goes to the host and back.
            return HOST
        return SPARSE_CORE if "sparse-core" in self.name or "offload" in self.name else DMA

    @cached_property
    def phase(self) -> str:
        if self.tf_op is None:
            return "unknown"
        if ".remat" in self.name or "/rematted_computation/" in self.tf_op:
            return "recompute"
        if "transpose(" in self.tf_op and "jvp" in self.tf_op:
            return "backward"
        return "forward" if "jvp(" in self.tf_op else "other"

    @cached_property
    def signature(self) -> str:
        if self.hlo.target:
            return f"custom-call:{self.hlo.target}"
        if self.hlo.name and (self.category.endswith("fusion") or self.category in ASYNC):
            return f"{self.hlo.base_name} [{self.category}]"
        return f"{self.hlo.opcode or '<no text>'} [{self.category}]"

    @cached_property
    def kernel(self) -> str | None:
        """The name of the custom (Pallas) kernel that it runs."""
        return self.hlo.base_name if self.hlo.target == "tpu_custom_call" else None

    @property
    def program_id(self) -> int | None:
        program_id = self.metadata.stats.get("program_id")
        return program_id % (1 << 64) if isinstance(program_id, int) else None

    @cached_property
    def program(self) -> _proto.Program | None:
        """The compiled program that it is of, if it lies beside the trace."""
        return None if self.program_id is None else self._programs.program(self.program_id)

    @cached_property
    def instruction(self) -> _proto.Instruction | None:
        """What its program says of it."""
        return self.program.instruction(self.name) if self.program and self.name else None

    @cached_property
    def inside(self) -> _proto.Collective | None:
        """The collective that it is or has inside, as its program tells."""
        return self.instruction.collective() if self.instruction else None

    @property
    def place(self) -> Place:
        """What names mean depends on the program."""
        return self.program_id, self.name

    @property
    def has_only_started(self) -> bool:
        """Whether nothing has moved yet."""
        return self.is_start or self.hlo.opcode.endswith("-start")

    @property
    def is_to_host(self) -> bool:
        """Whether it moves data to the host's memory."""
        # The result of a start is (destination, source, context).
        outputs = self.hlo.outputs[:1] if self.has_only_started else self.hlo.outputs
        return any(array.memory_space == _proto.HOST_MEMORY for array in outputs)

    @cached_property
    def shape(self) -> str | None:
        return as_text(self.metadata.stats.get("shape_with_layout")) or None

    @cached_property
    def dot(self) -> _proto.Dot | None:
        """The matmul that it is or contains, as its program has it."""
        return self.instruction.dot() if self.instruction else None

    @cached_property
    def dtype(self) -> str:
        """That of the output: of its array of most elements."""
        outputs = self.hlo.outputs
        return dtype_of(outputs) if outputs else dtype_of_shape(self.shape or "")

    @cached_property
    def matmul_inputs(self) -> list[_proto.Array]:
        """The operands that a matrix unit could take: not scalars; floats or narrow integers."""
        operands = [array for array in self.hlo.operands if array.dims]
        fit = set(filter(MATMUL_INPUT_RE.fullmatch, {array.dtype for array in operands}))
        return [array for array in operands if array.dtype in fit]

    @cached_property
    def operand_dtype(self) -> str | None:
        """That of the wider one; without a program of the largest; but of floats, as in HLO."""
        if self.dot:
            dtype = self.dot.operand_dtype
        elif self.matmul_inputs:
            dtype = _proto.main_dtype(self.matmul_inputs)
        else:
            return None
        named = _proto.dtype_class(dtype)
        return dtype if named == OTHER else named

    @cached_property
    def dtype_uncertain(self) -> bool:
        """Whether a matrix unit may have worked in another precision than the output shows."""
        if self.dot or self.dtype == OTHER or not MATMUL_CATEGORY.match(self.category):
            return False
        inputs = {_proto.dtype_class(array.dtype) for array in self.matmul_inputs}
        return inputs != {self.dtype}

    @cached_property
    def flops(self) -> int | None:
        return self.count("flops")

    @cached_property
    def model_flops(self) -> int | None:
        return self.count("model_flops")

    @cached_property
    def bytes_accessed(self) -> int | None:
        return self.count("bytes_accessed")

    @cached_property
    def hbm_bytes(self) -> int | None:
        """Bytes to and from HBM; None where the trace doesn't tell."""
        accesses = self.metadata.accesses
        if accesses is None or (
            # An empty list is no answer: real copies of gigabytes to the host carry one. Unless
            # whatever the text shows lies on the chip.
            not accesses and self.bytes_accessed and not self.hlo.is_on_chip
        ):
            return None
        return as_count(sum(n_bytes for space, n_bytes in accesses if space == HBM_SPACE))

    def count(self, stat: str) -> int | None:
        return as_count(self.metadata.stats.get(stat))

    @property
    def has_endless_fact(self) -> bool:
        facts = map(self.metadata.stats.get, ("flops", "model_flops", "bytes_accessed"))
        return any(isinstance(fact, float) and not math.isfinite(fact) for fact in facts)

    @cached_property
    def declared_cost(self) -> _proto.DeclaredCost | None:
        """What the author of a kernel said that it costs."""
        return self.instruction.declared_cost if self.instruction else None

    @property
    def is_opaque(self) -> bool:
        """Whether it is a black box to XLA: a kernel, a buffer placeholder."""
        return self.category == "custom-call" and not self.flops


def agg_key_of(stack: str | None, tf_op: str | None, category: str) -> tuple[str, str]:
    if stack:
        import hashlib

        digest = hashlib.sha1(stack.encode(), usedforsecurity=False).hexdigest()
        return f"stack:{digest[:16]}", STACK
    if tf_op:
        return f"tfop:{tf_op}", TF_OP
    return f"<no source>:{category}", NO_SOURCE


# ----------------------------------------------------------------------------------------------
# Records that flow from stage to stage.

# Beyond any int64 of nanoseconds or picoseconds.
BEFORE_ALL, AFTER_ALL = -(1 << 80), 1 << 80


@record
class StepEvent:
    """A step as the trace draws it; times on the offset base of the ops line."""

    index: int
    name: str | None
    start: int
    end: int
    # Its start and end by the device's clock, where its event tells.
    device_span: tuple[int, int] | None
    n_events: int


@record
class Executions:
    """The executions of an op within a window."""

    metadata_id: int
    op: Op
    n: int
    total: int
    shortest: int
    longest: int
    _places: Callable[[], Mapping[int, int]]

    @property
    def longest_at(self) -> int:
        """Which event was the longest, by its place in the file; the first of several."""
        return self._places()[self.metadata_id]


@record
class Gap:
    """A stretch of the step in which no leaf op runs, and what stands around it."""

    start: int
    duration: int
    after: Op | None
    before: Op | None
    inside: Op | None


@record
class Timeline:
    """The window between two times, and how it is filled."""

    start: int
    end: int
    # Some leaf runs; some container runs, and no leaf.
    busy: int
    container_self: int
    # The longest, in order.
    gaps: list[Gap]

    @property
    def duration(self) -> int:
        return self.end - self.start


@record
class Step:
    """What ran in one window of a device: all that the modes ask for."""

    device: Device
    picked: StepEvent | None
    # Its events, and the clock that tells when they ran.
    admitted: Admitted
    clock: _proto.Clock
    timeline: Timeline
    # In order of appearance.
    leaves: list[Executions]
    by_kind: dict[str, Group]
    containers: list[Executions]

    @property
    def duration(self) -> int:
        return self.timeline.duration

    def of_kinds(self, *kinds: str) -> list[Executions]:
        return [each for each in self.leaves if each.op.kind in kinds]


DEVICE_NOT_FOUND = "device_not_found"
# Why a file has no answer that others may have.
UNREADABLE = ("unreadable_xplane_pb", "unreadable_record")
# Of the process, by why there is no answer. What could simply not be there is no failure.
EXIT_STATUS = {
    "no_xplane_pb": 0,
    DEVICE_NOT_FOUND: 0,
    "no_xla_ops_line": 0,
    "empty_xla_ops_line": 0,
    "no_program": 0,
    "no_buffer_assignment": 0,
    "unreadable_xplane_pb": 1,
    "unreadable_record": 1,
    "step_not_found": 1,
    "host_not_found": 1,
    "kernel_not_found": 1,
    "protobuf_not_installed": 1,
    "bad_arguments": 2,
}
# By how else it ends; the latter two as a shell reports the signals.
OK, CANT_WRITE, INTERRUPTED, CLOSED_PIPE = 0, 1, 130, 141


class Absent(Exception):
    """There is no answer; why, and what else the answer's object says."""

    def __init__(self, reason: str, **fields: Any) -> None:
        super().__init__(reason)
        self.reason = reason
        self.exit_status = EXIT_STATUS[reason]
        self.fields = fields


# ----------------------------------------------------------------------------------------------
# Stage 1, find: from a path to trace files.

URL_RE = re.compile(r"[a-z][a-z0-9+.\-]+:/", re.IGNORECASE)


def find_files(
    profile: str,
    notes: list[str],
    files_in: _proto.FilesIn | None = None,
    none: str = "no .xplane.pb file",
) -> dict[str, str]:
    """The files that a path means, by host: traces, if nothing else; a note says of which run."""
    files_in = files_in or _proto.files_in
    if profile == _proto.STDIN:
        return {profile: profile}
    try:
        if not _proto.is_folder(profile):
            os.stat(profile)
            return {_proto.host_of(profile): profile}
        files = _proto.files_below(profile, notes, files_in)
        if files:
            return files
        detail = f"{none} in this directory, nor in a run below it or its plugins/profile"
        near = _proto.folder_nearby(profile, files_in)
        if near:
            detail += f"; there is one in {near}"
    except (FileNotFoundError, NotADirectoryError):
        detail = "no such path"
        if URL_RE.match(profile):
            detail = "a URL: copy it here first, or pipe it in and give - as the profile"
    except (OSError, ValueError) as error:
        raise unreadable(profile, error) from None
    raise Absent("no_xplane_pb", detail=detail)


def of_host(files: dict[str, str], host: str | None) -> dict[str, str]:
    if host is None:
        return files
    if host not in files:
        raise Absent("host_not_found", detail=f"no host {host!r}", available_hosts=list(files))
    return {host: files[host]}


def first_of(
    files: dict[str, str], host: str | None, notes: list[str], read: Callable[[str], T]
) -> T:
    """Read that host's file, or else the first that can be read and has the device."""
    files = of_host(files, host)
    failures: list[Absent] = []
    devices: list[str] = []
    for path in files.values():
        n_notes = len(notes)
        if len(files) > 1:
            name = os.path.basename(path)
            notes.append(f"{name} taken, of {len(files)} files; --host takes another")
        try:
            return read(path)
        except Absent as absent:
            if absent.reason not in (*UNREADABLE, DEVICE_NOT_FOUND):
                raise
            del notes[n_notes:]
            if absent.reason == DEVICE_NOT_FOUND:
                devices += absent.fields["available_devices"]
                continue
            failures.append(absent)
            if len(files) > 1:
                notes.append(f"a file can't be read: {absent.fields['detail']}")
    if len(failures) == len(files):
        raise failures[0]
    raise Absent(DEVICE_NOT_FOUND, available_devices=list(dict.fromkeys(devices)))


@contextmanager
def opened(path: str, on_read: OnRead | None) -> Iterator[_proto.Trace]:
    """A trace, of which more may be read as long as it is open."""
    try:
        with _proto.open_trace(path, on_read) as trace:
            yield trace
            return
    except (_proto.Damage, OSError, MemoryError) as error:
        absent = unreadable(path, error)
    raise absent


def unreadable(path: str, error: Exception) -> Absent:
    what = str(error)
    if isinstance(error, OSError):
        what = f"byte 0: {error.strerror or what}"
    elif isinstance(error, MemoryError):
        what = "byte 0: not enough memory to read it"
    return Absent("unreadable_xplane_pb", detail=f"{os.path.basename(path)}: {what}")


# ----------------------------------------------------------------------------------------------
# Stage 2, open: from a trace to one of its devices, and to its steps.

DEVICE = "/device:TPU:0"
TPU_RE = re.compile(r"/device:TPU:\d+\Z")
# Where steps come from, where there is no Steps line.
MODULES = "modules"
STEPS_LINE, MODULES_LINE, OPS_LINE = "Steps", "XLA Modules", "XLA Ops"


@record
class Device:
    """What all steps of one device share. Times stand on the offset base of its ops line."""

    plane: _proto.Plane
    programs: _proto.Programs
    lines: list[_proto.Line]
    base: int
    steps: list[StepEvent]
    step_source: str
    stats: _proto.Stats
    # What else the capture has: the hosts of its run, the planes of this file.
    hosts: list[str]
    planes: list[str]
    _ops: dict[int, Op | None]

    def op(self, metadata_id: int) -> Op | None:
        """Each entry of the metadata is normalized once, whoever asks."""
        if metadata_id not in self._ops:
            metadata = self.plane.metadata(metadata_id)
            self._ops[metadata_id] = Op(metadata, self.programs) if metadata else None
        return self._ops[metadata_id]

    def unresolved(self, metadata_ids: Set[int]) -> set[int]:
        """Those of the ids that stand for nothing."""
        if all(map(self._ops.get, metadata_ids)):
            return set()
        return {metadata_id for metadata_id in metadata_ids if self.op(metadata_id) is None}

    @property
    def type(self) -> str | None:
        return as_text(self.stats.get("device_type_string")) or None

    @property
    def n_events(self) -> int:
        return sum(line.n_events for line in self.lines)


def open_device(trace: _proto.Trace, name: str, hosts: list[str], notes: list[str]) -> Device:
    if name not in trace.plane_names:
        raise Absent(DEVICE_NOT_FOUND, available_devices=trace.plane_names)
    plane = trace.plane(name)
    lines = plane.lines(OPS_LINE)
    if not lines:
        raise Absent("no_xla_ops_line", available_lines=plane.line_names)
    base = lines[0].base_ps
    steps, source = read_steps(plane, STEPS_LINE, base, notes), "steps"
    if not steps:
        steps, source = read_steps(plane, MODULES_LINE, base, notes), MODULES
        if steps:
            notes.append("no Steps line; executions of programs (XLA Modules) are taken as steps")
    return Device(
        plane=plane,
        programs=_proto.programs_of(trace),
        lines=lines,
        base=base,
        steps=steps,
        step_source=source,
        stats=plane.stats(),
        hosts=hosts,
        planes=trace.plane_names,
        _ops={},
    )


# A step takes as much memory as some events of ops, and real ones have more of these.
N_EVENTS_OF_A_STEP = 3


def read_steps(plane: _proto.Plane, line_name: str, base: int, notes: list[str]) -> list[StepEvent]:
    """The events of a line as steps, sorted by start."""
    steps = []
    n_dropped = 0
    names: dict[int, str | None] = {}
    for line in plane.lines(line_name):
        shift = line.base_ps - base
        n_dropped += line.n_aggregated
        for events in line.events(BEFORE_ALL, AFTER_ALL):
            plane.count(N_EVENTS_OF_A_STEP * len(events))
            for metadata_id, offset, duration, measured in events.rows():
                if duration < 0:
                    n_dropped += 1
                    continue
                if metadata_id not in names:
                    metadata = plane.metadata(metadata_id)
                    names[metadata_id] = metadata.name if metadata else None
                start = offset + shift
                span = (measured[0], sum(measured)) if measured else None
                steps.append(StepEvent(0, names[metadata_id], start, start + duration, span, 0))
    if n_dropped:
        notes.append(
            f"{n_dropped} events of the {line_name} line left out: they have no valid time"
        )
    steps.sort(key=lambda step: step.start)
    for index, step in enumerate(steps):
        step.index = index
    return steps


def count_starts(device: Device) -> None:
    """Count into each step the ops that start in it."""
    steps = device.steps
    # How many start before a border is the sum of two: of the lists that reach around it the
    # part before it, and all of the lists that end before it, noted at the first such border.
    borders = sorted({border for step in steps for border in (step.start, step.end)})
    within = dict.fromkeys(borders, 0)
    before = [0] * (len(borders) + 1)
    for line in device.lines:
        shift = line.base_ps - device.base
        for offsets in line.starts():
            first = bisect_right(borders, offsets[0] + shift)
            last = bisect_right(borders, offsets[-1] + shift)
            for border in borders[first:last]:
                within[border] += bisect_left(offsets, border - shift)
            before[last] += len(offsets)
    n_before = {
        border: within[border] + n for border, n in zip(borders, accumulate(before), strict=False)
    }
    for step in steps:
        step.n_events = n_before[step.end] - n_before[step.start]


# ----------------------------------------------------------------------------------------------
# Stage 3, pick: from the steps to the one that is asked for.

ALL_STEPS = "all"


@record
class StepChoice:
    """What the command line says of the step: an index or `all`, a name, or nothing."""

    index: int | str | None = None
    name: str | None = None


def pick_step(device: Device, choice: StepChoice, notes: list[str]) -> StepEvent | None:
    """The step that the choice names, or else the busiest; None where all ops are the step."""
    count_starts(device)
    steps = device.steps
    if choice.index == ALL_STEPS:
        return None
    if isinstance(choice.index, int):
        if not -len(steps) <= choice.index < len(steps):
            raise step_not_found(steps, f"no step {choice.index} among {len(steps)}")
        picked = steps[choice.index]
    elif choice.name is not None:
        named = [step for step in steps if step.name == choice.name]
        if not named:
            raise step_not_found(steps, f"no step is named {choice.name!r}")
        picked, n_busy = busiest(named)
        if len(named) > 1:
            busy = f"typical of {n_busy} as busy" if n_busy else "the middle one"
            notes.append(
                f"{len(named)} steps are named {choice.name!r}; took idx={picked.index}, {busy}"
            )
    elif steps:
        picked, n_busy = busiest(steps)
        if n_busy:
            typical = f"; typical of {n_busy} as busy" if n_busy > 1 else ""
            notes.append(
                f"auto-picked busiest step (idx={picked.index}, n_xla_ops_events={picked.n_events}"
                f" of {device.n_events} in {len(steps)} steps{typical})"
            )
        else:
            notes.append(f"no op starts in any step; took the middle one (idx={picked.index})")
    else:
        return None
    if not picked.n_events:
        notes.append("no op starts in this step: it shows idle time only")
    return picked


def busiest(steps: Sequence[StepEvent]) -> tuple[StepEvent, int]:
    """The typical of the busiest steps, and how many these are; the middle one if none is busy."""
    n_events = max(step.n_events for step in steps)
    if not n_events:
        return steps[len(steps) // 2], 0
    busy = [step for step in steps if step.n_events == n_events]
    busy.sort(key=lambda step: (step.end - step.start, step.start))
    return busy[(len(busy) - 1) // 2], len(busy)


def step_not_found(steps: Sequence[StepEvent], detail: str) -> Absent:
    return Absent("step_not_found", detail=detail, available_steps=[step.name for step in steps])


# ----------------------------------------------------------------------------------------------
# Stage 4, admit: the events that start in the window, by the trace's clock.


@record
class Admitted:
    """The events of a window, and how many of them had to be left out."""

    pieces: list[_proto.Piece]
    n_unresolved: int = 0
    n_negative: int = 0
    # These have no time, so they are of the whole line.
    n_aggregated: int = 0

    @property
    def n_dropped(self) -> int:
        return self.n_unresolved + self.n_negative + self.n_aggregated

    @property
    def n_started(self) -> int:
        """How many events start in the window, whether they are left out or not."""
        n_kept = sum(len(piece.starts) for piece in self.pieces)
        return n_kept + self.n_unresolved + self.n_negative

    @property
    def notes(self) -> list[str]:
        return [
            f"{n} XLA Ops events left out: they {what}"
            for n, what in (
                (self.n_unresolved, "have a metadata id that resolves to nothing"),
                (self.n_negative, "have a negative duration"),
                (self.n_aggregated, "tell how often something occurred instead of when"),
            )
            if n
        ]

    @property
    def span(self) -> tuple[int, int]:
        """From the first start to the last end, by the trace's clock."""
        if not self.pieces:
            return 0, 0
        return min(piece.first for piece in self.pieces), max(piece.last for piece in self.pieces)

    def add(self, events: _proto.Events, shift: int, device: Device) -> None:
        """Take the events that can be taken."""
        unknown = device.unresolved(set(events.metadata_ids))
        resolved = events
        if unknown:
            resolved = events.where([i not in unknown for i in events.metadata_ids])
            self.n_unresolved += len(events) - len(resolved)
        valid = resolved.lasting()
        self.n_negative += len(resolved) - len(valid)
        if len(valid):
            self.pieces.append(_proto.piece_of(valid, shift))


ALWAYS = BEFORE_ALL, AFTER_ALL


def admit(device: Device, windows: Sequence[tuple[int, int]]) -> list[Admitted]:
    """The events that start in each of the windows, which are sorted by start; read once."""
    admitted = [Admitted([]) for _ in windows]
    starts = [start for start, _ in windows]
    # Up to where each window and those before it reach.
    reach = list(accumulate((end for _, end in windows), max))
    for line in device.lines:
        shift = line.base_ps - device.base
        for events in line.events(starts[0] - shift, reach[-1] - shift):
            first = bisect_right(reach, events.first + shift)
            last = bisect_right(starts, events.last + shift)
            for (start, end), of_window in zip(
                windows[first:last], admitted[first:last], strict=True
            ):
                within = events.between(start - shift, end - shift)
                # Windows may overlap, and so hold an event each.
                device.plane.count(len(within))
                of_window.add(within, shift, device)
    for of_window in admitted:
        of_window.n_aggregated = sum(line.n_aggregated for line in device.lines)
    return admitted


# ----------------------------------------------------------------------------------------------
# Stage 5, fold: admitted events into the executions of their ops, and into a timeline.


def window_of(
    admitted: Admitted, clock: _proto.Clock, picked: StepEvent | None, start: int, end: int
) -> tuple[int, int]:
    """Where a window lies by the clock, that lies between these times by the trace's."""
    if picked and picked.device_span and clock.name == _proto.ON_DEVICE:
        return picked.device_span
    # No admitted op lies before the start of its step. So this moves with the op that begins
    # first by the clock, wherever the fit bends.
    first, shift = AFTER_ALL, 0
    for piece in admitted.pieces:
        starts, _ = clock.times(piece)
        if min(starts) < first:
            first = min(starts)
            shift = first - piece.base - piece.starts[starts.index(first)]
    return start + shift, max(start + shift, clock.moved(end))


def clock_notes(step: Step) -> list[str]:
    """How much of the times is the fit's doing, where that is more than one percent."""
    if step.clock.name == _proto.ON_TRACE:
        return []
    measured = off = worst = 0
    for piece in step.admitted.pieces:
        _, durations = step.clock.times(piece)
        differences = list(map(abs, map(sub, piece.durations, durations)))
        measured += sum(durations)
        off += sum(differences)
        worst = max(worst, *differences)
    if 100 * off <= measured and 100 * worst <= step.duration:
        return []
    return [
        "durations are the device's; by the trace's clock, which trace viewers draw and `steps`"
        f" lists, those of ops differ by {off} ps in all, one by {worst} ps"
    ]


# How many pieces are folded at once: enough that most of an op's executions come together, and
# few enough that what is folded takes no memory to speak of.
N_FOLDED = 32


def fold(device: Device, admitted: Admitted, clock: _proto.Clock) -> dict[int, Executions]:
    """The executions of each op, by metadata id, in order of appearance."""
    found: dict[int, Executions] = {}
    lasted: dict[int, int] = {}
    places = cache(partial(places_of, lasted, admitted, clock))
    for i in range(0, len(admitted.pieces), N_FOLDED):
        lasting: dict[int, list[int]] = defaultdict(list)
        for piece in admitted.pieces[i : i + N_FOLDED]:
            _, durations = clock.times(piece)
            # What a loop would do, at a third of its time.
            lists = map(lasting.__getitem__, piece.metadata_ids)
            deque(map(list.append, lists, durations), maxlen=0)
        for metadata_id, of_op in lasting.items():
            if metadata_id not in found:
                op = device.op(metadata_id)
                assert op is not None  # or else its events weren't admitted
                found[metadata_id] = Executions(metadata_id, op, 0, 0, AFTER_ALL, -1, places)
            each = found[metadata_id]
            each.n += len(of_op)
            each.total += sum(of_op)
            # At a third of the time of min and max.
            of_op.sort()
            each.shortest = min(each.shortest, of_op[0])
            each.longest = lasted[metadata_id] = max(each.longest, of_op[-1])
    return found


def places_of(lasted: Mapping[int, int], admitted: Admitted, clock: _proto.Clock) -> dict[int, int]:
    """Where in the file, by metadata id, the first event is that lasted so long."""
    places: dict[int, int] = {}
    place = 0
    for piece in admitted.pieces:
        _, durations = clock.times(piece)
        events = zip(piece.metadata_ids, range(place, place + len(durations)), strict=True)
        wanted = map(eq, map(lasted.__getitem__, piece.metadata_ids), durations)
        for metadata_id, place_of_event in compress(events, wanted):
            places.setdefault(metadata_id, place_of_event)
        place += len(durations)
    return places


N_GAPS = 10
Span = tuple[int, int, int]


def timeline_of(
    admitted: Admitted, clock: _proto.Clock, ops: Mapping[int, Op], window: tuple[int, int]
) -> Timeline:
    """How the window is filled: when a leaf runs, when only a container, when nothing."""
    containers = {metadata_id for metadata_id, op in ops.items() if op.is_container}
    enclosing = [
        (start, start + duration, metadata_id)
        for start, duration, metadata_id in events_of(admitted.pieces, clock, containers)
    ]
    stretches = merged((start, end) for start, end, _ in enclosing)

    def leaves() -> Iterator[Columns]:
        for piece in admitted.pieces:
            columns = columns_of(piece, clock)
            if not containers.isdisjoint(piece.metadata_ids):
                columns = kept(columns, [i not in containers for i in piece.metadata_ids])
            yield columns

    sweep = Sweep(window, stretches)
    if not sweep.feed(leaves()):
        # Rare: a line that isn't sorted, or several lines. All at once, then.
        sweep = Sweep(window, stretches)
        events = chain.from_iterable(starmap(zip, leaves()))
        starts, durations, metadata_ids = zip(*sorted(events, key=itemgetter(0)), strict=True)
        sweep.feed([(starts, durations, metadata_ids)])
    gaps = [
        Gap(
            -negative_start,
            duration,
            *(
                None if metadata_id is None else ops[metadata_id]
                for metadata_id in (after, before, innermost(enclosing, -negative_start))
            ),
        )
        for (duration, negative_start), after, before in sorted(sweep.longest, reverse=True)
    ]
    return Timeline(*window, sweep.busy, sweep.contained, gaps)


def events_of(
    pieces: Iterable[_proto.Piece], clock: _proto.Clock, metadata_ids: Set[int]
) -> Iterator[Span]:
    """The events of some ops: when each starts, how long it lasts, and its metadata id."""
    for piece in pieces:
        if not metadata_ids.isdisjoint(piece.metadata_ids):
            events = zip(*columns_of(piece, clock), strict=True)
            yield from (event for event in events if event[2] in metadata_ids)


def columns_of(piece: _proto.Piece, clock: _proto.Clock) -> Columns:
    """The same of all ops, in columns."""
    starts, durations = clock.times(piece)
    return list(starts), list(durations), piece.metadata_ids


def kept(columns: Columns, keep: Sequence[object]) -> Columns:
    starts, durations, metadata_ids = (list(compress(column, keep)) for column in columns)
    return starts, durations, metadata_ids


def merged(spans: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The stretches that spans of (start, end) cover, in order and apart."""
    stretches: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if stretches and start <= stretches[-1][1]:
            stretches[-1] = stretches[-1][0], max(stretches[-1][1], end)
        else:
            stretches.append((start, end))
    return stretches


def innermost(spans: Sequence[Span], at: int) -> int | None:
    """What stands third in the innermost of the (start, end, …) around a time.

    That is the last to start; of those that start together the first to end, and of these the
    last in the file, which lists the outer ones first.
    """
    around = [
        (start, -end, place) for place, (start, end, _) in enumerate(spans) if start <= at < end
    ]
    return spans[max(around)[2]][2] if around else None


class Sweep:
    """Goes over leaves in order of their start, and adds up what lies between and under them.

    An instant op takes no time, so it neither ends a gap nor counts as a neighbour of one.
    """

    def __init__(self, window: tuple[int, int], stretches: list[tuple[int, int]]) -> None:
        self.start, self.end = window
        # How long some leaf runs; how long none does, but a container.
        self.busy = 0
        self.contained = 0
        # The longest gaps as a heap: (duration, -start), and the ops before and behind.
        self.longest: list[tuple[tuple[int, int], int | None, int | None]] = []
        self._stretches = stretches
        self._passed = 0
        # Up to where all is told, and which op ended there.
        self._covered = self.start
        self._last: int | None = None

    def feed(self, pieces: Iterable[Columns]) -> bool:
        """Take pieces in order of their ops' starts; False if they are not in order."""
        last_start = BEFORE_ALL
        for columns in pieces:
            starts, durations, metadata_ids = columns
            if not all(durations):
                starts, durations, metadata_ids = kept(columns, durations)
            if not starts:
                continue
            if not self._feed_row(starts, durations, metadata_ids):
                if starts[0] < last_start or not all(map(le, starts, starts[1:])):
                    return False
                for event in zip(starts, durations, metadata_ids, strict=True):
                    self._feed_one(*event)
            last_start = starts[-1]
        self._add_gap(self._covered, self.end, self._last, None)
        return True

    def _feed_row(
        self, starts: Sequence[int], durations: Sequence[int], metadata_ids: Sequence[int]
    ) -> bool:
        """Take all at once, if one runs after the other, as mostly; or else none."""
        ends = list(map(add, starts, durations))
        gaps = list(map(sub, starts[1:], ends))
        if starts[0] < self._covered or ends[-1] > self.end or min(gaps, default=0) < 0:
            return False
        self.busy += sum(durations)
        self._add_gap(self._covered, starts[0], self._last, metadata_ids[0])
        if any(gaps):
            self._add_gaps(ends, gaps, metadata_ids)
        self._covered, self._last = ends[-1], metadata_ids[-1]
        return True

    def _feed_one(self, start: int, duration: int, metadata_id: int) -> None:
        end = min(start + duration, self.end)
        if end > self._covered and start < self.end:
            self._add_gap(self._covered, start, self._last, metadata_id)
            self.busy += end - max(start, self._covered)
            self._covered, self._last = end, metadata_id

    def _add_gap(self, start: int, end: int, after: int | None, before: int | None) -> None:
        if start < end:
            self._contain(start, end)
            self._rank(end - start, start, after, before)

    def _add_gaps(
        self, starts: Sequence[int], gaps: Sequence[int], metadata_ids: Sequence[int]
    ) -> None:
        """Add a gap behind each op of a row but the last; many are of no length."""
        start, end = starts[0], starts[len(gaps) - 1] + gaps[-1]
        first, last = self._stretch_behind(start)
        if first <= start and end <= last:
            self.contained += sum(gaps)
        elif first < end:
            for i in compress(range(len(gaps)), gaps):
                self._contain(starts[i], starts[i] + gaps[i])
        least = self.longest[0][0][0] if len(self.longest) == N_GAPS else 1
        for i in [i for i, gap in enumerate(gaps) if gap >= least]:
            self._rank(gaps[i], starts[i], metadata_ids[i], metadata_ids[i + 1])

    def _stretch_behind(self, start: int) -> tuple[int, int]:
        """The first stretch that ends behind this time, which is never before one asked before."""
        stretches = self._stretches
        while self._passed < len(stretches) and stretches[self._passed][1] <= start:
            self._passed += 1
        return stretches[self._passed] if self._passed < len(stretches) else (AFTER_ALL, AFTER_ALL)

    def _contain(self, start: int, end: int) -> None:
        """Add how much of a gap some container fills."""
        self._stretch_behind(start)
        for i in range(self._passed, len(self._stretches)):
            first, last = self._stretches[i]
            if first >= end:
                break
            self.contained += min(last, end) - max(first, start)

    def _rank(self, duration: int, start: int, after: int | None, before: int | None) -> None:
        gap = (duration, -start), after, before
        if len(self.longest) < N_GAPS:
            heapq.heappush(self.longest, gap)
        elif gap[0] > self.longest[0][0]:
            heapq.heapreplace(self.longest, gap)


# ----------------------------------------------------------------------------------------------
# The stages in a row.


def read_step(device: Device, picked: StepEvent | None, notes: list[str]) -> Step:
    """All that the modes ask of one window of a device; without a step, of all its ops."""
    (admitted,) = admit(device, [(picked.start, picked.end) if picked else ALWAYS])
    notes += admitted.notes
    if picked is None:
        if not admitted.pieces:
            raise Absent("empty_xla_ops_line")
        if not device.steps:
            notes.append("no Steps line; using the whole XLA Ops window")
    step = step_of(device, picked, admitted)
    notes += clock_notes(step)
    ops = [each.op for each in (*step.leaves, *step.containers)]
    n_endless = sum(op.has_endless_fact for op in ops)
    if n_endless:
        notes.append(f"flops or bytes of {n_endless} ops are not finite: treated as absent")
    return step


def step_of(device: Device, picked: StepEvent | None, admitted: Admitted) -> Step:
    first, last = admitted.span if picked is None else (picked.start, picked.end)
    clock = _proto.clock_of(admitted.pieces, last)
    window = window_of(admitted, clock, picked, first, last)
    executions = fold(device, admitted, clock)
    leaves = [each for each in executions.values() if not each.op.is_container]
    by_kind = group_by(leaves, lambda op: op.kind)
    ops = {metadata_id: each.op for metadata_id, each in executions.items()}
    return Step(
        device=device,
        picked=picked,
        admitted=admitted,
        clock=clock,
        timeline=timeline_of(admitted, clock, ops, window),
        leaves=leaves,
        by_kind={kind: by_kind.get(kind) or Group([]) for kind in KINDS},
        containers=[each for each in executions.values() if each.op.is_container],
    )


# ----------------------------------------------------------------------------------------------
# Figures: executions into groups, groups into numbers.


class Group:
    """Executions that belong together; times and counts are over all of them."""

    __slots__ = ("members", "n", "total")

    def __init__(self, members: list[Executions]) -> None:
        self.members = members
        self.n = sum(each.n for each in members)
        self.total = sum(each.total for each in members)

    def __repr__(self) -> str:
        return f"Group({self.members!r})"

    @property
    def op(self) -> Op:
        """The first member, which speaks for the group."""
        return self.members[0].op

    @property
    def longest(self) -> Executions:
        return max(self.members, key=lambda each: (each.longest, -each.longest_at))

    def where(self, fact: Callable[[Op], object]) -> Group:
        return Group([each for each in self.members if fact(each.op)])

    def sum_of(self, fact: Callable[[Op], int | None]) -> int | None:
        """Sum a fact over the executions that carry it; None where none does."""
        return sum_known((each.n, fact(each.op)) for each in self.members)

    def executions_by(self, fact: Callable[[Op], str]) -> dict[str, int]:
        return {key: group.n for key, group in group_by(self.members, fact).items()}

    def time_by(self, fact: Callable[[Op], str]) -> dict[str, int]:
        return {key: group.total for key, group in group_by(self.members, fact).items()}

    def hbm_bytes(self) -> int | None:
        """Bytes to and from HBM; None where a member that moves bytes doesn't say where."""
        if any(each.op.bytes_accessed and each.op.hbm_bytes is None for each in self.members):
            return None
        return self.sum_of(lambda op: op.hbm_bytes)

    def distinct(self, fact: Callable[[Op], str | None]) -> list[str]:
        return list(dict.fromkeys(x for each in self.members if (x := fact(each.op)) is not None))


def sum_known(facts: Iterable[tuple[int, int | None]]) -> int | None:
    """How much (executions, of each) make; those of which it isn't known are left out."""
    known = [n * value for n, value in facts if value is not None]
    return sum(known) if known else None


def sum_if_known(facts: Iterable[tuple[int, N | None]]) -> N | int | None:
    """How much (executions, of each) make; None where that of one isn't known."""
    total: N | int = 0
    for n, value in facts:
        if value is None:
            return None
        total += n * value
    return total


def how_most(found: Iterable[tuple[str | None, int]]) -> str | None:
    """How something is known by (way, time), where most of the time decides."""
    times: dict[str | None, int] = {}
    for how, time_so in found:
        times[how] = times.get(how, 0) + time_so
    return max(times, key=times.__getitem__)


def group_by(members: Iterable[Executions], key: Callable[[Op], K]) -> dict[K, Group]:
    """Group by a fact of the op; groups and members in order of appearance."""
    groups: dict[K, list[Executions]] = {}
    for each in members:
        groups.setdefault(key(each.op), []).append(each)
    return {of_key: Group(of_group) for of_key, of_group in groups.items()}


def ranked_by(members: Iterable[Executions], key: Callable[[Op], Any]) -> list[tuple[Any, Group]]:
    """Groups by a fact, costliest first; ties by the fact itself."""
    return sorted(group_by(members, key).items(), key=lambda item: (-item[1].total, item[0]))


SourceKey = tuple[str, str]


def source_key(op: Op) -> SourceKey:
    """Groups never mix kinds."""
    return op.agg_key, op.kind


def percent(part: float, whole: int) -> float | None:
    return round(100 * part / whole, 3) if whole else None


@record
class Exposed:
    """What the core stands in for one thing: running it, or waiting until it is done."""

    waits_for: str
    group: Group
    waits: Group

    @property
    def sync(self) -> int:
        return self.group.total - self.waits.total


def exposed(step: Step) -> list[Exposed]:
    """Waits, and communication that runs on the core, by what they are for; longest first."""
    members = Group(step.leaves).where(is_exposed).members
    return [
        Exposed(name, of_name, of_name.where(lambda op: op.is_wait))
        for name, of_name in ranked_by(members, lambda op: op.waits_for)
    ]


def is_exposed(op: Op) -> bool:
    sets_off = op.is_start or op.category.endswith("-update")
    return op.is_wait or (op.kind == COMM and not sets_off)


def is_communication(op: Op) -> bool:
    """Whether the core stands in communication, with other devices or the host."""
    return is_exposed(op) and op.waits_for not in (SPARSE_CORE, DMA)


@record
class LikelyLine:
    """A line that ops without a stack are likely due to, how that is known, and what of them."""

    line: str | None
    how: str | None
    group: Group


def likely_line(op: Op) -> tuple[str | None, str | None]:
    """Whose data an op without a line of its own moves or waits for, and how that is known."""
    if op.instruction is None:
        return (op.source_inner, OWN) if op.source_inner else (None, None)
    # Sums are due to what is summed up, what goes to the host to what made it; all else is
    # fetched for who needs it.
    return likely_line_of(
        op.instruction,
        producer_first=collective_of(op) in ("reduce-scatter", "all-reduce") or op.is_to_host,
        sources={op.name: op.source} if op.source else {},
    )


def likely_line_of(
    instruction: _proto.Instruction,
    producer_first: bool = False,
    sources: Mapping[str, str] | None = None,
) -> tuple[str | None, str | None]:
    likely = instruction.likely_line(producer_first, sources)
    return (likely.line, likely.how) if likely else (None, None)


def likely_lines(group: Group) -> list[LikelyLine]:
    """A group by likely line, longest first; what has none comes last."""
    found = {id(each.op): likely_line(each.op) for each in group.members}
    lines = []
    for line, of_line in group_by(group.members, lambda op: found[id(op)][0]).items():
        by_how = group_by(of_line.members, lambda op: found[id(op)][1])
        how = max(by_how, key=lambda how: by_how[how].total)
        lines.append(LikelyLine(line, how, of_line))
    return sorted(lines, key=lambda each: (each.line is None, -each.group.total, each.line))


def lines_fused(group: Group) -> Counter[str]:
    """How many instructions inside a group's fusions have which line, that isn't the group's."""
    n_instructions: Counter[str] = Counter()
    for each in group.members:
        if each.op.instruction:
            for (line, _), n in each.op.instruction.lines_inside().items():
                n_instructions[line] += n
    del n_instructions[group.op.source_inner or ""]
    return n_instructions


def kernels(step: Step) -> list[tuple[str, Group]]:
    """Custom kernels by name, costliest first."""
    return ranked_by((each for each in step.leaves if each.op.kernel), lambda op: op.kernel)


@record
class Change:
    """Whether ops of a group change something, and how long those run that do.

    Both None where that can't be compared for any of them.
    """

    is_seen: bool | None
    duration: int | None


def changes(group: Group) -> tuple[Change, Change]:
    """Of the dtype, and of the layout."""
    of_members = [(each, changes_of(each.op)) for each in group.members]
    dtype, layout = (
        [(each.total, changed[i]) for each, changed in of_members if changed[i] is not None]
        for i in range(2)
    )
    return change_of(dtype), change_of(layout)


def change_of(comparable: Sequence[tuple[int, bool | None]]) -> Change:
    if not comparable:
        return Change(None, None)
    return Change(
        any(changed for _, changed in comparable),
        sum(total for total, changed in comparable if changed),
    )


def changes_of(op: Op) -> tuple[bool | None, bool | None]:
    if op.has_only_started:
        return None, None
    return _proto.dtype_and_layout_change(op.hlo)


# ----------------------------------------------------------------------------------------------
# Rows: what the modes write of figures.

N_BREAKDOWN = 8
N_SHAPES = 8
N_SHAPES_PER_SIDE = 4


def durations(group: Group) -> Json:
    return {
        "total_dur_ps": group.total,
        "min_dur_ps": min(each.shortest for each in group.members),
        "max_dur_ps": group.longest.longest,
        "avg_dur_ps": round(group.total / group.n),
    }


def breakdown(group: Group) -> Json:
    """What a group is made of, by HLO signature; rows and overflow sum up to the group."""
    signatures = ranked_by(group.members, lambda op: op.signature)
    rows = []
    for signature, part in signatures[:N_BREAKDOWN]:
        longest = part.longest
        rows.append(
            {
                "signature": signature,
                "hlo_category": part.op.category,
                "total_dur_ps": part.total,
                "n_executions": part.n,
                "pct_of_group": percent(part.total, group.total),
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


def group_fields(group: Group, step: Step) -> Json:
    """The fields that a group has in summary and by_source alike."""
    longest = group.longest
    return {
        **source_fields(group.op),
        "n_executions": group.n,
        **durations(group),
        "pct_of_compute": percent(group.total, step.by_kind[COMPUTE].total),
        "pct_of_step": percent(group.total, step.duration),
        "hlo_categories": group.executions_by(lambda op: op.category),
        "flops_sum": group.sum_of(lambda op: op.flops),
        "bytes_accessed_sum": group.sum_of(lambda op: op.bytes_accessed),
        "phases": group.time_by(lambda op: op.phase),
        "example_hlo_op": longest.op.text,
        "example_hlo_op_dur_ps": longest.longest,
        **breakdown(group),
        "likely_sources": likely_rows(group),
    }


N_LIKELY = 8
N_FUSED = 8


def likely_rows(group: Group) -> list[Json] | None:
    """Whose data a group without a stack is about; None where that isn't asked, or not known."""
    if group.op.source_stack or not any(each.op.program for each in group.members):
        return None
    lines = likely_lines(group)
    shown = [each for each in lines[:N_LIKELY] if each.line]
    rest = Group([each for line in lines[len(shown) :] for each in line.group.members])
    rows = [(each.line, each.how, each.group) for each in shown]
    return [
        {"source_inner": line, "source_is": how, "dur_ps": part.total, "n_executions": part.n}
        for line, how, part in [*rows, *([(None, None, rest)] if rest.members else [])]
    ]


def fused_rows(group: Group) -> list[Json] | None:
    """The other lines that take part in a group's ops."""
    if not any(each.op.program for each in group.members):
        return None
    ranked = sorted(lines_fused(group).items(), key=lambda item: (-item[1], item[0]))
    return [{"source_inner": line, "n_instructions": n} for line, n in ranked[:N_FUSED]]


def tail_fields(groups: Iterable[Group]) -> Json:
    left_out = [group.total for group in groups]
    return {"n_groups_omitted": len(left_out), "dur_ps": sum(left_out)}


def totals_of(step: Step) -> Json:
    """The same numbers in all modes."""
    leaves = Group(step.leaves)
    timeline = step.timeline
    containers = {
        category: group.total
        for category, group in group_by(step.containers, lambda op: op.category).items()
    }
    in_while = containers.get("while", 0)
    idle = timeline.duration - timeline.busy
    waits = leaves.where(lambda op: op.is_wait)
    unknown = leaves.where(lambda op: not op.is_known)
    return {
        "n_events_total": leaves.n,
        **{f"n_events_{kind}": group.n for kind, group in step.by_kind.items()},
        "n_events_container": sum(each.n for each in step.containers),
        "n_events_unresolved": step.admitted.n_dropped,
        **{f"{kind}_duration_ps": group.total for kind, group in step.by_kind.items()},
        "non_while_duration_ps_sum": leaves.total,
        "while_container_duration_ps": in_while,
        "while_pct_of_step": percent(in_while, step.duration),
        "container_durations_ps": containers,
        "container_self_duration_ps": timeline.container_self,
        "busy_duration_ps": timeline.busy,
        "idle_duration_ps": idle,
        "idle_pct_of_step": percent(idle, step.duration),
        "wait_duration_ps": waits.total,
        "wait_pct_of_step": percent(waits.total, step.duration),
        "agg_key_coverage": coverage(leaves),
        "unknown_categories": unknown.executions_by(lambda op: op.category),
    }


def program_id_of(step: Step) -> int | None:
    """Which program takes most of the step."""
    of_program = group_by(step.leaves, lambda op: op.program_id)
    of_program.pop(None, None)
    return max(of_program, key=lambda each: of_program[each].total, default=None)


def program_fields(step: Step) -> Json:
    executions = [*step.leaves, *step.containers]
    n_programs = len({each.op.program_id for each in executions} - {None})
    program_id = program_id_of(step)
    if program_id is None:
        return {"name": None, "program_id": None, "n_programs": n_programs, "hlo": False}
    programs = step.device.programs
    return {
        "name": programs.names.get(program_id),
        "program_id": str(program_id),
        "n_programs": n_programs,
        "hlo": programs.has_hlo(program_id),
    }


def coverage(group: Group) -> dict[str, int]:
    """Executions by the tier of their source key."""
    return dict.fromkeys(KEY_KINDS, 0) | group.executions_by(lambda op: op.agg_key_kind)


# ----------------------------------------------------------------------------------------------
# The modes: each a function from the step to what it adds to the answer.


@record
class Report:
    """What a mode says beyond what all say."""

    fields: Json
    totals: Json | None = None
    notes: Sequence[str] = ()


def summary(step: Step, *, top: int = 50, include_comm: bool = False) -> Report:
    kinds = (COMPUTE, COMM) if include_comm else (COMPUTE,)
    groups = [group for _, group in ranked_by(step.of_kinds(*kinds), source_key)]
    rows = []
    for rank, group in enumerate(groups[:top], 1):
        row = {"rank": rank, **group_fields(group, step)}
        rows.append({**row, "kind": group.op.kind} if include_comm else row)
    return Report(
        {
            "top_compute_groups": rows,
            "tail_compute": tail_fields(groups[top:]),
            "by_kind_rollup": {
                kind: {
                    "n": group.n,
                    "dur_ps": group.total,
                    "pct_of_step": percent(group.total, step.duration),
                }
                for kind, group in step.by_kind.items()
            },
            "by_phase_rollup": phase_rollup(step.by_kind[COMPUTE]),
            "by_hlo_category": category_rows(step),
            "comm_rollup": [exposed_row(each, step) for each in exposed(step)],
            "kernels": [kernel_row(kernel, group, step) for kernel, group in kernels(step)],
            "idle_gaps": [gap_row(gap, step) for gap in step.timeline.gaps],
            "steps": [step_row(each, step) for each in step.device.steps],
        }
    )


def phase_rollup(compute: Group) -> Json:
    phases = group_by(compute.members, lambda op: op.phase)
    of_phase = {phase: phases.get(phase) or Group([]) for phase in PHASES}
    return {
        phase: {
            "n": group.n,
            "dur_ps": group.total,
            "pct_of_compute": percent(group.total, compute.total),
        }
        for phase, group in of_phase.items()
    }


def category_rows(step: Step) -> list[Json]:
    ranked = ranked_by([*step.leaves, *step.containers], lambda op: (op.category, op.kind))
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


def exposed_row(each: Exposed, step: Step) -> Json:
    return {
        "waits_for": each.waits_for,
        "n": each.group.n,
        "sync_dur_ps": each.sync,
        "wait_dur_ps": each.waits.total,
        "pct_of_step": percent(each.group.total, step.duration),
        "longest_hlo_op": each.group.longest.op.text,
    }


def kernel_row(kernel: str, group: Group, step: Step) -> Json:
    hlo = group.longest.op.hlo
    return {
        "kernel": kernel,
        "n_executions": group.n,
        **durations(group),
        "pct_of_step": percent(group.total, step.duration),
        "source_inner": group.op.source_inner,
        "tf_op": group.op.tf_op,
        "phases": group.time_by(lambda op: op.phase),
        "shapes_in": [array.text for array in hlo.operands],
        "shapes_out": [hlo.shape],
    }


def gap_row(gap: Gap, step: Step) -> Json:
    return {
        "start_ps": gap.start,
        "dur_ps": gap.duration,
        "pct_of_step": percent(gap.duration, step.duration),
        "after_hlo_op": gap.after.text if gap.after else None,
        "before_hlo_op": gap.before.text if gap.before else None,
        "inside": (gap.inside.name or None) if gap.inside else None,
    }


def step_row(each: StepEvent, step: Step) -> Json:
    row = {
        "index": each.index,
        "name": each.name,
        "duration_ps": each.end - each.start,
        "n_xla_ops_events": each.n_events,
    }
    return {**row, "picked": True} if each is step.picked else row


def by_source(
    step: Step,
    *,
    include_data_move: bool = False,
    include_comm: bool = False,
    top: int | None = None,
) -> Report:
    kinds = [COMPUTE, *([DATA_MOVE] * include_data_move), *([COMM] * include_comm)]
    groups, omitted = topmost(step.of_kinds(*kinds), source_key, top)
    rows = []
    for group in groups:
        shapes = group.distinct(lambda op: op.shape)
        rows.append(
            {
                "kind": group.op.kind,
                **group_fields(group, step),
                "model_flops_sum": group.sum_of(lambda op: op.model_flops),
                "hbm_bytes_sum": group.hbm_bytes(),
                "dtypes": group.executions_by(lambda op: op.dtype),
                "dtype_uncertain": any(each.op.dtype_uncertain for each in group.members),
                "operand_dtypes": operand_dtypes(group),
                "also_fused": fused_rows(group),
                "shapes": shapes[:N_SHAPES],
                "shapes_truncated": len(shapes) > N_SHAPES,
            }
        )
    return Report(
        {"groups": rows, **tail_if(top, omitted)},
        totals={"n_groups_total": len(groups) + len(omitted)},
    )


def topmost(
    members: Iterable[Executions], key: Callable[[Op], Any], top: int | None
) -> tuple[list[Group], list[Group]]:
    """The costliest groups, and the others; without a number all, in order of appearance."""
    if top is None:
        return list(group_by(members, key).values()), []
    ranked = [group for _, group in ranked_by(members, key)]
    return ranked[:top], ranked[top:]


def tail_if(top: int | None, omitted: Sequence[Group]) -> Json:
    return {} if top is None else {"tail": tail_fields(omitted)}


def operand_dtypes(group: Group) -> dict[str, int]:
    """Time by the dtype of each op's largest operand that a matrix unit could take."""
    fed = group.where(lambda op: op.operand_dtype)
    return fed.time_by(lambda op: op.operand_dtype or "")


def non_compute(
    step: Step,
    *,
    include_comm: bool = False,
    no_comm_stalls: bool = False,
    top: int | None = None,
) -> Report:
    def is_stall(op: Op) -> bool:
        return op.kind == COMM and op.is_wait

    def is_listed(op: Op) -> bool:
        if is_stall(op):
            return not no_comm_stalls
        return op.kind == DATA_MOVE or (include_comm and op.kind == COMM)

    def label(op: Op) -> tuple[str, str]:
        return COMM_STALL if is_stall(op) else op.category, op.kind

    listed = Group(step.leaves).where(is_listed)
    by_category = []
    for (category, kind), group in group_by(listed.members, label).items():
        by_category.append(
            {
                "hlo_category": category,
                "kind": kind,
                "n_executions": group.n,
                **durations(group),
                "n_groups": len(group_by(group.members, lambda op: op.agg_key)),
                "agg_key_coverage": coverage(group),
            }
        )
    by_source_within = []
    groups, omitted = topmost(listed.members, lambda op: (op.agg_key, op.kind, label(op)[0]), top)
    for group in groups:
        category, kind = label(group.op)
        dtype, layout = changes(group)
        by_source_within.append(
            {
                "hlo_category": category,
                "kind": kind,
                **source_fields(group.op),
                "likely_sources": likely_rows(group),
                "n_executions": group.n,
                **durations(group),
                "shapes_in": group.distinct(shape_in)[:N_SHAPES_PER_SIDE],
                "shapes_out": group.distinct(shape_out)[:N_SHAPES_PER_SIDE],
                "dtype_change": dtype.is_seen,
                "dtype_change_dur_ps": dtype.duration,
                "layout_change": layout.is_seen,
                "layout_change_dur_ps": layout.duration,
                "example_hlo_op": group.longest.op.text,
            }
        )
    stalls = (
        "asynchronous communication waits included as 'async-done (comm stall)'; "
        "pass --no-comm-stalls to leave them out"
    )
    return Report(
        {
            "by_category": by_category,
            "by_source_within_category": by_source_within,
            **tail_if(top, omitted),
        },
        totals={
            "non_compute_duration_ps": listed.total,
            "non_compute_pct_of_step": percent(listed.total, step.duration),
            "non_compute_pct_of_compute": percent(listed.total, step.by_kind[COMPUTE].total),
        },
        notes=[stalls] if any(is_stall(each.op) for each in listed.members) else [],
    )


def shape_in(op: Op) -> str | None:
    array = op.hlo.moved_array
    return array.text if array else None


def shape_out(op: Op) -> str | None:
    return op.hlo.shape or None


# The roofline. Every ratio is kept exact until it is rounded, once, for output.

N_TOP_SKIPPED = 10
N_TOP_SHORTFALL = 10
N_OVER_ROOF_NAMED = 3
OPAQUE, XLA, DECLARED, USER = "opaque", "xla", "declared", "user"
OUTPUT, PROGRAM = "output", "program"
SKIP_REASONS = {
    OPAQUE: "n_no_flops",
    "no_flops": "n_no_flops",
    "no_bytes": "n_no_bytes",
    "dtype_other": "n_dtype_other",
    "peak_unknown_for_dtype": "n_peak_unknown_for_dtype",
}


def exact(number: float | Fraction) -> Fraction:
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
class Precision:
    """The dtype whose peak an op is held against, who says so, and whether it may be another."""

    dtype: str
    source: str
    is_uncertain: bool


def precision_of(op: Op) -> Precision:
    if op.dot:
        return Precision(op.dot.dtype, PROGRAM, False)
    return Precision(op.dtype, OUTPUT, op.dtype_uncertain)


@record
class Cost:
    """What one execution of an op takes, and who says so."""

    source: str
    # Of a kernel that somebody other than XLA knows the cost of.
    kernel: str | None
    flops: int | None
    model_flops: int | None
    bytes_accessed: int | None
    hbm_bytes: int | None
    precision: Precision

    @property
    def key(self) -> tuple[str, str]:
        return self.source, self.kernel or ""


def cost_of(op: Op, by_user: Mapping[str, KernelCost]) -> Cost:
    """The first that is there: what the user says, what XLA knows, what the author declared."""
    precision = precision_of(op)
    told = by_user.get(op.kernel or "")
    if told:
        if told.dtype:
            precision = Precision(told.dtype, USER, False)
        return Cost(USER, op.kernel, told.flops, None, told.n_bytes, told.n_bytes, precision)
    declared = op.declared_cost if op.is_opaque else None
    if declared and declared.flops:
        size, hbm = declared.bytes_accessed, declared.bytes_accessed
        if size is None:
            size, hbm = op.bytes_accessed, op.hbm_bytes
        kernel = op.kernel or op.hlo.base_name
        return Cost(DECLARED, kernel, declared.flops, None, size, hbm, precision)
    source = OPAQUE if op.is_opaque else XLA
    facts = op.flops, op.model_flops, op.bytes_accessed, op.hbm_bytes
    return Cost(source, None, *facts, precision)


@record
class Costed:
    """The executions of an op, with what one of them takes."""

    executions: Executions
    cost: Cost


class Part:
    """What of a source group is judged by itself: what XLA knows of it, or one kernel."""

    def __init__(self, whole: Group, members: list[Costed], opaque_time: int) -> None:
        self.whole = whole
        self.members = members
        # Time of the source group that XLA knows nothing of, told with what it knows.
        self.opaque_time = opaque_time
        self.group = Group([each.executions for each in members])
        self.source, self.kernel = members[0].cost.source, members[0].cost.kernel
        self.flops = self.sum_of(lambda cost: cost.flops)
        self.model_flops = self.sum_of(lambda cost: cost.model_flops)
        self.bytes_accessed = self.sum_of(lambda cost: cost.bytes_accessed)
        self.precision = self._main_precision()

    def sum_of(self, fact: Callable[[Cost], int | None]) -> int | None:
        """Sum a fact over the executions that carry it; None where none does."""
        return sum_known((each.executions.n, fact(each.cost)) for each in self.members)

    @property
    def hbm_bytes(self) -> int | None:
        """None where a member that moves bytes doesn't say where."""
        if any(each.cost.bytes_accessed and each.cost.hbm_bytes is None for each in self.members):
            return None
        return self.sum_of(lambda cost: cost.hbm_bytes)

    def _main_precision(self) -> Precision:
        """The dtype, and its source, that hold most of the time, the first of several."""
        dtypes: dict[str, int] = {}
        sources: dict[tuple[str, str], int] = {}
        for each in self.members:
            precision, total = each.cost.precision, each.executions.total
            key = precision.dtype, precision.source
            dtypes[precision.dtype] = dtypes.get(precision.dtype, 0) + total
            sources[key] = sources.get(key, 0) + total
        dtype = max(dtypes, key=dtypes.__getitem__)
        source = max((key for key in sources if key[0] == dtype), key=sources.__getitem__)[1]
        is_uncertain = any(each.cost.precision.is_uncertain for each in self.members)
        return Precision(dtype, source, is_uncertain)


def parts_of(compute: Group, by_user: Mapping[str, KernelCost]) -> list[Part]:
    """Take the opaque executions out of their source groups, and kernels of known cost."""
    parts = []
    for whole in group_by(compute.members, source_key).values():
        pieces: dict[tuple[str, str], list[Costed]] = {}
        for each in whole.members:
            cost = cost_of(each.op, by_user)
            pieces.setdefault(cost.key, []).append(Costed(each, cost))
        opaque_time = sum(each.executions.total for each in pieces.get((OPAQUE, ""), ()))
        # What XLA knows comes first.
        for key, members in sorted(pieces.items(), key=lambda item: item[0] != (XLA, "")):
            parts.append(Part(whole, members, opaque_time if key == (XLA, "") else 0))
    return parts


@record
class Roofs:
    """Peaks, and these as exact rates per picosecond."""

    choice: _peaks.Choice
    flops: dict[str, Fraction]
    hbm: Fraction | None

    def ridge_point(self, dtype: str) -> Fraction | None:
        return self.flops[dtype] / self.hbm if self.hbm and dtype in self.flops else None


def roofs_of(device: Device, chip: str | None, overrides: Mapping[str, float]) -> Roofs:
    """The peaks that are asked for, or else those of the device that the trace is of."""
    choice = _peaks.choose(chip, device.type, peaks_of_device(device), overrides)
    tflops = {dtype: choice.peaks.tflops(dtype) for dtype in _peaks.DTYPES}
    hbm_gibps = choice.peaks.hbm_gibps
    return Roofs(
        choice,
        {dtype: exact(peak) for dtype, peak in tflops.items() if peak is not None},
        None if hbm_gibps is None else exact(hbm_gibps) * 2**30 / 10**12,
    )


def peaks_used(roofs: Roofs) -> Json:
    ridge_points = {dtype: roofs.ridge_point(dtype) for dtype in roofs.flops}
    return {
        **{f"peak_tflops_{dtype}": roofs.choice.peaks.tflops(dtype) for dtype in _peaks.DTYPES},
        "peak_hbm_gibps": roofs.choice.peaks.hbm_gibps,
        "ridge_points": {
            dtype: rounded(ridge, 4) for dtype, ridge in ridge_points.items() if ridge is not None
        },
        "source": roofs.choice.peaks.source,
        "unit": "GiB/s (base-1024) per device",
    }


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

    @property
    def is_over_roof(self) -> bool:
        """Whether it is faster than possible: a wrong dtype, peak or flop count."""
        return (self.utilization(self.t_roofline) or 0) > 1

    def utilization(self, t: Fraction) -> float | None:
        return rounded(t / self.total, 6) if self.total else None


@record
class Skipped:
    """A part without a verdict, and why."""

    part: Part
    reason: str


def judge(part: Part, roofs: Roofs, hbm_only: bool) -> Verdict | Skipped:
    dtype, flops = part.precision.dtype, part.flops
    n_bytes = part.hbm_bytes if hbm_only else part.bytes_accessed
    if part.source == OPAQUE:
        return Skipped(part, OPAQUE)
    if not flops:
        return Skipped(part, "no_flops")
    if n_bytes is None or (n_bytes == 0 and not hbm_only):
        return Skipped(part, "no_bytes")
    if dtype == OTHER:
        return Skipped(part, "dtype_other")
    ridge_point = roofs.ridge_point(dtype)
    if ridge_point is None or roofs.hbm is None:
        return Skipped(part, "peak_unknown_for_dtype")
    t_compute, t_hbm = flops / roofs.flops[dtype], n_bytes / roofs.hbm
    t_per_op = per_op_roof(part, roofs.flops, roofs.hbm, hbm_only)
    return Verdict(part, flops, n_bytes, t_compute, t_hbm, t_per_op, ridge_point)


def per_op_roof(
    part: Part, flops: Mapping[str, Fraction], hbm: Fraction, hbm_only: bool
) -> Fraction | None:
    """The sum of each execution's own roof; None where one of them can't be known."""
    roof = exact(0)
    for each in part.members:
        cost, dtype = each.cost, each.cost.precision.dtype
        t = ((cost.hbm_bytes if hbm_only else cost.bytes_accessed) or 0) / hbm
        # A matrix unit doesn't take other dtypes: of such ops the bytes are the roof.
        if cost.flops and dtype != OTHER:
            if dtype not in flops:
                return None
            t = max(t, cost.flops / flops[dtype])
        roof += each.executions.n * t
    return roof


def roofline(
    step: Step,
    *,
    chip: str | None = None,
    peaks: Sequence[tuple[str, float]] = (),
    traffic: str = "accessed",
    kernel_cost: Sequence[KernelCost] = (),
) -> Report:
    roofs = roofs_of(step.device, chip, dict(peaks))
    compute = step.by_kind[COMPUTE]
    verdicts: list[Verdict] = []
    skipped: list[Skipped] = []
    for part in parts_of(compute, costs_by_kernel(compute, kernel_cost)):
        judged = judge(part, roofs, hbm_only=traffic == "hbm")
        if isinstance(judged, Verdict):
            verdicts.append(judged)
        else:
            skipped.append(judged)
    return Report(
        {
            "chip": roofs.choice.chip,
            "peaks_used": {**peaks_used(roofs), "bytes": traffic},
            "step_summary": step_summary(verdicts, compute.total),
            "groups": [roofline_row(verdict) for verdict in verdicts],
            "skipped_groups": skipped_fields(skipped),
        },
        notes=[*roofline_notes(verdicts), *roofs.choice.notes],
    )


def costs_by_kernel(compute: Group, costs: Sequence[KernelCost]) -> dict[str, KernelCost]:
    kernels = compute.distinct(lambda op: op.kernel)
    for cost in costs:
        if cost.kernel not in kernels:
            raise Absent(
                "kernel_not_found",
                detail=f"no kernel of the step's compute is named {cost.kernel!r}",
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
        "kernel": part.kernel,
        "cost_source": part.source,
        "hlo_categories": group.executions_by(lambda op: op.category),
        "n_executions": group.n,
        "total_dur_ps": total,
        "flops_sum": verdict.flops,
        "model_flops_sum": part.model_flops,
        "bytes_accessed_sum": part.bytes_accessed,
        "hbm_bytes_sum": part.hbm_bytes,
        "dtype": part.precision.dtype,
        "dtype_source": part.precision.source,
        "dtype_uncertain": part.precision.is_uncertain,
        "operand_dtypes": operand_dtypes(group),
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


def weighted_average(
    verdicts: Iterable[Verdict], t_of: Callable[[Verdict], Fraction]
) -> float | None:
    """Of utilizations, by time: their base is the weight."""
    weighed = [(t_of(each), each.total) for each in verdicts if each.total]
    if not weighed:
        return None
    return rounded(sum((t for t, _ in weighed), exact(0)) / sum(total for _, total in weighed), 6)


def step_summary(verdicts: Sequence[Verdict], compute: int) -> Json:
    over = [verdict for verdict in verdicts if verdict.is_over_roof]
    under = [verdict for verdict in verdicts if not verdict.is_over_roof]
    rooflined = sum(verdict.total for verdict in verdicts)
    largest = sorted(
        verdicts,
        key=lambda each: (-each.shortfall, each.part.whole.op.agg_key, each.part.kernel or ""),
    )
    known = [(each.total, round(each.t_per_op)) for each in verdicts if each.t_per_op is not None]
    return {
        "weighted_avg_mfu": weighted_average(verdicts, lambda each: each.t_compute),
        "weighted_avg_hbm_util": weighted_average(verdicts, lambda each: each.t_hbm),
        "weighted_avg_roofline_util": weighted_average(verdicts, lambda each: each.t_roofline),
        "over_roof": {
            "n_groups": len(over),
            "total_dur_ps": sum(verdict.total for verdict in over),
            "weighted_avg_mfu_without": weighted_average(under, lambda each: each.t_compute),
        },
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


def skipped_fields(skipped: Sequence[Skipped]) -> Json:
    counts = dict.fromkeys(SKIP_REASONS.values(), 0)
    for each in skipped:
        counts[SKIP_REASONS[each.reason]] += 1
    longest = sorted(
        skipped,
        key=lambda each: (-each.part.group.total, each.part.whole.op.agg_key, each.reason),
    )
    return {
        **counts,
        "total_dur_ps_skipped": sum(each.part.group.total for each in skipped),
        "top_skipped": [
            {
                "agg_key": each.part.whole.op.agg_key,
                "source_inner": each.part.whole.op.source_inner,
                "tf_op": each.part.whole.op.tf_op,
                "total_dur_ps": each.part.group.total,
                "reason": each.reason,
                "top_signature": ranked_by(each.part.group.members, lambda op: op.signature)[0][0],
                "example_hlo_op": each.part.group.longest.op.text,
            }
            for each in longest[:N_TOP_SKIPPED]
        ],
    }


def roofline_notes(verdicts: Sequence[Verdict]) -> list[str]:
    notes = []
    over = [verdict for verdict in verdicts if verdict.is_over_roof]
    if over:
        over.sort(key=lambda each: (-each.total, each.part.whole.op.agg_key))
        named = [
            each.part.whole.op.source_inner or each.part.whole.op.agg_key
            for each in over[:N_OVER_ROOF_NAMED]
        ]
        notes.append(
            f"{len(over)} groups have a roofline_util above 1, a wrong dtype, peak or flop count:"
            f" {', '.join(named)}{', …' * (len(over) > len(named))}"
        )
    notes += declared_notes({each.part.kernel for each in verdicts if each.part.source == DECLARED})
    n_differ = sum(each.part.model_flops not in (None, each.flops) for each in verdicts)
    if n_differ:
        notes.append(f"{n_differ} groups have a flops_sum that differs from model_flops_sum")
    return notes


def declared_notes(kernels: Set[str | None]) -> list[str]:
    if not kernels:
        return []
    return [
        f"kernels judged by what their authors declared: {len(kernels)}; that is a claim, and twice"
        " too high for a causal kernel that declares the full square"
    ]


def peaks_of_device(device: Device) -> _peaks.Peaks:
    """The peaks that the trace gives for its own device."""

    def positive(name: str) -> float | None:
        value = device.stats.get(name)
        return float(value) if isinstance(value, (int, float)) and 0 < value < math.inf else None

    return _peaks.of_profile(
        positive("peak_teraflops_per_second"), positive("peak_hbm_bw_gigabytes_per_second")
    )


# The bottleneck: a ledger in which every picosecond of the step stands once.

COLLECTIVE, DATA_MOVEMENT = "collective", "data_movement"
COMPUTE_BOUND, MEMORY_BOUND = "compute_bound", "memory_bound"
KERNEL, UNJUDGED = "kernel", "unjudged"
CLASSES = (
    *(COLLECTIVE, HOST, DATA_MOVEMENT, COMPUTE_BOUND, MEMORY_BOUND, KERNEL, UNJUDGED),
    OTHER,
)
IDLE, OVERLAP, AT_ROOF = "idle", "overlap", "at_roof"
N_TF_OP = 200


@record
class Entry:
    """The executions of an op in the ledger; what the chip needs at the least, and what is lost."""

    executions: Executions
    name: str
    cost: Cost | None
    # Both None where nobody knows.
    at_roof: int | None
    lost: int | None
    # Whether the roof is made of all that it could be made of.
    is_certain: bool
    # By the flops alone, exact.
    t_compute: Fraction

    @property
    def total(self) -> int:
        return self.executions.total

    @property
    def weight(self) -> int:
        return self.total if self.lost is None else self.lost

    @property
    def kernel(self) -> str | None:
        if self.name == KERNEL:
            return self.executions.op.kernel
        return self.cost.kernel if self.cost else None


def ledger_of(step: Step, roofs: Roofs, by_user: Mapping[str, KernelCost]) -> list[Entry]:
    return [
        judged(each, cost_of(each.op, by_user), roofs)
        if each.op.kind == COMPUTE
        else vanishing(each)
        for each in step.leaves
    ]


def vanishing(each: Executions) -> Entry:
    """What a chip would not need at all: it could be hidden, or done without."""
    op = each.op
    if (op.kind == COMM or op.is_wait) and op.waits_for == HOST:
        name = HOST
    else:
        name = {COMM: COLLECTIVE, DATA_MOVE: DATA_MOVEMENT, OTHER: OTHER}[op.kind]
    return Entry(each, name, None, 0, each.total, True, exact(0))


def judged(each: Executions, cost: Cost, roofs: Roofs) -> Entry:
    """Math, held against the higher of its two roofs; a part that isn't known is none."""
    peak = roofs.flops.get(cost.precision.dtype)
    n_bytes = cost.bytes_accessed if cost.hbm_bytes is None else cost.hbm_bytes
    t_compute = each.n * cost.flops / peak if cost.flops and peak else exact(0)
    t_memory = each.n * n_bytes / roofs.hbm if n_bytes and roofs.hbm else exact(0)
    if cost.source == OPAQUE and each.op.kernel:
        return Entry(each, KERNEL, cost, None, None, False, t_compute)
    if not (t_compute or t_memory):
        return Entry(each, UNJUDGED, cost, None, None, False, t_compute)
    at_roof = min(each.total, round(max(t_compute, t_memory)))
    name = COMPUTE_BOUND if t_compute >= t_memory else MEMORY_BOUND
    is_certain = None not in (cost.flops, peak, n_bytes, roofs.hbm)
    return Entry(each, name, cost, at_roof, each.total - at_roof, is_certain, t_compute)


class Finding:
    """Entries of one class and line: what there is to win in one place."""

    def __init__(self, entries: list[Entry], line: str | None, how: str | None) -> None:
        self.entries = entries
        self.line, self.how = line, how
        self.name, self.kernel = entries[0].name, entries[0].kernel
        self.group = Group([entry.executions for entry in entries])
        self.at_roof = sum_known((1, entry.at_roof) for entry in entries)
        self.lost = sum_known((1, entry.lost) for entry in entries)
        self.weight = sum(entry.weight for entry in entries)


def findings_of(ledger: Iterable[Entry]) -> list[Finding]:
    """A line of a group with a stack is the group's; without one each op's likely line."""
    of_stack: dict[tuple[str, str, str | None], list[Entry]] = {}
    of_line: dict[tuple[str, str | None, str | None], list[tuple[Entry, str | None]]] = {}
    for entry in ledger:
        op = entry.executions.op
        if op.source_stack:
            of_stack.setdefault((entry.name, op.agg_key, entry.kernel), []).append(entry)
        else:
            line, how = likely_line(op)
            of_line.setdefault((entry.name, line, entry.kernel), []).append((entry, how))
    findings = [
        Finding(entries, entries[0].executions.op.source_inner, OWN)
        for entries in of_stack.values()
    ]
    for (_, line, _), found in of_line.items():
        how = how_most((how, entry.total) for entry, how in found)
        findings.append(Finding([entry for entry, _ in found], line, how))
    return sorted(
        findings,
        key=lambda each: (
            -each.weight,
            CLASSES.index(each.name),
            each.group.op.agg_key,
            each.line or "",
            each.kernel or "",
        ),
    )


def bottleneck(
    step: Step,
    *,
    top: int = 8,
    chip: str | None = None,
    peaks: Sequence[tuple[str, float]] = (),
    kernel_cost: Sequence[KernelCost] = (),
    model_flops: int | None = None,
) -> Report:
    roofs = roofs_of(step.device, chip, dict(peaks))
    by_user = costs_by_kernel(step.by_kind[COMPUTE], kernel_cost)
    ledger = ledger_of(step, roofs, by_user)
    findings = findings_of(ledger)
    by_class = {name: [entry for entry in ledger if entry.name == name] for name in CLASSES}
    idle = step.duration - step.timeline.busy
    weights = {name: sum(entry.weight for entry in by_class[name]) for name in CLASSES}
    weights |= {IDLE: idle, AT_ROOF: at_roof_of(ledger)}
    recompute = step.by_kind[COMPUTE].where(lambda op: op.phase == "recompute").total
    tail = findings[top:]
    return Report(
        {
            # The first of several: the order of the table.
            "bottleneck": max(weights, key=weights.__getitem__),
            "speed_of_light": speed_of_light(ledger, step.duration),
            "mfu_at_least": utilization_of(ledger, step, lambda op: op.phase != "recompute"),
            "hfu_at_least": utilization_of(ledger, step, lambda op: True),
            "mfu": mfu_of(model_flops, step, roofs),
            "capture": {
                "hosts": step.device.hosts,
                "devices": [name for name in step.device.planes if TPU_RE.match(name)],
                "n_steps": len(step.device.steps),
            },
            "budget": [
                *(budget_row(name, by_class[name], step) for name in CLASSES),
                rest_row(IDLE, idle, step),
                rest_row(OVERLAP, step.timeline.busy - Group(step.leaves).total, step),
            ],
            "recompute_dur_ps": recompute,
            "recompute_pct_of_step": percent(recompute, step.duration),
            "findings": [finding_row(i, each, step) for i, each in enumerate(findings[:top], 1)],
            "tail": {
                "n_findings_omitted": len(tail),
                "dur_ps": sum(each.group.total for each in tail),
                "lost_ps": sum(each.lost or 0 for each in tail),
            },
            "chip": roofs.choice.chip,
            "peaks_used": peaks_used(roofs),
        },
        notes=[*declared_notes({e.kernel for e in ledger if is_declared(e)}), *roofs.choice.notes],
    )


def is_declared(entry: Entry) -> bool:
    return entry.cost is not None and entry.cost.source == DECLARED


def at_roof_of(entries: Iterable[Entry]) -> int:
    return sum(entry.at_roof or 0 for entry in entries)


def speed_of_light(ledger: Sequence[Entry], duration: int) -> Json:
    """What share of the step the chip needs at the least, between two bounds."""
    at_roof, declared = at_roof_of(ledger), at_roof_of(filter(is_declared, ledger))
    unknown = sum(entry.weight for entry in ledger if not entry.is_certain)
    return {
        "at_roof_ps": at_roof,
        "unknown_ps": unknown,
        "pct_at_least": percent(at_roof - declared, duration),
        "pct_at_most": percent(at_roof + unknown, duration),
    }


def utilization_of(
    ledger: Iterable[Entry], step: Step, counts: Callable[[Op], bool]
) -> float | None:
    """What share of the step the matrix units are busy at the least, claims left out."""
    t_compute = sum(
        (
            min(exact(entry.total), entry.t_compute)
            for entry in ledger
            if not is_declared(entry) and counts(entry.executions.op)
        ),
        exact(0),
    )
    return rounded(t_compute / step.duration, 6) if step.duration else None


def mfu_of(model_flops: int | None, step: Step, roofs: Roofs) -> float | None:
    if model_flops is None or "bf16" not in roofs.flops or not step.duration:
        return None
    return rounded(model_flops / roofs.flops["bf16"] / step.duration, 6)


def budget_row(name: str, entries: Sequence[Entry], step: Step) -> Json:
    total = sum(entry.total for entry in entries)
    is_known = name not in (KERNEL, UNJUDGED)
    return {
        "class": name,
        "dur_ps": total,
        "pct_of_step": percent(total, step.duration),
        "at_roof_ps": at_roof_of(entries) if is_known else None,
        "lost_ps": sum(entry.lost or 0 for entry in entries) if is_known else None,
        "n_executions": sum(entry.executions.n for entry in entries),
    }


def rest_row(name: str, duration: int, step: Step) -> Json:
    nothing = dict.fromkeys(("at_roof_ps", "lost_ps", "n_executions"))
    pct = percent(duration, step.duration)
    return {"class": name, "dur_ps": duration, "pct_of_step": pct, **nothing}


def shortened(tf_op: str | None) -> str | None:
    return f"…{tf_op[-N_TF_OP:]}" if tf_op and len(tf_op) > N_TF_OP else tf_op


def finding_row(rank: int, finding: Finding, step: Step) -> Json:
    group = finding.group
    return {
        "rank": rank,
        "class": finding.name,
        "source_inner": finding.line,
        "source_is": finding.how,
        "agg_key": group.op.agg_key,
        "tf_op": shortened(group.op.tf_op),
        "kernel": finding.kernel,
        "dur_ps": group.total,
        "pct_of_step": percent(group.total, step.duration),
        "at_roof_ps": finding.at_roof,
        "lost_ps": finding.lost,
        "n_executions": group.n,
        "phases": group.time_by(lambda op: op.phase),
        "waits_for": (
            group.where(is_exposed).time_by(lambda op: op.waits_for)
            if finding.name in (COLLECTIVE, HOST)
            else None
        ),
        "top_signature": ranked_by(group.members, lambda op: op.signature)[0][0],
    }


# Communication: what the core stands in for it, what of it is hidden, and what it moves.

UPDATE_RE = re.compile(r"-update(?=\.|\Z)")


class Starts:
    """The ops of a device that begin what others wait for, by place: the first in the step, else
    the first of those that run at other times."""

    def __init__(self, step: Step) -> None:
        self._device = step.device
        self._found: dict[Place, Op] = {}
        self._add(each.op for each in step.leaves)

    def _add(self, ops: Iterable[Op]) -> None:
        for op in ops:
            if op.begins:
                self._found.setdefault(op.place, op)

    @cached_property
    def _ids(self) -> dict[str, list[int]]:
        """All entries of the device's metadata that haven't been asked for, by the names of ops."""
        ids: dict[str, list[int]] = {}
        for metadata_id, text in self._device.plane.metadata_names():
            ids.setdefault(_proto.HloText(text).name, []).append(metadata_id)
        return ids

    def at(self, place: Place) -> Op | None:
        if place not in self._found:
            # All of one name at once.
            self._add(filter(None, map(self._device.op, self._ids.pop(place[1], ()))))
        return self._found.get(place)

    def of(self, done: Op) -> tuple[Place, Op | None]:
        """What begins that a wait ends: its operand, or the start of that update; else what its
        program has upstream; else what is called like it."""
        for name in done.hlo.operand_names:
            start = self.at((done.program_id, UPDATE_RE.sub("-start", name)))
            if start:
                return start.place, start
        parts = done.instruction.chain if done.instruction else ()
        if len(parts) > 1 and parts[-1] is done.instruction:
            name = parts[0].name
        else:
            name = "start".join(done.name.rsplit("done", 1))
        return (done.program_id, name), self.at((done.program_id, name))


class Cover:
    """The time that ops cover together, to be asked how much of a span that is."""

    def __init__(self, step: Step, metadata_ids: Set[int]) -> None:
        # A piece at a time: of the events of all of them lists would be long.
        of_pieces = (
            merged((start, start + duration) for start, duration, _ in events)
            for piece in step.admitted.pieces
            for events in [events_of([piece], step.clock, metadata_ids)]
        )
        stretches = merged(chain.from_iterable(of_pieces))
        self._starts = [start for start, _ in stretches]
        self._ends = [end for _, end in stretches]
        self._before = [0, *accumulate(end - start for start, end in stretches)]

    def within(self, start: int, end: int) -> int:
        return max(0, self._until(end) - self._until(start))

    def _until(self, time: int) -> int:
        n = bisect_right(self._starts, time)
        return self._before[n] - max(0, self._ends[n - 1] - time) if n else 0


class Transfer:
    """An op that communicates."""

    def __init__(self, executions: Executions, starts: Starts, exchanges: _proto.Exchanges) -> None:
        op = self.op = executions.op
        self.executions = executions
        # Of a wait: where that stands which begins it, and what executions of both are paired.
        self.place, start = starts.of(op) if op.is_wait else (op.place, None)
        self.flights: list[_proto.Flight] = []
        self.collective = collective_of(op)
        self.mode = "async" if op.is_wait else "sync"
        texts = op.hlo, start.hlo if start else None
        is_told = any(text.on_sparse_core for text in texts if text)
        is_known = op.instruction is not None and op.instruction.on_sparse_core
        self.engine = SPARSE_CORE if is_told or is_known else "core"
        self.line, self.how = (op.source_inner, OWN) if op.source_stack else likely_line(op)
        self.exchange = exchanges.of(
            self.collective, *texts, is_done=op.is_wait, program=op.program, inside=op.inside
        )

    @property
    def key(self) -> tuple[str, str, str, str, str, str, int]:
        who = self.exchange.who
        kind = self.collective, self.mode, self.engine
        return *kind, self.op.agg_key, self.line or "", who.label or "", who.size or 0


def collective_of(op: Op) -> str:
    if op.waits_for == SOME_COLLECTIVE and op.inside:
        return op.inside.opcode
    if op.waits_for == HOST and op.kind != COMM:
        return _proto.TO_HOST if op.is_to_host else _proto.FROM_HOST
    return op.waits_for


def transfers_of(step: Step) -> list[Transfer]:
    """All that communicates, in order of appearance."""
    starts, exchanges, device = Starts(step), _proto.exchanges(), step.device
    communicating = Group(step.leaves).where(is_communication).members
    transfers = [Transfer(each, starts, exchanges) for each in communicating]
    waits = {each.executions.metadata_id: each for each in transfers if each.op.is_wait}
    flights = _proto.flights_of(
        step.admitted.pieces,
        step.clock,
        {each.metadata_id: each.op.place for each in step.leaves if each.op.begins},
        {metadata_id: each.place for metadata_id, each in waits.items()},
        [program.end for program in read_steps(device.plane, MODULES_LINE, device.base, [])],
    )
    for metadata_id, each in waits.items():
        each.flights = flights[metadata_id]
    return transfers


def comm(step: Step, *, top: int = 20) -> Report:
    transfers = transfers_of(step)
    hiding = Group(step.leaves).where(lambda op: not op.is_wait and op.kind != COMM)
    cover = Cover(step, {each.metadata_id for each in hiding.members})
    by_key: dict[Any, list[Transfer]] = {}
    by_collective: dict[str, list[Transfer]] = {}
    for each in transfers:
        by_key.setdefault((each.key, each.exchange.who.mark), []).append(each)
        by_collective.setdefault(each.collective, []).append(each)
    ranked = sorted(by_key.values(), key=lambda some: (-total_of(some), some[0].key))
    tail = list(chain.from_iterable(ranked[top:]))
    among_devices = [each for each in transfers if each.op.waits_for != HOST]
    flights = chain.from_iterable(each.flights for each in among_devices)
    under_way = merged((each.start, each.end) for each in flights if each.start < each.end)
    return Report(
        {
            "rows": [comm_row(some, cover, step) for some in ranked[:top]],
            "tail": {"n_rows_omitted": len(ranked[top:]), **exposed_fields(tail)},
        },
        totals={
            "exposed_ps": total_of(among_devices),
            "exposed_pct_of_step": percent(total_of(among_devices), step.duration),
            "host_ps": total_of(transfers) - total_of(among_devices),
            "in_flight_union_ps": sum(end - start for start, end in under_way),
            "hidden_union_ps": sum(cover.within(start, end) for start, end in under_way),
            "by_collective": {
                name: {
                    "n_executions": sum(each.executions.n for each in some),
                    **exposed_fields(some),
                    "payload_bytes": payload_of(without_halves(some)),
                }
                for name, some in by_collective.items()
            },
        },
    )


def total_of(transfers: Iterable[Transfer]) -> int:
    return sum(each.executions.total for each in transfers)


def exposed_fields(transfers: Sequence[Transfer]) -> Json:
    wait = total_of(each for each in transfers if each.op.is_wait)
    return {"sync_dur_ps": total_of(transfers) - wait, "wait_dur_ps": wait}


def without_halves(transfers: Sequence[Transfer]) -> list[Transfer]:
    """Of what is sent or received only the wait, if there is one: both halves move it once."""
    awaited = {each.place for each in transfers if each.op.is_wait}
    return [each for each in transfers if not (each.op.begins and each.place in awaited)]


def payload_of(transfers: Iterable[Transfer]) -> int | None:
    return sum_if_known((each.executions.n, each.exchange.payload) for each in transfers)


def comm_row(transfers: Sequence[Transfer], cover: Cover, step: Step) -> Json:
    first, total = transfers[0], total_of(transfers)
    n_executions = sum(each.executions.n for each in transfers)
    bus = sum_if_known((each.executions.n, each.exchange.bus) for each in transfers)
    # What is moved in which time; asynchronous only as far as it is paired.
    moved, lasted = bus, total
    pairs = in_flight = covered = other = None
    if first.op.is_wait:
        flights = [flight for each in transfers for flight in each.flights]
        pairs = {
            "paired": len(flights),
            "ambiguous": sum(flight.is_ambiguous for flight in flights),
            "unpaired": n_executions - len(flights),
        }
        paired = [each for each in transfers if each.flights]
        moved = sum_if_known((len(each.flights), each.exchange.bus) for each in paired)
        lasted = sum(flight.end - flight.start for flight in flights)
        if flights:
            in_flight = lasted
            covered = sum(cover.within(flight.start, flight.wait) for flight in flights)
            other = sum(flight.wait - flight.start for flight in flights) - covered
    # Bytes a picosecond are thousands of gigabytes a second.
    gbps = None if moved is None or lasted <= 0 else rounded(1000 * exact(moved) / lasted, 3)
    return {
        "collective": first.collective,
        "mode": first.mode,
        "engine": first.engine,
        "source_inner": first.line,
        "source_is": how_most((each.how, each.executions.total) for each in transfers),
        "agg_key": first.op.agg_key,
        "tf_op": shortened(first.op.tf_op),
        "n_executions": n_executions,
        **exposed_fields(transfers),
        "pct_of_step": percent(total, step.duration),
        "pairs": pairs,
        "in_flight_ps": in_flight,
        "covered_ps": covered,
        "other_ps": other,
        "payload_bytes": payload_of(transfers),
        "bus_bytes": None if bus is None else round(bus),
        "group_size": first.exchange.who.size,
        "groups": first.exchange.who.label,
        "groups_from": first.exchange.who_is,
        "bus_gbps": gbps,
        "bus_gbps_over": "in_flight" if first.op.is_wait else "duration",
    }


# The memory: what the program holds in HBM when it holds most.

ARGUMENT_RE = re.compile(r"\w+")
# What ran, by what its program says of it: of several ops that are one instruction, all.
Ran = dict["_proto.Instruction | None", list[Executions]]


class Origin:
    """The instruction that puts out a buffer, and its likely line; or None, and nothing."""

    def __init__(self, instruction: _proto.Instruction | None, ran: Ran) -> None:
        self.instruction = instruction
        self.line: str | None = None
        self.how: str | None = None
        if instruction:
            executions = ran.get(instruction)
            self.line, self.how = (
                likely_line(executions[0].op) if executions else likely_line_of(instruction)
            )

    @property
    def name(self) -> str | None:
        return self.instruction.name if self.instruction else None

    @property
    def opcode(self) -> str | None:
        return self.instruction.opcode if self.instruction else None

    @cached_property
    def tf_op(self) -> str | None:
        return self.instruction.tf_op if self.instruction else None

    @cached_property
    def stack(self) -> str | None:
        return self.instruction.stack if self.instruction else None

    @cached_property
    def argument(self) -> str | None:
        """Of a parameter the first part of its path."""
        part = ARGUMENT_RE.search(self.tf_op or "") if self.opcode == "parameter" else None
        return part[0] if part else None


@record
class Live:
    """A piece of memory that is live at the peak, and where it comes from."""

    held: _proto.Held
    origin: Origin

    @property
    def shape_index(self) -> tuple[int, ...] | None:
        return self.held.buffer.shape_index if self.held.buffer else None

    @property
    def rank(self) -> tuple[int, str, tuple[int, ...]]:
        return -self.held.size, self.origin.name or "", self.shape_index or ()


def memory(step: Step, *, top: int = 20) -> Report:
    program_id = program_id_of(step)
    program = None if program_id is None else step.device.programs.program(program_id)
    if program is None:
        raise Absent("no_program")
    peak = program.peak()
    if peak is None:
        raise Absent("no_buffer_assignment")
    ran: Ran = {}
    for each in [*step.leaves, *step.containers]:
        # Other programs aren't even read: they may be broken.
        if each.op.program_id == program_id and each.op.instruction:
            ran.setdefault(each.op.instruction, []).append(each)
    put_out = dict.fromkeys(held.instruction for held in peak.held)
    origins = {instruction: Origin(instruction, ran) for instruction in put_out}
    live = [Live(held, origins[held.instruction]) for held in peak.held]
    live.sort(key=lambda each: each.rank)
    size = peak.size
    return Report(
        {
            "peak_bytes": size,
            "reserved_bytes": peak.reserved,
            "fragmentation_bytes": peak.reserved - size,
            "by_kind": peak.by_kind,
            "peak_at": peak_row(peak.instruction_name, program, ran, step),
            "buffers": [buffer_row(i, each, size) for i, each in enumerate(live[:top], 1)],
            "by_source": share_rows(live, "source_inner", lambda each: each.origin.line),
            "by_opcode": share_rows(live, "opcode", lambda each: each.origin.opcode),
            "by_argument": share_rows(live, "argument", lambda each: each.origin.argument),
            "tail": {
                "n_buffers_omitted": len(live[top:]),
                "bytes": sum(each.held.size for each in live[top:]),
            },
        },
        notes=peak_notes(peak),
    )


def peak_row(name: str, program: _proto.Program, ran: Ran, step: Step) -> Json | None:
    """The instruction that the peak is reached at; None where no heap trace tells."""
    if not name:
        return None
    origin = Origin(program.instruction(name), ran)
    # None where it didn't run in the step, under its own name.
    ran_as = {each.metadata_id for each in ran.get(origin.instruction, ())}
    events = events_of(step.admitted.pieces, step.clock, ran_as)
    return {
        "hlo_op": name,
        "source_inner": origin.line,
        "source_is": origin.how,
        "tf_op": origin.tf_op,
        "first_start_ps": min((start for start, _, _ in events), default=None),
    }


def buffer_row(rank: int, live: Live, peak: int) -> Json:
    held, origin, index = live.held, live.origin, live.shape_index
    array = origin.instruction.array_at(index or ()) if origin.instruction else None
    return {
        "rank": rank,
        "bytes": held.size,
        "pct_of_peak": percent(held.size, peak),
        "kind": held.kind,
        "shape": f"{array.dtype}[{','.join(map(str, array.dims))}]" if array else None,
        "hlo_op": origin.name,
        "opcode": origin.opcode,
        "shape_index": None if index is None else list(index),
        "parameter_number": held.parameter_number,
        "tf_op": origin.tf_op,
        "source_inner": origin.line,
        "source_is": origin.how,
        "source_stack": origin.stack,
    }


def share_rows(live: Sequence[Live], name: str, key: Callable[[Live], str | None]) -> list[Json]:
    """What is live by one of its facts, most bytes first; what lacks it comes last."""
    sizes: dict[str | None, list[int]] = {}
    for each in live:
        sizes.setdefault(key(each), []).append(each.held.size)
    ranked = sorted(sizes, key=lambda value: (value is None, -sum(sizes[value]), value))
    return [
        {name: value, "bytes": sum(sizes[value]), "n_buffers": len(sizes[value])}
        for value in ranked
    ]


def peak_notes(peak: _proto.Peak) -> list[str]:
    notes = []
    if peak.n_maxima > 1:
        notes.append(
            f"the peak is an upper bound: {peak.n_maxima} maxima of temporary memory, which need"
            " not be at one time, are added up"
        )
    if peak.n_untraced:
        notes.append(
            f"the peak is an upper bound: of {peak.n_untraced} bytes of temporary memory no trace"
            " tells when they are live; they count in whole"
        )
    return notes


# ----------------------------------------------------------------------------------------------
# What these modes answer: all stages in a row.


def answer_on_step(
    report: Callable[..., Report],
    request: Request,
    notes: list[str],
    on_read: OnRead | None,
    *,
    step: int | str | None = None,
    step_id: str | None = None,
    **options: Any,
) -> Json:
    """Of one step of one device: all stages in a row."""
    files = find_files(request.profile, notes)

    def answer(path: str) -> Json:
        with opened(path, on_read) as trace:
            device = open_device(trace, request.device or DEVICE, list(files), notes)
            picked = pick_step(device, StepChoice(step, step_id), notes)
            of_step = read_step(device, picked, notes)
            return answer_of(request, path, of_step, partial(report, **options), notes)

    return first_of(files, request.host, notes, answer)


def answer_of(
    request: Request,
    path: str,
    step: Step,
    report: Callable[[Step], Report],
    notes: list[str],
) -> Json:
    try:
        said = report(step)
        notes += said.notes
    finally:
        # Also where it is the program that holds no answer.
        notes += step.device.programs.notes
    fields = {
        "status": "ok",
        "mode": request.mode.name,
        "profile_dir": request.profile,
        "xplane_file": os.path.basename(path),
        "device": request.device,
        "device_type": step.device.type,
        "clock": step.clock.name,
        "step_source": step.device.step_source if step.picked else None,
        "program": program_fields(step),
        "step_id": step.picked.index if step.picked else None,
        "step_name": step.picked.name if step.picked else None,
        "step_window_ps": [step.timeline.start, step.timeline.end],
        "step_duration_ps": step.duration,
        "notes": notes,
        "totals": {**totals_of(step), **(said.totals or {})},
        **said.fields,
    }
    cut_texts(fields, step.device.plane.file_size)
    return fields


# ----------------------------------------------------------------------------------------------
# Records: what all steps of all devices of a trace come down to, for others to compare.

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
        self.source_stack = op.source_stack
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
    device: Device, asked: slice, known: dict[SourceKey, GroupFacts], notes: list[str]
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
        raise Absent("empty_xla_ops_line")
    recorded = []
    ran: dict[Op, None] = {}
    texts: set[str] = set()
    clocks: set[str] = set()
    n_dropped = admitted[0].n_aggregated
    asked_for = set(range(len(steps))[asked])
    reasons = reasons_not_used(steps, are_modules=device.step_source == MODULES)
    for step_event, of_step, why_not in zip(steps, admitted, reasons, strict=True):
        fields = {
            "index": step_event.index,
            "name": step_event.name,
            "used": False,
            "why_not": why_not,
            "n_xla_ops_events": step_event.n_events,
            "duration_ps": step_event.end - step_event.start,
            **dict.fromkeys(("busy_ps", "comm_ps", "host_ps", "wait_ps")),
        }
        times = {}
        if why_not is None:
            step = step_of(device, step_event if device.steps else None, of_step)
            fields["duration_ps"] = step.duration
            ran |= dict.fromkeys(each.op for each in step.leaves)
            texts |= texts_of_program(step)
            clocks.add(step.clock.name)
            n_dropped += of_step.n_dropped - of_step.n_aggregated
            if step_event.index in asked_for:
                fields |= {"used": True, **figures_of_record(step)}
                groups = group_by(step.leaves, source_key)
                times = {key: (group.total, group.n) for key, group in groups.items()}
            else:
                fields["why_not"] = NOT_ASKED
        recorded.append(RecordedStep(fields, times))
    fields = {
        "device": device.plane.name,
        "device_type": device.type,
        "clock": _proto.ON_DEVICE if _proto.ON_DEVICE in clocks else _proto.ON_TRACE,
        "step_source": device.step_source if device.steps else None,
        "program": digest_of(texts),
    }
    if n_dropped:
        notes.append(f"{n_dropped} XLA Ops events left out")
    return RecordedDevice(fields, recorded, facts_of(ran, known), notes)


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
    times = {each.waits_for: each.group.total for each in exposed(step)}
    host, local = times.get(HOST, 0), times.get(SPARSE_CORE, 0) + times.get(DMA, 0)
    return {
        "busy_ps": step.timeline.busy,
        "comm_ps": sum(times.values()) - host - local,
        "host_ps": host,
        "wait_ps": Group(step.leaves).where(lambda op: op.is_wait).total,
    }


def texts_of_program(step: Step) -> set[str]:
    """Of all ops but those in a branch: which one is taken makes no other program."""
    ops = [each.op for each in (*step.leaves, *step.containers)]
    if not any(op.category == CONDITIONAL for op in ops):
        return {op.text for op in ops}
    ids = set(chain.from_iterable(piece.metadata_ids for piece in step.admitted.pieces))
    events = [
        (start, -duration, op.category != CONDITIONAL, op.text)
        for start, duration, metadata_id in events_of(step.admitted.pieces, step.clock, ids)
        if (op := step.device.op(metadata_id))
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


def digest_of(texts: Iterable[str]) -> str:
    import hashlib

    whole = "\n".join(sorted(texts)).encode()
    return hashlib.sha1(whole, usedforsecurity=False).hexdigest()[:16]


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
    stack = [frame.strip() for frame in (facts.source_stack or "").split("\n")]
    lists = {name: sorted(facts.of_ops[name]) for name in ("tf_ops", "signatures", "shapes")}
    return {
        "kind": facts.kind,
        "agg_key": facts.agg_key,
        "agg_key_kind": facts.agg_key_kind,
        "frames": [frames.setdefault(frame, len(frames)) for frame in stack if frame],
        # Whichever device comes first: without a stack there may be several.
        "source": min(facts.of_ops["sources"], default=None),
        **{name: facts[:N_LISTED] for name, facts in lists.items()},
        "truncated": any(len(facts) > N_LISTED for facts in lists.values()),
        "ops": digest_of(facts.of_ops["texts"]),
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


def record_devices(trace: _proto.Trace, names: Sequence[str], asked: slice) -> list[RecordedDevice]:
    """Those of the devices that have ops; if none has, Absent of the first."""
    known: dict[SourceKey, GroupFacts] = {}

    def record_one(name: str) -> RecordedDevice | tuple[str, Json]:
        try:
            notes: list[str] = []
            return record_device(open_device(trace, name, [], notes), asked, known, notes)
        except Absent as absent:
            return absent.reason, absent.fields

    is_worth_it = trace.file_size > SMALL_FILE and len(names) > 1 and n_cores() > 1
    found = in_two_processes(record_one, names) if is_worth_it else list(map(record_one, names))
    devices = [each for each in found if isinstance(each, RecordedDevice)]
    if not devices:
        reason, fields = next(each for each in found if isinstance(each, tuple))
        raise Absent(reason, **fields)
    return devices


# Not worth a process of its own.
SMALL_FILE = 1 << 22


def in_two_processes(work: Callable[[K], T], items: Sequence[K]) -> list[T]:
    """Work on every other item in a process of its own.

    If that fails, for whatever reason, it is done again here, and fails as it would have.
    """
    import pickle

    reader, writer = os.pipe()
    try:
        child = os.fork()
    except OSError:
        # There may be no more.
        os.close(reader)
        os.close(writer)
        return list(map(work, items))
    if not child:
        with suppress(BaseException), open(writer, "wb") as pipe:
            pickle.dump([work(item) for item in items[1::2]], pipe)
            pipe.flush()
            os._exit(0)
        os._exit(1)
    os.close(writer)
    with open(reader, "rb") as pipe:
        try:
            ours = [work(item) for item in items[::2]]
        except BaseException:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            raise
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    theirs = [work(item) for item in items[1::2]] if status else pickle.loads(data)
    both = [*ours, *theirs]
    both[::2], both[1::2] = ours, theirs
    return both


def n_cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def record_of_trace(
    profile: str,
    path: str,
    device: str | None,
    asked: slice,
    notes: list[str],
    on_read: OnRead | None,
) -> Json:
    """The record of a trace: of one device, or else of all that are TPUs and have ops."""
    with opened(path, on_read) as trace:
        names = [name for name in trace.plane_names if device in (None, name)]
        if device is None:
            names = [name for name in names if TPU_RE.match(name)]
        if not names:
            raise Absent(DEVICE_NOT_FOUND, available_devices=trace.plane_names)
        devices = record_devices(trace, names, asked)
        folder = os.path.dirname(os.path.abspath(path))
        is_run = path != _proto.STDIN and os.path.basename(os.path.dirname(folder)) == "profile"
        fields = {
            "status": "ok",
            "mode": "record",
            "profile_dir": profile,
            "xplane_file": os.path.basename(path),
            "notes": [*notes, *notes_of_record(devices)],
            "format": FORMAT,
            "run": os.path.basename(folder) if is_run else None,
            "host": _proto.host_of(path),
            **record_fields(devices),
        }
        keys = [group["agg_key"] for group in fields["groups"]]
        cut_texts(fields, trace.file_size)
        for group, key in zip(fields["groups"], keys, strict=True):
            # Cut, two of them may look the same; and who compares records cuts them again.
            if group["agg_key"] != key:
                end = f"…{digest_of([key])}"
                group["agg_key"] = group["agg_key"][: -len(end) - 1] + end
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


def record_capture(
    request: Request, notes: list[str], on_read: OnRead | None, *, steps: slice = slice(None)
) -> Json:
    return first_of(
        find_files(request.profile, notes),
        request.host,
        notes,
        lambda path: record_of_trace(request.profile, path, request.device, steps, notes, on_read),
    )


# What compares records. They may be read from traces just now.

RECORD_SUFFIXES = (".json", ".json.gz")
# Of other JSON that lies beside traces.
TRACE_VIEWER = ".trace.json"
# How a record begins, also one whose keys a formatter has sorted. What has less of it was one that
# wasn't written to its end, as was a file of zeros.
RECORD_STARTS = (b'{"status"', b'{"devices":[{"clock"')
PADDING = b" \t\r\n\0"
N_HEAD = 512


def use_records() -> None:
    """Load what most modes do without."""
    global _records  # noqa: PLW0603
    if TYPE_CHECKING or not __package__:
        import _records
    else:
        from . import _records


def find_captures(profile: str, notes: list[str]) -> dict[str, str]:
    """Traces and records, by host; of both of one host the record, since it says the same."""

    def captures_in(folder: str) -> dict[str, str]:
        return dict(sorted((_proto.files_in(folder) | records_in(folder)).items()))

    none = "neither a .xplane.pb file nor a record"
    captures = find_files(profile, notes, captures_in, none)
    if os.path.isdir(profile):
        traces = _proto.files_in(os.path.dirname(next(iter(captures.values()))))
        n_both = sum(captures[host] != path for host, path in traces.items())
        if n_both:
            notes.append(f"{n_both} records taken, not the traces of their names")
    return captures


def records_in(folder: str) -> dict[str, str]:
    """The records in a folder, by host; also what should have become one."""
    found: dict[str, str] = {}
    for name in sorted(os.listdir(folder)):
        path = os.path.join(folder, name)
        is_json = name.endswith(RECORD_SUFFIXES) and TRACE_VIEWER not in name
        # A link that leads nowhere was to be one, too.
        is_file = os.path.isfile(path) or not os.path.exists(path)
        if is_json and is_file and is_record(path):
            found.setdefault(name.removesuffix(".gz").removesuffix(".json"), path)
    return found


def is_record(path: str) -> bool:
    import zlib

    try:
        with open(path, "rb") as file:
            head = file.read(N_HEAD)
        if path.endswith(".gz"):
            head = zlib.decompressobj(wbits=31).decompress(head, N_HEAD)
    except (OSError, zlib.error):
        # Whoever reads it says why that can't be done.
        return True
    head = head.translate(None, PADDING)
    return any(start.startswith(head[: len(start)]) for start in RECORD_STARTS)


def record_at(
    path: str, device: str | None, notes: list[str], on_read: OnRead | None
) -> _records.Record:
    """A record; of a trace that which would be made of it."""
    try:
        if not path.endswith(RECORD_SUFFIXES):
            asked = slice(None)
            return _records.record_of(record_of_trace("", path, device, asked, notes, on_read))
        with open(path, "rb") as file:
            found = _records.decode(file.read())
    except (OSError, MemoryError) as error:
        raise Absent("unreadable_record", detail=unreadable(path, error).fields["detail"]) from None
    except _records.NoAnswer as refusal:
        detail = f"{os.path.basename(path)}: {refusal.fields['detail']}"
        raise Absent(refusal.reason, detail=detail) from None
    available = [each["device"] for each in found["devices"]]
    if device is not None and device not in available:
        raise Absent(DEVICE_NOT_FOUND, available_devices=available)
    return found


def compare_captures(
    request: Request,
    notes: list[str],
    on_read: OnRead | None,
    *,
    baseline: str,
    baseline_device: str = DEVICE,
    baseline_host: str | None = None,
    steps: slice = slice(None),
    top: int = 50,
) -> Json:
    use_records()

    def read(profile: str, host: str | None, device: str, notes: list[str]) -> _records.Record:
        files = find_captures(profile, notes)
        return first_of(files, host, notes, lambda path: record_at(path, device, notes, on_read))

    device = request.device or DEVICE
    after = read(request.profile, request.host, device, notes)
    of_baseline: list[str] = []
    try:
        before = read(baseline, baseline_host, baseline_device, of_baseline)
    except Absent as absent:
        absent.fields["side"] = "baseline"
        raise
    finally:
        notes += [f"baseline: {note}" for note in of_baseline]
    devices = {"before_device": baseline_device, "after_device": device}
    compare = partial(_records.compare, before, after, **devices, steps=steps, top=top)
    return answer_of_records(request, compare, notes, baseline_dir=baseline)


def spread_of_captures(
    request: Request,
    notes: list[str],
    on_read: OnRead | None,
    *,
    steps: slice = slice(None),
    top: int = 50,
) -> Json:
    use_records()
    files = of_host(find_captures(request.profile, notes), request.host)

    def load(path: str) -> _records.Record:
        try:
            try:
                return record_at(path, request.device, [], on_read)
            except Absent as absent:
                if request.device is None or absent.reason != DEVICE_NOT_FOUND:
                    raise
            # Not that device; but the others tell that the host is there.
            return record_at(path, None, [], on_read)
        except Absent as absent:
            named = {"detail": f"{os.path.basename(path)}: {absent.reason}"}
            raise _records.NoAnswer(absent.reason, **named | absent.fields) from None

    # Of some the lines are asked for again: of a single one at once, and standard input is read
    # only once.
    load_again = lru_cache(maxsize=1)(load)
    loaders = [partial(load_again, path) for path in files.values()]
    spread = partial(_records.spread, loaders, device=request.device, steps=steps, top=top)
    return answer_of_records(request, spread, notes)


def answer_of_records(
    request: Request, compute: Callable[[], Json], notes: list[str], **said: str
) -> Json:
    try:
        fields = compute()
    except _records.NoAnswer as refusal:
        raise Absent(refusal.reason, **refusal.fields) from None
    notes += fields.pop("notes")
    answer = {
        "status": "ok",
        "mode": request.mode.name,
        "profile_dir": request.profile,
        **said,
        "notes": notes,
        **fields,
    }
    # Whoever made the records may have had longer ones.
    cut_texts(answer)
    return answer


# ----------------------------------------------------------------------------------------------
# The command line. A mode is a row of MODES; an option is a row of OPTIONS.


@record
class Mode:
    name: str
    # Takes what is asked, where notes go, who is told how far it is, and the mode's own options.
    answer: Callable[..., Json]
    says: str
    options: tuple[str, ...]
    example: str
    # Which device it is about if none is named; None for all.
    device: str | None = DEVICE


STEP_OPTIONS = ("--step", "--step-id")


def of_step(
    name: str, report: Callable[..., Report], says: str, options: tuple[str, ...], example: str
) -> Mode:
    """A mode that reports on one step."""
    return Mode(name, partial(answer_on_step, report), says, (*STEP_OPTIONS, *options), example)


PEAK_OPTIONS = (
    "--chip",
    *(f"--peak-tflops-{dtype}" for dtype in _peaks.DTYPES),
    "--peak-hbm-gibps",
)
MODES = (
    of_step(
        "bottleneck",
        bottleneck,
        "where to look first: what the step's time is lost to, and on which lines",
        ("--top", *PEAK_OPTIONS, "--kernel-cost", "--model-flops"),
        "--top 5",
    ),
    of_step(
        "summary",
        summary,
        "the costliest source lines, and the step's time by kind and category",
        ("--top", "--include-comm"),
        "--top 10",
    ),
    of_step(
        "by_source",
        by_source,
        "every source line, complete",
        ("--include-data-move", "--include-comm", "--top"),
        "--include-data-move",
    ),
    of_step(
        "non_compute",
        non_compute,
        "what is data movement and waiting rather than math",
        ("--no-comm-stalls", "--include-comm", "--top"),
        "--no-comm-stalls",
    ),
    of_step(
        "roofline",
        roofline,
        "how far each source line is from what the chip could do",
        (
            *PEAK_OPTIONS,
            "--bytes",
            "--kernel-cost",
        ),
        "--peak-tflops-fp32 70",
    ),
    of_step(
        "comm",
        comm,
        "what communication costs, what hides it, and what it moves",
        ("--top",),
        "--top 10",
    ),
    of_step(
        "memory",
        memory,
        "what fills the HBM when it is fullest, by buffer and source line",
        ("--top",),
        "--top 10",
    ),
    Mode(
        "record",
        record_capture,
        "all steps of all devices as one small object, to be kept and compared",
        ("--steps",),
        "--steps 1:",
        device=None,
    ),
    Mode(
        "compare",
        compare_captures,
        "what a change did: two captures line by line, and what of it is more than noise",
        ("--baseline", "--baseline-device", "--baseline-host", "--steps", "--top"),
        "--baseline BASELINE",
    ),
    Mode(
        "spread",
        spread_of_captures,
        "which device of which host is slow, and on which lines",
        ("--steps", "--top"),
        "--top 5",
        device=None,
    ),
)


def natural(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError
    return number


def index_or_all(text: str) -> int | str:
    return text if text == ALL_STEPS else int(text)


def slice_of(text: str) -> slice:
    start, stop = (int(part) if part else None for part in text.split(":"))
    return slice(start, stop)


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
TO_STEP = converter(index_or_all, f"a whole number, or {ALL_STEPS}")
TO_SLICE = converter(slice_of, "A:B as a slice of Python, such as 2: or :-1")
TO_COST = converter(
    cost, f"NAME=FLOPS,BYTES[,DTYPE], where DTYPE is one of {', '.join(_peaks.DTYPES)}"
)


TO_COUNT = converter(count, "a whole number from 0 that fits into 63 bits")


def peak_of(what: str) -> Callable[[str], tuple[str, float]]:
    """For one of the options that override a peak."""
    return converter(lambda text: (what, peak(text)), "a finite number above 0")


# What argparse is told of each option. None has a default here: the modes have them.
OPTIONS: dict[str, Json] = {
    "--device": {
        "metavar": "NAME",
        "help": f"exact name of the plane (default: {DEVICE}; in record and spread all TPUs)",
    },
    "--host": {
        "metavar": "NAME",
        "help": "which file of a multi-host run: its name without .xplane.pb"
        " (default: the first by name that can be read and has the device)",
    },
    "--step": {
        "metavar": "N",
        "type": TO_STEP,
        "help": "which step by time, from 0; negative from the end; all for every op"
        " (default: the typical of the busiest)",
    },
    "--step-id": {"metavar": "NAME", "help": "which step, by its exact name"},
    "--steps": {
        "metavar": "A:B",
        "type": TO_SLICE,
        "help": "which steps by time, as a slice of Python; one that begins below 0 as"
        " --steps=-3: (default: all)",
    },
    "--baseline": {"metavar": "PROFILE", "help": "the capture before the change (required)"},
    "--baseline-device": {"metavar": "NAME", "help": f"its device (default: {DEVICE})"},
    "--baseline-host": {"metavar": "NAME", "help": "which file of its hosts'"},
    "--top": {
        "metavar": "K",
        "type": TO_NATURAL,
        "help": "how many rows (default: 8 in bottleneck, 20 in comm, 20 in memory, 50 in"
        " summary, 50 in compare, 50 in spread, else all in order of appearance)",
    },
    "--include-comm": {"action": "store_true", "help": "also rank or list communication"},
    "--include-data-move": {"action": "store_true", "help": "also list data movement"},
    "--no-comm-stalls": {"action": "store_true", "help": "leave out waits for communication"},
    "--chip": {
        "choices": [*_peaks.CHIPS, _peaks.PROFILE_CHIP],
        "help": "whose peaks; profile: those that the trace gives"
        f" (default: those of the trace's device, else {_peaks.DEFAULT_CHIP})",
    },
    **{
        f"--peak-tflops-{dtype}": {
            "dest": "peaks",
            "metavar": "X",
            "type": peak_of(dtype),
            "action": "append",
            "help": f"override the {dtype} peak",
        }
        for dtype in _peaks.DTYPES
    },
    "--peak-hbm-gibps": {
        "dest": "peaks",
        "metavar": "X",
        "type": peak_of("hbm_gibps"),
        "action": "append",
        "help": "override the HBM peak, in GiB/s",
    },
    "--bytes": {
        "dest": "traffic",
        "choices": ["accessed", "hbm"],
        "help": "count the bytes of all memories, or of HBM alone (default: accessed)",
    },
    "--model-flops": {
        "metavar": "F",
        "type": TO_COUNT,
        "help": "useful flops of the step on one device, by batch and model: gives the mfu",
    },
    "--kernel-cost": {
        "metavar": "NAME=FLOPS,BYTES[,DTYPE]",
        "type": TO_COST,
        "action": "append",
        "help": "what one execution of a custom kernel costs (repeatable)",
    },
}
PIPELINE_OPTIONS = ("--device", "--host")


class BadArguments(Exception):
    def __init__(self, usage: str, detail: str) -> None:
        super().__init__(detail)
        self.usage = usage


class Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise BadArguments(self.format_usage(), message)

    def _print_message(self, message: str, file: Any = None) -> None:
        # Of --help and --version.
        write(sys.stdout, message)


def called() -> str:
    """What the user called, for the usage."""
    if not IS_COMMAND:
        return "compute_breakdown.py"
    if sys.modules["__main__"].__spec__ is not None:
        return "python -m compute_breakdown"
    return os.path.basename(sys.argv[0])


@record
class Request:
    """The command line, understood."""

    profile: str
    mode: Mode
    device: str | None
    host: str | None
    mode_options: Json


def parse_command_line(argv: Sequence[str] | None) -> Request:
    parser = Parser(
        prog=called(),
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
        help="an .xplane.pb file, plain or gzipped, or a run or log directory that holds some;"
        " - for one on standard input; for compare and spread also a record, .json or .json.gz,"
        " or a directory of records",
    )
    parser.add_argument(
        "--mode", required=True, metavar="MODE", choices=[mode.name for mode in MODES],
        help=", ".join(mode.name for mode in MODES),
    )  # fmt: skip
    parser.add_argument("--version", action="version", version=f"compute_breakdown {__version__}")
    common = (*PIPELINE_OPTIONS, *STEP_OPTIONS)
    dest_of = {flag: parser.add_argument(flag, **OPTIONS[flag]).dest for flag in common}
    modes_of: dict[str, list[str]] = {}
    for mode in MODES:
        says = f"{mode.says}\nexample: %(prog)s PROFILE --mode {mode.name} {mode.example}"
        shared = [flag for flag in mode.options if flag in modes_of and flag not in common]
        if shared:
            says += f"\nalso takes {', '.join(shared)}"
        section = parser.add_argument_group(f"--mode {mode.name}", says)
        for flag in mode.options:
            if flag not in dest_of:
                dest_of[flag] = section.add_argument(flag, **OPTIONS[flag]).dest
            modes_of.setdefault(flag, []).append(mode.name)
    for word in sys.argv[1:] if argv is None else argv:
        if word.startswith("--") and word.endswith("=--"):
            # To argparse it would be nothing at all, whatever the option takes.
            parser.error(f"argument {word[:-3]}: takes no --")
    given = vars(parser.parse_args(argv))
    mode = next(mode for mode in MODES if mode.name == given["mode"])
    for flag, names in modes_of.items():
        if dest_of[flag] in given and flag not in mode.options:
            parser.error(f"{flag} belongs to --mode {' or '.join(names)}")
    if "step" in given and "step_id" in given:
        parser.error("--step and --step-id exclude each other")
    if mode.name == "compare" and "baseline" not in given:
        parser.error("--mode compare takes --baseline PROFILE, the capture before the change")
    if given["profile"] == given.get("baseline") == _proto.STDIN:
        parser.error("there is only one standard input: PROFILE and the baseline can't both be -")
    kernels = [cost.kernel for cost in given.get("kernel_cost", ())]
    if len(set(kernels)) < len(kernels):
        parser.error("--kernel-cost was given twice for one kernel")
    return Request(
        profile=given["profile"],
        mode=mode,
        device=given.get("device", mode.device),
        host=given.get("host"),
        mode_options={
            dest_of[flag]: given[dest_of[flag]] for flag in mode.options if dest_of[flag] in given
        },
    )


class Progress:
    """One line on a terminal that erases itself, for runs that take longer than a second."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._process = os.getpid()
        self._due = time.monotonic() + 1
        self._shown = False

    def __call__(self, doing: str, done: int, whole: int) -> None:
        """So many bytes are done; how many there are is 0 where nobody knows."""
        now = time.monotonic()
        # Of two processes at work one tells.
        if now >= self._due and os.getpid() == self._process:
            self._due = now + 0.1
            self._shown = True
            how_far = f"{100 * done // whole} %" if whole else f"{done >> 20} MiB"
            self._show(f"{doing}: {how_far}")

    def erase(self) -> None:
        if self._shown:
            self._show("")

    def _show(self, line: str) -> None:
        try:
            write(self._stream, f"\r\x1b[K{line}")
        except OSError:
            # The terminal went away: no reason to stop.
            self._due = math.inf


def analyse(request: Request, notes: list[str]) -> Json:
    """The whole pipeline."""
    progress = Progress(sys.stderr) if sys.stderr and sys.stderr.isatty() else None
    try:
        return request.mode.answer(request, notes, progress, **request.mode_options)
    finally:
        if progress:
            progress.erase()


@record
class Outcome:
    """What to print, the exit status, and what to say on stderr."""

    fields: Json
    status: int
    complaint: str


# Python takes memory from the system by the mebibyte, even for a line of text.
KEPT_FOR_REFUSALS = 4 << 20


@contextmanager
def some_memory_kept() -> Iterator[None]:
    """Whatever fails for want of memory in here is a MemoryError, and there is some to say so."""
    # Zeros that nobody reads take none of the machine's memory, only of what is allowed.
    kept = bytes(KEPT_FOR_REFUSALS)
    try:
        yield
    except (Absent, BadArguments, _proto.NoProtobuf):
        raise
    except Exception:
        # A module that is imported late, or a frame of Python's own, fails in other words.
        _proto.check_memory()
        raise
    finally:
        del kept


HINT = "compute_breakdown: `| jq .totals` shows a part of this, --top 5 fewer rows of most modes\n"


def outcome_of(argv: Sequence[str] | None) -> Outcome:
    request = None
    usage = ""
    notes: list[str] = []
    try:
        with some_memory_kept():
            request = parse_command_line(argv)
            fields = analyse(request, notes)
        return Outcome(fields, OK, "")
    except BadArguments as error:
        usage = error.usage
        absent = Absent("bad_arguments", detail=str(error))
    except Absent as error:
        # Without the frames that it came through: they hold what was read.
        absent = error.with_traceback(None)
    except MemoryError as error:
        absent = unreadable(request.profile if request else "", error)
    except _proto.NoProtobuf as error:
        advice = f"{error}; it takes protobuf 4.21.1 or newer: pip install 'protobuf>=4.21.1'"
        absent = Absent("protobuf_not_installed", detail=advice)
    asked = {
        "mode": request.mode.name if request else None,
        "profile_dir": request.profile if request else None,
        "device": request.device if request else None,
        "notes": notes,
    }
    return refusal(absent, asked, usage)


def refusal(absent: Absent, asked: Json, usage: str = "") -> Outcome:
    fields = {"status": "absent", "reason": absent.reason, **asked, **absent.fields}
    cut_texts(fields)
    complaint = ""
    if absent.exit_status:
        line = f"compute_breakdown: {absent.reason}: {fields.get('detail', '')}"
        complaint = f"{usage}{''.join(c if c.isprintable() else '?' for c in line)}\n"
    return Outcome(fields, absent.exit_status, complaint)


# How long a text of the output may be. All that are longer than short together may take so much,
# and so much more for each byte of the file; else the limit is lowered until they do: thousands
# of ops may share one text.
LONGEST_TEXT, SHORT_TEXT = 1 << 16, 1 << 7
ALL_TEXTS, TEXT_PER_BYTE = 8 << 20, 4


def cut_texts(fields: Json, file_size: int = 0) -> None:
    """Cut texts that are too long, in place; a note counts them."""
    sizes = [len(text) for text in texts_in(fields) if len(text) > SHORT_TEXT]
    limit = LONGEST_TEXT
    allowed = ALL_TEXTS + TEXT_PER_BYTE * file_size
    while limit > SHORT_TEXT and sum(min(size, limit) for size in sizes) > allowed:
        limit //= 2
    n_cut = sum(size > limit for size in sizes)
    if n_cut:
        cut_in(fields, limit)
        fields["notes"].append(f"{n_cut} texts are longer than {limit} characters: cut")


def texts_in(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield key
            if isinstance(item, (str, list, dict)):
                yield from texts_in(item)
    else:
        for item in value:
            if isinstance(item, (str, list, dict)):
                yield from texts_in(item)


def cut_in(value: Any, limit: int) -> None:
    places = list(enumerate(value)) if isinstance(value, list) else list(value.items())
    for place, item in places:
        if isinstance(item, (list, dict)):
            cut_in(item, limit)
        elif isinstance(item, str):
            value[place] = cut(item, limit)
    if isinstance(value, dict) and max(map(len, value), default=0) > limit:
        for key in list(value):
            # Taken out and put in, each of them, to keep the order.
            item, name = value.pop(key), cut(key, limit)
            while name in value:
                name += "…"
            value[name] = item


def cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else f"{text[:limit]}…"


def main(argv: Sequence[str] | None = None) -> int:
    # Nothing here makes cycles; looking for them all the same takes a sixth of the time.
    gc.disable()
    try:
        if IS_COMMAND and signal.getsignal(signal.SIGINT) is signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        outcome = outcome_of(argv)
        for_people = sys.stdout is not None and sys.stdout.isatty()
        try:
            text = encoded(outcome.fields, for_people)
        except MemoryError as error:
            asked = {key: outcome.fields[key] for key in ("mode", "profile_dir", "device", "notes")}
            # There is some again without the answer.
            outcome.fields.clear()
            outcome = refusal(unreadable(asked["profile_dir"], error), asked)
            text = encoded(outcome.fields, for_people)
        write(sys.stdout, text)
        status, complaint = outcome.status, outcome.complaint
        if for_people and not complaint and sys.stderr is not None and sys.stderr.isatty():
            complaint = HINT
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        return CLOSED_PIPE
    except OSError as error:
        status, complaint = CANT_WRITE, f"compute_breakdown: can't write: {error.strerror}\n"
    with suppress(OSError):
        write(sys.stderr, complaint)
    return status


def encoded(fields: Json, for_people: bool) -> str:
    form: Json = {"indent": 2} if for_people else {}
    if fields["mode"] == "record":
        # To be kept, not read.
        form = {"separators": (",", ":")}
    text = json.dumps(fields, allow_nan=False, **form)
    # Escaped so that it can be put into a page as it is.
    return text.replace("</", r"<\/") + "\n"


def write(stream: TextIO | None, text: str) -> None:
    """Write all of it, and past the stream.

    What a stream couldn't write it keeps, tries again when the process ends, and makes that fail
    which had ended otherwise. Unbuffered, it may write a part and say nothing.
    """
    if stream is None:
        # It was closed from the start. By now its number may be that of another file.
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    fd = stream.fileno()
    left = memoryview(text.encode(stream.encoding, "backslashreplace"))
    while left:
        try:
            left = left[os.write(fd, left) :]
        except BlockingIOError:
            import select

            select.select([], [fd], [])


if __name__ == "__main__":
    sys.exit(main())
