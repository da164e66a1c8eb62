"""Test the cause `rewritten_buffer`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import FAST, Json, causes
from tests.builders.hlo_proto import Op, aliases, array, direction, op, tuple_of
from tests.builders.xspace import op as event

# A cache of 4 rows with 1024 places, of 4 MiB.
CACHE = array("bf16", 4, 1024, 512)
DONATED = aliases((0, ()))
SCALAR = op("index", "parameter", shape=array("s32"), number=2)


def masked(*body: Op, compare: str = "EQ", n_places: int = 1024) -> list[Op]:
    """Return a fusion that writes a buffer with a mask of the place that is equal to an index."""
    width = (512 << 10) // n_places
    places, shape = array("s32", n_places), array("bf16", 4, n_places, width)
    return [
        op("old", "parameter", shape=shape, number=0),
        op("x", "parameter", shape=array("bf16", 4, 512), number=1),
        op("i", "parameter", shape=array("s32"), number=2),
        op("new", "broadcast", "x", shape=shape),
        op("iota.1", "iota", shape=places),
        op("spread", "broadcast", "i", shape=places),
        op(
            "hot",
            "compare",
            "iota.1",
            "spread",
            shape=array("pred", n_places),
            extra=direction(compare),
        ),
        op("mask", "broadcast", "hot", shape=array("pred", 4, n_places, width)),
        *body,
    ]


def computed(opcode: str, *operands: str, name: str = "root") -> Op:
    return op(name, opcode, *operands, shape=CACHE)


def found(
    body: list[Op], *after: Op, index: Op = SCALAR, extra: bytes = DONATED, peak: str = FAST[1]
) -> list[Json]:
    """Return the rows for a fusion that writes a buffer, and for ops that run after it. All take
    100 ps."""
    shape = body[-1].instruction.shape
    main = [
        op("cache", "parameter", shape=body[0].instruction.shape, number=0),
        op("x.1", "parameter", shape=array("bf16", 4, 512), number=1),
        index,
        op(
            "write.1",
            "fusion",
            "cache",
            "x.1",
            "index",
            shape=shape,
            calls=["f"],
            line="cache.py:9",
        ),
        *after,
    ]
    names = ["write.1", *(later.name for later in after)]
    ran = [event(name, "loop fusion", 100 * i, 100) for i, name in enumerate(names)]
    rows = causes({"f": body, "main": main}, ran, FAST[0], peak, extra=extra)
    return [row for row in rows if row["cause"] == "rewritten_buffer"]


WRITE = computed("select", "mask", "new", "old")
# One, minus the mask, is a mask of the elements that stay.
FACTORS = [
    computed("convert", "mask", name="ones"),
    computed("multiply", "ones", "new", name="added"),
    op("one", "constant", shape=array("bf16")),
    computed("broadcast", "one", name="all"),
    computed("subtract", "all", "ones", name="rest"),
    computed("multiply", "rest", "old", name="kept"),
]


class RewrittenBuffer(unittest.TestCase):
    def test_position_that_is_written_with_a_mask_is_found(self) -> None:
        (row,) = found(masked(WRITE))
        self.assertEqual((row["source_user"], row["confidence"]), ("cache.py:9", "seen"))
        self.assertIn("1 op at cache.py:9 rewrite buffers such as bf16[4,1024,512]", row["says"])
        # One of 128 tiles is moved, and the new elements.
        self.assertEqual(row["gain_ps"], 99)

    def test_line_is_that_of_the_update_inside_the_op(self) -> None:
        write = op("root", "select", "mask", "new", "old", shape=CACHE, line="update.py:4")
        (row,) = found(masked(write))
        self.assertEqual(row["source_user"], "update.py:4")

    def test_mask_of_the_elements_that_stay_is_found(self) -> None:
        stays = masked(computed("select", "mask", "old", "new"), compare="NE")
        self.assertEqual(len(found(stays)), 1)

    def test_one_hot_sums_are_found(self) -> None:
        self.assertEqual(len(found(masked(*FACTORS, computed("add", "old", "added")))), 1)
        self.assertEqual(len(found(masked(*FACTORS, computed("add", "added", "kept")))), 1)

    def test_mask_that_leaves_one_position_changes_nearly_all(self) -> None:
        self.assertEqual(found(masked(computed("select", "mask", "old", "new"))), [])
        swapped = masked(computed("select", "mask", "new", "old"), compare="NE")
        self.assertEqual(found(swapped), [])

    def test_buffer_that_changes_everywhere_is_not_found(self) -> None:
        # An optimizer or a moving average changes all elements, and a causal mask selects many.
        self.assertEqual(found(masked(*FACTORS, computed("add", "old", "new"))), [])
        scaled = computed("multiply", "old", "new", name="scaled")
        self.assertEqual(found(masked(scaled, computed("select", "mask", "new", "scaled"))), [])
        self.assertEqual(found(masked(WRITE, compare="LT")), [])

    def test_copy_is_no_update(self) -> None:
        self.assertEqual(found(masked(computed("copy", "old"))), [])

    def test_short_dimension_is_cheap_to_rewrite(self) -> None:
        for n_places, n_found in ((16, 0), (32, 1)):
            shape = array("bf16", 4, n_places, (512 << 10) // n_places)
            body = masked(
                op("root", "select", "mask", "new", "old", shape=shape), n_places=n_places
            )
            self.assertEqual(len(found(body)), n_found)

    def test_diagonal_is_no_position(self) -> None:
        index = op("index", "iota", shape=array("s32", 1024))
        body = masked(WRITE)
        body[2].instruction.shape = array("s32", 1024)
        self.assertEqual(found(body, index=index), [])

    def test_gain_is_unknown_if_each_row_has_its_own_index(self) -> None:
        index = op("index", "parameter", shape=array("s32", 4), number=2)
        body = masked(WRITE)
        for name, shape in (
            ("i", array("s32", 4)),
            ("spread", array("s32", 4, 1024)),
            ("hot", array("pred", 4, 1024)),
        ):
            next(each for each in body if each.name == name).instruction.shape = shape
        (row,) = found(body, index=index)
        self.assertEqual((row["gain_ps"], row["unknown_ps"]), (None, 100))
        self.assertEqual(row["confidence"], "likely")

    def test_other_result_still_reads_the_buffer(self) -> None:
        results = tuple_of(CACHE, CACHE)
        other = computed("negate", "old", name="other")
        body = masked(WRITE, other, op("results", "tuple", "root", "other", shape=results))
        (row,) = found(body, peak=str(10**17 / 2**30))
        # One of three arrays is moved less.
        self.assertEqual(row["gain_ps"], 33)
        # The rest of the op takes longer than its bytes: 4 MiB take 5 ps at 80 % of the peak.
        (row,) = found(body, peak=str(10**18 / 2**30))
        self.assertEqual(row["gain_ps"], 5)

    def test_buffer_that_the_caller_keeps_is_a_likely_cause(self) -> None:
        (row,) = found(masked(WRITE), extra=b"")
        self.assertEqual(row["confidence"], "likely")

    def test_buffer_that_is_read_afterwards_cannot_be_updated_in_place(self) -> None:
        self.assertEqual(found(masked(WRITE), op("read.1", "negate", "cache", shape=CACHE)), [])
        self.assertEqual(
            len(found(masked(WRITE), op("read.1", "negate", "write.1", shape=CACHE))), 1
        )
