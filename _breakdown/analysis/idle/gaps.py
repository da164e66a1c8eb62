"""Find gaps between ops, the ops before and after each gap, and the gap's start and end on the
trace clock."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from heapq import nlargest
from itertools import compress
from operator import add, or_

from _breakdown.light import NamedTuple
from _breakdown.pipeline.host import NOBODY, track_of
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.timeline import columns_of, events_of

Window = tuple[int, int]


class Neighbour(NamedTuple):
    """An execution that ends when a gap begins, or begins when a gap ends."""

    op: Op
    start: int
    # Start and end of the execution on the trace clock.
    drawn: Window


class Gap(NamedTuple):
    """A part of the step in which no leaf op runs. `after` is the preceding op, `before` the
    following op, and `inside` the op that contains the gap."""

    start: int
    duration: int
    after: Op | None
    before: Op | None
    inside: Op | None


def longest_gaps(step: Step, n: int) -> list[Window]:
    """Return the n longest gaps, longest first; ties in order of start."""
    ranked = nlargest(n, ((end - start, -start) for start, end in step.timeline.gaps))
    return [(-negative_start, duration - negative_start) for duration, negative_start in ranked]


class GapSurroundings:
    """Finds the ops before, after and around given gaps of a step."""

    def __init__(self, step: Step, gaps: Iterable[Window]) -> None:
        self._step = step
        self._edges = step.edges
        # The execution that precedes a gap, keyed by the gap's start, and the execution that
        # follows it, keyed by the gap's end.
        self._preceding: dict[int, Neighbour | None] = dict.fromkeys(start for start, _ in gaps)
        self._following: dict[int, Neighbour | None] = dict.fromkeys(end for _, end in gaps)
        self._find_neighbours()
        # A gap at the start or end of the step has no neighbour there.
        self._preceding.pop(step.timeline.start, None)
        self._following.pop(step.timeline.end, None)
        ids = {container.metadata_id for container in step.containers}
        events = list(events_of(step.admitted.pieces, step.clock, ids))
        self._ops = [step.executions[metadata_id].op for _, _, metadata_id in events]
        self._containers = track_of(
            array("q", [start for start, _, _ in events]),
            array("q", [start + duration for start, duration, _ in events]),
            array("i", range(len(events))),
        )

    def _find_neighbours(self) -> None:
        step = self._step
        leaves = {ran.metadata_id: ran.op for ran in step.leaves}
        starts_of_gaps, ends_of_gaps = self._preceding.keys(), self._following.keys()
        for piece in step.admitted.pieces:
            starts, durations, metadata_ids = columns_of(piece, step.clock)
            ends = list(map(add, starts, durations))
            if ends_of_gaps.isdisjoint(starts) and starts_of_gaps.isdisjoint(ends):
                continue
            is_next = list(map(self._following.__contains__, starts))
            was_last = list(map(self._preceding.__contains__, ends))
            for i in compress(range(len(starts)), map(or_, is_next, was_last)):
                op = leaves.get(metadata_ids[i])
                if op is None or not durations[i]:
                    continue
                begin = piece.base + piece.starts[i]
                found = Neighbour(op, starts[i], (begin, begin + piece.durations[i]))
                if is_next[i] and not self._following[starts[i]]:
                    self._following[starts[i]] = found
                if was_last[i]:
                    known = self._preceding[ends[i]]
                    if not known or starts[i] < known.start:
                        self._preceding[ends[i]] = found

    def gap(self, start: int, end: int) -> Gap:
        preceding, following = self._preceding.get(start), self._following.get(end)
        place = self._containers.place_at(start)
        return Gap(
            start,
            end - start,
            preceding.op if preceding else None,
            following.op if following else None,
            None if place == NOBODY else self._ops[self._containers.names[place]],
        )

    def window(self, start: int, end: int) -> Window | None:
        """Return a gap's start and end as absolute times on the trace clock; None if the gap has no
        positive length on this clock."""
        preceding, following = self._preceding.get(start), self._following.get(end)
        first, last = self._edges
        begin = preceding.drawn[1] if preceding else first
        finish = following.drawn[0] if following else last
        base = self._step.device.base
        return (begin + base, finish + base) if begin < finish else None
