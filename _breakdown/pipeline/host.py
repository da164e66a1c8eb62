"""Find which events ran on the host's threads in given time windows.

Events of a thread are nested, like calls. At any time, only the innermost event counts: the one
that began last. If several events began at the same time, the one that ends first is the innermost.
If they also end at the same time, the last one in the file is the innermost.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain, compress, count, islice, repeat
from operator import add, lt
from typing import Any, TypeAlias

from _breakdown.light import NamedTuple
from _breakdown.pipeline.groups import grouped
from _breakdown.pipeline.intervals import union
from _proto.trace.joined import AnyLine, AnyPlane

Column: TypeAlias = "array[int]"
# Starts and ends of stretches of time.
Stretches = tuple[Column, Column]

# If no event is running, the event's index is NOBODY, and the index of its name is NOTHING.
NOBODY, NOTHING = -1, -1
# NEVER is later, and -NEVER is earlier, than all event times.
NEVER = 1 << 80
# Texts in event names that identify threads launching programs, most reliable first: JAX's call of
# a program, then two runtime calls. Such a name begins with CALLS_PROGRAM or EXECUTE, or contains
# EXECUTE_HELPER.
CALLS_PROGRAM = "PjitFunction"
EXECUTE_HELPER = "ExecuteHelper"
EXECUTE = "Execute"
# Launch ranks, one for each of these texts, and the rank of threads that launch no programs. A
# lower rank is more reliable.
CALLER, HELPER, EXECUTOR, NO_LAUNCHER = range(4)


class Changes(NamedTuple):
    """Times at which a line's innermost event changes, and the index of the new innermost event."""

    times: Column
    innermost: array[int]
    # Times at which an event begins or ends but the innermost event stays the same: times of
    # instant events, and ends of events that are not properly nested.
    unseen: Column
    are_nested: bool


class Track(NamedTuple):
    """A line's events, sorted by start, then longest first.

    Times are relative to the start of the host's first window.
    """

    starts: Column
    ends: Column
    # Index of each event's name. The last entry is NOTHING, because index NOBODY (-1) refers to it.
    names: array[int]
    changes: Changes

    def place_at(self, time: int) -> int:
        """Return the index of the innermost event at a time."""
        n = bisect_right(self.changes.times, time)
        return self.changes.innermost[n - 1] if n else NOBODY

    def is_changing(self, start: int, end: int) -> bool:
        """Return whether an event begins or ends strictly between two times."""
        return any(
            bisect_right(times, start) < bisect_left(times, end)
            for times in (self.changes.times, self.changes.unseen)
        )

    def between(self, start: int, end: int) -> dict[int, Stretches]:
        """Return the stretches between two times in which each name is innermost, by index of the
        name."""
        times = self.changes.times
        first, last = bisect_right(times, start), bisect_left(times, end)
        inside = times[first:last]
        places = chain((self.place_at(start),), self.changes.innermost[first:last])
        names = array("i", map(self.names.__getitem__, places))
        begun: dict[int, Column] = defaultdict(lambda: inside[:0])
        ended: dict[int, Column] = defaultdict(lambda: inside[:0])
        append: Any = type(inside).append
        # Mapping `append` is three times as fast as a loop.
        deque(map(append, map(begun.__getitem__, names), chain((start,), inside)), maxlen=0)
        deque(map(append, map(ended.__getitem__, names), chain(inside, (end,))), maxlen=0)
        return {name: (begun[name], ended[name]) for name in begun if name != NOTHING}

    def enclosing(self, place: int, n: int) -> list[int]:
        """Return the indices of up to n events that enclose an event, innermost first."""
        found: list[int] = []
        if self.changes.are_nested:
            while len(found) < n and (place := self._around(place)) != NOBODY:
                found.append(place)
            return found
        end = self.ends[place]
        return list(islice((i for i in range(place - 1, -1, -1) if self.ends[i] >= end), n))

    def _around(self, place: int) -> int:
        """Return the innermost event that encloses the event at `place`."""
        innermost = self.changes.innermost
        i = bisect_left(self.changes.times, self.starts[place])
        while innermost[i] != place:
            i += 1
        return innermost[i - 1] if i else NOBODY


def launch_rank(name: str) -> int:
    """Return the launch rank that an event's name implies for its thread."""
    if name.startswith(CALLS_PROGRAM):
        return CALLER
    if EXECUTE_HELPER in name:
        return HELPER
    return EXECUTOR if name.startswith(EXECUTE) else NO_LAUNCHER


class Thread(NamedTuple):
    name: str
    tracks: list[Track]
    # The lowest launch rank that the thread's event names imply.
    launch_rank: int
    # When the thread calls the main program, even outside the windows.
    main_calls: list[int]

    def is_changing(self, start: int, end: int) -> bool:
        return any(track.is_changing(start, end) for track in self.tracks)

    def changes(self, track: Track) -> tuple[Column, Sequence[int]]:
        """Return all times at which an event of the thread begins or ends, and the innermost event
        on `track` at each time."""
        if len(self.tracks) == 1 and not track.changes.unseen:
            return track.changes.times, track.changes.innermost
        times: set[int] = set()
        for other in self.tracks:
            times.update(other.changes.times, other.changes.unseen)
        in_order = array("q", sorted(times))
        return in_order, list(map(track.place_at, in_order))


class Host:
    """The host's threads in the given windows, whose times are absolute.

    Events outside all windows are dropped, because they are never innermost in a window, and never
    enclose an event that is. `main` is the name of the event that calls the main program.
    """

    def __init__(
        self, planes: Sequence[AnyPlane], windows: Sequence[tuple[int, int]], main: str = ""
    ) -> None:
        self._planes, self._main = planes, main
        self.start = min((start for start, _ in windows), default=0)
        merged = union(windows)
        # The last start is a sentinel for events after all windows.
        self._starts = [*(start - self.start for start, _ in merged), NEVER]
        self._ends = [end - self.start for _, end in merged]
        # The first start and the last end of all events read so far.
        self.first, self.last = NEVER, -NEVER
        # Distinct event names; `_numbers` contains the index of each name.
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def overlaps(self, start: int, end: int) -> bool:
        """Return whether a span overlaps the time from the first start to the last end of all
        events read so far."""
        return max(start, self.first) < min(end, self.last)

    def threads(self) -> Iterator[Thread]:
        """Yield the threads one by one, because a list of all threads would need too much memory.

        Lines with the same name form one thread. A line without a name is named after its id.
        """
        for plane in self._planes:
            number_of: dict[int, int] = {}
            names = dict(plane.metadata_names())
            rank_of = {
                metadata_id: rank
                for metadata_id, name in names.items()
                if (rank := launch_rank(name)) < NO_LAUNCHER
            }
            main = {metadata_id for metadata_id in rank_of if names[metadata_id] == self._main}
            for name in plane.line_names:
                by_thread = grouped((name or str(line.id), line) for line in plane.lines(name))
                for thread_name, lines in by_thread.items():
                    launching: set[int] = set()
                    tracks = [
                        self._track(line, plane, number_of, rank_of.keys(), launching)
                        for line in lines
                    ]
                    rank = min(map(rank_of.__getitem__, launching), default=NO_LAUNCHER)
                    calls = self._starts_of(main, lines) if main & launching else []
                    yield Thread(thread_name, list(filter(None, tracks)), rank, calls)

    def _starts_of(self, wanted: Set[int], lines: Iterable[AnyLine]) -> list[int]:
        """Return the starts of the events with the `wanted` ids."""
        return sorted(
            line.base_ps - self.start + offset
            for line in lines
            for ids, offsets, _ in line.spans()
            if not wanted.isdisjoint(ids)
            for metadata_id, offset in zip(ids, offsets, strict=True)
            if metadata_id in wanted
        )

    def _track(
        self,
        line: AnyLine,
        plane: AnyPlane,
        number_of: dict[int, int],
        wanted: Set[int],
        found: set[int],
    ) -> Track | None:
        """Return the events of a line that overlap a window.

        Also add to `found` the `wanted` ids that occur on the line, even outside the windows.
        """
        shift = line.base_ps - self.start
        starts, ends, names = array("q"), array("q"), array("i")
        for ids, offsets, durations in line.spans():
            if wanted and not wanted.isdisjoint(ids):
                found |= wanted & set(ids)
            shifted = list(map(add, offsets, repeat(shift)))
            events = ids, shifted, list(map(add, shifted, durations))
            if min(durations, default=0) < 0:
                events = kept([duration >= 0 for duration in durations], *events)
            if not events[0]:
                continue
            self.first = min(self.first, min(events[1]) + self.start)
            self.last = max(self.last, max(events[2]) + self.start)
            # An event that overlaps any window overlaps the first window that ends after the
            # event's start.
            nearest = map(bisect_right, repeat(self._ends), events[1])
            reaching = list(map(lt, map(self._starts.__getitem__, nearest), events[2]))
            numbers, begun, ended = kept(reaching, *events)
            self._number_names(plane, set(numbers) - number_of.keys(), number_of)
            numbers = list(map(number_of.__getitem__, numbers))
            if NOTHING in numbers:
                named = [number != NOTHING for number in numbers]
                numbers, begun, ended = kept(named, numbers, begun, ended)
            starts.extend(begun)
            ends.extend(ended)
            names.extend(numbers)
        return track_of(starts, ends, names) if starts else None

    def _number_names(
        self, plane: AnyPlane, metadata_ids: Iterable[int], number_of: dict[int, int]
    ) -> None:
        """Assign a name index to each metadata id; an id without metadata gets NOTHING."""
        for metadata_id in metadata_ids:
            metadata = plane.metadata(metadata_id)
            number = NOTHING
            if metadata is not None:
                number = self._numbers.setdefault(metadata.name, len(self.names))
                if number == len(self.names):
                    self.names.append(metadata.name)
            number_of[metadata_id] = number


def kept(
    keep: list[bool], first: Sequence[int], second: Sequence[int], third: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    return list(compress(first, keep)), list(compress(second, keep)), list(compress(third, keep))


def track_of(starts: Column, ends: Column, names: array[int]) -> Track:
    changes = changes_of(starts, ends)
    if changes is None:
        order = list(range(len(starts)))
        order.sort(key=ends.__getitem__, reverse=True)
        order.sort(key=starts.__getitem__)
        starts, ends = (array("q", map(times.__getitem__, order)) for times in (starts, ends))
        names = array("i", map(names.__getitem__, order))
        changes = changes_of(starts, ends)
        assert changes is not None
    names.append(NOTHING)
    return Track(starts, ends, names, changes)


def changes_of(starts: Column, ends: Column) -> Changes | None:
    """Return when the innermost event changes, or None if events are not sorted by start, then
    longest first."""
    times, innermost = array("q"), array("i")
    add_time, add_innermost = times.append, innermost.append
    unseen: list[int] = []
    are_nested = True
    # Events that have begun but not ended, and their ends, innermost last. An outer event that
    # would end before an inner one is removed below.
    open_events, open_ends = [NOBODY], [NEVER]
    end_of_innermost = last_end = NEVER
    last_start = -NEVER
    for place, start, end in zip(count(), starts, ends):
        if start <= last_start and (start < last_start or end > last_end):
            return None
        last_start, last_end = start, end
        while end_of_innermost <= start:
            add_time(end_of_innermost)
            open_events.pop()
            open_ends.pop()
            add_innermost(open_events[-1])
            end_of_innermost = open_ends[-1]
        if start == end:
            unseen.append(start)
            continue
        while end_of_innermost < end:
            # The enclosing event ends before the new event, which is still innermost at that time,
            # so the innermost event stays the same.
            are_nested = False
            unseen.append(end_of_innermost)
            open_events.pop()
            open_ends.pop()
            end_of_innermost = open_ends[-1]
        add_time(start)
        add_innermost(place)
        open_events.append(place)
        open_ends.append(end)
        end_of_innermost = end
    while len(open_events) > 1:
        add_time(open_ends.pop())
        open_events.pop()
        add_innermost(open_events[-1])
    return Changes(times, innermost, array("q", sorted(unseen)), are_nested)
