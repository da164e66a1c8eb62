"""Sum up a window for records: the time of each op, and the time in which any op runs.

A `Step` knows more, such as gaps and the longest execution of each op. Records need no gaps and no
longest executions, and leaving them out halves the time after decoding.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import islice
from operator import add, le
from typing import NamedTuple

from _pipeline.clocks import clock_of
from _pipeline.normalize import window_of
from _pipeline.timeline import gaps_of, kept, leaves_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Set

    from _pipeline.clocks import Clock
    from _pipeline.device import StepEvent
    from _pipeline.event_iterate import Admitted
    from _pipeline.ops import Op
    from _pipeline.timeline import Columns


class Sum(NamedTuple):
    """The number and total time of an op's executions within a window."""

    op: Op
    n: int
    total: int


class WindowSums(NamedTuple):
    """The sums of a window, by metadata id in order of appearance."""

    admitted: Admitted
    clock: Clock
    duration: int
    # Time during which at least one leaf runs.
    busy: int
    sums: dict[int, Sum]

    @property
    def leaves(self) -> list[Sum]:
        return [found for found in self.sums.values() if not found.op.is_container]


def sums_of(
    picked: StepEvent | None, admitted: Admitted, ops: Mapping[int, Op], containers: Set[int]
) -> WindowSums:
    """Return the sums of a window; `ops` may hold more ops than run in the window."""
    first, last = admitted.span if picked is None else (picked.start, picked.end)
    clock = clock_of(admitted.pieces, [] if picked and picked.device_span else [last])
    start, end = window_of(admitted, clock, picked, first, last)
    times: defaultdict[int, int] = defaultdict(int)
    counts: Counter[int] = Counter()
    for piece in admitted.pieces:
        _, durations = clock.times(piece)
        counts.update(piece.metadata_ids)
        for metadata_id, duration in zip(piece.metadata_ids, durations, strict=True):
            times[metadata_id] += duration
    busy = busy_without_overlap(leaves_of(admitted.pieces, clock, containers), start, end)
    if busy is None:
        busy = end - start - gaps_of(admitted.pieces, clock, containers, (start, end)).total
    sums = {
        metadata_id: Sum(ops[metadata_id], counts[metadata_id], total)
        for metadata_id, total in times.items()
    }
    return WindowSums(admitted, clock, end - start, busy, sums)


def busy_without_overlap(pieces: Iterable[Columns], start: int, end: int) -> int | None:
    """Return the time of the leaves within a window, or None if leaves overlap or are not
    sorted."""
    busy, covered = 0, start
    for columns in pieces:
        starts, durations, _ = columns if all(columns[1]) else kept(columns, columns[1])
        if not starts:
            continue
        ends = list(map(add, starts, durations))
        # Ops that begin outside of the window are rare. Only the last op may end after the window.
        if not (covered <= starts[0] and starts[-1] <= end):
            return None
        if not all(map(le, ends, islice(starts, 1, None))):
            return None
        busy += sum(durations)
        covered = ends[-1]
    return busy - max(0, covered - end)
