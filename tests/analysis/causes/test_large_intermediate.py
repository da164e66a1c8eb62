"""Test the cause `large_intermediate`."""

from __future__ import annotations

import unittest
from math import prod
from typing import Any

from tests.analysis.small_programs import Json, causes, equal, rows_of, take, zeros
from tests.builders.hlo_proto import (
    ALLOC,
    FREE,
    Op,
    Shape,
    allocation,
    array,
    buffer,
    heap_trace,
    op,
    packed,
    tuple_of,
)
from tests.builders.xspace import op as event

# At this peak, memory moves 1000 bytes per picosecond.
HBM = ("--peak-hbm-gibps", str(10**15 / 2**30))
BIG, SMALL = array("f32", 500, 125), array("f32", 500)
# Instruction ids, which start at 1.
X, EXP, OUT = 1, 3, 4
N_BIG, N_SMALL = 4 * 500 * 125, 4 * 500


class Reduced(unittest.TestCase):
    @staticmethod
    def found(
        reader: str = "reduce",
        output: Any = SMALL,
        *more: Op,
        buffers: bytes | None = None,
        extra: bytes = b"",
    ) -> list[Json]:
        """Return the causes in a program that writes a 250 kB array and reads it with one op."""
        main = [
            op("x", "parameter", shape=BIG),
            op("other", "parameter", shape=array("f32"), number=1),
            op("exp.1", "exponential", "x", shape=BIG, line="loss.py:5"),
            op("out.1", reader, "exp.1", "other", shape=output, line="loss.py:6", extra=extra),
            *more,
        ]
        category = {"dot": "convolution fusion", "gather": "gather"}.get(reader, "loop fusion")
        ran = [
            event("exp.1", "loop fusion", 0, 500, bytes_accessed=2 * N_BIG),
            event("out.1", category, 500, 300, bytes_accessed=N_BIG + N_SMALL),
            *(event(each.name, "loop fusion", 800, 60, bytes_accessed=1000) for each in more),
        ]
        return causes({"main": main}, ran, *HBM, buffers=buffers)

    def test_row_says_by_how_much_the_peak_of_memory_falls(self) -> None:
        """The array is alive together with `out.1`, or before a larger buffer of the same op."""
        for later, freed in ((1000, N_BIG), (200_000, 52_000), (300_000, None)):
            buffers = (
                buffer(1, N_BIG, EXP)
                + buffer(2, N_SMALL, OUT)
                + buffer(3, later, X)
                + allocation(0, 400_000, (1, 0, N_BIG), (2, N_BIG, N_SMALL), (3, 0, later))
                + heap_trace(
                    (ALLOC, 1, "exp.1", 0),
                    (ALLOC, 2, "out.1", 0),
                    (FREE, 1, "out.1", 0),
                    (FREE, 2, "out.1", 0),
                    (ALLOC, 3, "out.1", 0),
                )
            )
            (row,) = self.found(buffers=buffers)
            with self.subTest(later=later):
                self.assertEqual(row.get("frees_bytes"), freed)
                self.assertEqual(" at the peak of HBM, and about" in row["says"], freed is not None)

    def test_only_a_reduction_along_the_last_dimension_is_compared_with_logits(self) -> None:
        for dim, output, begins in (
            (1, SMALL, "Make only the elements that are used"),
            (0, array("f32", 125), "Reduce where the array is made"),
        ):
            (row,) = self.found("reduce", output, extra=packed(14, [dim]))
            self.assertTrue(row["what_helps"].startswith(begins), row["what_helps"])

    def test_large_array_that_is_only_reduced_is_reported(self) -> None:
        (row,) = self.found()
        self.assertEqual((row["cause"], row["confidence"]), ("large_intermediate", "seen"))
        # The op that only writes the array goes. The other still writes its 2 kB.
        self.assertEqual((row["gain_ps"], row["source_user"]), (798, "loss.py:5"))
        self.assertEqual(row["evidence"]["shape"], "f32[500,125]")

    def test_gather_reads_little_so_only_the_writer_goes(self) -> None:
        (row,) = self.found("gather")
        self.assertGreaterEqual(row["gain_ps"], 500)

    def test_array_of_which_a_reduced_array_is_made_is_reported_with_it(self) -> None:
        last = op("out.2", "reduce", "out.1", shape=SMALL)
        (row,) = self.found("negate", BIG, last)
        self.assertEqual(row["evidence"]["ops"], ["exp.1", "out.1", "out.2"])

    def test_array_with_a_large_result_is_not_reported(self) -> None:
        self.assertEqual(len(self.found(output=array("f32", 7812))), 1)
        self.assertEqual(self.found(output=array("f32", 7813)), [])

    def test_array_that_a_matmul_reads_is_not_reported(self) -> None:
        self.assertEqual(self.found("dot"), [])

    def test_array_in_vmem_is_not_reported(self) -> None:
        on_chip = array("f32", 500, 125, space=1)
        main = [
            op("x", "parameter", shape=BIG),
            op("exp.1", "exponential", "x", shape=on_chip, line="loss.py:5"),
            op("out.1", "reduce", "exp.1", shape=SMALL),
        ]
        ran = [
            event("exp.1", "loop fusion", 0, 500, bytes_accessed=N_BIG),
            event("out.1", "loop fusion", 500, 300, bytes_accessed=1000),
        ]
        self.assertEqual(causes({"main": main}, ran, *HBM), [])

    def test_copy_is_not_reported(self) -> None:
        main = [
            op("x", "parameter", shape=BIG),
            op("copy.1", "copy", "x", shape=BIG, line="loss.py:5"),
            op("out.1", "reduce", "copy.1", shape=SMALL),
        ]
        ran = [
            event("copy.1", "copy", 0, 500, bytes_accessed=2 * N_BIG),
            event("out.1", "loop fusion", 500, 300, bytes_accessed=N_BIG),
        ]
        rows = [row["cause"] for row in causes({"main": main}, ran, *HBM)]
        self.assertNotIn("large_intermediate", rows)

    def test_array_that_is_read_whole_in_slices_is_not_reported(self) -> None:
        def found(n: int) -> list[Json]:
            """Return the causes if `n` ops read a tenth of the array each."""
            main = [
                op("x", "parameter", shape=BIG),
                op("exp.1", "exponential", "x", shape=BIG, line="loss.py:5"),
                *(op(f"s.{i}", "slice", "exp.1", shape=array("f32", 50, 125)) for i in range(n)),
            ]
            ran = [
                event("exp.1", "loop fusion", 0, 500, bytes_accessed=2 * N_BIG),
                *(event(f"s.{i}", "slice", 500 + i, 1, bytes_accessed=2000) for i in range(n)),
            ]
            rows = causes({"main": main}, ran, *HBM)
            return [row for row in rows if row["cause"] == "large_intermediate"]

        self.assertEqual((len(found(1)), len(found(2))), (1, 0))

    def test_array_of_which_each_round_of_a_loop_reads_a_slice_is_not_reported(self) -> None:
        state, row, number = tuple_of(array("s32"), BIG), array("f32", 1, 125), array("s32")
        body = [
            op("state", "parameter", shape=state),
            take("i", "state", 0, number),
            take("all", "state", 1, BIG),
            op("zero", "constant", shape=number),
            op("row", "dynamic-slice", "all", "i", "zero", shape=row, extra=packed(19, [1, 125])),
            op("next", "negate", "i", shape=number),
            op("end", "tuple", "next", "all", shape=state),
        ]
        main = [
            op("x", "parameter", shape=BIG),
            op("exp.1", "exponential", "x", shape=BIG, line="loss.py:5"),
            op("first", "constant", shape=number),
            op("init", "tuple", "first", "exp.1", shape=state),
            op("rounds", "while", "init", shape=state, calls=["body", "condition"]),
            take("count", "rounds", 0, number),
        ]
        program = {"body": body, "condition": [op("now", "parameter", shape=state)], "main": main}
        ran = [
            event("exp.1", "loop fusion", 0, 500, bytes_accessed=2 * N_BIG),
            event("row", "loop fusion", 500, 300, bytes_accessed=N_BIG),
        ]
        self.assertEqual(causes(program, ran, *HBM), [])

    def test_op_that_only_builds_the_gradient_of_a_few_values_goes(self) -> None:
        def gain(line: str) -> int:
            indices = array("s32", 500, 125)
            fused = [
                op("p.0", "parameter", shape=array("s32", 500)),
                op("index", "broadcast", "p.0", shape=indices, extra=packed(14, [0])),
                op("place", "iota", shape=indices, extra=packed(14, [1])),
                equal("is_picked", "index", "place", shape=array("pred", 500, 125)),
                *zeros("zeros", BIG),
                op("p.1", "parameter", shape=BIG, number=1),
                op("pick", "select", "is_picked", "p.1", "zeros", shape=BIG, line=line),
                op("sum.1", "reduce", "pick", "zeros.0", shape=SMALL, extra=packed(14, [1])),
            ]
            main = [
                op("x", "parameter", shape=BIG),
                op("exp.1", "exponential", "x", shape=BIG, line="loss.py:5"),
                op("out.1", "gather", "exp.1", shape=SMALL, line="loss.py:6"),
                op(
                    "grad.1", "fusion", "out.1", "x", shape=SMALL, calls=["fused"], line="loss.py:5"
                ),
            ]
            ran = [
                event("exp.1", "loop fusion", 0, 500, bytes_accessed=2 * N_BIG),
                event("out.1", "gather", 500, 50, bytes_accessed=2 * N_SMALL),
                event("grad.1", "loop fusion", 550, 250),
            ]
            rows = causes({"fused": fused, "main": main}, ran, *HBM)
            (row,) = (row for row in rows if row["cause"] == "large_intermediate")
            estimate: int = row["gain_ps"]
            return estimate

        # An op at another line can need the gradient for something else.
        self.assertEqual((gain("loss.py:6"), gain("loss.py:7")), (760, 512))

    def test_result_of_an_all_reduce_is_not_reported(self) -> None:
        # The devices exchange the array before its maximum is known.
        def found(maker: str) -> list[Json]:
            main = [
                op("x", "parameter", shape=BIG),
                op("exp.1", maker, "x", shape=BIG, line="loss.py:5"),
                op("max.1", "reduce", "exp.1", shape=SMALL),
            ]
            ran = [
                event("exp.1", maker, 0, 500, bytes_accessed=2 * N_BIG),
                event("max.1", "loop fusion", 500, 300, bytes_accessed=N_BIG),
            ]
            rows = causes({"main": main}, ran, *HBM)
            return [row for row in rows if row["cause"] == "large_intermediate"]

        self.assertEqual((len(found("exponential")), found("all-reduce")), (1, []))

    def test_tuple_elements_are_judged_separately(self) -> None:
        both = tuple_of(BIG, BIG)
        main = [
            op("x", "parameter", shape=BIG),
            op("pair", "fusion", "x", shape=both, calls=["fused"], line="loss.py:5"),
            take("first", "pair", 0, BIG),
            take("second", "pair", 1, BIG),
            op("sum.1", "reduce", "first", shape=SMALL),
            op("dot.1", "dot", "second", "second", shape=SMALL),
        ]
        fused = [
            op("p.0", "parameter", shape=BIG),
            op("e", "exponential", "p.0", shape=BIG),
            op("t", "tuple", "e", "e", shape=both),
        ]
        ran = [
            event("pair", "loop fusion", 0, 800, bytes_accessed=3 * N_BIG),
            event("sum.1", "reduce", 800, 100, bytes_accessed=N_BIG // 4),
            event("dot.1", "convolution fusion", 900, 100, bytes_accessed=250000),
        ]
        (row,) = causes({"fused": fused, "main": main}, ran, *HBM)
        # The fusion also writes the other array, so it does not go.
        self.assertEqual(row["evidence"]["ops"], ["pair", "sum.1"])
        self.assertLess(row["gain_ps"], 500)

    def test_op_that_also_makes_a_part_of_another_array_goes(self) -> None:
        def found(n_rows: int) -> list[Json]:
            # The second array stays on the chip, and is not split or reduced, but cut.
            near = Shape("f32", BIG.dims, memory_space=1)
            both, few = tuple_of(BIG, near), array("f32", n_rows, 125)
            fused = [
                op("p.0", "parameter", shape=BIG),
                op("sine", "sine", "p.0", shape=BIG),
                op("cosine", "cosine", "p.0", shape=BIG),
                op("t", "tuple", "sine", "cosine", shape=both),
            ]
            main = [
                op("x", "negate", "given", shape=BIG),
                op("pair", "fusion", "x", shape=both, calls=["fused"], line="rope.py:17"),
                take("first", "pair", 0, BIG),
                take("second", "pair", 1, near),
                op("where", "parameter", shape=array("s32", n_rows), number=1),
                rows_of("first", "where", few, "sines"),
                rows_of("second", "where", few, "cosines"),
            ]
            ran = [
                event("pair", "loop fusion", 0, 800, bytes_accessed=2 * N_BIG),
                event("sines", "gather", 800, 50, bytes_accessed=8 * n_rows * 125),
                event("cosines", "gather", 850, 50, bytes_accessed=4 * n_rows * 125),
            ]
            given = op("given", "parameter", shape=BIG)
            rows = causes({"fused": fused, "main": [given, *main]}, ran, *HBM)
            return [row for row in rows if row["cause"] == "large_intermediate"]

        (row,) = found(10)
        # A part of 10 of 500 rows is left, and half of the bytes of the first gather.
        self.assertEqual((row["source_user"], row["gain_ps"]), ("rope.py:17", 784 + 25))


class Scores(unittest.TestCase):
    @staticmethod
    def found(
        squash: str = "exponential",
        *more: Op,
        width: int = 64,
        space: int = 0,
        dims: tuple[int, ...] = (1024, 1024),
        hbm: tuple[str, str] = HBM,
    ) -> list[Json]:
        """Return the causes in an attention program without a kernel."""
        head, scores = array("bf16", dims[0], width), array("bf16", *dims, space=space)
        main = [
            op("q", "parameter", shape=head),
            op("k", "parameter", shape=head, number=1),
            op("scores", "dot", "q", "k", shape=scores, line="attn.py:3", tf_op="jit(f)/x"),
            op("exp.1", squash, "scores", shape=scores, line="attn.py:4"),
            op("sum.1", "reduce", "exp.1", shape=array("bf16", *dims[1:])),
            op("wide", "broadcast", "sum.1", shape=scores),
            op("share", "divide", "exp.1", "wide", shape=scores),
            op("out", "dot", "share", "k", shape=head, tf_op="jit(f)/y"),
            *more,
        ]
        whole = f"bf16[{','.join(map(str, dims))}]"
        n_bytes = prod(dims) * (0 if space else 2)
        ran = [
            event(name, category, start, 350, shape=whole, bytes_accessed=2 * n_bytes, flops=flops)
            for name, category, start, flops in (
                ("scores", "convolution fusion", 0, 200),
                ("share", "loop fusion", 400, 0),
            )
        ]
        return causes({"main": main}, ran, *hbm, "--peak-tflops-bf16", "1")

    def test_scores_in_hbm_are_a_likely_cause(self) -> None:
        (row,) = self.found()
        self.assertEqual((row["cause"], row["confidence"]), ("large_intermediate", "likely"))
        self.assertEqual(row["source_user"], "attn.py:3")
        # The softmax goes, and the matmul keeps the time of its flops.
        self.assertLess(row["gain_ps"], 700)
        self.assertGreater(row["gain_ps"], 350)

    def test_scores_of_pairs_of_heads_are_no_array_of_pairs(self) -> None:
        # With a fast HBM, ops on pairs take longer than their bytes need.
        fast = "--peak-hbm-gibps", str(10**16 * 2 / 2**30)
        (row,) = self.found(dims=(1024, 1024, 2), hbm=fast)
        self.assertEqual(row["cause"], "large_intermediate")

    def test_scores_in_vmem_are_not_reported(self) -> None:
        self.assertEqual(self.found(space=1), [])

    def test_scores_without_softmax_are_not_reported(self) -> None:
        self.assertEqual(self.found("tanh"), [])

    def test_scores_that_are_not_larger_than_queries_are_not_reported(self) -> None:
        self.assertEqual(self.found(dims=(2048, 2048), width=512), [])
        self.assertEqual(len(self.found(dims=(2048, 2048), width=256)), 1)

    def test_scores_of_short_sequences_are_not_reported(self) -> None:
        # A kernel pads each head to 128 lanes, and 8 * 128 is 1024.
        self.assertEqual(self.found(dims=(1000, 1000)), [])

    def test_softmax_compiled_into_a_kernel_is_found(self) -> None:
        def found(name: str) -> list[str]:
            """Return the lines of causes if a kernel with this name reads the scores."""
            head, scores = array("bf16", 1024, 64), array("bf16", 1024, 1024)
            target = "tpu_custom_call"
            main = [
                op("q", "parameter", shape=head),
                op("scores", "dot", "q", "q", shape=scores, line="attn.py:3"),
                op(name, "custom-call", "scores", "q", shape=head, target=target, tf_op=name),
            ]
            called = f', custom_call_target="{target}"'
            ran = [
                event("scores", "convolution fusion", 0, 400, bytes_accessed=320000),
                event(name, "custom-call", 400, 150, attributes=called),
            ]
            return [row["source_user"] for row in causes({"main": main}, ran, *HBM)]

        self.assertEqual((found("online-softmax"), found("top-k")), (["attn.py:3"], []))

    def test_logits_are_not_scores(self) -> None:
        head, logits = array("bf16", 1024, 64), array("bf16", 1024, 1024)
        main = [
            op("x", "parameter", shape=head),
            op("w", "parameter", shape=head, number=1),
            op("logits", "dot", "x", "w", shape=logits, line="loss.py:3"),
            op("exp.1", "exponential", "logits", shape=logits),
            op("sum.1", "reduce", "exp.1", shape=array("bf16", 1024)),
            op("top.1", "custom-call", "exp.1", shape=head, target="TopK"),
        ]
        ran = [
            event("logits", "convolution fusion", 0, 400, bytes_accessed=320000),
            event("exp.1", "loop fusion", 400, 400, bytes_accessed=640000),
        ]
        self.assertEqual(causes({"main": main}, ran, *HBM), [])
