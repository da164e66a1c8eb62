"""Test the cause `repeated_rows`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import Op, Shape, array, op, packed
from tests.builders.xspace import bytes_field
from tests.builders.xspace import op as event

# At this peak, memory moves 1000 bytes per picosecond.
HBM = ("--peak-hbm-gibps", str(10**15 / 2**30))
TIME, WEIGHTS = array("f32", 2, 64), array("f32", 64, 32)
ROWS, RESULT = array("f32", 2, 400, 64), array("f32", 2, 400, 32)
OF_DOT = bytes_field(30, packed(1, [2]) + packed(2, [0]))
REPEATED = op("rows", "broadcast", "time", shape=ROWS, extra=packed(14, [0, 2]))


def dot(rows: str = "rows", shape: Shape = RESULT, extra: bytes = OF_DOT) -> Op:
    return op("dot", "dot", rows, "weights", shape=shape, line="model.py:14", extra=extra)


def found(*ops: Op, options: tuple[str, ...] = HBM) -> list[Json]:
    """Return the rows for a program with these ops, of which `dot` takes 1 ns."""
    inputs = [
        op("time", "parameter", shape=TIME),
        op("weights", "parameter", shape=WEIGHTS, number=1),
        op("tokens", "parameter", shape=ROWS, number=2),
    ]
    ran = [event("dot", "convolution fusion", 0, 1000)]
    rows = causes({"main": [*inputs, *ops]}, ran, *options)
    return [row for row in rows if row["cause"] == "repeated_rows"]


class RepeatedRows(unittest.TestCase):
    def test_rows_that_are_broadcast_before_a_matmul_are_found(self) -> None:
        (row,) = found(REPEATED, dot())
        self.assertEqual((row["source_user"], row["confidence"]), ("model.py:14", "seen"))
        self.assertIn("rows that are repeated 400 times", row["says"])
        # Two rows take as long as 128 of the 800, which is longer than
        # reading and writing what is left.
        self.assertEqual(row["gain_ps"], 1000 * (800 - 128) // 800)

    def test_functions_of_repeated_rows_repeat(self) -> None:
        twice = op("twice", "add", "rows", "rows", shape=ROWS)
        joined = op("joined", "reshape", "twice", shape=array("f32", 800, 64))
        of_two = bytes_field(30, packed(1, [1]) + packed(2, [0]))
        two = dot("joined", array("f32", 800, 32), of_two)
        (row,) = found(REPEATED, twice, joined, two)
        self.assertEqual(row["gain_ps"], 840)

    def test_few_rows_take_as_long_as_128(self) -> None:
        # The bytes take hardly any time at the peak of the chip that the tests assume.
        (row,) = found(REPEATED, dot(), options=())
        self.assertEqual(row["gain_ps"], 1000 * (800 - 128) // 800)

    def test_rows_that_differ_in_part_are_all_needed(self) -> None:
        self.assertEqual(found(dot("tokens")), [])
        mixed = op("mixed", "add", "rows", "tokens", shape=ROWS)
        self.assertEqual(found(REPEATED, mixed, dot("mixed")), [])
        mixed = op("mixed", "add", "tokens", "rows", shape=ROWS)
        self.assertEqual(found(REPEATED, mixed, dot("mixed")), [])

    def test_dimension_that_is_summed_or_shared_is_no_row(self) -> None:
        # The operand repeats along the dimension of 400, which the matmul sums.
        weights = op("columns", "parameter", shape=array("f32", 400, 32), number=3)
        summed = bytes_field(30, packed(1, [1]) + packed(2, [0]))
        by = op("dot", "dot", "rows", "columns", shape=array("f32", 2, 64, 32), extra=summed)
        self.assertEqual(found(REPEATED, weights, by), [])
        # Each of the 400 rows is multiplied with another matrix.
        weights = op("columns", "parameter", shape=array("f32", 400, 64, 32), number=3)
        of_each = packed(1, [2]) + packed(2, [1]) + packed(3, [1]) + packed(4, [0])
        by = op(
            "dot",
            "dot",
            "rows",
            "columns",
            shape=array("f32", 400, 2, 32),
            extra=bytes_field(30, of_each),
        )
        self.assertEqual(found(REPEATED, weights, by), [])

    def test_damaged_matmul_is_read(self) -> None:
        # Its dimensions do not exist, or they have no elements.
        for shape in (array("f32", 2), array("f32", 2, 400, 64, 0)):
            found(REPEATED, dot(shape=shape))
        empty = op(
            "rows", "broadcast", "time", shape=array("f32", 2, 0, 64), extra=packed(14, [0, 2])
        )
        self.assertEqual(found(empty, dot(shape=array("f32", 2, 0, 32))), [])

    def test_long_chain_of_ops_is_read(self) -> None:
        chain = [op(f"x{i}", "negate", f"x{i - 1}", shape=ROWS) for i in range(1, 2000)]
        first = op("x0", "broadcast", "time", shape=ROWS, extra=packed(14, [0, 2]))
        self.assertEqual(found(first, *reversed(chain), dot("x1999")), [])

    def test_few_copies_take_no_longer_than_one(self) -> None:
        few = array("f32", 2, 50, 64)
        rows = op("rows", "broadcast", "time", shape=few, extra=packed(14, [0, 2]))
        self.assertEqual(found(rows, dot(shape=array("f32", 2, 50, 32))), [])
