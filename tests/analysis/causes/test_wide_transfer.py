"""Test the cause `wide_transfer`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import Op, array, listed_groups, op, packed
from tests.builders.xspace import op as event

FOUR = listed_groups((0, 1, 2, 3))
WIDE, NARROW = array("f32", 1024, 512), array("bf16", 1024, 512)


def found(*ops: Op, collective: str = "all-reduce", given: str = "wide") -> list[Json]:
    """Return the rows for a program with a collective that takes 200 ps."""
    program = [
        op("half", "parameter", shape=NARROW),
        op("whole", "parameter", shape=WIDE, number=1),
        op("wide", "convert", "half", shape=WIDE),
        op("moved", collective, given, shape=WIDE, line="fsdp.py:9", extra=FOUR),
        *ops,
    ]
    ran = [event("moved", collective, 100, 200)]
    return [row for row in causes({"main": program}, ran) if row["cause"] == "wide_transfer"]


class WideTransfer(unittest.TestCase):
    def test_sum_of_widened_numbers_is_found(self) -> None:
        (row,) = found()
        self.assertEqual((row["source_user"], row["confidence"]), ("fsdp.py:9", "likely"))
        self.assertEqual(row["gain_ps"], 100)

    def test_layout_change_between_cast_and_collective_is_passed(self) -> None:
        turned = op("turned", "copy", "wide", shape=WIDE)
        moved = op("again", "all-reduce", "turned", shape=WIDE, line="fsdp.py:9", extra=FOUR)
        program = [
            op("half", "parameter", shape=NARROW),
            op("wide", "convert", "half", shape=WIDE),
            turned,
            moved,
        ]
        rows = causes({"main": program}, [event("again", "all-reduce", 0, 200)])
        self.assertEqual([row["cause"] for row in rows], ["wide_transfer"])

    def test_parts_of_widened_numbers_are_followed_to_the_cast(self) -> None:
        halves = [
            op("half", "parameter", shape=NARROW),
            op("wide", "convert", "half", shape=WIDE),
            op("part", "slice", "wide", shape=WIDE),
            op("joined", "concatenate", "part", "part", shape=WIDE),
            op("again", "all-reduce", "joined", shape=WIDE, extra=FOUR),
        ]
        rows = causes({"main": halves}, [event("again", "all-reduce", 0, 200)])
        self.assertEqual([row["gain_ps"] for row in rows], [100])

    def test_numbers_that_are_scaled_after_a_cast_can_be_gathered_first(self) -> None:
        def rows(scale: str, collective: str) -> list[Json]:
            small, whole = array("s8", 256, 512), array("bf16", 256, 512)
            program = [
                op("small", "parameter", shape=small),
                op("scales", "parameter", shape=array("bf16", 256), number=1),
                op("other", "parameter", shape=whole, number=2),
                op("wide", "convert", "small", shape=whole),
                op("many", "broadcast", "scales", shape=whole, extra=packed(14, [0])),
                op("product", "multiply", "wide", scale, shape=whole),
                op("moved", collective, "product", shape=whole, extra=FOUR),
            ]
            found = causes({"main": program}, [event("moved", collective, 0, 512)])
            return [row for row in found if row["cause"] == "wide_transfer"]

        (row,) = rows("many", "all-to-all")
        self.assertEqual((row["cause"], row["gain_ps"]), ("wide_transfer", 255))
        self.assertEqual(rows("other", "all-to-all"), [])
        # Devices add up numbers with different scales, or more than eight bits can hold.
        self.assertEqual(rows("many", "all-reduce"), [])
        self.assertEqual(rows("wide", "all-reduce"), [])

    def test_sum_of_one_array_that_was_always_wide_is_not_found(self) -> None:
        joined = op("both", "concatenate", "wide", "whole", shape=WIDE)
        again = op("again", "all-reduce", "both", shape=WIDE, extra=FOUR)
        program = [
            op("half", "parameter", shape=NARROW),
            op("whole", "parameter", shape=WIDE, number=1),
            op("wide", "convert", "half", shape=WIDE),
            joined,
            again,
        ]
        self.assertEqual(causes({"main": program}, [event("again", "all-reduce", 0, 200)]), [])

    def test_gathered_array_that_is_narrowed_afterwards_is_found(self) -> None:
        narrow = op("narrow", "convert", "moved", shape=NARROW)
        (row,) = found(narrow, collective="all-gather", given="whole")
        self.assertEqual(row["gain_ps"], 100)
        # Another op reads the wide result.
        other = op("other", "negate", "moved", shape=WIDE)
        self.assertEqual(found(narrow, other, collective="all-gather", given="whole"), [])

    def test_numbers_that_are_computed_in_f32_are_not_found(self) -> None:
        self.assertEqual(found(given="whole"), [])
        self.assertEqual(
            found(op("out", "negate", "moved", shape=WIDE), collective="all-gather", given="whole"),
            [],
        )
