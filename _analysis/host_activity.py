"""What the host did in stretches of time, while the device did nothing."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from operator import indexOf, sub

from _pipeline.host import NEVER, NOBODY, NOTHING
from _proto.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from _pipeline.host import Host, Thread, Track

    Json = dict[str, Any]
    # From when to when, counted from where the host's window begins.
    Window = tuple[int, int]

N_ROWS, N_WITHIN, N_EVENTS = 8, 8, 20


@record
class Doing:
    """What a thread did in a window: for how long the events of one name were innermost."""

    thread: str
    event: str
    duration: int
    # Whether it did nothing else.
    is_still: bool
    # Where it did so for longest, and which event that is.
    track: Track | None
    place: int
    within: list[str]

    @property
    def rank(self) -> tuple[bool, int, str, str]:
        return self.is_still, -self.duration, self.event, self.thread

    @property
    def row(self) -> Json:
        return {
            "thread": self.thread,
            "event": self.event,
            "dur_ps": self.duration,
            "still": self.is_still,
            "within": self.within,
        }


class Seen:
    """During what a name's events were innermost on any thread."""

    def __init__(self) -> None:
        self.starts, self.ends = array("q"), array("q")
        self.n_threads = 0

    @property
    def at_most(self) -> int:
        """Its time if no two threads were at it at once."""
        return sum(self.ends) - sum(self.starts)

    @property
    def duration(self) -> int:
        """Where one stretch of the union ends and the next begins, as many have ended as begun."""
        starts, ends = sorted(self.starts), sorted(self.ends)
        apart = sum(max(0, start - end) for start, end in zip(starts[1:], ends, strict=False))
        return ends[-1] - starts[0] - apart


class Meanwhile:
    """What a host did in absolute windows: in each of some, and in all of others together."""

    def __init__(self, host: Host, shown: Iterable[Window], counted: Iterable[Window]) -> None:
        self._host = host
        self._doings: dict[Window, list[Doing]] = {self._within(*window): [] for window in shown}
        self._windows = Windows(self._within(*window) for window in counted)
        self._seen: dict[int, Seen] = {}
        for thread in host.threads():
            for window in self._doings:
                self._do(window, thread)
            self._see(thread)

    def _within(self, start: int, end: int) -> Window:
        return start - self._host.start, end - self._host.start

    def rows(self, window: tuple[int, int]) -> list[Json]:
        return [doing.row for doing in self._doings[self._within(*window)]]

    def _do(self, window: Window, thread: Thread) -> None:
        """Note what a thread did in a window."""
        names = self._host.names
        is_still = not thread.is_changing(*window)
        doings: dict[int, Doing] = {}
        longest: dict[int, int] = {}
        for track in thread.tracks:
            for name, (starts, ends) in track.between(*window).items():
                doing = doings.setdefault(
                    name, Doing(thread.name, names[name], 0, is_still, None, 0, [])
                )
                doing.duration += sum(ends) - sum(starts)
                most = max(map(sub, ends, starts))
                if most > longest.get(name, 0):
                    longest[name] = most
                    at = starts[indexOf(map(sub, ends, starts), most)]
                    doing.track, doing.place = track, track.place_at(at)
        ranked = [*self._doings[window], *(each for each in doings.values() if each.track)]
        ranked.sort(key=lambda each: each.rank)
        self._doings[window] = ranked[:N_ROWS]
        for doing in self._doings[window]:
            if doing.track:
                around = doing.track.enclosing(doing.place, N_WITHIN)
                doing.within = [names[doing.track.names[place]] for place in around]
                # A track is large.
                doing.track = None

    def _see(self, thread: Thread) -> None:
        """Count what a thread did in those of the windows in which it didn't stay as it was."""
        touched = set()
        for track in thread.tracks:
            names = set(track.names) - {NOTHING}
            for name in names - self._seen.keys():
                self._seen[name] = Seen()
            n_before = {name: len(self._seen[name].starts) for name in names}
            self._windows.watch(thread, track, self._seen)
            touched |= {name for name, n in n_before.items() if len(self._seen[name].starts) > n}
        for name in touched:
            self._seen[name].n_threads += 1

    def events(self) -> list[Json]:
        """During which events most time passed."""
        names = self._host.names
        most = sorted(self._seen.items(), key=lambda each: -each[1].at_most)
        rows: list[tuple[int, str, int]] = []
        for name, seen in most:
            if len(rows) >= N_EVENTS and seen.at_most < -rows[N_EVENTS - 1][0]:
                break
            if seen.n_threads:
                rows.append((-seen.duration, names[name], seen.n_threads))
                rows.sort()
        return [
            {"event": event, "dur_ps": -negative, "n_threads": n_threads}
            for negative, event, n_threads in rows[:N_EVENTS]
        ]


class Windows:
    """Windows of time, apart and in order."""

    def __init__(self, windows: Iterable[Window]) -> None:
        merged = apart(sorted(windows))
        # Behind the last there is one that is never reached.
        self._starts = [*(start for start, _ in merged), NEVER]
        self._ends = [*(end for _, end in merged), NEVER]

    def watch(self, thread: Thread, track: Track, seen: Mapping[int, Seen]) -> None:
        """Add when which event of a track was innermost, in windows in which its thread changes."""
        starts, ends = self._starts, self._ends
        names = track.names
        add = {name: (seen[name].starts.append, seen[name].ends.append) for name in {*names[:-1]}}
        start, end = starts[0], ends[0]
        # Of the change before: when it was, to what, and when its window ends if it lies in one.
        last, place, until = -NEVER, NOBODY, -NEVER
        times, places = thread.changes(track)
        for time, next_place in zip(times, places):  # noqa: B905
            if end <= time:
                n = bisect_right(ends, time)
                start, end = starts[n], ends[n]
            if last < until and place != NOBODY and last < time:
                add_start, add_end = add[names[place]]
                add_start(last)
                add_end(time if time < until else until)
            if start >= time:
                until = -NEVER
            elif until != end:
                until = end
                if place != NOBODY:
                    add_start, add_end = add[names[place]]
                    add_start(start)
                    add_end(time)
            last, place = time, next_place


def apart(windows: Iterable[Window]) -> list[Window]:
    """Sorted windows, with those that overlap as one."""
    found: list[Window] = []
    for start, end in windows:
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found
