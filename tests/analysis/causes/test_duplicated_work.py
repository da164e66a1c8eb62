"""Test the cause `duplicated_work`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import (
    REPLICATED,
    TILED,
    Op,
    array,
    listed_groups,
    op,
    packed,
    sharding,
    shardings,
)
from tests.builders.xspace import op as event

N = 4
ALL = listed_groups(range(N))
WHOLE, PART = array("f32", 1024, 1024), array("f32", 256, 1024)
DIVIDED, EVERYWHERE = sharding(TILED, (N, 1), devices=range(N)), sharding(REPLICATED)
FORWARD, OPTIMIZER = "jit(f)/jvp(g)/dot_general", "jit(f)/add"


def found(
    *program: Op,
    x: bytes = DIVIDED,
    w: bytes = EVERYWHERE,
    source: str = FORWARD,
    scale: int = 10_000,
    n_replicas: int = 1,
) -> list[Json]:
    """Return the causes if a matmul multiplies an array with a weight on four devices.

    The gather of the array takes 200 ps and the matmul 400 ps, both times `scale`.
    """
    ops = [
        op("x", "parameter", shape=WHOLE if x == EVERYWHERE else PART),
        op("w", "parameter", shape=WHOLE, number=1),
        op("device", "partition-id", shape=array("u32")),
        *program,
    ]
    ran = {
        "whole": event("whole", program[0].opcode, 0, 200 * scale),
        "y": event("y", "convolution fusion", 200 * scale, 400 * scale, tf_op=f"{source}:"),
        "part": event("part", "dynamic-slice", 600 * scale, 10),
        "other": event("other", "convolution fusion", 610 * scale, 10),
        "result": event("result", "loop fusion", 630 * scale, 10),
        "grad": event(
            "grad", "convolution fusion", 620 * scale, 10, tf_op="jit(f)/transpose(jvp(g))/dot:"
        ),
    }
    names = {each.name for each in ops}
    events = [execution for name, execution in ran.items() if name in names]
    rows = causes(
        {"main": ops},
        events,
        duration=1000 * scale,
        devices=(n_replicas, N // n_replicas),
        extra=shardings(x, w),
    )
    return [row for row in rows if row["cause"] == "duplicated_work"]


GATHER = op("whole", "all-gather", "x", shape=WHOLE, line="model.py:3", extra=ALL)
MATMUL = op("y", "dot", "whole", "w", shape=WHOLE, line="model.py:4")
SLICE = op("part", "dynamic-slice", "y", "device", shape=PART)


class WorkOnWholeArrays(unittest.TestCase):
    def test_matmul_of_a_gathered_array_of_which_devices_keep_a_part_is_found(self) -> None:
        (row,) = found(GATHER, MATMUL, SLICE)
        # Three quarters of the matmul, and of the gather, which becomes an exchange of parts.
        self.assertEqual((row["gain_ps"], row["confidence"]), (10_000 * (300 + 150), "likely"))
        self.assertEqual(
            (row["source_user"], row["evidence"]["ops"]), ("model.py:4", ["y", "whole"])
        )
        self.assertIn("4 devices run the same ops on the same data at model.py:4", row["says"])
        self.assertTrue(row["what_helps"].startswith("Keep the array divided"))

    def test_work_on_a_parameter_that_is_whole_on_all_devices_is_found(self) -> None:
        matmul = op("y", "dot", "x", "w", shape=WHOLE)
        (row,) = found(matmul, SLICE, x=EVERYWHERE)
        self.assertEqual(row["gain_ps"], 10_000 * 300)
        self.assertTrue(row["what_helps"].startswith("Split a weight"))
        self.assertEqual(found(op("y", "dot", "x", "w", shape=PART), SLICE), [])
        # Nothing is known about a parameter without a sharding.
        self.assertEqual(found(matmul, SLICE, x=sharding(99)), [])

    def test_array_that_is_gathered_in_pairs_is_divided_by_two(self) -> None:
        pairs = listed_groups((0, 1), (2, 3))
        whole = op("whole", "all-gather", "x", shape=WHOLE, extra=pairs)
        (row,) = found(whole, MATMUL, SLICE)
        self.assertEqual(row["gain_ps"], 10_000 * (200 + 100))

    def test_short_op_is_divided_with_long_ones(self) -> None:
        short = op("other", "negate", "whole", shape=WHOLE)
        both = op("result", "add", "y", "other", shape=WHOLE)
        cut = op("part", "dynamic-slice", "result", "device", shape=PART)
        (row,) = found(GATHER, MATMUL, short, both, cut)
        self.assertEqual(row["evidence"]["ops"], ["y", "whole", "other", "result"])

    def test_time_to_collect_results_is_deducted(self) -> None:
        sums = op("y", "dot", "whole", "w", shape=array("f32", 1024))
        other = op("other", "dot", "y", "device", shape=PART)
        # A collective takes 5 us, and the matmul 40 us.
        (row,) = found(GATHER, sums, other, scale=100_000)
        self.assertEqual(row["gain_ps"], 100_000 * (300 + 150) - 5_000_000)
        self.assertEqual(found(GATHER, sums, other), [])

    def test_array_that_can_be_summed_before_it_is_gathered_has_another_cause(self) -> None:
        rows = {"whole": "gathered dimension", "w": "weight"}
        for of, why in rows.items():
            sums = op("y", "reduce", of, "w", shape=array("f32", 1024), extra=packed(14, [0]))
            other = op("other", "dot", "y", "device", shape=PART)
            with self.subTest(why):
                self.assertEqual(len(found(GATHER, sums, other, scale=100_000)), of == "w")

    def test_op_that_does_not_pay_is_left_out_of_a_group_that_pays(self) -> None:
        small = array("f32", 1024)
        other = op("other", "negate", "w", shape=small)
        matmul = op("y", "dot", "whole", "other", shape=WHOLE)
        whole = op("result", "add", "other", "device", shape=small)
        (row,) = found(GATHER, other, matmul, whole, SLICE)
        self.assertAlmostEqual(row["gain_ps"], 10_000 * (300 + 150), delta=100)
        self.assertEqual(row["evidence"]["ops"], ["y", "whole"])

    def test_weight_that_other_ops_need_whole_is_still_divided(self) -> None:
        matmul = op("y", "dot", "x", "w", shape=WHOLE)
        other = op("other", "dot", "w", "device", shape=PART)
        self.assertEqual(len(found(matmul, other, SLICE, x=EVERYWHERE)), 1)

    def test_result_in_vmem_is_divided_if_it_is_sliced(self) -> None:
        matmul = op("y", "dot", "whole", "w", shape=array("f32", 1024, 1024, space=1))
        self.assertEqual(len(found(GATHER, matmul, SLICE)), 1)
        other = op("other", "dot", "y", "device", shape=PART)
        self.assertEqual(found(GATHER, matmul, other), [])

    def test_sums_of_all_devices_are_scattered_instead(self) -> None:
        whole = op("whole", "all-reduce", "x", shape=WHOLE, extra=ALL)
        (row,) = found(whole, MATMUL, SLICE)
        # A reduce-scatter moves half the bytes of an all-reduce.
        self.assertEqual(row["gain_ps"], 10_000 * (300 + 100))


class WorkThatNobodyDivides(unittest.TestCase):
    def test_op_of_two_microseconds_does_not_get_shorter(self) -> None:
        for scale, n in ((5_000, 0), (5_001, 1)):
            self.assertEqual(len(found(GATHER, MATMUL, SLICE, scale=scale)), n)

    def test_operand_that_differs_makes_the_work_different(self) -> None:
        self.assertEqual(found(GATHER, MATMUL, SLICE, w=DIVIDED), [])
        for number in ("partition-id", "replica-id"):
            here = op("where", number, shape=array("u32"))
            shifted = op("y", "dot", "whole", "where", shape=WHOLE)
            self.assertEqual(found(GATHER, here, shifted, SLICE), [])

    def test_result_that_another_op_needs_whole_costs_more_to_collect(self) -> None:
        other = op("other", "dot", "y", "device", shape=PART)
        self.assertEqual(found(GATHER, MATMUL, SLICE, other), [])

    def test_result_that_the_program_returns_costs_more_to_collect(self) -> None:
        self.assertEqual(found(GATHER, MATMUL), [])

    def test_input_that_another_op_needs_whole_is_a_choice(self) -> None:
        # As a norm before a matmul with a divided weight, in tensor parallelism.
        other = op("other", "dot", "whole", "device", shape=PART)
        self.assertEqual(found(GATHER, MATMUL, other, SLICE), [])

    def test_rows_that_are_looked_up_are_no_part_of_a_device(self) -> None:
        rows = op("other", "gather", "y", "device", shape=PART)
        self.assertEqual(found(GATHER, MATMUL, rows), [])

    def test_work_on_constants_is_no_cause(self) -> None:
        # Each device can make its part of a mask.
        whole = op("zeros", "iota", shape=WHOLE)
        self.assertEqual(found(whole, op("y", "negate", "zeros", shape=WHOLE), SLICE), [])

    def test_optimizer_of_a_program_with_a_backward_pass_is_no_cause(self) -> None:
        grad = op("grad", "dot", "device", "device", shape=array("f32"))
        self.assertEqual(len(found(GATHER, MATMUL, grad, SLICE, source=FORWARD)), 1)
        self.assertEqual(found(GATHER, MATMUL, grad, SLICE, source=OPTIMIZER), [])

    def test_replicas_whose_parameters_can_differ_are_no_cause(self) -> None:
        matmul = op("y", "dot", "x", "w", shape=WHOLE)
        self.assertEqual(len(found(matmul, SLICE, x=EVERYWHERE)), 1)
        self.assertEqual(found(matmul, SLICE, x=EVERYWHERE, n_replicas=2), [])

    def test_gather_whose_readers_take_little_time_is_no_cause(self) -> None:
        little = op("part", "negate", "whole", shape=WHOLE)
        cut = op("other", "dynamic-slice", "part", "device", shape=PART)
        self.assertEqual(found(GATHER, little, cut)[:1], [])
