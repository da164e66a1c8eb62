"""Make random buffer assignments for random programs, similar to those that compilers write.

This module simulates a heap, instruction by instruction: buffers are allocated and freed, share
memory, and reuse freed memory. An assignment also has parameters, results, constants, thread-local
buffers, and buffers in other memory spaces. A heap can be spread over several allocations, and can
have no, one or several heap traces.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from tests.builders.hlo_proto import (
    ALLOC,
    FREE,
    SHARE,
    Instruction,
    allocation,
    buffer,
    heap_trace,
)

# There are only a few sizes, so that equal sizes are frequent.
SIZES = (0, 32, 512, 512, 1024, 4096, 2**33)
Event = tuple[int, int, str, int]


def chance(rng: random.Random, probability: float) -> bool:
    return rng.random() < probability


@dataclass
class Piece:
    """Represent an allocation under construction."""

    size: int
    assigned: list[tuple[int, int, int]]
    parameter: int | None = None
    live_out: bool = False
    constant: bool = False
    thread_local: bool = False
    color: int = 0


@dataclass
class Heap:
    """Hold a heap's events, the part that each buffer is in, and each part's maximum of live
    bytes.
    """

    events: list[Event] = field(default_factory=list)
    part_of: dict[int, int] = field(default_factory=dict)
    most: list[int] = field(default_factory=list)


class BufferMaker:
    def __init__(self, rng: random.Random, instructions: Sequence[Instruction]) -> None:
        self.rng = rng
        self.instructions = [
            instruction for instruction in instructions if instruction.id is not None
        ]
        self.buffers: list[bytes] = []
        self.sizes: dict[int, int] = {}
        self.pieces: list[Piece] = []
        self.traces: list[list[Event]] = []

    def make(self) -> bytes:
        rng = self.rng
        self.add_lasting()
        for _ in range(rng.choice((0, 1, 1, 1, 1, 2))):
            self.add_heap(color=0)
        if chance(rng, 0.5):
            self.add_heap(color=rng.choice((1, 2, 5)))
        if chance(rng, 0.3):
            # Sometimes add a heap trace whose buffers have no allocation.
            self.traces.append(self.heap(1, 0).events)
        if chance(rng, 0.5):
            self.traces.insert(0, [])
        rng.shuffle(self.pieces)
        pieces = [
            allocation(
                number,
                piece.size,
                *piece.assigned,
                parameter=piece.parameter,
                live_out=piece.live_out,
                constant=piece.constant,
                thread_local=piece.thread_local,
                color=piece.color,
            )
            for number, piece in enumerate(self.pieces)
        ]
        return b"".join([*self.buffers, *pieces, *(heap_trace(*trace) for trace in self.traces)])

    # buffers

    def new(self, instruction: Instruction | None = None, color: int = 0) -> int:
        """Return the id of a new buffer for an instruction's output, or for a part of it."""
        rng = self.rng
        some = instruction or rng.choice(self.instructions)
        index: Sequence[int] = ()
        if some.shape and some.shape.parts and chance(rng, 0.8):
            index = [rng.randrange(len(some.shape.parts))]
        buffer_id, size = 10 + len(self.sizes), rng.choice(SIZES)
        self.sizes[buffer_id] = size
        self.buffers.append(buffer(buffer_id, size, some.id or 0, *index, color=color))
        return buffer_id

    def holding(self, buffer_ids: Sequence[int]) -> Piece:
        """Return an allocation in which all buffers start at offset 0."""
        size = max((self.sizes[i] for i in buffer_ids), default=self.rng.choice(SIZES))
        return Piece(size, [(i, 0, self.sizes[i]) for i in buffer_ids])

    def add_lasting(self) -> None:
        """Add thread-local allocations, and allocations that live throughout the program."""
        rng = self.rng
        for number, parameter in enumerate(i for i in self.instructions if i.opcode == "parameter"):
            if chance(rng, 0.5):
                there = [self.new(parameter)] if chance(rng, 0.9) else []
                there += [self.new() for _ in range(rng.choice((0, 0, 1, 2)))]
                piece = self.holding(rng.sample(there, len(there)))
                piece.parameter, piece.live_out = number, chance(rng, 0.4)
                piece.color = rng.choice((0, 0, 0, 5))
                self.pieces.append(piece)
        for _ in range(rng.choice((0, 1, 3))):
            piece = self.holding([self.new() for _ in range(rng.choice((0, 1, 1, 2)))])
            piece.live_out, piece.constant = rng.choice(
                ((True, False), (False, True), (True, True))
            )
            self.pieces.append(piece)
        for _ in range(rng.choice((0, 2))):
            piece = self.holding([self.new()])
            piece.thread_local, piece.live_out = True, chance(rng, 0.2)
            self.pieces.append(piece)

    # heaps

    def heap(self, n_parts: int, color: int) -> Heap:
        rng = self.rng
        heap = Heap(most=[0] * n_parts)
        live = [0] * n_parts
        canonical: dict[int, int] = {}
        holders: list[int] = []
        just_freed: list[int] = []
        for _ in range(rng.choice((1, 4, 10, 25))):
            at = rng.choice(self.instructions).name or ""
            to_share = [*holders, *just_freed]
            just_freed = []
            if holders and chance(rng, 0.4):
                gone = holders.pop(rng.randrange(len(holders)))
                heap.events.append((FREE, gone, at, 0))
                if canonical[gone] not in [canonical[i] for i in holders]:
                    live[heap.part_of[gone]] -= self.sizes[canonical[gone]]
                    just_freed = [gone]
                continue
            made = self.new(color=color)
            if to_share and chance(rng, 0.4):
                other = rng.choice(to_share)
                canonical[made] = canonical[other]
                # Compilers write the id of the buffer that owns the memory.
                named = canonical[other] if chance(rng, 0.8) else other
                heap.events.append((SHARE, made, at, named))
            else:
                other = canonical[made] = made
                heap.part_of[made] = rng.randrange(n_parts)
                heap.events.append((ALLOC, made, at, 0))
            part = heap.part_of[made] = heap.part_of[other]
            if canonical[made] not in [canonical[i] for i in holders]:
                live[part] += self.sizes[canonical[made]]
            heap.most[part] = max(heap.most[part], live[part])
            holders.append(made)
        if chance(rng, 0.7):
            heap.events += [(FREE, i, "", 0) for i in holders]
        return heap

    def add_heap(self, color: int) -> None:
        rng = self.rng
        heap = self.heap(rng.choice((1, 1, 1, 2)), color)
        pieces = []
        for part, most in enumerate(heap.most):
            there = [i for i, its_part in heap.part_of.items() if its_part == part]
            largest = max((self.sizes[i] for i in there), default=0)
            size = max(most, largest) + rng.choice((0, 0, 512))
            pieces.append(Piece(size, [(i, 0, self.sizes[i]) for i in there], color=color))
        if chance(rng, 0.2):
            # Add a buffer without events in a heap trace, as for a tuple's table of pointers.
            rng.choice(pieces).assigned.append((self.new(color=color), 0, 0))
        if chance(rng, 0.15):
            # Add a second heap trace for the same allocation.
            other = self.heap(1, color)
            pieces[0].size += other.most[0]
            pieces[0].size = max([pieces[0].size, *(self.sizes[i] for i in other.part_of)])
            pieces[0].assigned += [(i, 0, self.sizes[i]) for i in other.part_of]
            self.traces.append(other.events)
        self.pieces += pieces
        if chance(rng, 0.9):
            self.traces += [heap.events] * (len(pieces) if chance(rng, 0.9) else 1)

    # No compiler writes the following assignments: they contradict themselves.
