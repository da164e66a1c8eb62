"""Test the cause `not_donated`."""

from __future__ import annotations

import unittest
from typing import Any

from tests.analysis.small_programs import DURATION, Json, bottleneck
from tests.builders.hlo_proto import aliases, array, donors, op, tuple_of
from tests.builders.xspace import op as event

BIG = array("f32", 500, 125)


class NotDonated(unittest.TestCase):
    @staticmethod
    def found(extra: bytes = b"", output: Any = BIG) -> list[Json]:
        main = [
            op("state", "parameter", shape=BIG, tf_op="w['big']"),
            op("new", "negate", "state", shape=output),
            op("out", "tuple", "new", shape=tuple_of(output)),
        ]
        ran = [event("new", "loop fusion", 0, DURATION)]
        rows: list[Json] = bottleneck({"main": main}, ran, extra=extra)["causes"]
        return rows

    def test_argument_with_the_same_shape_as_an_output_is_reported(self) -> None:
        (row,) = self.found()
        self.assertEqual((row["cause"], row["gain_bytes"]), ("not_donated", 250000))
        self.assertEqual((row["gain_ps"], row["source_user"]), (None, None))
        self.assertEqual(row["confidence"], "likely")
        self.assertIn("1 argument (w['big'])", row["says"])
        self.assertIn("244.1 KiB", row["says"])

    def test_donated_arguments_are_not_reported(self) -> None:
        self.assertEqual(self.found(aliases((0, ()))), [])
        self.assertEqual(self.found(donors((0, ()))), [])

    def test_argument_without_matching_output_shape_is_not_reported(self) -> None:
        self.assertEqual(self.found(output=array("f32", 125, 500)), [])
