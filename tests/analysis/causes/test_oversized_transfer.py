"""Test the cause `oversized_transfer`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import OF_ROWS, Json, causes, rows_of, zeros
from tests.builders.hlo_proto import Shape, array, listed_groups, op, packed
from tests.builders.xspace import op as event

GROUPS = listed_groups((0, 1, 2, 3))
FORWARD, BACKWARD = "jit(f)/jvp(g)/dot_general", "jit(f)/transpose(jvp(g))/dot_general"


def reduced(
    width: int, path: str = FORWARD, weight: str = "bitcast", last: str = "dynamic-slice"
) -> list[Json]:
    """Return the causes if an all-reduce adds the partial sums of a matmul, arrays of shape
    (1024, `width`). All devices compute the same with the sums, for an op with the opcode `last`.

    The matmul's second operand is computed from a parameter by the opcode `weight`.
    """
    shape = array("f32", 1024, width)
    program = [
        op("x", "parameter", shape=array("f32", 1024, 8)),
        op("w", "parameter", shape=array("f32", 8, width), number=1),
        op("tanh", "tanh", "x", shape=array("f32", 1024, 8)),
        op("layer", "negate", "w", shape=array("s32")),
        op("weight", weight, "w", "layer", shape=array("f32", 8, width)),
        op("dot.1", "dot", "tanh", "weight", shape=shape, tf_op=path, line="model.py:7"),
        op("copy.1", "copy", "dot.1", shape=shape),
        op("sum", "all-reduce", "copy.1", shape=shape, line="model.py:7", extra=GROUPS),
        op("max", "exponential", "sum", shape=shape, line="model.py:8"),
        op("total", "reduce", "sum", shape=array("f32")),
        op("more", "broadcast", "total", shape=shape),
        op("device", "partition-id", shape=array("u32")),
        op("used", "dot", "more", "device", shape=shape),
        op("out", last, "max", "device", shape=array("f32", width // 4, 1024)),
    ]
    ran = [
        event("weight", "loop fusion", 0, 10),
        event("dot.1", "convolution fusion", 10, 10),
        event("sum", "all-reduce", 100, 200),
        event("max", "loop fusion", 300, 100, tf_op="jit(f)/max:"),
        event("total", "loop fusion", 400, 4),
        event("more", "loop fusion", 404, 50),
        event("used", "loop fusion", 455, 4),
        event("out", "loop fusion", 460, 10),
    ]
    rows = causes({"main": program}, ran, devices=(1, 4))
    return [row for row in rows if row["cause"] in ("oversized_transfer", "duplicated_work")]


def gathered(width: int, reader: str = "dot") -> list[Json]:
    """Return the causes if a matmul's operand of 1024 by `width` elements is gathered."""
    shape = array("f32", 1024, width)
    program = [
        op("x", "parameter", shape=array("f32", 256, width)),
        op("w", "parameter", shape=array("f32", width, 8)),
        op("whole", "all-gather", "x", shape=shape, line="model.py:3", extra=GROUPS),
        op("same", "bitcast", "whole", shape=shape),
        op("out", reader, "same", "w", shape=array("f32", 1024, 8), line="model.py:4"),
    ]
    ran = [event("whole", "all-gather", 100, 200), event("out", "convolution fusion", 300, 10)]
    return [row for row in causes({"main": program}, ran) if row["cause"] == "oversized_transfer"]


def both(other: Shape, result: Shape, width: int = 512, path: str = BACKWARD) -> list[Json]:
    """Return the causes if an operand of 1024 by `width` elements is gathered and the result is
    all-reduced."""
    whole = array("f32", 1024, width)
    program = [
        op("x", "parameter", shape=array("f32", 256, width)),
        op("w", "parameter", shape=other),
        op("whole", "all-gather", "x", shape=whole, line="model.py:3", extra=GROUPS),
        op("part", "dot", "whole", "w", shape=result, tf_op=path),
        op("sum", "all-reduce", "part", shape=result, line="model.py:5", extra=GROUPS),
        op("out", "exponential", "sum", shape=result),
    ]
    ran = [
        event("whole", "all-gather", 0, 200),
        event("part", "convolution fusion", 200, 50, stack="model.py:4:1"),
        event("sum", "all-reduce", 250, 100),
        event("out", "loop fusion", 350, 10),
    ]
    return [row for row in causes({"main": program}, ran) if row["cause"] == "oversized_transfer"]


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


class LargerArray(unittest.TestCase):
    def test_partial_sums_larger_than_the_activations_are_found(self) -> None:
        (row,) = reduced(1024)
        # Gathering the activations from four devices would move 4 * 8 columns of 1024 elements; the
        # all-reduce moves 1024 such columns. All devices also work on the whole sum, for 104 ps.
        self.assertEqual(row["gain_ps"], round(200 * (1024 - 32) / 1024) + 75 + 3)
        self.assertEqual((row["source_user"], row["confidence"]), ("model.py:7", "likely"))
        self.assertEqual(row["evidence"]["ops"], ["sum", "max", "total"])
        self.assertIn("reduces partial sums of a matmul", row["says"])
        self.assertIn("Split the weight along a dimension of the result", row["what_helps"])

    def test_work_on_sums_that_other_ops_need_whole_is_divided_with_the_sums(self) -> None:
        (row,) = reduced(1024, last="dot")
        self.assertEqual(row["gain_ps"], round(200 * (1024 - 32) / 1024) + 75 + 3)

    def test_operand_that_is_computed_needs_to_move(self) -> None:
        (row,) = reduced(1024, weight="negate")
        self.assertAlmostEqual(row["gain_ps"], 200 * (1024 - 64) / 1024 + 75 + 3, delta=1)
        (row,) = reduced(1024, weight="dynamic-slice")
        self.assertAlmostEqual(row["gain_ps"], 200 * (1024 - 32) / 1024 + 75 + 3, delta=1)

    def test_partial_sums_smaller_than_the_activations_are_not_reported(self) -> None:
        # The devices could still divide the work on the sum.
        self.assertNotIn("oversized_transfer", [row["cause"] for row in reduced(64)])

    def test_summed_gradients_are_not_reported(self) -> None:
        self.assertNotIn("oversized_transfer", [row["cause"] for row in reduced(1024, BACKWARD)])

    def test_gathered_operand_larger_than_the_other_arrays_is_found(self) -> None:
        (row,) = gathered(1024)
        self.assertEqual(row["gain_ps"], round(200 * (1024 - 64) / 1024))
        self.assertEqual(row["source_user"], "model.py:3")
        self.assertIn("gathers an operand of a matmul", row["says"])

    def test_gathered_array_that_no_matmul_reads_is_not_reported(self) -> None:
        self.assertEqual(gathered(1024, "add"), [])
        self.assertEqual(gathered(16), [])

    def test_gathered_operand_and_reduced_result_of_a_matmul_share_a_row(self) -> None:
        (row,) = both(array("f32", 512, 64), array("f32", 1024, 64))
        # The gathered operand has 512 columns of 1024 elements, and the reduced result has 64. The
        # other operand has 64 columns of 512 elements on each of four devices, which together have
        # the size of 128 columns of 1024 elements.
        self.assertEqual(row["gain_ps"], round(300 * (512 + 64 - 128) / (512 + 64)))
        self.assertEqual((row["source_user"], row["confidence"]), ("model.py:3", "likely"))
        self.assertEqual(row["evidence"]["ops"], ["whole", "sum"])
        self.assertEqual(both(array("f32", 512, 192), array("f32", 1024, 192)), [])

    def test_reduction_that_alone_is_too_large_is_in_the_row_of_the_gather(self) -> None:
        result = array("f32", 1024, 1024)
        (row,) = both(array("f32", 64, 1024), result, width=64, path=FORWARD)
        self.assertEqual(row["evidence"]["ops"], ["whole", "sum"])

    def test_weight_gradient_that_sums_along_the_gathered_dimension_is_not_reported(self) -> None:
        self.assertEqual(both(array("f32", 1024, 48), array("f32", 512, 48)), [])

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
