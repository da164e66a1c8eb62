"""Find a pause between steps in which the device waits for the host.

    for batch in loader:               # the device waits here
        state, loss = train_step(state, batch)
        log(float(loss))               # and here

The pause is the time within a typical period during which no step runs. A period lasts from the
start of a step to the start of the next step of the same name. The candidates for the reported line
are the calls on a thread that launches programs. A call must cover at least half of the pause and
must not be longer than the period. Longer calls, such as the training loop, contain several
periods. A thread can start the next call before the device has finished, so the call need not begin
within the period.

The outermost candidate that takes at most twice the pause is reported, because a longer call also
does other work. If all candidates are longer, the outermost is reported.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from _analysis.causes.cause import LIKELY, SEEN, Cause, Evidence
from _analysis.causes.sentences import duration
from _analysis.launches import Launches, launch_level
from _analysis.remedies import CAUSES
from _pipeline.groups import percent
from _pipeline.host import Host
from _pipeline.intervals import complement, union
from _proto.errors import Damage
from _proto.trace.trace import thread_planes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from _analysis.periods import Period, Periods
    from _pipeline.device import Device
    from _pipeline.host import Track

PAUSE: Final = "pause_between_steps"
N_CALLS_NAMED = 7
# A call that takes at most this many times the pause is assumed to cause the pause.
_MOST_PAUSES = 2
# Matches the Python tracer's frames, which contain a file's name without its folder.
PYTHON_FRAME = re.compile(r"\$(?P<line>.+:\d+) (?P<function>.+)")


class Call(NamedTuple):
    """An event of a thread that covers at least half of a pause."""

    start: int
    end: int
    name: str

    @property
    def line(self) -> str | None:
        frame = PYTHON_FRAME.fullmatch(self.name)
        return frame["line"] if frame else None

    @property
    def function(self) -> str:
        frame = PYTHON_FRAME.fullmatch(self.name)
        return frame["function"] if frame else self.name

    @property
    def says(self) -> str:
        return self.name.removeprefix("$")


class HostInPause(NamedTuple):
    """The calls of launching threads during a pause, outermost first."""

    calls: list[Call]
    # True if any thread has an event during the pause.
    is_known: bool


def find(device: Device, periods: Periods) -> Cause:
    pause = periods.typical.pause
    host = host_in(device, periods.typical)
    reported = reported_call(host.calls, pause)
    inner = [call.line for call in host.calls if call.line]
    share = percent(pause, periods.median) or 0
    return Cause(
        PAUSE,
        pause,
        f"The device waits {duration(pause)} between steps ({share:.1f} % of the"
        f" {duration(periods.median)} period){what_host_does(host, reported)}",
        CAUSES[PAUSE],
        SEEN if host.calls else LIKELY,
        Evidence([]),
        source_user=reported.line if reported else None,
        source_inner=inner[-1] if inner else None,
        period_ps=periods.median,
    )


def reported_call(calls: list[Call], pause: int) -> Call | None:
    """Return the call to report, or None if no call has a source line."""
    with_line = [call for call in calls if call.line]
    short = (call for call in with_line if call.end - call.start <= _MOST_PAUSES * pause)
    return next(short, with_line[0] if with_line else None)


def what_host_does(host: HostInPause, reported: Call | None) -> str:
    """Return the end of the message about the pause: what the host does during it."""
    if host.calls:
        chain = " > ".join(call.says for call in host.calls[:N_CALLS_NAMED])
        call = reported or host.calls[0]
        took = duration(call.end - call.start)
        return f", while the host is in {chain}. The call of {call.function} takes {took}."
    if host.is_known:
        return (
            ". No single call of the thread that launches the steps covers half of this"
            " pause, apart from calls longer than the period; `idle --step all` lists what"
            " the host did."
        )
    return (
        ". The capture has no host events in that time, so the reason is unknown; the"
        " device may also wait for another device or host."
    )


def host_in(device: Device, period: Period) -> HostInPause:
    window = longest_pause(device, period)
    names = thread_planes(device.rank) if device.rank else []
    by_level: dict[int, list[Call]] = {}
    try:
        planes = [device.trace.plane(name) for name in names]
        host = Host(planes, [window])
        carriers = Launches(device, planes).threads_around(*window)
        for thread in host.threads():
            calls = by_level.setdefault(launch_level(thread, carriers), [])
            for track in thread.tracks:
                calls += calls_covering(track, host, window, period.duration)
    except Damage:
        return HostInPause([], is_known=False)
    launching = by_level[min(by_level)] if by_level else []
    launching.sort(key=lambda call: (call.start, -call.end))
    return HostInPause(launching, is_known=host.overlaps(*window))


def longest_pause(device: Device, period: Period) -> tuple[int, int]:
    """Return start and end, in absolute time, of the longest part of a period in which no step
    runs."""
    running = union((step.start, step.end) for step in device.steps)
    pauses = complement(running, (period.step.start, period.following.start))
    start, end = max(pauses, key=lambda pause: pause[1] - pause[0])
    return start + device.base, end + device.base


def calls_covering(
    track: Track, host: Host, window: tuple[int, int], longest: int
) -> Iterator[Call]:
    """Yield the events that cover at least half of a window and are not longer than `longest`."""
    first, last = window[0] - host.start, window[1] - host.start
    for start, end, name in zip(track.starts, track.ends, track.names):  # noqa: B905
        if 2 * (min(end, last) - max(start, first)) >= last - first and end - start <= longest:
            yield Call(start, end, host.names[name])
