"""Test the cause `synchronous_collective`: blocking collectives that math could hide."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import Op, array, listed_groups, op
from tests.builders.xspace import op as event

FREE = 200


def main(collective: str, operand: str = "x") -> list[Op]:
    return [
        op("x", "parameter"),
        op("free", "negate", "x"),
        op("moved", collective, operand, line="train.py:9"),
        op("after", "exponential", "moved"),
    ]


def found(
    program: list[Op], collective: str = "all-reduce", free: int = FREE, *options: str
) -> list[Json]:
    ran = [
        event("free", "loop fusion", 0, free),
        event("moved", collective, 300, 100),
        event("after", "loop fusion", 400, 500),
    ]
    return causes({"main": program}, ran, *options)


class Synchronous(unittest.TestCase):
    def test_collective_that_independent_math_could_hide_is_reported(self) -> None:
        (row,) = found(main("all-reduce"))
        self.assertEqual((row["cause"], row["confidence"]), ("synchronous_collective", "likely"))
        self.assertEqual((row["gain_ps"], row["source_user"]), (100, "train.py:9"))
        self.assertEqual(row["evidence"]["collective"], "all-reduce")
        self.assertIn("xla_tpu_enable_sparse_core_collective_offload_all_reduce", row["what_helps"])

    def test_gain_is_limited_by_the_duration_of_independent_math(self) -> None:
        (row,) = found(main("all-reduce"), free=30)
        self.assertEqual(row["gain_ps"], 30)

    def test_math_that_depends_on_the_collective_cannot_hide_it(self) -> None:
        self.assertEqual(found(main("all-reduce", "free")), [])

    def test_only_flags_available_on_the_chip_are_suggested(self) -> None:
        (row,) = found(main("all-gather"), "all-gather", FREE, "--chip", "v5e")
        self.assertIn("async_collective_fusion_fuse_all_gather", row["what_helps"])
        self.assertEqual(found(main("reduce-scatter"), "reduce-scatter", FREE, "--chip", "v5e"), [])

    def test_all_to_all_cannot_be_made_asynchronous(self) -> None:
        rows = found(main("all-to-all"), "all-to-all")
        self.assertNotIn("synchronous_collective", [row["cause"] for row in rows])

    def test_the_same_math_hides_only_one_collective(self) -> None:
        program = [*main("all-reduce")[:3], op("more", "all-reduce", "x", line="train.py:9")]
        ran = [
            event("free", "loop fusion", 0, 150),
            event("moved", "all-reduce", 300, 100),
            event("more", "all-reduce", 400, 100),
        ]
        (row,) = causes({"main": program}, ran)
        self.assertEqual((row["gain_ps"], row["evidence"]["dur_ps"]), (150, 200))

    def test_collectives_of_different_kinds_share_a_row(self) -> None:
        program = [*main("all-reduce")[:3], op("more", "all-gather", "moved", line="train.py:8")]
        ran = [
            event("free", "loop fusion", 0, 150),
            event("moved", "all-reduce", 300, 100),
            event("more", "all-gather", 400, 120),
        ]
        (row,) = causes({"main": program}, ran)
        self.assertEqual((row["gain_ps"], row["evidence"]["collective"]), (150, None))
        self.assertIn("1 all-gather and 1 all-reduce", row["says"])

    def test_math_that_needs_the_first_collective_can_hide_the_second(self) -> None:
        program = [
            op("x", "parameter"),
            op("first", "all-reduce", "x"),
            op("math", "negate", "first"),
            op("second", "all-reduce", "x"),
            op("end", "add", "math", "second"),
        ]
        ran = [
            event("first", "all-reduce", 0, 100),
            event("math", "loop fusion", 100, 60),
            event("second", "all-reduce", 160, 100),
            event("end", "loop fusion", 260, 100),
        ]
        (row,) = causes({"main": program}, ran)
        self.assertEqual(row["gain_ps"], 60)

    def test_late_reader_of_a_result_can_hide_the_next_collective(self) -> None:
        groups = listed_groups((0, 1, 2, 3))
        large = array("f32", 1024, 1024)
        program = [
            op("x", "parameter", shape=large),
            op("free", "negate", "x", shape=large),
            op("first", "all-reduce", "x", shape=large, extra=groups),
            op("near", "negate", "first", shape=large),
            op("begin", "all-gather-start", "near", shape=large, extra=groups),
            op("end", "all-gather-done", "begin", shape=large),
            op("late", "exponential", "first", shape=large),
            op("last", "add", "late", "end", shape=large),
        ]
        ran = [
            event("free", "loop fusion", 0, 50),
            event("first", "all-reduce", 50, 100),
            event("near", "loop fusion", 150, 100),
            event("begin", "all-gather-start", 250, 0),
            event("end", "all-gather-done", 250, 80),
            event("late", "loop fusion", 330, 100),
            event("last", "loop fusion", 430, 60),
        ]
        (row,) = causes({"main": program}, ran)
        # `free` hides 50 ps of the all-reduce, and `late` hides the whole all-gather.
        self.assertEqual(row["gain_ps"], 50 + 80)

    def test_gain_is_at_most_the_time_of_the_collectives(self) -> None:
        groups = listed_groups((0, 1, 2, 3))
        large = array("f32", 1024, 1024)
        program = [
            op("x", "parameter", shape=large),
            op("y", "parameter", shape=large),
            op("begin", "all-gather-start", "y", shape=large, extra=groups),
            op("free", "negate", "x", shape=large),
            op("moved", "all-reduce", "x", shape=large, extra=groups),
            op("math", "negate", "moved", shape=large),
            op("end", "all-gather-done", "begin", shape=large),
            op("last", "add", "math", "end", shape=large),
        ]
        ran = [
            event("begin", "all-gather-start", 0, 1),
            event("free", "loop fusion", 1, 150),
            event("moved", "all-reduce", 151, 100),
            event("math", "loop fusion", 251, 200),
            event("end", "all-gather-done", 451, 80),
            event("last", "loop fusion", 531, 60),
        ]
        (row,) = causes({"main": program}, ran)
        self.assertEqual(row["gain_ps"], 100)

    def test_math_after_the_first_use_of_the_result_hides_nothing(self) -> None:
        ran = [
            event("moved", "all-reduce", 0, 100),
            event("after", "loop fusion", 100, 500),
            event("free", "loop fusion", 600, FREE),
        ]
        self.assertEqual(causes({"main": main("all-reduce")}, ran), [])

    def test_short_cast_before_a_collective_can_be_moved_ahead(self) -> None:
        program = [
            op("x", "parameter"),
            op("free", "negate", "x"),
            op("cast", "convert", "x"),
            op("moved", "all-gather", "cast"),
            op("after", "add", "moved", "free"),
        ]
        ran = [
            event("free", "loop fusion", 0, FREE),
            event("cast", "loop fusion", 200, 5),
            event("moved", "all-gather", 300, 100),
            event("after", "loop fusion", 400, 500),
        ]
        (row,) = causes({"main": program}, ran)
        self.assertEqual(row["gain_ps"], 100)

    def test_collectives_whose_results_are_used_first_are_hidden_first(
        self,
    ) -> None:
        program = [
            op("x", "parameter"),
            op("early", "negate", "x"),
            op("first", "all-reduce", "early"),
            op("second", "all-reduce", "early"),
            op("math", "add", "first", "second"),
            op("third", "all-reduce", "x"),
            op("end", "add", "math", "third"),
        ]
        ran = [
            event("early", "loop fusion", 0, 150),
            event("first", "all-reduce", 150, 50),
            event("second", "all-reduce", 200, 50),
            event("math", "loop fusion", 250, 200),
            event("third", "all-reduce", 450, 200),
            event("end", "loop fusion", 650, 100),
        ]
        (row,) = causes({"main": program}, ran)
        self.assertEqual(row["gain_ps"], 200)

    def test_no_cause_if_some_collectives_are_already_asynchronous(self) -> None:
        program = [
            *main("all-reduce"),
            op("all-reduce-start.1", "all-reduce-start", "x"),
            op("all-reduce-done.1", "all-reduce-done", "all-reduce-start.1"),
        ]
        ran = [
            event("free", "loop fusion", 0, FREE),
            event("moved", "all-reduce", 300, 100),
            event("all-reduce-start.1", "all-reduce-start", 400, 1),
            event("all-reduce-done.1", "all-reduce-done", 401, 50),
        ]
        self.assertEqual(causes({"main": program}, ran), [])

    def test_asynchronous_collective_is_reported_if_no_math_runs_during_it(
        self,
    ) -> None:
        shape, groups = array("f32", 1024, 1024), listed_groups((0, 1))
        program = [
            op("x", "parameter", shape=shape),
            op("free", "negate", "x", shape=shape),
            op("all-gather-start.1", "all-gather-start", "x", shape=shape, extra=groups),
            op("between", "negate", "x", shape=shape),
            op("all-gather-done.1", "all-gather-done", "all-gather-start.1", shape=shape),
            op("after", "add", "free", "all-gather-done.1", shape=shape),
        ]

        def rows(start: int, between: int = 0) -> list[Json]:
            """Return the causes if the all-gather starts at `start` ps. Math runs from 50 ps to
            250 ps, and then for `between` ps, starting at 281 ps."""
            ran = [
                event("all-gather-start.1", "all-gather-start", start, 1),
                event("free", "loop fusion", 50, FREE),
                event("between", "loop fusion", 281, between),
                event("all-gather-done.1", "all-gather-done", 300, 100),
                event("after", "loop fusion", 400, 500),
            ]
            return causes({"main": program}, sorted(ran, key=lambda execution: execution.start))

        (row,) = rows(280)
        self.assertEqual((row["cause"], row["gain_ps"]), ("synchronous_collective", 100))
        self.assertIn("xla_tpu_enable_latency_hiding_scheduler", row["what_helps"])
        self.assertEqual(rows(10), [])
        # Math shorter than a twentieth of the wait is ignored.
        (row,) = rows(280, between=4)
        self.assertEqual(row["gain_ps"], 100)
        self.assertEqual(rows(280, between=15), [])

    def test_asynchronous_collective_begins_at_an_update_that_needs_math(self) -> None:
        shape, groups = array("f32", 1024, 1024), listed_groups((0, 1))
        program = {
            "wrapped": [
                op("p", "parameter", shape=shape),
                op("all-gather.1", "all-gather", "p", shape=shape, extra=groups),
            ],
            "main": [
                op("x", "parameter", shape=shape),
                op("start", "async-start", shape=shape, calls=["wrapped"]),
                op("math", "negate", "x", shape=shape),
                op("update", "async-update", "start", "math", shape=shape),
                op("done", "async-done", "update", shape=shape),
                op("free", "negate", "x", shape=shape),
                op("after", "add", "free", "done", shape=shape),
            ],
        }
        # No math runs between the end of `math` and the wait.
        ran = [
            event("start", "async-start", 0, 1),
            event("math", "loop fusion", 1, 100),
            event("done", "async-done", 101, 100),
            event("free", "loop fusion", 201, FREE),
            event("after", "loop fusion", 401, 500),
        ]
        (row,) = causes(program, ran)
        self.assertEqual((row["cause"], row["gain_ps"]), ("synchronous_collective", 100))
