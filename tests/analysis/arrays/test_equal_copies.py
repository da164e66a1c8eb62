"""Test on which devices a program computes the same."""

from __future__ import annotations

import unittest
from typing import Any

from _breakdown.analysis.arrays.equal_copies import EqualCopies
from _proto.hlo.program import Program
from tests.analysis.small_programs import take
from tests.builders.hlo_proto import (
    MANUAL,
    REPLICATED,
    TILED,
    TUPLE,
    UNREDUCED,
    Op,
    array,
    listed_groups,
    module,
    named_sharding,
    op,
    pairs,
    sharding,
    shardings,
    tuple_of,
)
from tests.builders.xspace import encode

N = 4
EVERYWHERE, DIVIDED = sharding(REPLICATED), sharding(TILED, [N], iota=[N])
X, TWO = array("f32", 8), tuple_of(array("f32", 8), array("f32", 8))
ALL = listed_groups(range(N))
ONE, SECOND = take("one", "state", 0, X), take("two", "state", 1, X)


def n_alike(name: str, computations: dict[str, list[Op]], *given: bytes, **more: Any) -> int:
    """Return how many of four devices compute the same in an instruction."""
    extra = shardings(*given)
    message = module(computations, devices=(1, N), extra=extra, **more)
    program = Program(encode(message), 0, lambda: None, lambda complaint: None)
    here = program.instruction(name)
    assert here
    return EqualCopies(program, N).n_alike(here)


def after(*ops: Op, given: bytes = DIVIDED, x: Op | None = None) -> int:
    """Return how many devices compute the same from the last of some instructions."""
    first = x or op("x", "parameter", shape=X)
    return n_alike(
        "y", {"main": [first, *ops, op("y", "negate", ops[-1].name if ops else "x")]}, given
    )


def fused(inside: list[Op]) -> dict[str, list[Op]]:
    """Return a program that runs these instructions in a fusion."""
    return {
        "inside": inside,
        "main": [
            op("x", "parameter", shape=X),
            op("fusion", "fusion", "x", calls=["inside"]),
            op("y", "negate", "fusion"),
        ],
    }


class Parameters(unittest.TestCase):
    def test_devices_with_the_same_part_of_a_parameter_are_alike(self) -> None:
        axes = (("data", 2), ("model", 2))
        for written, n in (
            (EVERYWHERE, N),
            (DIVIDED, 1),
            (sharding(TILED, [2, 2], iota=[N], shares_last=True), 2),
            (sharding(TILED, [2, 2], devices=[0, 2, 1, 3], shares_last=True), 2),
            (sharding(TILED, [1, 4], iota=[N], subgroups=[REPLICATED]), N),
            (sharding(TILED, [1, 4], iota=[N], subgroups=[UNREDUCED]), 1),
            (sharding(MANUAL), 1),
            (sharding(99), 1),
            (sharding(REPLICATED, named=named_sharding(axes)), N),
            (sharding(REPLICATED, named=named_sharding(axes, [[0]])), 2),
            (sharding(REPLICATED, named=named_sharding(axes, [[0, 1]])), 1),
            (sharding(REPLICATED, named=named_sharding(axes, [[(0, 1, 2)]])), 1),
            (sharding(REPLICATED, named=named_sharding(axes, unreduced=[0])), 1),
        ):
            with self.subTest(written):
                self.assertEqual(after(given=written), n)

    def test_groups_of_two_parameters_are_intersected(self) -> None:
        rows = sharding(TILED, [2, 2], iota=[N], shares_last=True)
        columns = sharding(TILED, [2, 2], iota=[2, 2], order=[1, 0], shares_last=True)
        program = {
            "main": [
                op("a", "parameter", shape=X),
                op("b", "parameter", shape=X, number=1),
                op("y", "add", "a", "b", shape=X),
            ]
        }
        self.assertEqual(n_alike("y", program, rows, rows), 2)
        self.assertEqual(n_alike("y", program, rows, columns), 1)
        self.assertEqual(n_alike("y", program, rows, EVERYWHERE), 2)

    def test_parts_of_a_tuple_differ(self) -> None:
        given = sharding(TUPLE, parts=[EVERYWHERE, DIVIDED])
        first = op("x", "parameter", shape=TWO)
        self.assertEqual(after(take("part", "x", 0, X), given=given, x=first), N)
        self.assertEqual(after(take("part", "x", 1, X), given=given, x=first), 1)


class Collectives(unittest.TestCase):
    def test_gathers_and_sums_are_equal_in_their_groups(self) -> None:
        for opcode in ("all-gather", "all-reduce"):
            self.assertEqual(after(op("c", opcode, "x", extra=ALL)), N)
            in_pairs = listed_groups((0, 1), (2, 3))
            self.assertEqual(after(op("c", opcode, "x", extra=in_pairs)), 2)
            # The two halves of the devices have the same parts, so all get the same.
            halves = sharding(TILED, [2, 2], iota=[2, 2], order=[1, 0], shares_last=True)
            self.assertEqual(after(op("c", opcode, "x", extra=in_pairs), given=halves), N)

    def test_results_of_other_collectives_differ(self) -> None:
        self.assertEqual(after(op("c", "reduce-scatter", "x", extra=ALL), given=EVERYWHERE), 1)
        self.assertEqual(after(op("c", "all-to-all", "x", extra=ALL), given=EVERYWHERE), 1)
        ring = pairs((0, 1), (1, 2), (2, 3), (3, 0))
        self.assertEqual(after(op("c", "collective-permute", "x", extra=ring)), 1)

    def test_asynchronous_collective_is_equal_after_its_end(self) -> None:
        start = op("start", "all-gather-start", "x", shape=TWO, extra=ALL)
        self.assertEqual(after(start, op("done", "all-gather-done", "start", shape=X)), N)
        copy = op("start", "copy-start", "x", shape=TWO)
        self.assertEqual(after(copy, op("done", "copy-done", "start", shape=X)), 1)

    def test_collective_inside_a_fusion_is_found(self) -> None:
        inside = [op("p", "parameter", shape=X), op("whole", "all-gather", "p", extra=ALL)]
        self.assertEqual(n_alike("y", fused(inside), DIVIDED), N)


class Differences(unittest.TestCase):
    def test_number_of_the_device_differs(self) -> None:
        place = op("place", "partition-id", shape=array("u32"))
        cut = op("part", "dynamic-slice", "x", "place", shape=X)
        self.assertEqual(after(place, cut, given=EVERYWHERE), 1)
        inside = [op("p", "parameter", shape=X), place, op("sum", "add", "p", "place")]
        self.assertEqual(n_alike("y", fused(inside), EVERYWHERE), 1)

    def test_kernel_that_sends_data_differs(self) -> None:
        config = b'{"custom_call_config": {"has_communication": true}}'
        for written, n in ((None, N), (config, 1)):
            kernel = op("kernel", "custom-call", "x", config=written, target="tpu_custom_call")
            self.assertEqual(after(kernel, given=EVERYWHERE), n)


class Damage(unittest.TestCase):
    def test_computation_that_calls_itself_is_read(self) -> None:
        for opcode in ("call", "while"):
            program = {
                "inside": [
                    op("p", "parameter", shape=X),
                    op("again", opcode, "p", calls=["inside"]),
                ],
                "main": [
                    op("x", "parameter", shape=X),
                    op("first", opcode, "x", calls=["inside"]),
                    op("y", "negate", "first"),
                ],
            }
            self.assertEqual(n_alike("y", program, EVERYWHERE), 1)


class Loops(unittest.TestCase):
    def loop(self, *body: Op, given: bytes = EVERYWHERE, at: str = "y", **more: list[Op]) -> int:
        """Return how many devices compute the same from the first part of a loop's state.

        The loop begins with two parameters, of which the second is divided.
        """
        program = {
            "condition": [op("s", "parameter", shape=TWO)],
            "body": [op("state", "parameter", shape=TWO), ONE, SECOND, *body],
            **more,
            "main": [
                op("a", "parameter", shape=X),
                op("b", "parameter", shape=X, number=1),
                op("init", "tuple", "a", "b", shape=TWO),
                op("loop", "while", "init", shape=TWO, calls=["body", "condition"]),
                take("first", "loop", 0, X),
                op("y", "negate", "first"),
            ],
        }
        return n_alike(at, program, given, DIVIDED)

    def test_state_that_stays_equal_is_equal(self) -> None:
        self.assertEqual(self.loop(op("next", "tuple", "one", "two", shape=TWO)), N)

    def test_state_that_becomes_different_in_a_later_round_is_different(self) -> None:
        swapped = op("next", "tuple", "two", "one", shape=TWO)
        self.assertEqual(self.loop(swapped), 1)

    def test_state_that_is_gathered_in_each_round_is_different_at_the_start(self) -> None:
        whole = op("whole", "all-gather", "one", extra=ALL)
        following = op("next", "tuple", "whole", "two", shape=TWO)
        self.assertEqual(self.loop(whole, following, given=DIVIDED), 1)
        self.assertEqual(self.loop(whole, following), N)

    def test_inner_loop_is_read_with_the_state_of_the_last_round(self) -> None:
        # The first inner loop gets another state in the second round, the second the same one.
        for first, result in (("one", "ij"), ("whole", "ji")):
            i, j = take("i", "of_inner", 0, X), take("j", "of_inner", 1, X)
            end = op("o", "tuple", *result, shape=TWO)
            n = self.loop(
                op("whole", "all-gather", "two", extra=ALL),
                op("begin", "tuple", first, "two", shape=TWO),
                op("inside", "while", "begin", shape=TWO, calls=["inner", "condition"]),
                take("of_inside", "inside", 0, X),
                op("user", "negate", "of_inside"),
                op("next", "tuple", "two", "two", shape=TWO),
                at="user",
                inner=[op("of_inner", "parameter", shape=TWO), i, j, end],
            )
            self.assertEqual(n, 1)
