"""Test the cause `resharding`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.copies import GROUPS, ROWS, found
from tests.builders.hlo_proto import op
from tests.builders.xspace import op as event


class Resharding(unittest.TestCase):
    def test_all_to_all_of_a_lookup_is_not_reported(self) -> None:
        def found(before: str) -> list[Json]:
            """Return the causes of an all-to-all of the masked result of an op."""
            path = "jit(f)/embed/gather"
            program = [
                op("x", "parameter", shape=ROWS),
                op("rows", before, "x", shape=ROWS, tf_op=path),
                op("own", "multiply", "rows", "x", shape=ROWS, tf_op=path),
                op("moved", "all-to-all", "own", shape=ROWS, tf_op=path, extra=GROUPS),
                op("out", "negate", "moved", shape=ROWS),
            ]
            rows = causes({"main": program}, [event("moved", "all-to-all", 0, 50, tf_op=path)])
            return [row for row in rows if row["cause"] == "resharding"]

        self.assertEqual(found("gather"), [])
        self.assertEqual(len(found("negate")), 1)

    def test_gain_of_an_inserted_all_to_all_includes_adjacent_copies(self) -> None:
        first, second = found("dot_general")
        self.assertEqual((first["cause"], first["gain_ps"]), ("resharding", 170))
        self.assertEqual((first["source_user"], first["confidence"]), ("model.py:4", "likely"))
        self.assertEqual(first["evidence"]["ops"], ["copy.1", "all-to-all.1", "copy.2"])
        self.assertEqual(first["scope"], "layer")
        # The copy after the user's op is not adjacent to the collective.
        self.assertEqual((second["cause"], second["gain_ps"]), ("layout_change", 30))

    def test_all_to_all_in_user_code_is_not_reported(self) -> None:
        for primitive in ("all_to_all", "ragged_all_to_all"):
            with self.subTest(primitive=primitive):
                self.assertEqual({row["cause"] for row in found(primitive)}, {"layout_change"})

    def test_all_to_all_of_a_sharding_constraint_is_certain(self) -> None:
        first = found("sharding_constraint")[0]
        self.assertEqual((first["cause"], first["confidence"]), ("resharding", "seen"))
        self.assertIn("model.py:4, whose sharding constraint requires this.", first["says"])


class InTheOptimizer(unittest.TestCase):
    @staticmethod
    def found(path: str) -> list[Json]:
        """Return the `resharding` causes of an all-to-all and a permute at the same source line."""
        program = [
            op("x", "parameter", shape=ROWS),
            op("all-to-all.1", "all-to-all", "x", shape=ROWS, line="adam.py:3", extra=GROUPS),
            op("permute.1", "collective-permute", "x", shape=ROWS, line="adam.py:3"),
            op("out", "add", "all-to-all.1", "permute.1", shape=ROWS, line="adam.py:3"),
        ]
        ran = [
            event("all-to-all.1", "all-to-all", 0, 50, tf_op=path),
            event("permute.1", "collective-permute", 50, 100, tf_op=path),
        ]
        rows = causes({"main": program}, ran)
        return [row for row in rows if row["cause"] == "resharding"]

    def test_permutes_are_not_reported(self) -> None:
        for path in ("jit(f)/optimizer/mul:", "jit(f)/jvp(layer)/mul:"):
            with self.subTest(path=path):
                self.assertEqual([row["gain_ps"] for row in self.found(path)], [50])
