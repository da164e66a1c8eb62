"""Pairs the executions of asynchronous ops: a trace has their starts and their ends, and no link.

Which op ends which is a matter of names and programs. Of their executions a queue tells: the
oldest that is under way ends first. By the trace's clock, since only there do programs and ops
meet; but this clock draws some ops as instant, so that a start and the end of another stand at one
time, and then starts come first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Mapping
from typing import TypeVar

from _pipeline.clocks import Clock, Piece
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
    ends = sorted(borders)
    # In order: by time, starts before dones, then as in the file.
    events: list[tuple[tuple[int, bool, int], int, int, int]] = []
    for piece in pieces:
        if not key_of.keys().isdisjoint(piece.metadata_ids):
            columns = piece.metadata_ids, piece.starts, *clock.times(piece)
            for metadata_id, at, start, duration in zip(*columns, strict=True):
                if metadata_id in key_of:
                    order = piece.base + at, metadata_id in dones, len(events)
                    events.append((order, metadata_id, start, start + duration))
    flights: dict[int, list[Flight]] = {metadata_id: [] for metadata_id in dones}
    under_way: dict[K, deque[Flight]] = {}
    n_passed = 0
    for (at, is_done, _), metadata_id, start, end in sorted(events):
        if bisect_right(ends, at) > n_passed:
            n_passed = bisect_right(ends, at)
            under_way.clear()
        queue = under_way.setdefault(key_of[metadata_id], deque())
        if not is_done:
            if queue:
                queue[-1].is_ambiguous = True
            queue.append(Flight(start, start, start, bool(queue)))
        elif queue:
            flight = queue.popleft()
            flight.wait, flight.end = start, end
            flights[metadata_id].append(flight)
    return flights
