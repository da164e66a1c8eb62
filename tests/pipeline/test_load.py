"""What is read of a file: planes, encodings of facts, lines of one name."""

from __future__ import annotations

import random
import unittest

from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Plane,
    Space,
    Stat,
    StatMetadata,
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
from tests.harness import ALL_MODES, answer, run
from tests.pipeline.small_steps import NO_STEPS, groups, leaf, plane, totals


class Planes(unittest.TestCase):
    def test_the_device_is_chosen_by_its_exact_name(self) -> None:
        names = ["/device:TPU:0 SparseCore 0", "/device:TPU:10", "/device:TPU:1", "/device:TPU:0"]
        data = encode(
            Space([tpu_plane([leaf(0, 1 + i)], name=name) for i, name in enumerate(names)])
        )
        self.assertEqual(answer(data, "summary")["totals"]["compute_duration_ps"], 4)
        for i, name in enumerate(names):
            with self.subTest(name=name):
                picked = answer(data, "summary", "--device", name)
                self.assertEqual(picked["device"], name)
                self.assertEqual(picked["totals"]["compute_duration_ps"], 1 + i)

    def test_a_device_that_is_not_there(self) -> None:
        data = encode(Space([Plane("/host:CPU"), tpu_plane([leaf(0, 1)], name="/device:TPU:1")]))
        outcome = run(data, "summary")
        self.assertEqual(outcome.status, 0)
        self.assertEqual(
            outcome.stderr,
            "compute_breakdown: device_not_found: available_devices /device:TPU:1\n",
        )
        self.assertEqual(outcome.object["reason"], "device_not_found")
        self.assertEqual(outcome.object["available_devices"], ["/device:TPU:1"])
        self.assertNotIn("detail", outcome.object)

    def test_a_capture_of_another_device_says_so(self) -> None:
        """In every mode that wants a TPU."""
        for planes, devices, words in (
            (["/host:CPU", "Task Environment"], [], "a capture of a host (CPU) alone:"),
            ([], [], "a capture of a host (CPU) alone:"),
            (["/host:CPU", "/device:GPU:0"], ["/device:GPU:0"], "a capture of GPU, not of a TPU:"),
            (
                ["/device:GPU:1", "/device:GPU:0", "/device:CUSTOM:Megascale Trace"],
                ["/device:GPU:1", "/device:GPU:0", "/device:CUSTOM:Megascale Trace"],
                "a capture of GPU and CUSTOM, not of a TPU:",
            ),
        ):
            data = encode(Space([Plane(name) for name in planes], ["host"]))
            for mode in ALL_MODES:
                if mode in ("anatomy", "compare"):
                    continue
                with self.subTest(planes=planes, mode=mode):
                    outcome = run(data, mode, *(["--out=step.html"] if mode == "page" else []))
                    self.assertEqual(outcome.status, 0)
                    self.assertEqual(outcome.object["reason"], "device_not_found")
                    self.assertEqual(outcome.object["available_devices"], devices)
                    for told in (outcome.object["detail"], outcome.stderr):
                        self.assertIn(words, told)
                        self.assertIn("--mode anatomy", told)

    def test_of_two_planes_of_one_name_the_first(self) -> None:
        data = encode(Space([tpu_plane([leaf(0, 1)]), tpu_plane([leaf(0, 2)])]))
        self.assertEqual(answer(data, "summary")["totals"]["compute_duration_ps"], 1)

    def test_a_device_without_an_ops_line(self) -> None:
        outcome = run(encode(Space([plane(Line("Steps"), Line("Async XLA Ops"))])), "summary")
        self.assertEqual(outcome.status, 0)
        self.assertEqual(
            outcome.stderr,
            "compute_breakdown: no_xla_ops_line: available_lines Steps, Async XLA Ops\n",
        )
        self.assertEqual(outcome.object["reason"], "no_xla_ops_line")
        self.assertEqual(outcome.object["available_lines"], ["Steps", "Async XLA Ops"])

    def test_no_op_and_no_step_is_nothing_to_measure(self) -> None:
        for steps in NO_STEPS:
            outcome = run(trace([], steps), "summary")
            self.assertEqual(outcome.object["reason"], "empty_xla_ops_line")
            said = "compute_breakdown: empty_xla_ops_line\n"
            self.assertEqual((outcome.status, outcome.stderr), (0, said))

    def test_a_step_without_ops_is_measured(self) -> None:
        step = answer(trace([], [("a", 10, 90)]), "summary")
        self.assertEqual(step["totals"]["idle_duration_ps"], 90)
        self.assertEqual(step["totals"]["busy_duration_ps"], 0)

    def test_other_lines_and_planes_count_nothing(self) -> None:
        others = [
            Line(name, [Event(7, 0, 50)]) for name in ("Overlay", "Async XLA Ops", "XLA Ops 2")
        ]
        data = encode(
            Space([plane(*others, Line("XLA Ops", [Event(7, 0, 5)])), plane(*others, name="x")])
        )
        self.assertEqual(answer(data, "summary")["totals"]["n_events_total"], 1)
        self.assertEqual(answer(data, "summary")["step_window_ps"], [0, 5])


class Encodings(unittest.TestCase):
    def test_fields_come_in_any_order(self) -> None:
        ops = [
            op("a.1", "loop fusion", 0, 10, flops=5, bytes_accessed=7, stack="m.py:1:2"),
            op("w.1", "while", 10, 60),
            op("c.1", ref("copy-done"), 20, 30, tf_op="x"),
        ]
        plane = tpu_plane(ops, [("s", 0, 100)], ops_timestamp_ns=1, steps_timestamp_ns=1)
        expected = answer(encode(Space([plane])), "by_source", "--include-data-move")
        self.assertEqual(expected["step_window_ps"], [0, 100])
        shuffler = random.Random(1)
        for arrange in (
            lambda parts: parts[::-1],
            *[lambda parts: shuffler.sample(parts, len(parts))] * 10,
        ):
            data = encode(Space([plane]), arrange)
            shuffled = answer(data, "by_source", "--include-data-move")
            self.assertEqual(shuffled["totals"], expected["totals"])
            for row in expected["groups"]:
                self.assertIn(row, shuffled["groups"])

    def test_names_may_follow_what_they_name(self) -> None:
        line = Line(None, [Event(7, 0, 5)], extra=encode(Line("XLA Ops", timestamp_ns=2)))
        data = encode(Space([Plane(None, extra=encode(plane(line)))]))
        self.assertEqual(answer(data, "summary")["totals"]["compute_duration_ps"], 5)

    def test_ids_of_any_size_and_sign(self) -> None:
        for big in (2**40 + 1, 2**63 - 1, -1, -(2**63), 0):
            with self.subTest(id=big):
                names = StatNames(first_id=2**41)
                fusion = EventMetadata(
                    big, "%f = f32[] fusion()", [names.stat("hlo_category", ref("loop fusion"))]
                )
                space = Space(
                    [
                        Plane(
                            "/device:TPU:0",
                            [Line("XLA Ops", [Event(big, 0, 5)])],
                            [fusion],
                            names.metadata(),
                        )
                    ]
                )
                self.assertEqual(
                    answer(encode(space), "summary")["totals"]["compute_duration_ps"], 5
                )

    def test_a_category_in_any_variant(self) -> None:
        category = "loop fusion"
        for value in (category, ref(category), compressed(category), raw(category.encode())):
            with self.subTest(value=value):
                step = totals([op("f", value, 0, 5)])
                self.assertEqual((step["n_events_compute"], step["unknown_categories"]), (1, {}))

    def test_texts_in_any_variant(self) -> None:
        for variant in (ref, compressed, lambda text: raw(text.encode())):
            ops = [
                op("a", "copy", 0, 5, stack=variant("m.py:3:1"), tf_op=variant("t")),
                op("b", "copy", 5, 5, source=variant("s.py:9"), shape_with_layout=variant("s8[1]")),
            ]
            stack, none = groups(ops)
            self.assertEqual((stack["source_inner"], stack["tf_op"]), ("m.py:3", "t"))
            self.assertEqual((none["source_inner"], none["shapes"]), ("s.py:9", ["s8[1]"]))

    def test_numbers_in_any_variant(self) -> None:
        for value in (double(12.0), uint64(12), int64(12)):
            with self.subTest(value=value):
                (row,) = groups(
                    [op("f", "dot", 0, 5, flops=value, bytes_accessed=value, model_flops=value)]
                )
                self.assertEqual(
                    (row["flops_sum"], row["bytes_accessed_sum"], row["model_flops_sum"]),
                    (12, 12, 12),
                )

    def test_impossible_counts_are_absent(self) -> None:
        for value, expected in (
            *((int64(-1), None), (double(-1.0), None), (double(float("nan")), None)),
            *((double(float("inf")), None), (double(float("-inf")), None), (double(2.0**63), None)),
            *((uint64(2**63), None), (uint64(2**64 - 1), None), ("12", None)),
            *((uint64(2**63 - 1), 2**63 - 1), (int64(0), 0), (double(0.0), 0)),
        ):
            with self.subTest(value=value):
                (row,) = groups(
                    [op("f", "dot", 0, 5, flops=value, bytes_accessed=value, model_flops=value)]
                )
                self.assertEqual(
                    (row["flops_sum"], row["bytes_accessed_sum"], row["model_flops_sum"]),
                    (expected,) * 3,
                )

    def test_stats_without_a_name_or_a_value_say_nothing(self) -> None:
        stats = [
            Stat(None),
            Stat(3),
            Stat(99, ref(4)),
            Stat(None, ref(4)),
            Stat(3, ref(98)),
            Stat(5, ref(4)),
        ]
        for named in (stats, [*stats, Stat(3, ref(4))]):
            data = encode(
                Space([plane(Line("XLA Ops", [Event(7, 0, 5, stats=stats)]), stats=named)])
            )
            unknown = {} if len(named) > len(stats) else {"<none>": 1}
            self.assertEqual(answer(data, "summary")["totals"]["unknown_categories"], unknown)

    def test_of_two_stats_of_one_name_the_last_counts(self) -> None:
        stats = [Stat(3, ref(5)), Stat(3, ref(4))]
        for named, n_compute in ((stats, 1), (stats[::-1], 0), ([*stats, Stat(3)], 1)):
            data = encode(Space([plane(Line("XLA Ops", [Event(7, 0, 5)]), stats=named)]))
            self.assertEqual(answer(data, "summary")["totals"]["n_events_compute"], n_compute)

    def test_an_op_s_time_is_that_of_its_device_stats(self) -> None:
        space = Space([tpu_plane([leaf(10, 5)])])
        names = space.planes[0].stat_metadata
        names += [StatMetadata(50, "device_offset_ps"), StatMetadata(51, "device_duration_ps")]
        event = space.planes[0].lines[0].events[0]
        event.stats = [Stat(50, uint64(70)), Stat(51, uint64(90))]
        step = answer(encode(space), "summary")
        self.assertEqual((step["clock"], step["step_window_ps"]), ("device", [70, 160]))


class TwoLines(unittest.TestCase):
    def test_lines_of_one_name_are_one_timeline(self) -> None:
        # 5 ns + 1000 ps on the base of the first line is 3 ns + 3000 ps on that of the other.
        first = Line("XLA Ops", [Event(7, 1000, 10), Event(7, 5000, 10)], timestamp_ns=5)
        second = Line(
            "XLA Ops", [Event(7, 3000, 10), Event(7, 3005, 10), Event(7, 8000, 10)], timestamp_ns=3
        )
        step = answer(encode(Space([plane(first, second)])), "summary")
        self.assertEqual(step["step_window_ps"], [1000, 6010])
        self.assertEqual(step["totals"]["n_events_total"], 5)
        self.assertEqual(step["totals"]["compute_duration_ps"], 50)
        # 1000 to 1015, 5000 to 5010, 6000 to 6010
        self.assertEqual(step["totals"]["busy_duration_ps"], 35)

    def test_steps_have_a_base_of_their_own(self) -> None:
        ops = Line("XLA Ops", [Event(7, 500, 10), Event(7, 1500, 10)], timestamp_ns=1)
        steps = Line("Steps", [Event(7, 0, 1000)], timestamp_ns=2)
        for lines in ((steps, ops), (ops, steps)):
            step = answer(encode(Space([plane(*lines)])), "summary")
            self.assertEqual(step["step_window_ps"], [1000, 2000])
            self.assertEqual(step["totals"]["n_events_total"], 1)
            self.assertEqual(step["idle_gaps"][0]["start_ps"], 1000)

    def test_the_window_is_on_the_base_of_the_first_ops_line(self) -> None:
        lines = [Line("XLA Ops", [Event(7, 0, 10)], timestamp_ns=t) for t in (9, 4)]
        step = answer(encode(Space([plane(*lines)])), "summary")
        self.assertEqual(step["step_window_ps"], [-5000, 10])


if __name__ == "__main__":
    unittest.main()
