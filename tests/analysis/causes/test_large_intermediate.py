"""Test the cause `large_intermediate`."""

from __future__ import annotations

import unittest
from typing import Any

from tests.analysis.small_programs import Json, causes, take
from tests.builders.hlo_proto import Op, array, op, tuple_of
from tests.builders.xspace import op as event

# At this peak, memory moves 1000 bytes per picosecond.
HBM = ("--peak-hbm-gibps", str(10**15 / 2**30))
BIG, SMALL = array("f32", 500, 125), array("f32", 500)


class LargeArrays(unittest.TestCase):
    @staticmethod
    def found(reader: str = "reduce", output: Any = SMALL, **more: Any) -> list[Json]:
        """Return the causes in a program that writes a 250 kB array and reads it with one op."""
        main = [
            op("x", "parameter", shape=BIG),
            op("exp.1", "exponential", "x", shape=BIG, line="loss.py:5", **more),
            op("out.1", reader, "exp.1", "x", shape=output),
        ]
        category = {"dot": "convolution fusion", "gather": "gather"}.get(reader, "loop fusion")
        ran = [
            event("exp.1", "loop fusion", 0, 600, bytes_accessed=500000),
            event("out.1", category, 600, 300, bytes_accessed=250000),
        ]
        return causes({"main": main}, ran, *HBM)

    def test_large_array_that_is_only_reduced_is_reported(self) -> None:
        (row,) = self.found()
        self.assertEqual((row["cause"], row["confidence"]), ("large_intermediate", "seen"))
        # The array has 250 kB and is written once and read once.
        self.assertEqual((row["gain_ps"], row["source_user"]), (500, "loss.py:5"))
        self.assertEqual(row["evidence"]["shape"], "f32[500,125]")

    def test_arrays_of_equal_shape_share_a_row_if_they_share_a_line(self) -> None:
        def found(second: str) -> list[Json]:
            """Return the causes if one op reduces two arrays; `second` is the second array's
            line."""
            main = [
                op("x", "parameter", shape=BIG),
                op("exp.1", "exponential", "x", shape=BIG, line="loss.py:5"),
                op("exp.2", "exponential", "x", shape=BIG, line=second),
                op("out.1", "reduce", "exp.1", "exp.2", shape=SMALL),
            ]
            ran = [
                event(name, "loop fusion", start, 300, bytes_accessed=500000)
                for name, start in (("exp.1", 0), ("exp.2", 300), ("out.1", 600))
            ]
            return causes({"main": main}, ran, *HBM)

        (row,) = found("loss.py:5")
        self.assertEqual((row["gain_ps"], row["source_user"]), (1000, "loss.py:5"))
        # The op that reads both arrays is counted only once.
        self.assertEqual(row["evidence"]["ops"], ["exp.1", "exp.2", "out.1"])
        self.assertEqual(row["evidence"]["dur_ps"], 900)
        self.assertIn("writes 2 arrays f32[500,125] (244.1 KiB each) to memory", row["says"])
        self.assertEqual([row["gain_ps"] for row in found("loss.py:6")], [500, 500])

    def test_gather_is_assumed_to_read_little_of_a_large_array(self) -> None:
        self.assertEqual([row["gain_ps"] for row in self.found("gather")], [250])

    def test_large_array_read_by_a_dot_is_not_reported(self) -> None:
        self.assertEqual(self.found("dot"), [])

    def test_large_array_with_a_large_result_is_not_reported(self) -> None:
        self.assertEqual(len(self.found(output=array("f32", 7812))), 1)
        self.assertEqual(self.found(output=array("f32", 7813)), [])

    @staticmethod
    def attention(*extra: Op, squash: str = "exponential", peak: str = "1e9") -> list[Json]:
        """Return the causes in an attention program; the op `block` processes only part of the
        scores."""
        head, scores = array("bf16", 400, 64), array("bf16", 400, 400)
        main = [
            op("q", "parameter", shape=head),
            op("k", "parameter", shape=head, number=1),
            op("scores", "dot", "q", "k", shape=scores, line="attn.py:3", tf_op="jit(f)/x"),
            *extra,
            op(
                "exp.1",
                squash,
                extra[-1].name if extra else "scores",
                shape=scores,
                line="attn.py:4",
            ),
            op("sum.1", "reduce", "exp.1", shape=array("bf16", 400)),
            op("wide", "broadcast", "sum.1", shape=scores),
            op("share", "divide", "exp.1", "wide", shape=scores),
            op("out", "dot", "share", "k", shape=head, tf_op="jit(f)/y"),
            op("block", "negate", "q", shape=head, line="attn.py:4"),
        ]
        whole, part = "bf16[400,400]{1,0}", "bf16[400,64]{1,0}"
        ran = [
            event(name, "loop fusion", start, 150, shape=shape, bytes_accessed=10000, flops=40)
            for name, start, shape in (
                ("exp.1", 0, whole),
                ("share", 200, whole),
                ("block", 400, part),
            )
        ]
        return causes({"main": main}, ran, *HBM, "--peak-tflops-bf16", peak)

    def test_attention_scores_are_a_likely_cause(self) -> None:
        (row,) = self.attention()
        self.assertEqual((row["cause"], row["confidence"]), ("large_intermediate", "likely"))
        # The op `block` has the same line as the exponential, so its time counts as time spent
        # on the scores.
        self.assertEqual((row["gain_ps"], row["source_user"]), (450, "attn.py:3"))

    def test_scores_without_softmax_are_not_reported(self) -> None:
        self.assertEqual(self.attention(squash="tanh"), [])

    def test_masking_the_scores_halves_the_required_flops(self) -> None:
        # The flops of each op take 40 ps.
        (row,) = self.attention(peak="1")
        self.assertEqual(row["gain_ps"], 450 - 120)
        scores = array("bf16", 400, 400)
        masked = op("masked", "select", "scores", "scores", shape=scores)
        mask = op("mask", "select", "q", "k", shape=scores)
        for extra in ([masked], [mask, op("sum", "add", "scores", "mask", shape=scores)]):
            (row,) = self.attention(*extra, peak="1")
            self.assertEqual(row["gain_ps"], 450 - 60)

    def test_softmax_compiled_into_a_kernel_is_found(self) -> None:
        head, scores = array("bf16", 400, 64), array("bf16", 400, 400)
        target, name = "tpu_custom_call", "online-softmax"
        main = [
            op("q", "parameter", shape=head),
            op("scores", "dot", "q", "q", shape=scores, line="attn.py:3"),
            op(name, "custom-call", "scores", "q", shape=head, target=target, tf_op=name),
        ]
        given = "bf16[400,400]{1,0} %scores"
        called = f', custom_call_target="{target}"'
        ran = [event(name, "custom-call", 0, 150, operands=given, attributes=called)]
        (row,) = causes({"main": main}, ran, *HBM)
        self.assertEqual((row["gain_ps"], row["source_user"]), (150, "attn.py:3"))


class Tuples(unittest.TestCase):
    def test_tuple_elements_are_judged_separately(self) -> None:
        both = tuple_of(BIG, BIG)
        main = [
            op("x", "parameter", shape=BIG),
            op("pair", "fusion", "x", shape=both, calls=["fused"], line="loss.py:5"),
            take("first", "pair", 0, BIG),
            take("second", "pair", 1, BIG),
            op("sum.1", "reduce", "first", shape=SMALL),
            op("dot.1", "dot", "second", "second", shape=BIG),
        ]
        fused = [
            op("p.0", "parameter", shape=BIG),
            op("e", "exponential", "p.0", shape=BIG),
            op("t", "tuple", "e", "e", shape=both),
        ]
        ran = [
            event("pair", "loop fusion", 0, 600, bytes_accessed=500000),
            event("sum.1", "reduce", 600, 200, bytes_accessed=250000),
            event("dot.1", "convolution fusion", 800, 200, bytes_accessed=250000),
        ]
        (row,) = causes({"fused": fused, "main": main}, ran, *HBM)
        self.assertEqual((row["gain_ps"], row["evidence"]["ops"]), (500, ["pair", "sum.1"]))
