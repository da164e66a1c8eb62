"""What the threads of the host did in a window of time.

The events of a thread enclose each other, as calls do. Of them the innermost counts: at any moment
the one that began last, of several the one that ends first, of equal ones the last in the file.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections import defaultdict, deque
from itertools import chain, compress, count, repeat
from operator import add, lt

from _pipeline.intervals import union
from _proto.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any

    Column = array[int]
    from _proto.trace.joined import AnyLine, AnyPlane

    # When stretches of time begin, and when they end.
    Stretches = tuple[Column, Column]

# The place of no event, and what it is called.
NOBODY, NOTHING = -1, -1
# Before and behind any time.
NEVER = 1 << 80
# So many events are looked through at once.
BLOCK = 1024


@record
class Changes:
    """Which event of a line is innermost, from when on; events by their places."""

    times: Column
    innermost: array[int]
    # When else events begin or end: instants, and those that others outlast against the rules.
    unseen: Column
    are_nested: bool


@record
class Track:
    """The events of a line, by start, of several the longest first. Times count from where the
    host's window begins."""

    starts: Column
    ends: Column
    # The numbers of their names; behind the last that of nobody.
    names: array[int]
    changes: Changes

    def place_at(self, time: int) -> int:
        """Which event is innermost at a time."""
        n = bisect_right(self.changes.times, time)
        return self.changes.innermost[n - 1] if n else NOBODY

    def is_changing(self, start: int, end: int) -> bool:
        """Whether an event begins or ends between two times, and not at them."""
        return any(
            bisect_right(times, start) < bisect_left(times, end)
            for times in (self.changes.times, self.changes.unseen)
        )

    def between(self, start: int, end: int) -> dict[int, Stretches]:
        """When which event is innermost between two times, by the numbers of names."""
        times = self.changes.times
        first, last = bisect_right(times, start), bisect_left(times, end)
        inside = times[first:last]
        places = chain((self.place_at(start),), self.changes.innermost[first:last])
        names = array("i", map(self.names.__getitem__, places))
        begun: dict[int, Column] = defaultdict(lambda: inside[:0])
        ended: dict[int, Column] = defaultdict(lambda: inside[:0])
        append: Any = type(inside).append
        # What a loop would do, at a third of its time.
        deque(map(append, map(begun.__getitem__, names), chain((start,), inside)), maxlen=0)
        deque(map(append, map(ended.__getitem__, names), chain(inside, (end,))), maxlen=0)
        return {name: (begun[name], ended[name]) for name in begun if name != NOTHING}

    def enclosing(self, place: int, n: int) -> list[int]:
        """The events around one, the innermost first, and no more than so many."""
        found: list[int] = []
        if self.changes.are_nested:
            while len(found) < n and (place := self._around(place)) != NOBODY:
                found.append(place)
            return found
        end = self.ends[place]
        while place > 0 and len(found) < n:
            first = max(0, place - BLOCK)
            ends = self.ends[first:place]
            found += [first + i for i in range(len(ends) - 1, -1, -1) if ends[i] >= end]
            place = first
        return found[:n]

    def _around(self, place: int) -> int:
        """The event in which one begins."""
        innermost = self.changes.innermost
        i = bisect_left(self.changes.times, self.starts[place])
        while innermost[i] != place:
            i += 1
        return innermost[i - 1] if i else NOBODY


@record
class Thread:
    name: str
    tracks: list[Track]

    def is_changing(self, start: int, end: int) -> bool:
        return any(track.is_changing(start, end) for track in self.tracks)

    def changes(self, track: Track) -> tuple[Column, Sequence[int]]:
        """When anything begins or ends on the thread, and what then is innermost on one track."""
        if len(self.tracks) == 1 and not track.changes.unseen:
            return track.changes.times, track.changes.innermost
        times: set[int] = set()
        for each in self.tracks:
            times.update(each.changes.times, each.changes.unseen)
        in_order = array("q", sorted(times))
        return in_order, list(map(track.place_at, in_order))


class Host:
    """The host's planes of threads, of which what reaches into some absolute windows is kept.

    Most doesn't, and nothing else is innermost in them, around what is, or begins or ends there.
    """

    def __init__(self, planes: Sequence[AnyPlane], windows: Sequence[tuple[int, int]]) -> None:
        self._planes = planes
        self.start = min((start for start, _ in windows), default=0)
        apart = union(windows)
        # Behind the last there is one that is never reached.
        self._starts = [*(start - self.start for start, _ in apart), NEVER]
        self._ends = [end - self.start for _, end in apart]
        # From the first start to the last end of all events, once all threads are read.
        self.first, self.last = NEVER, -NEVER
        # Names by their numbers.
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}

    def overlaps(self, start: int, end: int) -> bool:
        """Whether the time of its events, which are read, and another have any in common."""
        return max(start, self.first) < min(end, self.last)

    def threads(self) -> Iterator[Thread]:
        """Read one thread after the other: all of them at once would take much memory.

        Lines of one name are one thread. Those without a name go by their ids.
        """
        for plane in self._planes:
            number_of: dict[int, int] = {}
            for name in plane.line_names:
                lines = defaultdict(list)
                for line in plane.lines(name):
                    lines[name or str(line.id)].append(line)
                for thread_name, of_thread in lines.items():
                    tracks = (self._track(line, plane, number_of) for line in of_thread)
                    yield Thread(thread_name, list(filter(None, tracks)))

    def _track(self, line: AnyLine, plane: AnyPlane, number_of: dict[int, int]) -> Track | None:
        """Return what of a line reaches into the windows."""
        shift = line.base_ps - self.start
        starts, ends, names = array("q"), array("q"), array("i")
        for ids, offsets, durations in line.spans():
            shifted = list(map(add, offsets, repeat(shift)))
            events = ids, shifted, list(map(add, shifted, durations))
            if min(durations, default=0) < 0:
                events = kept([duration >= 0 for duration in durations], *events)
            if not events[0]:
                continue
            self.first = min(self.first, min(events[1]) + self.start)
            self.last = max(self.last, max(events[2]) + self.start)
            # An event reaches into the first window that ends behind its start, or into none.
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
        """Give the names of metadata numbers; NOTHING to what has none."""
        for metadata_id in metadata_ids:
            metadata = plane.metadata(metadata_id)
            number = NOTHING
            if metadata is not None:
                number = self._numbers.setdefault(metadata.name, len(self.names))
                if number == len(self.names):
                    self.names.append(metadata.name)
            number_of[metadata_id] = number


def kept(
    keep: list[bool], one: Sequence[int], another: Sequence[int], third: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    return list(compress(one, keep)), list(compress(another, keep)), list(compress(third, keep))


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
    """None if the events are not in order: by start, of several the longest first."""
    times, innermost = array("q"), array("i")
    add_time, add_innermost = times.append, innermost.append
    unseen: list[int] = []
    are_nested = True
    # What is under way, the innermost last: each ends no later than those before it.
    under_way, until = [NOBODY], [NEVER]
    end_of_innermost = last_end = NEVER
    last_start = -NEVER
    for place, start, end in zip(count(), starts, ends):
        if start <= last_start and (start < last_start or end > last_end):
            return None
        last_start, last_end = start, end
        while end_of_innermost <= start:
            add_time(end_of_innermost)
            under_way.pop()
            until.pop()
            add_innermost(under_way[-1])
            end_of_innermost = until[-1]
        if start == end:
            unseen.append(start)
            continue
        while end_of_innermost < end:
            # It will end unseen, under what began later.
            are_nested = False
            unseen.append(end_of_innermost)
            under_way.pop()
            until.pop()
            end_of_innermost = until[-1]
        add_time(start)
        add_innermost(place)
        under_way.append(place)
        until.append(end)
        end_of_innermost = end
    while len(under_way) > 1:
        add_time(until.pop())
        under_way.pop()
        add_innermost(under_way[-1])
    return Changes(times, innermost, array("q", sorted(unseen)), are_nested)
