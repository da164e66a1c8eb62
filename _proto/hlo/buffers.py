"""Read a program's buffer assignment: the memory that it uses, and the arrays in this memory.

A logical buffer holds one array from its definition to its last use. An allocation is a memory
region to which buffers are assigned. A heap trace lists the order in which the compiler allocated
and freed the buffers of one allocation. It contains the ids of the buffers, but not of the
allocation.
"""

from __future__ import annotations

from collections import Counter

from _breakdown.light import NamedTuple
from _proto import hlo_pb2 as pb
from _proto.errors import Damage
from _proto.hlo.program import Instruction, Program
from _proto.hlo.shapes import Path
from _proto.trace.wire import decode

# A memory region that XLA allocates as one unit, and an event in a heap trace: an instruction
# allocates, frees or shares a buffer's memory.
Allocation = pb.BufferAllocation
HeapEvent = pb.HeapSimulatorTrace.Event
LogicalBuffer = pb.LogicalBuffer
# Kinds of heap events.
ALLOC, FREE, SHARE = range(3)


class Buffer(NamedTuple):
    """A logical buffer: an instruction's output, or the part of it at `shape_index`."""

    program: Program
    message: LogicalBuffer

    @property
    def size(self) -> int:
        return self.message.size

    @property
    def instruction(self) -> Instruction | None:
        return self.program.instruction_by_id(self.message.defined_at.instruction_id)

    @property
    def shape_index(self) -> Path:
        return tuple(self.message.defined_at.shape_index)


class BufferAssignment(NamedTuple):
    """The buffers are messages, because most of them are inside fusions and only counted."""

    program: Program
    allocations: list[Allocation]
    buffers: dict[int, LogicalBuffer]
    traces: list[list[HeapEvent]]

    def buffer(self, number: int) -> Buffer:
        return Buffer(self.program, self.buffers[number])


def read_buffers(program: Program) -> BufferAssignment | None:
    """Read a program's buffer assignment; return None if it is missing or damaged.

    Duplicate buffer ids, and allocations of negative size, count as damage. The caller must check
    all other values.
    """
    data = program.read_buffer_assignment()
    try:
        return None if data is None else _read(program, data)
    except Damage as damage:
        program.complain(f"the buffer assignment: {damage.what}")
        return None


def _read(program: Program, data: bytes) -> BufferAssignment:
    message = decode(pb.BufferAssignment, data, 0)
    buffers = {buffer.id: buffer for buffer in message.logical_buffers}
    if len(buffers) < len(message.logical_buffers):
        n_of = Counter(buffer.id for buffer in message.logical_buffers)
        raise Damage(0, f"two buffers have the id {n_of.most_common(1)[0][0]}")
    allocations = list(message.buffer_allocations)
    for allocation in allocations:
        if allocation.size < 0:
            raise Damage(0, f"allocation {allocation.index} has a negative size")
    traces = [
        list(decode(pb.HeapSimulatorTrace, part, 0).events)
        for part in message.heap_simulator_traces
    ]
    return BufferAssignment(program, allocations, buffers, traces)
