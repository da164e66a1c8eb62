"""Test the mode `by_source`: figures of groups, their breakdowns, and HBM bytes."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders.xspace import memory_access_breakdown, raw
from tests.modes.small_steps import (
    GIB,
    HERE,
    PEAKS,
    PS,
    by_source,
    column,
    kernel,
    leaf,
    matmul,
    roofline,
)


class GroupNumbers(unittest.TestCase):
    def test_sums_skip_executions_with_unknown_values(self) -> None:
        ops = [
            *[leaf(i, 1, "a", flops=10, bytes_accessed=0, model_flops=3) for i in range(3)],
            *[leaf(3 + i, 1, "b", flops=1, model_flops=-1) for i in range(2)],
            leaf(5, 1, "c"),
        ]
        (row,) = by_source(ops)
        self.assertEqual(
            (row["flops_sum"], row["bytes_accessed_sum"], row["model_flops_sum"]), (32, 0, 9)
        )

    def test_flops_known_pct_is_the_share_of_time_with_known_flops(self) -> None:
        known, unknown = leaf(0, 30, "a", flops=0, stack=HERE), leaf(30, 10, "b", stack=HERE)
        opaque = kernel(40, 60, flops=0, stack=HERE)
        for ops, n_flops, share in (
            ([known], 0, 100),
            ([unknown], None, 0),
            ([known, unknown], 0, 75),
            ([known, unknown, opaque], 0, 30),
            ([kernel(0, 60, flops=8, stack=HERE)], 8, 100),
            ([leaf(0, 0, flops=8)], 8, None),
        ):
            with self.subTest(ops=ops):
                (row,) = by_source(ops)
                self.assertEqual((row["flops_sum"], row["flops_known_pct"]), (n_flops, share))

    def test_sums_are_null_if_no_execution_has_a_known_value(self) -> None:
        (row,) = by_source([leaf(0, 1, flops=-1)])
        for fact in ("flops_sum", "bytes_accessed_sum", "model_flops_sum"):
            self.assertIsNone(row[fact])


class Breakdown(unittest.TestCase):
    def test_breakdown_has_the_eight_longest_signatures_and_an_overflow_row(self) -> None:
        # Signature i runs twice and takes i + 1 ps each time.
        ops = [leaf(20 * i + 10 * j, i + 1, f"f{i}.{j}") for i in range(11) for j in range(2)]
        (row,) = by_source(ops)
        self.assertEqual(
            column(row["hlo_op_breakdown"], "signature", "total_dur_ps", "n_executions"),
            [(f"f{i} [loop fusion]", 2 * (i + 1), 2) for i in range(10, 2, -1)],
        )
        self.assertEqual(
            row["hlo_op_breakdown_overflow"],
            {"n_signatures": 3, "n_executions": 6, "total_dur_ps": 12},
        )
        # The longest signature takes 22 of 132 ps.
        self.assertEqual(row["hlo_op_breakdown"][0]["pct_of_group"], 16.667)

    def test_example_of_a_signature_is_its_longest_execution(self) -> None:
        (row,) = by_source([leaf(0, 5, "f.1"), leaf(5, 7, "f.2"), leaf(20, 9, "g")])
        longest, other = row["hlo_op_breakdown"]
        self.assertEqual(
            (longest["signature"], longest["example_hlo_op_dur_ps"]), ("f [loop fusion]", 7)
        )
        self.assertTrue(longest["example_hlo_op"].startswith("%f.2 ="))
        self.assertEqual(other["pct_of_group"], 42.857)


class HbmBytes(unittest.TestCase):
    def test_hbm_bytes_are_the_sum_of_reads_and_writes(self) -> None:
        accesses = memory_access_breakdown((1, 1, 10), (2, 1, 5), (1, 2, 100), (2, 3, 1000))
        ops = [leaf(i, 1, bytes_accessed=1115, memory_access_breakdown=accesses) for i in range(2)]
        self.assertEqual(column(by_source(ops), "hbm_bytes_sum"), [30])

    def test_empty_breakdown_means_zero_hbm_bytes_only_if_all_arrays_are_on_chip(self) -> None:
        vmem, hbm, host = "f32[8]{0:S(1)}", "f32[8]{0}", "f32[8]{0:S(5)}"
        for n_bytes, shape, operands, expected in (
            (9, vmem, f"{vmem} %a", 0),
            (9, vmem, f"{vmem} %a, f32[8]{{0:T(8)S(12)}} %b", 0),
            (9, f"({vmem}, {vmem})", f"{vmem} %a", 0),
            (9, vmem, "", 0),
            # In real captures, copies to and from the host have empty breakdowns.
            (9, host, f"{hbm} %a", None),
            (9, hbm, f"{host} %a", None),
            (9, vmem, f"{host} %a", None),
            (9, vmem, f"{vmem} %a, {hbm} %b", None),
            (9, f"({vmem}, {hbm})", f"{vmem} %a", None),
            # An array in memory space 0 is in HBM, like an array without a memory space.
            (9, vmem, "f32[8]{0:S(0)} %a", None),
            # The HLO text shows no array.
            (9, "()", "%a", None),
            # An op without a positive number of bytes accesses no bytes in HBM.
            (0, hbm, f"{hbm} %a", 0),
            (None, hbm, f"{hbm} %a", 0),
            (-1, hbm, f"{hbm} %a", 0),
        ):
            with self.subTest(n_bytes=n_bytes, shape=shape, operands=operands):
                facts: dict[str, Any] = {} if n_bytes is None else {"bytes_accessed": n_bytes}
                ops = [
                    leaf(
                        *(0, 1),
                        shape=shape,
                        operands=operands,
                        memory_access_breakdown=raw(b""),
                        **facts,
                    )
                ]
                self.assertEqual(column(by_source(ops), "hbm_bytes_sum"), [expected])

    def test_hbm_bytes_are_null_if_the_breakdown_is_invalid(self) -> None:
        for breakdown in ("text", 7):
            ops = [leaf(0, 1, bytes_accessed=9, memory_access_breakdown=breakdown)]
            self.assertEqual(column(by_source(ops), "hbm_bytes_sum"), [None])

    def test_hbm_bytes_are_null_if_an_op_that_accesses_bytes_has_no_breakdown(self) -> None:
        vmem = {"shape": "f32[8]{0:S(1)}", "memory_access_breakdown": raw(b"")}
        known = leaf(0, 1, "a", bytes_accessed=9, **vmem)
        for n_bytes, expected in ((1, None), (0, 0), (-1, 0)):
            rows = by_source([known, leaf(1, 1, "b", bytes_accessed=n_bytes)])
            self.assertEqual(column(rows, "hbm_bytes_sum"), [expected])

    def test_ops_are_judged_by_hbm_bytes_with_option_bytes_hbm(self) -> None:
        accesses = memory_access_breakdown((1, 1, GIB // 2), (1, 2, 9 * GIB))
        ops = [matmul(0, 4 * PS, 2 * 10**12, 10 * GIB, memory_access_breakdown=accesses)]
        for traffic, bound, t_hbm, intensity in (
            ("accessed", "memory", 10 * PS, 186.2645),
            ("hbm", "compute", PS // 2, 3725.2903),
        ):
            result = roofline(ops, *PEAKS, "--bytes", traffic)
            (row,) = result["groups"]
            self.assertEqual(result["peaks_used"]["bytes"], traffic)
            self.assertEqual((row["bound"], row["t_hbm_theory_ps"]), (bound, t_hbm))
            self.assertEqual(row["arithmetic_intensity"], intensity)
            # The roof of an op is that of `bottleneck`, with or without the option.
            self.assertEqual(row["t_roofline_per_op_ps"], PS)
            self.assertEqual(
                (row["bytes_accessed_sum"], row["hbm_bytes_sum"]), (10 * GIB, GIB // 2)
            )

    def test_op_with_zero_hbm_bytes_is_compute_bound_and_has_no_intensity(self) -> None:
        accesses = memory_access_breakdown((1, 2, 9))
        ops = [matmul(0, 10, 8, 9, memory_access_breakdown=accesses)]
        (row,) = roofline(ops, *PEAKS, "--bytes", "hbm")["groups"]
        self.assertEqual((row["bound"], row["arithmetic_intensity"]), ("compute", None))
        self.assertEqual((row["hbm_util"], row["roofline_util"]), (0.0, 0.4))

    def test_ops_with_unknown_hbm_bytes_are_skipped(self) -> None:
        result = roofline([matmul(0, 10, 8, 9)], "--bytes", "hbm")
        self.assertEqual(column(result["skipped_groups"]["top_skipped"], "reason"), ["no_bytes"])
