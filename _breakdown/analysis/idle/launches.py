"""Find the host threads that launch a device's programs, and the offset of the host's clock."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter

from _breakdown.pipeline.device import MODULES_LINE, Device
from _breakdown.pipeline.host import CALLER, NEVER, NO_LAUNCHER, Thread
from _breakdown.units import counted, time
from _proto.trace.joined import AnyPlane

RUN_ID = "run_id"
# Parts of the names of events in which the host hands an execution to the device, and in which it
# handles the execution's end.
_ENQUEUES, _COMPLETES = "Enqueue", "CompleteCallbacks"

CONTRADICTION = (
    "programs start before the host launches them, or end after it handles their end, in {} of"
    " launch and execution, which no offset between the clocks mends, so no call of the host is"
    " named as the cause of a pause"
)

CORRECTED = (
    "the host's clock is at least {} {} the device's, as {} of launch and execution show; the"
    " host's times are corrected by that"
)


class Launches:
    """The executions of a device's programs, and the threads that launched each of them.

    A thread launched an execution if one of its events has the execution's `run_id` and begins
    before the execution ends. Events with this `run_id` that begin after the execution has ended
    handle its completion.
    """

    def __init__(self, device: Device, planes: Sequence[AnyPlane]) -> None:
        # Import late: the module imports protobuf, which may be missing.
        from _proto.trace.event_stats import integers_of_events

        executions = sorted(
            (event.start, event.start + event.duration, event.value)
            for event in integers_of_events(device.plane, RUN_ID, [MODULES_LINE])
        )
        self._starts = [start for start, _, _ in executions]
        # Running maximum of the ends, so that the list is sorted even if executions overlap.
        self._ends = list(accumulate(map(itemgetter(1), executions), max))
        self._ids = [run_id for _, _, run_id in executions]
        span_of = {run_id: (start, end) for start, end, run_id in executions}
        self._threads: dict[int, set[str]] = defaultdict(set)
        enqueued, completed = dict[int, int](), dict[int, int]()
        # Devices can count their executions alike; then it is unknown which is whose.
        is_shared = False
        for plane in planes if span_of else ():
            for event in integers_of_events(plane, RUN_ID):
                if event.value not in span_of:
                    continue
                if event.start < span_of[event.value][1]:
                    self._threads[event.value].add(event.line)
                if _ENQUEUES in event.name:
                    is_shared |= event.value in enqueued
                    enqueued[event.value] = event.start
                elif _COMPLETES in event.name:
                    is_shared |= event.value in completed
                    completed[event.value] = event.start
        if is_shared:
            enqueued, completed = {}, {}
        # How much the host's clock is at least, and at most, ahead of the device's.
        early = [time - span_of[run_id][0] for run_id, time in enqueued.items()]
        late = [time - span_of[run_id][1] for run_id, time in completed.items()]
        least, most = max(early, default=-NEVER), min(late, default=NEVER)
        self.n_pairs = len(early) + len(late)
        self.n_contradicting = sum(time > 0 for time in early) + sum(time < 0 for time in late)
        # If no offset suits all pairs, it is unknown when the host did what.
        self.contradict = least > most
        self.offset = 0 if self.contradict else min(max(0, least), most)
        self._base = device.base

    def in_host_time(self, window: tuple[int, int]) -> tuple[int, int]:
        start, end = window
        return start + self.offset, end + self.offset

    def window(self, start: int, end: int) -> tuple[int, int]:
        """Convert a span of the device, relative to its base time, to absolute times of the
        host."""
        return self.in_host_time((start + self._base, end + self._base))

    @property
    def notes(self) -> list[str]:
        """Return a note if the clocks of host and device disagree."""
        n = f"{self.n_contradicting} of {counted(self.n_pairs, 'pair')}"
        if self.contradict:
            return [CONTRADICTION.format(n)]
        if not self.offset:
            return []
        side = "ahead of" if self.offset > 0 else "behind"
        return [CORRECTED.format(time(abs(self.offset)), side, n)]

    def threads_around(self, start: int, end: int) -> set[str]:
        """Return the threads that launched both the program before and the program after a gap,
        which is given in the host's time.

        If the gap is inside an execution of a program, this execution counts as the one before and
        after the gap.
        """
        before = bisect_right(self._starts, start - self.offset) - 1
        after = bisect_left(self._ends, end - self.offset)
        if before < 0 or after == len(self._ids):
            return set()
        return self._threads[self._ids[before]] & self._threads[self._ids[after]]


def launch_level(thread: Thread, carriers: set[str]) -> int:
    """Rank a thread by how likely it is to launch programs; 0 is the most likely.

    JAX can call a program on one thread and launch it on another; then both threads have level 1. A
    thread that calls and launches programs has level 0.
    """
    is_carrier, is_caller = thread.name in carriers, thread.launch_rank == CALLER
    if is_carrier and is_caller:
        return 0
    return 1 if is_carrier or is_caller else thread.launch_rank + 1


NO_LAUNCH = NO_LAUNCHER + 1
