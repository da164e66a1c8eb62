"""Test containers, and busy and idle time."""

from __future__ import annotations

import random
import unittest

from tests.builders.xspace import Op, op, trace
from tests.harness import answer
from tests.pipeline.small_steps import groups, leaf, totals


class Containers(unittest.TestCase):
    def test_containers_are_excluded_from_groups_and_kinds(self) -> None:
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
        self.assertEqual(step["while_pct_of_step"], 77.465)  # The while loops take 110 of 142 ps.
        self.assertEqual([row["n_executions"] for row in groups(ops)], [1])
        self.assertEqual(step["agg_key_coverage"], {"stack": 0, "tf_op": 0, "no_source": 1})

    def test_while_that_ends_after_the_step_has_its_full_duration(self) -> None:
        step = totals([op("w", "while", 50, 250)], [("s", 0, 100)])
        self.assertEqual(
            (step["while_container_duration_ps"], step["while_pct_of_step"]), (250, 250)
        )
        self.assertEqual(step["container_self_duration_ps"], 50)


# For each timeline: containers and leaves, given as (start, duration); the busy time; and the time
# when a container but no leaf runs. The window lasts from 0 to 100.
TIMELINES: dict[str, tuple[list[tuple[int, int]], list[tuple[int, int]], int, int]] = {
    "nothing": ([], [], 0, 0),
    "disjoint": ([], [(10, 10), (30, 20)], 30, 0),
    "touching": ([], [(10, 10), (20, 10)], 20, 0),
    "overlapping": ([], [(10, 20), (20, 20)], 30, 0),
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
    "short container in a long one's gap": ([(0, 100), (5, 5)], [(50, 10)], 10, 90),
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

    def test_busy_and_container_time_do_not_depend_on_the_order_of_events(self) -> None:
        for name, (containers, leaves, _, _) in TIMELINES.items():
            ops = [op("w", "while", *span) for span in containers]
            ops += [leaf(*span) for span in leaves]
            shuffled = random.Random(0).sample(ops, len(ops))
            for ordered in (sorted(ops, key=lambda made: made.start), ops[::-1], shuffled):
                with self.subTest(name, starts=[made.start for made in ordered]):
                    self.check(name, ordered)

    def test_busy_time_includes_every_kind_of_leaf(self) -> None:
        for category in ("loop fusion", "copy", "copy-done", "all-reduce", "tuple", "unheard-of"):
            step = totals([op("x", category, 10, 40)], [("s", 0, 100)])
            self.assertEqual(step["busy_duration_ps"], 40, category)

    def test_leaves_whose_category_ends_in_done_count_as_waits(self) -> None:
        categories = (
            *(("a", "copy-done"), ("slice-done", "async-done"), ("b", "all-gather-done")),
            *(("c", "unheard-of-done"), ("d", "host recv-done")),
        )
        others = (("e-done", "copy"), ("f", "async-start"), ("g", "undone"))
        ops = [op(*made, 2**i - 1, 2**i) for i, made in enumerate((*categories, *others))]
        step = totals(ops, [("s", 0, 100)])
        self.assertEqual((step["wait_duration_ps"], step["wait_pct_of_step"]), (31, 31))

    def test_percentages_are_null_for_a_step_without_duration(self) -> None:
        step = answer(trace([leaf(10, 0)]), "summary")
        self.assertEqual(step["step_duration_ps"], 0)
        for key in ("idle_pct_of_step", "wait_pct_of_step", "while_pct_of_step"):
            self.assertIsNone(step["totals"][key], key)
        self.assertEqual(step["idle_gaps"], [])
