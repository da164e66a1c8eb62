"""Test the cause `flat_array`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import array, op
from tests.builders.xspace import op as event


class FlatArrays(unittest.TestCase):
    @staticmethod
    def found(*, cut: str = "slice", n: int = 1 << 20, reader: str = "multiply") -> list[Json]:
        """Return the causes if two arrays are concatenated, scaled by the op `reader` and split
        again."""
        part, flat = array("f32", 8, n // 16), array("f32", n)
        program = [
            op("x", "parameter", shape=part),
            op("y", "parameter", shape=part, number=1),
            op("joined", "concatenate", "x", "y", shape=flat, line="train.py:6"),
            op("scaled", reader, "joined", "joined", shape=flat, line="train.py:7"),
            op("first", cut, "scaled", shape=part, line="train.py:8"),
        ]
        ran = [
            event("joined", "data formatting", 0, 100),
            event("scaled", "loop fusion", 100, 50),
            event("first", "data formatting", 200, 30),
        ]
        return [row for row in causes({"main": program}, ran) if "flat array" in row["says"]]

    def test_ops_that_concatenate_and_split_a_flat_array_share_a_row(self) -> None:
        (row,) = self.found()
        self.assertEqual((row["cause"], row["confidence"]), ("flat_array", "likely"))
        self.assertEqual((row["gain_ps"], row["source_user"]), (180, "train.py:6"))
        self.assertEqual(row["evidence"]["shape"], "f32[1048576]")

    def test_gain_excludes_a_dot_that_reads_the_flat_array(self) -> None:
        (row,) = self.found(reader="dot")
        self.assertEqual(row["gain_ps"], 130)

    def test_flat_array_that_is_not_split_is_not_reported(self) -> None:
        self.assertEqual(self.found(cut="negate"), [])

    def test_small_array_is_not_reported(self) -> None:
        self.assertEqual(self.found(n=1 << 10), [])
