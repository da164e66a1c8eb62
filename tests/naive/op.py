"""Decode planes, lines, events and ops of a device, and classify the ops."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import TypeVar

from tests.naive.frames import (
    INNERMOST_FIRST,
    Place,
    fits,
    frames_in,
    innermost_own,
    known_order,
    line_of,
)
from tests.naive.program import COLLECTIVES, TRANSFERS, Entry, Instruction, has_prefix
from tests.naive.wire import (
    Message,
    StatValue,
    decode_map,
    decode_stats,
    every,
    fields,
    last,
    signed,
)

T = TypeVar("T")
Label = TypeVar("Label", bound=Hashable)


def text_of(stats: dict[str, StatValue], name: str) -> str | None:
    value = stats.get(name)
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    return value if isinstance(value, str) else None


@dataclass
class Span:
    """Represent an interval on one of the two clocks."""

    start: int
    end: int

    @property
    def duration(self) -> int:
        return self.end - self.start

    def holds(self, time: int | None) -> bool:
        return time is not None and self.start <= time < self.end


@dataclass
class LineEvent:
    """Represent an event as stored; an aggregated event has a count instead of a start."""

    metadata_id: int
    start: int | None
    duration: int
    stats: dict[str, StatValue]

    @property
    def on_trace(self) -> Span | None:
        """Return the event's time on the trace's clock, or None if the time is invalid."""
        if self.start is None or self.duration < 0:
            return None
        return Span(self.start, self.start + self.duration)

    @property
    def on_device(self) -> Span | None:
        """Return the event's time on the core's clock, or None if the core did not measure it."""
        offset = self.stats.get("device_offset_ps")
        duration = self.stats.get("device_duration_ps")
        if not isinstance(offset, int) or not 0 <= offset < 2**63:
            return None
        if not isinstance(duration, int) or not 0 <= duration < 2**63:
            return None
        return Span(offset, offset + duration)


@dataclass
class Line:
    id: int
    name: str
    timestamp_ps: int
    events: list[LineEvent]


def decode_line(data: bytes, stat_names: dict[int, str]) -> Line:
    message = fields(data)
    timestamp_ps = signed(last(message, 3, 0)) * 1000
    events = []
    for event in map(fields, every(message, 4)):
        # Offset and num_occurrences are in a oneof, so the last one written is used.
        number, value = [(2, 0), *((n, v) for n, v in event if n in (2, 5))][-1]
        start = timestamp_ps + signed(value) if number == 2 else None
        stats = decode_stats(every(event, 4), stat_names)
        duration = signed(last(event, 3, 0))
        events.append(LineEvent(signed(last(event, 1, 0)), start, duration, stats))
    name = last(message, 2, b"").decode()
    return Line(signed(last(message, 1, 0)), name, timestamp_ps, events)


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


FACTS = ("source", "source_stack", "tf_op", "hlo_category", "program_id")


def complete_ops(plane: Plane, executions: list[LineEvent]) -> None:
    """Copy stats from executions to ops whose metadata lacks them, before the ops are used."""
    for i, op in plane.ops.items():
        for name in (name for name in FACTS if name not in op.stats):
            result = [e.stats[name] for e in executions if e.metadata_id == i and name in e.stats]
            if result:
                op.stats[name] = result[0]


NAME_RE = re.compile("%?([A-Za-z0-9_.-]+) *(=|$)")
# The opcode is the first word that a parenthesis follows; layouts have no blanks.
SHAPE_RE = re.compile(r"[^=]*= (.*?) ([A-Za-z0-9_-]+)\(")


@dataclass
class HloText:
    """Represent the parts of an HLO text that are known, such as `%name = shape opcode(...)`."""

    name: str | None
    output: str
    opcode: str | None

    @staticmethod
    def of(text: str) -> HloText:
        name, shape = NAME_RE.match(text), SHAPE_RE.match(text)
        if name is None or shape is None:
            return HloText(name and name[1], "", None)
        return HloText(name[1], shape[1], shape[2])


KINDS = ("compute", "data_move", "comm", "other")
CONTAINERS = ("while", "conditional", "call")


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
    """Return True if the op is the start or done (see `which`) of an async collective fusion."""
    return category.endswith("fusion") and has_prefix(name, f"async-collective-{which}")


def kind_of(category: str, name: str | None) -> str | None:
    """Return the kind of a category that is not a container, or None for an unknown category."""
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


@dataclass
class Op:
    """Represent an op: a metadata entry with its HLO text and stats."""

    text: str
    stats: dict[str, StatValue]
    # Entries in the plane of programs, by program id.
    entries: dict[int, Entry] = field(default_factory=dict)
    # The frame order to assume if the op's source does not show it.
    silent_order: str = INNERMOST_FIRST
    # Substrings of the user's file names, from the option `--own`.
    own: Sequence[str] = ()

    @property
    def program_id(self) -> int | None:
        program_id = self.stats.get("program_id")
        return program_id % 2**64 if isinstance(program_id, int) else None

    @property
    def entry(self) -> Entry | None:
        return None if self.program_id is None else self.entries.get(self.program_id)

    @cached_property
    def instruction(self) -> Instruction | None:
        return None if self.entry is None else self.entry.named(self.hlo.name)

    @cached_property
    def hlo(self) -> HloText:
        return HloText.of(self.text)

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
    def is_async_fusion_done(self) -> bool:
        return is_async_fusion(self.category, self.hlo.name, "done")

    @property
    def is_wait(self) -> bool:
        return self.category.endswith("-done") or self.is_async_fusion_done

    # source

    @property
    def source(self) -> str | None:
        return text_of(self.stats, "source") or None

    @property
    def written_frames(self) -> list[str]:
        return frames_in(text_of(self.stats, "source_stack"))

    @property
    def order_by_source(self) -> str | None:
        return known_order(self.written_frames, self.source)

    @property
    def order_by_program(self) -> str | None:
        line = None if self.instruction is None else self.instruction.line
        return known_order(self.written_frames, line)

    @property
    def stack_order(self) -> str | None:
        return (self.order_by_source or self.silent_order) if self.written_frames else None

    @property
    def is_order_guessed(self) -> bool:
        """Return True if the source does not show the frame order, and the order makes a
        difference."""
        frames = self.written_frames
        return self.order_by_source is None and frames != frames[::-1]

    @cached_property
    def frames(self) -> list[str]:
        """Return the frames from the outermost to the innermost."""
        frames = self.written_frames
        return frames[::-1] if self.stack_order == INNERMOST_FIRST else frames

    @property
    def source_stack(self) -> str | None:
        return "\n".join(self.frames) or None

    @property
    def is_stack_doubtful(self) -> bool:
        return self.source is not None and bool(self.frames) and not self.is_source_innermost

    @property
    def is_source_innermost(self) -> bool:
        return bool(self.frames) and fits(self.source, self.frames[-1])

    @cached_property
    def source_inner(self) -> str | None:
        if self.source is not None and not self.is_source_innermost:
            return self.source
        return line_of(self.frames[-1]) if self.frames else None

    @property
    def place(self) -> Place | None:
        if self.frames:
            return Place(line_of(self.frames[-1]), tuple(map(line_of, self.frames)))
        return Place.of(self.source)

    @cached_property
    def source_user(self) -> str | None:
        return None if self.place is None else innermost_own(self.place.lines, self.own)

    @property
    def has_path(self) -> bool:
        return bool(self.tf_op or (self.instruction and self.instruction.op_name))

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
    def phase(self) -> str:
        if self.tf_op is None:
            is_remat = self.has_path and ".remat" in (self.hlo.name or "")
            return "recompute" if is_remat else "unknown"
        if ".remat" in (self.hlo.name or "") or "/rematted_computation/" in self.tf_op:
            return "recompute"
        if "transpose(" in self.tf_op and "jvp" in self.tf_op:
            return "backward"
        return "forward" if "jvp(" in self.tf_op else "other"


@dataclass(eq=False)
class Event:
    """Represent an execution of an op, with its times on both clocks.

    The trace's clock determines which events are in the step; all figures use the device's clock.
    """

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


def grouped(items: Iterable[T], key: Callable[[T], Label]) -> dict[Label, list[T]]:
    """Group items by key, in order of first appearance."""
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


Rational = int | Fraction


def ratio(part: Rational | None, base: Rational | None, digits: int) -> float | None:
    if part is None or not base:
        return None
    return round(float(Fraction(part) / Fraction(base)), digits)


def pct(part: Rational, base: Rational) -> float | None:
    return ratio(100 * part, base, 3)


def distinct(values: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(value for value in values if value is not None))


def union(intervals: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return the union of intervals as sorted, disjoint intervals."""
    merged: list[tuple[int, int]] = []
    for start, end in sorted((s, e) for s, e in intervals if s < e):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((start, end))
    return merged


def length(intervals: list[tuple[int, int]]) -> int:
    return sum(end - start for start, end in intervals)
