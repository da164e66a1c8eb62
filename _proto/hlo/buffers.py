"""The buffer assignment of a program, as it stands there: what memory it takes, for what, when.

A logical buffer holds one array from its definition to its last use. An allocation is a piece of
memory that buffers are assigned to. A heap trace tells in which order the compiler allocated and
freed the buffers of one allocation; which, only its buffers tell.
"""

from __future__ import annotations

from typing import NamedTuple

from _proto import hlo_pb2 as pb
from _proto.trace.wire import parse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.hlo.module import Instruction, Program

ALLOC, FREE, _ = KINDS = ("alloc", "free", "share")

# As with instructions: few are harmless, and many take at least so many bytes each.
_FEW = 100_000
_LEAST_BYTES = 6


class Buffer(NamedTuple):
    """A logical buffer: what an instruction puts out, or the part of it at `shape_index`."""

    id: int
    size: int
    instruction: Instruction | None
    shape_index: tuple[int, ...]


class Assigned(NamedTuple):
    """Where in an allocation a logical buffer lies."""

    buffer_id: int
    offset: int
    size: int


class Allocation(NamedTuple):
    """A piece of memory; `color` 0 is HBM."""

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
    """A step of a heap trace, at an instruction: a buffer is allocated, freed, or shares another's
    memory."""

    kind: str
    buffer_id: int
    shares_with: int
    instruction_name: str


class BufferAssignment(NamedTuple):
    allocations: list[Allocation]
    buffers: dict[int, Buffer]
    traces: list[list[HeapEvent]]


def read_buffers(program: Program, data: bytes) -> BufferAssignment | None:
    """Read a BufferAssignmentProto; None, and a complaint, where it can't be read.

    An id that two buffers have is damage, and so is a negative size; whether the rest makes sense
    is for who walks it to say.
    """
    try:
        return _read(program, data)
    except _Broken as broken:
        program.complain(f"the buffer assignment: {broken}")
        return None


class _Broken(Exception):
    pass


def _read(program: Program, data: bytes) -> BufferAssignment:
    message = parse(pb.BufferAssignment, data)
    if message is None:
        raise _Broken("the protobuf parser refuses it")
    left = max(_FEW, len(data) // _LEAST_BYTES)

    def count(n: int) -> None:
        nonlocal left
        left -= n
        if left < 0:
            raise _Broken(f"too much for {len(data)} bytes")

    count(len(message.logical_buffers))
    buffers = {}
    for each in message.logical_buffers:
        buffer = _buffer(program, each)
        if buffer.id in buffers:
            raise _Broken(f"two buffers have the id {buffer.id}")
        buffers[buffer.id] = buffer
    allocations = []
    for each in message.buffer_allocations:
        allocation = parse(pb.BufferAllocation, each)
        if allocation is None:
            raise _Broken("an allocation that the protobuf parser refuses")
        count(1 + len(allocation.assigned))
        allocations.append(_allocation(allocation))
    traces = []
    for each in message.heap_simulator_traces:
        trace = parse(pb.HeapSimulatorTrace, each)
        if trace is None:
            raise _Broken("a heap trace that the protobuf parser refuses")
        count(1 + len(trace.events))
        traces.append([_event(event) for event in trace.events])
    return BufferAssignment(allocations, buffers, traces)


def _buffer(program: Program, data: bytes) -> Buffer:
    message = parse(pb.LogicalBuffer, data)
    if message is None or message.size < 0:
        raise _Broken("a buffer that the protobuf parser refuses, or of negative size")
    where = message.defined_at
    return Buffer(
        message.id,
        message.size,
        program.instruction_by_id(where.instruction_id),
        tuple(where.shape_index),
    )


def _allocation(message: pb.BufferAllocation) -> Allocation:
    assigned = [
        Assigned(each.logical_buffer_id, each.offset, each.size) for each in message.assigned
    ]
    if min(message.size, *(min(each.offset, each.size) for each in assigned), 0) < 0:
        raise _Broken(f"negative sizes in allocation {message.index}")
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


def _event(message: pb.HeapSimulatorTrace.Event) -> HeapEvent:
    if not 0 <= message.kind < len(KINDS):
        raise _Broken(f"an event of kind {message.kind}")
    return HeapEvent(
        KINDS[message.kind],
        message.buffer_id,
        message.share_with_canonical_id,
        message.instruction_name,
    )
