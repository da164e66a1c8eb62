"""Test what limits an op, which several modes print as `limited_by`."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders.xspace import Op, trace
from tests.harness import answer
from tests.modes.small_steps import GIB, PEAKS, PS, STEP, leaf, matmul

US = 10**6


def limits(*ops: Op, modes: dict[str, str] | None = None) -> set[Any]:
    """Return the `limited_by` of the first row of each mode."""
    rows = modes or {"bottleneck": "findings", "by_op": "ops", "roofline": "groups"}
    results = {mode: answer(trace(list(ops), STEP), mode, *PEAKS) for mode in rows}
    return {results[mode][table][0]["limited_by"] for mode, table in rows.items()}


class LimitedBy(unittest.TestCase):
    def test_roof_that_explains_half_of_the_time_limits_the_op(self) -> None:
        # The flops take 1 s, and a GiB takes 1 s.
        flops, little = 2 * PS, 2
        for dur, amounts, expected in (
            (2 * PS, (flops, 1), "mxu"),
            (2 * PS + 10, (flops, 1), "neither"),
            (2 * PS, (little, GIB), "hbm"),
            (2 * PS + 10, (little, GIB), "neither"),
            (2 * PS, (flops, GIB // 2), "mxu"),
        ):
            with self.subTest(dur=dur, amounts=amounts):
                self.assertEqual(limits(matmul(0, dur, *amounts)), {expected})

    def test_op_below_2_microseconds_that_no_roof_explains_is_limited_by_latency(self) -> None:
        self.assertEqual(limits(matmul(0, 2 * US - 1, 8, 1)), {"latency"})
        self.assertEqual(limits(matmul(0, 2 * US, 8, 1)), {"neither"})
        # A roof that explains half of the time counts first.
        self.assertEqual(limits(matmul(0, 8, 8, 0), modes={"by_op": "ops"}), {"mxu"})

    def test_row_of_several_ops_has_the_limit_of_the_op_with_most_time(self) -> None:
        ops = [matmul(0, 2 * PS, 2 * PS, 1, name="a"), matmul(1, 3 * PS, 2 * PS, GIB, name="b")]
        self.assertEqual(limits(*ops, modes={"bottleneck": "findings"}), {"neither"})
        self.assertEqual(limits(*ops, modes={"by_op": "merged"}), {"neither"})

    def test_limit_is_unknown_for_other_ops_and_if_a_roof_may_explain_more(self) -> None:
        copy = leaf(0, 3 * US, "copy.1")
        copy.stats["hlo_category"] = "copy"
        only_bytes = leaf(0, 3 * US, bytes_accessed=1)
        for ran in (copy, only_bytes):
            self.assertEqual(limits(ran, modes={"by_op": "ops"}), {None})
        self.assertEqual(limits(leaf(0, US, bytes_accessed=1), modes={"by_op": "ops"}), {"latency"})
