"""Test the cause `resharding` for matmuls whose largest array crosses the links."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import Shape, array, listed_groups, op
from tests.builders.xspace import op as event

GROUPS = listed_groups((0, 1, 2, 3))
FORWARD, BACKWARD = "jit(f)/jvp(g)/dot_general", "jit(f)/transpose(jvp(g))/dot_general"


def reduced(width: int, path: str = FORWARD) -> list[Json]:
    """Return the causes if an all-reduce adds the partial sums of a matmul, arrays of shape
    (1024, `width`)."""
    shape = array("f32", 1024, width)
    program = [
        op("x", "parameter", shape=array("f32", 1024, 8)),
        op("w", "parameter", shape=array("f32", 8, width)),
        op("dot.1", "dot", "x", "w", shape=shape, tf_op=path, line="model.py:7"),
        op("copy.1", "copy", "dot.1", shape=shape),
        op("sum", "all-reduce", "copy.1", shape=shape, line="model.py:7", extra=GROUPS),
        op("out", "exponential", "sum", shape=shape),
    ]
    ran = [
        event("dot.1", "convolution fusion", 0, 10),
        event("sum", "all-reduce", 100, 200),
        event("out", "loop fusion", 300, 10),
    ]
    return [row for row in causes({"main": program}, ran) if row["cause"] == "resharding"]


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
    ran = [
        event("whole", "all-gather", 100, 200),
        event("out", "convolution fusion", 300, 10),
    ]
    return [row for row in causes({"main": program}, ran) if row["cause"] == "resharding"]


def both(other: Shape, result: Shape) -> list[Json]:
    """Return the causes if an operand of 1024 by 512 elements is gathered and the result is
    all-reduced."""
    whole = array("f32", 1024, 512)
    program = [
        op("x", "parameter", shape=array("f32", 256, 512)),
        op("w", "parameter", shape=other),
        op("whole", "all-gather", "x", shape=whole, line="model.py:3", extra=GROUPS),
        op("part", "dot", "whole", "w", shape=result, tf_op=BACKWARD),
        op("sum", "all-reduce", "part", shape=result, line="model.py:5", extra=GROUPS),
        op("out", "exponential", "sum", shape=result),
    ]
    ran = [
        event("whole", "all-gather", 0, 200),
        event("part", "convolution fusion", 200, 50, stack="model.py:4:1"),
        event("sum", "all-reduce", 250, 100),
        event("out", "loop fusion", 350, 10),
    ]
    return [row for row in causes({"main": program}, ran) if row["cause"] == "resharding"]


class LargerArray(unittest.TestCase):
    def test_partial_sums_larger_than_both_operands_are_found(self) -> None:
        (row,) = reduced(1024)
        # Gathering both operands from four devices would move 4 * 2 * 8 columns of 1024 elements;
        # the all-reduce moves 1024 such columns.
        self.assertEqual(row["gain_ps"], 200 * (1024 - 64) // 1024)
        self.assertEqual((row["source_user"], row["confidence"]), ("model.py:7", "likely"))
        self.assertIn("reduces partial sums of a matmul", row["says"])

    def test_partial_sums_smaller_than_the_operands_are_not_reported(self) -> None:
        self.assertEqual(reduced(16), [])

    def test_summed_gradients_are_not_reported(self) -> None:
        self.assertEqual(reduced(1024, BACKWARD), [])

    def test_gathered_operand_larger_than_the_other_arrays_is_found(self) -> None:
        (row,) = gathered(1024)
        self.assertEqual(row["gain_ps"], 200 * (1024 - 64) // 1024)
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
        self.assertEqual(row["gain_ps"], 300 * (512 + 64 - 128) // (512 + 64))
        self.assertEqual((row["source_user"], row["confidence"]), ("model.py:4", "likely"))
        self.assertEqual(row["evidence"]["ops"], ["whole", "sum"])
        self.assertEqual(both(array("f32", 512, 128), array("f32", 1024, 128)), [])

    def test_weight_gradient_that_sums_along_the_gathered_dimension_is_not_reported(self) -> None:
        self.assertEqual(both(array("f32", 1024, 48), array("f32", 512, 48)), [])

    def test_matmuls_at_the_same_line_share_a_row(self) -> None:
        program, ran = [], []
        for i, n_columns, line in ((0, 512, 4), (1, 256, 4), (2, 512, 6)):
            shape, result = array("f32", 1024, n_columns), array("f32", 1024, 32)
            gathered, dot, total = f"whole.{i}", f"part.{i}", f"sum.{i}"
            program += [
                op(f"x.{i}", "parameter", shape=array("f32", 256, n_columns), number=i),
                op(f"w.{i}", "parameter", shape=array("f32", n_columns, 32), number=3 + i),
                op(gathered, "all-gather", f"x.{i}", shape=shape, extra=GROUPS),
                op(dot, "dot", gathered, f"w.{i}", shape=result, tf_op=BACKWARD),
                op(total, "all-reduce", dot, shape=result, extra=GROUPS),
                op(f"out.{i}", "exponential", total, shape=result),
            ]
            ran += [
                event(gathered, "all-gather", 300 * i, 100),
                event(dot, "convolution fusion", 300 * i + 100, 50, stack=f"model.py:{line}:1"),
                event(total, "all-reduce", 300 * i + 150, 100),
                event(f"out.{i}", "loop fusion", 300 * i + 250, 10),
            ]
        rows = [row for row in causes({"main": program}, ran) if row["cause"] == "resharding"]
        lines = {row["source_user"]: sorted(row["evidence"]["ops"]) for row in rows}
        self.assertEqual(
            lines,
            {
                "model.py:4": ["sum.0", "sum.1", "whole.0", "whole.1"],
                "model.py:6": ["sum.2", "whole.2"],
            },
        )
