"""What the host did in stretches of time, while the device did nothing."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from operator import indexOf, lt, sub

from _pipeline.columns import extended
from _proto.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from _pipeline.columns import Column
    from _pipeline.host import Host, Stretches, Thread, Track

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

    def __init__(self, starts: Column, ends: Column) -> None:
        self.starts, self.ends = starts, ends
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
            known = {window: self._do(window, thread) for window in self._doings}
            self._see(thread, known)

    def _within(self, start: int, end: int) -> Window:
        return start - self._host.start, end - self._host.start

    def rows(self, window: tuple[int, int]) -> list[Json]:
        return [doing.row for doing in self._doings[self._within(*window)]]

    def _do(self, window: Window, thread: Thread) -> list[dict[int, Stretches]]:
        """Note what a thread did in a window; returned is when, for each of its tracks."""
        names = self._host.names
        is_still = not thread.is_changing(*window)
        of_tracks = [track.between(*window) for track in thread.tracks]
        doings: dict[int, Doing] = {}
        longest: dict[int, int] = {}
        for track, found in zip(thread.tracks, of_tracks, strict=True):
            for name, (starts, ends) in found.items():
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
        return of_tracks

    def _see(self, thread: Thread, known: dict[Window, list[dict[int, Stretches]]]) -> None:
        """Count what a thread did in those of the windows in which it didn't stay as it was."""
        names = set()
        for window in self._windows.of_change(thread):
            of_tracks = known.get(window) or [track.between(*window) for track in thread.tracks]
            for found in of_tracks:
                for name, (starts, ends) in found.items():
                    seen = self._seen.setdefault(name, Seen(starts[:0], ends[:0]))
                    seen.starts = extended(seen.starts, starts)
                    seen.ends = extended(seen.ends, ends)
                    if any(map(lt, starts, ends)):
                        names.add(name)
        for name in names:
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
    """Windows of time, in order; on a clock that bends they may overlap."""

    def __init__(self, windows: Iterable[Window]) -> None:
        self._windows = sorted(windows)
        # Of those that begin up to one of them, the last end; of those that end from one on, the
        # first start.
        self._starts = [start for start, _ in self._windows]
        self._last_ends = list(accumulate((end for _, end in self._windows), max))
        by_end = sorted((end, start) for start, end in self._windows)
        self._ends = [end for end, _ in by_end]
        self._first_starts = list(accumulate((start for _, start in reversed(by_end)), min))[::-1]

    def of_change(self, thread: Thread) -> list[Window]:
        """Those in which an event of a thread begins or ends; what overlaps as one."""
        times = [
            times
            for track in thread.tracks
            for times in (track.changes.times, track.changes.unseen)
        ]
        if sum(map(len, times)) < len(self._windows):
            found = {window for each in times for time in each for window in self._around(time)}
        else:
            found = {window for window in self._windows if thread.is_changing(*window)}
        return apart(sorted(found))

    def _around(self, time: int) -> Iterable[Window]:
        """What those windows cover together that a time lies in, not at their edges."""
        n = bisect_left(self._starts, time)
        if n and self._last_ends[n - 1] > time:
            first = self._first_starts[bisect_right(self._ends, time)]
            yield first, self._last_ends[n - 1]


def apart(windows: Iterable[Window]) -> list[Window]:
    """Sorted windows, with those that overlap as one."""
    found: list[Window] = []
    for start, end in windows:
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found
