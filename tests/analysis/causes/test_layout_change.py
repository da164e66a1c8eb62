"""Test the cause `layout_change`."""

from __future__ import annotations

import unittest

from tests.analysis.causes.test_resharding import COLUMNS, ROWS, found, main
from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import array, op
from tests.builders.xspace import op as event


class LayoutChanges(unittest.TestCase):
    def test_copies_are_summed_by_line(self) -> None:
        rows = found("all_to_all")
        by_line = {row["source_user"]: (row["gain_ps"], row["evidence"]["ops"]) for row in rows}
        self.assertEqual(
            by_line,
            {
                "model.py:3": (100, ["copy.1"]),
                "model.py:4": (20, ["copy.2"]),
                "model.py:5": (30, ["copy.3"]),
            },
        )
        self.assertEqual({row["confidence"] for row in rows}, {"seen"})
        self.assertIn("1 copy at model.py:3 only change", rows[0]["says"])

    def test_copy_to_the_same_layout_is_not_reported(self) -> None:
        ran = [event("copy.1", "data formatting", 0, 100)]
        self.assertEqual(causes({"main": main("x", before=ROWS)}, ran), [])

    @staticmethod
    def of_fusion(*opcodes: str) -> list[Json]:
        """Return the causes if a fusion contains a chain of ops."""
        chain = zip(opcodes, ("p", *opcodes), strict=False)
        inside = [
            op("p", "parameter", shape=ROWS),
            *(op(opcode, opcode, source, shape=COLUMNS) for opcode, source in chain),
        ]
        program = {
            "fused": inside,
            "main": [
                op("x", "parameter", shape=ROWS),
                op("f", "fusion", "x", shape=COLUMNS, line="model.py:3", calls=["fused"]),
            ],
        }
        return causes(program, [event("f", "loop fusion", 0, 100)])

    def test_fusion_that_only_moves_data_counts_as_a_copy(self) -> None:
        (row,) = self.of_fusion("bitcast", "transpose")
        self.assertEqual((row["cause"], row["gain_ps"]), ("layout_change", 100))

    def test_fusion_that_computes_does_not_count_as_a_copy(self) -> None:
        self.assertEqual(self.of_fusion("transpose", "negate"), [])

    def test_reshape_that_takes_time_counts_as_a_copy(self) -> None:
        program = [op("x", "parameter"), op("r", "reshape", "x", line="model.py:3")]
        (row,) = causes({"main": program}, [event("r", "data formatting", 0, 100)])
        self.assertEqual((row["cause"], row["gain_ps"]), ("layout_change", 100))


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
        self.assertEqual((row["cause"], row["confidence"]), ("layout_change", "likely"))
        self.assertEqual((row["gain_ps"], row["source_user"]), (180, "train.py:6"))
        self.assertEqual(row["evidence"]["shape"], "f32[1048576]")

    def test_gain_excludes_a_dot_that_reads_the_flat_array(self) -> None:
        (row,) = self.found(reader="dot")
        self.assertEqual(row["gain_ps"], 130)

    def test_flat_array_that_is_not_split_is_not_reported(self) -> None:
        self.assertEqual(self.found(cut="negate"), [])

    def test_small_array_is_not_reported(self) -> None:
        self.assertEqual(self.found(n=1 << 10), [])


class Pairs(unittest.TestCase):
    def test_ops_on_arrays_with_a_last_dimension_of_two_are_reported(self) -> None:
        for last, n in ((2, 1), (4, 0)):
            with self.subTest(last=last):
                pairs = array("bf16", 64, 8192 // last, last)
                main = [
                    op("x", "parameter", shape=array("bf16", 64, 8192)),
                    op("pairs.1", "pad", "x", shape=pairs, line="rope.py:3"),
                ]
                ran = [event("pairs.1", "loop fusion", 0, 400)]
                peak = ("--peak-hbm-gibps", str(10**12 / 2**30 * 2**20 / 50))
                rows = causes({"main": main}, ran, *peak)
                # At the test's HBM peak, 1 MiB takes 50 ps.
                lines = [(row["source_user"], row["gain_ps"], row["cause"]) for row in rows]
                self.assertEqual(lines, [("rope.py:3", 300, "layout_change")] * n)

    def test_ops_that_compute_or_write_much_more_than_the_pairs_are_not_reported(self) -> None:
        small, twice, larger = (array("bf16", 64, n, 128) for n in (64, 128, 192))
        for opcode, category, result, n in (
            ("pad", "loop fusion", small, 1),
            ("pad", "loop fusion", twice, 1),
            ("pad", "loop fusion", larger, 0),
            ("dot", "convolution fusion", small, 0),
        ):
            with self.subTest(opcode=opcode, result=result):
                main = [
                    op("pairs.1", "parameter", shape=array("bf16", 64, 4096, 2)),
                    op("out.1", opcode, "pairs.1", "pairs.1", shape=result, line="rope.py:3"),
                ]
                rows = causes({"main": main}, [event("out.1", category, 0, 400)])
                self.assertEqual([row["cause"] for row in rows], ["layout_change"] * n)
