"""Test the cause `synchronous_collective`: blocking collectives that math could hide."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import FAST, Json, causes as causes_on
from tests.builders.hlo_proto import Op, array, listed_groups, op
from tests.builders.xspace import Op as Event, op as event

FREE = 200
LARGE = array("f32", 1024, 1024)
GROUPS = listed_groups((0, 1, 2, 3))


def causes(programs: dict[str, list[Op]], ran: list[Event], *options: str) -> list[Json]:
    """Return the causes on v5e, whose flags do not depend on the share of the collectives."""
    return causes_on(programs, ran, *FAST, *(options or ("--chip", "v5e")))


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


def in_turn(program: list[Op], durations: dict[str, int]) -> list[Json]:
    """Return the causes if the named ops run one after another, each for its duration."""
    opcodes = {instruction.name: instruction.opcode for instruction in program}
    ran, start = [], 0
    for name, duration in durations.items():
        category = opcodes[name] if opcodes[name].startswith("all-") else "loop fusion"
        ran.append(event(name, category, start, duration))
        start += duration
    return causes({"main": program}, ran)


class Synchronous(unittest.TestCase):
    def test_collective_that_independent_math_could_hide_is_reported(self) -> None:
        (row,) = found(main("all-reduce"))
        self.assertEqual((row["cause"], row["confidence"]), ("synchronous_collective", "likely"))
        self.assertEqual((row["gain_ps"], row["source_user"]), (100, "train.py:9"))

    def test_least_gain_is_0_because_flags_can_slow_down_other_ops(self) -> None:
        (row,) = found(main("all-reduce"))
        self.assertEqual(row["gain_range_ps"], [0, 100])

    def test_sparse_cores_are_suggested_only_where_collectives_are_short(self) -> None:
        for name, duration, flag in (
            ("all-reduce", 2000, "sparse_core_collective_offload_all_reduce"),
            ("all-gather", 2000, "sparse_core_collective_offload_all_gather"),
            ("all-gather", 1000, "async_collective_fusion_fuse_all_gather"),
            ("all-reduce", 1000, None),
        ):
            ran = [event("free", "loop fusion", 0, FREE), event("moved", name, 300, 100)]
            rows = causes_on({"main": main(name)}, ran, "--chip", "v6e", duration=duration)
            with self.subTest(name=name, duration=duration):
                self.assertEqual([flag in row["what_helps"] for row in rows], [True] * bool(flag))

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

    def test_math_that_needs_the_first_collective_can_hide_the_second(self) -> None:
        program = [
            op("x", "parameter"),
            op("first", "all-reduce", "x"),
            op("math", "negate", "first"),
            op("second", "all-reduce", "x"),
            op("end", "add", "math", "second"),
        ]
        (row,) = in_turn(program, {"first": 100, "math": 60, "second": 100, "end": 100})
        self.assertEqual(row["gain_ps"], 60)

    def test_gain_is_at_most_the_time_of_the_collectives(self) -> None:
        program = [
            op("x", "parameter", shape=LARGE),
            op("y", "parameter", shape=LARGE),
            op("begin", "all-gather-start", "y", shape=LARGE, extra=GROUPS),
            op("free", "negate", "x", shape=LARGE),
            op("moved", "all-reduce", "x", shape=LARGE, extra=GROUPS),
            op("math", "negate", "moved", shape=LARGE),
            op("end", "all-gather-done", "begin", shape=LARGE),
            op("last", "add", "math", "end", shape=LARGE),
        ]
        (row,) = in_turn(
            program, {"begin": 1, "free": 150, "moved": 100, "math": 200, "end": 80, "last": 60}
        )
        self.assertEqual(row["gain_ps"], 100)

    def test_math_after_the_first_use_of_the_result_hides_nothing(self) -> None:
        self.assertEqual(
            in_turn(main("all-reduce"), {"moved": 100, "after": 500, "free": FREE}), []
        )

    def test_many_short_ops_that_compute_an_operand_run_before_the_collective(self) -> None:
        names = [f"part.{i}" for i in range(8)]
        program = [
            op("x", "parameter", shape=LARGE),
            op("first", "all-reduce", "x", shape=LARGE, extra=GROUPS),
            op("second", "all-reduce", "x", shape=LARGE, extra=GROUPS),
            *(op(name, "negate", ["x", *names][i], shape=LARGE) for i, name in enumerate(names)),
            op("third", "all-reduce", names[-1], shape=LARGE, extra=GROUPS),
            op("after", "add", "first", "second", "third", shape=LARGE),
        ]
        parts = dict.fromkeys(names, 40)
        (row,) = in_turn(
            program, {"first": 100, "second": 100, **parts, "third": 100, "after": 300}
        )
        # The parts can hide two of the collectives; the third needs their result.
        self.assertEqual(row["gain_ps"], 200)

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

    def test_collectives_whose_results_are_used_first_are_hidden_first(self) -> None:
        program = [
            op("x", "parameter"),
            op("early", "negate", "x"),
            op("first", "all-reduce", "early"),
            op("second", "all-reduce", "early"),
            op("math", "add", "first", "second"),
            op("third", "all-reduce", "x"),
            op("end", "add", "math", "third"),
        ]
        (row,) = in_turn(
            program,
            {"early": 150, "first": 50, "second": 50, "math": 200, "third": 200, "end": 100},
        )
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
