"""Compute periods (the times from the start of a step to the start of the next step with the same
name) and the pauses within them."""

from __future__ import annotations

from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple

from _pipeline.device import STEPS
from _pipeline.intervals import Cover, union

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from _pipeline.device import Device, StepEvent


class Period(NamedTuple):
    """The time from the start of a step to the start of the next step with the same name, on the
    trace clock."""

    step: StepEvent
    following: StepEvent
    # Time within the period during which no step runs.
    pause: int

    @property
    def duration(self) -> int:
        return self.following.start - self.step.start


class Periods(NamedTuple):
    """The periods of all steps with the picked step's name, in order of time."""

    periods: list[Period]
    picked: StepEvent

    @property
    def median(self) -> int:
        """Return the median length of the periods."""
        return lower_median(self.periods, attrgetter("duration")).duration

    @property
    def typical(self) -> Period:
        """Return the period that has the median pause between steps."""
        return lower_median(self.periods, attrgetter("pause"))

    @property
    def of_picked(self) -> tuple[int, int]:
        """Return the start and end of the picked step's period.

        The last step has no following step, so its period begins at the preceding step's end and
        ends at its own end.
        """
        for period in self.periods:
            if period.step is self.picked:
                return period.step.start, period.following.start
        last = self.periods[-1]
        return min(last.step.end, self.picked.start), self.picked.end


def lower_median(periods: Sequence[Period], figure: Callable[[Period], int]) -> Period:
    """Return the period with the median value of a figure; for an even number of periods, the lower
    of the two middle ones."""
    return sorted(periods, key=figure)[(len(periods) - 1) // 2]


def periods_of(device: Device, picked: StepEvent | None) -> Periods | None:
    """Return the periods of all steps with the picked step's name. Return None if there is only one
    such step, or if no step is picked."""
    if picked is None:
        return None
    name = common_name(device, picked)
    steps = [step for step in device.steps if common_name(device, step) == name]
    if len(steps) < 2:
        return None
    running = Cover.of(union((step.start, step.end) for step in device.steps))
    return Periods(
        [
            Period(step, following, unused(running, step.start, following.start))
            for step, following in pairwise(steps)
        ],
        picked,
    )


def periods_by_index(device: Device) -> dict[int, int]:
    """Map step indices to periods; steps without a following step of the same name are omitted."""
    periods, next_start = {}, dict[str | None, int]()
    for step in reversed(device.steps):
        name = common_name(device, step)
        if name in next_start:
            periods[step.index] = next_start[name] - step.start
        next_start[name] = step.start
    return periods


def unused(running: Cover, start: int, end: int) -> int:
    return end - start - running.within(start, end)


def common_name(device: Device, step: StepEvent) -> str | None:
    """Return the name by which steps are grouped; None if the name is a number.

    The profiler gives each step of a loop its own number, so all numbered steps are in one group.
    """
    name = step.name or "<none>"
    is_number = device.step_source == STEPS and name.isascii() and name.isdecimal()
    return None if is_number else name
