"""Find the calls of the host's threads that cover most of each pause between steps."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from _breakdown.analysis.idle.launches import NO_LAUNCH, Launches, launch_level
from _breakdown.analysis.idle.periods import Pause, Periods
from _breakdown.light import NamedTuple
from _breakdown.pipeline.device import Device
from _breakdown.pipeline.host import NO_LAUNCHER, Host, Thread, Track, launch_rank
from _breakdown.pipeline.host_frames import Frame, frame_of
from _proto.errors import Damage
from _proto.trace.trace import thread_planes

Window = tuple[int, int]


class Call(NamedTuple):
    """An event of a thread that covers at least half of a pause, or its start."""

    start: int
    end: int
    name: str
    # True if the call also launches a program, or contains at least one other step.
    is_loop: bool
    # True if the call ends before the pause does, so that the next step can wait for it.
    ends: bool

    @property
    def frame(self) -> Frame | None:
        return frame_of(self.name)

    @property
    def function(self) -> str:
        frame = self.frame
        return frame.function if frame else self.name

    @property
    def says(self) -> str:
        return self.name.removeprefix("$")


class Calls(NamedTuple):
    """The calls of a thread that cover at least half of a pause, and those at its start."""

    covering: list[Call]
    at_start: list[Call]


class HostInPause(NamedTuple):
    """The calls of a launching thread during a pause, outermost first."""

    calls: list[Call]
    # The calls during which the pause begins, outermost first.
    at_start: list[Call]
    # True if any thread has an event during the pause.
    is_known: bool


def hosts_in(device: Device, periods: Periods, pauses: Sequence[Pause]) -> list[HostInPause]:
    """Return what the host does during each pause. Of several threads, take the first of those that
    most likely launch the programs before and after the pause."""
    names = thread_planes(device.rank) if device.rank else []
    windows = [(pause.start + device.base, pause.end + device.base) for pause in pauses]
    # The lowest launch level of all threads, and the calls of a thread of this level.
    found: list[tuple[int, Calls]] = [(NO_LAUNCH, Calls([], []))] * len(pauses)
    # A call that is longer than two periods contains a whole step.
    loop = 2 * max(periods.durations)
    try:
        planes = [device.trace.plane(name) for name in names]
        host = Host(planes, windows)
        launches = Launches(device, planes)
        carriers = [launches.threads_around(*window) for window in windows]
        all_carriers = set().union(*carriers)
        names_launch = any(
            launch_rank(name) < NO_LAUNCHER
            for plane in planes
            for _, name in plane.metadata_names()
        )
        for thread in host.threads():
            launching = thread.launch_rank < NO_LAUNCHER or thread.name in all_carriers
            if names_launch and not launching:
                # Another thread is more likely to launch the steps.
                continue
            calls = calls_in(thread, host, windows, loop)
            for i in range(len(windows)) if launching else calls:
                level = launch_level(thread, carriers[i])
                if level < found[i][0] or (level == found[i][0] and not found[i][1].covering):
                    found[i] = level, calls.get(i, Calls([], []))
    except Damage:
        return [HostInPause([], [], is_known=False)] * len(pauses)
    return [
        HostInPause(*calls, host.overlaps(*window))
        for (_, calls), window in zip(found, windows, strict=True)
    ]


def calls_in(thread: Thread, host: Host, windows: Sequence[Window], loop: int) -> dict[int, Calls]:
    """Return the thread's events that cover at least half of a window, or its start, outermost
    first, by the index of the window. Windows must not overlap. Calls longer than `loop` are
    loops."""
    order = sorted(range(len(windows)), key=windows.__getitem__)
    starts = [windows[i][0] - host.start for i in order]
    ends = [windows[i][1] - host.start for i in order]
    calls: dict[int, Calls] = {}
    for track in thread.tracks:
        launched = launches_on(track, host)
        for start, end, name in zip(track.starts, track.ends, track.names):  # noqa: B905
            place = bisect_right(ends, start)
            while place < len(order) and starts[place] < end:
                first, last = starts[place], ends[place]
                is_covering = 2 * (min(end, last) - max(start, first)) >= last - first
                if is_covering or start <= first:
                    is_loop = end - start > loop or (
                        (n := bisect_left(launched, start)) < len(launched) and launched[n] < end
                    )
                    call = Call(start, end, host.names[name], is_loop, end <= last)
                    known = calls.setdefault(order[place], Calls([], []))
                    if is_covering:
                        known.covering.append(call)
                    if start <= first:
                        known.at_start.append(call)
                place += 1
    # The calls of a single track are already sorted.
    for found in calls.values() if len(thread.tracks) > 1 else ():
        for of_window in found:
            of_window.sort(key=lambda call: (call.start, -call.end))
    return calls


def launches_on(track: Track, host: Host) -> list[int]:
    """Return the starts of a track's events that launch programs, sorted."""
    ranks = {name: launch_rank(host.names[name]) for name in set(track.names) if name >= 0}
    return [
        start
        for start, name in zip(track.starts, track.names)  # noqa: B905
        if ranks.get(name, NO_LAUNCHER) < NO_LAUNCHER
    ]
