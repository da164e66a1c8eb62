"""Build captures of steps with pauses, and of the host's threads in the pauses."""

from __future__ import annotations

from tests.builders.xspace import Event, EventMetadata, Line, Plane, Space, encode, op, tpu_plane

US, MS = 10**6, 10**9
# An event of a thread: name, start and end in microseconds.
Call = tuple[str, int, int]
N = 4
PERIOD, STEP = 100_000, 80_000
LAUNCH = "PjitFunction(train)"


def each_pause(*calls: Call) -> list[Call]:
    """Return calls at times from the start of each step; the pause is from 80 to 100 ms."""
    return [
        (name, start + PERIOD * i, end + PERIOD * i) for i in range(N) for name, start, end in calls
    ]


def launching(*calls: Call) -> list[Call]:
    """Return a loop that makes the calls in each pause, and launches the next step."""
    loop = ("$train.py:20 main", -PERIOD, (N + 1) * PERIOD)
    return [loop, *each_pause(*calls, (LAUNCH, 99_800, 99_900))]


def host(threads: dict[str, list[Call]]) -> Plane:
    plane = Plane("/host:CPU")
    ids: dict[str, int] = {}
    for thread, calls in threads.items():
        events = []
        for name, start, end in sorted(calls, key=lambda call: (call[1], -call[2])):
            number = ids.setdefault(name, len(ids) + 1)
            events.append(Event(number, start * US, (end - start) * US))
        plane.lines.append(Line(thread, events))
    plane.event_metadata = [EventMetadata(number, name) for name, number in ids.items()]
    return plane


def device() -> Plane:
    steps = [(str(i), PERIOD * i * US, STEP * US) for i in range(N + 1)]
    return tpu_plane([op("f.1", "loop fusion", start, length) for _, start, length in steps], steps)


def waiting_for_a_loader() -> bytes:
    """Encode a capture in which the launching thread waits for a thread that loads a batch."""
    wait = ("$queue.py:154 get", 79_000, 99_700)
    loader = each_pause(("$loader.py:7 load", 60_000, 99_680))
    return encode(Space([device(), host({"main": launching(wait), "loader": loader})]))
