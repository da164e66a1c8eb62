"""Add up the times of a step on one device."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fractions import Fraction
from typing import Final

from _breakdown.light import NamedTuple

# A device is reported as slow only if it costs at least this share of the step.
SMALLEST_COST: Final = Fraction(1, 200)
# Devices are compared if collectives take at least 1/WORTH_COMPARING of the step.
WORTH_COMPARING: Final = 20


class StepSums(NamedTuple):
    """Times of one step on one device, or their sums over several steps."""

    duration: int
    busy: int
    # Communication with other devices and with the host that nothing hides.
    comm: int
    host: int
    # Waits among the communication.
    wait: int
    # Idle time at barriers, where the device waits for other devices.
    barrier: int

    @property
    def idle(self) -> int:
        return self.duration - self.busy

    @property
    def load(self) -> int:
        """Return the step without communication and barriers: both make the steps of all devices
        equally long, but a slow device has a larger load."""
        return self.duration - self.comm - self.barrier

    @property
    def is_worth_comparing(self) -> bool:
        """Return whether collectives take enough of the step to compare devices."""
        return self.comm * WORTH_COMPARING >= self.duration

    @property
    def own(self) -> int:
        """Return the time of the device's own ops."""
        return self.busy - self.comm - self.host


def total_of(steps: Iterable[StepSums]) -> StepSums:
    return StepSums(*map(sum, zip(StepSums(0, 0, 0, 0, 0, 0), *steps, strict=True)))


def is_costly(lead: int, devices: Collection[StepSums]) -> bool:
    """Return whether a device's lead in load is large enough to be reported, compared with the
    durations of all devices."""
    return lead * len(devices) >= SMALLEST_COST * sum(device.duration for device in devices)
