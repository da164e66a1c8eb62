"""Build captures of programs that run one after the other, without a `Steps` line."""

from __future__ import annotations

from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Op,
    Plane,
    Space,
    encode,
    op,
    tpu_plane,
)

MS = 10**9
# Programs by name, with their durations in ms; each is one op.
DURATIONS = {"forward": 14, "convert": 2, "sample": 3, "prefill": 9}
# Cycles of 20 ms: three programs, and a pause of 1 ms.
SERVING = ["forward", "convert", "sample", "pause"] * 5


def device(programs: list[str], number: int = 0, slower: str = "") -> Plane:
    """Return a device on which the programs run one after the other, the program `slower` for 1 ms
    longer. A pause takes 1 ms."""
    ops, events, now = list[Op](), list[Event](), 0
    names = sorted(set(programs))
    for program in programs:
        if program == "pause":
            now += MS
            continue
        time = (DURATIONS[program] + (program == slower)) * MS
        ops.append(op(f"{program}.1", "loop fusion", now, time, stack=f"{program}.py:1:1"))
        events.append(Event(100 + names.index(program), now, time))
        now += time
    plane = tpu_plane(ops, name=f"/device:TPU:{number}")
    plane.lines.append(Line("XLA Modules", events))
    plane.event_metadata += [
        EventMetadata(100 + i, f"jit_{name}(7)") for i, name in enumerate(names)
    ]
    return plane


def capture(*programs: list[str], slower: str = "") -> bytes:
    return encode(Space([device(of, i, slower) for i, of in enumerate(programs)]))
