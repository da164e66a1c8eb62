"""Test that advice for a finding fits what its op does."""

from __future__ import annotations

import unittest
from typing import Any

from tests.analysis import small_programs
from tests.analysis.small_programs import Program, take
from tests.builders.hlo_proto import Op as Instruction, Shape, array, op, tuple_of
from tests.builders.xspace import Op, bytes_field, int_field, op as event, trace
from tests.harness import answer
from tests.modes.small_steps import PEAKS, STEP, matmul

BF16, F32 = "bf16[512,512]{1,0:T(8,128)(2,1)}", "f32[512,512]{1,0:T(8,128)}"
# The beginnings of the advice.
CAST, PARTS, PAD = "Keep one dtype", "Don't split", "Let the op that reads"
SMALL_ARRAY = "Pass the small"
LAYOUT, SAVE = "Use the same order", "Save only arrays"
NARROW, REDUCE = "Keep these f32 arrays", "Reduce the array"
MEMORY = ("--peak-tflops-bf16", "2", "--peak-hbm-gibps", "1")


def advice(ran: Op, program: Program | None = None) -> str | None:
    """Return the advice for the only finding of a step; in a program, for the op's finding."""
    if program is None:
        (row,) = answer(trace([ran], STEP), "bottleneck", *PEAKS)["findings"]
    else:
        (row,) = small_programs.bottleneck(program, [ran], *MEMORY)["findings"]
    says: str | None = row["what_helps"]
    return says


class Advice(unittest.TestCase):
    def check(self, begin: str | None, ran: Op, program: Program | None = None) -> None:
        says = advice(ran, program)
        with self.subTest(ran.text, tf_op=ran.stats.get("tf_op")):
            if begin is None:
                self.assertIsNone(says)
            else:
                self.assertEqual((says or "None")[: len(begin)], begin)


def moved(opcode: str, primitive: str, *, operands: str | None = None, path: str = "jit(f)") -> Op:
    shape = "f32[8,128]{1,0:T(8,128)}"
    facts: dict[str, Any] = {"tf_op": f"{path}/{primitive}:"} if primitive else {}
    return event(f"{opcode}.1", opcode, 0, 9, shape=shape, operands=operands, **facts)


def math(name: str, primitive: str, category: str = "loop fusion", shape: str = BF16) -> Op:
    """Return an op that is bound by its bytes."""
    facts: dict[str, Any] = {"tf_op": f"jit(f)/{primitive}:"} if primitive else {}
    return event(name, category, 0, 9, shape=shape, bytes_accessed=1, flops=0, **facts)


class WithoutProgram(Advice):
    def test_ops_that_the_compiler_added_have_no_advice_about_code(self) -> None:
        for opcode, primitive, begin in (
            ("convert", "convert_element_type", CAST),
            ("slice", "slice", PARTS),
            ("concatenate", "concatenate", PARTS),
            ("broadcast", "broadcast_in_dim", SMALL_ARRAY),
        ):
            self.check(begin, moved(opcode, primitive))
            self.check(None, moved(opcode, "dot_general"))
            self.check(None, moved(opcode, ""))

    def test_only_a_pad_that_the_code_calls_has_advice(self) -> None:
        for path in ("jit(f)", "jit(f)/transpose(jvp(loss))"):
            # The gradient of a slice is a pad, too.
            self.check(None, moved("pad", "pad", path=path))
            self.check(PAD, moved("pad", "pad", path=f"{path}/jit(_pad)"))

    def test_broadcast_in_the_backward_pass_is_the_gradient_of_a_sum(self) -> None:
        path = "jit(f)/transpose(jvp(loss))"
        self.check(None, moved("broadcast", "broadcast_in_dim", path=path))

    def test_rows_that_fill_the_lanes_are_not_told_to_be_wider(self) -> None:
        for width, begin in ((64, "Gather and scatter rows"), (128, None)):
            shape = f"bf16[512,{width}]{{1,0}}"
            self.check(begin, math("gather.1", "gather", "gather", shape))
        # It takes long because of the rows, not because it computes.
        shape = "bf16[512,128]{1,0}"
        facts: dict[str, Any] = {"shape": shape, "flops": 0, "bytes_accessed": 1}
        ran = event("gather.1", "gather", 0, 900, tf_op="jit(f)/gather:", **facts)
        self.check(None, ran)

    def test_slices_that_a_scan_takes_have_no_advice(self) -> None:
        of_scan = "jit(f)/while/body/jit(dynamic_index_in_dim)"
        self.check(None, moved("dynamic-slice", "dynamic_slice", path=of_scan))
        self.check(PARTS, moved("dynamic-slice", "dynamic_slice", path="jit(f)/while/body"))
        self.check(None, moved("copy", "dynamic_slice", path=of_scan))

    def test_broadcast_of_a_constant_has_no_advice(self) -> None:
        self.check(None, moved("broadcast", "broadcast_in_dim", operands="f32[]{:T(128)} %zero"))

    def test_copy_without_a_change_of_layout_is_not_told_to_keep_the_layout(self) -> None:
        for operands, begin in (
            ("f32[8,128]{1,0:T(8,128)S(1)} %x", None),
            ("f32[8,128]{0,1:T(8,128)} %x", LAYOUT),
        ):
            self.check(begin, moved("copy", "dot_general", operands=operands))

    def test_matmul_advice_depends_on_its_dimensions(self) -> None:
        wide = "bf16[2048,4096]{1,0}"
        flops = 2 * 2048 * 4096
        few = "Process more rows"
        for ran, begin in (
            (matmul(0, 9, flops * 1023, 0, shape=wide), "Make matmuls larger"),
            (matmul(0, 9, flops * 1024, 0, shape=wide), None),
            (matmul(0, 9, flops * 1024, 0, shape="bf16[2048,1023]{1,0}"), "Make matmuls larger"),
            (matmul(0, 9, 0, 1, shape="bf16[511,4096]{1,0}"), few),
            (matmul(0, 9, 0, 1, shape="bf16[512,4096]{1,0}"), None),
            (matmul(0, 9, 0, 1, shape="f32[512,4096]{1,0}"), NARROW),
            # A convolution's result has other dimensions.
            (matmul(0, 9, 0, 1, tf_op="jit(f)/conv_general_dilated:"), None),
        ):
            self.check(begin, ran)

    def test_collective_advice_depends_on_size_and_on_who_calls_it(self) -> None:
        small, large = "bf16[128,256]{1,0}", "bf16[129,256]{1,0}"
        for name, primitive, shape, begin in (
            ("all-reduce", "dot_general", small, "Run this collective less often"),
            ("all-reduce", "dot_general", large, "Shard so that no collective"),
            ("all-reduce", "", f"({large}, {small})", "Run this collective for more data"),
            ("all-reduce", "psum", large, None),
            ("all-to-all", "dot_general", large, "Shard the array in the same way"),
            ("all-to-all", "all_to_all", large, None),
        ):  # fmt: skip
            ran = event(f"{name}.1", name, 0, 9, shape=shape, tf_op=f"jit(f)/{primitive}:")
            self.check(begin, ran)

    def test_starts_have_no_advice(self) -> None:
        for name in ("copy-start", "all-gather-start"):
            self.check(None, event(f"{name}.1", name, 0, 9))


LARGE = array("f32", 4, 8, 128)


def fusion(name: str, of: str, inside: list[Instruction], shape: Shape) -> Program:
    return {
        "fused": inside,
        "main": [
            op(of, "parameter", shape=LARGE),
            op(name, "fusion", of, shape=shape, calls=["fused"]),
        ],
    }


class WithProgram(Advice):
    def test_matmuls_of_pairs_of_activations_have_no_advice_about_weights(self) -> None:
        # The same number of rows and flops, for two matmuls and for one.
        for x, w, begin in (
            (array("bf16", 2, 64, 512), array("bf16", 2, 512, 128), None),
            (array("bf16", 128, 512), array("bf16", 512, 128), "Process more rows"),
        ):
            main = [
                op("x", "parameter", shape=x),
                op("w", "parameter", shape=w, number=1),
                op("dot.1", "dot", "x", "w", shape=array("bf16", 2, 64, 128)),
            ]
            shape, flops = "bf16[2,64,128]{2,1,0}", 2 * 128 * 128 * 512
            ran = matmul(0, 9, flops, 1 << 30, shape=shape, name="dot.1")
            self.check(begin, ran, {"main": main})

    def test_sort_of_the_order_of_another_sort_is_told_to_scatter(self) -> None:
        pair = tuple_of(array("s32", 512), array("s32", 512))
        fewer = "Sort fewer elements"
        for index, order, begin in (
            (1, "iota", "Scatter instead of sorting"),
            (0, "iota", fewer),
            (1, "parameter", fewer),
        ):
            main = [
                op("x", "parameter", shape=array("s32", 512), number=1),
                op("iota.1", order, shape=array("s32", 512)),
                op("sort.1", "sort", "x", "iota.1", shape=pair),
                take("keys", "sort.1", index, array("s32", 512)),
                op("sort.2", "sort", "keys", "iota.1", shape=pair),
            ]
            ran = math("sort.2", "sort", "sort", "(s32[512]{0}, s32[512]{0})")
            self.check(begin, ran, {"main": main})

    def test_gather_from_places_that_are_known_is_told_to_slice(self) -> None:
        for opcode, begin in (("iota", "Cut the array by slices"), ("parameter", "Gather and")):
            main = [
                op("x", "parameter", shape=LARGE, number=1),
                op("at", opcode, shape=array("s32", 512)),
                op("scaled", "multiply", "at", "at", shape=array("s32", 512)),
                op("gather.1", "gather", "x", "scaled", shape=array("f32", 512, 2)),
            ]
            ran = math("gather.1", "gather", "gather", "f32[512,2]{1,0}")
            self.check(begin, ran, {"main": main})

    def test_convolution_of_a_program_without_primitives_has_no_advice_about_rows(self) -> None:
        of_3 = bytes_field(15, bytes_field(1, int_field(1, 3)))
        for window, begin in ((b"", "Process more rows"), (of_3, None)):
            main = [
                op("x", "parameter", shape=array("bf16", 128, 512)),
                op("w", "parameter", shape=array("bf16", 512, 128), number=1),
                op("conv.1", "convolution", "x", "w", shape=array("bf16", 128, 128), extra=window),
            ]
            flops = 2 * 128 * 128 * 512
            ran = matmul(0, 9, flops, 1 << 30, shape="bf16[128,128]{1,0}", name="conv.1")
            self.check(begin, ran, {"main": main})

    def test_broadcast_for_a_kernel_has_no_advice(self) -> None:
        ran = moved("broadcast", "broadcast_in_dim", operands="f32[8]{0} %x")
        for target, begin in (("tpu_custom_call", None), ("Sharding", SMALL_ARRAY)):
            main = [
                op("x", "parameter", shape=array("f32", 8)),
                op("broadcast.1", "broadcast", "x"),
                op("bitcast.1", "bitcast", "broadcast.1"),
                op("call.1", "custom-call", "bitcast.1", target=target),
            ]
            self.check(begin, ran, {"main": main})

    def test_reduction_is_told_to_reduce_early_only_if_it_returns_little(self) -> None:
        for shape, begin in ((array("f32", 4, 128), REDUCE), (array("f32", 4, 129), NARROW)):
            inside = [op("p", "parameter", shape=LARGE), op("reduce.1", "reduce", "p", shape=shape)]
            text = "f32[" + ",".join(map(str, shape.dims)) + "]{1,0}"
            ran = math("fusion.1", "reduce_sum", shape=text)
            self.check(begin, ran, fusion("fusion.1", "x", inside, shape))
        # This fusion also writes the whole array.
        both = tuple_of(array("f32", 4, 8), LARGE)
        inside = [
            op("p", "parameter", shape=LARGE),
            op("reduce.1", "reduce", "p", shape=array("f32", 4, 8)),
            op("out", "tuple", "reduce.1", "p", shape=both),
        ]
        ran = math("fusion.1", "reduce_sum", shape="(f32[4,8]{1,0}, f32[4,8,128]{2,1,0})")
        self.check(NARROW, ran, fusion("fusion.1", "x", inside, both))

    def test_slices_that_a_loop_saved_for_the_backward_pass_are_told_apart_from_weights(
        self,
    ) -> None:
        shapes = tuple_of(LARGE, LARGE)
        part = array("f32", 1, 8, 128)
        forward = [
            op("state", "parameter", shape=shapes),
            take("saved", "state", 0, LARGE),
            take("weights", "state", 1, LARGE),
            op("row", "parameter", shape=part, number=1),
            op("dus.1", "dynamic-update-slice", "saved", "row", shape=LARGE),
            op("out", "tuple", "dus.1", "weights", shape=shapes),
        ]
        for index, begin in ((0, SAVE), (1, None)):
            backward = [
                op("state.2", "parameter", shape=shapes),
                take("array", "state.2", index, LARGE),
                op("dynamic-slice.1", "dynamic-slice", "array", shape=part),
                op("out.2", "tuple", "state.2", "state.2", shape=shapes),
            ]
            main = [
                op("x.0", "parameter", shape=LARGE),
                op("x.1", "parameter", shape=LARGE, number=1),
                op("init", "tuple", "x.0", "x.1", shape=shapes),
                op("while.1", "while", "init", shape=shapes, calls=["forward", "condition"]),
                op("while.2", "while", "while.1", shape=shapes, calls=["backward", "condition"]),
            ]
            program = {
                "forward": forward,
                "condition": [op("rounds", "parameter", shape=shapes)],
                "backward": backward,
                "main": main,
            }
            path = "jit(f)/transpose(jvp(layer))/while/body/jit(dynamic_index_in_dim)"
            ran = event(
                "dynamic-slice.1",
                "dynamic-slice",
                0,
                9,
                shape="bf16[1,8,128]{2,1,0}",
                operands="bf16[4,8,128]{2,1,0} %array",
                tf_op=f"{path}/dynamic_slice:",
            )
            self.check(begin, ran, program)
