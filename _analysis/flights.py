"""Pairs the executions of asynchronous ops: a trace has their starts and their ends, and no link.

Which op ends which is a matter of names and programs. Of their executions a queue tells: the
oldest that is under way ends first. By the trace's clock, since only there do programs and ops
meet; but this clock draws some ops as instant, so that a start and the end of another stand at one
time, and then starts come first.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterable, Iterator, Mapping, Set
from operator import itemgetter
from typing import TypeVar

from _pipeline.clocks import Clock, Piece
from _pipeline.timeline import separate_runs
from _proto.record import record

K = TypeVar("K")


@record
class Flight:
    """A paired execution: when it begins, and when the wait for it begins and ends."""

    start: int
    wait: int
    end: int
    # Whether others of its kind were under way, so that pairing them in order is an assumption.
    is_ambiguous: bool


def flights_of(
    pieces: Iterable[Piece],
    clock: Clock,
    starts: Mapping[int, K],
    dones: Mapping[int, K],
    borders: Iterable[int],
) -> dict[int, list[Flight]]:
    """The paired executions of dones, by metadata id.

    What starts and what ends is given by metadata ids, each with what it is matched by; and the
    times at which programs end: nothing outlasts its own.
    """
    awaited = set(dones.values())
    key_of = {i: key for i, key in starts.items() if key in awaited} | dict(dones)
    ends = deque(sorted(borders))
    flights: dict[int, list[Flight]] = {metadata_id: [] for metadata_id in dones}
    under_way: dict[K, deque[Flight]] = defaultdict(deque)
    for (at, is_done), metadata_id, start, end in executions_of(
        pieces, clock, key_of.keys(), dones
    ):
        while ends and ends[0] <= at:
            ends.popleft()
            under_way.clear()
        queue = under_way[key_of[metadata_id]]
        if not is_done:
            if queue:
                queue[-1].is_ambiguous = True
            queue.append(Flight(start, start, start, bool(queue)))
        elif queue:
            flight = queue.popleft()
            flight.wait, flight.end = start, end
            flights[metadata_id].append(flight)
    return flights


def executions_of(
    pieces: Iterable[Piece], clock: Clock, wanted: Set[int], dones: Container[int]
) -> Iterator[tuple[tuple[int, bool], int, int, int]]:
    """Yield the wanted ops' executions: the order, metadata id, start and end of each.

    They are in order by time, starts before dones, then as in the file.
    """
    some = [piece for piece in pieces if not wanted.isdisjoint(piece.metadata_ids)]
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
