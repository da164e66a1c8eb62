"""Test the cause `sort_for_a_few`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes, take
from tests.builders.hlo_proto import Op, array, direction, op, packed, tuple_of
from tests.builders.xspace import bytes_field, op as event

# At this peak, memory moves 1 KiB in 1 ps, and the sorted values in 32 ps.
PEAK = ("--peak-hbm-gibps", str(2**10 * 10**12 / 2**30))
ROWS = (4, 2048)


def found(
    *readers: Op,
    dims: tuple[int, ...] = ROWS,
    name: str = "argsort",
    dim: int = 1,
    read: tuple[str, ...] = ("places",),
) -> list[Json]:
    """Return the causes if readers take parts of the sorted values or of their `places`."""
    main = [
        op("logits", "parameter", shape=array("f32", *dims)),
        op("index", "iota", shape=array("s32", *dims)),
        op(
            "sort.1",
            "sort",
            "logits",
            "index",
            shape=tuple_of(array("f32", *dims), array("s32", *dims)),
            line="sampling.py:3",
            tf_op=f"jit(f)/{name}",
        ),
        *(take(of, "sort.1", int(of == "places"), array("s32", *dims)) for of in read),
        *readers,
        op("results", "tuple", readers[-1].name),
    ]
    ran = [event("sort.1", "sort", 0, 400, attributes=f", dimensions={{{dim}}}")]
    ran += [event(each.name, "loop fusion", 400 + i, 1) for i, each in enumerate(readers)]
    return [row for row in causes({"main": main}, ran, *PEAK) if row["cause"] == "sort_for_a_few"]


def part(of: str, *dims: int, name: str = "best") -> Op:
    return op(name, "slice", of, shape=array("s32", *dims))


class SortForAFew(unittest.TestCase):
    def test_sort_of_which_five_elements_are_read_is_reported(self) -> None:
        (row,) = found(part("places", 4, 5))
        self.assertEqual((row["cause"], row["gain_ps"]), ("sort_for_a_few", 368))
        self.assertEqual((row["source_user"], row["confidence"]), ("sampling.py:3", "seen"))
        self.assertIn("sorts f32[4,2048], but the step reads only 5 of 2048", row["says"])
        self.assertIn("Use lax.top_k", row["what_helps"])

    def test_sort_of_top_k_can_be_approximate(self) -> None:
        (row,) = found(part("values", 4, 5), name="top_k", read=("values",))
        self.assertIn("Use lax.approx_max_k", row["what_helps"])

    def test_parts_are_found_through_moved_results(self) -> None:
        copied = op("copied", "copy", "places", shape=array("s32", *ROWS))
        (row,) = found(copied, part("copied", 4, 5))
        self.assertEqual(row["cause"], "sort_for_a_few")

    def test_elements_that_a_mask_of_their_places_keeps_are_a_part(self) -> None:
        number = bytes_field(8, bytes_field(4, b"\x40"))
        whole, mask = array("s32", *ROWS), array("pred", *ROWS)
        (row,) = found(
            op("64", "constant", shape=array("s32"), extra=number),
            op("limit", "broadcast", "64", shape=whole),
            op("place", "iota", shape=whole, extra=packed(14, [1])),
            op("first", "compare", "place", "limit", shape=mask, extra=direction("LT")),
            op("kept", "select", "first", "places", "limit", shape=whole),
        )
        self.assertIn("reads only 64 of 2048", row["says"])

    def test_sort_that_is_read_as_a_whole_is_not_reported(self) -> None:
        whole = op("sums", "reduce", "values", shape=array("f32", 4))
        self.assertEqual(found(part("places", 4, 5), whole, read=("places", "values")), [])

    def test_eighth_of_the_elements_is_few(self) -> None:
        self.assertEqual(len(found(part("places", 4, 256))), 1)
        self.assertEqual(found(part("places", 4, 257)), [])

    def test_short_rows_are_not_reported(self) -> None:
        self.assertEqual(len(found(part("places", 8, 5), dims=(8, 1024))), 1)
        self.assertEqual(found(part("places", 8, 5), dims=(8, 1023)), [])
        self.assertEqual(found(part("places", 1, 2048), dim=0), [])
