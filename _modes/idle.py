"""Why nothing runs: what the device waits for, and what the host does meanwhile."""

from __future__ import annotations

import heapq
from array import array
from itertools import compress
from operator import add, sub

from _analysis.host_activity import Meanwhile
from _analysis.report import Report
from _analysis.rows import gap_row
from _pipeline.columns import growing
from _pipeline.device import AFTER_ALL, BEFORE_ALL
from _pipeline.host import NOBODY, Host, track_of
from _pipeline.texts import exact
from _pipeline.timeline import Gap, columns_of, events_of
from _proto.errors import Damage
from _proto.record import record
from _proto.trace.events import INT64_END
from _proto.trace.ranks import THREADS
from _proto.trace.trace import thread_planes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from typing import Any

    from _pipeline.context import Context
    from _pipeline.device import Device
    from _pipeline.normalize import Step
    from _pipeline.ops import Op

    Json = dict[str, Any]
    # From when to when.
    Window = tuple[int, int]

# In picoseconds: what is shorter the host hardly notices.
COUNTED = 1_000_000


def idle(step: Step, context: Context, *, top: int = 10) -> Report:
    causes, gaps = step.causes, step.gaps
    longest = [
        (start, end)
        for _, start, end in heapq.nsmallest(
            top, zip(map(sub, gaps.starts, gaps.ends), gaps.starts, gaps.ends, strict=True)
        )
    ]
    counted = [(start, end) for start, end in gaps if end - start >= COUNTED]
    around = Surroundings(step, {*longest, *counted})
    window_of = {gap: around.window(*gap) for gap in (*longest, *counted)}
    meanwhile = what_the_host_did(
        step.device,
        [window for gap in longest if (window := window_of[gap])],
        [window for gap in counted if (window := window_of[gap])],
        step.admitted.span,
        context,
    )
    rows = []
    for gap in longest:
        window = window_of[gap]
        cause = {name: time for name, time in causes.of_span(*gap).items() if time}
        rows.append(
            {
                **gap_row(around.gap(*gap), step),
                "cause": cause,
                "trace_window_ps": list(map(exact, window)) if window else None,
                "host": meanwhile.rows(window) if window and meanwhile else None,
            }
        )
    return Report(
        {
            "idle_by_cause": causes.of_step,
            "gaps": rows,
            "host_events": meanwhile.events() if meanwhile else None,
        },
    )


@record
class Neighbour:
    """An execution next to a gap: of what, when it starts, and the same two times by the trace's
    clock."""

    op: Op
    start: int
    drawn: Window


class Surroundings:
    """What stands around gaps."""

    def __init__(self, step: Step, gaps: Iterable[Window]) -> None:
        self._step = step
        self._edges = step.edges
        # By when a gap begins, and by when it ends.
        self._before: dict[int, Neighbour | None] = dict.fromkeys(start for start, _ in gaps)
        self._behind: dict[int, Neighbour | None] = dict.fromkeys(end for _, end in gaps)
        self._find_neighbours()
        # There is none beyond the edges of the step.
        self._before.pop(step.timeline.start, None)
        self._behind.pop(step.timeline.end, None)
        ids = {each.metadata_id for each in step.containers}
        events = list(events_of(step.admitted.pieces, step.clock, ids))
        self._ops = [step.executions[metadata_id].op for _, _, metadata_id in events]
        self._containers = track_of(
            growing(start for start, _, _ in events),
            growing(start + duration for start, duration, _ in events),
            array("i", range(len(events))),
        )

    def _find_neighbours(self) -> None:
        step = self._step
        leaves = {each.metadata_id: each.op for each in step.leaves}
        for piece in step.admitted.pieces:
            starts, durations, metadata_ids = columns_of(piece, step.clock)
            ends = list(map(add, starts, durations))
            is_next = list(map(self._behind.__contains__, starts))
            was_last = list(map(self._before.__contains__, ends))
            if not (any(is_next) or any(was_last)):
                continue
            drawn = list(zip(*piece.on_trace(), strict=True))
            for i in compress(range(len(starts)), map(max, is_next, was_last)):
                op = leaves.get(metadata_ids[i])
                if op is None or not durations[i]:
                    continue
                found = Neighbour(op, starts[i], drawn[i])
                if is_next[i] and not self._behind[starts[i]]:
                    self._behind[starts[i]] = found
                if was_last[i]:
                    known = self._before[ends[i]]
                    if not known or starts[i] < known.start:
                        self._before[ends[i]] = found

    def gap(self, start: int, end: int) -> Gap:
        before, behind = self._before.get(start), self._behind.get(end)
        place = self._containers.place_at(start)
        return Gap(
            start,
            end - start,
            before.op if before else None,
            behind.op if behind else None,
            None if place == NOBODY else self._ops[self._containers.names[place]],
        )

    def window(self, start: int, end: int) -> Window | None:
        """The time of a gap by the trace's clock, absolute: between the ops around it as that
        draws them. None if that leaves nothing."""
        before, behind = self._before.get(start), self._behind.get(end)
        first, last = self._edges
        begin = before.drawn[1] if before else first
        finish = behind.drawn[0] if behind else last
        base = self._step.device.base
        return (begin + base, finish + base) if begin < finish else None


def what_the_host_did(
    device: Device,
    shown: Sequence[Window],
    counted: Sequence[Window],
    span: Window,
    context: Context,
) -> Meanwhile | None:
    """Return it for absolute windows; None if that isn't known, and why in the notes."""
    planes = thread_planes(device.rank) if device.rank else []
    if not planes:
        why = "this file merges several ranks, and nothing tells of which one the device is"
        if device.rank:
            why = f"there is no plane {THREADS}"
        context.note(f"{why}: what the host did isn't known")
        return None
    try:
        host = Host([device.trace.plane(name) for name in planes], [*shown, *counted])
        meanwhile = Meanwhile(host, shown, counted)
    except Damage as error:
        where = device.trace.in_file(error)
        context.note(f"the host's plane can't be read: {where}; answered without it")
        return None
    first, last = span
    if not (host.overlaps(first + device.base, last + device.base) or have_common(host, device)):
        context.note("the host's events and the device's ops have no time in common")
        return None
    return meanwhile


def have_common(host: Host, device: Device) -> bool:
    """Whether the time of the host's events and that of all ops of a device have any in common."""
    spans = [(line.base_ps, span) for line in device.lines if (span := line.span_of_starts)]
    first = min((base + start for base, (start, _) in spans), default=AFTER_ALL)
    last = max((base + start for base, (_, start) in spans), default=BEFORE_ALL)
    # Often one counts from an epoch and the other doesn't, and no duration reaches that far. Else
    # all ops are read: which of them are valid, and when they end, no start tells.
    return host.overlaps(first, last + INT64_END) and host.overlaps(*span_of_ops(device))


def span_of_ops(device: Device) -> Window:
    """From the first start to the last end of all ops of a device, absolute."""
    first, last = AFTER_ALL, BEFORE_ALL
    for line in device.lines:
        for each in line.events(BEFORE_ALL, AFTER_ALL):
            events = each.lasting()
            ends = map(add, events.offsets, events.durations)
            first = min(first, line.base_ps + min(events.offsets, default=AFTER_ALL))
            last = max(last, line.base_ps + max(ends, default=BEFORE_ALL))
    return first, last
