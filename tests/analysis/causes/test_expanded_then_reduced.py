"""Test the cause `expanded_then_reduced`."""

from __future__ import annotations

import unittest
from collections.abc import Sequence

from tests.analysis.small_programs import Json, Program, causes, equal, zeros
from tests.builders.hlo_proto import Op, Shape, array, op, packed
from tests.builders.xspace import op as event

# At this peak, memory moves 1000 bytes per picosecond.
HBM = ("--peak-hbm-gibps", str(10**15 / 2**30))
MATMUL = "jit(f)/dot_general"
# The dimensions of the large array, and those of the result.
LARGE, FEW = (8, 64, 1000), (8, 1000)


def reduced(
    inside: list[Op],
    *,
    n_elements: Sequence[int] = FEW,
    how: str = "add",
    dur: int = 300,
    tf_op: str = "jit(f)/reduce_sum",
    extra: bytes = packed(14, [1]),
) -> list[Json]:
    """Return the rows for a fusion that reduces the value `large`."""
    program = program_of(inside, array("f32", *n_elements), how, tf_op, extra)
    rows = causes(program, [event("fusion.1", "loop fusion", 0, dur)], *HBM)
    return [row for row in rows if row["cause"] == "expanded_then_reduced"]


def program_of(
    inside: list[Op], result: Shape, how: str, tf_op: str, extra: bytes = b""
) -> Program:
    numbers = array("f32", 8, 64)
    return {
        "sum": [
            op("a", "parameter", shape=array("f32")),
            op("b", "parameter", shape=array("f32"), number=1),
            op("c", how, "a", "b", shape=array("f32")),
        ],
        "fused": [
            op("given", "parameter", shape=numbers),
            op("others", "parameter", shape=array("f32", 1000), number=1),
            op("zero", "constant", shape=array("f32")),
            spread("spread", "given", [0, 1], line="model.py:3"),
            spread("across", "others", [2], line="model.py:4"),
            *inside,
            op(
                *("few", "reduce", "large", "zero"),
                shape=result,
                calls=["sum"],
                tf_op=tf_op,
                extra=extra,
            ),
        ],
        "main": [
            op("x", "parameter", shape=numbers),
            op("y", "parameter", shape=array("f32", 1000), number=1),
            op("fusion.1", "fusion", "x", "y", shape=result, calls=["fused"], line="model.py:5"),
        ],
    }


def spread(name: str, of: str, dims: list[int], line: str | None = None) -> Op:
    """Return a broadcast of an array to these dimensions of the large array."""
    shape = array("f32", *LARGE)
    return op(name, "broadcast", of, shape=shape, extra=packed(14, dims), line=line)


def combined(opcode: str, tf_op: str | None = None) -> list[Op]:
    shape = array("f32", *LARGE)
    return [op("large", opcode, "spread", "across", shape=shape, line="model.py:2", tf_op=tf_op)]


def one_hot() -> list[Op]:
    places = op("places", "iota", shape=array("s32", *LARGE))
    return [places, equal("large", "spread", "places", shape=array("pred", *LARGE))]


class Reduced(unittest.TestCase):
    def test_counted_one_hot_array_is_reported(self) -> None:
        (row,) = reduced(one_hot())
        # The op moves 38 kB, which takes 38 ps.
        self.assertEqual((row["gain_ps"], row["confidence"]), (300 - 38, "seen"))
        self.assertIn(".at[].add", row["what_helps"])
        self.assertEqual(row["evidence"]["shape"], "pred[8,64,1000]")

    def test_sum_of_products_is_reported(self) -> None:
        (row,) = reduced(combined("multiply"))
        self.assertEqual(row["gain_ps"], 300 - 38)
        self.assertEqual(row["source_user"], "model.py:2")
        self.assertIn("einsum", row["what_helps"])

    def test_sum_over_few_elements_may_gain_nothing(self) -> None:
        for n_elements, dim, low in ((FEW, 1, 0.8 * 262), ((64, 1000), 0, 0)):
            (row,) = reduced(combined("multiply"), n_elements=n_elements, extra=packed(14, [dim]))
            with self.subTest(dim):
                self.assertEqual(row["confidence"], "likely")
                self.assertAlmostEqual(row["gain_range_ps"][0], low, delta=1)

    def test_comparisons_of_all_pairs_are_reported(self) -> None:
        (row,) = reduced(combined("compare"), how="or")
        self.assertIn("searchsorted", row["what_helps"])

    def test_comparison_of_both_sides_along_the_sum_needs_all_pairs(self) -> None:
        # Count in how many of 8 features each of 64 rows is below each of 1000 others. Only with a
        # feature or place for one of the sides does a sort answer this.
        for left, right, n in (([0, 1], [0, 2], 0), ([0, 1], [2], 1), ([1], [0, 2], 1)):
            inside = [
                spread("of.rows", "given", left),
                spread("of.others", "others", right),
                op("large", "compare", "of.rows", "of.others", shape=array("pred", *LARGE)),
            ]
            with self.subTest(left=left, right=right):
                found = reduced(inside, n_elements=(64, 1000), dur=2000, extra=packed(14, [0]))
                self.assertEqual([row["confidence"] for row in found], ["likely"] * n)

    def test_casts_for_the_op_are_part_of_its_cost(self) -> None:
        program = program_of(combined("multiply"), array("f32", *FEW), "add", "jit(f)/add")
        main = program["main"]
        main[0] = op("narrow", "parameter", shape=array("bf16", 8, 64))
        main.insert(1, op("x", "convert", "narrow", shape=array("f32", 8, 64)))
        ran = [event("x", "convert", 0, 50), event("fusion.1", "loop fusion", 50, 300)]
        (row,) = causes(program, ran, *HBM)
        self.assertEqual(row["gain_ps"], 350 - 38)
        # Another op needs the cast array, too.
        main.append(op("y.1", "negate", "x", shape=array("f32", 8, 64)))
        (row,) = causes(program, ran, *HBM)
        self.assertEqual(row["gain_ps"], 300 - 38)

    def test_gradient_that_goes_with_a_large_array_is_not_reported_again(self) -> None:
        def names(line: str) -> list[str]:
            name, big, few = (
                "transpose(jvp())/scatter-add",
                array("f32", 500, 125),
                array("f32", 500),
            )
            fused = [
                op("labels", "parameter", shape=few),
                op("spread", "broadcast", "labels", shape=big, extra=packed(14, [0])),
                op("places", "iota", shape=array("s32", 500, 125), extra=packed(14, [1])),
                equal("hot", "places", "spread", shape=array("pred", 500, 125)),
                *zeros("zeros", big),
                op("pick", "select", "hot", "spread", "zeros", shape=big, tf_op=name, line=line),
                op("sum.1", "reduce", "pick", "zeros.0", shape=few, extra=packed(14, [1])),
            ]
            main = [
                op("x", "parameter", shape=big),
                op("exp.1", "exponential", "x", shape=big, line="loss.py:5"),
                op("out.1", "gather", "exp.1", shape=few, line="loss.py:6"),
                op("grad.1", "fusion", "out.1", shape=few, calls=["fused"], line="loss.py:5"),
            ]
            ran = [
                event("exp.1", "loop fusion", 0, 500, bytes_accessed=500_000),
                event("out.1", "gather", 500, 50, bytes_accessed=4000),
                event("grad.1", "loop fusion", 550, 250, tf_op=f"jit(f)/{name}:"),
            ]
            return [row["cause"] for row in causes({"fused": fused, "main": main}, ran, *HBM)]

        self.assertEqual(names("loss.py:6"), ["large_intermediate"])
        self.assertEqual(names("loss.py:7"), ["large_intermediate", "computed_then_dropped"])

    def test_matmul_of_few_rows_is_not_reported(self) -> None:
        inside = combined("multiply", MATMUL)
        for i, name in enumerate(("spread", "across")):
            inside[i:i] = [op(f"{name}.dot", "broadcast", ("given", "others")[i], tf_op=MATMUL)]
            inside[i].instruction.shape = array("f32", *LARGE)
        inside[-1] = op(
            "large",
            "multiply",
            "spread.dot",
            "across.dot",
            shape=array("f32", *LARGE),
            tf_op=MATMUL,
        )
        self.assertEqual(reduced(inside, tf_op=MATMUL), [])

    def test_function_that_needs_all_pairs_is_not_reported(self) -> None:
        self.assertEqual(reduced(combined("maximum")), [])
        large = array("f32", *LARGE)
        added = op("added", "add", "spread", "across", shape=large)
        self.assertEqual(reduced([added, op("large", "tanh", "added", shape=large)]), [])

    def test_largest_product_is_not_reported(self) -> None:
        self.assertEqual(reduced(combined("multiply"), how="maximum"), [])

    def test_array_that_is_not_made_of_broadcasts_is_not_reported(self) -> None:
        bits = op("bits", "rng-bit-generator", shape=array("f32", *LARGE))
        large = op("large", "multiply", "spread", "bits", shape=array("f32", *LARGE))
        self.assertEqual(reduced([bits, large]), [])

    def test_op_with_a_matmul_is_not_reported(self) -> None:
        dot = op("product", "dot", "given", "given", shape=array("f32", 8, 8))
        self.assertEqual(reduced([*one_hot(), dot]), [])

    def test_op_that_moves_more_than_half_as_many_elements_is_not_reported(self) -> None:
        self.assertEqual(len(reduced(one_hot(), n_elements=(8, 32, 1000), dur=2000)), 1)
        self.assertEqual(reduced(one_hot(), n_elements=(8, 33, 1000), dur=2000), [])

    def test_op_that_is_as_fast_as_its_bytes_is_not_reported(self) -> None:
        self.assertEqual(reduced(one_hot(), dur=38), [])


class Damage(unittest.TestCase):
    def test_reduce_without_operands_is_read(self) -> None:
        program = program_of(combined("multiply"), array("f32", *FEW), "add", "jit(f)/reduce_sum")
        program["fused"][-1].operands = ()
        rows = causes(program, [event("fusion.1", "loop fusion", 0, 300)], *HBM)
        self.assertNotIn("expanded_then_reduced", [row["cause"] for row in rows])
