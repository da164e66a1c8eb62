"""Represent a step of a device."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence


class StepEvent:
    """A step on the trace's clock. Times are relative to the base time of the ops line."""

    def __init__(
        self,
        index: int,
        name: str | None,
        start: int,
        end: int,
        # Start and end on the device's clock, or None if the step's event lacks them.
        device_span: tuple[int, int] | None,
        # Steps of one kind run the same programs.
        kind: str | None = None,
        programs: Sequence[StepEvent] = (),
    ) -> None:
        self.index, self.name = index, name
        self.start, self.end = start, end
        self.device_span = device_span
        self.kind = kind
        # The programs of a cycle, in order of start.
        self.programs = programs
        # The number of ops that start in the step, as far as they have been counted.
        self.n_events = 0

    @property
    def duration(self) -> int:
        return self.end - self.start


def main_kind(steps: Iterable[StepEvent]) -> str | None:
    """Return the kind of the steps that take the most time."""
    times: Counter[str | None] = Counter()
    for step in steps:
        times[step.kind] += step.duration
    return times.most_common(1)[0][0]
