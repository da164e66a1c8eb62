"""Test the cause `rewritten_buffer`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import FAST, Json, causes
from tests.builders.hlo_proto import Op, aliases, array, direction, op, tuple_of
from tests.builders.xspace import bytes_field, int_field, op as event

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


STATE, PADDED = array("f32", 256, 1024), array("f32", 258, 1024)


def padded(
    *more: Op,
    low: int = 1,
    start: int = 1,
    stride: int = 1,
    interior: int = 0,
    n: int = 256,
    updated: bool = True,
    extra: bytes = DONATED,
) -> list[Json]:
    """Return the rows for a state that gets a row at each end, of which an update changes a row,
    and which is cut again. The copies take 100 ps each."""
    edges = bytes_field(1, int_field(1, low) + int_field(3, interior)) + bytes_field(1, b"")
    cut = bytes_field(17, int_field(1, start) + int_field(3, stride))
    cut += bytes_field(17, int_field(3, 1))
    back, state, wide = (array("f32", rows, 1024) for rows in (n, 256, 258))
    main = [
        op("state", "parameter", shape=state),
        op("rows", "parameter", shape=array("f32", 2, 1024), number=1),
        op("at", "parameter", shape=array("s32"), number=2),
        op("zero", "constant", shape=array("f32")),
        op("wide", "pad", "state", "zero", shape=wide, extra=bytes_field(21, edges), line="a:1"),
        op("new", "scatter", "wide", "at", "rows", shape=wide),
        op("newer", "dynamic-update-slice", "new", "rows", "at", "at", shape=wide),
        op("back", "slice", "newer" if updated else "wide", shape=back, extra=cut, line="a:3"),
        *more,
    ]
    return rewritten([e for e in main if updated or not e.name.startswith("new")], extra)


def rewritten(main: list[Op], extra: bytes) -> list[Json]:
    """Return the rows for a program of which each op takes 100 ps."""
    names = [each.name for each in main if each.instruction.opcode not in ("parameter", "constant")]
    ran = [event(name, "data formatting", 100 * i, 100) for i, name in enumerate(names)]
    rows = causes({"main": main}, ran, *FAST, extra=extra)
    return [row for row in rows if row["cause"] == "rewritten_buffer"]


def split(
    *more: Op, start: int = 128, old: str = "second", updated: str = "new", extra: bytes = DONATED
) -> list[Json]:
    """Return the rows for a state that is cut in two parts, of which one gets a new row."""
    half = array("f32", 128, 1024)
    cuts = [
        bytes_field(17, int_field(1, begin) + int_field(2, begin + 128) + int_field(3, 1))
        + bytes_field(17, int_field(2, 1024) + int_field(3, 1))
        for begin in (0, start)
    ]
    main = [
        op("state", "parameter", shape=STATE),
        op("row", "parameter", shape=array("f32", 1, 1024), number=1),
        op("at", "parameter", shape=array("s32"), number=2),
        op("first", "slice", "state", shape=half, extra=cuts[0]),
        op("second", "slice", "state", shape=half, extra=cuts[1]),
        op("new", "dynamic-update-slice", old, "row", "at", "at", shape=half),
        op("back", "concatenate", "first", updated, shape=STATE, line="a:3"),
        *more,
    ]
    return rewritten(main, extra)


class PaddedAndCut(unittest.TestCase):
    def test_copies_to_and_from_a_padded_shape_undo_each_other(self) -> None:
        (row,) = padded()
        self.assertEqual((row["gain_ps"], row["confidence"]), (200, "seen"))
        self.assertEqual((row["source_user"], row["evidence"]["shape"]), ("a:1", "f32[256,1024]"))
        self.assertIn('mode="drop"', row["what_helps"])

    def test_slice_of_other_elements_is_needed(self) -> None:
        self.assertEqual(padded(low=0), [])
        self.assertEqual(padded(start=0), [])
        self.assertEqual(padded(stride=2), [])
        self.assertEqual(padded(n=255), [])
        self.assertEqual(padded(interior=1), [])

    def test_padded_array_that_another_op_reads_is_needed(self) -> None:
        self.assertEqual(padded(op("other", "negate", "newer", shape=PADDED)), [])
        self.assertEqual(padded(op("other", "negate", "wide", shape=PADDED)), [])
        results = op("results", "tuple", "newer", "back", shape=tuple_of(PADDED, STATE))
        self.assertEqual(padded(results), [])

    def test_old_state_that_is_kept_needs_a_copy(self) -> None:
        self.assertEqual(padded(extra=b""), [])
        self.assertEqual(padded(op("other", "negate", "state", shape=STATE)), [])

    def test_padded_array_without_updates_is_not_found(self) -> None:
        self.assertEqual(padded(updated=False), [])


class SplitAndJoined(unittest.TestCase):
    def test_copies_to_and_from_parts_undo_each_other(self) -> None:
        (row,) = split()
        self.assertEqual((row["gain_ps"], row["source_user"]), (300, "a:3"))
        self.assertIn("joins 1 array such as f32[256,1024] of slices", row["says"])

    def test_other_parts_old_states_and_parts_that_do_not_change_are_needed(self) -> None:
        self.assertEqual(split(start=0), [])
        self.assertEqual(split(updated="second") + split(old="new"), [])
        self.assertEqual(split(op("other", "negate", "state", shape=STATE)) + split(extra=b""), [])
