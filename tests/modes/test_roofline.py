"""Test the mode `roofline`: roofs, skipped groups, kernels with a given cost, peaks and notes."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders.xspace import (
    Op,
    Space,
    StatValue,
    encode,
    memory_access_breakdown,
    op,
    tpu_plane,
    trace,
)
from tests.harness import answer, run
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
from tests.shown import text_of


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

    def test_figures_of_a_memory_bound_group_are_exact(self) -> None:
        # 1e12 flops take 0.5 s and 3 GiB take 3 s; the op ran for 7 s.
        row = self.one(matmul(0, 7 * PS, 10**12, 3 * GIB))
        expected = {
            "arithmetic_intensity": 310.4409,
            "bound": "memory",
            "t_compute_theory_ps": PS // 2,
            "t_hbm_theory_ps": 3 * PS,
            "t_roofline_theory_ps": 3 * PS,
            "mfu": 0.071429,
            "hbm_util": 0.428571,
            "roofline_util": 0.428571,
            "shortfall_ps": 4 * PS,
            "shortfall_pct": 57.143,
        }
        self.assertEqual({key: row[key] for key in expected}, expected)

    def test_shortfall_uses_the_rounded_roof_but_its_percentage_uses_the_exact_roof(self) -> None:
        # 5 flops take 2.5 ps, and 7 flops take 3.5 ps; rounding half to even gives 2 and 4.
        self.assertEqual(self.one(matmul(0, 10, 5, 1))["t_compute_theory_ps"], 2)
        peaks = ["--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9"]
        for flops, shortfall in ((5, 9), (7, 7)):
            row = self.one(matmul(0, 11, flops, 1), options=peaks)
            self.assertEqual(row["shortfall_ps"], shortfall)
        # The percentage uses the exact roof, so it is 100 - 100 * 2.5 / 10.
        self.assertEqual(self.one(matmul(0, 10, 5, 1), options=peaks)["shortfall_pct"], 75.0)

    def test_group_without_duration_has_no_utilization_and_no_weight(self) -> None:
        result = roofline([matmul(0, 0, 4, 1)], *PEAKS)
        (row,) = result["groups"]
        for key in ("mfu", "hbm_util", "roofline_util", "shortfall_pct"):
            self.assertIsNone(row[key])
        for key in ("weighted_avg_mfu", "weighted_avg_hbm_util", "weighted_avg_roofline_util"):
            self.assertIsNone(result["step_summary"][key])
        self.assertIsNone(result["step_summary"]["rooflined_pct_of_compute"])

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
        for ops, n, total, mfu in (
            ((on_roof, below, instant), 0, 0, 0.5),
            ((on_roof, below, above, instant), 1, 3, 0.5),
            ((above, instant), 1, 3, None),
            ((leaf(0, 5),), 0, 0, None),
        ):
            result = roofline(list(ops), *peaks)["step_summary"]["over_roof"]
            expected = {"n_groups": n, "total_dur_ps": total, "weighted_avg_mfu_without": mfu}
            self.assertEqual(result, expected)

    def test_averages_are_null_if_no_group_is_judged(self) -> None:
        result = roofline([leaf(0, 10)])["step_summary"]
        self.assertIsNone(result["weighted_avg_roofline_util"])
        self.assertIsNone(result["t_roofline_per_op_ps"])
        self.assertEqual((result["step_shortfall_ps"], result["rooflined_dur_ps"]), (0, 0))
        self.assertEqual(
            (result["rooflined_pct_of_compute"], result["skipped_pct_of_compute"]), (0, 100)
        )
        self.assertEqual(result["top_shortfall_groups"], [])

    def test_dtype_with_most_time_is_used_or_the_first_if_times_are_equal(self) -> None:
        for durations, dtype in (((5, 6), "fp8"), ((6, 5), "bf16"), ((5, 5), "bf16")):
            shapes = ("bf16[8]{0}", "f8e5m2[8]{0}")
            ops = [
                matmul(10 * i, dur, 4, 1, shape=shape, name=f"f.{i}")
                for i, (dur, shape) in enumerate(zip(durations, shapes, strict=True))
            ]
            self.assertEqual(self.one(*ops, options=[])["dtype"], dtype)


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

    def test_op_without_bytes_needs_no_breakdown(self) -> None:
        space = memory_access_breakdown((1, 1, 2))
        ops = [
            matmul(0, 10, 8, 2, name="a", memory_access_breakdown=space),
            matmul(10, 10, 8, 0, name="b"),
        ]
        (row,) = roofline(ops, *PEAKS, "--bytes", "hbm")["groups"]
        self.assertEqual((row["hbm_bytes_sum"], row["n_executions"]), (2, 2))

    def test_group_is_not_skipped_if_the_peak_for_its_dtype_is_given(self) -> None:
        for dtype, shape in (("fp32", "f32[8]"), ("fp16", "f16[8]")):
            options = [f"--peak-tflops-{dtype}", "70"]
            self.assertIsNone(self.reason(*options, flops=1, bytes_accessed=1, shape=shape))

    def test_skipped_group_shows_the_signature_with_most_time(self) -> None:
        ops = [leaf(0, 5, "a.1"), leaf(5, 4, "b.1"), leaf(10, 3, "b.2")]
        (row,) = roofline(ops)["skipped_groups"]["top_skipped"]
        self.assertEqual(row["top_signature"], "b [loop fusion]")
        self.assertTrue(row["example_hlo_op"].startswith("%a.1 ="))

    def test_skipped_group_has_hbm_utilization_if_bytes_and_duration_are_known(self) -> None:
        # The HBM peak is 2**30 bytes per second.
        facts: dict[str, Any] = {"stack": HERE, "bytes_accessed": 2**30 // 10**9}
        for op_, util in (
            (leaf(0, 10**3, shape="f32[8]{0}", flops=8, **facts), 2**30 // 10**9 / 2**30 * 1e9),
            (leaf(0, 10**3, shape="s32[8]{0}", flops=8, **facts), 2**30 // 10**9 / 2**30 * 1e9),
            (leaf(0, 10**3, shape="bf16[8]{0}", stack=HERE, flops=8), None),
            (leaf(0, 0, shape="f32[8]{0}", flops=8, **facts), None),
            # XLA does not know the bytes of a kernel.
            (kernel(0, 10**3, bytes_accessed=0), None),
        ):
            (row,) = roofline([op_], *PEAKS)["skipped_groups"]["top_skipped"]
            self.assertEqual(row["hbm_util"], None if util is None else round(util, 6))
        (row,) = roofline([leaf(0, 10**3, flops=8, **facts)], *PEAKS, "--bytes", "hbm")[
            "skipped_groups"
        ]["top_skipped"]
        self.assertIsNone(row["hbm_util"])


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

    def test_opaque_time_is_listed_as_skipped(self) -> None:
        result = roofline([*self.OPS, leaf(300, 1, stack=HERE)])
        self.assertEqual(result["skipped_groups"]["n_no_flops"], 1)
        (row,) = result["skipped_groups"]["top_skipped"]
        self.assertEqual((row["reason"], row["total_dur_ps"]), ("opaque", 150))
        self.assertEqual((row["source_inner"], row["tf_op"]), ("m.py:1", "first"))
        self.assertEqual(row["top_signature"], "custom-call:tpu_custom_call")

    def test_custom_call_without_flops_is_opaque(self) -> None:
        for target in ("ConcatBitcast", ""):
            ops = [op("x", "custom-call", 0, 5, attributes=f', custom_call_target="{target}"')]
            (row,) = roofline(ops)["skipped_groups"]["top_skipped"]
            self.assertEqual(row["reason"], "opaque")


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
        self.assertEqual(result["skipped_groups"]["n_no_flops"], 1)
        self.assertEqual(result["skipped_groups"]["total_dur_ps_skipped"], 50)
        # Judged groups take 410 of 460 ps.
        self.assertEqual(result["step_summary"]["rooflined_pct_of_compute"], 89.13)

    def test_cost_of_zero_leaves_the_kernel_out(self) -> None:
        result = roofline(list(self.OPS), *self.PEAKS, "--kernel-cost", "flash=0,0")
        (row,) = result["groups"]
        self.assertEqual((row["kernel"], row["kernel_dur_ps"], row["total_dur_ps"]), (None, 0, 10))
        self.assertEqual(result["skipped_groups"]["total_dur_ps_skipped"], 450)

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

    def test_kernel_with_zero_flops_or_bytes_is_skipped(self) -> None:
        for cost, reason in (("0,1", "no_flops"), ("1,0", "no_bytes")):
            result = roofline([kernel(0, 5)], "--kernel-cost", f"flash={cost}")["skipped_groups"]
            self.assertEqual(column(result["top_skipped"], "reason"), [reason])

    def test_unknown_kernel_is_rejected_and_known_kernels_are_listed(self) -> None:
        for cost in ("flash.1=1,1", "lash=1,1", "flash=x=1,1"):
            outcome = run(trace(list(self.OPS)), "roofline", "--kernel-cost", cost)
            self.assertEqual((outcome.status, outcome.stderr.count("\n")), (1, 1))
            self.assertEqual(outcome.object["reason"], "kernel_not_found")
            self.assertEqual(outcome.object["available_kernels"], ["flash", "other"])


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
        self.assertIn("and the roof of 5 ps is unknown.", result["headline"])
        alone = answer(trace(ops[1:]), "roofline")["step_summary"]
        self.assertIsNone(alone["t_roofline_per_op_ps"])
        self.assertIsNone(alone["shortfall_per_op_ps"])

    def test_text_marks_a_group_faster_than_its_roof(self) -> None:
        for flops, n in ((8, 0), (40, 1)):
            result = roofline([matmul(0, 10, flops, 1)], "--peak-tflops-bf16", "2",
                              "--peak-hbm-gibps", "1e9")  # fmt: skip
            self.assertEqual(text_of(result, "utf-8").count("(faster than its roof)"), n)

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

    def test_ridge_points_are_listed_for_known_peaks(self) -> None:
        used = self.peaks("--peak-tflops-fp32", "1", "--peak-hbm-gibps", "1")
        self.assertEqual(
            used["ridge_points"], {"bf16": 1074280.5898, "fp8": 2148561.1796, "fp32": 931.3226}
        )

    def test_profile_peaks_are_used_if_requested(self) -> None:
        data = chip_trace(
            device_type_string="TPU v6 Lite",
            peak_teraflops_per_second=918.0,
            peak_hbm_bw_gigabytes_per_second=1073.741824,
        )
        used = self.peaks("--chip", "profile", data=data)
        self.assertEqual(used["peak_tflops_bf16"], 918.0)
        self.assertEqual(used["peak_hbm_gibps"], 1000.0)
        self.assertIsNone(used["peak_tflops_fp8"])
        used = self.peaks("--chip", "profile", "--peak-hbm-gibps", "5", data=data)
        self.assertEqual((used["peak_tflops_bf16"], used["peak_hbm_gibps"]), (918.0, 5.0))

    def test_peaks_are_unknown_if_the_profile_has_no_peaks(self) -> None:
        for facts in ({}, {"peak_teraflops_per_second": 0.0}, {"peak_teraflops_per_second": 5.0}):
            result = answer(chip_trace(**facts), "roofline", "--chip", "profile")
            self.assertEqual(result["skipped_groups"]["n_peak_unknown_for_dtype"], 1)
            self.assertEqual(result["peaks_used"]["ridge_points"], {})

    def test_ridge_point_that_overflows_a_float_is_omitted(self) -> None:
        peaks = ["--peak-hbm-gibps", "5e-324", "--peak-tflops-bf16", "1e308"]
        result = answer(chip_trace(matmul(0, 1, 8, 8)), "roofline", *peaks)
        self.assertNotIn("bf16", result["peaks_used"]["ridge_points"])
        self.assertEqual(result["groups"], [])
        self.assertEqual(result["skipped_groups"]["n_peak_unknown_for_dtype"], 1)


class RooflineNotes(unittest.TestCase):
    def notes(self, data: bytes, *options: str) -> list[str]:
        notes: list[str] = answer(data, "roofline", "--step", "0", *options)["notes"]
        return notes

    def test_trace_that_matches_the_peaks_causes_no_note(self) -> None:
        data = chip_trace(matmul(0, 9, 8, 2, model_flops=8), device_type_string="TPU v7x")
        self.assertEqual(self.notes(data), [])

    def test_groups_over_their_roof_are_noted(self) -> None:
        peaks = ["--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1e9"]
        ops = [
            matmul(0, 4, 8, 1, stack="m.py:1:1"),  # Exactly at its roof.
            matmul(10, 3, 8, 1, stack="m.py:2:1"),
            matmul(20, 2, 8, 1, stack="m.py:3:1"),
            # This group has no duration and so no utilization.
            matmul(30, 0, 8, 1, stack="m.py:4:1"),
        ]
        v7x = ["--chip", "v7x", *peaks]
        without_line = [*ops, matmul(40, 1, 8, 1, tf_op="x", stack=None)]
        four = [matmul(10 * i, 1 + i % 3, 90, 1, stack=f"{i}.py:1:1") for i in range(4)]
        for trace_of, n, names in (
            (ops, 2, "m.py:2, m.py:3"),
            (without_line, 3, "m.py:2, m.py:3, tfop:x"),
            # Up to three groups are listed, by time and then by key.
            (four, 4, "2.py:1, 1.py:1, 3.py:1, …"),
        ):
            (note,) = self.notes(chip_trace(*trace_of), *v7x)
            self.assertEqual(
                note,
                f"roofline_util exceeds 1 in {n} groups, because a dtype, a peak or a flop count is"
                f" wrong: {names}",
            )
        self.assertEqual(self.notes(chip_trace(ops[0]), *v7x), [])

    def test_note_reports_groups_whose_model_flops_differ_from_flops(self) -> None:
        ops = [
            matmul(0, 9, 8, 1, stack="m.py:1:1", model_flops=7),
            matmul(10, 9, 8, 1, stack="m.py:2:1", model_flops=8),
            matmul(20, 9, 8, 1, stack="m.py:3:1"),
        ]
        (note,) = self.notes(chip_trace(*ops), "--chip", "v7x")
        self.assertTrue("1 group" in note, note)
        self.assertIn("model_flops_sum", note)

    def test_note_reports_peaks_of_a_different_generation(self) -> None:
        own = {"peak_teraflops_per_second": 139.8, "peak_hbm_bw_gigabytes_per_second": 614.4}
        for device_type, chip, facts in (
            ("TPU v6 Lite", "v6e", {}),
            ("tpu V6E", "v6e", {}),
            ("TPU v4", "v4", own),
            ("TPU v5", "v5p", {}),
        ):
            with self.subTest(device_type=device_type):
                data = chip_trace(device_type_string=device_type, **facts)
                self.assertEqual(answer(data, "roofline")["chip"], chip)
                self.assertEqual(
                    self.notes(data),
                    [
                        f"the trace is of a {device_type!r}; using the peaks of {chip}"
                        " (--chip selects others)"
                    ],
                )
                # Peaks that the user selected cause no note.
                self.assertEqual(self.notes(data, "--chip", chip), [])
                note = self.notes(data, "--chip", "v7x")[0]
                self.assertEqual(
                    note,
                    f"the trace is of a {device_type!r}, but the peaks of v7x are used;"
                    f" pass --chip {chip}",
                )
        self.assertEqual(self.notes(data, "--chip", "profile"), [])

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

    def test_note_reports_that_the_vendor_states_another_hbm_peak_for_v7x(self) -> None:
        def note(*options: str) -> str:
            gbps = {"peak_hbm_bw_gigabytes_per_second": 3690.0}
            (only,) = self.notes(chip_trace(device_type_string="TPU v7x", **gbps), *options)
            return only

        self.assertEqual(
            note(),
            "using an HBM peak of 3690 GiB/s per device; for the vendor's 3436.6, pass"
            " --peak-hbm-gibps 3436.6",
        )
        self.assertEqual(
            note("--peak-hbm-gibps", "1000"),
            "the trace says that the HBM peak is 3436.58 GiB/s, but 1000 is used",
        )
