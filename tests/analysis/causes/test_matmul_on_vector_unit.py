"""Test the cause `matmul_on_vector_unit`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, Program, causes
from tests.builders.hlo_proto import Shape, array, op
from tests.builders.xspace import memory_access_breakdown, op as event

# At this peak, memory moves 2**20 bytes in 100 ps.
PEAK = ("--peak-hbm-gibps", str(2**20 / 100e-12 / 2**30), "--peak-tflops-bf16", "1e6")
CACHE, SCORES = array("s8", 1024, 8, 128), array("f32", 1024, 8)
PATH = "jit(f)/layers/btkgd,bskd->bkgts/dot_general"


def fused(*, opcode: str = "reduce", path: str = PATH, sums: Shape = SCORES) -> Program:
    inside = [
        op("keys", "parameter", shape=CACHE),
        op("sum", opcode, "keys", shape=sums, tf_op=path, line="attention.py:21"),
    ]
    main = [
        op("cache", "parameter", shape=CACHE, tf_op="cache['key']"),
        op("fusion.1", "fusion", "cache", shape=SCORES, calls=["inside"]),
    ]
    return {"inside": inside, "main": main}


def found(program: Program, time: int, n_bytes: int = 1 << 20, duration: int = 1000) -> list[Json]:
    ran = event("fusion.1", "loop fusion", 0, time, flops=8, bytes_accessed=n_bytes)
    ran.stats["memory_access_breakdown"] = memory_access_breakdown((1, 1, n_bytes))
    rows = causes(program, [ran], *PEAK, duration=duration)
    return [row for row in rows if row["cause"] == "matmul_on_vector_unit"]


class MatmulOnVectorUnit(unittest.TestCase):
    def test_matmul_far_below_the_bandwidth_is_reported_with_its_array_and_inner_line(self) -> None:
        (row,) = found(fused(), 325)
        self.assertEqual((row["confidence"], row["source_user"]), ("likely", "attention.py:21"))
        # With another layout, it takes 100 / 0.8 = 125 ps.
        self.assertEqual((row["gain_ps"], row["gain_range_ps"]), (120, [80, 200]))
        self.assertIn("1 matmul of cache['key'] (s8[1024,8,128]) at attention.py:21", row["says"])
        self.assertIn("vector unit, at 30.8 % of HBM's bandwidth", row["says"])

    def test_matmul_at_40_percent_of_the_bandwidth_is_not_reported(self) -> None:
        self.assertEqual(found(fused(), 250), [])
        self.assertEqual(len(found(fused(), 251)), 1)

    def test_matmul_on_the_matrix_unit_is_not_reported(self) -> None:
        self.assertEqual(found(fused(opcode="dot"), 325), [])

    def test_sum_that_is_no_matmul_is_not_reported(self) -> None:
        for primitive in ("reduce_sum", "mean", "dot_general/reduce_sum", ""):
            self.assertEqual(found(fused(path=f"jit(f)/{primitive}"), 325), [])

    def test_matmul_over_a_tiny_dimension_is_not_reported(self) -> None:
        for n_sums, n_rows in ((1 << 15, 1), (1 << 15 | 1, 0)):
            self.assertEqual(len(found(fused(sums=array("f32", n_sums)), 325)), n_rows)

    def test_matmul_whose_arrays_are_on_the_chip_is_not_reported(self) -> None:
        self.assertEqual(found(fused(), 325, n_bytes=0), [])

    def test_op_below_0_3_percent_of_the_step_is_not_reported(self) -> None:
        self.assertEqual(found(fused(), 325, duration=325 * 301), [])
