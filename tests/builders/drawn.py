"""Draw devices and threads of the host: events with a start and an end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.builders import hlo_proto
from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Op,
    Plane,
    Space,
    Stat,
    StatMetadata,
    encode,
    op,
    tpu_plane,
    uint64,
)
from tests.harness import answer
from tests.modes.small_steps import STEP

# An event's name, start and end; optionally also its start and duration on the device clock.
Drawn = tuple[str, int, int] | tuple[str, int, int, int, int]
# A thread's name and events.
Calls = tuple[str, Sequence[tuple[str, int, int]]]


def drawn_line(name: str, drawn: Sequence[Drawn], plane: Plane) -> Line:
    """Return a line with the given events, and add their names to the plane's metadata."""
    line = Line(name)
    for text, start, end, *measured in drawn:
        number = 1 + len(plane.event_metadata)
        plane.event_metadata.append(EventMetadata(number, text))
        stats = [Stat(901 + i, uint64(time)) for i, time in enumerate(measured)]
        line.events.append(Event(number, start, end - start, stats=stats))
    return line


def device(
    ops: Sequence[Drawn],
    window: tuple[int, int],
    modules: Sequence[Drawn] = (),
    waits: Sequence[Drawn] = (),
) -> Plane:
    """Return a device that runs `ops` in one step; ops whose names begin with `while` are loops."""
    plane = tpu_plane(
        [
            op(name, "while" if name.startswith("while") else "loop fusion", start, end - start)
            for name, start, end, *_ in ops
        ],
        [("s", window[0], window[1] - window[0])],
    )
    plane.stat_metadata += [
        StatMetadata(901, "device_offset_ps"),
        StatMetadata(902, "device_duration_ps"),
    ]
    (events,) = (line.events for line in plane.lines if line.name == "XLA Ops")
    for event, (_, _, _, *measured) in zip(events, ops, strict=True):
        event.stats = [Stat(901 + i, uint64(time)) for i, time in enumerate(measured)]
    plane.lines.append(drawn_line("XLA Modules", modules, plane))
    plane.lines.append(drawn_line("XLA TraceMe", waits, plane))
    return plane


def host(*threads: Calls, timestamp_ns: int | None = None) -> Plane:
    plane = Plane("/host:CPU")
    for name, calls in threads:
        plane.lines.append(drawn_line(name, calls, plane))
        plane.lines[-1].timestamp_ns = timestamp_ns
    if timestamp_ns:
        for line in plane.lines:
            for event in line.events:
                event.offset_ps = (event.offset_ps or 0) - timestamp_ns * 1000
    return plane


def result_of(*planes: Plane, options: Sequence[str] = ()) -> dict[str, Any]:
    return answer(encode(Space(list(planes))), "idle", *options)


def traced(
    ops: Sequence[Op],
    regions: Sequence[Drawn] = (),
    measured: Sequence[tuple[int, int]] = (),
    program: bytes | None = None,
) -> bytes:
    """Encode a trace of one step; `measured` has the ops' times on the device clock."""
    plane = tpu_plane(ops, STEP)
    plane.stat_metadata += [
        StatMetadata(901, "device_offset_ps"),
        StatMetadata(902, "device_duration_ps"),
    ]
    (events,) = (line.events for line in plane.lines if line.name == "XLA Ops")
    for event, times in zip(events, measured, strict=False):
        event.stats = [Stat(901 + i, uint64(time)) for i, time in enumerate(times)]
    plane.lines.append(drawn_line("XLA TraceMe", regions, plane))
    programs = [hlo_proto.metadata_plane({7: ("jit_f(7)", program)})] if program else []
    return encode(Space([plane, *programs]))
