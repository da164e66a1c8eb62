"""Find a program's peak use of HBM by simulating its buffer assignment.

Parameters, outputs and constants have memory for as long as the program runs; all other buffers
share temporary allocations. Heap traces show when each buffer is live. Heap traces are replayed as
in XProf's memory viewer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final, Literal

from _breakdown.light import NamedTuple, cached_property
from _breakdown.pipeline.groups import grouped, summed
from _proto.hlo.buffers import (
    ALLOC,
    FREE,
    SHARE,
    Allocation,
    Buffer,
    BufferAssignment,
    HeapEvent,
    LogicalBuffer,
    read_buffers,
)
from _proto.hlo.program import Instruction, Program

HBM = 0
PARAMETER: Final = "parameter"
OUTPUT: Final = "output"
CONSTANT: Final = "constant"
TEMPORARY: Final = "temporary"
BufferKind = Literal["parameter", "output", "constant", "temporary"]
KINDS: tuple[BufferKind, ...] = (PARAMETER, OUTPUT, CONSTANT, TEMPORARY)


class Contradiction(Exception):
    """Raised if the buffer assignment contradicts itself; a correct compiler never writes this."""


class HeldMemory:
    """Memory that is live at the peak, and the ids of the buffers that it can be named after."""

    def __init__(
        self, size: int, kind: BufferKind, assignment: BufferAssignment, ids: Sequence[int]
    ) -> None:
        self.size, self.kind, self._assignment, self._ids = size, kind, assignment, ids

    @cached_property
    def buffer(self) -> Buffer | None:
        """Return a parameter among the buffers, else the largest one. Ties go to the lowest id."""

        def rank(buffer: Buffer) -> tuple[bool, int, int]:
            here = buffer.instruction
            is_parameter = here is not None and here.opcode == PARAMETER
            return not is_parameter, -buffer.size, buffer.message.id

        return min(map(self._assignment.buffer, self._ids), key=rank, default=None)

    @property
    def instruction(self) -> Instruction | None:
        return self.buffer.instruction if self.buffer else None


class Peak(NamedTuple):
    """The use of memory at the peak.

    `size` is an upper bound if the maxima of several heaps are added up, or if temporary memory
    without a heap trace (`n_untraced` bytes) counts in full.
    """

    assignment: BufferAssignment
    held: list[HeldMemory]
    reserved: int
    maxima: list[_Maximum]
    n_untraced: int
    # Allocated bytes in other memory spaces, keyed by the number of the space.
    other_spaces: dict[str, int]

    @property
    def size(self) -> int:
        return sum(held.size for held in self.held)

    @property
    def instruction_name(self) -> str:
        """Return the instruction at which the largest heap reaches its maximum; "" without a heap
        trace."""
        largest = max(self.maxima, key=lambda maximum: maximum.size, default=None)
        return largest.instruction_name if largest else ""

    def fall_with(self, size_of: Callable[[Buffer], int]) -> int:
        """Return by how much the peak falls if the buffers in heaps have other sizes."""
        fall = 0
        for maximum in self.maxima:
            ids = {event.buffer_id for event in maximum.events}
            sizes = {number: size_of(self.assignment.buffer(number)) for number in ids}
            fall += maximum.size - max(_live_bytes(maximum.events, sizes, {}))
        return fall

    @property
    def by_kind(self) -> dict[BufferKind, int]:
        return {kind: sum(held.size for held in self.held if held.kind == kind) for kind in KINDS}


class _Maximum(NamedTuple):
    """The maximum size of a heap, and the ids of the buffers that are live when it is first
    reached."""

    size: int
    live: list[int]
    instruction_name: str
    # The events of the heap.
    events: list[HeapEvent]


def peak_of_program(program: Program) -> Peak | None:
    """Return the program's peak HBM usage, or None if the buffer assignment is missing or
    contradicts itself. Several causes of one step ask for it."""
    if Peak not in program.derived:
        program.derived[Peak] = _read_peak(program)
    peak: Peak | None = program.derived[Peak]
    return peak


def _read_peak(program: Program) -> Peak | None:
    buffers = read_buffers(program)
    try:
        return None if buffers is None else _peak_of(buffers)
    except Contradiction as error:
        program.complain(f"the buffer assignment is inconsistent: {error}")
        return None


def _peak_of(assignment: BufferAssignment) -> Peak:
    """Return the peak use of HBM; raise Contradiction if the assignment contradicts itself."""
    # Exclude thread-local allocations: they are inside fusions and take no memory.
    allocations = [
        allocation
        for allocation in assignment.allocations
        if allocation.color == HBM and not allocation.is_thread_local
    ]
    if not assignment.allocations:
        raise Contradiction("the buffer assignment has no allocations")
    heap_events = _heap_events(assignment, _allocation_by_buffer(allocations, assignment.buffers))
    held: list[HeldMemory] = []
    maxima: list[_Maximum] = []
    n_untraced = 0
    for place, allocation in enumerate(allocations):
        if kind_of(allocation) != TEMPORARY:
            held.append(_held_whole(allocation, assignment))
        elif place in heap_events:
            found = [_maximum(events, assignment.buffers) for events in heap_events[place]]
            if sum(maximum.size for maximum in found) > allocation.size:
                raise Contradiction(
                    f"allocation {allocation.index} is smaller than the buffers that are live in it"
                )
            maxima += found
            held += [
                HeldMemory(assignment.buffers[number].size, TEMPORARY, assignment, [number])
                for maximum in found
                for number in maximum.live
            ]
        elif allocation.size:
            n_untraced += allocation.size
            held.append(_held_whole(allocation, assignment))
    return Peak(
        assignment,
        held,
        sum(allocation.size for allocation in allocations),
        maxima,
        n_untraced,
        _other_spaces(assignment.allocations),
    )


def _other_spaces(allocations: Sequence[Allocation]) -> dict[str, int]:
    return summed(
        (str(allocation.color), allocation.size)
        for allocation in allocations
        if allocation.color != HBM and not allocation.is_thread_local
    )


def kind_of(allocation: Allocation) -> BufferKind:
    """Return the kind of an allocation; if several kinds apply, the first in order of `KINDS`."""
    if allocation.is_entry_computation_parameter:
        return PARAMETER
    if allocation.maybe_live_out:
        return OUTPUT
    return CONSTANT if allocation.is_constant else TEMPORARY


def _held_whole(allocation: Allocation, assignment: BufferAssignment) -> HeldMemory:
    ids = [assigned.logical_buffer_id for assigned in allocation.assigned]
    return HeldMemory(allocation.size, kind_of(allocation), assignment, ids)


def _allocation_by_buffer(
    allocations: Sequence[Allocation], buffers: Mapping[int, LogicalBuffer]
) -> dict[int, int]:
    """Map each buffer's id to the index of the allocation that contains it."""
    allocation_by_buffer: dict[int, int] = {}
    for place, allocation in enumerate(allocations):
        whole = allocation.size
        for assigned in allocation.assigned:
            buffer_id, offset, size = assigned.logical_buffer_id, assigned.offset, assigned.size
            if buffer_id not in buffers:
                raise Contradiction(
                    f"allocation {allocation.index} refers to the unknown buffer {buffer_id}"
                )
            if buffer_id in allocation_by_buffer:
                raise Contradiction(f"buffer {buffer_id} is in two allocations")
            if min(offset, size, buffers[buffer_id].size) < 0:
                raise Contradiction(f"buffer {buffer_id} has a negative size or offset")
            if offset + size > whole:
                raise Contradiction(f"buffer {buffer_id} exceeds allocation {allocation.index}")
            allocation_by_buffer[buffer_id] = place
    return allocation_by_buffer


def _heap_events(
    assignment: BufferAssignment, allocation_by_buffer: Mapping[int, int]
) -> dict[int, list[list[HeapEvent]]]:
    """Return the events of each heap trace, keyed by the allocation's index.

    If the compiler spreads one heap over several allocations, it repeats the heap's trace for each
    of them, so repetitions are skipped.
    """
    heap_events: dict[int, list[list[HeapEvent]]] = {}
    events_of_buffer: dict[int, list[HeapEvent]] = {}
    for trace in assignment.traces:
        ids = [event.buffer_id for event in trace]
        if unknown := set(ids) - assignment.buffers.keys():
            raise Contradiction(f"a heap trace refers to the unknown buffer {min(unknown)}")
        by_place = grouped(
            (allocation_by_buffer[number], event)
            for number, event in zip(ids, trace, strict=True)
            if number in allocation_by_buffer
        )
        for place, events in by_place.items():
            if events_of_buffer.get(events[0].buffer_id) == events:
                continue
            for event in events:
                if events_of_buffer.setdefault(event.buffer_id, events) is not events:
                    raise Contradiction(f"two heap traces disagree about buffer {event.buffer_id}")
            heap_events.setdefault(place, []).append(events)
    return heap_events


def _maximum(events: list[HeapEvent], buffers: Mapping[int, LogicalBuffer]) -> _Maximum:
    sizes = {event.buffer_id: buffers[event.buffer_id].size for event in events}
    totals = list(_live_bytes(events, sizes, {}))
    size = max(totals)
    at = totals.index(size)
    live: dict[int, int] = {}
    # Replay the events up to the maximum.
    for _ in _live_bytes(events[: at + 1], sizes, live):
        pass
    return _Maximum(size, list(live), events[at].instruction_name, events)


def _live_bytes(
    events: Sequence[HeapEvent], sizes: Mapping[int, int], live: dict[int, int]
) -> Iterator[int]:
    """Yield the bytes that are live after each event.

    Buffers that share memory count once, as their canonical buffer, while any of them is allocated.
    `live` has the number of allocated buffers for each canonical buffer. If a buffer shares memory
    with a buffer that was already freed, the memory counts again.
    """
    size = 0
    canonical: dict[int, int] = {}
    present: set[int] = set()
    for event in events:
        buffer_id = event.buffer_id
        if event.kind == FREE:
            if buffer_id not in present:
                raise Contradiction(f"buffer {buffer_id} is freed but was not allocated")
            present.remove(buffer_id)
            owner = canonical[buffer_id]
            live[owner] -= 1
            if not live[owner]:
                del live[owner]
                size -= sizes[owner]
        else:
            if event.kind not in (ALLOC, SHARE):
                raise Contradiction(f"a heap event has the unknown kind {event.kind}")
            if buffer_id in present:
                raise Contradiction(f"buffer {buffer_id} is allocated twice")
            shared = event.share_with_canonical_id
            if event.kind != ALLOC and shared not in canonical:
                raise Contradiction(
                    f"buffer {buffer_id} shares memory with {shared}, which was never allocated"
                )
            owner = buffer_id if event.kind == ALLOC else canonical[shared]
            present.add(buffer_id)
            canonical[buffer_id] = owner
            if owner not in live:
                size += sizes[owner]
            live[owner] = live.get(owner, 0) + 1
        yield size
