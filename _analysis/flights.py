"""Pair the starts and ends of asynchronous ops, which a trace does not link.

Names and programs show which done op belongs to which start op. Executions of a start op and a done
op are paired as a queue: the oldest execution in flight ends first. Times are on the trace's clock,
because only this clock has both programs and ops. On the trace's clock, some ops have a duration of
0, so a start and a done can have equal times. Then starts come first.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from operator import itemgetter
from typing import TypeVar

from _pipeline.clocks import Clock, Piece
from _pipeline.timeline import separate_runs

K = TypeVar("K")


class Flight:
    """A paired execution, with the time of the start and the begin and end of the wait."""

    # Use slots, because a step can have hundreds of thousands of flights.
    __slots__ = ("end", "is_ambiguous", "start", "wait")

    def __init__(self, start: int, is_ambiguous: bool) -> None:
        self.start = self.wait = self.end = start
        # True if other executions with the same key were in flight, so that the order of ends is an
        # assumption.
        self.is_ambiguous = is_ambiguous


def flights_of(
    pieces: Iterable[Piece],
    clock: Clock,
    starts: Mapping[int, K],
    dones: Mapping[int, K],
    borders: Iterable[int],
) -> dict[int, list[Flight]]:
    """Return the paired executions of dones, by metadata id.

    `starts` and `dones` map metadata ids to keys; equal keys are paired. `borders` are the times at
    which programs end, because no flight outlasts the program.
    """
    awaited = set(dones.values())
    key_of = {i: key for i, key in starts.items() if key in awaited} | dict(dones)
    ends = deque(sorted(borders))
    flights: dict[int, list[Flight]] = {metadata_id: [] for metadata_id in dones}
    in_flight: dict[K, deque[Flight]] = defaultdict(deque)
    for (at, is_done), metadata_id, start, end in executions_of(
        pieces, clock, key_of.keys(), dones
    ):
        while ends and ends[0] <= at:
            ends.popleft()
            in_flight.clear()
        queue = in_flight[key_of[metadata_id]]
        if not is_done:
            if queue:
                queue[-1].is_ambiguous = True
            queue.append(Flight(start, bool(queue)))
        elif queue:
            flight = queue.popleft()
            flight.wait, flight.end = start, end
            flights[metadata_id].append(flight)
    return flights


def executions_of(
    pieces: Iterable[Piece], clock: Clock, wanted: Set[int], dones: Container[int]
) -> Iterator[tuple[tuple[int, bool], int, int, int]]:
    """Yield the sort key, metadata id, start and end of the executions of the wanted ops.

    Executions are sorted by time. At equal times, starts come before dones, and otherwise the order
    of the file is kept.
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
