"""Test the cause `slow_device`."""

from __future__ import annotations

import unittest
from typing import Any

from _modes import bottleneck
from tests.harness import Json, answer
from tests.modes.test_peers import with_slow_device


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
                "On /device:TPU:1, the step without communication takes about 998 ps longer than on"
                " any other device, and model.py:7 takes 998 ps longer than on /device:TPU:2. One"
                " step can be chance; `--mode spread` compares all steps.",
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

    def test_range_ends_where_the_device_is_as_fast_as_the_lower_median(self) -> None:
        # The devices take 2000, 3000, 2002 and 2003.
        (cause,) = self.causes(with_slow_device(n_devices=4))
        self.assertEqual(cause["gain_range_ps"], [3000 - 2003, 3000 - 2002])

    def test_headline_and_first_command_lead_to_the_slow_device(self) -> None:
        found = answer(with_slow_device(), "bottleneck", "--chip", "v7x")
        self.assertTrue(
            found["headline"].startswith("Start at model.py:7 on TPU:1: a slow device ")
        )
        lead: Any = bottleneck
        first, second, *_ = (step.words for step in lead.next_steps(found))
        self.assertEqual(first, ("--mode", "spread"))
        self.assertEqual(second[-4:], ("--top", "0", "--device", "/device:TPU:1"))
