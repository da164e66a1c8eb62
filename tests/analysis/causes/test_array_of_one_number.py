"""Test the cause `array_of_one_number`."""

from __future__ import annotations

import unittest
from collections.abc import Sequence

from tests.analysis.small_programs import Json, causes, zeros
from tests.builders.hlo_proto import Op, array, listed_groups, op, tuple_of
from tests.builders.xspace import op as event

BUFFER, PART = array("bf16", 512, 1024), array("bf16", 256, 1024)
OF_ALL = listed_groups(range(4))


def found(*program: Op, numbers: Sequence[str] = ("filled.0",)) -> list[Json]:
    """Return the causes if a program makes zeros in 400 of 1000 ps."""
    zero, _ = zeros("filled", BUFFER)
    filled = op("filled", "broadcast", *numbers, shape=BUFFER, line="cache.py:3")
    main = [op("x", "parameter", shape=PART), zero, filled, *program]
    ran = {
        "filled": event("filled", "data formatting", 0, 400),
        "moved": event("moved", "ragged-all-to-all", 400, 300),
        "put": event("put", "dynamic-update-slice", 400, 20),
        "y": event("y", "loop fusion", 900, 20),
    }
    rows = causes({"main": main}, [ran[each.name] for each in main if each.name in ran])
    return [row for row in rows if row["cause"] == "array_of_one_number"]


class ArraysOfOneNumber(unittest.TestCase):
    def test_result_is_found(self) -> None:
        (row,) = found(op("out", "tuple", "x", "filled", shape=tuple_of(PART, BUFFER)))
        self.assertEqual(
            (row["source_user"], row["gain_ps"], row["confidence"]), ("cache.py:3", 400, "likely")
        )
        self.assertIn("1 array of one number that the step returns", row["says"])
        self.assertTrue(row["what_helps"].startswith("Make the array once"))

    def test_buffer_of_an_exchange_is_found(self) -> None:
        moved = op("moved", "ragged-all-to-all", "x", "filled", shape=BUFFER, extra=OF_ALL)
        (row,) = found(moved, op("y", "negate", "moved", shape=BUFFER))
        self.assertEqual(row["gain_ps"], 400)
        self.assertIn("that a ragged-all-to-all then writes over", row["says"])
        self.assertIn("jax.lax.empty", row["what_helps"])

    def test_array_whose_elements_are_needed_is_no_cause(self) -> None:
        # Elements that are not updated stay zero.
        put = op("put", "dynamic-update-slice", "filled", "x", "x", shape=BUFFER)
        self.assertEqual(found(put), [])
        self.assertEqual(found(op("y", "negate", "filled", shape=BUFFER)), [])
        both = op("out", "tuple", "y", "filled", shape=tuple_of(BUFFER, BUFFER))
        self.assertEqual(found(op("y", "negate", "filled", shape=BUFFER), both), [])

    def test_missing_number_is_no_cause(self) -> None:
        result = op("out", "tuple", "x", "filled", shape=tuple_of(PART, BUFFER))
        self.assertEqual(found(result, numbers=()), [])
