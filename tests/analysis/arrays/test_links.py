"""Test the gain of a collective that shares the links with other collectives."""

from __future__ import annotations

import unittest
from collections.abc import Callable

from _breakdown.analysis.arrays.engine import Change, Retime, removal_of
from tests.builders.hlo_proto import Op, array, listed_groups, op
from tests.builders.traffic import Find, estimated
from tests.builders.xspace import Op as Event, op as event

GROUPS = listed_groups((0, 1, 2, 3))
LARGE = array("f32", 1024, 1024)


def all_to_all(name: str, operand: str, groups: bytes = GROUPS) -> Op:
    path = "jit(f)/dot_general"
    return op(name, "all-to-all", operand, shape=LARGE, line="model.py:4", tf_op=path, extra=groups)


PROGRAM = [
    op("x", "parameter", shape=array("f32", 256, 1024)),
    op("all-gather-start", "all-gather-start", "x", shape=LARGE, extra=GROUPS),
    all_to_all("first", "x"),
    op("math", "negate", "first", shape=LARGE),
    op("all-gather-done", "all-gather-done", "all-gather-start", shape=LARGE),
    op("more", "add", "math", "all-gather-done", shape=LARGE),
    all_to_all("second", "more"),
]


def ran(math: int) -> list[Event]:
    """Return executions in which the first all-to-all waits for an all-gather to free the links."""
    path = "jit(f)/dot_general:"
    return [
        event("all-gather-start", "all-gather-start", 0, 1),
        event("first", "all-to-all", 1, 100, tf_op=path),
        event("math", "loop fusion", 101, math),
        event("all-gather-done", "all-gather-done", 300, 0),
        event("more", "loop fusion", 300, 50),
        event("second", "all-to-all", 400, 10, tf_op=path),
    ]


def without(*names: str) -> Callable[[Find], list[Change]]:
    return lambda find: removal_of([find(name) for name in names])


class Links(unittest.TestCase):
    def test_gain_excludes_time_that_would_move_to_the_next_wait(self) -> None:
        for math, gain in ((40, 60), (150, 110)):
            with self.subTest(math=math):
                found = estimated({"main": PROGRAM}, ran(math), without("first", "second"))
                self.assertEqual(found.estimate, gain)

    def test_half_of_a_transfer_frees_the_links_in_half_the_time(self) -> None:
        done = "all-gather-done"
        events = [*ran(40)[:3], event(done, done, 298, 2), *ran(40)[4:]]
        half = estimated({"main": PROGRAM}, events, lambda find: [Retime(find(done), 1)])
        # Of 203 ps, math takes 91, and the all-to-alls 20 without waiting for the all-gather.
        self.assertEqual(half.estimate, 46)

    def test_transfer_rate_is_the_highest_mean_rate_of_an_instruction(self) -> None:
        program = [op("x", "parameter", shape=LARGE), all_to_all("first", "x")]
        program += [op("math", "negate", "first", shape=LARGE), all_to_all("second", "math")]
        # The first all-to-all takes 50 ps on average, so 50 of the second's 100 ps are waiting.
        ran = [
            event("first", "all-to-all", 0, 10),
            event("math", "loop fusion", 10, 50),
            event("second", "all-to-all", 60, 100),
            event("first", "all-to-all", 200, 90),
            event("math", "loop fusion", 290, 50),
            event("second", "all-to-all", 340, 100),
        ]
        found = estimated({"main": program}, ran, without("first", "second"))
        self.assertEqual(found.estimate, 2 * (50 + 50))

    def test_transfer_rate_is_measured_separately_for_each_axis(self) -> None:
        program = [
            op("x", "parameter", shape=LARGE),
            all_to_all("fast", "x", listed_groups((0, 1), (2, 3))),
            op("math", "negate", "fast", shape=LARGE),
            all_to_all("slow", "math", listed_groups((0, 2), (1, 3))),
        ]
        ran = [
            event("fast", "all-to-all", 0, 20),
            event("math", "loop fusion", 20, 50),
            event("slow", "all-to-all", 70, 200),
        ]
        found = estimated({"main": program}, ran, without("fast", "slow"))
        self.assertEqual(found.estimate, 20 + 200)
