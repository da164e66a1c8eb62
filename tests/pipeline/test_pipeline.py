"""From bytes to a normalized step: what is loaded, picked, admitted, enclosed and grouped."""

from __future__ import annotations

import hashlib
import random
import time
import unittest
from typing import Any

from tests.builders.xspace import (
    Event,
    EventMetadata,
    Line,
    Op,
    Plane,
    Space,
    Stat,
    StatMetadata,
    StatNames,
    StatValue,
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
from tests.harness import answer, run

Steps = list[tuple[str, int, int]]
NO_STEPS: tuple[Steps | None, ...] = (None, [])
NO_OP = "no op starts in this step: it shows idle time only"


def leaf(start: int, dur: int, name: str = "f.1") -> Op:
    return op(name, "loop fusion", start, dur)


def totals(ops: list[Op], steps: Steps | None = None) -> dict[str, Any]:
    of_step: dict[str, Any] = answer(trace(ops, steps), "summary")["totals"]
    return of_step


def groups(ops: list[Op]) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = answer(
        trace(ops), "by_source", "--include-data-move", "--include-comm"
    )["groups"]
    return rows


def plane(
    *lines: Line, name: str | None = "/device:TPU:0", stats: list[Stat] | None = None
) -> Plane:
    """A plane whose metadata entry 7 is a loop fusion; stat metadata 3 is hlo_category."""
    fusion = EventMetadata(7, "%f.1 = f32[8]{0} fusion(f32[8]{0} %a)", stats or [Stat(3, ref(4))])
    return Plane(
        name,
        list(lines),
        [fusion],
        [StatMetadata(3, "hlo_category"), StatMetadata(4, "loop fusion"), StatMetadata(5, "while")],
    )


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
        self.assertEqual((outcome.status, outcome.stderr), (0, ""))
        self.assertEqual(outcome.object["reason"], "device_not_found")
        self.assertEqual(outcome.object["available_devices"], ["/host:CPU", "/device:TPU:1"])

    def test_of_two_planes_of_one_name_the_first(self) -> None:
        data = encode(Space([tpu_plane([leaf(0, 1)]), tpu_plane([leaf(0, 2)])]))
        self.assertEqual(answer(data, "summary")["totals"]["compute_duration_ps"], 1)

    def test_a_device_without_an_ops_line(self) -> None:
        outcome = run(encode(Space([plane(Line("Steps"), Line("Async XLA Ops"))])), "summary")
        self.assertEqual((outcome.status, outcome.stderr), (0, ""))
        self.assertEqual(outcome.object["reason"], "no_xla_ops_line")
        self.assertEqual(outcome.object["available_lines"], ["Steps", "Async XLA Ops"])

    def test_no_op_and_no_step_is_nothing_to_measure(self) -> None:
        for steps in NO_STEPS:
            outcome = run(trace([], steps), "summary")
            self.assertEqual(outcome.object["reason"], "empty_xla_ops_line")
            self.assertEqual((outcome.status, outcome.stderr), (0, ""))

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


class StepPick(unittest.TestCase):
    OPS = tuple(leaf(t, 1) for t in (5, 15, 16, 25, 26, 90))
    STEPS: Steps = [("a", 0, 10), ("b", 10, 10), ("c", 20, 10), ("d", 30, 10)]  # noqa: RUF012

    def pick(self, *options: str, steps: Steps | None = None) -> dict[str, Any]:
        return answer(
            trace(list(self.OPS), self.STEPS if steps is None else steps), "summary", *options
        )

    def test_the_busiest(self) -> None:
        step = self.pick(steps=[("a", 0, 10), ("b", 10, 16), ("c", 26, 10)])
        self.assertEqual((step["step_id"], step["step_name"]), (1, "b"))
        self.assertEqual((step["step_window_ps"], step["step_duration_ps"]), ([10, 26], 16))
        self.assertEqual(step["step_source"], "steps")
        self.assertEqual(
            step["notes"],
            ["auto-picked busiest step (idx=1, n_xla_ops_events=3 of 6 in 3 steps)"],
        )

    def test_of_steps_as_busy_the_typical(self) -> None:
        """By duration, then start, the one in the middle; of two middle ones the shorter."""
        for durations, typical in (
            ((10, 10), 0),
            ((10, 9), 1),
            ((9, 10), 0),
            ((10, 10, 10), 1),
            ((8, 10, 9), 2),
            ((10, 8, 9), 2),
            ((9, 8, 10), 0),
            ((10, 7, 9, 8), 3),
            ((5, 5, 5, 5), 1),
        ):
            with self.subTest(durations=durations):
                m = len(durations)
                steps = [(str(i), 10 * i, dur) for i, dur in enumerate(durations)]
                # One more op than steps: a step of two ops would be the busiest.
                ops = [leaf(10 * i + 1, 1) for i in range(m)] + [leaf(900, 1)]
                # Idle steps don't count among the busy, however typical.
                step = answer(trace(ops, [*steps, ("idle", 500, 9)]), "summary")
                self.assertEqual(step["step_id"], typical)
                self.assertEqual(
                    step["notes"],
                    [
                        f"auto-picked busiest step (idx={typical}, n_xla_ops_events=1 of {m + 1}"
                        f" in {m + 1} steps; typical of {m} as busy)"
                    ],
                )

    def test_busy_is_who_has_most_starts_not_most_time(self) -> None:
        ops = [leaf(0, 9), leaf(10, 1), leaf(12, 1)]
        self.assertEqual(answer(trace(ops, self.STEPS), "summary")["step_id"], 1)

    def test_a_step_may_start_with_the_last_op(self) -> None:
        self.assertEqual(self.pick(steps=[("z", 90, 5)])["steps"][0]["n_xla_ops_events"], 1)

    def test_steps_are_sorted_by_their_start(self) -> None:
        step = self.pick(steps=self.STEPS[::-1])
        self.assertEqual((step["step_id"], step["step_name"]), (1, "b"))
        self.assertEqual([each["name"] for each in step["steps"]], ["a", "b", "c", "d"])

    def test_by_index(self) -> None:
        for index, name in ((0, "a"), (3, "d"), (-1, "d"), (-4, "a")):
            step = self.pick("--step", str(index))
            self.assertEqual((step["step_id"], step["step_name"]), ("abcd".index(name), name))
            self.assertEqual(step["notes"], [NO_OP] if name == "d" else [])

    def test_by_name(self) -> None:
        step = self.pick("--step-id", "c")
        self.assertEqual((step["step_id"], step["notes"]), (2, []))

    def test_of_several_of_one_name_as_among_all_with_a_note(self) -> None:
        # Of the two named x the latter holds two ops, of those of y both none.
        steps = [("x", 20, 10), ("y", 0, 5), ("x", 10, 5), ("y", 40, 9)]
        step = self.pick("--step-id", "x", steps=steps)
        self.assertEqual((step["step_id"], step["step_window_ps"]), (2, [20, 30]))
        self.assertEqual(step["notes"], ["2 steps are named 'x'; took idx=2, typical of 1 as busy"])
        step = self.pick("--step-id", "y", steps=steps)
        self.assertEqual((step["step_id"], step["step_window_ps"]), (3, [40, 49]))
        self.assertEqual(
            step["notes"], ["2 steps are named 'y'; took idx=3, the middle one", NO_OP]
        )

    def test_no_such_step(self) -> None:
        for options in (["--step", "4"], ["--step", "-5"], ["--step-id", "A"], ["--step-id", ""]):
            with self.subTest(options=options):
                outcome = run(trace(list(self.OPS), self.STEPS), "summary", *options)
                self.assertEqual(outcome.status, 1)
                self.assertEqual(outcome.stderr.count("\n"), 1)
                self.assertEqual(outcome.object["reason"], "step_not_found")
                self.assertEqual(outcome.object["available_steps"], ["a", "b", "c", "d"])

    def test_a_step_asked_for_where_there_are_none(self) -> None:
        for steps in NO_STEPS:
            for options in (["--step", "0"], ["--step", "-1"], ["--step-id", "a"]):
                outcome = run(trace(list(self.OPS), steps), "summary", *options)
                self.assertEqual((outcome.status, outcome.object["reason"]), (1, "step_not_found"))
                self.assertEqual(outcome.object["available_steps"], [])

    def test_ops_in_no_step_pick_the_middle_one(self) -> None:
        for n, middle in ((1, 0), (2, 1), (3, 1), (4, 2)):
            steps = [(str(i), 1000 + i, 1) for i in range(n)]
            step = answer(trace(list(self.OPS), steps), "summary")
            self.assertEqual(step["step_id"], middle)
            self.assertEqual(
                step["notes"],
                [f"no op starts in any step; took the middle one (idx={middle})", NO_OP],
            )

    def test_without_steps_the_whole_line(self) -> None:
        for steps in NO_STEPS:
            ops = [leaf(50, 5), leaf(20, 100), leaf(60, 1)]
            step = answer(trace(ops, steps), "summary")
            self.assertEqual((step["step_id"], step["step_name"]), (None, None))
            self.assertIsNone(step["step_source"])
            self.assertEqual(step["step_window_ps"], [20, 120])
            self.assertEqual(step["totals"]["n_events_total"], 3)
            self.assertEqual(step["notes"], ["no Steps line; using the whole XLA Ops window"])

    def test_all_is_every_op_whatever_the_steps(self) -> None:
        ops = [leaf(50, 5), leaf(20, 100), leaf(60, 1)]
        for steps in (None, [], self.STEPS, [("z", 500, 10)]):
            step = answer(trace(ops, steps), "summary", "--step", "all")
            self.assertEqual((step["step_id"], step["step_name"]), (None, None))
            self.assertIsNone(step["step_source"])
            self.assertEqual(step["step_window_ps"], [20, 120])
            self.assertEqual(step["totals"]["n_events_total"], 3)
            self.assertEqual([row["name"] for row in step["steps"]], [s[0] for s in steps or []])
            self.assertFalse(any("picked" in row for row in step["steps"]))
            whole = ["no Steps line; using the whole XLA Ops window"]
            self.assertEqual(step["notes"], [] if steps else whole)

    def test_all_of_nothing_is_nothing_to_measure(self) -> None:
        outcome = run(trace([], self.STEPS), "summary", "--step", "all")
        self.assertEqual(outcome.object["reason"], "empty_xla_ops_line")
        self.assertEqual((outcome.status, outcome.stderr), (0, ""))

    def test_every_step_is_listed_with_the_events_that_start_in_it(self) -> None:
        ops = [*self.OPS, op("w", "while", 5, 80)]
        self.assertEqual(
            answer(trace(ops, self.STEPS), "summary", "--step", "0")["steps"],
            [
                {"index": 0, "name": "a", "duration_ps": 10, "n_xla_ops_events": 2, "picked": True},
                {"index": 1, "name": "b", "duration_ps": 10, "n_xla_ops_events": 2},
                {"index": 2, "name": "c", "duration_ps": 10, "n_xla_ops_events": 2},
                {"index": 3, "name": "d", "duration_ps": 10, "n_xla_ops_events": 0},
            ],
        )


class ExecutionsAsSteps(unittest.TestCase):
    """Without steps, the executions of programs are the steps."""

    NOTE = "no Steps line; executions of programs (XLA Modules) are taken as steps"

    def said(
        self, *options: str, steps: Line | None = None, events: list[Event] | None = None
    ) -> dict[str, Any]:
        modules = Line(
            "XLA Modules",
            [Event(8, 2000, 1000), Event(9, 0, 500), Event(99, 4000, 10)]
            if events is None
            else events,
            timestamp_ns=2,
        )
        ops = Line("XLA Ops", [Event(7, t, 10) for t in (1000, 3000, 3500, 9000)], timestamp_ns=1)
        device = plane(*([steps] if steps else []), modules, ops)
        device.event_metadata += [EventMetadata(8, "jit_f(12)"), EventMetadata(9, "jit_g(3)")]
        return answer(encode(Space([device])), "summary", *options)

    def test_they_are_sorted_by_start_and_named_by_their_metadata(self) -> None:
        for steps in (None, Line("Steps")):
            step = self.said(steps=steps)
            # 2 ns + 2000 ps are 1 ns + 3000 ps on the base of the ops.
            self.assertEqual(
                step["steps"],
                [
                    {"index": 0, "name": "jit_g(3)", "duration_ps": 500, "n_xla_ops_events": 1},
                    {
                        "index": 1,
                        "name": "jit_f(12)",
                        "duration_ps": 1000,
                        "n_xla_ops_events": 2,
                        "picked": True,
                    },
                    {"index": 2, "name": None, "duration_ps": 10, "n_xla_ops_events": 0},
                ],
            )
            self.assertEqual(step["step_window_ps"], [3000, 4000])
            self.assertEqual(step["step_source"], "modules")
            self.assertEqual(
                step["notes"],
                [
                    self.NOTE,
                    "auto-picked busiest step (idx=1, n_xla_ops_events=2 of 4 in 3 steps)",
                ],
            )

    def test_by_index_and_by_name(self) -> None:
        self.assertEqual(self.said("--step", "0")["step_name"], "jit_g(3)")
        self.assertEqual(self.said("--step", "-1")["step_name"], None)
        self.assertEqual(self.said("--step-id", "jit_g(3)")["step_id"], 0)

    def test_all_is_of_no_execution(self) -> None:
        step = self.said("--step", "all")
        self.assertEqual((step["step_source"], step["step_id"]), (None, None))
        self.assertEqual(step["step_window_ps"], [1000, 9010])
        self.assertEqual(len(step["steps"]), 3)
        self.assertFalse(any("picked" in row for row in step["steps"]))

    def test_steps_are_preferred(self) -> None:
        step = self.said(steps=Line("Steps", [Event(7, 8000, 2000)], timestamp_ns=1))
        self.assertEqual((step["step_source"], step["step_window_ps"]), ("steps", [8000, 10000]))
        self.assertEqual(len(step["steps"]), 1)

    def test_without_either_the_whole_line(self) -> None:
        for events in ([], [Event(8, None, 10, num_occurrences=2)], [Event(8, 0, -1)]):
            step = self.said(events=events)
            self.assertEqual((step["step_source"], step["step_window_ps"]), (None, [1000, 9010]))
            self.assertEqual(step["notes"][-1:], ["no Steps line; using the whole XLA Ops window"])
            left_out = "1 events of the XLA Modules line left out: they have no valid time"
            self.assertEqual(step["notes"][:-1], [left_out] * len(events))


class Admission(unittest.TestCase):
    STEP: Steps = [("s", 100, 100)]  # noqa: RUF012

    def test_from_the_start_to_before_the_end(self) -> None:
        for start, admitted in ((99, 0), (100, 1), (150, 1), (199, 1), (200, 0)):
            for dur in (0, 1, 50):
                with self.subTest(start=start, dur=dur):
                    step = totals([leaf(start, dur)], self.STEP)
                    self.assertEqual(step["n_events_total"], admitted)
                    self.assertEqual(step["compute_duration_ps"], dur * admitted)

    def test_a_duration_counts_in_full_past_the_end(self) -> None:
        step = totals([leaf(190, 30)], self.STEP)
        self.assertEqual(step["compute_duration_ps"], 30)
        self.assertEqual((step["busy_duration_ps"], step["idle_duration_ps"]), (10, 90))

    def test_what_reaches_in_from_before_is_not_busy(self) -> None:
        step = totals([leaf(50, 100), op("w", "while", 50, 100)], self.STEP)
        self.assertEqual((step["n_events_total"], step["n_events_container"]), (0, 0))
        self.assertEqual((step["busy_duration_ps"], step["container_self_duration_ps"]), (0, 0))

    def test_instant_ops_are_executions(self) -> None:
        (row,) = groups([leaf(10, 0), leaf(20, 0)])
        self.assertEqual(
            [
                row[k]
                for k in ("n_executions", "total_dur_ps", "min_dur_ps", "max_dur_ps", "avg_dur_ps")
            ],
            [2, 0, 0, 0, 0],
        )
        self.assertIsNone(row["pct_of_compute"])
        self.assertEqual(row["pct_of_step"], 0.0)

    def test_an_offset_that_is_not_written_is_0(self) -> None:
        data = encode(Space([plane(Line("XLA Ops", [Event(7, None, 5), Event(7, 10, 5)]))]))
        self.assertEqual(answer(data, "summary")["step_window_ps"], [0, 15])

    def test_events_that_cannot_be_placed_are_counted_and_dropped(self) -> None:
        good = [Event(7, 0, 50), Event(7, 80, 20)]
        for what, bad in (
            ("unresolved", Event(8, 200, 10)),
            ("no id", Event(None, 200, 10)),
            ("aggregated", Event(7, None, 10, num_occurrences=3)),
            ("negative", Event(7, 200, -10)),
        ):
            with self.subTest(what=what):
                line = Line("XLA Ops", [good[0], bad, good[1]])
                step = answer(encode(Space([plane(line)])), "summary")
                self.assertEqual(step["step_window_ps"], [0, 100])
                self.assertEqual(step["totals"]["n_events_unresolved"], 1)
                self.assertEqual(step["totals"]["n_events_total"], 2)
                self.assertEqual(step["totals"]["compute_duration_ps"], 70)
                self.assertEqual(len(step["notes"]), 2)
                self.assertTrue(step["notes"][0].startswith("1 "))

    def test_only_bad_events_of_the_step_are_counted(self) -> None:
        line = Line(
            "XLA Ops", [Event(7, 110, 5), Event(8, 99, 1), Event(8, 120, 1), Event(8, 200, 1)]
        )
        steps = Line("Steps", [Event(7, 100, 100)])
        step = answer(encode(Space([plane(steps, line)])), "summary")
        self.assertEqual(step["totals"]["n_events_unresolved"], 1)
        self.assertEqual(step["steps"][0]["n_xla_ops_events"], 2)
        self.assertIn("n_xla_ops_events=2 of 4 in 1 steps", step["notes"][0])


class Containers(unittest.TestCase):
    def test_they_enter_no_group_and_no_kind(self) -> None:
        ops = [
            op("w.1", "while", 0, 50, stack="m.py:1:1", flops=10**9),
            leaf(10, 5),
            op("w.1", "while", 50, 60, stack="m.py:1:1", flops=10**9),
            op("c.1", "conditional", 120, 7),
            op("m.1", "megacore fusion", 130, 3),
            op("x.1", "call", 140, 2),
        ]
        step = totals(ops)
        self.assertEqual((step["n_events_total"], step["n_events_container"]), (1, 5))
        self.assertEqual(step["non_while_duration_ps_sum"], 5)
        self.assertEqual(step["while_container_duration_ps"], 110)
        self.assertEqual(
            list(step["container_durations_ps"].items()),
            [("while", 110), ("conditional", 7), ("megacore fusion", 3), ("call", 2)],
        )
        self.assertEqual(step["while_pct_of_step"], 77.465)  # 110 of 142
        self.assertEqual([row["n_executions"] for row in groups(ops)], [1])
        self.assertEqual(step["agg_key_coverage"], {"stack": 0, "tf_op": 0, "no_source": 1})

    def test_a_while_past_the_end_can_pass_100_percent(self) -> None:
        step = totals([op("w", "while", 50, 250)], [("s", 0, 100)])
        self.assertEqual(
            (step["while_container_duration_ps"], step["while_pct_of_step"]), (250, 250)
        )
        self.assertEqual(step["container_self_duration_ps"], 50)


# Timelines drawn by hand, in the window from 0 to 100: containers and leaves as (start, duration);
# busy, container_self.
TIMELINES: dict[str, tuple[list[tuple[int, int]], list[tuple[int, int]], int, int]] = {
    "nothing": ([], [], 0, 0),
    "disjoint": ([], [(10, 10), (30, 20)], 30, 0),
    "touching": ([], [(10, 10), (20, 10)], 20, 0),
    "overlapping": ([], [(10, 20), (20, 20)], 30, 0),
    "nested": ([], [(10, 50), (20, 10), (40, 5)], 50, 0),
    "nested, then reaching on": ([], [(10, 50), (20, 10), (40, 30)], 60, 0),
    "same start": ([], [(10, 5), (10, 20), (10, 10)], 20, 0),
    "instant": ([], [(10, 0), (50, 0)], 0, 0),
    "past the end": ([], [(90, 50), (95, 2)], 10, 0),
    "the whole step": ([], [(0, 100)], 100, 0),
    "container alone": ([(20, 30)], [], 0, 30),
    "container past the end": ([(70, 100)], [(80, 10)], 10, 20),
    "leaves in a container": ([(20, 60)], [(20, 10), (40, 20)], 30, 30),
    "leaf across a container's start": ([(20, 60)], [(10, 30)], 30, 40),
    "leaf across a container's end": ([(20, 20)], [(30, 40)], 40, 10),
    "leaf around a container": ([(20, 20)], [(10, 50)], 50, 0),
    "gap across a container's end": ([(0, 20)], [(10, 5), (50, 10)], 15, 15),
    "nested containers count once": ([(10, 80), (20, 30), (30, 10)], [(35, 10)], 10, 70),
    "overlapping containers": ([(10, 30), (30, 30)], [(35, 10)], 10, 40),
    "one container after another": ([(10, 10), (20, 10), (50, 10)], [(15, 10)], 10, 20),
    "two containers in one gap": ([(10, 10), (40, 20)], [(0, 5), (80, 5)], 10, 30),
    "containers a moment apart": ([(10, 10), (21, 9), (31, 9)], [(60, 5)], 5, 28),
    "short container in a long one's gap": ([(0, 100), (5, 5)], [(50, 10)], 10, 90),
    "short container under a leaf in a long one": ([(0, 100), (5, 2)], [(0, 10), (50, 10)], 20, 80),
    "containers of one start": ([(10, 20), (10, 60), (10, 5)], [(20, 10)], 10, 50),
    "instant leaf in a container": ([(20, 20)], [(30, 0)], 0, 20),
}


class Timelines(unittest.TestCase):
    def check(self, name: str, ops: list[Op]) -> None:
        _, _, busy, in_container = TIMELINES[name]
        step = totals(ops, [("s", 0, 100)])
        self.assertEqual(step["busy_duration_ps"], busy)
        self.assertEqual(step["idle_duration_ps"], 100 - busy)
        self.assertEqual(step["idle_pct_of_step"], 100 - busy)
        self.assertEqual(step["container_self_duration_ps"], in_container)

    def ops(self, name: str) -> list[Op]:
        containers, leaves, _, _ = TIMELINES[name]
        return [op("w", "while", *span) for span in containers] + [leaf(*span) for span in leaves]

    def test_events_in_order(self) -> None:
        for name in TIMELINES:
            with self.subTest(name):
                self.check(name, sorted(self.ops(name), key=lambda each: each.start))

    def test_events_out_of_order(self) -> None:
        for name in TIMELINES:
            with self.subTest(name):
                self.check(name, self.ops(name)[::-1])
                for seed in range(3):
                    ops = self.ops(name)
                    random.Random(seed).shuffle(ops)
                    self.check(name, ops)

    def test_many_containers_of_one_start_take_no_time(self) -> None:
        container = EventMetadata(8, "%w = f32[] while()", [Stat(3, ref(5))])
        line = Line("XLA Ops", [Event(8, 0, 10 + i) for i in range(10_000)])
        line.events.append(Event(7, 0, 5))
        enclosed = plane(line)
        enclosed.event_metadata.append(container)
        began = time.process_time()
        step = answer(encode(Space([enclosed])), "summary")["totals"]
        self.assertLess(time.process_time() - began, 2)
        self.assertEqual(step["n_events_container"], 10_000)
        self.assertEqual(step["container_self_duration_ps"], 10_009 - 5)

    def test_every_kind_of_leaf_is_busy(self) -> None:
        for category in ("loop fusion", "copy", "copy-done", "all-reduce", "tuple", "unheard-of"):
            with self.subTest(category=category):
                step = totals([op("x", category, 10, 40)], [("s", 0, 100)])
                self.assertEqual(step["busy_duration_ps"], 40)

    def test_waits_are_leaves_whose_category_ends_in_done(self) -> None:
        ops = [
            op("a", "copy-done", 0, 1),
            op("slice-done", "async-done", 1, 2),
            op("b", "all-gather-done", 3, 4),
            op("c", "unheard-of-done", 7, 8),
            op("d", "host recv-done", 15, 16),
            op("e-done", "copy", 31, 32),
            op("f", "async-start", 63, 1),
            op("g", "undone", 64, 1),
        ]
        step = totals(ops, [("s", 0, 100)])
        self.assertEqual((step["wait_duration_ps"], step["wait_pct_of_step"]), (31, 31))

    def test_a_step_of_no_length_has_no_percentages(self) -> None:
        step = answer(trace([leaf(10, 0)]), "summary")
        self.assertEqual(step["step_duration_ps"], 0)
        for key in ("idle_pct_of_step", "wait_pct_of_step", "while_pct_of_step"):
            self.assertIsNone(step["totals"][key])
        self.assertEqual(step["idle_gaps"], [])


STACK = "<embedded module '_launcher'>:153:2\nmain.py:3:1\n  /a b/model.py:7:30\n\n"


class GroupKeys(unittest.TestCase):
    def key(self, **stats: Any) -> tuple[Any, ...]:
        (row,) = groups([op("f.1", "loop fusion", 0, 5, **stats)])
        return tuple(row[k] for k in ("agg_key", "agg_key_kind", "source_inner", "source_stack"))

    def test_the_stack_is_hashed_as_printed(self) -> None:
        printed = "<embedded module '_launcher'>:153:2\nmain.py:3:1\n/a b/model.py:7:30"
        digest = hashlib.sha1(printed.encode()).hexdigest()[:16]
        self.assertEqual(
            self.key(source_stack=STACK, tf_op="jit(f)/add:", source="/a b/model.py:7"),
            ("stack:" + digest, "stack", "/a b/model.py:7", printed),
        )

        self.assertEqual(self.key(source_stack="m.py:7"), self.key(source_stack="m.py:7\n"))

    def test_without_a_stack_the_tf_op(self) -> None:
        for stack in ("", " ", "\n \t\n"):
            with self.subTest(stack=stack):
                self.assertEqual(
                    self.key(source_stack=stack, tf_op="jit(f)/add:", source="m.py:1"),
                    ("tfop:jit(f)/add:", "tf_op", "m.py:1", None),
                )

    def test_without_both_the_category(self) -> None:
        for tf_op in (None, ""):
            stats: dict[str, StatValue] = {} if tf_op is None else {"tf_op": tf_op}
            expected = ("<no source>:loop fusion", "no_source", None, None)
            self.assertEqual(self.key(**stats), expected)

    def test_a_hidden_cast_s_category_is_the_one_it_shows(self) -> None:
        (row,) = groups([op("c", "non-fusion elementwise", 0, 5, opcode="convert")])
        self.assertEqual(row["agg_key"], "<no source>:convert")

    def test_the_innermost_frame_is_cut_to_file_and_line(self) -> None:
        for frame, inner in (
            ("m.py:7:30", "m.py:7"),
            ("m.py:7", "m.py:7"),
            ("m.py", "m.py"),
            ('/a b/it\'s "x".py:12:1', '/a b/it\'s "x".py:12'),
            ("<embedded module '_launcher'>:35:2", "<embedded module '_launcher'>:35"),
            ("x:1:2:3", "x:1:2"),
            ("C:\\m.py:5:6", "C:\\m.py:5"),
            ("a.py:1:1\nb.py:2:2", "a.py:1"),
            ("a.py:1\nb.py:2:2", "a.py:1"),
            ("a.py:1:1\n\n \n", "a.py:1"),
            ("a.py:1:1\r\nb.py:2:2\r\n", "a.py:1"),
        ):
            with self.subTest(frame=frame):
                self.assertEqual(self.key(source_stack=frame)[2], inner)

    def test_groups_never_mix_kinds(self) -> None:
        ops = [
            op("f", "loop fusion", 0, 1, stack="m.py:1:1"),
            op("c", "copy", 1, 2, stack="m.py:1:1"),
            op("r", "all-reduce", 3, 4, stack="m.py:1:1"),
            op("g", "custom fusion", 7, 8, stack="m.py:1:1"),
        ]
        rows = groups(ops)
        self.assertEqual(
            [(row["kind"], row["total_dur_ps"]) for row in rows],
            [("compute", 9), ("data_move", 2), ("comm", 4)],
        )
        self.assertEqual(len({row["agg_key"] for row in rows}), 1)

    def test_one_tf_op_of_several_programs_is_one_group(self) -> None:
        ops = [op(f"f.{i}", "loop fusion", i, 1, tf_op="t", program_id=2**63 + i) for i in range(3)]
        self.assertEqual([row["n_executions"] for row in groups(ops)], [3])

    def test_coverage_counts_executions_of_leaves_by_tier(self) -> None:
        ops = [
            *[op("a", "loop fusion", i, 1, stack="m.py:1:1", tf_op="t") for i in range(3)],
            *[op("b", "copy", 3 + i, 1, tf_op="t") for i in range(2)],
            op("c", "tuple", 5, 1),
            op("w", "while", 6, 1, tf_op="t"),
        ]
        self.assertEqual(totals(ops)["agg_key_coverage"], {"stack": 3, "tf_op": 2, "no_source": 1})


if __name__ == "__main__":
    unittest.main()
