"""Find what the host did in given windows of time, such as gaps in which the device was idle."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from operator import indexOf, sub

from _breakdown.analysis.idle.launches import NO_LAUNCH, Launches, launch_level
from _breakdown.light import NamedTuple
from _breakdown.pipeline.groups import summed
from _breakdown.pipeline.host import NEVER, NOBODY, NOTHING, Host, Thread, Track

# Start and end, relative to the start of the host's first window.
Window = tuple[int, int]

N_ACTIVITIES, N_WITHIN, N_EVENTS = 8, 8, 20


class Activity:
    """The time in a window during which a thread's innermost event had a given name."""

    def __init__(self, thread: str, event: str, is_still: bool) -> None:
        self.thread = thread
        self.event = event
        # True if no event of the thread begins or ends during the window.
        self.is_still = is_still
        self.is_launching = False
        self.duration = 0
        # Time within the step's period; None if the step has no period.
        self.in_period: int | None = None
        # Track that contains the longest occurrence, and the event's index in this track.
        self.track: Track | None = None
        self.place = 0
        self.within: list[str] = []

    @property
    def rank(self) -> tuple[bool, int, str, str]:
        return self.is_still, -self.duration, self.event, self.thread


class ActivitiesOfWindow:
    """The longest activities in a window, in a separate list for each launch level."""

    def __init__(self, carriers: set[str]) -> None:
        # Names of the threads that launched the programs before and after the window.
        self.carriers = carriers
        self._by_level: dict[int, list[Activity]] = {}

    def of_level(self, level: int) -> list[Activity]:
        return self._by_level.setdefault(level, [])

    def ranked(self) -> list[Activity]:
        """Return the longest activities, those of threads that launch programs first.

        Threads that launch programs get up to half of the rows, plus the rows that other threads
        leave unused.
        """
        surest = min(self._by_level, default=NO_LAUNCH)
        for level, activities in self._by_level.items():
            for activity in activities:
                activity.is_launching = level == surest < NO_LAUNCH
        found = [activity for activities in self._by_level.values() for activity in activities]
        found.sort(key=lambda activity: activity.rank)
        launching = [activity for activity in found if activity.is_launching]
        others = [activity for activity in found if not activity.is_launching]
        n_launching = max(N_ACTIVITIES // 2, N_ACTIVITIES - len(others))
        return [*launching[:n_launching], *others][:N_ACTIVITIES]


def times_of(thread: Thread, window: Window) -> dict[int, int]:
    """Return, for each event name, how long events of that name are innermost on a thread within a
    window."""
    return summed(
        (name, sum(ends) - sum(starts))
        for track in thread.tracks
        for name, (starts, ends) in track.between(*window).items()
    )


class EventTime(NamedTuple):
    """The wall-clock time during which events of one name are innermost on at least one thread."""

    name: str
    duration: int
    n_threads: int


class Stretches:
    """Intervals in which the innermost event of any thread had a given name."""

    def __init__(self) -> None:
        self.starts, self.ends = array("q"), array("q")
        self.n_threads = 0

    @property
    def upper_bound(self) -> int:
        """Return the sum of all intervals; equal to `duration` if the intervals of different
        threads do not overlap."""
        return sum(self.ends) - sum(self.starts)

    @property
    def duration(self) -> int:
        """Return the length of the union of all intervals."""
        # The union has a gap wherever all intervals that have begun have also ended.
        starts, ends = sorted(self.starts), sorted(self.ends)
        gaps = sum(max(0, start - end) for start, end in zip(starts[1:], ends, strict=False))
        return ends[-1] - starts[0] - gaps


class HostActivity:
    """A host's events in each shown window, and their totals over all counted windows.

    `period` is the start and end of the step's period, or None.
    """

    def __init__(
        self,
        host: Host,
        launches: Launches,
        shown: Iterable[Window],
        counted: Iterable[Window],
        period: Window | None,
    ) -> None:
        self._host, self._launches = host, launches
        self._shown = {
            self._within(*window): ActivitiesOfWindow(
                launches.threads_around(*launches.in_host_time(window))
            )
            for window in shown
        }
        self._windows = Windows(self._within(*window) for window in counted)
        self._stretches: dict[int, Stretches] = {}
        for thread in host.threads():
            in_period = times_of(thread, self._within(*period)) if period else None
            for window, activities in self._shown.items():
                level = launch_level(thread, activities.carriers)
                self._add_activities(window, thread, activities.of_level(level), in_period)
            self._add_stretches(thread)

    def _within(self, *window: int) -> Window:
        start, end = self._launches.in_host_time((window[0], window[1]))
        return start - self._host.start, end - self._host.start

    def during(self, window: tuple[int, int]) -> list[Activity]:
        """Return the longest activities in a shown window.

        Threads that launch programs come first. In each of the two groups, threads on which no
        event begins or ends in the window come last.
        """
        return self._shown[self._within(*window)].ranked()

    def _add_activities(
        self,
        window: Window,
        thread: Thread,
        ranked: list[Activity],
        in_period: Mapping[int, int] | None,
    ) -> None:
        names = self._host.names
        is_still = not thread.is_changing(*window)
        activities: dict[int, Activity] = {}
        longest: dict[int, int] = {}
        for track in thread.tracks:
            for name, (starts, ends) in track.between(*window).items():
                activity = activities.setdefault(name, Activity(thread.name, names[name], is_still))
                activity.duration += sum(ends) - sum(starts)
                most = max(map(sub, ends, starts))
                if most > longest.get(name, 0):
                    longest[name] = most
                    at = starts[indexOf(map(sub, ends, starts), most)]
                    activity.track, activity.place = track, track.place_at(at)
        for name, activity in activities.items():
            if in_period is not None:
                activity.in_period = in_period.get(name, 0)
        ranked += [activity for activity in activities.values() if activity.track]
        ranked.sort(key=lambda activity: activity.rank)
        del ranked[N_ACTIVITIES:]
        for activity in ranked:
            if activity.track:
                around = activity.track.enclosing(activity.place, N_WITHIN)
                activity.within = [names[activity.track.names[place]] for place in around]
                # Tracks are large, so release the reference.
                activity.track = None

    def _add_stretches(self, thread: Thread) -> None:
        """Add the intervals of a thread, excluding windows in which none of its events begins or
        ends."""
        touched = set()
        for track in thread.tracks:
            names = set(track.names) - {NOTHING}
            for name in names - self._stretches.keys():
                self._stretches[name] = Stretches()
            n_before = {name: len(self._stretches[name].starts) for name in names}
            self._windows.watch(thread, track, self._stretches)
            touched |= {
                n for n, before in n_before.items() if len(self._stretches[n].starts) > before
            }
        for name in touched:
            self._stretches[name].n_threads += 1

    def longest_events(self) -> list[EventTime]:
        """Return the events that take the most time in the counted windows."""
        names = self._host.names
        ranked = sorted(self._stretches.items(), key=lambda item: -item[1].upper_bound)
        found: list[EventTime] = []
        for name, stretches in ranked:
            if len(found) >= N_EVENTS and stretches.upper_bound < found[N_EVENTS - 1].duration:
                break
            if stretches.n_threads:
                found.append(EventTime(names[name], stretches.duration, stretches.n_threads))
                found.sort(key=lambda event: (-event.duration, event.name, event.n_threads))
        return found[:N_EVENTS]


class Windows:
    """Sorted windows of time that do not overlap."""

    def __init__(self, windows: Iterable[Window]) -> None:
        merged = apart(sorted(windows))
        # Sentinel window after all events.
        self._starts = [*(start for start, _ in merged), NEVER]
        self._ends = [*(end for _, end in merged), NEVER]

    def watch(self, thread: Thread, track: Track, stretches: Mapping[int, Stretches]) -> None:
        """Add the intervals of a track to `stretches`, keyed by the innermost event's name.

        Windows in which no event of the thread begins or ends are skipped.
        """
        starts, ends = self._starts, self._ends
        names = track.names
        add = {
            name: (stretches[name].starts.append, stretches[name].ends.append)
            for name in {*names[:-1]}
        }
        start, end = starts[0], ends[0]
        # The preceding change: its time, its event, and the end of the window that contains its
        # time.
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
    """Merge overlapping windows; the input must be sorted."""
    found: list[Window] = []
    for start, end in windows:
        if found and start < found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((start, end))
    return found
