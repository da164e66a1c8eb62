"""Find what the host does in each pause: the calls on the critical path to the next launch."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence

from _breakdown.analysis.idle.critical_path import (
    CriticalPaths,
    Lane,
    Node,
    PausePart,
    called,
    calls_with,
    thread_with_most_time,
)
from _breakdown.analysis.idle.host_words import (
    COLLECTING,
    COMPILING,
    LOADING,
    OTHER,
    PROFILING,
    READING,
    SENDING,
    Kind,
    is_wait,
    kind_of,
)
from _breakdown.analysis.idle.launches import Launches
from _breakdown.analysis.idle.periods import Pause, Periods
from _breakdown.light import NamedTuple
from _breakdown.pipeline.device import STEPS, Device
from _breakdown.pipeline.host import CALLS_PROGRAM, NOBODY, Host
from _breakdown.pipeline.host_frames import Frame, frame_of
from _proto.errors import Damage
from _proto.trace.trace import thread_planes

# A call with this many arguments needs more time to send them than for anything else.
_MANY_ARGUMENTS = 16
# A call that calls this many programs, but not the main one, is no loop around the steps.
_MANY_PROGRAMS = 8
# Calls that contain this part of the work in question are named.
_NEARLY_ALL_PCT = 95
# Pauses of these kinds have one reason, wherever they occur.
ANYWHERE = (COLLECTING, COMPILING, LOADING, PROFILING)


class HostCall(NamedTuple):
    """A call on the critical path to the next launch."""

    start: int
    end: int
    name: str
    # True if the call also launches a program, or contains at least one other step.
    is_loop: bool
    # Its time in the pause.
    time: int
    # The number of programs that it calls, if these are many and not the main one; else 0.
    n_programs: int
    # How often the same calls call it in the pause.
    n: int = 1

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


class HostInPause(NamedTuple):
    """The host's work during a pause."""

    kind: Kind = OTHER
    # The calls that contain the work, outermost first; empty if no call contains half of the pause.
    calls: Sequence[HostCall] = ()
    # Names of the calls inside the last one that take most of its time.
    inner: Sequence[str] = ()
    thread: str | None = None
    # The launching thread and the call in which it waits for `thread`; None if it does not wait.
    waiting: tuple[str, str] | None = None
    # True if no thread is known to work: the launching thread waits for half of the pause.
    only_waits: bool = False
    # The number of arguments that are sent, if this is the work, and the call of the program.
    n_arguments: int = 0
    sent_to: str = ""
    # True if a wait of the launching thread is assumed, because no event tells of it.
    is_assumed: bool = False
    # True if the next program was launched before the pause, so that no wait delays it.
    launched_before: bool = False
    # The calls of the launching thread during which the pause begins, outermost first.
    at_start: Sequence[HostCall] = ()
    # True if a result of the device is read on the way to the next launch.
    reads: bool = False
    # True if any thread has an event during the pause.
    is_known: bool = False
    # The call to report; None if no call is in own code.
    reported: HostCall | None = None
    # True if the calls are those at the start of the pause, because none covers half of it.
    is_start: bool = False

    @property
    def key(self) -> tuple[str | None, ...]:
        """Return what is equal for pauses that one change to the host's work removes."""
        reported = self.reported
        kind = self.kind if self.kind in (*ANYWHERE, READING) else None
        place: Sequence[str] = ()
        if kind not in ANYWHERE:
            # The work of one function is one row. But a loop that launches steps also does other
            # things; the next call tells which.
            is_work = reported and (not reported.is_loop or self.kind != OTHER)
            kind = None if is_work else kind
            below = self.calls[self.calls.index(reported) + 1 :] if reported else self.calls
            inner = "" if is_work else next((c.name for c in below if not c.is_loop), "loop")
            place = [reported.name if reported else "", inner]
        # The threads of a pool take turns with the same call.
        return (kind, self.thread if self.calls and not reported else None, *place)

    @property
    def is_vague(self) -> bool:
        """Return whether only loops around the steps are known. These run in every pause, so they
        do not explain one."""
        return all(call.is_loop for call in self.calls) and self.kind == OTHER

    @property
    def is_certain(self) -> bool:
        """Return whether the host was seen to work on something that explains the pause."""
        return not (self.is_vague or self.is_start or self.only_waits or self.is_assumed)


def hosts_in(
    device: Device, periods: Periods, pauses: Sequence[Pause]
) -> tuple[list[HostInPause], list[str]]:
    """Return what the host does during each pause, and notes on clocks that disagree."""
    names = thread_planes(device.rank) if device.rank else []
    # A call that is longer than two periods contains a whole step.
    loop = 2 * max(periods.durations)
    try:
        planes = [device.trace.plane(name) for name in names]
        launches = Launches(device, planes)
        if launches.contradict:
            return [HostInPause()] * len(pauses), launches.notes
        windows = [launches.window(pause.start, pause.end) for pause in pauses]
        programs, times = {}, Counter[str]()
        if device.step_source != STEPS:
            for program in (each for step in device.steps for each in step.programs or [step]):
                programs[program.start] = program.name
                times[called(program.name)] += program.duration
        host = Host(planes, windows, max(times, key=times.__getitem__, default=""))
        paths = CriticalPaths(host, launches)
    except Damage:
        return [HostInPause()] * len(pauses), []
    found = []
    for pause, window in zip(pauses, windows, strict=True):
        path = paths.of(window, programs.get(pause.end))
        of_pause = host_of(path.parts, pause.duration, loop, device.has_cycles)
        at_start: list[HostCall] = []
        before = path.launched_before and (
            of_pause.only_waits or of_pause.kind == READING or not of_pause.calls
        )
        if before:
            of_pause = of_pause._replace(kind=OTHER, calls=[], only_waits=False)
        elif path.launcher:
            lane = path.launcher
            place = lane.track.place_at(window[0] - host.start)
            around = [place, *lane.track.enclosing(place, 99)] if place != NOBODY else []
            at_start = [call_of(lane, each, 0, loop) for each in reversed(around)]
        waiting = None
        if path.launcher and path.waiting is not None:
            waiting = path.launcher.thread, path.launcher.outermost_wait(path.waiting)
        found.append(
            of_pause._replace(
                waiting=waiting if of_pause.thread != (waiting or ("",))[0] else None,
                at_start=at_start,
                is_assumed=path.is_assumed,
                launched_before=before,
                reads=any(part.kind == READING for part in path.parts),
                is_known=host.overlaps(*window),
            )
        )
    return found, launches.notes


def host_of(parts: Sequence[PausePart], duration: int, loop: int, has_cycles: bool) -> HostInPause:
    """Return what the parts of a pause's critical path say about the pause."""
    by_kind: Counter[Kind] = Counter()
    waits = 0
    for part in parts:
        by_kind[part.kind] += part.time
        waits += part.time if is_wait(part.lane.name(part.place)) else 0
    kind: Kind = next((kind for kind, of in by_kind.items() if 2 * of >= duration), OTHER)
    if kind != OTHER:
        parts = [part for part in parts if part.kind == kind]
    thread = thread_with_most_time(parts)
    parts = [part for part in parts if part.lane.thread == thread]
    least = (duration + 1) // 2
    if kind != OTHER and thread is not None:
        least = _NEARLY_ALL_PCT * sum(part.time for part in parts) // 100
    nodes, below = calls_with(parts, max(least, 1))
    sent_to, n_arguments = sent_in(nodes, parts) if kind in (OTHER, SENDING) else ("", 0)
    if n_arguments >= _MANY_ARGUMENTS:
        kind = SENDING
    inner = [node for node in below if nodes and 4 * node.time >= nodes[-1].time]
    calls = [call_of(node.lane, node.place, node.time, loop)._replace(n=node.n) for node in nodes]
    # A function that launches one program of a cycle is no loop around the cycles.
    if calls and calls[-1].frame and has_cycles and nodes[-1].lane.n_launches(nodes[-1].place) == 1:
        calls[-1] = calls[-1]._replace(is_loop=False)
    return HostInPause(
        kind=kind,
        calls=calls,
        inner=list(dict.fromkeys(node.name for node in inner if kind_of(node.name) == OTHER)),
        thread=thread,
        only_waits=2 * waits >= duration,
        n_arguments=n_arguments,
        sent_to=sent_to,
    )


def call_of(lane: Lane, place: int, time: int, loop: int) -> HostCall:
    start, end = lane.track.starts[place], lane.track.ends[place]
    n = bisect_left(lane.launched, start)
    n_programs = lane.n_programs(place)
    is_many = n_programs >= _MANY_PROGRAMS
    launches = n < len(lane.launched) and lane.launched[n] < end
    is_loop = not is_many and (end - start > loop or launches)
    return HostCall(start, end, lane.name(place), is_loop, time, n_programs if is_many else 0)


def sent_in(nodes: Sequence[Node], parts: Sequence[PausePart]) -> tuple[str, int]:
    """Return the call of a program among the calls, and the number of arguments that it sends."""
    calls = [node for node in nodes if node.name.startswith(CALLS_PROGRAM)]
    if not calls:
        return "", 0
    lane, track = calls[0].lane, calls[0].lane.track
    begin, end = track.starts[calls[0].place], track.ends[calls[0].place]
    sent = {
        part.place
        for part in parts
        if part.lane is lane and begin <= track.starts[part.place] < end and part.kind == SENDING
    }
    return calls[0].name.removeprefix(CALLS_PROGRAM).strip("()"), len(sent)
