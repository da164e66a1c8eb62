"""What a program holds in HBM when it holds most: its buffer assignment, walked through.

Some allocations last as long as the program runs. All else shares temporary ones, whose heap
traces tell what of them is live when: a trace is gone through as XProf's memory viewer does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from _proto.hlo.buffers import ALLOC, FREE, Allocation, Buffer, BufferAssignment, HeapEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.hlo.program import Instruction

HBM = 0
PARAMETER, OUTPUT, CONSTANT, TEMPORARY = KINDS = ("parameter", "output", "constant", "temporary")


class Contradiction(Exception):
    """What no compiler writes: the assignment can't be believed."""


class Held(NamedTuple):
    """Memory that is live at the peak, and the buffer that it is told by."""

    size: int
    kind: str
    buffer: Buffer | None
    parameter_number: int | None

    @property
    def instruction(self) -> Instruction | None:
        """What puts it out."""
        return self.buffer.instruction if self.buffer else None


class Peak(NamedTuple):
    """What is live at the peak, what is reserved, and the instruction that the peak is reached at,
    if a trace tells.

    It is an upper bound where several maxima were added up, and where temporary memory of which no
    trace tells (`n_untraced` bytes) counts in whole.
    """

    held: list[Held]
    reserved: int
    instruction_name: str
    n_maxima: int
    n_untraced: int
    # What is allocated in memories other than the HBM, by their numbers.
    other_spaces: dict[str, int]

    @property
    def size(self) -> int:
        return sum(each.size for each in self.held)

    @property
    def by_kind(self) -> dict[str, int]:
        return {kind: sum(each.size for each in self.held if each.kind == kind) for kind in KINDS}


class _Maximum(NamedTuple):
    """What is live after the first event after which most is."""

    size: int
    live: list[Buffer]
    instruction_name: str


def peak_of(assignment: BufferAssignment) -> Peak:
    """The peak of HBM; raises Contradiction. What is thread-local is inside fusions: no memory."""
    allocations = [
        each for each in assignment.allocations if each.color == HBM and not each.is_thread_local
    ]
    if not assignment.allocations:
        raise Contradiction("it allocates nothing")
    histories = _histories(assignment, _homes(allocations, assignment.buffers))
    held: list[Held] = []
    maxima: list[_Maximum] = []
    n_untraced = 0
    for place, allocation in enumerate(allocations):
        if kind_of(allocation) != TEMPORARY:
            held.append(_whole(allocation, assignment.buffers))
        elif place in histories:
            found = [_maximum(events, assignment.buffers) for events in histories[place]]
            if sum(maximum.size for maximum in found) > allocation.size:
                raise Contradiction(f"more is live in allocation {allocation.number} than it has")
            maxima += found
            live = [buffer for maximum in found for buffer in maximum.live]
            held += [Held(buffer.size, TEMPORARY, buffer, None) for buffer in live]
        elif allocation.size:
            n_untraced += allocation.size
            held.append(_whole(allocation, assignment.buffers))
    largest = max(maxima, key=lambda maximum: maximum.size, default=None)
    return Peak(
        held,
        sum(allocation.size for allocation in allocations),
        largest.instruction_name if largest else "",
        len(maxima),
        n_untraced,
        _other_spaces(assignment.allocations),
    )


def _other_spaces(allocations: Sequence[Allocation]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for each in allocations:
        if each.color != HBM and not each.is_thread_local:
            sizes[str(each.color)] = sizes.get(str(each.color), 0) + each.size
    return sizes


def kind_of(allocation: Allocation) -> str:
    """What is more than one is the first of these."""
    if allocation.is_parameter:
        return PARAMETER
    if allocation.maybe_live_out:
        return OUTPUT
    return CONSTANT if allocation.is_constant else TEMPORARY


def _whole(allocation: Allocation, buffers: Mapping[int, Buffer]) -> Held:
    """An allocation told by its parameter, else its largest buffer, of several that of least id."""

    def rank(buffer: Buffer) -> tuple[bool, int, int]:
        is_parameter = buffer.instruction is not None and buffer.instruction.opcode == PARAMETER
        return not is_parameter, -buffer.size, buffer.id

    kind = kind_of(allocation)
    return Held(
        allocation.size,
        kind,
        min((buffers[each.buffer_id] for each in allocation.assigned), key=rank, default=None),
        allocation.parameter_number if kind == PARAMETER else None,
    )


def _homes(allocations: Sequence[Allocation], buffers: Mapping[int, Buffer]) -> dict[int, int]:
    """In which of the allocations each buffer lies."""
    homes: dict[int, int] = {}
    for place, allocation in enumerate(allocations):
        for buffer_id, offset, size in allocation.assigned:
            if buffer_id not in buffers:
                raise Contradiction(f"allocation {allocation.number} holds no buffer {buffer_id}")
            if buffer_id in homes:
                raise Contradiction(f"buffer {buffer_id} lies in two places")
            if offset + size > allocation.size:
                raise Contradiction(f"buffer {buffer_id} lies outside its allocation")
            homes[buffer_id] = place
    return homes


def _histories(
    assignment: BufferAssignment, homes: Mapping[int, int]
) -> dict[int, list[list[HeapEvent]]]:
    """What happens in each allocation: of each trace the events of its buffers.

    A compiler that spreads one heap over several allocations writes its trace with each of them.
    """
    histories: dict[int, list[list[HeapEvent]]] = {}
    told: dict[int, list[HeapEvent]] = {}
    for trace in assignment.traces:
        by_place: dict[int, list[HeapEvent]] = {}
        for event in trace:
            if event.buffer_id not in assignment.buffers:
                raise Contradiction(f"a heap trace has an unknown buffer {event.buffer_id}")
            if event.buffer_id in homes:
                by_place.setdefault(homes[event.buffer_id], []).append(event)
        for place, events in by_place.items():
            if told.get(events[0].buffer_id) == events:
                continue
            for event in events:
                if told.setdefault(event.buffer_id, events) is not events:
                    raise Contradiction(f"two heap traces differ on buffer {event.buffer_id}")
            histories.setdefault(place, []).append(events)
    return histories


def _maximum(events: Sequence[HeapEvent], buffers: Mapping[int, Buffer]) -> _Maximum:
    sizes = list(_sizes(events, buffers, {}))
    size = max(sizes)
    at = sizes.index(size)
    live: dict[int, int] = {}
    # Once more, up to there.
    for _ in _sizes(events[: at + 1], buffers, live):
        pass
    return _Maximum(size, [buffers[each] for each in live], events[at].instruction_name)


def _sizes(
    events: Sequence[HeapEvent], buffers: Mapping[int, Buffer], live: dict[int, int]
) -> Iterator[int]:
    """How many bytes are live after each event.

    Buffers that share memory are one, the canonical one, as long as one of them is there: `live`
    counts them. Who shares with what was just freed takes its memory over, so it counts again.
    """
    size = 0
    canonical: dict[int, int] = {}
    present: set[int] = set()
    for event in events:
        buffer_id = event.buffer_id
        if event.kind == FREE:
            if buffer_id not in present:
                raise Contradiction(f"buffer {buffer_id} is freed, and wasn't allocated")
            present.remove(buffer_id)
            owner = canonical[buffer_id]
            live[owner] -= 1
            if not live[owner]:
                del live[owner]
                size -= buffers[owner].size
        else:
            if buffer_id in present:
                raise Contradiction(f"buffer {buffer_id} is allocated twice")
            if event.kind != ALLOC and event.shares_with not in canonical:
                raise Contradiction(f"buffer {buffer_id} shares with one that has no memory there")
            owner = buffer_id if event.kind == ALLOC else canonical[event.shares_with]
            present.add(buffer_id)
            canonical[buffer_id] = owner
            if owner not in live:
                size += buffers[owner].size
            live[owner] = live.get(owner, 0) + 1
        yield size
