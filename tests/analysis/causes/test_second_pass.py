"""Test the cause `second_pass`: a sum over an array that needs another sum over it."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import Op, Shape, array, op
from tests.builders.xspace import op as event

# At this peak, memory moves 10 000 bytes per picosecond.
HBM = ("--peak-hbm-gibps", str(10**16 / 2**30))
X, ROWS = array("f32", 1000, 512), array("f32", 1000)
N_X = 4 * 1000 * 512


def found(
    *,
    first: str = "add",
    between: str = "negate",
    others: tuple[str, ...] = (),
    result: Shape = ROWS,
    space: int | None = None,
    rows: int = 1000,
    name: str = "reduce_sum",
) -> list[Json]:
    """Return the causes in a program that sums an array, and sums it again with the first sum.
    Each sum slices that many of its rows off first."""
    x = X if space is None else array("f32", 1000, 512, space=space)
    main = [
        op("input", "parameter", shape=array("f32", 1000)),
        op("x", "copy", "input", shape=x) if space else op("x", "parameter", shape=x, number=1),
        op("y", "parameter", shape=X, number=2),
        op("sum.1", "fusion", "x", shape=ROWS, calls=["one"], line="norm.py:3"),
        op("mean.1", between, "input" if between == "copy" else "sum.1", shape=ROWS),
        op(
            "sum.2", "fusion", "x", "mean.1", *others, shape=result, calls=["two"], line="norm.py:4"
        ),
    ]
    add: list[Op] = [op("a", "parameter"), op("b", "parameter", number=1), op("c", first, "a", "b")]
    plus = [op("d", "parameter"), op("e", "parameter", number=1), op("f", "add", "d", "e")]
    part = array("f32", rows, 512)
    one = [
        op("p.0", "parameter", shape=X),
        op("t.0", "slice", "p.0", shape=part),
        op("r.1", "reduce", "t.0", shape=ROWS, calls=["add"]),
    ]
    two = [
        op("p.1", "parameter", shape=X),
        op("t.1", "slice", "p.1", shape=part),
        op("p.2", "parameter", shape=ROWS, number=1),
        *(op(f"q.{i}", "parameter", shape=X, number=2 + i) for i in range(len(others))),
        op("m.1", "broadcast", "p.2", shape=part),
        op("s.1", "subtract", "t.1", "m.1", shape=part),
        op("r.2", "reduce", "s.1", shape=result, calls=["plus"], tf_op=f"jit(f)/{name}"),
    ]
    ran = [
        event("sum.1", "loop fusion", 0, 300, bytes_accessed=N_X),
        event("mean.1", "loop fusion", 300, 10),
        event("sum.2", "loop fusion", 310, 400, bytes_accessed=N_X * (1 + len(others))),
    ]
    program = {"add": add, "plus": plus, "one": one, "two": two, "main": main}
    return [row for row in causes(program, ran, *HBM) if row["cause"] == "second_pass"]


class SecondPass(unittest.TestCase):
    def test_sum_that_needs_a_sum_over_the_same_array_is_reported(self) -> None:
        (row,) = found()
        self.assertEqual((row["gain_ps"], row["confidence"]), (400, "likely"))
        self.assertEqual((row["source_user"], row["evidence"]["ops"]), ("norm.py:4", ["sum.2"]))
        self.assertIn("arrays such as f32[1000,512] need a first sum over the same", row["says"])
        self.assertIn("so 1 op read 1.95 MiB a second time", row["says"])

    def test_array_in_vmem_is_read_a_second_time_too(self) -> None:
        self.assertEqual([row["gain_ps"] for row in found(space=1)], [400])

    def test_sums_over_two_halves_are_not_reported(self) -> None:
        self.assertEqual(len(found(rows=501)), 1)
        self.assertEqual(found(rows=500), [])

    def test_sum_that_does_not_need_the_first_is_not_reported(self) -> None:
        self.assertEqual(found(between="copy"), [])

    def test_weighted_sum_after_a_softmax_is_not_reported(self) -> None:
        # Attention that reads one cache for the scores and for the result needs both passes.
        self.assertEqual(found(between="exponential"), [])

    def test_sum_after_a_maximum_or_a_matmul_is_not_reported(self) -> None:
        self.assertEqual(found(first="maximum"), [])
        self.assertEqual(found(name="dot_general"), [])

    def test_sum_over_another_array_too_is_not_reported(self) -> None:
        self.assertEqual(found(others=("y",)), [])

    def test_op_with_a_large_result_is_not_reported(self) -> None:
        self.assertEqual(len(found(result=array("f32", 1000, 64))), 1)
        self.assertEqual(found(result=array("f32", 1000, 65)), [])
