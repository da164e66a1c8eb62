"""Test the cause `slow_device`."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from itertools import zip_longest

from tests.builders.peers import collective, device, with_slow_device
from tests.builders.xspace import Event, EventMetadata, Line, Space, encode, op
from tests.harness import Json, answer


def with_times(
    times: Sequence[int], *, at_line: int | None = None, barriers: Sequence[int] = ()
) -> bytes:
    """Encode a step in which devices take the given times before a collective, the last part of it
    at a barrier. Of what a device takes beyond 2000, `at_line` is at line 7 and the rest without a
    line; by default, all of it is at line 7."""
    planes = []
    for number, (time, barrier) in enumerate(zip_longest(times, barriers, fillvalue=0)):
        here = min(2000, time - barrier)
        excess = time - barrier - here
        part = excess if at_line is None else min(excess, at_line)
        plane = device(
            number,
            [
                op("fusion.1", "loop fusion", 0, here, stack="model.py:3:1", program_id=7),
                op("fusion.2", "loop fusion", here, part, stack="model.py:7:1", program_id=7),
                op("fusion.3", "loop fusion", here + part, excess - part, program_id=7),
                collective(time, 10_000 - time, program_id=7),
            ],
        )
        plane.event_metadata.append(EventMetadata(99, "barrier-cores"))
        plane.lines.append(Line("XLA TraceMe", [Event(99, time - barrier, barrier)]))
        planes.append(plane)
    return encode(Space(planes))


class SlowDevice(unittest.TestCase):
    def causes(self, data: bytes, *options: str) -> list[Json]:
        found = answer(data, "bottleneck", *options)["causes"]
        return [cause for cause in found if cause["cause"] == "slow_device"]

    def test_slow_device_and_its_line_are_found_whichever_device_is_picked(self) -> None:
        for picked in "012":
            (cause,) = self.causes(with_slow_device(), "--device", picked)
            self.assertEqual(cause["source_user"], "model.py:7")
            self.assertEqual(cause["gain_ps"], 2000 - 1002)
            self.assertEqual(cause["evidence"]["device"], "/device:TPU:1")
            self.assertEqual(cause["evidence"]["ops"], ["fusion.2"])
            self.assertEqual(cause["confidence"], "likely")
            self.assertEqual(
                cause["says"],
                "On /device:TPU:1, the step without communication takes 998 ps longer than on any"
                " other device, and model.py:7 takes 998 ps longer than on /device:TPU:2. Balanced"
                " devices would save about 998 ps (666 to 998 ps), unless this step is chance"
                " (compare all steps with `--mode spread`).",
            )

    def test_only_the_picked_step_decides_which_device_is_slow(self) -> None:
        for step, slow in (("0", "/device:TPU:1"), ("1", "/device:TPU:2")):
            data = with_slow_device(slow_in={0: 1, 1: 2})
            (cause,) = self.causes(data, "--step", step)
            self.assertEqual(cause["evidence"]["device"], slow)

    def test_equal_devices_have_no_slow_device(self) -> None:
        self.assertEqual(self.causes(with_slow_device(slow=9)), [])
        self.assertEqual(self.causes(with_slow_device(n_devices=1)), [])

    def test_device_is_slow_only_if_it_costs_half_a_percent_of_the_step(self) -> None:
        # Devices 0 and 1 take 1000 and 1000 + excess for the line.
        for excess, n in ((50, 1), (49, 0)):
            self.assertEqual(len(self.causes(with_slow_device(n_devices=2, excess=excess))), n)

    def test_range_begins_at_the_mean_and_ends_at_the_lower_median(self) -> None:
        # The devices take 2000, 3000, 2002 and 2003, on average 2251.25.
        (cause,) = self.causes(with_slow_device(n_devices=4))
        self.assertEqual(cause["gain_ps"], 3000 - 2003)
        self.assertEqual(cause["gain_range_ps"], [3000 - 2251, 3000 - 2002])

    def test_wide_range_leaves_the_gain_unknown(self) -> None:
        # The devices take 2000, 3000 and 2900: the lead is 100, the difference to the mean 367, and
        # the difference to the median 100.
        (cause,) = self.causes(with_times([2000, 3000, 2900]))
        self.assertEqual(cause["gain_range_ps"], [100, 100])
        # The devices take 2000, 2000, 3000 and 2700: the difference to the lower median is 1000.
        (cause,) = self.causes(with_times([2000, 2000, 3000, 2700]))
        self.assertEqual((cause["gain_ps"], cause["gain_range_ps"]), (None, None))

    def test_line_must_explain_half_of_the_difference(self) -> None:
        for at_line, line in ((500, "model.py:7"), (499, None)):
            data = with_times([2000, 3000, 2000], at_line=at_line)
            (cause,) = self.causes(data)
            self.assertEqual((cause["source_user"], cause["gain_ps"]), (line, 1000))

    def test_waiting_at_a_barrier_is_no_load(self) -> None:
        # Device 0 waits at a barrier for 2000 before its collective.
        (cause,) = self.causes(with_times([3000, 3000], barriers=[2000, 0]))
        self.assertEqual(cause["evidence"]["device"], "/device:TPU:1")
        self.assertEqual(cause["gain_ps"], 2000)
        self.assertEqual(self.causes(with_times([3000, 1000], barriers=[2000, 0])), [])
