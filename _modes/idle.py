"""Why nothing runs: what the device waits for, and what the host does meanwhile."""

from __future__ import annotations

from operator import add

from _analysis.gaps import Surroundings, longest_gaps
from _analysis.host_activity import Meanwhile
from _analysis.report import Report
from _analysis.rows import gap_row
from _pipeline.device import AFTER_ALL, BEFORE_ALL
from _pipeline.host import Host
from _pipeline.texts import exact
from _proto.errors import Damage
from _proto.trace.events import INT64_END
from _proto.trace.ranks import THREADS
from _proto.trace.trace import thread_planes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from _pipeline.context import Context
    from _pipeline.device import Device
    from _pipeline.normalize import Step

    Json = dict[str, Any]
    # From when to when.
    Window = tuple[int, int]

# In picoseconds: what is shorter the host hardly notices.
COUNTED = 1_000_000


def idle(step: Step, context: Context, *, top: int = 10) -> Report:
    causes, gaps = step.causes, step.timeline.gaps
    longest = longest_gaps(step, top)
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
