"""Test the cause `array_of_pairs`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import causes
from tests.builders.hlo_proto import Shape, array, op
from tests.builders.xspace import op as event


class Pairs(unittest.TestCase):
    def test_ops_on_arrays_with_a_last_dimension_of_two_are_reported(self) -> None:
        for last, n in ((2, 1), (4, 0)):
            with self.subTest(last=last):
                pairs = array("bf16", 64, 8192 // last, last)
                main = [
                    op("x", "parameter", shape=array("bf16", 64, 8192)),
                    op("pairs.1", "pad", "x", shape=pairs, line="rope.py:3"),
                ]
                ran = [event("pairs.1", "loop fusion", at, 400) for at in (0, 500)]
                peak = ("--peak-hbm-gibps", str(10**12 / 2**30 * 2**20 / 50))
                rows = causes({"main": main}, ran, *peak)
                # At the test's HBM peak, 1 MiB takes 50 ps.
                lines = [(row["source_user"], row["gain_ps"], row["cause"]) for row in rows]
                self.assertEqual(lines, [("rope.py:3", 600, "array_of_pairs")] * n)

    def test_copies_of_pairs_change_only_the_layout_if_the_pairs_themselves_cost_too_little(
        self,
    ) -> None:
        rows_first, pairs_first = (
            Shape("bf16", (64, 4096, 2), minor_to_major=order) for order in ((2, 1, 0), (1, 2, 0))
        )
        main = [
            op("x", "parameter", shape=rows_first),
            op("y", "negate", "x", shape=rows_first),
            op("copy.1", "copy", "y", shape=pairs_first, line="rope.py:3"),
            op("used", "negate", "copy.1", shape=pairs_first),
        ]
        peak = ("--peak-hbm-gibps", str(10**12 / 2**30 * 2**20 / 50))
        # The least gain is 50. Moving the bytes takes 100.
        for dur, cause in ((151, "array_of_pairs"), (149, "layout_change")):
            with self.subTest(dur):
                ran = [event("copy.1", "data formatting", 0, dur)]
                rows = causes({"main": main}, ran, *peak, duration=10_000)
                self.assertEqual([row["cause"] for row in rows], [cause])

    def test_ops_that_compute_or_write_much_more_than_the_pairs_are_not_reported(self) -> None:
        small, twice, larger = (array("bf16", 64, n, 128) for n in (64, 128, 192))
        for opcode, category, result, n in (
            ("pad", "loop fusion", small, 1),
            ("pad", "loop fusion", twice, 1),
            ("pad", "loop fusion", larger, 0),
            ("dot", "convolution fusion", small, 0),
        ):
            with self.subTest(opcode=opcode, result=result):
                main = [
                    op("pairs.1", "parameter", shape=array("bf16", 64, 4096, 2)),
                    op("out.1", opcode, "pairs.1", "pairs.1", shape=result, line="rope.py:3"),
                ]
                rows = causes({"main": main}, [event("out.1", category, 0, 400)])
                self.assertEqual([row["cause"] for row in rows], ["array_of_pairs"] * n)
