"""Build steps whose durations differ on the clock of the device."""

from __future__ import annotations

from tests.builders.xspace import Space, Stat, StatMetadata, encode, tpu_plane, uint64
from tests.modes.small_steps import leaf

# A step: name, start and end on the trace's clock; start and duration on the device's clock.
Step = tuple[str, int, int, int, int]
MS = 10**9
# On the trace's clock, the steps take 60, 140 and 100 ms.
JITTERED: list[Step] = [
    ("0", 0, 60 * MS, 1000 * MS, 100 * MS),
    ("1", 100 * MS, 240 * MS, 1100 * MS, 102 * MS),
    ("2", 300 * MS, 400 * MS, 1300 * MS, 110 * MS),
]


def capture(
    steps: list[Step],
    n_ops: int = 2,
    *,
    has_spans: bool = False,
    empty: tuple[str, int, int] | None = None,
) -> bytes:
    """Return a capture in which equally long ops fill each step on both clocks. If `has_spans`, the
    steps also have times on the device's clock, and the last op is 1 ms shorter."""
    ops, measured = [], []
    for _, start, end, device_start, duration in steps:
        for i in range(n_ops):
            ops.append(leaf(start + (end - start) * i // n_ops, (end - start) // n_ops))
            length = duration // n_ops - (MS if has_spans and i == n_ops - 1 else 0)
            measured.append((device_start + duration * i // n_ops, length))
    spans = [step[:3] for step in steps] + ([empty] if empty else [])
    plane = tpu_plane(ops, [(name, start, end - start) for name, start, end in spans])
    plane.stat_metadata += [
        StatMetadata(901, "device_offset_ps"),
        StatMetadata(902, "device_duration_ps"),
    ]
    for line in plane.lines:
        times = measured if line.name == "XLA Ops" else [step[3:] for step in steps]
        if line.name == "XLA Ops" or has_spans:
            for event, span in zip(line.events, times, strict=True):
                event.stats = [Stat(901 + i, uint64(time)) for i, time in enumerate(span)]
    return encode(Space([plane]))
