"""Test the cause `random_bits`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import Op, array, op
from tests.builders.xspace import op as event

# At this peak, memory moves 1000 bytes per picosecond.
HBM = ("--peak-hbm-gibps", str(10**15 / 2**30))
ROUND = ("add", "shift-left", "shift-right-logical", "or", "xor")


def drawn(
    *,
    n_rounds: int = 20,
    dtype: str = "u32",
    dur: int = 500,
    n_bytes: int = 8000,
    n_others: int = 100,
) -> list[Json]:
    """Return the rows for a fusion that draws 1000 numbers, and computes as much with them."""
    numbers, floats = array(dtype, 1000), array("f32", 1000)
    rounds = [
        op(f"{opcode}.{i}", opcode, "given", "given", shape=numbers)
        for i in range(n_rounds)
        for opcode in ROUND
    ]
    others: list[Op] = [
        op(f"multiply.{i}", "multiply", "given", "given", shape=floats) for i in range(n_others)
    ]
    program = {
        "fused": [op("given", "parameter", shape=numbers), *rounds, *others],
        "main": [
            op("x", "parameter", shape=numbers),
            op("drop", "fusion", "x", shape=floats, calls=["fused"], line="model.py:3"),
        ],
    }
    ran = [event("drop", "loop fusion", 0, dur, bytes_accessed=n_bytes)]
    return [row for row in causes(program, ran, *HBM) if row["cause"] == "random_bits"]


class Drawn(unittest.TestCase):
    def test_ops_that_draw_random_numbers_are_reported(self) -> None:
        (row,) = drawn()
        self.assertEqual((row["source_user"], row["confidence"]), ("model.py:3", "likely"))
        self.assertIn("rbg", row["what_helps"])
        # The op's bytes take 8 ps. Half of the other 492 ps belong to the generator. Those of the
        # other generator write and read 1000 numbers.
        self.assertEqual(row["gain_ps"], 492 // 2 - 8)

    def test_time_of_other_operations_is_no_gain(self) -> None:
        (row,) = drawn(n_others=300)
        self.assertEqual(row["gain_ps"], 492 // 4 - 8)

    def test_fewer_rounds_are_no_generator(self) -> None:
        self.assertEqual(drawn(n_rounds=19), [])

    def test_operations_on_other_numbers_are_no_generator(self) -> None:
        self.assertEqual(drawn(dtype="s32"), [])

    def test_numbers_that_are_computed_while_memory_moves_are_not_reported(self) -> None:
        self.assertEqual(len(drawn(n_bytes=250_000)), 1)
        self.assertEqual(drawn(n_bytes=251_000), [])

    def test_gain_below_two_percent_of_the_step_is_not_reported(self) -> None:
        self.assertEqual(len(drawn(dur=64)), 1)
        self.assertEqual(drawn(dur=62), [])
