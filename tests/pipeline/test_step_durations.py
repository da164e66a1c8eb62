"""Test the durations of all steps: on the device's clock, if the core measured ops."""

from __future__ import annotations

import unittest
from itertools import starmap

from tests.builders.jittered import JITTERED, MS, capture
from tests.builders.xspace import Space, encode, tpu_plane
from tests.harness import answer
from tests.modes.small_steps import leaf


def durations(data: bytes, *options: str) -> list[int]:
    return [row["duration_ps"] for row in answer(data, "summary", *options)["steps"]]


class StepDurations(unittest.TestCase):
    def assert_durations(self, data: bytes, expected: list[int]) -> None:
        """Compare with the durations in records, which read all ops of all steps."""
        self.assertEqual(durations(data), expected)
        recorded = [row["duration_ps"] for row in answer(data, "record")["steps"]]
        self.assertEqual(recorded, expected)

    def test_durations_are_on_the_clock_of_the_device(self) -> None:
        self.assert_durations(capture(JITTERED), [100 * MS, 102 * MS, 110 * MS])
        self.assertEqual(durations(capture(JITTERED), "--step=all")[:2], [100 * MS, 102 * MS])

    def test_only_ops_near_both_ends_of_long_steps_are_needed(self) -> None:
        data = capture(JITTERED, 2000)
        self.assert_durations(data, [100 * MS, 102 * MS, 110 * MS])

    def test_span_of_a_step_on_the_clock_of_the_device_wins(self) -> None:
        self.assert_durations(capture(JITTERED, has_spans=True), [100 * MS, 102 * MS, 110 * MS])

    def test_durations_without_measured_ops_are_on_the_clock_of_the_trace(self) -> None:
        ops = list(starmap(leaf, [(0, 60), (100, 140)]))
        data = encode(Space([tpu_plane(ops, [("0", 0, 60), ("1", 100, 140)])]))
        self.assert_durations(data, [60, 140])

    def test_step_without_ops_has_its_duration_on_the_clock_of_the_trace(self) -> None:
        data = capture(JITTERED, empty=("3", 500 * MS, 570 * MS))
        self.assert_durations(data, [100 * MS, 102 * MS, 110 * MS, 70 * MS])

    def test_bottleneck_has_the_range_of_the_steps(self) -> None:
        result = answer(capture(JITTERED), "bottleneck")
        expected = {"n": 3, "min_ps": 100 * MS, "median_ps": 102 * MS, "max_ps": 110 * MS}
        self.assertEqual(result["steps"], expected)
        self.assertIsNone(answer(capture(JITTERED), "bottleneck", "--step=all")["steps"])
        row = answer(capture(JITTERED), "summary")["steps_rollup"]["by_name"][0]
        self.assertEqual([row["min_dur_ps"], row["max_dur_ps"]], [100 * MS, 110 * MS])
