"""Test the mode `roofline`: roofs, skipped groups, kernels with a given cost, peaks and notes."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders.xspace import Op, Space, StatValue, encode, op, tpu_plane, trace
from tests.harness import answer
from tests.modes.small_steps import (
    BF16,
    GIB,
    HERE,
    PEAKS,
    PS,
    STEP,
    column,
    kernel,
    leaf,
    matmul,
    roofline,
)


class Roofline(unittest.TestCase):
    def one(self, *ops: Op, options: list[str] | None = None) -> dict[str, Any]:
        (row,) = roofline(list(ops), *(PEAKS if options is None else options))["groups"]
        row_: dict[str, Any] = row
        return row_

    def test_figures_of_a_compute_bound_group_are_exact(self) -> None:
        # 2e12 flops take 1 s and 2**29 bytes take 0.5 s; the op ran for 4 s.
        row = self.one(matmul(0, 4 * PS, 2 * 10**12, GIB // 2, model_flops=7))
        expected = {
            "flops_sum": 2 * 10**12,
            "model_flops_sum": 7,
            "bytes_accessed_sum": GIB // 2,
            "dtype": "bf16",
            "arithmetic_intensity": 3725.2903,
            "ridge_point": 1862.6451,
            "bound": "compute",
            "t_compute_theory_ps": PS,
            "t_hbm_theory_ps": PS // 2,
            "t_roofline_theory_ps": PS,
            "t_roofline_per_op_ps": PS,
            "mfu": 0.25,
            "hbm_util": 0.125,
            "roofline_util": 0.25,
            "shortfall_ps": 3 * PS,
            "shortfall_per_op_ps": 3 * PS,
            "shortfall_pct": 75.0,
            "opaque_dur_ps": 0,
            "kernel": None,
            "cost_source": "xla",
        }
        self.assertEqual({key: row[key] for key in expected}, expected)

    def test_averages_are_weighted_by_time(self) -> None:
        ops = [
            matmul(0, 10, 10, 1, stack="m.py:1:1"),  # The utilization is 5 / 10.
            matmul(10, 30, 12, 1, stack="m.py:2:1"),  # The utilization is 6 / 30.
            leaf(50, 60),  # The op has no flops.
            matmul(200, 0, 10**6, 1, stack="m.py:3:1"),  # The op takes no time.
        ]
        result = roofline(ops, "--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9")["step_summary"]
        # The average is (10 · 0.5 + 30 · 0.2) / 40.
        self.assertEqual(result["weighted_avg_mfu"], 0.275)
        self.assertEqual(result["weighted_avg_roofline_util"], 0.275)
        self.assertEqual(result["rooflined_dur_ps"], 40)
        self.assertEqual(result["step_compute_dur_ps_total"], 100)
        self.assertEqual(
            (result["rooflined_pct_of_compute"], result["skipped_pct_of_compute"]), (40, 60)
        )
        self.assertEqual(result["step_shortfall_ps"], 5 + 24 - 500_000)

    def test_groups_over_their_roof_are_summed_separately(self) -> None:
        peaks = ("--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9")
        on_roof = matmul(0, 4, 8, 1, stack="m.py:1:1")
        # At its roof, this group would take 4 ps instead of 12 ps.
        below = matmul(10, 12, 8, 1, stack="m.py:2:1")
        above = matmul(30, 3, 8, 1, stack="m.py:3:1")
        # This group has no duration and so no utilization.
        instant = matmul(40, 0, 8, 1, stack="m.py:4:1")
        for ops, n, total in (
            ((on_roof, below, instant), 0, 0),
            ((on_roof, below, above, instant), 1, 3),
            ((above, instant), 1, 3),
            ((leaf(0, 5),), 0, 0),
        ):
            result = roofline(list(ops), *peaks)["step_summary"]["over_roof"]
            self.assertEqual(result, {"n_groups": n, "total_dur_ps": total})


class Skipped(unittest.TestCase):
    def reason(self, *options: str, **facts: Any) -> str | None:
        result = roofline([op("f", "loop fusion", 0, 5, **facts)], *options)["skipped_groups"]
        if not result["top_skipped"]:
            return None
        (row,) = result["top_skipped"]
        counter = {"opaque": "n_no_flops"}.get(row["reason"], f"n_{row['reason']}")
        self.assertEqual(result[counter], 1)
        self.assertEqual(result["total_dur_ps_skipped"], 5)
        reason: str = row["reason"]
        return reason

    def test_skipped_group_has_the_first_matching_reason(self) -> None:
        for flops, n_bytes, shape, reason in (
            (None, None, "s32[8]", "no_flops"),
            (0, 1, BF16, "no_flops"),
            (-1, 1, BF16, "no_flops"),
            (1, None, "s32[8]", "no_bytes"),
            (1, 0, "s32[8]", "no_bytes"),
            (1, 1, "s32[8]", "dtype_other"),
            (1, 1, "f32[8]", "peak_unknown_for_dtype"),
            (1, 1, "f16[8]", "peak_unknown_for_dtype"),
            (1, 1, "f8e5m2[8]", None),
            (1, 1, BF16, None),
        ):
            with self.subTest(flops=flops, n_bytes=n_bytes, shape=shape):
                facts = {"flops": flops, "bytes_accessed": n_bytes, "shape": shape}
                given = {key: value for key, value in facts.items() if value is not None}
                self.assertEqual(self.reason(**given), reason)


class Opaque(unittest.TestCase):
    OPS = (
        kernel(0, 100, stack=HERE, tf_op="first", model_flops=9, bytes_accessed=9),
        matmul(100, 10, 4, 2, model_flops=4, tf_op="second"),
        kernel(200, 50, flops=0, stack=HERE),
    )

    def test_opaque_executions_are_excluded_from_the_row(self) -> None:
        (row,) = roofline(list(self.OPS))["groups"]
        expected = {
            "n_executions": 1,
            "total_dur_ps": 10,
            "flops_sum": 4,
            "model_flops_sum": 4,
            "bytes_accessed_sum": 2,
            "hlo_categories": {"convolution fusion": 1},
            "opaque_dur_ps": 150,
            "dtype_uncertain": False,
            # The field `tf_op` describes the whole group, including opaque executions.
            "tf_op": "first",
        }
        self.assertEqual({key: row[key] for key in expected}, expected)


class KernelCost(unittest.TestCase):
    OPS = (
        kernel(0, 100, "flash.1", stack=HERE),
        kernel(100, 300, "flash.2", stack=HERE),
        kernel(400, 50, "other.1", stack=HERE),
        matmul(450, 10, 4, 2),
    )
    PEAKS = ("--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9")

    def test_kernel_with_a_given_cost_is_judged_with_its_line(self) -> None:
        result = roofline(list(self.OPS), *self.PEAKS, "--kernel-cost", "flash=100,1e3")
        self.assertEqual(
            column(
                result["groups"],
                *("kernel", "kernel_dur_ps", "cost_source", "n_executions", "total_dur_ps"),
                *("flops_sum", "bytes_accessed_sum", "mfu", "opaque_dur_ps", "dtype"),
            ),
            # Of 410 ps, 204 flops need 102.
            [("flash", 400, "user", 3, 410, 204, 2002, 0.24878, 50, "bf16")],
        )
        self.assertEqual(result["skipped_groups"]["total_dur_ps_skipped"], 50)
        # Judged groups take 410 of 460 ps.
        self.assertEqual(result["step_summary"]["rooflined_pct_of_compute"], 89.13)

    def test_dtype_given_by_the_user_is_certain(self) -> None:
        for cost, dtype, uncertain in (("1,1", "bf16", True), ("1,1,fp8", "fp8", False)):
            ops = [
                op(
                    *("k.1", "custom-call", 0, 5),
                    shape=BF16,
                    operands="s8[9]{0} %a",
                    attributes=', custom_call_target="tpu_custom_call"',
                )
            ]
            (row,) = roofline(ops, "--kernel-cost", f"k={cost}")["groups"]
            self.assertEqual((row["dtype"], row["dtype_uncertain"]), (dtype, uncertain))


class PerOpRoof(unittest.TestCase):
    PEAKS = ("--peak-tflops-bf16", "2", "--peak-tflops-fp8", "4", "--peak-hbm-gibps", "1")

    def test_roof_per_op_sums_the_roofs_of_executions(self) -> None:
        ops = [
            # `a` needs 1 s for its flops; each execution of `b` needs 2 s for its bytes.
            matmul(0, 5 * PS, 2 * 10**12, 1, name="a"),
            *[matmul(i * PS, 3 * PS, 1, 2 * GIB, name="b") for i in (5, 8)],
        ]
        result = answer(trace(ops), "roofline", *self.PEAKS)
        (row,) = result["groups"]
        # The byte of `a` takes 931 ps.
        self.assertEqual(row["t_roofline_theory_ps"], 4 * PS + 931)
        self.assertEqual(row["t_roofline_per_op_ps"], 5 * PS)
        self.assertEqual(row["shortfall_per_op_ps"], 6 * PS)
        self.assertEqual(result["step_summary"]["t_roofline_per_op_ps"], 5 * PS)
        self.assertEqual(result["step_summary"]["shortfall_per_op_ps"], 6 * PS)

    def test_op_without_a_float_dtype_is_judged_by_bytes(self) -> None:
        ops = [matmul(0, 10, 8, 1, name="a"), matmul(10, 5, 10**6, 1, name="b", shape="s32[8]{0}")]
        (row,) = roofline(ops, "--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9")["groups"]
        self.assertEqual(row["t_roofline_per_op_ps"], 4)

    def test_skipped_group_whose_peak_is_unknown_is_judged_by_bytes_as_in_bottleneck(self) -> None:
        data = trace([matmul(0, 5 * PS, 8, 2 * GIB, shape="f32[8]{0}")])
        result = answer(data, "roofline", *self.PEAKS)
        (row,) = result["skipped_groups"]["top_skipped"]
        self.assertEqual(row["reason"], "peak_unknown_for_dtype")
        for sums in (row, result["step_summary"]):
            self.assertEqual(sums["t_roofline_per_op_ps"], 2 * PS)
            self.assertEqual(sums["shortfall_per_op_ps"], 3 * PS)
        self.assertIn("The largest listed loss is at m.py:1: 3.00 s.", result["headline"])
        (finding,) = answer(data, "bottleneck", *self.PEAKS)["findings"]
        self.assertEqual((finding["class"], finding["lost_ps"]), ("memory_bound", 3 * PS))

    def test_roofs_exclude_ops_that_have_none(self) -> None:
        ops = [matmul(0, 10, 8, 1, name="a"), matmul(10, 5, -1, -1, name="b")]
        options = ("--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9")
        result = answer(trace(ops), "roofline", *options)
        (row,) = result["groups"]
        self.assertEqual(row["total_dur_ps"], 15)
        self.assertEqual((row["t_roofline_per_op_ps"], row["shortfall_per_op_ps"]), (4, 6))
        self.assertEqual(result["step_summary"]["without_roof_ps"], 5)
        self.assertTrue(
            result["headline"].startswith(
                "Math takes 15 ps: 6 ps is beyond the roof, and the roof of 5 ps is unknown. The"
                " largest listed loss may be at m.py:1: up to 11 ps."
            )
        )
        # A kernel of unknown cost is no loss.
        told = answer(trace([*ops, kernel(20, 100)]), "roofline", *options)["headline"]
        self.assertIn("may be at m.py:1: up to 11 ps.", told)
        alone = answer(trace(ops[1:]), "roofline")["step_summary"]
        self.assertIsNone(alone["t_roofline_per_op_ps"])
        self.assertIsNone(alone["shortfall_per_op_ps"])

    def test_measured_time_limits_the_roof_of_an_op(self) -> None:
        ops = [matmul(0, 2, 8, 1, name="a"), matmul(2, 8, 8, 1, name="b")]
        options = ("--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9")
        (row,) = answer(trace(ops), "roofline", *options)["groups"]
        # `a` is faster than its roof of 4 ps, so it does not make up for the loss of `b`.
        self.assertEqual((row["t_roofline_per_op_ps"], row["shortfall_per_op_ps"]), (6, 4))


def chip_trace(*ops: Op, **facts: StatValue) -> bytes:
    return encode(Space([tpu_plane(ops or [matmul(0, 9, 8, 2)], STEP, stats=facts)]))


class Peaks(unittest.TestCase):
    def peaks(self, *options: str, data: bytes | None = None) -> dict[str, Any]:
        used: dict[str, Any] = answer(data or chip_trace(), "roofline", *options)["peaks_used"]
        return used

    def test_default_peaks_are_those_of_one_v7x_core(self) -> None:
        self.assertEqual(answer(chip_trace(), "roofline")["chip"], "v7x")
        self.assertEqual(
            self.peaks(),
            {
                "peak_tflops_bf16": 1153.5,
                "peak_tflops_fp8": 2307.0,
                "peak_tflops_int8": None,
                "peak_tflops_int4": None,
                "peak_tflops_fp32": None,
                "peak_tflops_fp16": None,
                "peak_hbm_gibps": 3690.0,
                "ridge_points": {"bf16": 291.133, "fp8": 582.2659},
                "source": "builtin v7x table",
                "unit": "GiB/s (base-1024) per device",
                "bytes": "accessed",
            },
        )

    def test_every_peak_can_be_overridden(self) -> None:
        for flag, key in (
            *(("tflops-bf16", "peak_tflops_bf16"), ("tflops-fp8", "peak_tflops_fp8")),
            *(("tflops-fp32", "peak_tflops_fp32"), ("tflops-fp16", "peak_tflops_fp16")),
            *(("tflops-int8", "peak_tflops_int8"), ("tflops-int4", "peak_tflops_int4")),
            ("hbm-gibps", "peak_hbm_gibps"),
        ):
            with self.subTest(flag=flag):
                used = self.peaks(f"--peak-{flag}", "70.5")
                self.assertEqual(used[key], 70.5)
                self.assertEqual(used["source"], "builtin v7x table + cli override")
                self.assertEqual(
                    {k: v for k, v in used.items() if k.startswith("peak") and k != key},
                    {k: v for k, v in self.peaks().items() if k.startswith("peak") and k != key},
                )


class RooflineNotes(unittest.TestCase):
    def notes(self, data: bytes, *options: str) -> list[str]:
        notes: list[str] = answer(data, "roofline", "--step", "0", *options)["notes"]
        return notes

    def test_note_reports_groups_whose_model_flops_differ_from_flops(self) -> None:
        ops = [
            matmul(0, 9, 8, 1, stack="m.py:1:1", model_flops=7),
            matmul(10, 9, 8, 1, stack="m.py:2:1", model_flops=8),
            matmul(20, 9, 8, 1, stack="m.py:3:1"),
        ]
        (note,) = self.notes(chip_trace(*ops), "--chip", "v7x")
        self.assertTrue("1 group" in note, note)
        self.assertIn("model_flops_sum", note)

    def test_note_reports_peaks_that_differ_by_more_than_5_percent(self) -> None:
        for fact, near, far in (
            ("peak_teraflops_per_second", (1153.5, 1096.0, 1211.0), (1095.0, 1212.0)),
            # 3690 GiB/s are 3962.107 GB/s.
            ("peak_hbm_bw_gigabytes_per_second", (3962.0, 3765.0, 4160.0), (3763.0, 4161.0)),
        ):
            for value in (*near, *far):
                with self.subTest(fact=fact, value=value):
                    notes = self.notes(chip_trace(device_type_string="TPU v7x", **{fact: value}))
                    self.assertEqual(len(notes), value in far)
