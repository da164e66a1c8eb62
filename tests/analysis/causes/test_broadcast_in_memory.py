"""Test the cause `broadcast_in_memory`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes, rows_of
from tests.builders.hlo_proto import Op, Shape, array, op, packed, tuple_of
from tests.builders.xspace import op as event

# At this peak, memory moves 1000 bytes per picosecond.
HBM = ("--peak-hbm-gibps", str(10**15 / 2**30))
KERNEL = "tpu_custom_call"
FEW, MANY = array("f32", 2, 4, 100, 8), array("f32", 2, 4, 4, 100, 8)


def repeated(
    *between: Op,
    written: str = "many",
    few: Shape = FEW,
    many: Shape = MANY,
    dims: tuple[int, ...] = (0, 1, 3, 4),
    reader: str = "negate",
    result: str = "out",
    inside: tuple[Op, ...] = (),
    cause: str = "broadcast_in_memory",
) -> list[Json]:
    """Return the rows for a program that repeats an array of 25.6 kB four times in memory."""
    is_kernel = reader == "custom-call"
    target = KERNEL if is_kernel else None
    attributes = f', custom_call_target="{KERNEL}"' if is_kernel else ""
    program = {
        "fused": [
            op("given", "parameter", shape=few),
            op(
                "copies",
                "broadcast",
                "given",
                shape=many,
                line="model.py:3",
                extra=packed(14, dims),
            ),
            *inside,
        ],
        "main": [
            op("x", "parameter", shape=array("f32", 6400)),
            op("few", "negate", "x", shape=few),
            op("many", "fusion", "few", shape=many, line="model.py:4", calls=["fused"]),
            *between,
            op("out", reader, written, shape=array("f32", 16), line="model.py:5", target=target),
            op("results", "tuple", result, shape=tuple_of(many)),
        ],
    }
    ran = [
        event("few", "non-fusion elementwise", 0, 100),
        # The op writes 102.4 kB and reads 25.6 kB.
        event("many", "broadcast", 100, 150, bytes_accessed=128_000),
        event("out", reader, 250, 120, attributes=attributes, bytes_accessed=102_464),
        *(event(each.name, "loop fusion", 400 + 50 * i, 40) for i, each in enumerate(between)),
    ]
    rows = causes(program, ran, *HBM)
    return [row for row in rows if row["cause"] == cause]


class Repeated(unittest.TestCase):
    def test_repeated_array_in_memory_is_reported_at_the_line_that_repeats_it(self) -> None:
        (row,) = repeated()
        self.assertEqual((row["source_user"], row["confidence"]), ("model.py:3", "seen"))
        self.assertIn("repeats an array 4 times", row["says"])
        # The broadcast keeps a quarter of 150 ps, and its reader reads a quarter of the bytes.
        self.assertEqual(row["gain_ps"], 112 + 90)

    def test_repeated_array_that_is_reduced_has_one_cause(self) -> None:
        self.assertEqual(repeated(cause="large_intermediate"), [])

    def test_array_that_is_cast_and_moved_afterwards_is_reported(self) -> None:
        flat = array("bf16", 2, 16, 100, 8)
        between = (
            op("cast", "convert", "many", shape=array("bf16", *MANY.dims)),
            op("flat", "bitcast", "cast", shape=flat),
        )
        (row,) = repeated(*between, written="flat")
        self.assertEqual(row["evidence"]["n_ops"], 3)

    def test_rows_that_are_looked_up_are_not_reported(self) -> None:
        few, many = array("f32", 16, 400), array("f32", 64, 400)
        rows = op("rows", "constant", shape=array("s32", 64))
        looked_up = (rows, rows_of("given", "rows", many))
        self.assertEqual(repeated(few=few, many=many, dims=(), inside=looked_up), [])

    def test_input_of_a_kernel_is_reported(self) -> None:
        self.assertEqual(len(repeated(reader="custom-call")), 1)

    def test_numbers_that_fill_the_lanes_of_a_kernel_are_not_reported(self) -> None:
        few, many = array("f32", 4, 100), array("f32", 4, 100, 128)
        self.assertEqual(repeated(few=few, many=many, dims=(0, 1), reader="custom-call"), [])
        self.assertEqual(len(repeated(few=few, many=many, dims=(0, 1))), 1)

    def test_array_that_is_filled_with_a_number_is_not_reported(self) -> None:
        self.assertEqual(repeated(few=array("f32"), dims=()), [])

    def test_array_that_is_updated_later_is_not_reported(self) -> None:
        between = (
            op("part", "parameter", shape=array("f32", 1, 4, 4, 100, 8), number=1),
            op("place", "constant", shape=array("s32")),
            op("updated", "dynamic-update-slice", "many", "part", "place", shape=MANY),
        )
        self.assertEqual(repeated(*between, written="updated"), [])

    def test_result_of_the_program_is_not_reported(self) -> None:
        self.assertEqual(repeated(result="many"), [])

    def test_array_that_is_computed_of_copies_repeats_as_well(self) -> None:
        squares = op("squares", "multiply", "copies", "copies", shape=MANY)
        (row,) = repeated(inside=(squares,))
        # The op computes a quarter of its results.
        self.assertEqual(row["gain_ps"], 112 + 90)
        other = op("squares", "multiply", "copies", "other", shape=MANY)
        self.assertEqual(
            repeated(inside=(op("other", "parameter", shape=MANY, number=1), other)), []
        )

    def test_array_that_is_joined_of_several_is_not_reported(self) -> None:
        other = op("other", "negate", "given", shape=MANY)
        target = "ConcatBitcast"
        joined = op("joined", "custom-call", "copies", "other", shape=MANY, target=target)
        self.assertEqual(repeated(inside=(other, joined)), [])
