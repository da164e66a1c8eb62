"""Read a program's buffer assignment: the memory that it uses, and the arrays in this memory.

A logical buffer holds one array from its definition to its last use. An allocation is a memory
region to which buffers are assigned. A heap trace lists the order in which the compiler allocated
and freed the buffers of one allocation. It contains the ids of the buffers, but not of the
allocation.
"""

from __future__ import annotations

from itertools import chain

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
# Kinds of heap events.
ALLOC, FREE, SHARE = range(3)


class Buffer(NamedTuple):
    """A logical buffer: an instruction's output, or the part of it at `shape_index`."""

    id: int
    size: int
    program: Program
    defined_at: pb.LogicalBuffer.Location

    # Read on demand, because few buffers are live at the peak.

    @property
    def instruction(self) -> Instruction | None:
        return self.program.instruction_by_id(self.defined_at.instruction_id)

    @property
    def shape_index(self) -> Path:
        return tuple(self.defined_at.shape_index)


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
    buffers: dict[int, Buffer] = {}
    for buffer in message.logical_buffers:
        buffer_id, size = buffer.id, buffer.size
        if size < 0:
            raise Damage(0, f"buffer {buffer_id} has a negative size")
        if buffer_id in buffers:
            raise Damage(0, f"two buffers have the id {buffer_id}")
        buffers[buffer_id] = Buffer(buffer_id, size, program, buffer.defined_at)
    allocations = list(message.buffer_allocations)
    for allocation in allocations:
        is_negative = any(part.offset < 0 or part.size < 0 for part in allocation.assigned)
        if allocation.size < 0 or is_negative:
            raise Damage(0, f"allocation {allocation.index} has a negative size")
    traces = [
        list(decode(pb.HeapSimulatorTrace, part, 0).events)
        for part in message.heap_simulator_traces
    ]
    for event in chain.from_iterable(traces):
        if event.kind not in (ALLOC, FREE, SHARE):
            raise Damage(0, f"a heap event has the unknown kind {event.kind}")
    return BufferAssignment(allocations, buffers, traces)
