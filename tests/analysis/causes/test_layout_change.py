"""Test the cause `layout_change`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.copies import COLUMNS, ROWS, found, main
from tests.builders.hlo_proto import op
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
        self.assertEqual({row["confidence"] for row in rows}, {"likely"})
        self.assertIn("1 copy at model.py:3 only change", rows[0]["says"])

    def test_many_short_copies_count_unless_each_is_below_a_50th_of_the_least_gain(self) -> None:
        # The step takes 1 000 000, so the least gain is 5000.
        names = [f"copy.{i}" for i in range(60)]
        for dur, gains in ((100, [6000]), (99, [])):
            program = [
                op("x", "parameter", shape=ROWS),
                op("y", "negate", "x", shape=ROWS),
                *(op(name, "copy", "y", shape=COLUMNS, line="model.py:3") for name in names),
                op("used", "tuple", *names),
            ]
            ran = [event(name, "data formatting", dur * i, dur) for i, name in enumerate(names)]
            rows = causes({"main": program}, ran, duration=1_000_000)
            with self.subTest(dur):
                self.assertEqual([row["gain_ps"] for row in rows], gains)

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
                op("y", "negate", "x", shape=ROWS),
                op("f", "fusion", "y", shape=COLUMNS, line="model.py:3", calls=["fused"]),
                op("used", "negate", "f", shape=COLUMNS),
            ],
        }
        return causes(program, [event("f", "loop fusion", 0, 100)])

    def test_fusion_that_only_moves_data_counts_as_a_copy(self) -> None:
        (row,) = self.of_fusion("bitcast", "transpose")
        self.assertEqual((row["cause"], row["gain_ps"]), ("layout_change", 100))

    def test_fusion_that_computes_does_not_count_as_a_copy(self) -> None:
        self.assertEqual(self.of_fusion("transpose", "negate"), [])

    def test_reshape_that_takes_time_counts_as_a_copy(self) -> None:
        program = [
            op("x", "parameter"),
            op("y", "negate", "x"),
            op("r", "reshape", "y", line="model.py:3"),
            op("used", "negate", "r"),
        ]
        (row,) = causes({"main": program}, [event("r", "data formatting", 0, 100)])
        self.assertEqual((row["cause"], row["gain_ps"]), ("layout_change", 100))
