"""Test the cause `reduce_then_slice`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import array, listed_groups, op, packed
from tests.builders.xspace import op as event

FOUR = listed_groups((0, 1, 2, 3))


def cut(
    collective: str,
    *more_users: str,
    reader: str = "dynamic-slice",
    index: str = "partition-id",
    n_rows: int = 256,
) -> list[Json]:
    """Return the causes if each device slices a part out of the collective's output."""
    part, whole = array("f32", n_rows, 512), array("f32", 1024, 512)
    program = [
        op("x", "parameter", shape=part),
        op("index", index, shape=array("s32"), number=1),
        op("whole", collective, "x", shape=whole, line="model.py:3", extra=FOUR),
        op("narrow", "convert", "whole", shape=whole),
        op("part", reader, "narrow", "index", shape=part),
        *(op(f"user.{i}", user, "whole", shape=whole) for i, user in enumerate(more_users)),
    ]
    ran = [event("whole", collective, 100, 200), event("part", "loop fusion", 300, 10)]
    return [row for row in causes({"main": program}, ran) if row["cause"] == "reduce_then_slice"]


class Cut(unittest.TestCase):
    def test_gathered_array_is_reported_if_each_device_uses_only_a_part(self) -> None:
        (row,) = cut("all-gather")
        # An all-to-all among four devices would move a quarter of the all-gather's bytes.
        self.assertEqual((row["gain_ps"], row["confidence"]), (150, "likely"))
        self.assertEqual(row["source_user"], "model.py:3")
        self.assertIn("each device then keeps only a part", row["says"])

    def test_slice_that_does_not_depend_on_the_device_is_not_reported(self) -> None:
        self.assertEqual(cut("all-gather", index="parameter"), [])

    def test_slice_at_a_number_that_all_devices_share_is_not_reported(self) -> None:
        self.assertEqual(cut("all-reduce", index="all-reduce"), [])

    def test_slice_that_keeps_more_than_a_devices_part_is_not_reported(self) -> None:
        self.assertEqual(cut("all-reduce", n_rows=1000), [])

    def test_sliced_sum_is_reported(self) -> None:
        (row,) = cut("all-reduce")
        # A reduce-scatter moves half the bytes of an all-reduce.
        self.assertEqual((row["gain_ps"], row["confidence"]), (100, "seen"))
        self.assertIn("psum_scatter", row["what_helps"])

    def test_sum_that_is_joined_with_others_before_the_slice_is_reported(self) -> None:
        part, whole, flat = array("f32", 8192), array("f32", 16384), array("f32", 32768)
        program = [
            op("x", "parameter", shape=whole),
            op("index", "partition-id", shape=array("s32")),
            op("sum", "all-reduce", "x", shape=whole, line="model.py:3", extra=FOUR),
            op("mean", "multiply", "sum", "x", shape=whole),
            op("flat", "concatenate", "mean", "mean", shape=flat),
            op("part", "dynamic-slice", "flat", "index", shape=part),
        ]
        ran = [event("sum", "all-reduce", 100, 200), event("part", "loop fusion", 300, 10)]
        found = [row["cause"] for row in causes({"main": program}, ran)]
        self.assertIn("reduce_then_slice", found)

    def test_slice_after_a_norm_of_each_row_is_reported(self) -> None:
        """The slice of the small array of sums is the same part as the slice of the rows."""
        part, whole, few = array("f32", 256, 512), array("f32", 1024, 512), array("f32", 1024)
        fused = [
            op("rows", "parameter", shape=whole),
            op("squares", "multiply", "rows", "rows", shape=whole),
            op("zero", "constant", shape=array("f32")),
            op("sums", "reduce", "squares", "zero", shape=few, extra=packed(14, [1])),
        ]
        program = [
            op("x", "parameter", shape=whole),
            op("row", "partition-id", shape=array("s32")),
            op("column", "constant", shape=array("s32")),
            op("sum", "all-reduce", "x", shape=whole, line="model.py:3", extra=FOUR),
            op("norm", "fusion", "sum", shape=few, calls=["fused"]),
            op("own", "dynamic-slice", "norm", "row", shape=array("f32", 256)),
            op("part", "dynamic-slice", "sum", "row", "column", shape=part),
            op("many", "broadcast", "own", shape=part, extra=packed(14, [0])),
            op("out", "divide", "part", "many", shape=part),
        ]
        ran = [event("sum", "all-reduce", 100, 200), event("part", "loop fusion", 300, 10)]
        ran.append(event("own", "data formatting", 310, 1))
        (row,) = causes({"fused": fused, "main": program}, ran)
        self.assertEqual((row["cause"], row["gain_ps"]), ("reduce_then_slice", 100))

    def test_sum_that_the_program_also_returns_is_not_reported(self) -> None:
        self.assertEqual(cut("all-reduce", "negate"), [])

    def test_sum_that_is_also_used_whole_is_not_reported(self) -> None:
        self.assertEqual(cut("all-reduce", "dot"), [])

    def test_reduce_scatter_is_not_reported(self) -> None:
        self.assertEqual(cut("reduce-scatter"), [])

    def test_array_that_is_used_whole_is_not_reported(self) -> None:
        self.assertEqual(cut("all-gather", reader="add"), [])
        self.assertEqual(cut("all-gather", "negate"), [])
