"""Read a program's buffer assignment: the memory that it uses, and the arrays in this memory.

A logical buffer holds one array from its definition to its last use. An allocation is a memory
region to which buffers are assigned. A heap trace lists the order in which the compiler allocated
and freed the buffers of one allocation. It contains the ids of the buffers, but not of the
allocation.
"""

from __future__ import annotations

from typing import NamedTuple

from _proto import hlo_pb2 as pb
from _proto.errors import Damage
from _proto.hlo.program import Instruction, Program
from _proto.hlo.shapes import Path
from _proto.trace.wire import decode

ALLOC, FREE, _ = KINDS = ("alloc", "free", "share")


class Buffer(NamedTuple):
    """A logical buffer: an instruction's output, or the part of it at `shape_index`."""

    id: int
    size: int
    instruction: Instruction | None
    shape_index: Path


class Assigned(NamedTuple):
    """The position of a logical buffer in an allocation."""

    buffer_id: int
    offset: int
    size: int


class Allocation(NamedTuple):
    """A memory region that XLA allocates as one unit. In HBM, `color` is 0."""

    number: int
    size: int
    color: int
    is_thread_local: bool
    is_parameter: bool
    parameter_number: int
    maybe_live_out: bool
    is_constant: bool
    assigned: list[Assigned]


class HeapEvent(NamedTuple):
    """An event in a heap trace: an instruction allocates, frees or shares a buffer's memory."""

    kind: str
    buffer_id: int
    shares_with: int
    instruction_name: str


class BufferAssignment(NamedTuple):
    allocations: list[Allocation]
    buffers: dict[int, Buffer]
    traces: list[list[HeapEvent]]


def read_buffers(program: Program) -> BufferAssignment | None:
    """Read a program's buffer assignment; return None if it is missing or damaged.

    Negative sizes and duplicate buffer ids count as damage. The caller must check all other values.
    """
    data = program.read_buffer_assignment()
    try:
        return None if data is None else _read(program, data)
    except Damage as damage:
        program.complain(f"the buffer assignment: {damage.what}")
        return None


def _read(program: Program, data: bytes) -> BufferAssignment:
    message = decode(pb.BufferAssignment, data, 0)
    buffers = {}
    for logical_buffer in message.logical_buffers:
        buffer = _buffer(program, logical_buffer)
        if buffer.id in buffers:
            raise Damage(0, f"two buffers have the id {buffer.id}")
        buffers[buffer.id] = buffer
    return BufferAssignment(
        [_allocation(allocation) for allocation in message.buffer_allocations],
        buffers,
        [_heap_trace(heap_trace) for heap_trace in message.heap_simulator_traces],
    )


def _buffer(program: Program, data: bytes) -> Buffer:
    message = decode(pb.LogicalBuffer, data, 0)
    if message.size < 0:
        raise Damage(0, f"buffer {message.id} has a negative size")
    where = message.defined_at
    instruction = program.instruction_by_id(where.instruction_id)
    return Buffer(message.id, message.size, instruction, tuple(where.shape_index))


def _allocation(data: bytes) -> Allocation:
    message = decode(pb.BufferAllocation, data, 0)
    assigned = [
        Assigned(part.logical_buffer_id, part.offset, part.size) for part in message.assigned
    ]
    if message.size < 0 or any(min(part.offset, part.size) < 0 for part in assigned):
        raise Damage(0, f"allocation {message.index} has a negative size")
    return Allocation(
        message.index,
        message.size,
        message.color,
        message.is_thread_local,
        message.is_entry_computation_parameter,
        message.parameter_number,
        message.maybe_live_out,
        message.is_constant,
        assigned,
    )


def _heap_trace(data: bytes) -> list[HeapEvent]:
    return [_event(event) for event in decode(pb.HeapSimulatorTrace, data, 0).events]


def _event(message: pb.HeapSimulatorTrace.Event) -> HeapEvent:
    if not 0 <= message.kind < len(KINDS):
        raise Damage(0, f"a heap event has the unknown kind {message.kind}")
    return HeapEvent(
        KINDS[message.kind],
        message.buffer_id,
        message.share_with_canonical_id,
        message.instruction_name,
    )
