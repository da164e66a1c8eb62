"""Test `period_ps`, the time between the starts of steps, and `between_steps_ps`, the pause."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.builders.xspace import op, trace
from tests.harness import answer

Steps = list[tuple[str, int, int]]
# Pauses of 20 ps after every second step of 80 ps.
EVERY_SECOND = [(str(i), 80 * i + 20 * (i // 2), 80) for i in range(6)]
# Three steps of 80 ps are followed by a pause of 400 ps.
ONCE = [(str(i), 80 * i + 400 * (i > 2), 80) for i in range(10)]
TWO_NAMES = [
    *(("train", 100 * i, 60) for i in range(5)),
    *(("eval", 100 * i + 70, 20) for i in range(4)),
]
NAMES = ("period_ps", "period_median_ps", "between_steps_ps", "between_steps_median_ps")


def trace_of(steps: Steps) -> bytes:
    ops = [op("f", "loop fusion", start, 1) for _, start, _ in steps]
    return trace(ops, sorted(steps, key=lambda step: step[1]))


def periods(steps: Steps, *options: str, mode: str = "summary") -> dict[str, Any]:
    """Return the answer for steps given as (name, start, duration)."""
    return answer(trace_of(steps), mode, *options)


def figures(steps: Steps, *options: str, mode: str = "summary") -> tuple[Any, ...]:
    """Return mean and median of the periods, and mean and median of the pauses."""
    result = periods(steps, *options, mode=mode)
    return tuple(result[name] for name in NAMES)


class TestPeriods(unittest.TestCase):
    def test_modes_print_mean_and_median_of_periods_and_pauses(self) -> None:
        # The periods are 80, 100, 80, 100 and 80 ps.
        for mode in ("summary", "bottleneck", "idle"):
            with self.subTest(mode):
                self.assertEqual(figures(EVERY_SECOND, mode=mode), (88, 80, 8, 0))

    def test_means_are_rounded_half_up(self) -> None:
        steps = [("0", 0, 80), ("1", 100, 80), ("2", 201, 80)]
        self.assertEqual(figures(steps), (101, 100, 21, 20))

    def test_pause_once_in_ten_steps_counts_in_the_mean(self) -> None:
        self.assertEqual(figures(ONCE), (124, 80, 44, 0))

    def test_first_step_that_is_longer_counts_in_the_mean(self) -> None:
        steps = [("0", 0, 380), *((str(i), 300 + 100 * i, 80) for i in range(1, 5))]
        self.assertEqual(figures(steps), (175, 100, 20, 20))

    def test_pause_excludes_time_in_other_steps(self) -> None:
        steps = [("train", 0, 80), ("eval", 85, 10), ("train", 100, 80), ("eval", 150, 40)]
        self.assertEqual(figures(steps, "--step-id", "train"), (100, 100, 10, 10))
        self.assertEqual(figures(steps, "--step-id", "eval"), (65, 65, 5, 5))

    def test_period_is_null_if_only_one_step_has_the_name(self) -> None:
        steps = [("train", 0, 80), ("eval", 100, 10), ("train", 200, 80)]
        self.assertEqual(figures(steps, "--step-id", "eval"), (None,) * 4)
        self.assertEqual(figures([("0", 0, 80)]), (None,) * 4)

    def test_periods_of_all_steps_count_for_the_option_step_all(self) -> None:
        steps = [("train", 0, 80), ("eval", 100, 10), ("train", 200, 80)]
        self.assertEqual(figures(steps, "--step", "all"), (100, 100, 55, 20))
        for mode in ("summary", "idle"):
            self.assertEqual(periods(steps, "--step", "all", mode=mode)["pauses"]["max_ps"], 90)


class TestPauses(unittest.TestCase):
    def test_pauses_recur_after_every_second_step(self) -> None:
        pauses = periods(EVERY_SECOND)["pauses"]
        self.assertEqual(list(pauses), ["n", "n_gaps", "when", "min_ps", "max_ps", "pct_of_period"])
        self.assertEqual([*pauses.values()], [2, 5, "after every second step", 20, 20, 9.091])

    def test_when_tells_regular_pauses_from_others(self) -> None:
        for lengths, when in (
            ([20, 20], "after every step"),
            ([20], "after every step"),
            ([20, 0, 20], "after every second step"),
            ([0, 0, 20, 0, 0, 20, 0], "after every third step"),
            ([0, 20, 0], "in 1 of 3 gaps between steps"),
            # The pauses are three steps apart, but none follows the last four steps.
            ([20, 0, 0, 20, 0, 0, 0], "in 2 of 7 gaps between steps"),
            ([20, 20, 0, 20], "in 3 of 4 gaps between steps"),
            ([*[0] * 6, 20, *[0] * 6, 20], "after every 7th step"),
        ):
            start, steps = 0, [("0", 0, 80)]
            for i, length in enumerate(lengths, 1):
                start += 80 + length
                steps.append((str(i), start, 80))
            with self.subTest(lengths):
                self.assertEqual(periods(steps)["pauses"]["when"], when)

    def test_pause_below_a_twentieth_of_the_longest_does_not_count(self) -> None:
        for short, n in ((5, 2), (4, 1)):
            steps = [("0", 0, 80), ("1", 180, 80), ("2", 260 + short, 80)]
            found = periods(steps)["pauses"]
            self.assertEqual((found["n"], found["max_ps"]), (n, 100))
            # The mean includes all pauses.
            self.assertEqual(figures(steps)[2], (100 + short + 1) // 2)

    def test_steps_without_pauses_have_none(self) -> None:
        self.assertIsNone(periods([("0", 0, 80), ("1", 80, 80)])["pauses"])


class TestAgreement(unittest.TestCase):
    def test_records_and_compare_have_the_same_mean_period(self) -> None:
        """The steps differ in pauses, duration, number of ops and name."""
        longer = [("0", 0, 380), *((str(i), 300 + 100 * i, 80) for i in range(1, 6))]
        for steps in (EVERY_SECOND, ONCE, longer, TWO_NAMES):
            data = trace_of(steps)
            with self.subTest(steps), TemporaryDirectory() as folder:
                file = Path(folder, "a.xplane.pb")
                file.write_bytes(data)
                record = Path(folder, "record.json")
                record.write_text(json.dumps(answer(data, "record")))
                mean = figures(steps, "--step-id", "train" if steps is TWO_NAMES else "0")[0]
                for after in (file, record):
                    found = answer(after, "compare", "--baseline", str(record))
                    self.assertEqual(found["totals"]["period"]["before_ps"], mean)
                    self.assertEqual(found["totals"]["period"]["after_ps"], mean)

    def test_step_with_more_ops_counts_in_the_period_of_compare(self) -> None:
        steps = [(str(i), 100 * i, 80) for i in range(5)]
        extra = [op("g", "loop fusion", 210 + i, 1) for i in range(9)]
        ops = [op("f", "loop fusion", start, 1) for _, start, _ in steps]
        steps[3], steps[4] = ("3", 400, 80), ("4", 500, 80)
        ops[3:] = [op("f", "loop fusion", start, 1) for start in (400, 500)]
        data = trace(ops + extra, steps)
        self.assertEqual(answer(data, "summary")["period_ps"], 125)
        with TemporaryDirectory() as folder:
            record = Path(folder, "record.json")
            found = answer(data, "record")
            self.assertEqual([step["used"] for step in found["steps"]].count(False), 1)
            record.write_text(json.dumps(found))
            period = answer(record, "compare", "--baseline", str(record))["totals"]["period"]
        self.assertEqual(period["before_ps"], 125)
