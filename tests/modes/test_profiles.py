"""Compare answers for real captures with figures from other tools or from the captured programs.

tests/naive/invariants.py checks the invariants of all answers for the same captures.
"""

from __future__ import annotations

import functools
import unittest
from pathlib import Path

from tests.harness import DEMO, OFFLOADING, PALLAS, Json, answer

MS = 10**9


@functools.cache
def result_of(path: Path, mode: str, *options: str) -> Json:
    return answer(path, mode, *options)


def tearDownModule() -> None:
    result_of.cache_clear()


class Demo(unittest.TestCase):
    """Test a dense transformer's training step, compiled for TPU7x."""

    def result(self, mode: str, *options: str) -> Json:
        return result_of(DEMO, mode, "--step", "0", *options)

    def test_every_category_is_known_and_leaf_ops_do_not_overlap(self) -> None:
        totals = self.result("summary")["totals"]
        self.assertEqual(totals["unknown_categories"], {})
        self.assertEqual((totals["n_events_unresolved"], totals["n_events_other"]), (0, 0))
        self.assertEqual(totals["busy_duration_ps"], totals["non_while_duration_ps_sum"])

    def test_step_of_median_duration_is_picked(self) -> None:
        for device in ("/device:TPU:0", "/device:TPU:1"):
            result = result_of(DEMO, "summary", "--device", device)
            self.assertEqual([step["name"] for step in result["steps"]], ["100", "101", "102"])
            by_length = sorted(result["steps"], key=lambda step: step["duration_ps"])
            self.assertEqual((result["step_id"], by_length[1]["index"]), (1, 1))
            self.assertIn(
                "auto-picked the busiest step (index 1, 1493 of 4479 ops in 3 steps;"
                " median of 3 equally busy)",
                result["notes"],
            )


@unittest.skipUnless(OFFLOADING.exists(), "the capture is not available")
class Offloading(unittest.TestCase):
    """Test a TPU v6e capture that has no steps, computes in fp32, and mostly waits for host copies.

    On the inaccurate trace clock, executions of one program last from 551 to 981 ms.
    """

    devices = tuple(f"/device:TPU:{device}" for device in range(4))

    def of_all_steps(self, mode: str, device: str = devices[0], *options: str) -> Json:
        return result_of(OFFLOADING, mode, "--device", device, "--step", "all", *options)

    def test_total_times_of_ops_equal_those_in_xprof(self) -> None:
        """Compare total times with XProf's op table, which sums the times of all devices."""
        by_device = [
            {
                row["hlo_op"]: row["total_dur_ps"]
                for row in self.of_all_steps("by_op", device)["ops"]
            }
            for device in self.devices
        ]
        for name, ms in (
            *(("copy-done.2", 77_643), ("copy-done.4", 77_773)),
            ("broadcast_add_fusion", 3_191),
        ):
            totals = [totals[name] for totals in by_device]
            self.assertEqual(round(sum(totals) / MS), ms, name)
            mean = sum(totals) / 4
            self.assertLess(max(abs(total - mean) for total in totals), 0.001 * mean, name)

    def test_device_mostly_waits_for_copies_to_the_host(self) -> None:
        result = self.of_all_steps("summary")
        row, wait = result["by_hlo_category"][0], 76_009_515_471_250
        found = (row["hlo_category"], row["kind"], row["total_dur_ps"])
        self.assertEqual(found, ("copy-done", "data_move", wait))
        self.assertEqual(result["totals"]["wait_duration_ps"], wait)
        self.assertEqual(result["comm_rollup"][0]["waits_for"], "host")


@unittest.skipUnless(PALLAS.exists(), "the capture is not available")
class PallasKernel(unittest.TestCase):
    """Test a TPU v6e capture of April 2026 with regions inside a Pallas kernel."""

    def test_flops_and_bytes_on_events_of_a_kernel_are_ignored(self) -> None:
        """Ignore counts that exclude the kernel's loops: they show 1.08e9 of 8.59e9 flops."""
        for window in ((), ("--step", "all")):
            (row,) = result_of(PALLAS, "by_op", *window)["ops"]
            figures = ("flops", "bytes_accessed", "hbm_bytes", "cost_source")
            self.assertEqual([row[name] for name in figures], [None] * 4)
        options = ("--plane", "0", "--line", "XLA Ops", "--sample", "1")
        (line,) = result_of(PALLAS, "anatomy", *options)["planes"][0]["lines"]
        self.assertEqual(line["sample"][0]["stats"]["flops"], 1076887552)

    def test_memory_peak_and_kernel_of_the_program_are_found(self) -> None:
        memory = result_of(PALLAS, "memory")
        self.assertEqual(memory["peak_bytes"], 32 << 20)
        by_kind = memory["by_kind"]
        self.assertEqual((by_kind["parameter"], by_kind["output"]), (16 << 20,) * 2)
        (kernel,) = result_of(PALLAS, "program")["kernels"]
        figures = (kernel["kernel"], kernel["vmem_used_bytes"])
        self.assertEqual(figures, ("matmul_optimized", 9 << 20))

    def test_kernel_waits_for_its_input_three_quarters_of_the_time(self) -> None:
        (row,) = result_of(PALLAS, "kernel")["kernels"]
        self.assertEqual((row["kernel"], row["n_executions"]), ("matmul_optimized", 1))
        figures = ("total_dur_ps", "waiting_ps", "waiting_pct", "computing_ps")
        self.assertEqual([row[name] for name in figures], [75785000, 57990000, 76.519, 14492500])
        self.assertEqual(
            [
                (region["region"], region["depth"], region["n"], region["total_dur_ps"])
                for region in row["regions"]
            ],
            [
                ("ep_wait_in", 0, 32, 57936250),
                ("ep_run_kernel", 0, 16, 14492500),
                ("init", 1, 8, 7236250),
                ("acc", 1, 8, 7201250),
                ("ep_finalize", 0, 1, 1785000),
                ("ep_copy_in", 0, 30, 517500),
                ("ep_copy_out", 0, 8, 101250),
                ("ep_wait_out", 0, 7, 53750),
                ("ep_initialize_0", 0, 1, 7500),
                ("ep_initialize_1", 0, 1, 5000),
            ],
        )
        self.assertEqual(sum(region["n"] for region in row["regions"]), 112)
