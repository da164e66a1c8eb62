"""Compute the sums of a window for records: the time of each op, and the time during which any op
runs.

A `Step` also has the gaps and the longest execution of each op. Records do not need them, and
omitting them halves the time spent after decoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from operator import add, le

from _breakdown.light import NamedTuple
from _breakdown.pipeline.clocks import Clock
from _breakdown.pipeline.event_iterate import Admitted
from _breakdown.pipeline.executions import durations_by_op
from _breakdown.pipeline.normalize import Step, measure
from _breakdown.pipeline.step_event import StepEvent
from _breakdown.pipeline.timeline import Columns, gaps_of, kept, leaves_of


class WindowSums(NamedTuple):
    """A window's busy time, and sums for each op. The keys of the dicts are the ops' metadata ids,
    in order of appearance."""

    admitted: Admitted
    clock: Clock
    duration: int
    # Time during which at least one leaf runs.
    busy: int
    # The total time and the number of executions of each op.
    times: dict[int, int]
    counts: dict[int, int]


def sums_of(picked: StepEvent | None, admitted: Admitted, containers: Set[int]) -> WindowSums:
    step = picked or StepEvent(0, None, *admitted.span, None)
    clock, (start, end) = measure(step, admitted)
    times: dict[int, int] = {}
    counts: dict[int, int] = {}
    for metadata_id, durations in durations_by_op(admitted, clock):
        times[metadata_id] = times.get(metadata_id, 0) + sum(durations)
        counts[metadata_id] = counts.get(metadata_id, 0) + len(durations)
    busy = busy_without_overlap(leaves_of(admitted.pieces, clock, containers), start, end)
    if busy is None:
        busy = end - start - gaps_of(admitted.pieces, clock, containers, (start, end)).total
    return WindowSums(admitted, clock, end - start, busy, times, counts)


def sums_in(step: Step) -> WindowSums:
    """Return the sums of a step."""
    times = {metadata_id: ran.total for metadata_id, ran in step.executions.items()}
    counts = {metadata_id: ran.n for metadata_id, ran in step.executions.items()}
    return WindowSums(step.admitted, step.clock, step.duration, step.timeline.busy, times, counts)


def busy_without_overlap(pieces: Iterable[Columns], start: int, end: int) -> int | None:
    """Return the time during which leaves run in a window. Return None if leaves overlap, are not
    sorted, or start outside the window."""
    busy, covered = 0, start
    for columns in pieces:
        starts, durations, _ = columns
        if not are_in_turn(starts, durations):
            # An instant op takes no time, so it can start while another op runs.
            starts, durations, _ = kept(columns, durations)
            if not are_in_turn(starts, durations):
                return None
        if not starts:
            continue
        # Ops that start outside the window are rare. Only the last op may end after the window.
        if not (covered <= starts[0] and starts[-1] <= end):
            return None
        busy += sum(durations)
        covered = starts[-1] + durations[-1]
    return busy - max(0, covered - end)


def are_in_turn(starts: Sequence[int], durations: Sequence[int]) -> bool:
    """Return whether each op ends before the next op starts."""
    return all(map(le, map(add, starts, durations), starts[1:]))
