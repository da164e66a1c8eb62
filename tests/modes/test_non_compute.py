"""Test the mode `non_compute`: data movement, changes of dtype and layout, and stalls."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders.xspace import op, trace
from tests.harness import answer
from tests.modes.small_steps import HERE, STALL, STALLS, STEP, column, leaf


class NonCompute(unittest.TestCase):
    OPS = (
        op("slice-done.1", "async-done", 0, 1),
        op("all-gather.1", "async-done", 10, 2),
        op("x", "copy", 20, 4, stack=HERE),
        op("y", "collective-permute-done", 30, 8),
        op("z", "all-reduce", 40, 16),
        op("v", "all-gather-start", 60, 32),
        op("t", "tuple", 100, 64),
        leaf(200, 128),
        op("x", "copy", 400, 4, stack="m.py:2:1"),
    )

    def result(self, *options: str) -> dict[str, Any]:
        return answer(trace(list(self.OPS), STEP), "non_compute", *options)

    def test_options_select_the_categories(self) -> None:
        local = [("async-done", "data_move", 1), ("copy", "data_move", 8)]
        stalls = [local[0], (STALL, "comm", 10), local[1]]
        comm_rows = [("all-reduce", "comm", 16), ("all-gather-start", "comm", 32)]
        for options, rows, note in (
            ([], stalls, True),
            (["--no-comm-stalls"], local, False),
            (["--include-comm"], stalls + comm_rows, True),
            (["--include-comm", "--no-comm-stalls"], local + comm_rows, False),
        ):
            with self.subTest(options=options):
                result = self.result(*options)
                self.assertEqual(
                    column(result["by_category"], "hlo_category", "kind", "total_dur_ps"), rows
                )
                self.assertEqual(STALLS in result["notes"], note)
                total = sum(dur for _, _, dur in rows)
                self.assertEqual(result["totals"]["non_compute_duration_ps"], total)
                listed = sum(dur for _, kind, dur in rows if kind == "comm")
                left_out = {"data_move": 0, "comm": 10 + 16 + 32 - listed, "other": 64}
                self.assertEqual(result["totals"]["left_out_ps"], left_out)
                self.assertEqual(
                    sum(column(result["by_source_within_category"], "total_dur_ps")), total
                )

    def test_percentages_are_relative_to_step_and_compute(self) -> None:
        totals = self.result()["totals"]
        self.assertEqual(totals["non_compute_pct_of_step"], 1.9)
        # The listed ops take 19 ps, and compute takes 128 ps.
        self.assertEqual(totals["non_compute_pct_of_compute"], 14.844)
        alone = answer(trace([op("x", "copy", 0, 4)], STEP), "non_compute")["totals"]
        self.assertIsNone(alone["non_compute_pct_of_compute"])

    def test_key_of_a_stall_contains_the_category_as_written_in_the_trace(self) -> None:
        rows = self.result()["by_source_within_category"]
        self.assertEqual(
            column(rows, "hlo_category", "agg_key")[:2],
            [("async-done", "<no source>:async-done"), (STALL, "<no source>:async-done")],
        )
        self.assertEqual(
            column(rows, "hlo_category", "agg_key")[3],
            (STALL, "<no source>:collective-permute-done"),
        )

    def test_time_of_ops_that_change_dtype_or_layout_is_summed(self) -> None:
        # A change is null if dtypes or layouts cannot be compared.
        same, cast, laid = "f32[8,4]{1,0}", "bf16[8,4]{1,0}", "f32[8,4]{0,1}"
        unknown, both = "f32[32]{0}", "bf16[8,4]{0,1}"
        for befores, expected in (
            ((same, cast, laid, both), (True, 2 + 8, True, 4 + 8)),
            ((same, same), (False, 0, False, 0)),
            ((unknown,), (False, 0, None, None)),
            ((unknown, laid, same), (False, 0, True, 2)),
            (("",), (None, None, None, None)),
            (("", cast), (True, 2, False, 0)),
        ):
            with self.subTest(befores=befores):
                ops = [
                    op(f"c.{i}", "copy", 20 * i, 1 << i, shape=same, operands=before, stack=HERE)
                    for i, before in enumerate(befores)
                ]
                (row,) = answer(trace(ops, STEP), "non_compute")["by_source_within_category"]
                keys = [
                    f"{what}_{end}"
                    for what in ("dtype", "layout")
                    for end in ("change", "change_dur_ps")
                ]
                self.assertEqual(tuple(row[key] for key in keys), expected)
