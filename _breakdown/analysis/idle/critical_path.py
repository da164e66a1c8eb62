"""Find the work of the host that a pause of the device waits for.

A pause ends when a thread launches the next program. Time on this thread that is spent in calls
that work belongs to these calls. While the thread waits, such as for a queue, a lock or a future,
the work is on another thread: on the one whose work ends when the wait ends. The search goes on
there, back to the start of the pause. If no other thread's work ends then, the wait itself is all
that is known.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from heapq import heapify, heappop, heappush

from _breakdown.analysis.idle.host_words import (
    COLLECTING,
    OTHER,
    SENDING,
    TRANSFERRING,
    Kind,
    is_collection,
    is_wait,
    kind_of,
    wakes,
)
from _breakdown.analysis.idle.launches import Launches, launch_level
from _breakdown.light import NamedTuple
from _breakdown.pipeline.host import (
    CALLS_PROGRAM,
    NEVER,
    NO_LAUNCHER,
    NOBODY,
    Host,
    Thread,
    Track,
    launch_rank,
)
from _breakdown.pipeline.host_frames import frame_of

Window = tuple[int, int]

# The work for which a thread waits ends at most this long before the wait does, because a thread
# needs time to wake up; or a bit later, because the call that wakes the thread ends after it.
BEFORE, AFTER = 200_000_000, 50_000_000
# A shorter call is no wait: it takes less time than a thread needs to wake up. `dict.get` has the
# same name as the `get` of a queue.
SHORTEST_WAIT = 10_000_000
# A chain of more waiting threads is not followed.
MOST_HOPS = 20


class Lane:
    """The events of a thread on one line, and what they are."""

    def __init__(self, thread: Thread, track: Track, names: Sequence[str]) -> None:
        self.thread, self.rank = thread.name, thread.launch_rank
        self.track = track
        self.names = names
        ranks = {number: launch_rank(names[number]) for number in set(track.names) if number >= 0}
        # Places of the events that launch programs, and their starts.
        self.launches = [
            place for place, number in enumerate(track.names[:-1]) if ranks[number] < NO_LAUNCHER
        ]
        self.launched = [track.starts[place] for place in self.launches]
        self._main_calls = thread.main_calls
        self._n_programs: dict[int, int] = {}
        self._parents: dict[int, int] = {}
        self._kinds: dict[int, Kind] = {NOBODY: OTHER}
        self.collecting_after, self.collecting_before = self._collections(
            {number for number in ranks if is_collection(names[number])}
        )

    def name(self, place: int) -> str:
        return self.names[self.track.names[place]]

    def parent(self, place: int) -> int:
        """Return the innermost event around an event."""
        if place not in self._parents:
            self._parents[place] = next(iter(self.track.enclosing(place, 1)), NOBODY)
        return self._parents[place]

    def outermost_wait(self, place: int) -> str:
        """Return the name of the outermost event around an event that also waits."""
        while (around := self.parent(place)) != NOBODY and is_wait(self.name(around)):
            place = around
        return self.name(place)

    def last_launch(self, until: int) -> int | None:
        """Return the last event that launches a program and begins up to a time."""
        n = bisect_right(self.launched, until)
        return self.launches[n - 1] if n else None

    def n_programs(self, place: int) -> int:
        """Return how many programs an event calls; 0 if it also calls the main one, or if the
        thread never does."""
        if self._main_calls and place not in self._n_programs:
            start, end = self.track.starts[place], self.track.ends[place]
            is_main = bisect_left(self._main_calls, start) < bisect_left(self._main_calls, end)
            self._n_programs[place] = 0 if is_main else self.n_launches(place)
        return self._n_programs.get(place, 0)

    def n_launches(self, place: int) -> int:
        """Return how many programs an event launches."""
        start, end = self.track.starts[place], self.track.ends[place]
        first, last = (bisect_left(self.launched, time) for time in (start, end))
        n, until = 0, start
        for inner in self.launches[first:last]:
            # The call of a program contains other events that launch it.
            if self.track.starts[inner] >= until:
                n, until = n + 1, self.track.ends[inner]
        return n

    def launches_in(self, start: int, end: int) -> bool:
        place = self.last_launch(end)
        return place is not None and self.track.ends[place] > start

    def is_busy(self, start: int, end: int) -> bool:
        times = self.track.changes.times
        is_changing = bisect_right(times, start) < bisect_left(times, end)
        return is_changing or self.track.place_at(start) != NOBODY

    def kind(self, place: int) -> Kind:
        """Return what an event does, judged by the innermost event around it that tells."""
        around = []
        while place not in self._kinds:
            kind = kind_of(self.name(place))
            if kind != OTHER:
                # A call of a program transfers its arguments.
                is_argument = kind == TRANSFERRING and self._calls_program(place)
                self._kinds[place] = SENDING if is_argument else kind
                break
            around.append(place)
            place = self.parent(place)
        for inner in around:
            self._kinds[inner] = self._kinds[place]
        return self._kinds[place]

    def _calls_program(self, place: int) -> bool:
        while (place := self.parent(place)) != NOBODY:
            if self.name(place).startswith(CALLS_PROGRAM):
                return True
        return False

    def _collections(self, numbers: set[int]) -> tuple[set[int], set[int]]:
        """Return the times after which, and before which, the garbage is collected.

        Python calls a function when a collection begins and when it ends, both times inside the
        call that the collection interrupts. If the number of these is odd, the first one is the end
        of a collection that began before the window.
        """
        inside: dict[int, list[int]] = defaultdict(list)
        for place, number in enumerate(self.track.names[:-1]) if numbers else ():
            if number in numbers:
                inside[self.parent(place)].append(place)
        after, before = set(), set()
        for places in inside.values():
            if len(places) % 2:
                before.add(self.track.starts[places[0]])
            after |= {self.track.ends[place] for place in places[len(places) % 2 :: 2]}
        return after, before


class PausePart(NamedTuple):
    """A part of a pause in which an event of a thread is the innermost one."""

    lane: Lane
    place: int
    time: int
    kind: Kind


def called(program: str | None) -> str:
    """Return the event in which a thread calls a program."""
    return f"{CALLS_PROGRAM}({function_of(program or '')})"


def function_of(program: str) -> str:
    """Return the name of the function from which a program was compiled."""
    return program.partition("(")[0].removeprefix("jit_")


def thread_with_most_time(parts: Iterable[PausePart]) -> str | None:
    times = Counter[str]()
    for part in parts:
        times[part.lane.thread] += part.time
    return max(times, key=times.__getitem__, default=None)


class Path(NamedTuple):
    """The critical path of a pause: what it is spent on, latest part first."""

    parts: list[PausePart]
    # The launching thread, and its event that waits for another thread; None if it never does.
    launcher: Lane | None
    waiting: int | None
    # True if the wait is assumed, because no event tells of it.
    is_assumed: bool
    # True if the thread is known to launch programs, but launches none in the pause.
    launched_before: bool


class CriticalPaths:
    """Finds the critical paths of pauses, in the host's time."""

    def __init__(self, host: Host, launches: Launches) -> None:
        self._launches = launches
        self._threads: list[tuple[Thread, list[Lane]]] = []
        for thread in host.threads():
            lanes = [Lane(thread, track, host.names) for track in thread.tracks]
            # The events are kept in the lanes.
            self._threads.append((thread._replace(tracks=[]), lanes))
        self.lanes = [lane for _, lanes in self._threads for lane in lanes]
        self._waits = [is_wait(name) for name in host.names]
        self._start = host.start

    def of(self, pause: Window, program: str | None) -> Path:
        """Return the critical path of a pause before the start of the named program."""
        start, end = (time - self._start for time in pause)
        lane, launched = self._launcher(start, end, pause, program)
        launcher, waiting = lane, None
        parts: list[PausePart] = []
        # What the thread does after the launch does not delay it.
        end_of_pause, end = end, min(end, launched)
        hops = 0
        while lane and end > start:
            times, innermost = lane.track.changes[:2]
            i = bisect_left(times, end) - 1
            place = innermost[i] if i >= 0 else NOBODY
            begin = max(start, times[i]) if i >= 0 else start
            if place != NOBODY:
                found = None
                if hops < MOST_HOPS:
                    least = (end_of_pause - start + 1) // 2 if lane is launcher else None
                    found = self._worker(lane, place, begin, end, least)
                if found:
                    waiting = place if lane is launcher and waiting is None else waiting
                    woke, worked_until = found
                    late = end - max(start, min(worked_until, end))
                    parts += [PausePart(lane, place, late, OTHER)] if late else []
                    lane, end, hops = woke, end - late, hops + 1
                    continue
                kind = lane.kind(place)
                if (i >= 0 and times[i] in lane.collecting_after) or end in lane.collecting_before:
                    kind = COLLECTING
                parts.append(PausePart(lane, place, end - begin, kind))
            end = begin
        before = (
            launcher is not None
            and launcher.rank < NO_LAUNCHER
            and not launcher.launches_in(start, end_of_pause)
        )
        assumed = launcher and waiting is not None and not self._is_wait(launcher, waiting)
        return Path(parts, launcher, waiting, bool(assumed), before)

    def _worker(
        self, lane: Lane, place: int, begin: int, end: int, least: int | None
    ) -> tuple[Lane, int] | None:
        """Return the thread for which an event waits between two times, and the end of its work.

        The thread that launches the steps can also wait without an event that tells: for a lock, or
        if the wait began before the capture. This is assumed of a Python function that calls no
        other for at least `least`, if a single call of another thread ends with this time, and
        takes at least `least` of it.
        """
        if end - begin < SHORTEST_WAIT:
            return None
        if self._is_wait(lane, place):
            return self._woken_by(lane, begin, end, 0)
        is_silent = lane.kind(place) == OTHER and frame_of(lane.name(place))
        if least and end - begin >= least and is_silent:
            return self._woken_by(lane, begin, end, least)
        return None

    def _is_wait(self, lane: Lane, place: int) -> bool:
        return self._waits[lane.track.names[place]]

    def _launcher(
        self, start: int, end: int, pause: Window, program: str | None
    ) -> tuple[Lane | None, int]:
        """Return the thread that launches the program after a pause, and the end of the launch: the
        thread that calls the program, else one that most likely launches programs."""
        carriers = self._launches.threads_around(*pause)
        call = called(program)
        ranked: list[tuple[bool, bool, int, int, int, Lane, int]] = []
        for thread, lanes in self._threads:
            level = launch_level(thread, carriers)
            for lane in lanes:
                place = lane.last_launch(end)
                is_now = place is not None and lane.track.starts[place] >= start
                launched = lane.track.ends[place] if is_now and place is not None else end
                is_called = is_now and place is not None and lane.name(place).endswith(call)
                begun = lane.track.starts[place] if place is not None else -NEVER
                if is_now or lane.is_busy(start, end):
                    rank = not is_called, not is_now, level, -begun, len(ranked)
                    ranked.append((*rank, lane, launched))
        return min(ranked)[-2:] if ranked else (None, end)

    def _woken_by(
        self, waiting: Lane, since: int, until: int, least: int
    ) -> tuple[Lane, int] | None:
        """Return the thread whose work ended when a wait ended, and when its work ended.

        A call that wakes other threads tells most, unless at least `least` of work is required.
        Else it is the longest work during the wait.
        """
        best: tuple[bool, int] = (False, least - 1)
        found = None
        for lane in self.lanes:
            if lane is waiting:
                continue
            times, innermost = lane.track.changes[:2]
            first, last = bisect_left(times, until - BEFORE), bisect_right(times, until + AFTER)
            for i in range(max(first, 1), last):
                place = innermost[i - 1]
                ended = times[i]
                if place == NOBODY or lane.track.ends[place] != ended:
                    continue
                if self._is_wait(lane, place):
                    continue
                begun = max(since, lane.track.starts[place])
                score = not least and wakes(lane.name(place)), min(ended, until) - begun
                if score[1] > 0 and score > best:
                    best, found = score, (lane, ended)
        return found


class Node(NamedTuple):
    """Calls of one name below the same calls, and their time in a pause."""

    name: str
    time: int
    # The call with the most time.
    lane: Lane
    place: int
    # The number of calls.
    n: int


def calls_with(parts: Iterable[PausePart], least: int) -> tuple[list[Node], list[Node]]:
    """Return the calls that contain at least `least` of the time of some parts on one thread,
    outermost first, and the calls directly below the innermost of them, most time first."""
    totals: Counter[tuple[Lane, int]] = Counter()
    for part in parts:
        totals[part.lane, part.place] += part.time
    below: dict[tuple[Lane, int], list[int]] = defaultdict(list)
    pending: dict[Lane, list[int]] = defaultdict(list)
    for lane, place in totals:
        pending[lane].append(-place)
    for lane, places in pending.items():
        known = set(places)
        heapify(places)
        # An event follows those that contain it, so the last one comes first.
        while places:
            place = -heappop(places)
            parent = lane.parent(place)
            below[lane, parent].append(place)
            if parent != NOBODY:
                totals[lane, parent] += totals[lane, place]
                if -parent not in known:
                    known.add(-parent)
                    heappush(places, -parent)
    path: list[Node] = []
    nodes = nodes_of([(lane, place) for lane in pending for place in below[lane, NOBODY]], totals)
    while nodes and nodes[0][0].time >= least:
        node, members = nodes[0]
        path.append(node)
        nodes = nodes_of([(of, i) for of, place in members for i in below[of, place]], totals)
    return path, [node for node, _ in nodes]


def nodes_of(
    events: Iterable[tuple[Lane, int]], totals: Counter[tuple[Lane, int]]
) -> list[tuple[Node, list[tuple[Lane, int]]]]:
    """Group events by thread and name, most time first."""
    by_name: dict[tuple[str, str], list[tuple[Lane, int]]] = defaultdict(list)
    for lane, place in events:
        by_name[lane.thread, lane.name(place)].append((lane, place))
    nodes = []
    for (_, name), members in by_name.items():
        lane, place = max(members, key=lambda member: totals[member])
        time = sum(totals[member] for member in members)
        nodes.append((Node(name, time, lane, place, len(members)), members))
    nodes.sort(key=lambda node: (-node[0].time, node[0].name))
    return nodes
