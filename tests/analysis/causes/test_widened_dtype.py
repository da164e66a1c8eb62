"""Test the cause `widened_dtype`: f32 operands that widen the following ops."""

from __future__ import annotations

import unittest
from typing import Any

from tests.analysis.small_programs import Json, causes, rounds, take
from tests.builders.hlo_proto import Op, Shape, StackFrames, array, op, tuple_of
from tests.builders.xspace import op as event

LARGE = (512, 128)
WIDE, NARROW = array("f32", *LARGE), array("bf16", *LARGE)
# Stack frame 1 is the line of an addition, frame 2 the line of an explicit cast.
FRAMES = StackFrames(["pos.py", "gate.py"], [(1, 4, 1), (2, 6, 1)], [(1, 0), (2, 0)])
CONVERT = "jit(f)/jvp()/convert_element_type"


def widened(frame: int = 1, *, name: str | None = CONVERT) -> list[Op]:
    """Return instructions that convert a bf16 argument to f32 and add it to an f32 argument."""
    return [
        op("x", "parameter", shape=NARROW),
        op("table", "parameter", shape=WIDE, number=1),
        op("wide", "convert", "x", shape=WIDE, tf_op=name, frame=frame),
        op("sum.1", "add", "wide", "table", shape=WIDE, frame=1),
    ]


def found(main: list[Op], **computations: list[Op]) -> list[Json]:
    """Return the causes if every op of the entry computation takes 40 ps and accesses 2 MiB."""
    ran = [
        event(
            instruction.name,
            "convolution fusion" if instruction.opcode == "dot" else "loop fusion",
            40 * i,
            40,
            shape="f32[512,128]{1,0}",
            tf_op="jit(f)/jvp()/x:",
            bytes_accessed=2**21,
        )
        for i, instruction in enumerate(main)
        if instruction.opcode not in ("parameter", "reduce")
    ]
    rows = causes({**computations, "main": main}, ran, frames=FRAMES)
    return [row for row in rows if row["cause"] == "widened_dtype"]


DOT = op("dot.1", "dot", "sum.1", "sum.1", shape=WIDE)


class Promotions(unittest.TestCase):
    def test_promotion_that_reaches_a_dot_is_reported(self) -> None:
        (row,) = found([*widened(), DOT])
        # Three ops take 40 ps each and move twice the bytes that they would move in bf16.
        self.assertEqual((row["gain_ps"], row["confidence"]), (60, "seen"))
        self.assertEqual((row["source_user"], row["unknown_ps"]), ("pos.py:4", None))
        self.assertEqual(row["evidence"]["shape"], "bf16[512,128]")
        self.assertIn("combines bf16[512,128] with an f32 operand (add)", row["says"])

    def test_explicit_cast_is_a_likely_cause(self) -> None:
        (row,) = found([*widened(frame=2), DOT])
        self.assertEqual((row["source_user"], row["confidence"]), ("gate.py:6", "likely"))
        self.assertIn("(unless the cast is intended)", row["says"])

    def test_operand_narrowed_again_by_the_compiler_is_reported(self) -> None:
        main = [
            *widened(),
            op("narrow", "convert", "sum.1", shape=NARROW),
            op("dot.1", "dot", "narrow", "narrow", shape=WIDE),
        ]
        (row,) = found(main)
        # Half the time of all four ops, including the convert that the compiler inserted.
        self.assertEqual(row["gain_ps"], 80)

    def test_gain_includes_backward_matmuls_of_a_widened_line(self) -> None:
        grad = op("grad", "parameter", shape=NARROW, number=2)
        for line, gain in (("mlp.py:7", 120), ("other.py:7", 60)):
            with self.subTest(line=line):
                main = [
                    *widened(),
                    op("dot.1", "dot", "sum.1", "sum.1", shape=WIDE, line="mlp.py:7"),
                    grad,
                    # The compiler has narrowed this matmul's operands.
                    op("dot.2", "dot", "grad", "grad", shape=WIDE, line=line),
                    op("more", "negate", "dot.2", shape=WIDE),
                    op("end", "tanh", "more", shape=WIDE),
                ]
                (row,) = found(main)
                self.assertEqual(row["gain_ps"], gain)

    def test_result_that_is_cast_back_is_not_reported(self) -> None:
        main = [
            *widened(),
            op("narrow", "convert", "sum.1", shape=NARROW, tf_op=CONVERT),
            op("dot.1", "dot", "narrow", "narrow", shape=NARROW),
        ]
        self.assertEqual(found(main), [])

    def test_statistics_in_f32_are_not_reported(self) -> None:
        main = [
            *widened(),
            op("mean", "reduce", "sum.1", shape=array("f32", 512)),
            op("dot.1", "dot", "x", "mean", shape=NARROW),
        ]
        self.assertEqual(found(main), [])

    def test_converts_inserted_by_the_compiler_are_not_reported(self) -> None:
        self.assertEqual(found([*widened(name=None), DOT]), [])

    def test_converts_in_the_backward_pass_are_not_reported(self) -> None:
        name = "jit(f)/transpose(jvp())/convert_element_type"
        self.assertEqual(found([*widened(name=name), DOT]), [])

    def test_multiplication_by_a_small_f32_factor_is_the_cause(self) -> None:
        large = array("f32", 512, 128, 16)
        main = [
            *widened(frame=2),
            op("x.2", "parameter", shape=large, number=2),
            op("factor", "broadcast", "sum.1", shape=large),
            op("product", "multiply", "x.2", "factor", shape=large, frame=1),
            op("dot.1", "dot", "product", "product", shape=large),
        ]
        self.assertEqual([row["source_user"] for row in found(main)], ["pos.py:4"])

    def test_small_arrays_are_not_reported(self) -> None:
        small = [*widened(), DOT]
        for named in small:
            is_wide = named.instruction.shape == WIDE
            named.instruction.shape = array("f32" if is_wide else "bf16", 8, 128)
        self.assertEqual(found(small), [])

    def test_cause_is_found_through_fusions_and_collectives(self) -> None:
        fused = [
            op("p.0", "parameter", shape=WIDE),
            op("exp", "exponential", "p.0", shape=WIDE),
        ]
        main = [
            *widened(),
            op("all-gather.1", "all-gather", "sum.1", shape=WIDE),
            op("fusion.1", "fusion", "all-gather.1", shape=WIDE, calls=["fused"]),
            op("dot.1", "dot", "fusion.1", "fusion.1", shape=WIDE),
        ]
        self.assertEqual([row["gain_ps"] for row in found(main, fused=fused)], [100])

    def test_lines_that_read_a_widened_array_are_not_reported(self) -> None:
        main = [
            *widened(),
            DOT,
            # The residual connection converts the narrow `x` again.
            op("again", "convert", "x", shape=WIDE, tf_op=CONVERT, frame=2),
            op("residual", "add", "again", "dot.1", shape=WIDE, frame=2),
            op("dot.2", "dot", "residual", "residual", shape=WIDE),
        ]
        self.assertEqual([row["source_user"] for row in found(main)], ["pos.py:4"])

    def test_kernel_adds_half_its_time_to_the_gain_and_all_of_it_to_unknown_ps(self) -> None:
        target = "tpu_custom_call"
        main = [*widened(), op("kernel.1", "custom-call", "sum.1", shape=WIDE, target=target)]
        ran = [
            event("sum.1", "loop fusion", 0, 40, bytes_accessed=2**21, tf_op="jvp()/x:"),
            event(
                "kernel.1",
                "custom-call",
                40,
                100,
                attributes=f', custom_call_target="{target}"',
                tf_op="jvp()/x:",
            ),
        ]
        (row,) = causes({"main": main}, ran, frames=FRAMES)
        self.assertEqual((row["gain_ps"], row["unknown_ps"]), (70, 100))


class WithoutConverts(unittest.TestCase):
    """Test programs that lack a convert to f32: the compiler merged it with another convert."""

    @staticmethod
    def found(weight: Shape, path: str = "jit(f)/jvp()/dot_general") -> list[Json]:
        """Return the causes if a dot multiplies an f32 sum by a weight."""
        return found(
            [
                op("x", "parameter", shape=WIDE),
                op("weight", "parameter", shape=weight, number=1),
                op("sum.1", "add", "x", "x", shape=WIDE, frame=1, tf_op="jit(f)/jvp()/add"),
                op("copy.1", "copy", "sum.1", shape=WIDE),
                op("dot.1", "dot", "copy.1", "weight", shape=WIDE, tf_op=path, frame=2),
            ]
        )

    def test_f32_operand_of_a_mixed_matmul_is_reported_at_the_line_of_the_operand(self) -> None:
        (row,) = self.found(NARROW)
        self.assertEqual((row["source_user"], row["confidence"]), ("pos.py:4", "likely"))
        self.assertEqual((row["gain_ps"], row["evidence"]["shape"]), (60, "f32[512,128]"))
        self.assertIn("pos.py:4 computes f32[512,128] (add) for matmuls with narrower", row["says"])

    def test_matmul_of_f32_by_f32_is_not_reported(self) -> None:
        self.assertEqual(self.found(WIDE), [])

    def test_backward_matmul_is_not_reported(self) -> None:
        self.assertEqual(self.found(NARROW, "jit(f)/transpose(jvp())/dot_general"), [])

    def test_f32_weight_is_not_reported(self) -> None:
        main = [
            op("x", "parameter", shape=WIDE),
            op("weight", "parameter", shape=WIDE, number=1),
            op("sum.1", "add", "x", "x", shape=WIDE, frame=1, tf_op="jit(f)/jvp()/add"),
            op("narrow", "convert", "sum.1", shape=NARROW),
            op("dot.1", "dot", "narrow", "weight", shape=WIDE, tf_op="jit(f)/jvp()/dot_general"),
        ]
        self.assertEqual(found(main), [])

    def test_gain_excludes_ops_of_other_lines_that_compute_the_same_operand(self) -> None:
        forward = "jit(f)/jvp()/"
        main = [
            op("x", "parameter", shape=WIDE),
            op("weight", "parameter", shape=NARROW, number=1),
            op("sum.1", "add", "x", "x", shape=WIDE, frame=1, tf_op=f"{forward}add"),
            op("other", "negate", "x", shape=WIDE, frame=2, tf_op=f"{forward}neg"),
            op("both", "concatenate", "sum.1", "other", shape=array("f32", 1024, 128)),
            op("dot.1", "dot", "sum.1", "weight", shape=WIDE, tf_op=f"{forward}dot_general"),
            op("dot.2", "dot", "both", "weight", shape=WIDE, tf_op=f"{forward}dot_general"),
        ]
        (row,) = found(main)
        # Two matmuls use sum.1. Its line would also save time in `both`, but not in `other`.
        self.assertEqual((row["source_user"], row["gain_ps"]), ("pos.py:4", 80))

    def test_matmul_of_f32_by_f8_counts_as_mixed(self) -> None:
        (row,) = self.found(array("f8e4m3fn", *LARGE))
        self.assertEqual(row["source_user"], "pos.py:4")

    def test_f32_residual_stream_is_a_likely_cause(self) -> None:
        # A program that never converts to a narrower float uses f32 on purpose.
        for first, cast, n in ((WIDE, NARROW, 1), (NARROW, NARROW, 0), (WIDE, WIDE, 0)):
            with self.subTest(first=first, cast=cast):
                state = tuple_of(first, cast)
                body = [
                    op("state", "parameter", shape=state),
                    take("x", "state", 0, first),
                    take("weight", "state", 1, cast),
                    op("narrow", "convert", "x", shape=cast, tf_op=CONVERT),
                    op("dot.1", "dot", "narrow", "weight", shape=cast),
                    op("sum.2", "add", "x", "dot.1", shape=first, tf_op="jit(f)/jvp()/while/add"),
                    op("root", "tuple", "sum.2", "weight", shape=state),
                ]
                main = [
                    op("first", "parameter", shape=WIDE),
                    op("w", "parameter", shape=cast, number=1),
                    op("sum.1", "add", "first", "first", shape=first, frame=1, tf_op="jvp()/add"),
                    op("init", "tuple", "sum.1", "w", shape=state),
                    op("while.1", "while", "init", shape=state, calls=["body", "condition"]),
                ]
                facts: dict[str, Any] = {"tf_op": "jvp()/add:", "bytes_accessed": 2**21}
                ran = [
                    event("sum.1", "loop fusion", 0, 60, **facts),
                    event("while.1", "while", 100, 200),
                    *rounds("sum.2", "loop fusion", 100, 60, 2, **facts),
                ]
                condition = [op("rounds", "parameter", shape=state)]
                program = {"body": body, "condition": condition, "main": main}
                rows = causes(program, ran, frames=FRAMES)
                lines = [(row["source_user"], row["gain_ps"]) for row in rows]
                self.assertEqual(lines, [("pos.py:4", 90)] * n)

    def test_line_with_f32_forward_and_backward_matmuls_is_a_likely_cause(self) -> None:
        backward = "jit(f)/transpose(jvp())/dot_general"
        for dtype, lines in ((WIDE, ["head.py:9"]), (NARROW, [])):
            with self.subTest(dtype=dtype):
                main = [
                    op("x", "parameter", shape=NARROW),
                    op("dot.1", "dot", "x", "x", shape=WIDE, line="head.py:9", tf_op="jvp()/dot"),
                    op("exp.1", "exponential", "dot.1", shape=WIDE),
                    op("dot.2", "dot", "x", "x", shape=dtype, line="head.py:9", tf_op=backward),
                ]
                self.assertEqual([row["source_user"] for row in found(main)], lines)
