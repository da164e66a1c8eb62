"""Test the cause `aliased_copy`."""

from __future__ import annotations

import unittest
from dataclasses import replace

from tests.analysis.small_programs import FAST, Json, causes
from tests.builders.hlo_proto import Op, Shape, aliases, array, op, tuple_of
from tests.builders.xspace import op as event

CACHE = Shape("bf16", (512, 1024), minor_to_major=(1, 0))
IN_VMEM = replace(CACHE, memory_space=1)
ROW = array("bf16", 1, 1024)
# At this peak, the cache takes 100 ps at 80 % of the bandwidth.
SLOW = ("--peak-hbm-gibps", str(2**20 / 80e-12 / 2**30))


def found(
    *copies: Op, ran: dict[str, str], options: tuple[str, ...] = FAST, extra: bytes = b""
) -> list[Json]:
    """Return the causes of a step that writes a row into `old.1`, and reads the new contents."""
    shape = next(each for each in copies if each.name == "old.1").instruction.shape
    main = [
        op("cache", "parameter", shape=CACHE, tf_op="kv['k']"),
        op("row", "parameter", shape=ROW, number=1),
        op("at", "parameter", shape=array("s32"), number=2),
        *(each for each in copies if each.name != "new.1"),
        op("new", "dynamic-update-slice", "old.1", "row", "at", "at", shape=shape),
        op("score", "negate", "new", shape=array("f32", 8)),
        *(each for each in copies if each.name == "new.1"),
    ]
    last = "new.1" if any(each.name == "new.1" for each in copies) else "new"
    main.append(op("out", "tuple", "score", last, shape=tuple_of(array("f32", 8), CACHE)))
    events = [event(name, category, 200 * i, 200) for i, (name, category) in enumerate(ran.items())]
    return causes({"main": main}, events, *options, extra=extra)


COPY = op("old.1", "copy", "cache", shape=CACHE, line="cache.py:4")


class AliasedCopy(unittest.TestCase):
    def test_argument_that_is_not_donated_is_copied(self) -> None:
        (row,) = found(COPY, ran={"old.1": "data formatting"})
        self.assertEqual((row["cause"], row["gain_ps"]), ("aliased_copy", 200))
        self.assertEqual(row["source_user"], "cache.py:4")
        self.assertIn("copies 1 argument such as kv['k'] to update it", row["says"])
        self.assertIn("donate_argnums", row["what_helps"])

    def test_donated_argument_is_copied_because_old_contents_are_read(self) -> None:
        ran = {"old.1": "data formatting", "new": "data formatting"}
        (row,) = found(COPY, ran=ran, extra=aliases((0, ())))
        self.assertEqual((row["cause"], row["gain_ps"]), ("aliased_copy", 200))
        self.assertIn("Read the old contents before the update", row["what_helps"])

    def test_copy_to_another_layout_is_not_reported(self) -> None:
        turned = replace(CACHE, minor_to_major=(0, 1))
        copy = op("old.1", "copy", "cache", shape=turned, line="cache.py:4")
        rows = found(copy, ran={"old.1": "data formatting"}, extra=aliases((0, ())))
        self.assertEqual([row["cause"] for row in rows], ["parameter_relayout"])

    def test_copy_without_an_update_in_place_is_not_reported(self) -> None:
        main = [
            op("x", "parameter", shape=CACHE),
            op("y", "negate", "x", shape=CACHE),
            op("copy.1", "copy", "y", shape=CACHE, line="cache.py:4"),
            op("used", "negate", "copy.1", shape=CACHE),
        ]
        self.assertEqual(causes({"main": main}, [event("copy.1", "data formatting", 0, 200)]), [])

    def test_copy_of_a_computed_array_is_not_reported(self) -> None:
        """Test that no argument is blamed, although one has the shape of the result."""
        main = [
            op("x", "parameter", shape=CACHE),
            op("y", "negate", "x", shape=CACHE),
            op("copy.1", "copy", "y", shape=CACHE, line="cache.py:4"),
            op("out", "tuple", "y", "copy.1", shape=tuple_of(CACHE, CACHE)),
        ]
        ran = [event("y", "loop fusion", 0, 200), event("copy.1", "data formatting", 200, 200)]
        self.assertEqual(causes({"main": main}, ran), [])

    @staticmethod
    def by_way_of_vmem(*options: str, extra: bytes = b"") -> list[Json]:
        """Return the causes if the cache is updated in VMEM, read there, and written back."""
        pair = tuple_of(IN_VMEM, CACHE)
        copies = (
            op("fetch.1", "copy-start", "cache", shape=pair),
            op("old.1", "copy-done", "fetch.1", shape=IN_VMEM, line="cache.py:4"),
            op("new.1", "copy", "new", shape=CACHE, line="cache.py:4"),
        )
        ran = {"old.1": "copy-done", "score": "loop fusion", "new.1": "data formatting"}
        return found(*copies, ran=ran, options=options, extra=extra)

    def test_copies_by_way_of_vmem_are_found(self) -> None:
        (row,) = self.by_way_of_vmem(*SLOW)
        self.assertEqual((row["cause"], row["gain_ps"]), ("aliased_copy", 400))
        self.assertEqual(row["evidence"]["ops"], ["new.1", "old.1"])

    def test_donated_argument_in_vmem_is_not_reported(self) -> None:
        self.assertEqual(self.by_way_of_vmem(*SLOW, extra=aliases((0, ()))), [])
