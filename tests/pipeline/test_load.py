"""Test which planes and lines are read, and the ways to encode stats."""

from __future__ import annotations

import unittest

from tests.builders.xspace import Plane, Space, double, encode, int64, op, tpu_plane, trace, uint64
from tests.harness import ALL_MODES, answer, run, sampled
from tests.pipeline.small_steps import NO_STEPS, groups, leaf


class Planes(unittest.TestCase):
    def test_missing_device_error_lists_the_available_devices(self) -> None:
        data = encode(Space([Plane("/host:CPU"), tpu_plane([leaf(0, 1)], name="/device:TPU:1")]))
        outcome = run(data, "summary")
        message = "compute_breakdown: device_not_found: available_devices /device:TPU:1\n"
        self.assertEqual((outcome.status, outcome.stderr), (0, message))
        self.assertEqual(outcome.object["reason"], "device_not_found")
        self.assertEqual(outcome.object["available_devices"], ["/device:TPU:1"])
        self.assertNotIn("detail", outcome.object)

    def test_capture_without_a_tpu_is_rejected_with_the_hardware_it_contains(self) -> None:
        gpus = ["/device:GPU:1", "/device:GPU:0", "/device:CUSTOM:Megascale Trace"]
        modes = [mode for mode in ALL_MODES if mode not in ("anatomy", "compare")]
        for planes, devices, words in (
            ([], [], "the file has no planes, so it is probably not a capture;"),
            (["/host:CPU", "Task Environment"], [], "the capture is of CPU, not of a TPU;"),
            (
                ["/host:CPU", "/device:GPU:0"],
                ["/device:GPU:0"],
                "the capture is of GPU, not of a TPU;",
            ),
            (gpus, gpus, "the capture is of GPU and CUSTOM, not of a TPU;"),
        ):
            data = encode(Space([Plane(name) for name in planes], ["host"]))
            for mode in sampled(modes, 5):
                with self.subTest(planes=planes, mode=mode):
                    needed = ["--out=step"] if mode in ("page", "export") else []
                    outcome = run(data, mode, *needed)
                    self.assertEqual(outcome.status, 0)
                    self.assertEqual(outcome.object["reason"], "device_not_found")
                    self.assertEqual(outcome.object["available_devices"], devices)
                    for message in (outcome.object["detail"], outcome.stderr):
                        self.assertIn(words, message)
                        self.assertIn("--mode anatomy", message)
                        self.assertNotIn("did you mean", message)

    def test_device_without_valid_ops_and_steps_has_no_answer(self) -> None:
        for steps in NO_STEPS:
            outcome = run(trace([], steps), "summary")
            self.assertEqual(outcome.object["reason"], "empty_xla_ops_line")
            message = "compute_breakdown: empty_xla_ops_line\n"
            self.assertEqual((outcome.status, outcome.stderr), (0, message))
        outcome = run(trace([op("f.1", "call", 0, -1)]), "summary")
        self.assertEqual(outcome.object["reason"], "empty_xla_ops_line")

    def test_step_without_ops_is_idle(self) -> None:
        step = answer(trace([], [("a", 10, 90)]), "summary")["totals"]
        self.assertEqual((step["idle_duration_ps"], step["busy_duration_ps"]), (90, 0))


class Encodings(unittest.TestCase):
    def test_counts_can_have_any_numeric_type_but_are_null_if_impossible(self) -> None:
        for value, expected in (
            *((double(12.0), 12), (uint64(12), 12), (int64(12), 12)),
            *((int64(-1), None), (double(-1.0), None), (double(float("nan")), None)),
            *((double(float("inf")), None), (double(float("-inf")), None), (double(2.0**63), None)),
            *((uint64(2**63), None), (uint64(2**64 - 1), None), ("12", None)),
            *((uint64(2**63 - 1), 2**63 - 1), (int64(0), 0), (double(0.0), 0)),
        ):
            with self.subTest(value=value):
                ops = [op("f", "dot", 0, 5, flops=value, bytes_accessed=value, model_flops=value)]
                (row,) = groups(ops)
                for field in ("flops_sum", "bytes_accessed_sum", "model_flops_sum"):
                    self.assertEqual(row[field], expected, field)
