"""Test `period_ps`, the time between the starts of steps, and `between_steps_ps`, the pause."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders.xspace import op, trace
from tests.harness import answer, within

Steps = list[tuple[str, int, int]]


def figures(steps: Steps, *options: str, mode: str = "summary") -> tuple[Any, Any]:
    """Return `period_ps` and `between_steps_ps` for steps given as (name, start, duration)."""
    ops = [op("f", "loop fusion", start, 1) for _, start, _ in steps]
    result = answer(trace(ops, steps), mode, *options)
    return result["period_ps"], result["between_steps_ps"]


class TestPeriods(unittest.TestCase):
    def test_modes_print_the_period_and_the_pause(self) -> None:
        steps = [("0", 0, 80), ("1", 100, 80)]
        for mode in ("summary", "bottleneck", "idle"):
            with self.subTest(mode):
                self.assertEqual(figures(steps, mode=mode), (100, 20))

    def test_median_of_an_even_count_is_the_lower_middle_value(self) -> None:
        # The periods are 100, 130, 90 and 200 ps; the pauses are 20, 50, 10 and 100 ps.
        starts = [0, 100, 230, 320, 520]
        steps = [(str(i), start, 80 if i != 3 else 100) for i, start in enumerate(starts)]
        self.assertEqual(figures(steps), (100, 20))

    def test_median_period_and_pause_can_come_from_different_steps(self) -> None:
        # The periods are 100, 110 and 120 ps; the pauses are 60, 10 and 20 ps.
        steps = [("0", 0, 40), ("1", 100, 100), ("2", 210, 100), ("3", 330, 10)]
        self.assertEqual(figures(steps), (110, 20))

    def test_pause_excludes_time_in_other_steps(self) -> None:
        steps = [("train", 0, 80), ("eval", 85, 10), ("train", 100, 80), ("eval", 150, 40)]
        self.assertEqual(figures(steps, "--step-id", "train"), (100, 10))
        self.assertEqual(figures(steps, "--step-id", "eval"), (65, 5))

    def test_pause_between_overlapping_steps_is_zero(self) -> None:
        self.assertEqual(figures([("0", 0, 80), ("1", 50, 80)]), (50, 0))

    def test_period_is_null_if_only_one_step_has_the_name(self) -> None:
        steps = [("train", 0, 80), ("eval", 100, 10), ("train", 200, 80)]
        self.assertEqual(figures(steps, "--step-id", "eval"), (None, None))
        self.assertEqual(figures([("0", 0, 80)]), (None, None))

    def test_period_is_null_for_the_option_step_all(self) -> None:
        steps = [("0", 0, 80), ("1", 100, 80)]
        self.assertEqual(figures(steps, "--step", "all"), (None, None))

    def test_run_time_is_linear_in_the_number_of_steps(self) -> None:
        steps = [(str(i), 100 * i, 80) for i in range(20_000)]
        with within(2):
            self.assertEqual(figures(steps), (100, 20))


if __name__ == "__main__":
    unittest.main()
