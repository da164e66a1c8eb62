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

import hashlib
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from math import isfinite, prod
from typing import Any, TypeVar

from tests.naive_program import (
    COLLECTIVES,
    TRANSFERS,
    Dot,
    Entry,
    Instruction,
    Program,
    decode_entries,
    has_prefix,
)
from tests.naive_program import Cost as DeclaredCost
from tests.naive_wire import (
    Message,
    StatValue,
    decode_map,
    decode_stats,
    every,
    fields,
    last,
    signed,
)

Json = dict[str, Any]
T = TypeVar("T")
Label = TypeVar("Label", bound=Hashable)
Key = TypeVar("Key", bound=tuple[str, ...])


@dataclass
class Options:
    """The command line's options, by name."""

    device: str = "/device:TPU:0"
    step: int | str | None = None  # "all" for every op of the device
    step_id: str | None = None
    include_comm: bool = False
    top: int | None = None
    include_data_move: bool = False
    no_comm_stalls: bool = False
    chip: str | None = None
    peak_tflops_bf16: float | None = None
    peak_tflops_fp8: float | None = None
    peak_tflops_fp32: float | None = None
    peak_tflops_fp16: float | None = None
    peak_hbm_gibps: float | None = None
    kernel_cost: Sequence[str] = ()
    bytes: str = "accessed"


# --- the file ------------------------------------------------------------------------------------


def text_of(stats: dict[str, StatValue], name: str) -> str | None:
    value = stats.get(name)
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return value if isinstance(value, str) else None


def number_of(stats: dict[str, StatValue], name: str) -> Fraction | None:
    """A count of flops or bytes; None also for what can't be one (the compiler's -1, NaN, …)."""
    value = stats.get(name)
    if not isinstance(value, int | float) or not isfinite(value) or not 0 <= value < 2**63:
        return None
    return Fraction(int(value))


@dataclass
class Span:
    """From when to when something ran, by one of the two clocks."""

    start: int
    end: int

    @property
    def duration(self) -> int:
        return self.end - self.start

    def holds(self, time: int | None) -> bool:
        return time is not None and self.start <= time < self.end


@dataclass
class LineEvent:
    """An event as stored. `start` is absolute; None for an aggregated event, which has none."""

    metadata_id: int
    start: int | None
    duration: int
    stats: dict[str, StatValue]

    @property
    def on_trace(self) -> Span | None:
        """By the clock that is fitted to the host's; None if it has no valid time."""
        if self.start is None or self.duration < 0:
            return None
        return Span(self.start, self.start + self.duration)

    @property
    def on_device(self) -> Span | None:
        """As the core measured it; None if the event doesn't say."""
        offset = self.stats.get("device_offset_ps")
        duration = self.stats.get("device_duration_ps")
        if not isinstance(offset, int) or not 0 <= offset < 2**63:
            return None
        if not isinstance(duration, int) or not 0 <= duration < 2**63:
            return None
        return Span(offset, offset + duration)


@dataclass
class Line:
    name: str
    timestamp_ps: int
    events: list[LineEvent]


def decode_line(data: bytes, stat_names: dict[int, str]) -> Line:
    message = fields(data)
    timestamp_ps = signed(last(message, 3, 0)) * 1000
    events = []
    for event in map(fields, every(message, 4)):
        # Offset and num_occurrences are alternatives: the one written last holds.
        number, value = [(2, 0), *((n, v) for n, v in event if n in (2, 5))][-1]
        start = timestamp_ps + signed(value) if number == 2 else None
        stats = decode_stats(every(event, 4), stat_names)
        duration = signed(last(event, 3, 0))
        events.append(LineEvent(signed(last(event, 1, 0)), start, duration, stats))
    return Line(last(message, 2, b"").decode(), timestamp_ps, events)


@dataclass
class Plane:
    name: str
    lines: list[Line]
    ops: dict[int, Op]
    stats: dict[str, StatValue]

    def lines_named(self, name: str) -> list[Line]:
        return [line for line in self.lines if line.name == name]

    def events_of(self, name: str) -> list[LineEvent]:
        return [event for line in self.lines_named(name) for event in line.events]


def plane_name(message: Message) -> str:
    name: str = last(message, 2, b"").decode()
    return name


def decode_plane(message: Message) -> Plane:
    stat_names = {i: last(m, 2, b"").decode() for i, m in decode_map(message, 5).items()}
    return Plane(
        name=plane_name(message),
        lines=[decode_line(line, stat_names) for line in every(message, 3)],
        ops={
            i: Op(last(m, 2, b"").decode(), decode_stats(every(m, 5), stat_names))
            for i, m in decode_map(message, 4).items()
        },
        stats=decode_stats(every(message, 6), stat_names),
    )


# --- HLO text: a recursive-descent parser --------------------------------------------------------

DIGITS = "0123456789"
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
OPENING, CLOSING = "([{", ")]}"


@dataclass
class Shape:
    """An array (dtype set) or a tuple (dtype None) of `elements`."""

    text: str
    dtype: str | None = None
    dims: list[int] = field(default_factory=list)
    has_layout: bool = False
    minor_to_major: str = ""
    tiles: str = ""
    memory_space: str = ""
    elements: list[Shape] = field(default_factory=list)

    def arrays(self) -> list[Shape]:
        """The arrays in it, depth first. Tokens and opaque handles hold no data."""
        if self.dtype is None:
            return [array for element in self.elements for array in element.arrays()]
        return [] if self.dtype in ("token", "opaque") else [self]

    @property
    def n_elements(self) -> int:
        return prod(self.dims)


@dataclass
class HloText:
    """As much of an HLO text as could be read."""

    name: str | None = None
    output: Shape | None = None
    opcode: str | None = None
    operands: list[Shape] = field(default_factory=list)
    attributes: dict[str, str] = field(default_factory=dict)

    def operand_arrays(self) -> list[Shape]:
        return [array for operand in self.operands for array in operand.arrays()]


class NotHloError(Exception):
    pass


class HloParser:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def next_is(self, token: str) -> bool:
        return self.text.startswith(token, self.at)

    def at_end(self) -> bool:
        return self.at >= len(self.text)

    def accept(self, token: str) -> bool:
        found = self.next_is(token)
        if found:
            self.at += len(token)
        return found

    def expect(self, token: str) -> None:
        if not self.accept(token):
            raise NotHloError

    def run_of(self, characters: str) -> str:
        start = self.at
        while not self.at_end() and self.text[self.at] in characters:
            self.at += 1
        return self.text[start : self.at]

    def skip_blanks(self) -> None:
        """Blanks and comments, such as the /*index=5*/ of long tuples."""
        while True:
            if self.next_is("/*") and "*/" in self.text[self.at :]:
                self.at = self.text.index("*/", self.at) + 2
            elif not self.run_of(" "):
                return

    def instruction(self) -> HloText:
        found = HloText()
        try:
            self.accept("%")
            name = self.run_of(LETTERS + DIGITS + "_-.")
            self.skip_blanks()
            if not self.at_end() and not self.next_is("="):
                raise NotHloError
            found.name = name or None
            self.expect("=")
            found.output = self.shape()
            self.skip_blanks()
            opcode = self.run_of(LETTERS + DIGITS + "_-")
            self.expect("(")
            found.opcode = opcode or None
            found.operands = self.operands()
            while self.accept(","):
                self.skip_blanks()
                key = self.run_of(LETTERS + DIGITS + "_")
                self.expect("=")
                found.attributes[key] = self.free_text(until=",")
        except NotHloError:
            pass
        return found

    def shape(self) -> Shape:
        self.skip_blanks()
        start = self.at
        if self.accept("("):
            elements = self.tuple_elements()
            return Shape(self.text[start : self.at], elements=elements)
        dtype = self.run_of(LETTERS + DIGITS)
        if not dtype or dtype[0] in DIGITS:
            raise NotHloError
        shape = Shape("", dtype)
        self.expect("[")
        if not self.accept("]"):
            shape.dims = self.dims()
        if self.accept("{"):
            shape.has_layout = True
            self.layout(shape)
        shape.text = self.text[start : self.at]
        return shape

    def tuple_elements(self) -> list[Shape]:
        elements: list[Shape] = []
        self.skip_blanks()
        if self.accept(")"):
            return elements
        while True:
            elements.append(self.shape())
            self.skip_blanks()
            if self.accept(")"):
                return elements
            self.expect(",")

    def dims(self) -> list[int]:
        dims = []
        while True:
            self.accept("<=")
            digits = self.run_of(DIGITS)
            if not digits:
                raise NotHloError
            dims.append(int(digits))
            if self.accept("]"):
                return dims
            self.expect(",")

    def layout(self, shape: Shape) -> None:
        shape.minor_to_major = self.run_of(DIGITS + ",")
        if self.accept(":"):
            while not self.next_is("}"):
                letter = self.run_of(LETTERS)
                start = self.at
                while self.accept("("):
                    self.free_text(until=")")
                    self.expect(")")
                if not letter or self.at == start:
                    raise NotHloError
                if letter == "T":
                    shape.tiles = self.text[start : self.at]
                if letter == "S":
                    shape.memory_space = self.text[start : self.at]
        self.expect("}")

    def operands(self) -> list[Shape]:
        """The shapes of those operands that show one."""
        shapes: list[Shape] = []
        self.skip_blanks()
        if self.accept(")"):
            return shapes
        while True:
            self.skip_blanks()
            start = self.at
            try:
                shapes.append(self.shape())
            except NotHloError:  # a bare name, or the value of a constant or parameter
                self.at = start
            self.free_text(until=",)")
            if self.accept(")"):
                return shapes
            self.expect(",")

    def free_text(self, until: str) -> str:
        """Anything up to one of `until` (or the text's end) outside brackets and quotes."""
        start = self.at
        depth = 0
        while not self.at_end():
            character = self.text[self.at]
            if depth == 0 and character in until:
                break
            if character == '"':
                self.quoted()
                continue
            depth += (character in OPENING) - (character in CLOSING)
            self.at += 1
        return self.text[start : self.at]

    def quoted(self) -> None:
        self.expect('"')
        while not self.accept('"'):
            if self.at_end():
                raise NotHloError
            self.at += 2 if self.next_is("\\") else 1


def parse_shape(text: str) -> Shape | None:
    parser = HloParser(text)
    try:
        shape = parser.shape()
    except NotHloError:
        return None
    return shape if parser.at_end() else None


# --- one op: its facts and how it is classed -----------------------------------------------------

KINDS = ("compute", "data_move", "comm", "other")
PHASES = ("forward", "backward", "recompute", "other", "unknown")
FLOAT_DTYPES = ("bf16", "fp8", "fp32", "fp16")
CONTAINERS = ("while", "conditional", "call", "megacore fusion")


def words(text: str) -> list[str]:
    return text.split()


ELEMENTWISE = words(
    "abs add and atan2 cbrt ceil clamp compare complex cosine count-leading-zeros divide erf "
    "exponential exponential-minus-one floor imag is-finite log log-plus-one logistic maximum "
    "minimum multiply negate not or popcnt power real remainder round-nearest-afz "
    "round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign "
    "sine sqrt subtract tan tanh xor"
)
COMPUTE = [
    "non-fusion elementwise",
    *ELEMENTWISE,
    *words("fusion convolution dot ragged-dot custom-call reduce reduce-window scatter sort"),
    *words("select-and-scatter topk map fft cholesky triangular-solve rng"),
]
DATA_MOVE = [
    "data formatting",
    *words("copy copy-start copy-done convert bitcast-convert stochastic-convert"),
    *words("reduce-precision bitcast broadcast concatenate dynamic-reshape dynamic-slice"),
    *words("dynamic-update-slice gather iota pad reshape reverse set-dimension-size slice"),
    "transpose",
]
BOOKKEEPING = words(
    "tuple get-tuple-element parameter constant after-all add-dependency domain opt-barrier "
    "partition-id replica-id get-dimension-size"
)
COMM_FUSIONS = ("all-reduce fusion", "all-gather fusion", "all-reduce-scatter fusion")
COMM = [
    name + suffix
    for name in [*COLLECTIVES, *TRANSFERS, "host send", "host recv"]
    for suffix in ("", "-start", "-done", "-update")
]
ASYNC = ("async-start", "async-update", "async-done")
LOCAL_ASYNC = words(
    "slice dynamic-slice dynamic-update-slice copy pad concatenate sparse-core-data-format "
    "gather_offload scatter_offload"
)


def is_async_fusion(category: str, name: str | None, which: str) -> bool:
    """Whether it is the `start` or the `done` of an asynchronous collective that is a pair of
    fusions, as on v5e."""
    return category.endswith("fusion") and has_prefix(name, f"async-collective-{which}")


def kind_of(category: str, name: str | None) -> str | None:
    """The kind of a category that is no container; None if no rule knows it."""
    if any(is_async_fusion(category, name, which) for which in ("start", "done")):
        return "comm"
    if category in ASYNC:
        return "data_move" if any(has_prefix(name, p) for p in LOCAL_ASYNC) else "comm"
    if category in COMM or category in COMM_FUSIONS:
        return "comm"
    if "infeed" in category or "outfeed" in category:
        return "comm"
    if category in COMPUTE or category.endswith(" fusion"):
        return "compute"
    if category.startswith(("convolution ", "rng-", "batch-norm-")):
        return "compute"
    if category in DATA_MOVE:
        return "data_move"
    if category in BOOKKEEPING:
        return "other"
    return None


def dtype_class(dtype: str | None) -> str:
    if dtype is not None and dtype.startswith("f8"):
        return "fp8"
    return {"bf16": "bf16", "f32": "fp32", "f16": "fp16"}.get(dtype or "", "other")


def width(dtype: str) -> int:
    """For comparing; other types are the widest, in that one of them decides."""
    return {"fp8": 0, "bf16": 1, "fp16": 1, "fp32": 2}.get(dtype, 3)


def n_bits(dtype: str) -> int:
    """As the name says it: bf16, s8, f8e4m3fn."""
    digits = dtype.lstrip(LETTERS)
    return int(digits[: len(digits) - len(digits.lstrip(DIGITS))] or "1")


def in_the_matrix_unit(dot: Dot) -> list[str]:
    """The dtypes of a dot's operands. One pass takes fp32 as bf16."""
    return [
        "bf16" if dtype == "f32" and precision == 0 and dot.algorithm == 0 else dtype_class(dtype)
        for dtype, precision in zip(dot.dtypes, dot.precisions, strict=True)
    ]


def is_matmul_input(array: Shape) -> bool:
    """A non-scalar of floats or of integers small enough for a matrix unit."""
    dtype = array.dtype or ""
    if not array.dims:
        return False
    if dtype[:1] in ("s", "u"):
        return dtype[1:].isdigit() and int(dtype[1:]) <= 8
    return dtype.startswith(("f", "bf"))


def is_ssa_part(segment: str) -> bool:
    if segment.isdigit():
        return True
    return segment.rstrip(DIGITS) in ("clone", "cloned", "remat")


def without_ssa_parts(name: str) -> str:
    """Where nothing would be left, the name as it is."""
    return ".".join(segment for segment in name.split(".") if not is_ssa_part(segment)) or name


@dataclass
class Op:
    """What an event executes: the HLO text and the stats of one metadata entry."""

    text: str
    stats: dict[str, StatValue]
    # What lies beside the trace under the op's program_id.
    entry: Entry | None = None

    @property
    def program_id(self) -> int | None:
        program_id = self.stats.get("program_id")
        return program_id % 2**64 if isinstance(program_id, int) else None

    @property
    def program(self) -> Program | None:
        return None if self.entry is None else self.entry.program

    @cached_property
    def instruction(self) -> Instruction | None:
        return None if self.program is None else self.program.named(self.hlo.name)

    @cached_property
    def hlo(self) -> HloText:
        return HloParser(self.text).instruction()

    @cached_property
    def category(self) -> str:
        category = text_of(self.stats, "hlo_category") or "<none>"
        if category == "non-fusion elementwise" and self.hlo.opcode == "convert":
            return "convert"
        return category

    @property
    def is_container(self) -> bool:
        return self.category in CONTAINERS

    @property
    def is_known(self) -> bool:
        return kind_of(self.category, self.hlo.name) is not None

    @property
    def kind(self) -> str:
        return kind_of(self.category, self.hlo.name) or "other"

    @property
    def is_async_fusion_start(self) -> bool:
        return is_async_fusion(self.category, self.hlo.name, "start")

    @property
    def is_async_fusion_done(self) -> bool:
        return is_async_fusion(self.category, self.hlo.name, "done")

    @property
    def is_wait(self) -> bool:
        return self.category.endswith("-done") or self.is_async_fusion_done

    @property
    def is_synchronous_comm(self) -> bool:
        """Communication that runs on the core."""
        in_part = self.category.endswith(("-start", "-update")) or self.is_async_fusion_start
        return self.kind == "comm" and not in_part and not self.is_wait

    @cached_property
    def source_stack(self) -> str | None:
        stack = text_of(self.stats, "source_stack") or ""
        return stack if stack.strip() else None

    @cached_property
    def source_inner(self) -> str | None:
        if self.source_stack is None:
            return text_of(self.stats, "source") or None
        frame = [line.strip() for line in self.source_stack.split("\n") if line.strip()][-1]
        parts = frame.split(":")
        has_column = len(parts) > 2 and all(p and not p.strip(DIGITS) for p in parts[-2:])
        return ":".join(parts[:-1]) if has_column else frame

    @property
    def tf_op(self) -> str | None:
        return text_of(self.stats, "tf_op") or None

    @cached_property
    def agg_key(self) -> str:
        if self.source_stack is not None:
            return "stack:" + hashlib.sha1(self.source_stack.encode()).hexdigest()[:16]
        if self.tf_op is not None:
            return "tfop:" + self.tf_op
        return "<no source>:" + self.category

    @property
    def agg_key_kind(self) -> str:
        if self.source_stack is not None:
            return "stack"
        return "no_source" if self.tf_op is None else "tf_op"

    @cached_property
    def flops(self) -> Fraction | None:
        return number_of(self.stats, "flops")

    @cached_property
    def model_flops(self) -> Fraction | None:
        return number_of(self.stats, "model_flops")

    @cached_property
    def bytes_accessed(self) -> Fraction | None:
        return number_of(self.stats, "bytes_accessed")

    @cached_property
    def hbm_bytes(self) -> Fraction | None:
        """Memory space 1 of the breakdown; a breakdown without it is a known zero, an empty one
        only where nothing else says that there must have been some."""
        breakdown = self.stats.get("memory_access_breakdown")
        if not isinstance(breakdown, bytes):
            return None
        try:
            accesses = [fields(access) for access in every(fields(breakdown), 1)]
        except ValueError:
            return None
        if not accesses and self.bytes_accessed and not self.is_all_on_chip:
            return None
        return Fraction(sum(last(a, 3, 0) for a in accesses if last(a, 2, 0) == 1))

    @property
    def is_all_on_chip(self) -> bool:
        """Whether the text shows arrays, and none of them in HBM or the host's memory."""
        spaces = [array.memory_space for array in self.hlo.operand_arrays() + self.output_arrays]
        return bool(spaces) and not any(space in ("", "(0)", "(5)") for space in spaces)

    @property
    def shape_with_layout(self) -> str | None:
        return text_of(self.stats, "shape_with_layout") or None

    @cached_property
    def dtype(self) -> str:
        shape = self.hlo.output or parse_shape(self.shape_with_layout or "")
        arrays = [] if shape is None else shape.arrays()
        return dtype_class(max(arrays, key=lambda a: a.n_elements).dtype) if arrays else "other"

    @cached_property
    def dots(self) -> list[Dot]:
        if self.program is None or self.instruction is None:
            return []
        return self.program.dots(self.instruction)

    @property
    def dtype_source(self) -> str:
        return "program" if self.dots else "output"

    @cached_property
    def peak_dtype(self) -> str:
        """The dtype whose peak the op is judged by."""
        operands = [dtype for dot in self.dots for dtype in in_the_matrix_unit(dot)]
        return max(operands, key=width) if operands else self.dtype

    @cached_property
    def matmul_inputs(self) -> list[Shape]:
        return [array for array in self.hlo.operand_arrays() if is_matmul_input(array)]

    @cached_property
    def dtype_uncertain(self) -> bool:
        capable = self.category.startswith("convolution") or self.category in (
            *("dot", "ragged-dot", "output fusion", "custom fusion", "custom-call"),
        )
        if not capable or self.dtype not in FLOAT_DTYPES or self.dots:
            return False
        inputs = self.matmul_inputs
        return not inputs or any(dtype_class(array.dtype) != self.dtype for array in inputs)

    @cached_property
    def operand_dtype(self) -> str | None:
        """Of the dot's wider operand, else of the largest matmul input; what has no peak keeps
        its HLO name."""
        of_dots = [dtype for dot in self.dots for dtype in dot.dtypes]
        dtype: str | None
        if of_dots:
            dtype = max(of_dots, key=n_bits)
        elif self.matmul_inputs:
            dtype = max(self.matmul_inputs, key=lambda a: a.n_elements).dtype
        else:
            return None
        named = dtype_class(dtype)
        return dtype if named == "other" else named

    @property
    def output_arrays(self) -> list[Shape]:
        return self.hlo.output.arrays() if self.hlo.output else []

    @property
    def shape_out(self) -> str | None:
        return self.hlo.output.text if self.hlo.output else None

    @cached_property
    def array_in(self) -> Shape | None:
        operands = self.hlo.operands
        if self.hlo.opcode == "copy-done" and operands and len(operands[0].elements) > 1:
            operands = [operands[0].elements[1]]  # (destination, source, context)
        arrays = [array for operand in operands for array in operand.arrays()]
        return arrays[0] if arrays else None

    @property
    def shape_in(self) -> str | None:
        return self.array_in.text if self.array_in else None

    @property
    def array_out(self) -> Shape | None:
        return self.output_arrays[0] if self.output_arrays else None

    @property
    def has_started_only(self) -> bool:
        is_start = self.category.endswith("-start") or (self.hlo.opcode or "").endswith("-start")
        return is_start or self.is_async_fusion_start

    @cached_property
    def dtype_changes(self) -> bool | None:
        if self.has_started_only or self.array_in is None or self.array_out is None:
            return None
        return self.array_in.dtype != self.array_out.dtype

    @cached_property
    def layout_changes(self) -> bool | None:
        before, after = self.array_in, self.array_out
        if self.has_started_only or before is None or after is None:
            return None
        if len(before.dims) != len(after.dims) or not before.has_layout or not after.has_layout:
            return None
        return (before.minor_to_major, before.tiles) != (after.minor_to_major, after.tiles)

    @cached_property
    def signature(self) -> str:
        name, target = self.hlo.name, self.hlo.attributes.get("custom_call_target")
        if self.hlo.opcode == "custom-call" and target is not None:
            return "custom-call:" + target.strip('"')
        is_fusion = self.is_async_fusion_start or self.is_async_fusion_done
        if is_fusion or self.category.endswith(" fusion") or self.category in ("fusion", *ASYNC):
            what = None if name is None else without_ssa_parts(name)
        else:
            what = self.hlo.opcode
        return f"{'<no text>' if what is None else what} [{self.category}]"

    @property
    def is_opaque(self) -> bool:
        return self.category == "custom-call" and not self.flops

    @cached_property
    def declared(self) -> DeclaredCost | None:
        if self.program is None or self.instruction is None:
            return None
        return self.program.declared(self.instruction)

    @cached_property
    def kernel(self) -> str | None:
        target = self.hlo.attributes.get("custom_call_target")
        if target != '"tpu_custom_call"' or not self.hlo.name:
            return None
        return without_ssa_parts(self.hlo.name)

    @cached_property
    def phase(self) -> str:
        if self.tf_op is None:
            return "unknown"
        if ".remat" in (self.hlo.name or "") or "/rematted_computation/" in self.tf_op:
            return "recompute"
        if "transpose(" in self.tf_op and "jvp" in self.tf_op:
            return "backward"
        return "forward" if "jvp(" in self.tf_op else "other"

    @property
    def collective_inside(self) -> str | None:
        """What the program says that an asynchronous op wraps."""
        if self.program is None or self.instruction is None:
            return None
        if not self.instruction.is_asynchronous:
            return None
        wrapped = self.program.collective_inside(self.instruction)
        return None if wrapped is None else wrapped.collective

    @cached_property
    def waits_for(self) -> str:
        # The category tells most; only what runs behind an async-done or a copy-done needs the
        # op's own name. An all-reduce-scatter computes a reduce-scatter.
        name = self.hlo.name or ""
        telling = name if self.category in ASYNC else self.category.replace(" ", ".")
        if telling.startswith("all-reduce-scatter"):
            return "reduce-scatter"
        for collective in (*COLLECTIVES, *TRANSFERS):
            if has_prefix(telling, collective):
                return collective
        if is_async_fusion(self.category, self.hlo.name, "start") or self.is_async_fusion_done:
            return self.collective_inside or "collective"
        if self.kind == "comm" and self.category in ASYNC:
            return "collective"
        arrays = self.hlo.operand_arrays() + self.output_arrays
        if self.kind == "comm" or any(array.memory_space == "(5)" for array in arrays):
            return "host"
        return "sparse_core" if "offload" in name or "sparse-core" in name else "dma"

    @property
    def is_copy_to_host(self) -> bool:
        """Of a start, whose output shows its source as well, the destination comes first."""
        outputs = self.output_arrays[:1] if self.has_started_only else self.output_arrays
        return any(array.memory_space == "(5)" for array in outputs)

    @cached_property
    def likely_source(self) -> LikelySource:
        """Whose data the op moves, or waits for."""
        program, instruction = self.program, self.instruction
        if program is None or instruction is None:
            return LikelySource.of(own=self.source_inner)
        collective = self.waits_for
        if collective == "collective":
            collective = self.collective_inside or collective
        own = program.own_line(instruction)
        inside = program.line_inside(instruction)
        producer, consumer = program.producer(instruction), program.consumer(instruction)
        if collective in ("reduce-scatter", "all-reduce") or self.is_copy_to_host:
            return LikelySource.of(own=own, inside=inside, producer=producer, consumer=consumer)
        return LikelySource.of(own=own, inside=inside, consumer=consumer, producer=producer)


@dataclass(frozen=True)
class LikelySource:
    line: str | None = None
    how: str | None = None

    @staticmethod
    def of(**lines: str | None) -> LikelySource:
        """The first line that there is, and its name."""
        known = [LikelySource(line, how) for how, line in lines.items() if line is not None]
        return known[0] if known else LikelySource()


@dataclass(eq=False)
class Event:
    """An admitted execution of a resolved op, by both clocks: the trace's decides where it
    belongs, and all else is the device's."""

    op: Op
    on_trace: Span
    on_device: Span

    @property
    def start(self) -> int:
        return self.on_device.start

    @property
    def end(self) -> int:
        return self.on_device.end

    @property
    def duration(self) -> int:
        return self.on_device.duration

    @property
    def group(self) -> tuple[str, str]:
        return self.op.agg_key, self.op.kind


# --- small helpers -------------------------------------------------------------------------------


def grouped(items: Iterable[T], key: Callable[[T], Label]) -> dict[Label, list[T]]:
    """The items by key, keys in order of first appearance."""
    groups: dict[Label, list[T]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return groups


def count_by(events: list[Event], label: Callable[[Op], str]) -> dict[str, int]:
    return {k: len(v) for k, v in grouped(events, lambda e: label(e.op)).items()}


def time_by(events: list[Event], label: Callable[[Op], str]) -> dict[str, int]:
    return {k: duration(v) for k, v in grouped(events, lambda e: label(e.op)).items()}


def duration(events: list[Event]) -> int:
    return sum(e.duration for e in events)


def longest(events: list[Event]) -> Event:
    """The first of the longest."""
    return max(events, key=lambda e: e.duration)


def fact_sum(values: Iterable[Fraction | None]) -> Fraction | None:
    known = [value for value in values if value is not None]
    return sum(known, Fraction(0)) if known else None


def hbm_bytes_sum(events: list[Event]) -> Fraction | None:
    if any(e.op.bytes_accessed and e.op.hbm_bytes is None for e in events):
        return None
    return fact_sum(e.op.hbm_bytes for e in events)


def number(value: Fraction | None) -> int | float | None:
    if value is None:
        return None
    return int(value) if value.denominator == 1 else float(value)


Rational = int | Fraction


def ratio(part: Rational | None, base: Rational | None, digits: int) -> float | None:
    if part is None or not base:
        return None
    return round(float(Fraction(part) / Fraction(base)), digits)


def pct(part: Rational, base: Rational) -> float | None:
    return ratio(100 * part, base, 3)


def whole_ps(value: Rational) -> int:
    return round(value)


def distinct(values: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(value for value in values if value is not None))


def union(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Disjoint intervals, in order, that cover the same; empty ones cover nothing."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted((s, e) for s, e in intervals if s < e):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def length(intervals: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in intervals)


# --- picking the step ----------------------------------------------------------------------------


@dataclass
class Step:
    """A step, or (without an index) the whole of the ops."""

    index: int | None
    name: str | None
    on_trace: Span
    on_device: Span | None = None
    n_events: int = 0

    def admits(self, start: int | None) -> bool:
        """An op by its start on the trace's clock. One without a time belongs to no step."""
        return self.index is None or self.on_trace.holds(start)


def read_steps(plane: Plane, line_name: str) -> list[Step]:
    """The events of a line that have a valid time."""
    timed = [(span, e) for e in plane.events_of(line_name) if (span := e.on_trace) is not None]
    timed.sort(key=lambda each: each[0].start)
    starts = [e.start for e in plane.events_of("XLA Ops")]
    return [
        Step(
            index=i,
            name=plane.ops[e.metadata_id].text if e.metadata_id in plane.ops else None,
            on_trace=span,
            on_device=e.on_device,
            n_events=sum(map(span.holds, starts)),
        )
        for i, (span, e) in enumerate(timed)
    ]


def as_busy_as_any(steps: list[Step]) -> list[Step]:
    most = max(step.n_events for step in steps)
    return [step for step in steps if step.n_events == most]


def busiest(steps: list[Step]) -> Step:
    """The one with most ops; of equally busy ones the typical, if none has any the middle one."""
    if all(step.n_events == 0 for step in steps):
        return steps[len(steps) // 2]
    typical = sorted(
        as_busy_as_any(steps), key=lambda step: (step.on_trace.duration, step.on_trace.start)
    )
    return typical[(len(typical) - 1) // 2]


def why_picked(step: Step, steps: list[Step], n_on_line: int) -> str:
    if step.n_events == 0:
        return "~no op starts in any step; took the middle one"
    n_as_busy = len(as_busy_as_any(steps))
    clause = f"; typical of {n_as_busy} as busy" if n_as_busy > 1 else ""
    return (
        f"auto-picked busiest step (idx={step.index}, n_xla_ops_events={step.n_events} of "
        f"{n_on_line} in {len(steps)} steps{clause})"
    )


def pick_step(steps: list[Step], options: Options, n_on_line: int, notes: list[str]) -> Step:
    if isinstance(options.step, int):
        index = options.step + (len(steps) if options.step < 0 else 0)
        matches = [step for step in steps if step.index == index]
    elif options.step_id is not None:
        matches = [step for step in steps if step.name == options.step_id]
    else:
        matches = steps
    if not matches:
        raise AbsentError("step_not_found", available_steps=[step.name for step in steps])
    step = busiest(matches)
    if matches is steps:
        notes.append(why_picked(step, steps, n_on_line))
    elif len(matches) > 1:
        notes.append("~several steps of that name; picked among them as among all")
    if step.n_events == 0:
        notes.append("no op starts in this step: it shows idle time only")
    return step


# --- the two clocks ------------------------------------------------------------------------------


@dataclass
class Clocks:
    """What the ops that have device times tell of the trace's clock and the device's."""

    timed: list[tuple[Span, Span]]  # on the trace's clock, on the device's

    def delta(self, time: int) -> int:
        """From a time on the trace's clock to the device's."""
        starts = [(on_trace.start, on_device.start) for on_trace, on_device in self.timed]
        ends = [(on_trace.end, on_device.end) for on_trace, on_device in self.timed]
        if not starts:
            return 0
        before = [times for times in starts + ends if times[0] <= time]
        on_trace, on_device = max(before) if before else min(starts)
        return on_device - on_trace

    def moved(self, span: Span) -> Span:
        start = span.start + self.delta(span.start)
        return Span(start, max(start, span.end + self.delta(span.end)))


def window_of(step: Step, events: list[Event], clocks: Clocks) -> Span:
    """The step's time on the clock that its ops' times are on."""
    if clocks.timed and step.on_device is not None:
        return step.on_device
    # The first op's δ, not that of the step's own start: so no op lies before the window.
    first = min(events, key=lambda e: e.start, default=None)
    delta = first.on_device.start - first.on_trace.start if first else 0
    start = step.on_trace.start + delta
    return Span(start, max(start, step.on_trace.end + clocks.delta(step.on_trace.end)))


# --- the analysis --------------------------------------------------------------------------------


class AbsentError(Exception):
    def __init__(self, reason: str, **more: Any) -> None:
        super().__init__(reason)
        self.answer: Json = {"reason": reason, **more}


def analyse(data: bytes, mode: str, **given: Any) -> Json:
    """What the program says about a file's bytes."""
    options = Options(**given)
    notes: list[str] = []
    common: Json = {"mode": mode, "device": options.device, "notes": notes}
    try:
        return {"status": "ok", **common, **analyse_device(data, mode, options, notes)}
    except AbsentError as absent:
        return {"status": "absent", **common, **absent.answer}


def find_plane(data: bytes, options: Options) -> Plane:
    """The device's plane, each op of it with what lies beside the trace."""
    planes = [fields(plane) for plane in every(fields(data), 1)]
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
    # What the trace says of an op's line holds for its instruction as well.
    for op in (e.op for e in events):
        line = text_of(op.stats, "source")
        if op.program is not None and op.hlo.name is not None and line:
            op.program.sources.setdefault(op.hlo.name, line)
    picked = Picked(
        plane=plane,
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
    else:
        answer |= Roofline(picked).answer()
    return answer


def times(events: list[Event]) -> Json:
    return {
        "n_executions": len(events),
        "total_dur_ps": duration(events),
        "min_dur_ps": min(e.duration for e in events),
        "max_dur_ps": max(e.duration for e in events),
        "avg_dur_ps": round(duration(events) / len(events)),
    }


def breakdown(events: list[Event]) -> tuple[list[Json], Json | None]:
    signatures = grouped(events, lambda e: e.op.signature)
    ranked = sorted(signatures, key=lambda s: (-duration(signatures[s]), s))
    rows = [
        {
            "signature": signature,
            "hlo_category": signatures[signature][0].op.category,
            "total_dur_ps": duration(signatures[signature]),
            "n_executions": len(signatures[signature]),
            "pct_of_group": pct(duration(signatures[signature]), duration(events)),
            "example_hlo_op": longest(signatures[signature]).op.text,
            "example_hlo_op_dur_ps": longest(signatures[signature]).duration,
        }
        for signature in ranked[:8]
    ]
    left_out = [e for signature in ranked[8:] for e in signatures[signature]]
    overflow = {
        "n_signatures": len(ranked[8:]),
        "n_executions": len(left_out),
        "total_dur_ps": duration(left_out),
    }
    return rows, overflow if left_out else None


def longest_first(groups: dict[Key, list[Event]]) -> list[list[Event]]:
    ranked = sorted(groups, key=lambda group: (-duration(groups[group]), group))
    return [groups[group] for group in ranked]


def tail_of(left_out: list[list[Event]]) -> Json:
    return {"n_groups_omitted": len(left_out), "dur_ps": sum(map(duration, left_out))}


def likely_sources(events: list[Event]) -> list[Json] | None:
    """Of a group without a stack, whose programs are there."""
    if events[0].op.source_stack is not None or all(e.op.program is None for e in events):
        return None
    lines = grouped(events, lambda e: e.op.likely_source.line)
    ranked = sorted(
        (line for line in lines if line is not None),
        key=lambda line: (-duration(lines[line]), line),
    )
    rows = []
    for line in ranked[:8]:
        ways = grouped(lines[line], lambda e: str(e.op.likely_source.how))
        rows.append(
            {
                "source_inner": line,
                "source_is": max(ways, key=lambda how: duration(ways[how])),
                "dur_ps": duration(lines[line]),
                "n_executions": len(lines[line]),
            }
        )
    shown = ranked[:8]
    rest = [e for e in events if e.op.likely_source.line not in shown]
    if rest:
        rows.append(
            {
                "source_inner": None,
                "source_is": None,
                "dur_ps": duration(rest),
                "n_executions": len(rest),
            }
        )
    return rows


def also_fused(events: list[Event]) -> list[Json] | None:
    """The lines inside a group's fusions that aren't the group's."""
    ops = grouped(events, lambda e: id(e.op))
    programs = [(events[0].op, events[0].op.program) for events in ops.values()]
    if all(program is None for _, program in programs):
        return None
    lines = [
        line
        for op, program in programs
        if program is not None and op.instruction is not None
        for line in program.fused(op.instruction)
        if line != events[0].op.source_inner
    ]
    ranked = sorted(set(lines), key=lambda line: (-lines.count(line), line))
    return [{"source_inner": line, "n_instructions": lines.count(line)} for line in ranked[:8]]


def any_change(events: list[Event], change: Callable[[Op], bool | None]) -> bool | None:
    comparable = [e for e in events if change(e.op) is not None]
    return any(change(e.op) for e in comparable) if comparable else None


def change_time(events: list[Event], change: Callable[[Op], bool | None]) -> int | None:
    """The time of those seen to change; None where none could be compared."""
    comparable = [e for e in events if change(e.op) is not None]
    return duration([e for e in comparable if change(e.op)]) if comparable else None


@dataclass
class Picked:
    """The picked step: its window and the events admitted to it, all by the device's clock, or by
    the trace's where that is the only one. Shown are times less `base`."""

    plane: Plane
    options: Options
    notes: list[str]
    steps: list[Step]
    step: Step
    window: Span
    base: int
    events: list[Event]
    n_dropped: int

    @property
    def duration(self) -> int:
        return self.window.duration

    @property
    def clocks_differ(self) -> bool:
        by = [abs(e.on_trace.duration - e.on_device.duration) for e in self.events]
        return 100 * sum(by) > duration(self.events) or 100 * max([0, *by]) > self.duration

    @cached_property
    def containers(self) -> list[Event]:
        return [e for e in self.events if e.op.is_container]

    @cached_property
    def leaves(self) -> list[Event]:
        return [e for e in self.events if not e.op.is_container]

    def of_kind(self, *kinds: str) -> list[Event]:
        return [e for e in self.leaves if e.op.kind in kinds]

    def covered(self, events: list[Event]) -> list[tuple[int, int]]:
        """The parts of the window in which one of the events runs."""
        return union((max(e.start, self.window.start), min(e.end, self.window.end)) for e in events)

    def program(self) -> Json:
        """The one that took most of the step."""
        by_id = grouped(self.leaves, lambda e: e.op.program_id)
        by_id.pop(None, None)
        chosen = max(by_id, key=lambda i: duration(by_id[i]), default=None)
        entry = None if chosen is None else by_id[chosen][0].op.entry
        return {
            "name": None if entry is None else entry.name,
            "program_id": None if chosen is None else str(chosen),
            "n_programs": len({e.op.program_id for e in self.events} - {None}),
            "hlo": entry is not None and entry.hlo is not None,
        }

    def totals(self) -> Json:
        kind_events = {kind: self.of_kind(kind) for kind in KINDS}
        whiles = [e for e in self.containers if e.op.category == "while"]
        waits = [e for e in self.leaves if e.op.is_wait]
        busy = length(self.covered(self.leaves))
        coverage = count_by(self.leaves, lambda op: op.agg_key_kind)
        return {
            "n_events_total": len(self.leaves),
            **{f"n_events_{kind}": len(events) for kind, events in kind_events.items()},
            "n_events_container": len(self.containers),
            "n_events_unresolved": self.n_dropped,
            **{f"{kind}_duration_ps": duration(events) for kind, events in kind_events.items()},
            "non_while_duration_ps_sum": duration(self.leaves),
            "while_container_duration_ps": duration(whiles),
            "while_pct_of_step": pct(duration(whiles), self.duration),
            "container_durations_ps": time_by(self.containers, lambda op: op.category),
            "container_self_duration_ps": length(self.covered(self.events)) - busy,
            "busy_duration_ps": busy,
            "idle_duration_ps": self.duration - busy,
            "idle_pct_of_step": pct(self.duration - busy, self.duration),
            "wait_duration_ps": duration(waits),
            "wait_pct_of_step": pct(duration(waits), self.duration),
            "agg_key_coverage": {k: coverage.get(k, 0) for k in ("stack", "tf_op", "no_source")},
            "unknown_categories": count_by(
                [e for e in self.leaves if not e.op.is_known], lambda op: op.category
            ),
        }

    # summary

    def summary(self) -> Json:
        kinds = ("compute", "comm") if self.options.include_comm else ("compute",)
        groups = grouped(self.of_kind(*kinds), lambda e: e.group)
        ranked = longest_first(groups)
        top = 50 if self.options.top is None else self.options.top
        rows = []
        for rank, events in enumerate(ranked[:top], 1):
            row = {"rank": rank, **self.group_row(events)}
            if self.options.include_comm:
                row["kind"] = events[0].op.kind
            rows.append(row)
        return {
            "top_compute_groups": rows,
            "tail_compute": tail_of(ranked[top:]),
            "by_kind_rollup": {
                kind: {
                    "n": len(self.of_kind(kind)),
                    "dur_ps": duration(self.of_kind(kind)),
                    "pct_of_step": pct(duration(self.of_kind(kind)), self.duration),
                }
                for kind in KINDS
            },
            "by_hlo_category": self.by_hlo_category(),
            "steps": self.step_rows(),
            "by_phase_rollup": self.by_phase_rollup(),
            "idle_gaps": self.idle_gaps(),
            "comm_rollup": self.comm_rollup(),
            "kernels": self.kernels(),
        }

    def group_row(self, events: list[Event]) -> Json:
        """The fields that a group has in summary as in by_source."""
        first, example = events[0].op, longest(events)
        rows, overflow = breakdown(events)
        return {
            "agg_key": first.agg_key,
            "agg_key_kind": first.agg_key_kind,
            "source_inner": first.source_inner,
            "tf_op": first.tf_op,
            "source_stack": first.source_stack,
            **times(events),
            "pct_of_compute": pct(duration(events), duration(self.of_kind("compute"))),
            "pct_of_step": pct(duration(events), self.duration),
            "hlo_categories": count_by(events, lambda op: op.category),
            "flops_sum": number(fact_sum(e.op.flops for e in events)),
            "bytes_accessed_sum": number(fact_sum(e.op.bytes_accessed for e in events)),
            "example_hlo_op": example.op.text,
            "example_hlo_op_dur_ps": example.duration,
            "hlo_op_breakdown": rows,
            "hlo_op_breakdown_overflow": overflow,
            "likely_sources": likely_sources(events),
            "phases": time_by(events, lambda op: op.phase),
        }

    def by_hlo_category(self) -> list[Json]:
        def label(event: Event) -> tuple[str, str]:
            op = event.op
            return op.category, "container" if op.is_container else op.kind

        groups = grouped(self.events, label)
        return [
            {
                "hlo_category": group[0],
                "kind": group[1],
                "n_executions": len(groups[group]),
                "total_dur_ps": duration(groups[group]),
                "pct_of_step": pct(duration(groups[group]), self.duration),
            }
            for group in sorted(groups, key=lambda group: (-duration(groups[group]), group))
        ]

    def step_rows(self) -> list[Json]:
        return [
            {
                "index": step.index,
                "name": step.name,
                "duration_ps": step.on_trace.duration,
                "n_xla_ops_events": step.n_events,
                **({"picked": True} if step is self.step else {}),
            }
            for step in self.steps
        ]

    def by_phase_rollup(self) -> Json:
        compute = self.of_kind("compute")
        phases = {p: [e for e in compute if e.op.phase == p] for p in PHASES}
        return {
            phase: {
                "n": len(events),
                "dur_ps": duration(events),
                "pct_of_compute": pct(duration(events), duration(compute)),
            }
            for phase, events in phases.items()
        }

    def idle_gaps(self) -> list[Json]:
        busy = self.covered(self.leaves)
        first, end = self.window.start, self.window.end
        edges = [first, *(edge for interval in busy for edge in interval), end]
        gaps = [(s, e) for s, e in zip(edges[::2], edges[1::2], strict=True) if s < e]
        running = [e for e in self.leaves if e.duration > 0]
        rows = []
        for start, end in sorted(gaps, key=lambda gap: (gap[0] - gap[1], gap[0]))[:10]:
            ending = [e for e in running if e.end == start]
            before = [e.op.text for e in sorted(ending, key=lambda e: e.start)]
            after = [e.op.text for e in running if e.start == end]
            around = [e for e in self.containers if e.start <= start < e.end]
            # The innermost began last; of those that began together it ends first, and the file
            # lists it after the ones around it.
            around.sort(key=lambda e: (-e.start, e.end))
            ties = [e for e in around if (e.start, e.end) == (around[0].start, around[0].end)]
            rows.append(
                {
                    "start_ps": start - self.base,
                    "dur_ps": end - start,
                    "pct_of_step": pct(end - start, self.duration),
                    "after_hlo_op": before[0] if before and start > self.window.start else None,
                    "before_hlo_op": after[0] if after and end < self.window.end else None,
                    "inside": ties[-1].op.hlo.name if ties else None,
                }
            )
        return rows

    def comm_rollup(self) -> list[Json]:
        exposed = [e for e in self.leaves if e.op.is_wait or e.op.is_synchronous_comm]
        groups = grouped(exposed, lambda e: e.op.waits_for)
        return [
            {
                "waits_for": name,
                "n": len(groups[name]),
                "sync_dur_ps": duration([e for e in groups[name] if not e.op.is_wait]),
                "wait_dur_ps": duration([e for e in groups[name] if e.op.is_wait]),
                "pct_of_step": pct(duration(groups[name]), self.duration),
                "longest_hlo_op": longest(groups[name]).op.text,
            }
            for name in sorted(groups, key=lambda name: (-duration(groups[name]), name))
        ]

    def kernel_groups(self) -> dict[str, list[Event]]:
        return grouped([e for e in self.leaves if e.op.kernel], lambda e: str(e.op.kernel))

    def kernels(self) -> list[Json]:
        groups = self.kernel_groups()
        return [
            {
                "kernel": name,
                **times(groups[name]),
                "pct_of_step": pct(duration(groups[name]), self.duration),
                "source_inner": groups[name][0].op.source_inner,
                "tf_op": groups[name][0].op.tf_op,
                "phases": time_by(groups[name], lambda op: op.phase),
                "shapes_in": [a.text for a in longest(groups[name]).op.hlo.operand_arrays()],
                "shapes_out": [longest(groups[name]).op.shape_out],
            }
            for name in sorted(groups, key=lambda name: (-duration(groups[name]), name))
        ]

    # by_source

    def by_source(self, totals: Json) -> Json:
        kinds = ["compute"]
        kinds += ["comm"] if self.options.include_comm else []
        kinds += ["data_move"] if self.options.include_data_move else []
        groups = grouped(self.of_kind(*kinds), lambda e: e.group)
        totals["n_groups_total"] = len(groups)
        shown, tail = self.shown(groups)
        return {"groups": [self.by_source_row(events) for events in shown], **tail}

    def shown(self, groups: dict[Key, list[Event]]) -> tuple[list[list[Event]], Json]:
        """All groups as they appear, or with --top the longest, and what that leaves out."""
        if self.options.top is None:
            return list(groups.values()), {}
        ranked = longest_first(groups)
        tail = tail_of(ranked[self.options.top :])
        return ranked[: self.options.top], {"tail": tail}

    def by_source_row(self, events: list[Event]) -> Json:
        shapes = distinct(e.op.shape_with_layout for e in events)
        known_inputs = [e for e in events if e.op.operand_dtype is not None]
        return {
            **self.group_row(events),
            "kind": events[0].op.kind,
            "model_flops_sum": number(fact_sum(e.op.model_flops for e in events)),
            "dtypes": count_by(events, lambda op: op.dtype),
            "dtype_uncertain": any(e.op.dtype_uncertain for e in events),
            "shapes": shapes[:8],
            "shapes_truncated": len(shapes) > 8,
            "hbm_bytes_sum": number(hbm_bytes_sum(events)),
            "operand_dtypes": time_by(known_inputs, lambda op: str(op.operand_dtype)),
            "also_fused": also_fused(events),
        }

    # non_compute

    def non_compute(self, totals: Json) -> Json:
        stall_label = "async-done (comm stall)"

        def is_stall(op: Op) -> bool:
            return op.kind == "comm" and op.is_wait

        def is_listed(op: Op) -> bool:
            if is_stall(op):
                return not self.options.no_comm_stalls
            return op.kind == "data_move" or (op.kind == "comm" and self.options.include_comm)

        def label(event: Event) -> tuple[str, str]:
            return stall_label if is_stall(event.op) else event.op.category, event.op.kind

        def source(event: Event) -> tuple[str, str, str]:
            category, kind = label(event)
            return event.op.agg_key, kind, category

        listed = [e for e in self.leaves if is_listed(e.op)]
        if any(is_stall(e.op) for e in listed):
            self.notes.append(
                f"asynchronous communication waits included as '{stall_label}'; "
                "pass --no-comm-stalls to leave them out"
            )
        totals["non_compute_duration_ps"] = duration(listed)
        totals["non_compute_pct_of_step"] = pct(duration(listed), self.duration)
        totals["non_compute_pct_of_compute"] = pct(duration(listed), totals["compute_duration_ps"])

        categories = []
        for (category, kind), events in grouped(listed, label).items():
            coverage = count_by(events, lambda op: op.agg_key_kind)
            categories.append(
                {
                    "hlo_category": category,
                    "kind": kind,
                    **times(events),
                    "n_groups": len({e.op.agg_key for e in events}),
                    "agg_key_coverage": {
                        k: coverage.get(k, 0) for k in ("stack", "tf_op", "no_source")
                    },
                }
            )
        sources = []
        shown, tail = self.shown(grouped(listed, source))
        for events in shown:
            first = events[0].op
            sources.append(
                {
                    "hlo_category": label(events[0])[0],
                    "kind": first.kind,
                    "agg_key": first.agg_key,
                    "agg_key_kind": first.agg_key_kind,
                    "source_inner": first.source_inner,
                    "source_stack": first.source_stack,
                    "tf_op": first.tf_op,
                    **times(events),
                    "shapes_in": distinct(e.op.shape_in for e in events)[:4],
                    "shapes_out": distinct(e.op.shape_out for e in events)[:4],
                    "dtype_change": any_change(events, lambda op: op.dtype_changes),
                    "dtype_change_dur_ps": change_time(events, lambda op: op.dtype_changes),
                    "layout_change": any_change(events, lambda op: op.layout_changes),
                    "layout_change_dur_ps": change_time(events, lambda op: op.layout_changes),
                    "likely_sources": likely_sources(events),
                    "example_hlo_op": longest(events).op.text,
                }
            )
        return {"by_category": categories, "by_source_within_category": sources, **tail}


# --- roofline ------------------------------------------------------------------------------------

# chip: (TFLOPS by dtype, HBM in GiB/s)
CHIPS: dict[str, tuple[dict[str, float], float]] = {
    "v7x": ({"bf16": 1153.5, "fp8": 2307.0}, 3690.0),
    "v6e": ({"bf16": 918.0}, 1638 * 10**9 / 2**30),
    "v5p": ({"bf16": 459.0}, 2765 * 10**9 / 2**30),
    "v5e": ({"bf16": 197.0}, 819 * 10**9 / 2**30),
    "v4": ({"bf16": 275.0}, 1228 * 10**9 / 2**30),
}
DEVICE_TYPES = {
    "v7x": ("TPU v7x", "TPU7x", "TPU v7"),
    "v6e": ("TPU v6 Lite", "TPU v6e"),
    "v5p": ("TPU v5", "TPU v5p"),
    "v5e": ("TPU v5 Lite", "TPU v5e"),
    "v4": ("TPU v4",),
}


def chip_of(device_type: str) -> str | None:
    named = [chip for chip, names in DEVICE_TYPES.items() if device_type in names]
    return named[0] if named else None


@dataclass
class Cost:
    """What one execution takes, in flops and bytes, and of which dtype it is."""

    flops: Fraction | None
    accessed: Fraction | None
    hbm: Fraction | None
    dtype: str


@dataclass
class Part:
    """The executions of one group that make one row, or one entry of the skipped."""

    group: list[Event]
    events: list[Event]
    cost_source: str | None
    kernel: str | None = None

    @property
    def is_opaque(self) -> bool:
        return self.cost_source is None


def is_over_roof(row: Json) -> bool:
    """As the row shows it, rounded: more than the peaks allow."""
    return row["roofline_util"] is not None and row["roofline_util"] > 1


class Roofline:
    def __init__(self, step: Picked) -> None:
        self.step = step
        self.options = step.options
        self.user_costs: dict[str, tuple[Fraction, Fraction, str | None]] = {}
        for cost in self.options.kernel_cost:
            kernel, _, figures = cost.partition("=")
            flops, size, *dtype = figures.split(",")
            self.user_costs[kernel] = Fraction(flops), Fraction(size), [None, *dtype][-1]
        kernels = distinct(e.op.kernel for e in step.of_kind("compute"))
        if not set(self.user_costs) <= set(kernels):
            raise AbsentError("kernel_not_found", available_kernels=kernels)
        device_type = text_of(step.plane.stats, "device_type_string") or ""
        self.chip = self.options.chip or chip_of(device_type) or "v7x"
        if self.chip != "v7x" or chip_of(device_type) != "v7x":
            step.notes.append("~the row of the table, or the device, isn't v7x")
        self.read_peaks()

    def read_peaks(self) -> None:
        if self.chip == "profile":
            tflops = self.plane_peak("peak_teraflops_per_second")
            gbps = self.plane_peak("peak_hbm_bw_gigabytes_per_second")
            known = {} if tflops is None else {"bf16": tflops}
            hbm = None if gbps is None else gbps * 10**9 / 2**30
            self.source = "profile"
        else:
            known, hbm = CHIPS[self.chip]
            self.source = f"builtin {self.chip} table"
        overrides = {d: getattr(self.options, f"peak_tflops_{d}") for d in FLOAT_DTYPES}
        override_hbm = self.options.peak_hbm_gibps
        if override_hbm is not None or any(v is not None for v in overrides.values()):
            self.source += " + cli override"
        self.tflops: dict[str, float] = known | {
            d: float(v) for d, v in overrides.items() if v is not None
        }
        self.hbm_gibps = hbm if override_hbm is None else float(override_hbm)

    def plane_peak(self, stat: str) -> float | None:
        peak = number_of(self.step.plane.stats, stat)
        return float(peak) if peak else None

    def ridge_point(self, dtype: str) -> float:
        return float(
            Fraction(self.tflops[dtype]) * 10**12 / (Fraction(self.hbm_gibps or 0) * 2**30)
        )

    def compute_ps(self, flops: Fraction, dtype: str) -> Fraction:
        return flops / Fraction(self.tflops[dtype])  # 10¹² flops/s are one a picosecond

    def hbm_ps(self, size: Fraction) -> Fraction:
        return size * 10**12 / (Fraction(self.hbm_gibps or 0) * 2**30)

    def peaks_used(self) -> Json:
        known = [d for d in FLOAT_DTYPES if d in self.tflops and self.hbm_gibps is not None]
        return {
            **{f"peak_tflops_{d}": self.tflops.get(d) for d in FLOAT_DTYPES},
            "peak_hbm_gibps": self.hbm_gibps,
            "ridge_points": {d: round(self.ridge_point(d), 4) for d in known},
            "source": self.source,
            "unit": "GiB/s (base-1024) per device",
            "bytes": self.options.bytes,
        }

    def cost_source(self, op: Op) -> str | None:
        """Who says what an op costs; None for a black box."""
        if op.kernel in self.user_costs:
            return "user"
        if not op.is_opaque:
            return "xla"
        return None if op.declared is None else "declared"

    def costed_kernel(self, op: Op) -> str | None:
        if self.cost_source(op) not in ("user", "declared"):
            return None
        return without_ssa_parts(op.hlo.name or "") or None

    def parts(self) -> list[Part]:
        parts = []
        for group in grouped(self.step.of_kind("compute"), lambda e: e.op.agg_key).values():
            by_source = grouped(group, lambda e: (self.cost_source(e.op), self.costed_kernel(e.op)))
            made = [Part(group, events, *label) for label, events in by_source.items()]
            # What the kernels leave of a group comes first.
            parts += sorted(made, key=lambda part: part.cost_source not in (None, "xla"))
        return parts

    def cost(self, op: Op) -> Cost:
        source = self.cost_source(op)
        if source == "user":
            flops, size, dtype = self.user_costs[str(op.kernel)]
            return Cost(flops, size, size, dtype or op.peak_dtype)
        if source == "declared" and op.declared is not None:
            flops = Fraction(op.declared.flops)
            if op.declared.bytes is None:
                return Cost(flops, op.bytes_accessed, op.hbm_bytes, op.peak_dtype)
            size = Fraction(op.declared.bytes)
            return Cost(flops, size, size, op.peak_dtype)
        return Cost(op.flops, op.bytes_accessed, op.hbm_bytes, op.peak_dtype)

    def size(self, cost: Cost) -> Fraction | None:
        return cost.hbm if self.options.bytes == "hbm" else cost.accessed

    def part_cost(self, part: Part) -> Cost:
        costs = [self.cost(e.op) for e in part.events]
        is_unknown = any(cost.accessed and cost.hbm is None for cost in costs)
        by_dtype = grouped(part.events, lambda e: self.cost(e.op).dtype)
        return Cost(
            flops=fact_sum(cost.flops for cost in costs),
            accessed=fact_sum(cost.accessed for cost in costs),
            hbm=None if is_unknown else fact_sum(cost.hbm for cost in costs),
            dtype=max(by_dtype, key=lambda dtype: duration(by_dtype[dtype])),
        )

    def skip_reason(self, part: Part) -> str | None:
        cost = self.part_cost(part)
        if part.is_opaque:
            return "opaque"
        if not cost.flops:
            return "no_flops"
        size = self.size(cost)
        if size is None or (size == 0 and self.options.bytes == "accessed"):
            return "no_bytes"
        if cost.dtype not in FLOAT_DTYPES:
            return "dtype_other"
        if cost.dtype not in self.tflops or self.hbm_gibps is None:
            return "peak_unknown_for_dtype"
        return None

    def per_op_ps(self, part: Part) -> Fraction | None:
        """The time that the executions would take if each ran at its own roof.

        Integers and the like have no peak to know: theirs is the memory's roof alone."""
        total = Fraction(0)
        for cost in (self.cost(e.op) for e in part.events):
            t_compute = Fraction(0)
            if cost.flops and cost.dtype in FLOAT_DTYPES:
                if cost.dtype not in self.tflops:
                    return None
                t_compute = self.compute_ps(cost.flops, cost.dtype)
            total += max(t_compute, self.hbm_ps(self.size(cost) or Fraction(0)))
        return total

    def roofs(self, part: Part) -> tuple[Fraction, Fraction]:
        """The picoseconds that its flops, and its bytes, would take at peak."""
        cost = self.part_cost(part)
        return (
            self.compute_ps(cost.flops or Fraction(0), cost.dtype),
            self.hbm_ps(self.size(cost) or Fraction(0)),
        )

    def row(self, part: Part) -> Json:
        cost = self.part_cost(part)
        total = duration(part.events)
        t_compute, t_hbm = self.roofs(part)
        t_roofline = max(t_compute, t_hbm)
        flops, size = cost.flops or Fraction(0), self.size(cost) or Fraction(0)
        intensity = float(flops / size) if size else None
        is_compute_bound = intensity is None or intensity >= self.ridge_point(cost.dtype)
        is_by_user = part.cost_source == "user" and self.user_costs[str(part.kernel)][2] is not None
        opaque = [e for e in part.group if self.cost_source(e.op) is None]
        # Of the dtype that decides, where most of the time is.
        deciding = [e for e in part.events if self.cost(e.op).dtype == cost.dtype]
        by_source = grouped(deciding, lambda e: "user" if is_by_user else e.op.dtype_source)
        known_inputs = [e for e in part.events if e.op.operand_dtype is not None]
        per_op = self.per_op_ps(part)
        per_op_ps = None if per_op is None else whole_ps(per_op)
        return {
            "agg_key": part.events[0].op.agg_key,
            "agg_key_kind": part.events[0].op.agg_key_kind,
            "source_inner": part.group[0].op.source_inner,
            "tf_op": part.group[0].op.tf_op,
            "hlo_categories": count_by(part.events, lambda op: op.category),
            "n_executions": len(part.events),
            "total_dur_ps": total,
            "flops_sum": number(flops),
            "model_flops_sum": number(
                fact_sum(e.op.model_flops for e in part.events if part.cost_source == "xla")
            ),
            "bytes_accessed_sum": number(cost.accessed),
            "dtype": cost.dtype,
            "dtype_source": max(by_source, key=lambda source: duration(by_source[source])),
            "dtype_uncertain": not is_by_user and any(e.op.dtype_uncertain for e in part.events),
            "arithmetic_intensity": None if intensity is None else round(intensity, 4),
            "ridge_point": round(self.ridge_point(cost.dtype), 4),
            "bound": "compute" if is_compute_bound else "memory",
            "t_compute_theory_ps": whole_ps(t_compute),
            "t_hbm_theory_ps": whole_ps(t_hbm),
            "t_roofline_theory_ps": whole_ps(t_roofline),
            "mfu": ratio(t_compute, total, 6),
            "hbm_util": ratio(t_hbm, total, 6),
            "roofline_util": ratio(t_roofline, total, 6),
            "shortfall_ps": total - whole_ps(t_roofline),
            "shortfall_pct": ratio(100 * (total - t_roofline), total, 3),
            "opaque_dur_ps": duration(opaque) if part.cost_source == "xla" else 0,
            "kernel": part.kernel,
            "cost_source": part.cost_source,
            "hbm_bytes_sum": number(cost.hbm),
            "operand_dtypes": time_by(known_inputs, lambda op: str(op.operand_dtype)),
            "t_roofline_per_op_ps": per_op_ps,
            "shortfall_per_op_ps": None if per_op_ps is None else total - per_op_ps,
        }

    def answer(self) -> Json:
        parts = self.parts()
        rooflined = [part for part in parts if self.skip_reason(part) is None]
        rows = [self.row(part) for part in rooflined]
        if any(map(is_over_roof, rows)):
            self.step.notes.append("~some rows have a roofline_util above 1")
        if any(row["cost_source"] == "declared" for row in rows):
            self.step.notes.append("~some kernels are judged by what their authors declared")
        if any(row["model_flops_sum"] not in (None, row["flops_sum"]) for row in rows):
            self.step.notes.append("~some rows' flops_sum and model_flops_sum differ")
        return {
            "chip": self.chip,
            "peaks_used": self.peaks_used(),
            "step_summary": self.step_summary(rooflined, rows),
            "groups": rows,
            "skipped_groups": self.skipped([p for p in parts if self.skip_reason(p)]),
        }

    def step_summary(self, rooflined: list[Part], rows: list[Json]) -> Json:
        weight = sum(duration(part.events) for part in rooflined)
        # Each weight is the base of its utilization, so that a weighted average is a quotient of
        # sums; rows without time have neither utilization nor weight.
        roofs = [self.roofs(part) for part in rooflined if duration(part.events)]
        compute = duration(self.step.of_kind("compute"))
        ranked = sorted(
            rows, key=lambda row: (-row["shortfall_ps"], row["agg_key"], row["kernel"] or "")
        )
        shown = ("agg_key", "source_inner", "tf_op", "total_dur_ps", "shortfall_ps", "bound")
        per_op = [row for row in rows if row["t_roofline_per_op_ps"] is not None]
        return {
            "weighted_avg_mfu": ratio(sum(c for c, _ in roofs), weight, 6),
            "weighted_avg_hbm_util": ratio(sum(h for _, h in roofs), weight, 6),
            "weighted_avg_roofline_util": ratio(sum(max(r) for r in roofs), weight, 6),
            "step_shortfall_ps": sum(row["shortfall_ps"] for row in rows),
            "rooflined_dur_ps": weight,
            "step_compute_dur_ps_total": compute,
            "rooflined_pct_of_compute": pct(weight, compute),
            "skipped_pct_of_compute": pct(compute - weight, compute),
            "top_shortfall_groups": [{k: row[k] for k in shown} for row in ranked[:10]],
            "over_roof": self.over_roof(rooflined, rows),
            **{
                key: sum(row[key] for row in per_op) if per_op else None
                for key in ("t_roofline_per_op_ps", "shortfall_per_op_ps")
            },
        }

    def over_roof(self, rooflined: list[Part], rows: list[Json]) -> Json:
        over = [row for row in rows if is_over_roof(row)]
        within = [part for part, row in zip(rooflined, rows, strict=True) if row not in over]
        timed = [part for part in within if duration(part.events)]
        return {
            "n_groups": len(over),
            "total_dur_ps": sum(row["total_dur_ps"] for row in over),
            "weighted_avg_mfu_without": ratio(
                sum(self.roofs(part)[0] for part in timed),
                sum(duration(part.events) for part in timed),
                6,
            ),
        }

    def skipped(self, parts: list[Part]) -> Json:
        entries = []
        for part in parts:
            rows, _ = breakdown(part.events)
            entries.append(
                {
                    "agg_key": part.group[0].op.agg_key,
                    "source_inner": part.group[0].op.source_inner,
                    "tf_op": part.group[0].op.tf_op,
                    "total_dur_ps": duration(part.events),
                    "reason": self.skip_reason(part),
                    "top_signature": rows[0]["signature"],
                    "example_hlo_op": longest(part.events).op.text,
                }
            )
        entries.sort(key=lambda entry: (-entry["total_dur_ps"], entry["agg_key"], entry["reason"]))
        reasons = [entry["reason"] for entry in entries]
        return {
            "n_no_flops": reasons.count("no_flops") + reasons.count("opaque"),
            "n_no_bytes": reasons.count("no_bytes"),
            "n_dtype_other": reasons.count("dtype_other"),
            "n_peak_unknown_for_dtype": reasons.count("peak_unknown_for_dtype"),
            "total_dur_ps_skipped": sum(entry["total_dur_ps"] for entry in entries),
            "top_skipped": entries[:10],
        }
