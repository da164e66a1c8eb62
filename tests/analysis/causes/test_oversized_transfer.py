"""Test the cause `oversized_transfer`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import OF_ROWS, Json, causes, rows_of, zeros
from tests.builders.hlo_proto import array, listed_groups, op, packed
from tests.builders.xspace import op as event

GROUPS = listed_groups((0, 1, 2, 3))


def updated(n_rows: int) -> list[Json]:
    """Return the causes if updates of 64 rows of a table are added up among four devices."""
    table = array("f32", n_rows, 64)
    program = [
        *zeros("zeros", table),
        op("rows", "parameter", shape=array("s32", 64), number=1),
        op("updates", "parameter", shape=array("f32", 64, 64), number=2),
        op("part", "scatter", "zeros", "rows", "updates", shape=table, extra=OF_ROWS),
        op("sum", "all-reduce", "part", shape=table, line="model.py:3", extra=GROUPS),
        op("out", "negate", "sum", shape=table),
    ]
    ran = [event("part", "scatter", 0, 10), event("sum", "all-reduce", 100, 200)]
    return [row for row in causes({"main": program}, ran) if row["cause"] == "oversized_transfer"]


def looked_up(n_rows: int) -> list[Json]:
    """Return the causes if a table is gathered from four devices to look up 64 rows."""
    program = [
        op("x", "parameter", shape=array("f32", n_rows // 4, 64)),
        op("rows", "parameter", shape=array("s32", 64), number=1),
        op("whole", "all-gather", "x", shape=array("f32", n_rows, 64), extra=GROUPS),
        rows_of("whole", "rows", array("f32", 64, 64)),
    ]
    ran = [event("whole", "all-gather", 0, 200), event("out", "gather", 300, 10)]
    return [row for row in causes({"main": program}, ran) if row["cause"] == "oversized_transfer"]


class OversizedTransfer(unittest.TestCase):
    def test_gradient_of_a_table_of_which_few_rows_are_used_is_found(self) -> None:
        (row,) = updated(n_rows=4096)
        # The table has 4096 rows, and four devices update 64 rows each.
        self.assertAlmostEqual(row["gain_ps"], 200 * (4096 - 256) / 4096, delta=2)
        self.assertIn("Split the table along its rows", row["what_helps"])

    def test_gradient_of_a_table_of_which_many_rows_are_used_is_not_reported(self) -> None:
        self.assertEqual(updated(n_rows=512), [])

    def test_gathered_table_of_which_few_rows_are_used_is_found(self) -> None:
        (row,) = looked_up(n_rows=4096)
        self.assertIn(
            "among 4 devices moves f32[4096,64], of which only a part is used", row["says"]
        )

    def test_gathered_table_of_which_many_rows_are_used_is_not_reported(self) -> None:
        self.assertEqual(looked_up(n_rows=512), [])

    def test_repeated_array_that_is_gathered_is_found(self) -> None:
        def rows(dims: tuple[int, ...]) -> list[Json]:
            many = array("f32", 64, 8, 512)
            program = [
                op("x", "parameter", shape=array("f32", *(many.dims[dim] for dim in dims))),
                op("many", "broadcast", "x", shape=many, extra=packed(14, dims)),
                op("all", "all-gather", "many", shape=array("f32", 256, 8, 512), extra=GROUPS),
            ]
            found = causes({"main": program}, [event("all", "all-gather", 0, 200)])
            return [row for row in found if row["cause"] == "oversized_transfer"]

        (row,) = rows((0, 2))
        self.assertEqual((row["gain_ps"], row["confidence"]), (175, "seen"))
        self.assertEqual(rows((0, 1, 2)), [])

    def test_mask_that_is_compared_on_each_device_need_not_be_moved(self) -> None:
        def rows(*ends: str) -> list[Json]:
            mask = array("pred", 512, 1024)
            program = [
                op("ends", "parameter", shape=array("s32", 512)),
                op("all", "parameter", shape=array("s32", 512, 1024), number=1),
                op("places", "iota", shape=array("s32", 512, 1024), extra=packed(14, [1])),
                op("many", "broadcast", "ends", shape=array("s32", 512, 1024),
                   extra=packed(14, [0])),
                op("mask", "compare", "places", *ends, shape=mask),
                op("moved", "all-to-all", "mask", shape=mask, extra=GROUPS),
            ]  # fmt: skip
            found = causes({"main": program}, [event("moved", "all-to-all", 0, 1024)])
            return [row for row in found if row["cause"] == "oversized_transfer"]

        (row,) = rows("many")
        self.assertEqual((row["cause"], row["gain_ps"]), ("oversized_transfer", 1024 - 4))
        self.assertEqual(rows("all"), [])

    def test_rows_that_each_device_looks_up_are_moved(self) -> None:
        program = [
            op("x", "parameter", shape=array("f32", 8, 512)),
            op("rows", "parameter", shape=array("s32", 64), number=1),
            rows_of("x", "rows", array("f32", 64, 512), "many"),
            op("all", "all-gather", "many", shape=array("f32", 256, 512), extra=GROUPS),
        ]
        self.assertEqual(causes({"main": program}, [event("all", "all-gather", 0, 200)]), [])

    def test_slice_after_a_permute_is_found(self) -> None:
        whole, half = array("f32", 256, 512), array("f32", 256, 256)
        program = [
            op("x", "parameter", shape=whole),
            op("sent", "collective-permute", "x", shape=whole, line="moe.py:21", extra=GROUPS),
            op("half", "slice", "sent", shape=half),
        ]
        ran = [event("sent", "collective-permute", 0, 200), event("half", "slice", 200, 1)]
        (row,) = causes({"main": program}, ran)
        self.assertEqual((row["cause"], row["gain_ps"]), ("oversized_transfer", 100))
        self.assertEqual((row["source_user"], row["confidence"]), ("moe.py:21", "seen"))
