"""Test the field `loop`: depth and trips of the innermost loop around an op."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders.xspace import Event, Op, Space, encode, op, tpu_plane, trace
from tests.harness import answer, within

Loop = dict[str, Any] | None


def loop(name: str, start: int, end: int) -> Op:
    return op(name, "while", start, end - start)


def math(name: str, start: int, end: int, stack: str = "a.py:1:1") -> Op:
    return op(name, "loop fusion", start, end - start, stack=stack)


def loops(*ops: Op, window: int = 1000) -> dict[str, Loop]:
    """Return the field `loop` of each op in `by_op`."""
    result = answer(trace(ops, [("0", 0, window)]), "by_op")
    return {row["hlo_op"]: row["loop"] for row in result["ops"]}


class OfOps(unittest.TestCase):
    def test_depth_and_trips_describe_the_innermost_loop(self) -> None:
        found = loops(
            math("before", 0, 10),
            loop("outer", 10, 200),
            *(
                part
                for i in (10, 100)
                for part in (
                    loop("inner", i, i + 60),
                    *(math("deep", i + 10 * k, i + 10 * k + 10) for k in range(6)),
                    math("shallow", i + 60, i + 70),
                )
            ),
            math("after", 200, 210),
        )
        self.assertEqual(
            found,
            {
                "deep": {"depth": 2, "trips": 6},
                "shallow": {"depth": 1, "trips": 2},
                "before": None,
                "after": None,
            },
        )

    def test_trips_can_be_a_fraction(self) -> None:
        parts = [part for i in (0, 100, 200) for part in (loop("w", i, i + 50),)]
        # `f` is in a branch of the loop body, so it does not run in every iteration.
        found = loops(*parts, *(math("f", start, start + 5) for start in (0, 10, 100, 210)))
        self.assertEqual(found["f"], {"depth": 1, "trips": 1.333})

    def test_only_while_ops_are_loops(self) -> None:
        found = loops(op("c", "conditional", 0, 100), math("f", 10, 20), op("x", "call", 0, 100))
        self.assertEqual(found, {"f": None})

    def test_op_that_begins_or_ends_with_the_loop_is_inside_it(self) -> None:
        found = loops(loop("w", 10, 20), math("f", 10, 12), math("g", 18, 20), math("h", 20, 22))
        self.assertEqual(found["f"], {"depth": 1, "trips": 1})
        self.assertEqual(found["g"], {"depth": 1, "trips": 1})
        self.assertIsNone(found["h"])

    def test_loop_is_not_inside_itself(self) -> None:
        data = trace(
            [loop("outer", 0, 100), loop("inner", 0, 50), loop("inner", 50, 90)], [("0", 0, 100)]
        )
        self.assertIsNone(answer(data, "by_op", "--op", "outer")["op"]["loop"])
        inner = answer(data, "by_op", "--op", "inner")["op"]["loop"]
        self.assertEqual(inner, {"depth": 1, "trips": 2})

    def test_metadata_entries_of_the_same_op_are_summed(self) -> None:
        # Captures can have several metadata entries for an op, one per set of stats.
        ops = [op("f", "loop fusion", 10 * i, 9, flops=i) for i in range(6)]
        self.assertEqual(loops(loop("w", 0, 60), *ops)["f"], {"depth": 1, "trips": 6})

    def test_run_time_is_linear_in_the_number_of_events(self) -> None:
        # The op runs both inside and outside a loop, so all its executions must be looked up.
        plane = tpu_plane([math("f", 0, 1), loop("w", 0, 2)], [("0", 0, 10**9)])
        events = next(line.events for line in plane.lines if line.name == "XLA Ops")
        events[:] = [
            event
            for i in range(8_000)
            for event in (Event(2, 10 * i, 5), Event(1, 10 * i, 2), Event(1, 10 * i + 7, 3))
        ]
        with within(0.5):
            (row,) = answer(encode(Space([plane])), "by_op")["ops"]
        self.assertIsNone(row["loop"])


class OfRows(unittest.TestCase):
    OPS = (
        loop("w", 0, 100),
        *(math("f", 10 * i, 10 * i + 4) for i in range(4)),
        *(math("g", 10 * i + 4, 10 * i + 10) for i in range(2)),
        math("h", 100, 110),
        op("all-reduce.1", "all-reduce", 60, 10, stack="b.py:2:1"),
        op("all-reduce.1", "all-reduce", 70, 10, stack="b.py:2:1"),
    )

    def loops(self, mode: str, rows: str) -> list[Loop]:
        result = answer(trace(self.OPS, [("0", 0, 200)]), mode)
        return [row["loop"] for row in result[rows]]

    def test_trips_of_a_row_are_those_of_its_longest_op(self) -> None:
        # The line takes 38 ps, 28 ps of it in the loop: 16 ps in four executions of op f, and 12 ps
        # in two executions of op g.
        self.assertEqual(self.loops("by_source", "groups"), [{"depth": 1, "trips": 4}])

    def test_comm_rows_and_bottleneck_findings_contain_the_field_loop(self) -> None:
        collective = {"depth": 1, "trips": 2}
        self.assertEqual(self.loops("comm", "rows"), [collective])
        self.assertIn(collective, self.loops("bottleneck", "findings"))
