"""Test which cause the headline names, and the base of the percentages of causes."""

from __future__ import annotations

import unittest
from typing import Any

from _breakdown.analysis.causes.shared.main_cause import main_cause, with_one_base

Json = dict[str, Any]


def cause(name: str, gain: int | None, low: int | None = None, high: int | None = None) -> Json:
    """Return a row of a cause in a step of 1000 ps; with a pause, the period is 2000 ps."""
    whole = 2000 if name == "pause_between_steps" else 1000
    return {
        "cause": name,
        "gain_ps": gain,
        "gain_range_ps": None if gain is None else [low or gain, high or gain],
        "gain_pct_of_step": None if gain is None else 100 * gain / whole,
    }


class MainCause(unittest.TestCase):
    def test_first_cause_is_named_if_its_least_gain_is_two_percent(self) -> None:
        for low, is_named in ((19, False), (20, True)):
            row = cause("resharding", 40, low, 45)
            self.assertEqual(main_cause([row]), row if is_named else None)

    def test_only_the_first_cause_is_named(self) -> None:
        rows = [cause("recompute", 500, 1, 500), cause("resharding", 40)]
        self.assertIsNone(main_cause(rows))
        self.assertEqual(main_cause(rows[1:]), rows[1])
        self.assertIsNone(main_cause([cause("widened_dtype", None)]))


class OneBase(unittest.TestCase):
    def test_percentages_are_of_the_period_if_there_is_a_pause(self) -> None:
        pause, inside = cause("pause_between_steps", 500), cause("resharding", 100, 80, 160)
        rows = with_one_base([pause, inside, cause("recompute", None)], 2000)
        self.assertEqual([row["pct_of_period"] for row in rows], [25, 5, None])
        self.assertEqual([row["gain_pct_of_step"] for row in rows], [None] * 3)
        (row,) = with_one_base([inside], 2000)
        self.assertEqual((row["gain_pct_of_step"], row["pct_of_period"]), (10, None))

    def test_range_of_a_measured_gain_is_not_shown(self) -> None:
        rows = with_one_base([cause("slow_device", 50), cause("resharding", 50, 40, 80)], None)
        self.assertEqual([row["low_ps"] for row in rows], [None, 40])
        self.assertEqual([row["high_ps"] for row in rows], [None, 80])
