"""Test the cause `hoistable_matmul`."""

from __future__ import annotations

import unittest
from unittest import mock

from tests.analysis.small_programs import FAST, Json, causes, rounds, take
from tests.builders.hlo_proto import Op, array, op, tuple_of
from tests.builders.xspace import op as event

ROWS = array("bf16", 64, 128)
ALL = array("bf16", 4, 64, 128)
# What the loop carries from round to round.
CARRIED = ROWS
# The test's chip does this many flops in 1 ps.
FLOPS = 197
PEAK = (*FAST, "--peak-tflops-bf16", str(FLOPS))
FORWARD, BACKWARD = "jit(f)/jvp(loop)/dot:", "jit(f)/transpose(jvp(loop))/dot:"


def found(
    *body: Op,
    ran: dict[str, int],
    path: str = FORWARD,
    flops: int = 5,
    kept: tuple[str, str] = ("xs", "w"),
    n: int = 4,
) -> list[Json]:
    """Return the causes if four rounds do the matmul `y`, whose operands are computed in `body`."""
    state = tuple_of(CARRIED, ALL, ROWS)
    inner = [
        op("state", "parameter", shape=state),
        take("h", "state", 0, CARRIED),
        take("xs", "state", 1, ALL),
        take("w", "state", 2, ROWS),
        *body,
        op("new", "tanh", "y", shape=CARRIED),
        op("next", "tuple", "new", *kept, shape=state),
    ]
    program = {
        "body": inner,
        "condition": [op("rounds", "parameter", shape=state)],
        "main": [
            op("h.0", "parameter", shape=CARRIED),
            op("xs.0", "parameter", shape=ALL, number=1),
            op("w.0", "parameter", shape=ROWS, number=2),
            op("large", "dot", "h.0", "w.0", shape=CARRIED),
            op("init", "tuple", "large", "xs.0", "w.0", shape=state),
            op("while.1", "while", "init", shape=state, calls=["body", "condition"]),
        ],
    }
    events = [event("large", "convolution fusion", 0, 100, flops=FLOPS * 50)]
    for name, time in ran.items():
        start = 100 + 20 * list(ran).index(name)
        facts = {"flops": FLOPS * flops, "tf_op": path} if name == "y" else {}
        facts = {"flops": FLOPS * flops, "tf_op": BACKWARD} if name == "dy" else facts
        facts = {"tf_op": BACKWARD} if name == "db" else facts
        events += rounds(name, "convolution fusion", start, time, n, **facts)
    return causes(program, [event("while.1", "while", 100, 400), *events], *PEAK)


SLICE = op("x", "dynamic-slice", "xs", shape=ROWS)
MATMUL = op("y", "dot", "x", "w", shape=ROWS, line="gru.py:3")


class HoistableMatmul(unittest.TestCase):
    def test_matmul_that_needs_no_other_round_is_reported(self) -> None:
        (row,) = found(SLICE, MATMUL, ran={"x": 10, "y": 40})
        # Four matmuls of 5 ps at the peak take 10 ps each at the efficiency of the large one. The
        # slices of the result take as long as those of the inputs.
        self.assertEqual((row["cause"], row["gain_ps"]), ("hoistable_matmul", 120))
        self.assertEqual((row["source_user"], row["confidence"]), ("gru.py:3", "seen"))
        self.assertIn("multiplies in each of 4 rounds", row["says"])

    def test_slices_inside_the_matmul_become_ops(self) -> None:
        other = op("z", "dynamic-slice", "xs", shape=ROWS)
        whole = op("y", "dot", "xs", "w", shape=ROWS, line="gru.py:3")
        (row,) = found(other, whole, ran={"y": 40, "z": 20})
        self.assertEqual((row["cause"], row["gain_ps"]), ("hoistable_matmul", 40))
        self.assertEqual(found(other, whole, ran={"y": 40, "z": 30}), [])

    def test_loop_of_one_round_is_not_reported(self) -> None:
        self.assertEqual(found(SLICE, MATMUL, ran={"x": 10, "y": 160}, flops=20, n=1), [])

    def test_damaged_loop_whose_state_contains_itself_is_read(self) -> None:
        self.assertEqual(found(SLICE, MATMUL, ran={"x": 10, "y": 40}, kept=("state", "w")), [])

    def test_matmul_of_what_the_loop_carries_is_not_reported(self) -> None:
        carried = op("y", "dot", "h", "w", shape=ROWS, line="gru.py:3")
        self.assertEqual(found(SLICE, carried, ran={"x": 10, "y": 40}), [])

    def test_matmul_of_a_token_that_the_loop_carries_is_not_reported(self) -> None:
        # The state is [tokens, table, weight], and each round chooses the next tokens.
        tokens = array("s32", 64)
        lookup = op("x", "gather", "xs", "h", shape=ROWS)
        for state, n in ((tokens, 0), (array("u32", 64), 1)):
            with mock.patch(f"{__name__}.CARRIED", state):
                self.assertEqual(len(found(lookup, MATMUL, ran={"x": 10, "y": 40})), n)

    def test_matmul_of_a_cache_that_each_round_extends_is_not_reported(self) -> None:
        update = op("cache", "dynamic-update-slice", "xs", "w", shape=ALL)
        part = op("x", "slice", "cache", shape=ROWS)
        rows = found(update, part, MATMUL, ran={"x": 10, "y": 40}, kept=("cache", "w"))
        self.assertEqual(rows, [])
        # Results that no round reads are no reason to run the rounds one after another.
        rows = found(update, SLICE, MATMUL, ran={"x": 10, "y": 40}, kept=("xs", "w"))
        self.assertEqual(len(rows), 1)

    def test_matmul_of_a_gathered_weight_is_not_reported(self) -> None:
        gathered = op("whole", "all-gather", "w", shape=ROWS)
        used = op("y", "dot", "x", "whole", shape=ROWS, line="gru.py:3")
        rows = found(SLICE, gathered, used, ran={"x": 10, "y": 40})
        self.assertNotIn("hoistable_matmul", [row["cause"] for row in rows])

    def test_efficient_matmul_is_not_reported(self) -> None:
        self.assertEqual(found(SLICE, MATMUL, ran={"x": 10, "y": 40}, flops=20), [])

    def test_gradient_that_reads_the_same_weight_becomes_one_matmul_too(self) -> None:
        for operands, gain in ((("z", "w"), 240), (("h", "z"), 120)):
            other = op("z", "tanh", "h", shape=ROWS)
            gradient = op("dy", "dot", *operands, shape=ROWS, line="gru.py:3")
            with self.subTest(operands):
                rows = found(SLICE, MATMUL, other, gradient, ran={"x": 10, "y": 40, "dy": 40})
                self.assertEqual([row["gain_ps"] for row in rows], [gain])

    def test_gradient_of_a_bias_goes_and_stores_replace_slices(self) -> None:
        body = (
            op("again", "dynamic-slice", "xs", shape=ROWS),
            op("z", "tanh", "h", shape=ROWS),
            op("dy", "dot", "again", "z", shape=ROWS, line="gru.py:3"),
            op("db", "reduce", "z", shape=array("bf16", 128), line="gru.py:3", tf_op=BACKWARD),
        )
        ran = {"x": 10, "y": 40, "dy": 40, "again": 10, "db": 5}
        (row,) = found(SLICE, MATMUL, *body, ran=ran)
        # Two times 120 ps for the matmuls, 20 ps for the bias, and half of 40 ps for the slices.
        self.assertEqual(row["gain_ps"], 280)

    def test_result_that_hardly_fits_into_memory_is_not_reported(self) -> None:
        n_bytes = 4 * 64 * 128 * 2
        for most, n in ((n_bytes, 1), (n_bytes - 1, 0)):
            with mock.patch("_breakdown.analysis.causes.hoistable_matmul._MOST_BYTES", most):
                self.assertEqual(len(found(SLICE, MATMUL, ran={"x": 10, "y": 40})), n)

    def test_recomputed_matmul_is_not_reported(self) -> None:
        path = "jit(f)/transpose(jvp(loop))/rematted_computation/dot:"
        self.assertEqual(found(SLICE, MATMUL, ran={"x": 10, "y": 40}, path=path), [])

    def test_matmul_of_the_backward_pass_is_not_reported(self) -> None:
        rows = found(SLICE, MATMUL, ran={"x": 10, "y": 40}, path=BACKWARD)
        self.assertEqual(rows, [])
