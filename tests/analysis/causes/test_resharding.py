"""Test the cause `resharding`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import Op, Shape, listed_groups, op
from tests.builders.xspace import op as event

ROWS, COLUMNS = (Shape("f32", (8, 128), minor_to_major=order) for order in ((1, 0), (0, 1)))
GROUPS = listed_groups((0, 1, 2, 3))


def main(primitive: str, *, before: Shape = COLUMNS) -> list[Op]:
    """Return a chain of instructions: copy, all-to-all, copy, an op in the user's code, copy.

    The copies read and write computed values, because copies of parameters and results are another
    cause.
    """
    path = f"jit(f)/layer/{primitive}"
    return [
        op("given", "parameter", shape=before),
        op("x", "negate", "given", shape=before),
        op("copy.1", "copy", "x", shape=ROWS, line="model.py:3"),
        op("bitcast.1", "bitcast", "copy.1", shape=ROWS),
        op(
            "all-to-all.1",
            "all-to-all",
            "bitcast.1",
            shape=ROWS,
            line="model.py:4",
            tf_op=path,
            extra=GROUPS,
        ),
        op("copy.2", "copy", "all-to-all.1", shape=COLUMNS, line="model.py:4"),
        op("out", "negate", "copy.2", shape=COLUMNS, line="model.py:5"),
        op("copy.3", "copy", "out", shape=ROWS, line="model.py:5"),
        op("used", "negate", "copy.3", shape=ROWS),
    ]


def found(primitive: str) -> list[Json]:
    """Return the causes if the all-to-all takes 50 ps and the copies take 100, 20 and 30 ps."""
    path = f"jit(f)/layer/{primitive}:"
    ran = [
        event("copy.1", "data formatting", 0, 100),
        event("all-to-all.1", "all-to-all", 100, 50, tf_op=path),
        event("copy.2", "data formatting", 150, 20),
        event("out", "non-fusion elementwise", 200, 50),
        event("copy.3", "data formatting", 250, 30),
    ]
    return causes({"main": main(primitive)}, ran)


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

    def test_permute_and_all_to_all_at_the_line_of_an_elementwise_op_share_a_row(self) -> None:
        (row,) = self.found("jit(f)/optimizer/mul:")
        self.assertEqual((row["gain_ps"], row["source_user"]), (150, "adam.py:3"))
        self.assertNotIn("collective", row["evidence"])
        self.assertIn("optimizer state", row["what_helps"])

    def test_permutes_in_user_code_are_not_reported(self) -> None:
        for path in ("jit(f)/optimizer/ppermute:", "jit(f)/jvp(layer)/mul:"):
            with self.subTest(path=path):
                self.assertEqual([row["gain_ps"] for row in self.found(path)], [50])
