"""Test the cause `one_hot_matmul`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import MATRIX, NUMBERS, Json, causes, equal, lookup
from tests.builders.hlo_proto import Op, array, listed_groups, op, packed
from tests.builders.xspace import op as event

# At this peak, memory moves 1000 bytes per picosecond.
HBM = ("--peak-hbm-gibps", str(10**15 / 2**30))


def looked_up(main: list[Op]) -> list[Json]:
    ran = [
        event("eq.1", "non-fusion elementwise", 0, 100),
        event("dot.1", "convolution fusion", 100, 200),
    ]
    return causes({"main": main}, ran, *HBM)


SPREAD, PLACES, INDICES = (array("s32", 2, 8, 64), array("pred", 2, 8, 64), array("s32", 2, 8))
ROWS, CACHE = array("f32", 2, 8, 100), array("f32", 2, 64, 100)


def batched(
    *indices: Op,
    takes: int,
    equals: str = "place",
    reads: bool = False,
    matrix: str = "hot",
    sum_line: str = "a:2",
) -> list[Json]:
    """Return the rows for two matmuls of one-hot matrices with 8 indices for each of two batches.
    They put rows at 64 places of a cache, or read them there. The matrix is also summed."""
    given, result = (CACHE, ROWS) if reads else (ROWS, CACHE)
    main = [
        op("given", "parameter", shape=given),
        *indices,
        op("spread", "broadcast", "at", shape=SPREAD, extra=along(0, 1)),
        op("place", "iota", shape=SPREAD, extra=along(2)),
        equal("hot", "spread", equals, shape=PLACES, line="a:2"),
        op("weighted", "multiply", "hot", "hot", shape=PLACES),
        equal("again", "spread", equals, shape=PLACES, line=sum_line),
        op("sum", "reduce", "again", shape=array("f32", 2, 64)),
        op("dot.1", "dot", matrix, "given", shape=result, line="a:3"),
        op("dot.2", "dot", matrix, "given", shape=result, line="a:4"),
    ]
    ran = [event(f"dot.{i}", "convolution fusion", 200 * i, takes) for i in (1, 2)]
    rows = causes({"main": main}, [event("sum", "loop fusion", 0, 20), *ran], *HBM)
    return [row for row in rows if row["cause"] == "one_hot_matmul"]


def along(*dims: int) -> bytes:
    return packed(14, dims)


def consecutive(*dims: int) -> list[Op]:
    """Return indices that count from an offset, which differs along dimensions."""
    sizes = (INDICES.dims[dim] for dim in dims)
    return [
        op("offset", "parameter", shape=array("s32", *sizes), number=1),
        op("first", "broadcast", "offset", shape=INDICES, extra=along(*dims)),
        op("count", "iota", shape=INDICES, extra=along(1)),
        op("at", "add", "first", "count", shape=INDICES),
    ]


ANY = op("at", "parameter", shape=INDICES, number=1)


class OneHot(unittest.TestCase):
    def test_rows_at_consecutive_places_move_as_a_block(self) -> None:
        (row,) = batched(*consecutive(0), takes=120)
        self.assertEqual((row["source_user"], row["confidence"]), ("a:3", "seen"))
        self.assertIn("dynamic_update_slice", row["what_helps"])
        # Moving 6.4 kB at a quarter of the peak takes 51.2 ps. The sum of the one-hot matrix, as in
        # a mask of the old rows, is a range.
        self.assertEqual((row["gain_ps"], row["evidence"]["n_ops"]), (158, 3))
        (row,) = batched(*consecutive(0), takes=120, sum_line="a:5")
        self.assertEqual(row["evidence"]["n_ops"], 2)
        self.assertEqual(batched(*consecutive(0), takes=50), [])

    def test_rows_at_other_places_move_one_by_one(self) -> None:
        # Moving them at a tenth of the peak takes 128 ps.
        self.assertEqual(batched(ANY, takes=120), [])
        # What is added to the indices differs along their dimension.
        self.assertEqual(batched(*consecutive(1), takes=120), [])
        self.assertEqual(batched(*consecutive(0, 1), takes=120), [])
        array_added = op("first", "parameter", shape=INDICES, number=1)
        self.assertEqual(batched(array_added, *consecutive(0)[2:], takes=120), [])
        # The sum of the one-hot matrix can be needed.
        rows = batched(ANY, takes=200, reads=True)
        found = [(row["gain_ps"], row["evidence"]["n_ops"]) for row in rows]
        self.assertEqual(found, [(200 - 128, 1)] * 2)

    def test_rows_at_consecutive_places_are_read_as_a_block(self) -> None:
        (row,) = batched(*consecutive(0), takes=120, reads=True)
        self.assertEqual(row["gain_ps"], 158)

    def test_weighted_rows_are_no_block(self) -> None:
        self.assertEqual(batched(*consecutive(0), takes=120, matrix="weighted"), [])

    def test_comparison_of_an_iota_with_itself_is_no_one_hot_matrix(self) -> None:
        count = op("at", "iota", shape=INDICES, extra=along(1))
        self.assertEqual(len(batched(count, takes=120)), 1)
        self.assertEqual(batched(count, takes=120, equals="spread"), [])

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
