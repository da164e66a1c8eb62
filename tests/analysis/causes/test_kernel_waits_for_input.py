"""Test the cause `kernel_waits_for_input`."""

from __future__ import annotations

import unittest
from collections.abc import Sequence

from tests.builders.drawn import Drawn, traced
from tests.builders.xspace import Op
from tests.harness import Json, answer
from tests.modes.small_steps import PEAKS, kernel, leaf

NAME = "kernel_waits_for_input"


def answer_of(ops: Sequence[Op], regions: Sequence[Drawn], *options: str) -> Json:
    return answer(traced(ops, regions), "bottleneck", *options)


def causes(ops: Sequence[Op], regions: Sequence[Drawn], *options: str) -> list[Json]:
    return [row for row in answer_of(ops, regions, *options)["causes"] if row["cause"] == NAME]


class WaitsForInput(unittest.TestCase):
    OPS = (
        kernel(0, 100, "a.1", stack="m.py:3:1", tf_op="jit(f)/x/a:"),
        kernel(100, 100, "a.2", stack="m.py:4:1", tf_op="jit(f)/x/a:"),
        kernel(200, 300, "b.1", stack="m.py:5:1"),
        leaf(500, 500),
    )

    def test_gain_is_the_waiting_time_of_the_kernel(self) -> None:
        [row] = causes(
            self.OPS,
            [
                *(("ep_wait_in", 0, 60), ("ep_run_kernel", 60, 90), ("ep_wait_in", 100, 140)),
                *(("ep_run_kernel", 200, 300), ("b", 300, 400)),
            ],
        )
        self.assertEqual((row["gain_ps"], row["gain_pct_of_step"]), (100, 10.0))
        self.assertEqual((row["confidence"], row["unknown_ps"]), ("seen", None))
        self.assertEqual((row["source_user"], row["scope"]), ("m.py:3", "x"))
        evidence = row["evidence"]
        self.assertEqual(evidence["ops"], ["a.1", "a.2"])
        self.assertEqual(evidence["dur_ps"], 200)
        self.assertEqual(
            row["says"],
            "The kernel a (at m.py:3) waits for copies during 100 ps of its 200 ps. Without these"
            " waits, the step would save about 100 ps (80 to 100 ps).",
        )
        self.assertIn("larger blocks", row["what_helps"])

    def test_each_kernel_has_a_row_unless_its_wait_is_short(self) -> None:
        waits = [("wait", 0, 60), ("wait", 200, 300)]
        rows = causes(self.OPS, waits)
        self.assertEqual([row["gain_ps"] for row in rows], [100, 60])
        self.assertEqual(causes(self.OPS, [("wait", 0, 4), ("ep_copy_in", 200, 400)]), [])

    def test_waiting_is_reported_for_a_kernel_of_known_cost(self) -> None:
        [row] = causes(self.OPS, [("wait", 0, 60)], *PEAKS, "--kernel-cost", "a=20,0,bf16")
        self.assertEqual(row["gain_ps"], 60)
