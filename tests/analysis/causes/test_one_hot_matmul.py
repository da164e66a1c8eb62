"""Test the cause `one_hot_matmul`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import MATRIX, NUMBERS, Json, causes, equal, lookup
from tests.builders.hlo_proto import Op, array, listed_groups, op
from tests.builders.xspace import op as event

# At this peak, memory moves 1000 bytes per picosecond.
HBM = ("--peak-hbm-gibps", str(10**15 / 2**30))


def looked_up(main: list[Op]) -> list[Json]:
    ran = [
        event("eq.1", "non-fusion elementwise", 0, 100),
        event("dot.1", "convolution fusion", 100, 200),
    ]
    return causes({"main": main}, ran, *HBM)


class OneHot(unittest.TestCase):
    def test_matmul_with_one_hot_matrix_is_reported_as_lookup(self) -> None:
        (row,) = looked_up(lookup())
        self.assertEqual((row["cause"], row["confidence"]), ("one_hot_matmul", "seen"))
        self.assertEqual(row["source_user"], "embed.py:3")
        # A gather would read 2 kB and write 2 kB at a tenth of the HBM peak, which takes 41 ps.
        self.assertEqual(row["gain_ps"], 300 - 41)
        self.assertEqual(row["evidence"]["shape"], "pred[64,1000]")
        self.assertEqual(row["evidence"]["n_ops"], 2)

    def test_one_hot_matrix_is_recognised_after_a_convert(self) -> None:
        wide = op("hot", "convert", "eq.1", shape=array("bf16", 64, 1000))
        self.assertEqual(len(looked_up(lookup(wide, matrix="hot"))), 1)

    def test_weighted_one_hot_matrix_is_a_likely_cause(self) -> None:
        weights = op("weights", "parameter", shape=array("f32", 64, 1000), number=2)
        zero = op("zero", "constant", shape=array("f32"))
        zeros = op("zeros", "broadcast", "zero", shape=array("f32", 64, 1000))
        hot = op("hot", "select", "eq.1", "weights", "zeros", shape=array("f32", 64, 1000))
        (row,) = looked_up(lookup(weights, zero, zeros, hot, matrix="hot"))
        self.assertEqual((row["confidence"], row["gain_ps"]), ("likely", 300 - 41))
        # A comparison smaller than the array it masks is not a one-hot matrix.
        few = array("s32", 64, 10)
        main = lookup(weights, zero, zeros, hot, matrix="hot")
        for i, name in ((2, "spread"), (3, "iota.1"), (4, "shard"), (5, "place")):
            main[i].instruction.shape = few
            self.assertEqual(main[i].name, name)
        main[6] = equal("eq.1", "spread", "place", shape=array("pred", 64, 10))
        self.assertEqual(looked_up(main), [])

    def test_gain_includes_the_all_gather_of_the_one_hot_matrix(self) -> None:
        whole = op("whole", "all-gather", "eq.1", shape=MATRIX, extra=listed_groups((0, 1)))
        ran = [
            event("eq.1", "non-fusion elementwise", 0, 100),
            event("whole", "all-gather", 100, 300),
            event("dot.1", "convolution fusion", 400, 200),
        ]
        (row,) = causes({"main": lookup(whole, matrix="whole")}, ran, *HBM)
        self.assertEqual((row["cause"], row["gain_ps"]), ("one_hot_matmul", 600 - 41))

    def test_matmul_that_is_faster_than_a_lookup_is_not_reported(self) -> None:
        ran = [event("dot.1", "convolution fusion", 100, 44)]
        self.assertEqual(causes({"main": lookup()}, ran, *HBM), [])
        ran = [event("dot.1", "convolution fusion", 100, 60)]
        self.assertEqual(len(causes({"main": lookup()}, ran, *HBM)), 1)

    def test_gather_of_the_table_is_not_needed_for_a_lookup(self) -> None:
        table = array("f32", 1000, 8)
        whole = op("whole", "all-gather", "table", shape=table, extra=listed_groups((0, 1)))
        main = [*lookup(whole)[:-1], op("dot.1", "dot", "eq.1", "whole", shape=array("f32", 64, 8))]
        ran = [event("whole", "all-gather", 0, 300), event("dot.1", "convolution fusion", 400, 200)]
        (row,) = causes({"main": main}, ran, *HBM)
        self.assertEqual(row["gain_ps"], 500 - 41)

    def test_update_of_a_table_costs_the_rows_and_the_filling_of_the_table(self) -> None:
        main = lookup()[:-1]
        main[1] = op("rows", "parameter", shape=array("f32", 64, 8), number=1)
        path, table = "jit(f)/transpose(jvp(embed))/dot_general", array("f32", 1000, 8)
        main.append(op("dot.1", "dot", "eq.1", "rows", shape=table, tf_op=path))
        ran = [event("dot.1", "convolution fusion", 100, 200, tf_op=f"{path}:")]
        (row,) = causes({"main": main}, ran, *HBM)
        # Writing 32 kB takes 32 ps, and updating 2 kB of rows takes 41 ps, as for a gather.
        self.assertEqual(row["gain_ps"], 200 - 32 - 41)

    def test_masked_scores_are_not_a_lookup(self) -> None:
        scores = op("scores", "parameter", shape=array("f32", 64, 1000), number=2)
        masked = op("masked", "select", "eq.1", "scores", shape=array("f32", 64, 1000))
        self.assertEqual(looked_up(lookup(scores, masked, matrix="masked")), [])

    def test_comparisons_without_an_iota_are_not_a_lookup(self) -> None:
        main = lookup()
        main[6] = op("eq.1", "compare", "spread", "place", shape=MATRIX)
        self.assertEqual(looked_up(main), [])
        main = lookup()
        main[5] = op("place", "multiply", "spread", "shard", shape=NUMBERS)
        self.assertEqual(looked_up(main), [])
