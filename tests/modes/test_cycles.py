"""Test modes on captures whose steps are cycles of programs."""

from __future__ import annotations

import json
import unittest
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tests.builders.cycles import MS, SERVING, capture
from tests.harness import answer, run


class OneStep(unittest.TestCase):
    def test_modes_show_all_programs_of_a_cycle(self) -> None:
        for mode in ("summary", "bottleneck", "idle", "by_op", "by_source"):
            with self.subTest(mode):
                found = answer(capture(SERVING), mode)
                self.assertEqual(
                    (found["step_source"], found["step_name"], found["step_duration_ps"]),
                    ("cycles", "jit_forward(7)", 19 * MS),
                )
                if "period_ps" in found:
                    self.assertEqual(found["period_ps"], 20 * MS)
                    self.assertEqual(found["between_steps_ps"], MS)
        times = [group["total_dur_ps"] for group in answer(capture(SERVING), "by_source")["groups"]]
        self.assertEqual(sorted(times), [2 * MS, 3 * MS, 14 * MS])

    def test_cycle_of_median_duration_is_picked(self) -> None:
        with_prefill = ["prefill", *SERVING]
        found = answer(capture(with_prefill + with_prefill), "summary")
        self.assertEqual(found["step_duration_ps"], 19 * MS)
        self.assertEqual([step["duration_ps"] for step in found["steps"]].count(28 * MS), 1)

    def test_programs_that_do_not_repeat_have_no_period(self) -> None:
        found = answer(capture(["forward", "convert", "sample"]), "summary", "--step", "all")
        self.assertIsNone(found["period_ps"])
        self.assertIn("no program runs twice", " ".join(found["notes"]))

    def test_period_of_a_kind_ends_with_the_next_cycle_of_any_kind(self) -> None:
        # Cycles of 20 ms, and of 15 ms with a prefill instead of the forward pass.
        prefill = ["prefill", "convert", "sample", "pause"]
        found = answer(capture((SERVING[:8] + prefill) * 3), "summary")
        self.assertEqual((found["period_ps"], found["period_median_ps"]), (20 * MS, 20 * MS))
        whole = answer(capture((SERVING[:8] + prefill) * 3), "idle", "--step", "all")
        self.assertIsNone(whole["period_ps"])


class SeveralDevices(unittest.TestCase):
    def test_cycle_is_compared_with_the_one_at_the_same_time(self) -> None:
        # The second device's capture begins with a sampler and lacks the first cycle.
        late = ["pause"] * 17 + SERVING[2:]
        planes = capture(SERVING, late)
        found = answer(planes, "comm", "--peers", "--step", "1")
        self.assertEqual(found["step_duration_ps"], 19 * MS)
        self.assertNotIn("fewer than", " ".join(found["notes"]))
        last = answer(planes, "comm", "--peers", "--step", "4")
        self.assertNotIn("left out", " ".join(last["notes"]))


class Records(unittest.TestCase):
    def record(self, *programs: list[str], slower: str = "") -> dict[str, Any]:
        return answer(capture(*programs, slower=slower), "record")

    def test_record_has_cycles_with_periods(self) -> None:
        found = self.record(SERVING)
        self.assertEqual(found["devices"][0]["step_source"], "cycles")
        self.assertEqual(
            [(step["duration_ps"], step["period_ps"]) for step in found["steps"]],
            [(19 * MS, 20 * MS)] * 4 + [(19 * MS, None)],
        )

    def test_cycles_of_other_kinds_are_not_used(self) -> None:
        prefill = ["prefill", "convert", "sample", "pause"]
        found = self.record((SERVING[:8] + prefill) * 3)
        self.assertEqual(
            [step["why_not"] for step in found["steps"]], [None, None, "other_program"] * 3
        )

    def compared(self, before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
        with TemporaryDirectory() as folder:
            paths = [Path(folder, f"{name}.json") for name in ("before", "after")]
            for path, of in zip(paths, (before, after), strict=True):
                path.write_text(json.dumps(of))
            return run(paths[1], "compare", "--baseline", str(paths[0])).object

    def test_change_in_a_small_program_is_found(self) -> None:
        found = self.compared(self.record(SERVING), self.record(SERVING, slower="sample"))
        totals = found["totals"]
        self.assertEqual(totals["step_duration"]["delta_ps"], MS)
        self.assertEqual(totals["period"]["delta_ps"], MS)
