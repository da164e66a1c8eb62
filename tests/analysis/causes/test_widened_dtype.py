"""Test the cause `widened_dtype`: values that become f32, and stay f32."""

from __future__ import annotations

import unittest
from collections.abc import Mapping

from tests.analysis.small_programs import Json, causes
from tests.builders.hlo_proto import Op, StackFrames, array, op
from tests.builders.xspace import op as event

# At this peak, memory moves 10 000 bytes per picosecond.
HBM = ("--peak-hbm-gibps", str(10**16 / 2**30))
LARGE = (512, 128)
WIDE, NARROW = array("f32", *LARGE), array("bf16", *LARGE)
N_WIDE = 4 * 512 * 128
# Stack frame 1 is the line of an addition, frame 2 the line of an explicit cast.
FRAMES = StackFrames(["pos.py", "gate.py"], [(1, 4, 1), (2, 6, 1)], [(1, 0), (2, 0)])
CONVERT = "jit(f)/jvp()/convert_element_type"


def widened(frame: int = 1, *, name: str | None = CONVERT, table: str = "parameter") -> list[Op]:
    """Return instructions that convert a bf16 argument to f32 and add an f32 table to it."""
    return [
        op("x", "parameter", shape=NARROW),
        op("table", table, *(["x"] if table != "parameter" else []), shape=WIDE, number=1),
        op("wide", "convert", "x", shape=WIDE, tf_op=name, frame=frame),
        op("sum.1", "add", "wide", "table", shape=WIDE, frame=1),
    ]


def found(
    main: list[Op], lasted: Mapping[str, int] | None = None, **computations: list[Op]
) -> list[Json]:
    """Return the causes if every op of the entry computation takes 100 ps, or as long as it
    `lasted`, and accesses two f32 arrays."""
    ran = [
        event(
            instruction.name,
            "convolution fusion" if instruction.opcode == "dot" else "loop fusion",
            100 * i,
            (lasted or {}).get(instruction.name, 100),
            shape="f32[512,128]{1,0}",
            tf_op=((data := instruction.instruction.metadata) and data.op_name) or "jvp()/x:",
            bytes_accessed=2 * N_WIDE,
        )
        for i, instruction in enumerate(main)
        if instruction.opcode not in ("parameter", "reduce")
    ]
    # The last op's result is no result of the program.
    last = op("last", "reduce", main[-1].name, shape=array("f32", 8))
    rows = causes({**computations, "main": [*main, last]}, ran, *HBM, frames=FRAMES)
    return [row for row in rows if row["cause"] == "widened_dtype"]


DOT = op("dot.1", "dot", "sum.1", "sum.1", shape=WIDE)


class Matmuls(unittest.TestCase):
    def test_promotion_that_reaches_a_matmul_is_reported(self) -> None:
        (row,) = found([*widened(), DOT])
        # The convert reads bf16 and writes f32, so half of two thirds of its bytes go. The sum also
        # reads the table, which stays f32. The matmul's arrays halve.
        self.assertEqual(row["gain_ps"], 33 + 33 + 51)
        self.assertEqual((row["source_user"], row["confidence"]), ("pos.py:4", "likely"))
        self.assertEqual(row["evidence"]["shape"], "bf16[512,128]")
        self.assertIn("combines bf16[512,128] with an f32 operand (add)", row["says"])

    def test_explicit_cast_is_a_likely_cause(self) -> None:
        (row,) = found([*widened(frame=2), DOT])
        self.assertEqual(row["confidence"], "likely")
        self.assertIn("casts bf16[512,128] to f32", row["says"])
        self.assertIn("(unless f32 is intended)", row["says"])

    def test_operand_narrowed_again_by_the_compiler_is_reported(self) -> None:
        main = [
            *widened(),
            op("narrow", "convert", "sum.1", shape=NARROW),
            op("dot.1", "dot", "narrow", "narrow", shape=WIDE),
        ]
        self.assertEqual([row["source_user"] for row in found(main)], ["pos.py:4"])

    def test_kernel_carries_values_on(self) -> None:
        kernel = op("dot.1", "custom-call", "sum.1", shape=WIDE, target="tpu_custom_call")
        self.assertEqual(len(found([*widened(), kernel])), 1)

    def test_gradients_in_the_shape_of_a_widened_array_are_wide_because_of_it(self) -> None:
        def gain(*dims: int) -> int:
            grad = array("f32", *dims)
            backward = "jit(f)/transpose(jvp())/dot_general"
            main = [
                *widened(),
                DOT,
                op("y", "parameter", shape=NARROW, number=2),
                op("dot.2", "dot", "y", "y", shape=grad, tf_op=backward),
            ]
            (row,) = found(main)
            estimate: int = row["gain_ps"]
            return estimate

        # A compiler can transpose the gradient. The gradient of a weight has another shape.
        self.assertEqual(gain(128, 512) - gain(256, 256), 25)

    def test_forward_ops_that_take_just_the_smallest_gain_are_examined(self) -> None:
        backward = "jit(f)/transpose(jvp())/dot_general"
        main = [
            *widened(),
            DOT,
            op("y", "parameter", shape=NARROW, number=2),
            op("dot.2", "dot", "y", "y", shape=WIDE, tf_op=backward),
        ]
        # The smallest gain is 5 of 1000 ps. Most of this gain is in the backward pass.
        for longest, n_found in ((2, 1), (1, 0)):
            self.assertEqual(len(found(main, {"wide": 1, "sum.1": 2, "dot.1": longest})), n_found)

    def test_fusions_loops_and_collectives_are_passed(self) -> None:
        fused = [op("p.0", "parameter", shape=WIDE), op("exp", "exponential", "p.0", shape=WIDE)]
        main = [
            *widened(),
            op("all-gather.1", "all-gather", "sum.1", shape=WIDE),
            op("fusion.1", "fusion", "all-gather.1", shape=WIDE, calls=["fused"]),
            op("dot.1", "dot", "fusion.1", "fusion.1", shape=WIDE),
        ]
        self.assertEqual(len(found(main, fused=fused)), 1)

    def test_lines_that_only_read_a_widened_array_are_not_reported(self) -> None:
        main = [
            *widened(),
            DOT,
            # The residual connection converts the narrow `y` because the other operand is f32.
            op("y", "parameter", shape=NARROW, number=2),
            op("again", "convert", "y", shape=WIDE, tf_op=CONVERT, frame=2),
            op("residual", "add", "dot.1", "again", shape=WIDE, frame=2),
            op("dot.2", "dot", "residual", "residual", shape=WIDE),
        ]
        self.assertEqual([row["source_user"] for row in found(main)], ["pos.py:4"])


class NearMisses(unittest.TestCase):
    def test_result_that_is_cast_back_is_not_reported(self) -> None:
        main = [
            *widened(),
            op("narrow", "convert", "sum.1", shape=NARROW, tf_op=CONVERT),
            op("dot.1", "dot", "narrow", "narrow", shape=NARROW),
        ]
        self.assertEqual(found(main), [])

    def test_matmul_whose_result_is_narrow_is_not_reported(self) -> None:
        self.assertEqual(found([*widened(), op("d", "dot", "sum.1", "sum.1", shape=NARROW)]), [])

    def test_statistics_in_f32_are_not_reported(self) -> None:
        main = [
            *widened(),
            op("mean", "reduce", "sum.1", shape=array("f32", 512)),
            op("dot.1", "dot", "x", "mean", shape=NARROW),
        ]
        self.assertEqual(found(main), [])

    def test_scores_and_logits_before_a_softmax_are_not_reported(self) -> None:
        main = [
            *widened(),
            DOT,
            op("exp", "exponential", "dot.1", shape=WIDE),
            op("sum", "reduce", "exp", shape=array("f32", 512)),
        ]
        self.assertEqual(found(main), [])
        # An activation also has an exponential, but does not sum it.
        main[-1] = op("one", "negate", "exp", shape=WIDE)
        self.assertEqual(len(found(main)), 1)

    def test_softmax_that_is_a_kernel_is_recognised(self) -> None:
        name = "online-softmax"
        kernel = op(name, "custom-call", "dot.1", shape=NARROW, target="x", tf_op=name)
        self.assertEqual(found([*widened(), DOT, kernel]), [])

    def test_converts_inside_narrow_ops_are_not_reported(self) -> None:
        self.assertEqual(found([*widened(name=None), DOT]), [])

    def test_converts_in_the_backward_pass_are_not_reported(self) -> None:
        name = "jit(f)/transpose(jvp())/convert_element_type"
        self.assertEqual(found([*widened(name=name), DOT]), [])

    def test_row_of_an_f32_table_for_each_token_was_never_narrower(self) -> None:
        self.assertEqual(found([*widened(table="gather"), DOT]), [])

    def test_small_arrays_are_not_reported(self) -> None:
        small = [*widened(), DOT]
        for named in small:
            is_wide = named.instruction.shape == WIDE
            named.instruction.shape = array("f32" if is_wide else "bf16", 8, 128)
        self.assertEqual(found(small), [])
