"""Test the cause `precise_matmul`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import Op, array, op, precision
from tests.builders.xspace import op as event

DEFAULT, HIGH, HIGHEST = range(3)
WIDE, NARROW = array("f32", 256, 256), array("bf16", 256, 256)
# At this peak, memory moves 10 bytes per picosecond.
SLOW = ("--peak-hbm-gibps", str(10**13 / 2**30))


def dot(*levels: int, line: str = "model.py:4") -> Op:
    return op("dot.1", "dot", "x", "w", shape=WIDE, line=line, extra=precision(*levels))


def found(main: list[Op], *options: str, n_bytes: int = 0, **phases: str) -> list[Json]:
    """Return the rows for a program whose ops that are no parameters take 600 ps each. `phases` are
    the beginnings of the paths of ops."""
    ran = [
        event(
            here.name,
            "convolution fusion",
            600 * i,
            600,
            tf_op=f"jit(step)/{phases.get(here.name.partition('.')[0], '')}{here.name}:",
            bytes_accessed=n_bytes,
        )
        for i, here in enumerate(each for each in main if each.opcode != "parameter")
    ]
    rows = causes({"main": main}, ran, *options)
    return [row for row in rows if row["cause"] == "precise_matmul"]


OPERANDS = [op("x", "parameter", shape=WIDE), op("w", "parameter", shape=WIDE, number=1)]


class PreciseMatmul(unittest.TestCase):
    def test_passes_beyond_the_first_are_the_gain(self) -> None:
        (row,) = found([*OPERANDS, dot(HIGHEST, HIGHEST)])
        self.assertEqual((row["source_user"], row["confidence"]), ("model.py:4", "likely"))
        self.assertIn("needs 6 passes of bf16", row["says"])
        self.assertEqual(row["gain_ps"], 500)
        (row,) = found([*OPERANDS, dot(HIGH, HIGH)])
        self.assertEqual(row["gain_ps"], 400)

    def test_bf16_operand_halves_the_passes(self) -> None:
        mixed = [op("x", "parameter", shape=NARROW), OPERANDS[1]]
        self.assertEqual([row["gain_ps"] for row in found([*mixed, dot(HIGHEST, HIGHEST)])], [400])
        self.assertEqual([row["gain_ps"] for row in found([*mixed, dot(HIGH, HIGH)])], [300])

    def test_matmul_of_one_pass_is_not_reported(self) -> None:
        self.assertEqual(found([*OPERANDS, dot(DEFAULT, DEFAULT)]), [])
        self.assertEqual(found([*OPERANDS, dot()]), [])
        # The compiler multiplies bf16 once at any precision.
        narrow = [
            op(each.name, "parameter", shape=NARROW, number=i) for i, each in enumerate(OPERANDS)
        ]
        self.assertEqual(found([*narrow, dot(HIGHEST, HIGHEST)]), [])

    def test_bytes_take_their_time_in_one_pass_too(self) -> None:
        # At 10 bytes per picosecond, 4000 bytes take 400 ps.
        (row,) = found([*OPERANDS, dot(HIGHEST, HIGHEST)], *SLOW, n_bytes=4000)
        self.assertEqual(row["gain_ps"], 200)

    def test_optimizer_of_a_program_that_trains_may_need_f32(self) -> None:
        exact = dot(HIGHEST, HIGHEST)
        gradient = op("grad.1", "negate", "dot.1", shape=WIDE)
        backward = "transpose(jvp(loss))/"
        self.assertEqual(found([*OPERANDS, exact, gradient], grad=backward), [])
        rows = found([*OPERANDS, exact, gradient], grad=backward, dot="jvp(loss)/")
        self.assertEqual(len(rows), 1)
        # Without a backward pass, there is no optimizer.
        self.assertEqual(len(found([*OPERANDS, exact, gradient])), 1)
