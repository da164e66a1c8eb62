"""Test the cause `loop_of_tiny_ops`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import FAST, Json, Program, causes, loop, take
from tests.builders.hlo_proto import Op, OpMetadata, op
from tests.builders.xspace import op as event

# At this peak, memory moves 4096 bytes in 1 ps.
SLOW = ("--peak-hbm-gibps", str(4096 * 10**12 / 2**30))


def found(
    program: Program,
    *names: str,
    n: int = 120,
    options: tuple[str, ...] = FAST,
    each: int = 2,
) -> list[Json]:
    """Return the causes if each round runs ops of 2 ps, or of the given time."""
    program["main"][-1].instruction.metadata = OpMetadata(source_file="model.py", source_line=3)
    ran = [
        event(name, "loop fusion", each * (3 * i + k), each, bytes_accessed=4096)
        for i in range(n)
        for k, name in enumerate(names)
    ]
    container = event("while.1", "while", 0, 3 * each * n)
    return causes(program, [container, *ran], *options, duration=500 * each)


def recurrence(*body: Op) -> Program:
    """Return a loop whose first carried array becomes `new`; the second is an input."""
    given = [op("state", "parameter"), take("h", "state", 0), take("x", "state", 1)]
    return loop([*given, *body, op("next", "tuple", "new", "x")], 2)


LINEAR = op("scaled", "multiply", "h", "x"), op("new", "add", "scaled", "x")


class LoopOfTinyOps(unittest.TestCase):
    def test_linear_recurrence_can_be_an_associative_scan(self) -> None:
        (row,) = found(recurrence(*LINEAR), "scaled", "new")
        self.assertEqual((row["cause"], row["confidence"]), ("loop_of_tiny_ops", "seen"))
        self.assertEqual((row["gain_ps"], row["source_user"]), (480, "model.py:3"))
        self.assertIn("1 loop at model.py:3 runs 120 rounds of about 4 ps", row["says"])
        self.assertIn("associative_scan", row["what_helps"])

    def test_independent_rounds_can_be_vectorised(self) -> None:
        body = [
            op("state", "parameter"),
            take("ys", "state", 0),
            take("x", "state", 1),
            op("y", "tanh", "x"),
            op("new", "dynamic-update-slice", "ys", "y"),
            op("next", "tuple", "new", "x"),
        ]
        (row,) = found(loop(body, 2), "y", "new")
        self.assertEqual(row["cause"], "loop_of_tiny_ops")
        self.assertIn("jax.vmap", row["what_helps"])

    def test_sum_over_rounds_needs_no_order(self) -> None:
        program = recurrence(op("y", "tanh", "x"), op("new", "add", "h", "y"))
        (row,) = found(program, "y", "new")
        self.assertIn("jax.vmap", row["what_helps"])
        read = recurrence(op("y", "tanh", "h"), op("new", "add", "h", "y"))
        self.assertEqual(found(read, "y", "new"), [])

    def test_linear_recurrence_inside_a_fusion_is_found(self) -> None:
        program = recurrence(op("new", "fusion", "h", "x", calls=["fused"]))
        inside = [
            op("p", "parameter"),
            op("q", "parameter", number=1),
            op("scaled", "multiply", "p", "q"),
            op("sum", "add", "scaled", "q"),
        ]
        (row,) = found({"fused": inside, **program}, "new")
        self.assertEqual(row["cause"], "loop_of_tiny_ops")

    def test_other_recurrence_is_not_reported(self) -> None:
        for new in (
            (op("new", "tanh", "h"),),
            (op("new", "multiply", "h", "h"),),
            (op("new", "divide", "x", "h"),),
            (op("new", "dot", "h", "x"),),
            (op("new", "select", "h", "x", "x"),),
            (op("squared", "multiply", "h", "h"), op("new", "add", "squared", "x")),
        ):
            with self.subTest(new[0].opcode):
                self.assertEqual(found(recurrence(*new), "new"), [])

    def test_buffer_that_rounds_also_read_is_carried(self) -> None:
        program = recurrence(
            op("read", "dynamic-slice", "h", "x"),
            op("y", "tanh", "read"),
            op("new", "dynamic-update-slice", "h", "y"),
        )
        self.assertEqual(found(program, "y", "new"), [])

    def test_few_rounds_are_not_reported(self) -> None:
        self.assertEqual(found(recurrence(*LINEAR), "scaled", "new", n=99), [])

    def test_long_rounds_are_not_reported(self) -> None:
        for microseconds, n in ((24, 1), (26, 0)):
            with self.subTest(microseconds):
                rows = found(recurrence(*LINEAR), "scaled", "new", each=microseconds * 10**6)
                self.assertEqual(len(rows), n)

    def test_loop_near_the_roof_is_not_reported(self) -> None:
        self.assertEqual(found(recurrence(*LINEAR), "scaled", "new", options=SLOW), [])
