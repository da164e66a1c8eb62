"""Pair the starts and ends of asynchronous ops; the trace itself does not link them.

Op names and programs show which done op belongs to which start op. Executions of these two ops are
paired first in, first out: the oldest execution in flight ends first. Executions are ordered on the
trace clock, because both programs and ops have times on it. Some ops have zero duration on the
trace clock, so a start and a done can have equal times; then the start is sorted first.
"""

from __future__ import annotations

from array import array
from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from operator import itemgetter
from typing import TypeVar

from _breakdown.pipeline.clocks import Clock, Piece
from _breakdown.pipeline.timeline import separate_runs

K = TypeVar("K")


class Flights:
    """Three times for each pair of a start and a done: when the start began, when the wait for the
    end began, and when this wait ended.

    Times are stored in arrays to save memory, because a step can have hundreds of thousands of
    pairs.
    """

    def __init__(self) -> None:
        self.starts, self.waits, self.ends = array("q"), array("q"), array("q")

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def landings(self) -> array[int]:
        """Return the ends. If an end precedes its start, because two clocks were combined, the
        start is returned instead."""
        return array("q", map(max, self.starts, self.ends))

    def add(self, other: Flights) -> None:
        self.starts += other.starts
        self.waits += other.waits
        self.ends += other.ends


def flights_of(
    pieces: Iterable[Piece],
    clock: Clock,
    starts: Mapping[int, K],
    dones: Mapping[int, K],
    borders: Iterable[int],
) -> dict[int, Flights]:
    """Return the pairs for each done op, keyed by the done op's metadata id.

    `starts` and `dones` map metadata ids to keys; ops with equal keys are paired. `borders` are the
    times at which programs end. Starts that are unpaired at such a time are dropped, because no
    transfer outlasts its program.
    """
    awaited = set(dones.values())
    key_of = {i: key for i, key in starts.items() if key in awaited} | dict(dones)
    ends = deque(sorted(borders))
    flights = {metadata_id: Flights() for metadata_id in dones}
    # Start times that are not yet paired.
    in_flight: dict[K, deque[int]] = defaultdict(deque)
    for (at, is_done), metadata_id, start, end in executions_of(
        pieces, clock, key_of.keys(), dones
    ):
        while ends and ends[0] <= at:
            ends.popleft()
            in_flight.clear()
        queue = in_flight[key_of[metadata_id]]
        if not is_done:
            queue.append(start)
        elif queue:
            found = flights[metadata_id]
            found.starts.append(queue.popleft())
            found.waits.append(start)
            found.ends.append(end)
    return flights


def executions_of(
    pieces: Iterable[Piece], clock: Clock, wanted: Set[int], dones: Container[int]
) -> Iterator[tuple[tuple[int, bool], int, int, int]]:
    """Yield the sort key, metadata id, start and end of each execution of a wanted op.

    Executions are sorted by time. At equal times, starts precede dones; remaining ties keep the
    order of the file.
    """
    some = [piece for piece in pieces if not wanted.isdisjoint(piece.distinct_ids)]
    for run in separate_runs([(piece.first, piece.base + max(piece.starts)) for piece in some]):
        executions = []
        for piece in some[run]:
            columns = piece.metadata_ids, piece.starts, *clock.times(piece)
            for metadata_id, at, start, duration in zip(*columns, strict=True):
                if metadata_id in wanted:
                    order = piece.base + at, metadata_id in dones
                    executions.append((order, metadata_id, start, start + duration))
        executions.sort(key=itemgetter(0))
        yield from executions
