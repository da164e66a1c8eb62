"""Compute the number and the durations of each op's executions in a window."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator, Mapping
from itertools import compress
from operator import eq

from _breakdown.light import cached_property
from _breakdown.pipeline.clocks import Clock
from _breakdown.pipeline.device import AFTER_ALL
from _breakdown.pipeline.event_iterate import Admitted
from _breakdown.pipeline.ops import Op


class Longest:
    """The longest event of each op."""

    def __init__(self, durations: dict[int, int], admitted: Admitted, clock: Clock) -> None:
        self.durations = durations
        self._admitted = admitted
        self._clock = clock

    @cached_property
    def places(self) -> dict[int, int]:
        """Return the position of each op's longest event among the window's events, by metadata id.
        If several are equally long, return the first position."""
        places: dict[int, int] = {}
        place = 0
        for piece in self._admitted.pieces:
            _, durations = self._clock.times(piece)
            events = zip(piece.metadata_ids, range(place, place + len(durations)), strict=True)
            wanted = map(eq, map(self.durations.__getitem__, piece.metadata_ids), durations)
            for metadata_id, place_of_event in compress(events, wanted):
                places.setdefault(metadata_id, place_of_event)
            place += len(durations)
        return places


class Executions:
    """An op's executions within a window. A variable with them is named `ran`."""

    def __init__(self, metadata_id: int, op: Op, longest: Longest) -> None:
        self.metadata_id, self.op = metadata_id, op
        self.n = self.total = 0
        self.shortest, self.longest = AFTER_ALL, -1
        self._longest = longest

    @property
    def longest_at(self) -> int:
        """Return the position of the longest event among the window's events, or the first position
        if several are equally long."""
        return self._longest.places[self.metadata_id]

    def without(self, time: int) -> Executions:
        """Return the same executions with less time in total."""
        shorter = Executions(self.metadata_id, self.op, self._longest)
        shorter.n, shorter.total = self.n, self.total - time
        shorter.shortest, shorter.longest = self.shortest, self.longest
        return shorter


# `durations_by_op` joins the durations of this many pieces at a time. A larger number results in
# fewer pairs per op, but requires more memory.
N_FOLDED = 32


def fold(ops: Mapping[int, Op], admitted: Admitted, clock: Clock) -> dict[int, Executions]:
    """Return the executions of each op by metadata id, in order of appearance."""
    found: dict[int, Executions] = {}
    longest = Longest({}, admitted, clock)
    for metadata_id, durations in durations_by_op(admitted, clock):
        if metadata_id not in found:
            found[metadata_id] = Executions(metadata_id, ops[metadata_id], longest)
        ran = found[metadata_id]
        ran.n += len(durations)
        ran.total += sum(durations)
        # Sorting is three times as fast as `min` and `max`.
        durations.sort()
        ran.shortest = min(ran.shortest, durations[0])
        ran.longest = max(ran.longest, durations[-1])
        longest.durations[metadata_id] = ran.longest
    return found


def durations_by_op(admitted: Admitted, clock: Clock) -> Iterator[tuple[int, list[int]]]:
    """Yield pairs of a metadata id and the durations of some of the op's executions. An op can be
    in several pairs, which together contain all its executions."""
    for i in range(0, len(admitted.pieces), N_FOLDED):
        found: dict[int, list[int]] = defaultdict(list)
        for piece in admitted.pieces[i : i + N_FOLDED]:
            _, durations = clock.times(piece)
            # Mapping `append` is three times as fast as a loop.
            lists = map(found.__getitem__, piece.metadata_ids)
            deque(map(list.append, lists, durations), maxlen=0)
        yield from found.items()
