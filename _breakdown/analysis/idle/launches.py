"""Find the host threads that launch a device's programs."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Sequence
from itertools import accumulate
from operator import itemgetter

from _breakdown.pipeline.device import MODULES_LINE, Device
from _breakdown.pipeline.host import CALLER, NO_LAUNCHER, Thread
from _proto.trace.joined import AnyPlane

RUN_ID = "run_id"


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
        end_of = {run_id: end for _, end, run_id in executions}
        self._threads: dict[int, set[str]] = defaultdict(set)
        for plane in planes if end_of else ():
            for event in integers_of_events(plane, RUN_ID):
                if event.start < end_of.get(event.value, event.start):
                    self._threads[event.value].add(event.line)

    def threads_around(self, start: int, end: int) -> set[str]:
        """Return the threads that launched both the program before and the program after a gap.

        If the gap is inside an execution of a program, this execution counts as the one before and
        after the gap.
        """
        before = bisect_right(self._starts, start) - 1
        after = bisect_left(self._ends, end)
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
