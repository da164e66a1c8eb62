"""Test which planes and lines are read, and the ways to encode stats."""

from __future__ import annotations

import random
import unittest

from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    StatNames,
    compressed,
    double,
    encode,
    int64,
    op,
    raw,
    ref,
    tpu_plane,
    trace,
    uint64,
)
from tests.harness import ALL_MODES, answer, run, sampled
from tests.pipeline.small_steps import NO_STEPS, groups, leaf, plane, totals


class Planes(unittest.TestCase):
    def test_device_is_found_by_its_exact_name(self) -> None:
        names = ["/device:TPU:0 SparseCore 0", "/device:TPU:10", "/device:TPU:1", "/device:TPU:0"]
        data = encode(
            Space([tpu_plane([leaf(0, 1 + i)], name=name) for i, name in enumerate(names)])
        )
        self.assertEqual(answer(data, "summary")["totals"]["compute_duration_ps"], 4)
        for i, name in enumerate(names):
            fields = answer(data, "summary", "--device", name)
            self.assertEqual(fields["device"], name)
            self.assertEqual(fields["totals"]["compute_duration_ps"], 1 + i)

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

    def test_missing_ops_line_error_lists_the_available_lines(self) -> None:
        outcome = run(encode(Space([plane(Line("Steps"), Line("Async XLA Ops"))])), "summary")
        message = "compute_breakdown: no_xla_ops_line: available_lines Steps, Async XLA Ops\n"
        self.assertEqual((outcome.status, outcome.stderr), (0, message))
        self.assertEqual(outcome.object["reason"], "no_xla_ops_line")
        self.assertEqual(outcome.object["available_lines"], ["Steps", "Async XLA Ops"])

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

    def test_unknown_lines_and_planes_are_ignored(self) -> None:
        others = [
            Line(name, [Event(7, 0, 50)]) for name in ("Overlay", "Async XLA Ops", "XLA Ops 2")
        ]
        ops = Line("XLA Ops", [Event(7, 0, 5)])
        data = encode(Space([plane(*others, ops), plane(*others, name="x")]))
        step = answer(data, "summary")
        self.assertEqual((step["totals"]["n_events_total"], step["step_window_ps"]), (1, [0, 5]))


class Encodings(unittest.TestCase):
    def test_fields_can_be_in_any_order(self) -> None:
        ops = [
            op("a.1", "loop fusion", 0, 10, flops=5, bytes_accessed=7, stack="m.py:1:2"),
            op("w.1", "while", 10, 60),
            op("c.1", ref("copy-done"), 20, 30, tf_op="x"),
        ]
        space = Space([tpu_plane(ops, [("s", 0, 100)], ops_timestamp_ns=1, steps_timestamp_ns=1)])
        expected = answer(encode(space), "by_source", "--include-data-move")
        self.assertEqual(expected["step_window_ps"], [0, 100])
        shuffler = random.Random(1)
        for _ in range(10):
            data = encode(space, lambda parts: shuffler.sample(parts, len(parts)))
            shuffled = answer(data, "by_source", "--include-data-move")
            self.assertEqual(shuffled["totals"], expected["totals"])
            self.assertCountEqual(shuffled["groups"], expected["groups"])

    def test_names_of_planes_and_lines_can_follow_the_contents(self) -> None:
        line = Line(None, [Event(7, 0, 5)], extra=encode(Line("XLA Ops", timestamp_ns=2)))
        data = encode(Space([Plane(None, extra=encode(plane(line)))]))
        self.assertEqual(answer(data, "summary")["totals"]["compute_duration_ps"], 5)

    def test_ids_can_have_any_size_and_sign(self) -> None:
        for big in (2**40 + 1, 2**63 - 1, -1, -(2**63), 0):
            names = StatNames(first_id=2**41)
            category = names.stat("hlo_category", ref("loop fusion"))
            line = Line("XLA Ops", [Event(big, 0, 5)])
            fusion = EventMetadata(big, "%f = f32[] fusion()", [category])
            data = encode(Space([Plane("/device:TPU:0", [line], [fusion], names.metadata())]))
            step = answer(data, "summary")["totals"]
            self.assertEqual(step["compute_duration_ps"], 5, big)

    def test_texts_can_be_stored_as_any_stat_type(self) -> None:
        for variant in (str, ref, compressed, lambda text: raw(text.encode())):
            ops = [
                op("a", variant("copy"), 0, 5, stack=variant("m.py:3:1"), tf_op=variant("t")),
                op("b", "copy", 5, 5, source=variant("s.py:9"), shape_with_layout=variant("s8[1]")),
            ]
            self.assertEqual(totals(ops)["unknown_categories"], {})
            first, second = groups(ops)
            self.assertEqual((first["source_inner"], first["tf_op"]), ("m.py:3", "t"))
            self.assertEqual((second["source_inner"], second["shapes"]), ("s.py:9", ["s8[1]"]))

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


class SeveralLines(unittest.TestCase):
    def test_window_is_relative_to_the_base_of_the_first_ops_line(self) -> None:
        lines = [Line("XLA Ops", [Event(7, 0, 10)], timestamp_ns=t) for t in (9, 4)]
        step = answer(encode(Space([plane(*lines)])), "summary")
        self.assertEqual(step["step_window_ps"], [-5000, 10])
