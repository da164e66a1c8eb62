"""Test the cause `resharding`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.copies import GROUPS, ROWS, found
from tests.builders.hlo_proto import array, op
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


class Cut(unittest.TestCase):
    """An array is cut along the dimension that devices divide."""

    WHOLE, PIECE = array("f32", 8, 384), array("f32", 8, 32)

    def found(self, *pieces: tuple[str, str], primitive: str = "dot_general") -> list[Json]:
        """Return the `resharding` causes of a gather that ops read, each with an index."""
        program = [
            op("x", "parameter", shape=array("f32", 8, 96)),
            op("zero", "parameter", shape=array("s32"), number=1),
            op("device", "partition-id", shape=array("u32")),
            op("own", "multiply", "device", "device", shape=array("s32")),
            op("all-gather.1", "all-gather", "x", shape=self.WHOLE, line="m.py:4", extra=GROUPS),
            op("copy.1", "copy", "all-gather.1", shape=self.WHOLE, line="m.py:4"),
            *(
                op(f"part.{i}", opcode, "copy.1", "zero", index, shape=self.PIECE, line="m.py:5")
                for i, (opcode, index) in enumerate(pieces)
            ),
        ]
        path = f"jit(f)/{primitive}:"
        ran = [
            event("all-gather.1", "all-gather", 0, 100, tf_op=path),
            event("copy.1", "copy", 100, 20),
        ]
        rows = causes({"main": program}, ran)
        return [row for row in rows if row["cause"] == "resharding"]

    def test_gathered_array_of_which_each_device_cuts_several_pieces_is_found(self) -> None:
        own, same = ("dynamic-slice", "own"), ("dynamic-slice", "zero")
        (row,) = self.found(own, own)
        self.assertEqual((row["gain_ps"], row["confidence"]), (120, "seen"))
        self.assertIn("because an array is cut along a dimension that devices", row["says"])
        self.assertTrue(row["what_helps"].startswith("Make the parts separately"))
        # Another cause finds a single piece; all devices need what is equal, or the whole array.
        for pieces in ((own,), (own, same), (own, ("add", "own"))):
            self.assertEqual(self.found(*pieces), [])
        self.assertEqual(self.found(own, own, primitive="add"), [])

    def test_gather_that_a_constraint_requires_is_not_reported(self) -> None:
        self.assertEqual(self.found(("negate", "own"), primitive="sharding_constraint"), [])

    def test_permute_of_a_slice_is_found(self) -> None:
        for primitive, n in (("slice", 1), ("sharding_constraint", 1), ("mul", 0)):
            program = [
                op("x", "parameter", shape=ROWS),
                op("permute.1", "collective-permute", "x", shape=ROWS, line="m.py:3"),
            ]
            ran = [event("permute.1", "collective-permute", 0, 50, tf_op=f"jit(f)/{primitive}:")]
            rows = causes({"main": program}, ran)
            self.assertEqual(sum(row["cause"] == "resharding" for row in rows), n)
