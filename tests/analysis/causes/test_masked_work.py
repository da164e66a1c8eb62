"""Test the cause `masked_work`."""

from __future__ import annotations

import math
import struct
import unittest

from tests.analysis.small_programs import Json, causes, rounds, take
from tests.builders.hlo_proto import Op, Shape, array, direction, op, packed, tuple_of
from tests.builders.xspace import Op as Event
from tests.builders.xspace import bytes_field
from tests.builders.xspace import op as event
from tests.fuzz import time_limit

ROWS, KEYS = array("bf16", 2048, 128), array("bf16", 128, 2048)
SCORES, PLACES, MASK = (array(dtype, 2048, 2048) for dtype in ("f32", "s32", "pred"))
S32 = array("s32")


def number(name: str, value: int) -> Op:
    return op(name, "constant", shape=S32, extra=bytes_field(8, packed(4, [value])))


def spread(name: str, source: str, *dims: int) -> Op:
    return op(name, "broadcast", source, shape=PLACES, extra=packed(14, dims))


def compared(name: str, how: str, *operands: str) -> Op:
    return op(name, "compare", *operands, shape=MASK, extra=direction(how))


def matmul(name: str, left: str, right: str, shape: Shape = SCORES, line: str | None = None) -> Op:
    numbers = bytes_field(30, packed(1, [1]) + packed(2, [0]))
    return op(name, "dot", left, right, shape=shape, line=line, extra=numbers)


def window(width: int) -> list[Op]:
    """Return the mask of the `width` positions up to each, for 2048 positions."""
    return [
        op("row", "iota", shape=PLACES, extra=packed(14, [0])),
        op("column", "iota", shape=PLACES, extra=packed(14, [1])),
        op("back", "subtract", "row", "column", shape=PLACES),
        number("none", 0),
        spread("nones", "none"),
        compared("causal", "GE", "back", "nones"),
        number("width", width),
        spread("widths", "width"),
        compared("near", "LT", "back", "widths"),
        op("mask", "and", "causal", "near", shape=MASK),
    ]


INPUTS = [
    op("q", "parameter", shape=ROWS),
    op("k", "parameter", shape=KEYS, number=1),
    op("v", "parameter", shape=ROWS, number=2),
    op("lengths", "parameter", shape=MASK, number=3),
]
DOT = matmul("scores", "q", "k", line="attention.py:9")


def real(name: str, value: float, shape: Shape) -> list[Op]:
    """Return an array of equal numbers."""
    literal = bytes_field(8, struct.pack("<f", value))
    one = op(f"{name}.0", "constant", shape=array("f32"), extra=bytes_field(8, literal))
    return [one, op(name, "broadcast", f"{name}.0", shape=shape)]


LOWEST = real("lowest", -1e30, SCORES)
SELECT = op("chosen", "select", "mask", "scores", "lowest", shape=SCORES)
SOFTMAX = [
    op("weights", "exponential", "chosen", shape=SCORES),
    op("sums", "reduce", "weights", "lowest.0", shape=array("f32", 2048)),
    matmul("out", "weights", "v", ROWS),
]
TIMES = {"scores": 400, "weights": 100, "out": 300, "all": 50, "y": 50}


def events() -> list[Event]:
    ran, start = [], 0
    for name, dur in TIMES.items():
        ran.append(event(name, "convolution fusion", start, dur, tf_op=f"jit(step)/{name}:"))
        start += dur
    return ran


def found(*ops: Op) -> list[Json]:
    rows = causes({"main": [*INPUTS, DOT, *LOWEST, *ops]}, events())
    return [row for row in rows if row["cause"] == "masked_work"]


class Masks(unittest.TestCase):
    def test_scores_of_which_a_window_is_kept_are_found_at_their_line(self) -> None:
        (row,) = found(*window(256), SELECT, *SOFTMAX)
        self.assertEqual((row["source_user"], row["confidence"]), ("attention.py:9", "likely"))
        self.assertIn("keeps about 12 %, and 2 matmuls", row["says"])
        # Of 64 blocks, 15 contain something; softmax and matmuls are scaled to them.
        self.assertAlmostEqual(row["gain_ps"], 800 * (1 - 15 / 64), delta=10)

    def test_layer_without_the_window_keeps_its_time(self) -> None:
        # Both layers use the same causal mask.
        other = [
            matmul("all", "q", "k", line="attention.py:12"),
            op("past", "select", "causal", "all", "lowest", shape=SCORES),
            op("shares", "exponential", "past", shape=SCORES),
            matmul("y", "shares", "v", ROWS),
        ]
        (row,) = found(*window(256), SELECT, *SOFTMAX, *other)
        self.assertEqual(row["evidence"]["ops"], ["scores", "out"])

    def test_causal_mask_that_drops_half_is_usual(self) -> None:
        self.assertEqual(found(*window(2048), SELECT, *SOFTMAX), [])

    def test_window_of_half_of_the_positions_is_too_wide(self) -> None:
        self.assertEqual(found(*window(1024), SELECT, *SOFTMAX), [])

    def test_bias_that_is_very_negative_is_a_mask(self) -> None:
        zeros = real("zero", 0.0, SCORES)
        bias = op("bias", "select", "mask", "zero", "lowest", shape=SCORES)
        total = op("chosen", "add", "scores", "bias", shape=SCORES)
        self.assertEqual(len(found(*window(256), *zeros, bias, total, *SOFTMAX)), 1)
        # A small bias, such as one by distance, drops nothing.
        small = op("bias", "select", "mask", "zero", "zero", shape=SCORES)
        self.assertEqual(found(*window(256), *zeros, small, total, *SOFTMAX), [])

    def test_data_can_drop_more_but_not_keep_more(self) -> None:
        mask = op("given", "and", "mask", "lengths", shape=MASK)
        select = op("chosen", "select", "given", "scores", "lowest", shape=SCORES)
        self.assertEqual(len(found(*window(256), mask, select, *SOFTMAX)), 1)
        mask = op("given", "or", "mask", "lengths", shape=MASK)
        self.assertEqual(found(*window(256), mask, select, *SOFTMAX), [])

    def test_scores_that_are_also_used_without_the_mask_are_needed(self) -> None:
        total = op("total", "reduce", "scores", "lowest.0", shape=array("f32", 2048))
        self.assertEqual(found(*window(256), SELECT, *SOFTMAX, total), [])

    def test_iota_of_a_damaged_program_without_a_dimension_is_no_mask(self) -> None:
        iota = op("row", "iota", shape=PLACES)
        self.assertEqual(found(iota, *window(256)[1:], SELECT, *SOFTMAX), [])

    def test_choice_between_two_arrays_is_no_mask(self) -> None:
        other = op("lowest", "parameter", shape=SCORES, number=4)
        ops = [*INPUTS, DOT, LOWEST[0], other, *window(256), SELECT, *SOFTMAX]
        rows = causes({"main": ops}, events())
        self.assertNotIn("masked_work", [row["cause"] for row in rows])


class Damage(unittest.TestCase):
    def masked_by(self, *ops: Op) -> list[Json]:
        """Return the causes of a program whose mask compares the value `x`."""
        zeros = op("zeros", "broadcast", "zero", shape=PLACES)
        mask = compared("mask", "LT", "x", "zeros")
        return found(*ops, number("zero", 0), zeros, mask, SELECT, *SOFTMAX)

    def test_values_that_are_used_twice_take_no_exponential_time(self) -> None:
        first = op("x0", "iota", shape=PLACES, extra=packed(14, [0]))
        for opcode in ("add", "multiply"):
            ops = [
                op(f"x{i}", opcode, f"x{i - 1}", f"x{i - 1}", shape=PLACES) for i in range(1, 60)
            ]
            with time_limit(1):
                self.assertEqual(
                    self.masked_by(first, *ops, op("x", "copy", "x59", shape=PLACES)), []
                )

    def test_array_of_more_dimensions_than_fit_in_memory_takes_no_exponential_time(self) -> None:
        sides = [64] * 40
        scores, mask = array("f32", *sides), array("pred", *sides)
        ops = [
            op("q", "parameter", shape=ROWS),
            op("k", "parameter", shape=KEYS, number=1),
            matmul("scores", "q", "k", scores),
            *real("lowest", -1e30, scores),
            number("zero", 0),
            op("row", "iota", shape=scores, extra=packed(14, [0])),
            op("zeros", "broadcast", "zero", shape=scores),
            op("mask", "compare", "row", "zeros", shape=mask, extra=direction("LT")),
            op("chosen", "select", "mask", "scores", "lowest", shape=scores),
            op("weights", "exponential", "chosen", shape=scores),
            op("sums", "reduce", "weights", "lowest.0", shape=array("f32", 64)),
        ]
        with time_limit(1):
            self.assertNotIn("masked_work", [r["cause"] for r in causes({"main": ops}, events())])

    def test_start_of_a_slice_that_is_no_number_is_read(self) -> None:
        row = op("row", "iota", shape=PLACES, extra=packed(14, [0]))
        for value in (math.inf, math.nan):
            start = real("start", value, array("f32"))[0]
            x = op("x", "dynamic-slice", "row", "start.0", "start.0", shape=PLACES)
            self.assertEqual(self.masked_by(row, start, x), [])


class Rounds(unittest.TestCase):
    def rows(self, update: str, step: int, slope: int) -> list[Json]:
        """Return the causes of a loop of 8 rounds, each with 256 queries and all keys."""
        scores, places, mask = (array(dtype, 256, 2048) for dtype in ("f32", "s32", "pred"))
        state = tuple_of(S32, KEYS, array("bf16", 256, 128))
        body = [
            op("state", "parameter", shape=state),
            take("round", "state", 0, S32),
            take("k", "state", 1, KEYS),
            take("q", "state", 2, array("bf16", 256, 128)),
            number("one", step),
            op("next", update, "round", "one", shape=S32),
            number("size", slope),
            op("first", "multiply", "round", "size", shape=S32),
            op("firsts", "broadcast", "first", shape=places),
            op("in_block", "iota", shape=places, extra=packed(14, [0])),
            op("row", "add", "firsts", "in_block", shape=places),
            op("column", "iota", shape=places, extra=packed(14, [1])),
            op("back", "subtract", "row", "column", shape=places),
            op("far", "abs", "back", shape=places),
            number("width", 100),
            op("widths", "broadcast", "width", shape=places),
            op("mask", "compare", "far", "widths", shape=mask, extra=direction("LT")),
            matmul("scores", "q", "k", scores, "attention.py:9"),
            *real("lowest", -1e30, scores),
            op("chosen", "select", "mask", "scores", "lowest", shape=scores),
            op("weights", "exponential", "chosen", shape=scores),
            op("out", "reduce", "weights", "lowest.0", shape=array("f32", 256)),
            op("end", "tuple", "next", "k", "q", shape=state),
        ]
        program = {
            "body": body,
            "condition": [op("rounds", "parameter", shape=state)],
            "main": [
                op("keys", "parameter", shape=KEYS),
                op("queries", "parameter", shape=array("bf16", 256, 128), number=1),
                number("zero", 0),
                op("init", "tuple", "zero", "keys", "queries", shape=state),
                op("while.1", "while", "init", shape=state, calls=["body", "condition"]),
            ],
        }
        ran = [event("while.1", "while", 0, 800), *rounds("scores", "fusion", 0, 90, 8)]
        return [row for row in causes(program, ran) if row["cause"] == "masked_work"]

    def test_mask_of_all_rounds_is_computed_from_the_counter(self) -> None:
        (row,) = self.rows("add", step=1, slope=256)
        self.assertAlmostEqual(row["gain_ps"], 720 * (1 - 22 / 64), delta=20)
        # The counter can have another step.
        self.assertEqual(self.rows("add", step=2, slope=128), [row])

    def test_state_that_does_not_count_rounds_is_unknown(self) -> None:
        self.assertEqual(self.rows("multiply", step=1, slope=256), [])
