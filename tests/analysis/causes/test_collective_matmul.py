"""Test the cause `collective_matmul`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import array, op
from tests.builders.xspace import Op, op as event

PATH = "jit(f)/mlp/dot_general"
SLOW = ("--peak-hbm-gibps", "1e9", "--peak-tflops-bf16", "1")


def found(ring: str = PATH, flops: int = 100, *, sums: bool = False) -> list[Json]:
    """Return the causes of a step with a matmul in two pieces and a whole one, which computes 1
    flop per picosecond. A piece takes 200 ps."""
    square = array("bf16", 8, 8)
    main = [
        op("x", "parameter", shape=square),
        op("part.1", "dot", "x", "x", shape=square, tf_op=PATH, line="mlp.py:7"),
        op("pass.1", "collective-permute", "x", shape=square, tf_op=ring, line="mlp.py:7"),
        op("part.2", "dot", "pass.1", "x", shape=square, tf_op=PATH, line="mlp.py:7"),
        op("join.1", "concatenate", "part.1", "part.2", shape=square, tf_op=PATH, line="mlp.py:7"),
        op("sum.1", "all-reduce", "join.1", shape=square, tf_op=PATH, line="mlp.py:7"),
        op("whole.1", "dot", "sum.1", "x", shape=square, tf_op="jit(f)/head/dot_general"),
    ]

    def matmul(name: str, start: int, dur: int, flops: int) -> Op:
        path = PATH if name.startswith("part") else "jit(f)/head/dot_general"
        return event(
            name, "convolution fusion", start, dur, tf_op=f"{path}:", flops=flops,
            bytes_accessed=1, shape="bf16[8,8]{1,0}",
        )  # fmt: skip

    ran = [
        matmul("part.1", 0, 200, flops),
        event("pass.1", "collective-permute", 200, 30, tf_op=f"{ring}:"),
        matmul("part.2", 230, 200, flops),
        event("join.1", "concatenate", 430, 70, tf_op=f"{PATH}:"),
        matmul("whole.1", 600, 400, 400),
    ]
    if sums:
        ran.append(event("sum.1", "all-reduce", 500, 100, tf_op=f"{PATH}:"))
    rows = causes({"main": main}, ran, *SLOW)
    return [row for row in rows if row["cause"] == "collective_matmul"]


class Rings(unittest.TestCase):
    def test_gain_is_what_passing_and_joining_takes_and_what_pieces_lose(self) -> None:
        """The pieces reach half the speed of the whole matmul, so they lose 200 of 400 ps."""
        (row,) = found()
        self.assertEqual((row["gain_ps"], row["gain_range_ps"]), (300, [0, 480]))
        self.assertEqual((row["confidence"], row["source_user"]), ("likely", "mlp.py:7"))
        self.assertIn("takes 100 ps, and pieces reach 50 %", row["says"])
        self.assertIn("xla_tpu_all_gather_collective_matmul_mode=none", row["what_helps"])

    def test_pieces_that_are_as_fast_as_whole_matmuls_lose_nothing(self) -> None:
        (row,) = found(flops=200)
        self.assertEqual(row["gain_ps"], 100)
        (row,) = found(flops=300)
        self.assertEqual(row["gain_ps"], 100)

    def test_sum_of_the_matmul_stays(self) -> None:
        (row,) = found(sums=True)
        self.assertEqual(row["gain_ps"], 300)

    def test_ring_that_the_code_calls_is_no_cause(self) -> None:
        for path in ("jit(f)/mlp/ppermute", "jit(f)/pipeline/ppermute", "jit(f)/mlp/slice"):
            with self.subTest(path):
                self.assertEqual(found(path), [])
