"""Test the cause `resharding` for gathered arrays of which each device needs only a part."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import array, listed_groups, op
from tests.builders.xspace import op as event

FOUR, TWO = listed_groups((0, 1, 2, 3)), listed_groups((0, 1), (2, 3))


def cut(
    collective: str, *more_users: str, reader: str = "dynamic-slice", index: str = "partition-id"
) -> list[Json]:
    """Return the causes if each device slices a part out of the collective's output."""
    part, whole = array("f32", 256, 512), array("f32", 1024, 512)
    program = [
        op("x", "parameter", shape=part),
        op("index", index, shape=array("s32"), number=1),
        op("whole", collective, "x", shape=whole, line="model.py:3", extra=FOUR),
        op("narrow", "convert", "whole", shape=whole),
        op("part", reader, "narrow", "index", shape=part),
        *(op(f"user.{i}", user, "whole", shape=whole) for i, user in enumerate(more_users)),
    ]
    ran = [event("whole", collective, 100, 200), event("part", "loop fusion", 300, 10)]
    return [row for row in causes({"main": program}, ran) if row["cause"] == "resharding"]


def spread(groups: bytes = FOUR, mover: str = "copy", reader: str | None = "dot") -> list[Json]:
    """Return the causes if an op (opcode `mover`) reorders a gathered array, which `reader` reads.

    If `reader` is None, the program returns the array instead.
    """
    whole = array("f32", 1024, 512)
    program = [
        op("w", "parameter", shape=array("f32", 256, 512)),
        op("x", "parameter", shape=array("f32", 512, 512), number=1),
        op("whole", "all-gather", "w", shape=whole, line="model.py:3", extra=groups),
        op("ordered", mover, "whole", shape=whole, line="model.py:3"),
        op("out", reader or "tuple", "ordered", *["x"] * bool(reader), shape=whole),
    ]
    ran = [
        event("whole", "all-gather", 100, 200),
        event("ordered", "copy" if mover == "copy" else "data formatting", 300, 50),
        event("out", "convolution fusion", 400, 10),
    ]
    rows = causes({"main": program}, ran[:1] + ran[2:] if mover == "bitcast" else ran)
    return [row for row in rows if row["cause"] == "resharding"]


class Cut(unittest.TestCase):
    def test_gathered_array_is_reported_if_each_device_uses_only_a_part(self) -> None:
        (row,) = cut("all-gather")
        # An all-to-all among four devices would move a quarter of the all-gather's bytes.
        self.assertEqual((row["gain_ps"], row["confidence"]), (150, "likely"))
        self.assertEqual(row["source_user"], "model.py:3")
        self.assertIn("each device then keeps only a part", row["says"])

    def test_slice_that_does_not_depend_on_the_device_is_not_reported(self) -> None:
        self.assertEqual(cut("all-gather", index="parameter"), [])

    def test_sliced_result_of_an_all_reduce_is_not_reported(self) -> None:
        # Here, the compiler should have replaced the all-reduce and the slice with a
        # reduce-scatter.
        self.assertEqual(cut("all-reduce"), [])

    def test_array_that_is_used_whole_is_not_reported(self) -> None:
        self.assertEqual(cut("all-gather", reader="add"), [])
        self.assertEqual(cut("all-gather", "negate"), [])


class Spread(unittest.TestCase):
    def test_gathered_operand_is_reported_if_a_copy_reorders_it(self) -> None:
        (row,) = spread()
        # Half of the gather's 200 ps remain, and the copy's 50 ps are saved.
        self.assertEqual((row["gain_ps"], row["confidence"]), (150, "likely"))
        self.assertEqual(row["source_user"], "model.py:3")
        self.assertEqual(sorted(row["evidence"]["ops"]), ["ordered", "whole"])
        self.assertIn(
            "At model.py:3, operands of matmuls are split along two dimensions", row["says"]
        )

    def test_gathered_operand_without_a_copy_is_not_reported(self) -> None:
        self.assertEqual(spread(mover="bitcast"), [])

    def test_operand_of_an_op_other_than_a_matmul_is_not_reported(self) -> None:
        self.assertEqual(spread(reader="add"), [])

    def test_array_gathered_from_two_devices_is_not_reported(self) -> None:
        self.assertEqual(spread(groups=TWO), [])

    def test_output_that_no_op_reads_is_not_reported(self) -> None:
        self.assertEqual(spread(reader=None), [])
