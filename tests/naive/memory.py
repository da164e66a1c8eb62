"""Implement the mode `memory` naively: peak HBM use according to the program's buffer assignment.

After every heap event, the set of live buffers is computed anew, from each buffer's last event.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tests.naive.comm import bits
from tests.naive.op import LikelySource, Op, grouped, pct
from tests.naive.program import ELEMENT_TYPES, Instruction, Program, with_id
from tests.naive.step import AbsentError, Json, Picked
from tests.naive.wire import Message, every, fields, last, numbers_in, signed, text_in

ALLOC, FREE, SHARE = range(3)


@dataclass
class Buffer:
    id: int
    size: int
    instruction_id: int
    shape_index: list[int]


@dataclass
class Allocation:
    size: int
    color: int
    is_thread_local: bool
    is_parameter: bool
    parameter_number: int
    is_output: bool
    is_constant: bool
    assigned: list[tuple[int, int, int]]

    @property
    def buffer_ids(self) -> list[int]:
        return [buffer_id for buffer_id, _, _ in self.assigned]

    @property
    def kind(self) -> str:
        kinds = {
            "parameter": self.is_parameter,
            "output": self.is_output,
            "constant": self.is_constant,
            "temporary": True,
        }
        return next(kind for kind, applies in kinds.items() if applies)


@dataclass
class HeapEvent:
    kind: int
    buffer_id: int
    instruction: str
    shares_with: int


@dataclass(eq=False)
class Row:
    """Represent a printed buffer: a live buffer, or an allocation described by one of its
    buffers."""

    kind: str
    size: int
    buffer: Buffer | None
    parameter_number: int | None


def integer(message: Message, number: int) -> int:
    return signed(last(message, number, 0))


def decode_buffer(data: bytes) -> Buffer:
    message = fields(data)
    where = fields(last(message, 3, b""))
    return Buffer(
        id=integer(message, 1),
        size=integer(message, 2),
        instruction_id=integer(where, 4),
        shape_index=list(map(signed, numbers_in(where, 3))),
    )


def decode_allocation(data: bytes) -> Allocation:
    message = fields(data)
    places = [fields(place) for place in every(message, 9)]
    return Allocation(
        size=integer(message, 2),
        color=integer(message, 8),
        is_thread_local=integer(message, 3) != 0,
        is_parameter=integer(message, 5) != 0,
        parameter_number=integer(message, 6),
        is_output=integer(message, 7) != 0,
        is_constant=integer(message, 12) != 0,
        assigned=[(integer(p, 1), integer(p, 2), integer(p, 3)) for p in places],
    )


def decode_event(data: bytes) -> HeapEvent:
    message = fields(data)
    return HeapEvent(
        kind=integer(message, 1),
        buffer_id=integer(message, 2),
        instruction=text_in(message, 4),
        shares_with=integer(message, 5),
    )


class Assignment:
    def __init__(self, data: bytes) -> None:
        message = fields(data)
        self.all_buffers = list(map(decode_buffer, every(message, 1)))
        self.all_allocations = list(map(decode_allocation, every(message, 3)))
        self.traces = [
            list(map(decode_event, every(fields(trace), 1))) for trace in every(message, 4)
        ]
        self.allocations = [
            a for a in self.all_allocations if a.color == 0 and not a.is_thread_local
        ]

    def buffer(self, buffer_id: int) -> Buffer:
        (found,) = [buffer for buffer in self.all_buffers if buffer.id == buffer_id]
        return found

    def size(self, buffer_ids: set[int]) -> int:
        return sum(self.buffer(buffer_id).size for buffer_id in buffer_ids)

    def histories(self, allocation: Allocation) -> list[list[HeapEvent]]:
        """Return, for each heap trace, the events of the allocation's buffers; omit duplicate
        traces."""
        found: list[list[HeapEvent]] = []
        for trace in self.traces:
            events = [event for event in trace if event.buffer_id in allocation.buffer_ids]
            if events and events not in found:
                found.append(events)
        return found


def owner(buffer_id: int, events: list[HeapEvent]) -> int:
    """Return the id of the buffer that owns a buffer's memory after the given events. A buffer can
    own its memory itself."""
    places = [i for i, e in enumerate(events) if e.buffer_id == buffer_id and e.kind != FREE]
    event = events[places[-1]]
    return buffer_id if event.kind == ALLOC else owner(event.shares_with, events[: places[-1]])


def holders(events: list[HeapEvent]) -> list[int]:
    """Return the buffers that are live after the given events."""
    kinds = {event.buffer_id: event.kind for event in events}
    return [buffer_id for buffer_id, kind in kinds.items() if kind != FREE]


def live_after(events: list[HeapEvent]) -> set[int]:
    return {owner(buffer_id, events) for buffer_id in holders(events)}


class Memory:
    def __init__(self, step: Picked) -> None:
        self.step = step
        self.op = step.program_op
        if self.op is None or self.op.program is None or self.op.entry is None:
            raise AbsentError("no_program")
        self.hlo: Program = self.op.program
        data = self.op.entry.buffers
        self.assignment = Assignment(data or b"")
        if not self.assignment.all_allocations:
            raise AbsentError("no_buffer_assignment")
        self.rows = self.live_rows()

    # live buffers

    def maxima(self, allocation: Allocation) -> list[tuple[int, str, set[int]]]:
        """Return, for each heap trace, the maximum of live bytes, the first instruction that
        reaches it, and the buffers live then.
        """
        found = []
        for events in self.assignment.histories(allocation):
            live = [live_after(events[: i + 1]) for i in range(len(events))]
            sizes = [self.assignment.size(buffers) for buffers in live]
            at = sizes.index(max(sizes))
            found.append((sizes[at], events[at].instruction, live[at]))
        return found

    @cached_property
    def all_maxima(self) -> list[tuple[int, str, set[int]]]:
        temporary = [
            allocation
            for allocation in self.assignment.allocations
            if allocation.kind == "temporary"
        ]
        return [maximum for allocation in temporary for maximum in self.maxima(allocation)]

    def live_rows(self) -> list[Row]:
        """Return the buffers and allocations at the peak, largest first."""
        rows: list[Row] = []
        for allocation in self.assignment.allocations:
            maxima = self.maxima(allocation) if allocation.kind == "temporary" else []
            live = [self.assignment.buffer(i) for _, _, buffer_ids in maxima for i in buffer_ids]
            rows += [Row("temporary", buffer.size, buffer, None) for buffer in live]
            if allocation.kind != "temporary" or (allocation.size and not maxima):
                rows.append(self.whole(allocation))
        return sorted(rows, key=lambda row: (-row.size, self.name(row), self.index(row)))

    def whole(self, allocation: Allocation) -> Row:
        buffers = [self.assignment.buffer(i) for i in sorted(allocation.buffer_ids)]
        parameters = [b for b in buffers if self.opcode_of(self.instruction(b)) == "parameter"]
        largest = max(parameters or buffers, key=lambda buffer: buffer.size, default=None)
        number = allocation.parameter_number if allocation.kind == "parameter" else None
        return Row(allocation.kind, allocation.size, largest, number)

    # The following methods return properties of buffers.

    def instruction(self, buffer: Buffer | None) -> Instruction | None:
        return None if buffer is None else with_id(buffer.instruction_id, self.hlo.instructions)

    def name(self, row: Row) -> str:
        instruction = self.instruction(row.buffer)
        return "" if instruction is None else instruction.name

    def index(self, row: Row) -> list[int]:
        return [] if row.buffer is None else row.buffer.shape_index

    def opcode_of(self, instruction: Instruction | None) -> str | None:
        return None if instruction is None else instruction.opcode

    def opcode(self, row: Row) -> str | None:
        return self.opcode_of(self.instruction(row.buffer))

    def argument(self, row: Row) -> str | None:
        instruction = self.instruction(row.buffer)
        if instruction is None or instruction.opcode != "parameter":
            return None
        parts = [part for part in re.split(r"\W+", instruction.op_name) if part]
        return parts[0] if parts else None

    def ops(self, instruction: Instruction) -> list[Op]:
        events = self.step.leaves + self.step.containers
        return [e.op for e in events if e.op.instruction is instruction]

    def likely(self, instruction: Instruction | None) -> LikelySource:
        """Return the likely line of the op that executed the instruction.

        If no op executed the instruction, the line of its consumer takes precedence over the line
        of its producer.
        """
        if instruction is None:
            return LikelySource()
        ran_as = self.ops(instruction)
        if ran_as:
            return ran_as[0].likely_source
        return LikelySource.of(
            own=self.hlo.own_place(instruction, None),
            inside=self.hlo.place_inside(instruction),
            consumer=self.hlo.consumer(instruction),
            producer=self.hlo.producer(instruction),
        )

    def line(self, row: Row) -> str | None:
        return self.likely(self.instruction(row.buffer)).line

    def array(self, row: Row) -> tuple[str, list[int], bool] | None:
        """Return the dtype, the dims, and True if some dims are only upper bounds."""
        instruction = self.instruction(row.buffer)
        if instruction is None or row.buffer is None:
            return None
        shape = instruction.shape
        for place in row.buffer.shape_index:
            parts = every(shape, 4)
            if not 0 <= place < len(parts):
                return None
            shape = fields(parts[place])
        dtype = ELEMENT_TYPES.get(last(shape, 2, 0), "?")
        if dtype in ("tuple", "opaque", "token"):
            return None
        return dtype, list(map(signed, numbers_in(shape, 3))), any(numbers_in(shape, 6))

    def shape(self, row: Row) -> str | None:
        found = self.array(row)
        return None if found is None else f"{found[0]}[{','.join(map(str, found[1]))}]"

    def padding(self, row: Row) -> int | None:
        found = self.array(row)
        width = None if found is None else bits(found[0])
        if found is None or width is None or found[2] or min([0, *found[1]]) < 0:
            return None
        size = -(-prod(found[1]) * width // 8)
        return None if row.size < size else row.size - size

    # the answer

    def answer(self) -> Json:
        peak = sum(row.size for row in self.rows)
        reserved = sum(allocation.size for allocation in self.assignment.allocations)
        top = 20 if self.step.options.top is None else self.step.options.top
        left_out = self.rows[top:]
        padding = [n for row in self.rows if (n := self.padding(row)) is not None]
        elsewhere = [
            allocation
            for allocation in self.assignment.all_allocations
            if allocation.color != 0 and not allocation.is_thread_local
        ]
        return {
            "peak_bytes": peak,
            "reserved_bytes": reserved,
            "fragmentation_bytes": reserved - peak,
            "by_kind": {
                kind: sum(row.size for row in self.rows if row.kind == kind)
                for kind in ("parameter", "output", "constant", "temporary")
            },
            "padding_bytes": sum(padding) if padding else None,
            "other_spaces": {
                str(color): sum(allocation.size for allocation in allocations)
                for color, allocations in grouped(
                    elsewhere, lambda allocation: allocation.color
                ).items()
            },
            "peak_at": self.peak_at(),
            "buffers": [
                {"rank": rank, "pct_of_peak": pct(row.size, peak), **self.buffer_row(row)}
                for rank, row in enumerate(self.rows[:top], 1)
            ],
            "by_source": self.shares("source_inner", self.line),
            "by_op_name": self.shares("tf_op", lambda row: tf_op(self.instruction(row.buffer))),
            "by_opcode": self.shares("opcode", self.opcode),
            "by_argument": self.shares("argument", self.argument),
            "tail": {
                "n_buffers_omitted": len(left_out),
                "bytes": sum(row.size for row in left_out),
            },
        }

    def peak_at(self) -> Json | None:
        if not self.all_maxima:
            return None
        _, name, _ = max(self.all_maxima, key=lambda maximum: maximum[0])
        if not name:
            return None
        instruction = self.hlo.named(name)
        likely = self.likely(instruction)
        starts = [
            e.start - self.step.base
            for e in self.step.events
            if instruction is not None and e.op.instruction is instruction
        ]
        return {
            "hlo_op": name,
            "source_inner": likely.line,
            "source_is": likely.how,
            "tf_op": tf_op(instruction),
            "first_start_ps": min(starts, default=None),
        }

    def buffer_row(self, row: Row) -> Json:
        instruction = self.instruction(row.buffer)
        likely = self.likely(instruction)
        return {
            "bytes": row.size,
            "padding_bytes": self.padding(row),
            "kind": row.kind,
            "shape": self.shape(row),
            "hlo_op": None if instruction is None else instruction.name,
            "opcode": self.opcode(row),
            "shape_index": None if row.buffer is None else row.buffer.shape_index,
            "parameter_number": row.parameter_number,
            "tf_op": tf_op(instruction),
            "source_inner": likely.line,
            "source_is": likely.how,
            "source_stack": None if instruction is None else instruction.stack,
        }

    def shares(self, name: str, key: Callable[[Row], str | None]) -> list[Json]:
        groups = grouped(self.rows, key)
        sizes = {value: sum(row.size for row in rows) for value, rows in groups.items()}
        named = sorted((v for v in groups if v is not None), key=lambda v: (-sizes[v], v))
        return [
            {name: value, "bytes": sizes[value], "n_buffers": len(groups[value])}
            for value in [*named, None]
            if value in groups
        ]


def tf_op(instruction: Instruction | None) -> str | None:
    return f"{instruction.op_name}:" if instruction is not None and instruction.op_name else None
