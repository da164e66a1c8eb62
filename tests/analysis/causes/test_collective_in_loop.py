"""Test the cause `collective_in_loop`: collectives that a loop repeats needlessly."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, Program, accumulating, causes, loop, rounds, take
from tests.builders.hlo_proto import Op, array, listed_groups, op, tuple_of
from tests.builders.xspace import op as event


def found(program: Program, n: int = 4, collective: str = "all-reduce") -> list[Json]:
    """Return the causes if the collective takes 50 ps in each of `n` iterations."""
    ran = [
        event("while.1", "while", 0, 100 * n),
        *rounds("grad", "convolution fusion", 0, 50, n),
        *rounds("reduced", collective, 50, 50, n),
    ]
    return [row for row in causes(program, ran) if row["cause"] == "collective_in_loop"]


class Accumulators(unittest.TestCase):
    def test_all_reduce_into_an_accumulator_is_reported(self) -> None:
        (row,) = found(loop(accumulating(), 3))
        # The collective takes 200 ps in 4 iterations; one run after the loop would take 50 ps.
        self.assertEqual((row["gain_ps"], row["gain_pct_of_step"]), (150, 15.0))
        self.assertEqual((row["source_user"], row["confidence"]), ("train.py:5", "seen"))
        self.assertEqual(row["evidence"]["ops"], ["reduced"])
        self.assertIn("A loop of 4 rounds only adds up the results of 4 all-reduces", row["says"])

    def test_scaled_all_reduce_result_is_reported(self) -> None:
        scaled = op("scaled", "multiply", "reduced", "weight")
        self.assertEqual(len(found(loop(accumulating(scaled, result="scaled"), 3))), 1)

    def test_parts_that_devices_exchange_before_they_are_added_are_found(self) -> None:
        start = op("start", "collective-permute-start", "border")
        for moving in (
            [start, op("moved", "collective-permute-done", "start")],
            [op("moved", "collective-permute", "border")],
        ):
            between = [
                op("border", "slice", "reduced"),
                *moving,
                # All of the result goes through the exchange, so that the test fails without it.
                op("joined", "concatenate", "moved", "moved"),
                op("kept", "dynamic-slice", "joined", "weight"),
            ]
            self.assertEqual(len(found(loop(accumulating(*between, result="kept"), 3))), 1)

    def test_accumulation_inside_a_fusion_is_found(self) -> None:
        body = accumulating()
        body[-2] = op("new", "fusion", "sum", "reduced", calls=["fused"])
        program = {
            "fused": [
                op("p.0", "parameter"),
                op("p.1", "parameter", number=1),
                op("add.1", "add", "p.0", "p.1"),
            ],
            **loop(body, 3),
        }
        self.assertEqual(len(found(program)), 1)

    def test_accumulated_tanh_of_the_result_is_not_reported(self) -> None:
        squashed = op("squashed", "tanh", "reduced")
        self.assertEqual(found(loop(accumulating(squashed, result="squashed"), 3)), [])

    def test_running_maximum_is_not_reported(self) -> None:
        self.assertEqual(found(loop(accumulating(added="maximum"), 3)), [])

    def test_sum_that_the_next_iteration_uses_is_not_reported(self) -> None:
        # The next iteration uses the sum in a matmul, so the sum cannot be deferred.
        body = accumulating()
        body[4] = op("grad", "dot", "batch", "sum")
        self.assertEqual(found(loop(body, 3)), [])

    def test_loop_with_one_iteration_is_not_reported(self) -> None:
        self.assertEqual(found(loop(accumulating(), 3), n=1), [])

    def test_results_stacked_by_an_inner_loop_are_found_if_the_outer_loop_adds_them(self) -> None:
        two = tuple_of(array("f32", 8, 128), array("f32", 8, 128))
        inner = [
            op("layer", "parameter", shape=two),
            take("stacked", "layer", 0),
            take("x", "layer", 1),
            op("reduced", "all-reduce", "x", line="hook.py:3"),
            op("written", "dynamic-update-slice", "stacked", "reduced"),
            op("layers", "tuple", "written", "x", shape=two),
        ]
        outer = [
            op("state", "parameter"),
            take("sum", "state", 0),
            take("weight", "state", 1),
            op("zeros", "constant"),
            op("first", "tuple", "zeros", "weight", shape=two),
            op("while.2", "while", "first", shape=two, calls=["inner", "more"]),
            take("grads", "while.2", 0),
            op("new", "add", "sum", "grads"),
            op("root", "tuple", "new", "weight"),
        ]
        program: Program = {"inner": inner, "more": [op("go", "parameter", shape=two)]}
        program |= loop(outer, 2)
        ran = [
            event("while.1", "while", 0, 400),
            *rounds("while.2", "while", 0, 100, 4),
            *rounds("reduced", "all-reduce", 0, 40, 4),
            *rounds("reduced", "all-reduce", 50, 40, 4),
        ]
        (row,) = [row for row in causes(program, ran) if row["cause"] == "collective_in_loop"]
        # The outer loop has 4 iterations, and the collective runs twice in each.
        self.assertEqual(row["gain_ps"], 240)
        self.assertEqual((row["source_user"], row["confidence"]), ("hook.py:3", "seen"))
        # If the outer loop accumulates nothing, the inner loop could be a loop over layers.
        outer[-2] = op("new", "tanh", "grads")
        program = {"inner": inner, "more": program["more"], **loop(outer, 2)}
        rows = [row["confidence"] for row in causes(program, ran) if "loop" in row["cause"]]
        self.assertNotIn("seen", rows)


class SameEachRound(unittest.TestCase):
    @staticmethod
    def body(operand: str) -> list[Op]:
        return [
            op("state", "parameter"),
            take("x", "state", 0),
            take("weight", "state", 1),
            op("narrow", "convert", operand),
            op("reduced", "all-gather", "narrow", line="model.py:8"),
            op("new", "dot", "x", "reduced"),
            op("root", "tuple", "new", "weight"),
        ]

    def test_weight_copied_between_memories_counts_as_unchanged(self) -> None:
        body = self.body("weight")
        body[-1:] = [
            op("copy-start.1", "copy-start", "weight"),
            op("copy-done.1", "copy-done", "copy-start.1"),
            op("root", "tuple", "new", "copy-done.1"),
        ]
        ran = [event("while.1", "while", 0, 400), *rounds("reduced", "all-gather", 0, 60, 4)]
        (row,) = [row for row in causes(loop(body, 2), ran) if row["cause"] == "collective_in_loop"]
        self.assertEqual(row["gain_ps"], 60 * 3)

    def test_gather_of_an_unchanged_weight_is_a_likely_cause(self) -> None:
        (row,) = found(loop(self.body("weight"), 2), collective="all-gather")
        self.assertEqual((row["gain_ps"], row["confidence"]), (150, "likely"))
        self.assertEqual(row["source_user"], "model.py:8")
        self.assertIn("repeats 4 all-gathers on the same data", row["says"])
        self.assertIn("if memory allows", row["what_helps"])

    def test_gather_of_a_changing_array_is_not_reported(self) -> None:
        self.assertEqual(found(loop(self.body("x"), 2), collective="all-gather"), [])

    def test_gathers_in_a_layer_loop_are_found_if_an_outer_loop_repeats_them(self) -> None:
        counter, weights = array("s32"), array("f32", 8, 128)
        state = tuple_of(counter, weights)
        inner = [
            op("layer", "parameter", shape=state),
            take("i", "layer", 0, counter),
            take("stacked", "layer", 1, weights),
            op("slice", "dynamic-slice", "stacked", "i"),
            op("whole", "all-gather", "slice", line="model.py:8"),
            op("used", "negate", "whole"),
            op("next", "add", "i", "i", shape=counter),
            op("layers", "tuple", "next", "stacked", shape=state),
        ]
        outer = [
            op("state", "parameter"),
            take("x", "state", 0),
            take("weight", "state", 1),
            op("zero", "constant", shape=counter),
            op("first", "tuple", "zero", "weight", shape=state),
            op("while.2", "while", "first", shape=state, calls=["inner", "more"]),
            op("root", "tuple", "x", "weight"),
        ]
        program: Program = {"inner": inner, "more": [op("go", "parameter", shape=state)]}
        program |= loop(outer, 2)
        ran = [
            event("while.1", "while", 0, 400),
            *rounds("while.2", "while", 0, 100, 4),
            *rounds("whole", "all-gather", 0, 40, 4),
            *rounds("whole", "all-gather", 50, 40, 4),
        ]
        (row,) = [row for row in causes(program, ran) if row["cause"] == "collective_in_loop"]
        # Each inner iteration gathers a different layer, so only the outer loop repeats a gather.
        self.assertEqual(row["gain_ps"], 240)
        self.assertEqual(row["confidence"], "likely")
        # Weights that the outer loop changes must be gathered again.
        outer[-1] = op("root", "tuple", "x", "x")
        program |= loop(outer, 2)
        self.assertNotIn("collective_in_loop", [row["cause"] for row in causes(program, ran)])

    def test_gain_includes_waits_that_a_repeated_collective_prolongs(self) -> None:
        large, groups = array("f32", 1024, 1024), listed_groups((0, 1))
        body = [
            op("state", "parameter"),
            take("x", "state", 0, large),
            take("weight", "state", 1, large),
            op("all-gather-start", "all-gather-start", "weight", shape=large, extra=groups),
            op("all-reduce-start", "all-reduce-start", "x", shape=large, extra=groups),
            op("all-reduce-done", "all-reduce-done", "all-reduce-start", shape=large),
            op("all-gather-done", "all-gather-done", "all-gather-start", shape=large),
            op("new", "dot", "all-reduce-done", "all-gather-done"),
            op("root", "tuple", "new", "weight"),
        ]
        ran = [
            event("while.1", "while", 0, 400),
            *rounds("all-gather-start", "all-gather-start", 10, 0, 4),
            *rounds("all-reduce-start", "all-reduce-start", 20, 0, 4),
            *rounds("all-reduce-done", "all-reduce-done", 30, 59, 4),
            *rounds("all-gather-done", "all-gather-done", 90, 1, 4),
        ]
        (row,) = [row for row in causes(loop(body, 2), ran) if "loop" in row["cause"]]
        # In each iteration, the gather uses the links for 20 ps, and the all-reduce, which moves
        # twice the bytes, for 40 ps. The core waits for the all-reduce first, so the gather
        # prolongs that wait.
        self.assertEqual(row["gain_ps"], 20 * 3)
