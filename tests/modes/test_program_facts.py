"""Test what modes read from the compiled program: precision, kernel costs, and likely lines."""

from __future__ import annotations

import functools
import json
import unittest
from collections.abc import Sequence
from typing import Any

from tests.builders import hlo_proto
from tests.builders.hlo_proto import Shape, array, metadata_plane, precision
from tests.builders.xspace import Op, Space, StatNames, encode, op as event, tpu_plane
from tests.harness import MODES, MODES_OF_TRACE, PROFILES, TRAINING, Json, answer, run

Program = dict[str, list[hlo_proto.Op]]
PROGRAM_ID = 2**63 + 5
DAMAGED = "the program's HLO can't be read: "
EVERYTHING = ("--include-comm", "--include-data-move")


def with_program(hlo: bytes | None, ops: Sequence[Op]) -> bytes:
    """Encode a trace of the given ops with their program."""
    for op in ops:
        op.stats["program_id"] = PROGRAM_ID
    end = max(op.start + op.dur for op in ops)
    planes = [tpu_plane(ops, [("0", 0, end)])]
    if hlo is not None:
        planes.append(metadata_plane({PROGRAM_ID: (f"jit_f({PROGRAM_ID})", hlo)}))
    return encode(Space(planes))


def trace_of(program: Program, *ops: Op, **more: Any) -> bytes:
    return with_program(hlo_proto.hlo_proto(program, **more), ops)


def notes_of_damage(result: Json) -> list[str]:
    return [note for note in result["notes"] if note.startswith(DAMAGED)]


def dot(left: str, right: str, extra: bytes = b"") -> list[hlo_proto.Op]:
    """Return the two operands of a dot, then the dot."""
    return [
        hlo_proto.op("left", "parameter", shape=array(left, 8, 8)),
        hlo_proto.op("right", "parameter", shape=array(right, 8, 8)),
        hlo_proto.op("dot.1", "convolution", "left", "right", shape=array("f32", 8), extra=extra),
    ]


def judged(program: Program, name: str, output: str, category: str) -> Json:
    """Return the row of `roofline` for an op whose HLO text lacks the shapes of its operands."""
    peaks = ("--peak-tflops-fp32", "100", "--peak-tflops-fp16", "1000")
    shape = f"{output}[8,128]{{1,0}}"
    ran = event(
        name,
        category,
        0,
        100,
        shape=shape,
        operands="%left, %right",
        flops=800,
        bytes_accessed=64,
        stack="m.py:1:1",
    )
    (row,) = answer(trace_of(program, ran), "roofline", *peaks)["groups"]
    assert isinstance(row, dict)
    return row


class Precision(unittest.TestCase):
    def assert_dtype(
        self, dtype: str, left: str, right: str, output: str, extra: bytes = b""
    ) -> None:
        fused: Program = {
            "body": dot(left, right, extra),
            "main": [hlo_proto.op("fusion.1", "fusion", calls=["body"])],
        }
        row = judged(fused, "fusion.1", output, "convolution fusion")
        found = (row["dtype"], row["dtype_source"], row["dtype_uncertain"])
        self.assertEqual(found, (dtype, "program", False), (left, right, output))

    def test_fp32_counts_as_bf16_at_default_precision(self) -> None:
        self.assert_dtype("bf16", "f32", "f32", "f32")
        self.assert_dtype("bf16", "f32", "f32", "f32", precision(0, 0))
        self.assert_dtype("fp32", "f32", "f32", "f32", precision(1, 1))
        self.assert_dtype("fp32", "f32", "f32", "f32", precision(2, 2))
        self.assert_dtype("fp32", "f32", "f32", "f32", precision(0, 0, algorithm=6))
        self.assert_dtype("bf16", "bf16", "f32", "f32")

    def test_dtype_of_a_group_is_uncertain_without_a_program(self) -> None:
        shape = "bf16[8,8]{1,0}"
        ran = event("dot.1", "convolution", 0, 9, shape=shape, operands="%left, %right")
        for data, is_uncertain in (
            (trace_of({"main": dot("bf16", "bf16")}, ran), False),
            (with_program(None, [ran]), True),
        ):
            (group,) = answer(data, "by_source")["groups"]
            self.assertEqual(group["dtype_uncertain"], is_uncertain)

    def test_dots_of_wide_integers_are_skipped(self) -> None:
        program: Program = {
            "body": dot("s32", "s32"),
            "main": [hlo_proto.op("fusion.1", "fusion", calls=["body"])],
        }
        ran = event("fusion.1", "convolution fusion", 0, 9, shape="bf16[8]{0}", flops=8)
        ran.stats["bytes_accessed"] = 8
        result = answer(trace_of(program, ran), "roofline")
        (skipped,) = result["skipped_groups"]["top_skipped"]
        self.assertEqual((result["groups"], skipped["reason"]), ([], "dtype_other"))

    def test_output_determines_the_dtype_if_no_dot_is_found(self) -> None:
        plain: Program = {
            "body": [hlo_proto.op("add.1", "add", shape=array("bf16", 8))],
            "main": [hlo_proto.op("fusion.1", "fusion", calls=["body"])],
        }
        for name in ("fusion.1", "fusion.7"):
            row = judged(plain, name, "f32", "convolution fusion")
            found = (row["dtype"], row["dtype_source"], row["dtype_uncertain"])
            self.assertEqual(found, ("fp32", "output", True))


def kernel(start: int, **stats: Any) -> Op:
    return event(
        "flash.1",
        "custom-call",
        start,
        100,
        attributes=', custom_call_target="tpu_custom_call"',
        shape="bf16[8,128]{1,0}",
        stack="m.py:1:1",
        **stats,
    )


def declaring(**cost: Any) -> Program:
    config = json.dumps({"custom_call_config": {"body": "TUzv", "cost_estimate": cost}}).encode()
    return {"main": [hlo_proto.op("flash.1", "custom-call", config=config)]}


class Kernels(unittest.TestCase):
    DECLARED = declaring(flops="346", bytes_accessed="67")

    def test_declared_cost_is_used_and_noted(self) -> None:
        result = answer(trace_of(self.DECLARED, kernel(0), kernel(100)), "roofline")
        (row,) = result["groups"]
        self.assertEqual((row["cost_source"], row["kernel"]), ("declared", "flash"))
        figures = (row["flops_sum"], row["bytes_accessed_sum"], row["hbm_bytes_sum"])
        self.assertEqual(figures, (692, 134, 134))
        self.assertTrue(any("declared" in note for note in result["notes"]))

    def test_flops_of_the_trace_take_precedence_over_the_declared_cost(self) -> None:
        data = trace_of(self.DECLARED, kernel(0, flops=800, bytes_accessed=64))
        (row,) = answer(data, "roofline")["groups"]
        self.assertEqual((row["cost_source"], row["kernel"], row["flops_sum"]), ("xla", None, 800))

    def test_declared_cost_takes_precedence_over_flops_on_events(self) -> None:
        plane = tpu_plane([kernel(0, program_id=PROGRAM_ID)])
        names = StatNames(90)
        for execution in plane.lines[0].events:
            execution.stats = [names.stat("flops", 800), names.stat("bytes_accessed", 64)]
        plane.stat_metadata += names.metadata()
        hlo = hlo_proto.hlo_proto(self.DECLARED)
        # In newer captures, the key is an index, and the id is part of the name.
        programs = metadata_plane({6: (f"jit_f({PROGRAM_ID})", hlo)})
        (row,) = answer(encode(Space([plane, programs])), "roofline")["groups"]
        figures = (row["cost_source"], row["flops_sum"], row["bytes_accessed_sum"])
        self.assertEqual(figures, ("declared", 346, 67))

    def test_cost_given_by_the_user_takes_precedence_over_the_declared_cost(self) -> None:
        data = trace_of(self.DECLARED, kernel(0))
        (row,) = answer(data, "roofline", "--kernel-cost", "flash=5,6")["groups"]
        self.assertEqual((row["cost_source"], row["flops_sum"]), ("user", 5))

    def test_declared_cost_is_excluded_from_lower_bounds(self) -> None:
        result = answer(trace_of(self.DECLARED, kernel(0)), "bottleneck")
        self.assertGreater(result["speed_of_light"]["at_roof_ps"], 0)
        self.assertEqual(result["speed_of_light"]["at_least_ps"], 0)
        self.assertIsNone(result["hfu_at_least"])


def likely(program: Program, name: str, category: str, **more: Any) -> Json:
    """Return the only likely source of an op without a stack."""
    data = trace_of(program, event(name, category, 0, 10, **more))
    (group,) = answer(data, "by_source", *EVERYTHING)["groups"]
    (row,) = group["likely_sources"]
    assert isinstance(row, dict)
    return {key: row[key] for key in ("source_inner", "source_is")}


def copying(destination: Shape) -> Program:
    """Return a program that computes an array at m.py:1, copies it, and uses the copy at m.py:2."""
    return {
        "main": [
            hlo_proto.op("made", "add", line="m.py:1"),
            hlo_proto.op("copy-start.1", "copy-start", "made"),
            hlo_proto.op("copy-done.1", "copy-done", "copy-start.1", shape=destination),
            hlo_proto.op("used", "negate", "copy-done.1", line="m.py:2"),
        ]
    }


class LikelyLines(unittest.TestCase):
    def test_prefetch_has_the_line_of_its_consumer(self) -> None:
        result = likely(copying(array("f32", 8, space=1)), "copy-done.1", "copy-done")
        self.assertEqual(result, {"source_inner": "m.py:2", "source_is": "consumer"})

    def test_copy_to_the_host_has_the_line_of_its_producer(self) -> None:
        shape = "f32[8]{0:S(5)}"
        program = copying(array("f32", 8, space=5))
        result = likely(program, "copy-done.1", "copy-done", shape=shape)
        self.assertEqual(result, {"source_inner": "m.py:1", "source_is": "producer"})

    def test_wait_for_a_reduce_scatter_has_the_line_of_its_producer(self) -> None:
        # The name `unnamed.1` does not show that the op is a reduce-scatter.
        for name in ("reduce-scatter.1", "unnamed.1"):
            program: Program = {
                "called": [
                    hlo_proto.op("p", "parameter"),
                    hlo_proto.op("reduce-scatter.2", "reduce-scatter", "p"),
                ],
                "main": [
                    hlo_proto.op("x", "add", line="m.py:1"),
                    hlo_proto.op(f"{name}.call-start", "async-start", calls=["called"]),
                    hlo_proto.op("u", "async-update", f"{name}.call-start", "x"),
                    hlo_proto.op(f"{name}.call-done", "async-done", "u"),
                    hlo_proto.op("used", "negate", f"{name}.call-done", line="m.py:2"),
                ],
            }
            with self.subTest(name=name):
                result = likely(program, f"{name}.call-done", "async-done")
                self.assertEqual(result, {"source_inner": "m.py:1", "source_is": "producer"})


def small_program() -> bytes:
    return hlo_proto.hlo_proto(
        {
            "body": dot("bf16", "bf16"),
            "main": [
                hlo_proto.op("x", "add", line="m.py:1"),
                hlo_proto.op("fusion.1", "fusion", "x", calls=["body"], line="m.py:2"),
                hlo_proto.op("copy.1", "copy", "fusion.1"),
            ],
        },
        buffers=hlo_proto.buffer(1, 4096, 4)
        + hlo_proto.buffer(2, 512, 6)
        + hlo_proto.allocation(0, 4096, (1, 0, 4096), live_out=True)
        + hlo_proto.allocation(1, 512, (2, 0, 512))
        + hlo_proto.heap_trace((hlo_proto.ALLOC, 2, "copy.1", 0)),
    )


class Damage(unittest.TestCase):
    """Test that a damaged program causes a note and nulls, but does not prevent the answer."""

    def ops(self) -> list[Op]:
        return [
            event("fusion.1", "convolution fusion", 0, 70, flops=800, bytes_accessed=64),
            event("copy.1", "data formatting", 70, 30, opcode="copy"),
        ]

    def assert_answered(self, hlo: bytes, what: object) -> list[Json]:
        data = with_program(hlo, self.ops())
        result = []
        for mode in MODES:
            outcome = run(data, mode)
            if mode not in MODES_OF_TRACE and outcome.object["status"] == "absent":
                reasons = ["no_program", *["no_buffer_assignment"] * (mode == "memory")]
                self.assertIn((outcome.object["reason"], outcome.status), [(r, 0) for r in reasons])
                continue
            self.assertEqual((outcome.object["status"], outcome.status), ("ok", 0), (mode, what))
            self.assertEqual(outcome.object["program"]["n_programs"], 1)
            self.assertEqual(outcome.object["totals"]["compute_duration_ps"], 70)
            result.append(outcome.object)
        return result

    def test_truncated_program_causes_a_single_note(self) -> None:
        whole = small_program()
        for end in (1, len(whole) // 2, len(whole) - 1):
            result = {found["mode"]: found for found in self.assert_answered(whole[:end], end)}
            for mode in ("summary", "by_source"):
                self.assertEqual(len(notes_of_damage(result[mode])), 1)
            for group in result["by_source"]["groups"]:
                self.assertEqual((group["likely_sources"], group["also_fused"]), (None, None))


@functools.cache
def result_of(profile: str, mode: str, *options: str) -> Json:
    return answer(PROFILES / profile, mode, *options)


@unittest.skipUnless(TRAINING.exists(), "the capture is not available")
class Training(unittest.TestCase):
    def result(self, mode: str, *options: str) -> Json:
        return result_of(TRAINING.name, mode, *options)

    def test_dtypes_of_all_dots_come_from_the_program(self) -> None:
        rows = self.result("roofline")["groups"]
        dots = [
            row
            for row in rows
            if {"convolution fusion", "convolution"} & set(row["hlo_categories"])
        ]
        self.assertGreater(len(dots), 5)
        self.assertEqual({row["dtype_source"] for row in dots}, {"program"})
        self.assertFalse(any(row["dtype_uncertain"] for row in rows))
