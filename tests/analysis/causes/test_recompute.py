"""Test the cause `recompute` on traces without a program."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import causes
from tests.builders.allocator import Said, allocator, with_host
from tests.builders.hlo_proto import array
from tests.builders.hlo_proto import op as hlo_op
from tests.builders.xspace import Op, op, trace
from tests.harness import Json, answer

FORWARD = "jit(f)/jvp()/"
BACKWARD = "jit(f)/transpose(jvp())/"
AGAIN = "checkpoint/rematted_computation/"
LOOP = "while/body/closed_call/"
BLOCK, LOSS, STEP = "block.py:9:1", "train.py:7:1", "train.py:2:1"


def matmul(path: str, start: int, dur: int, *frames: str) -> Op:
    """Return a matmul with the given path; its stack consists of `frames` and, as the innermost
    frame, BLOCK."""
    stack, source = "\n".join((*frames, BLOCK)), BLOCK.rpartition(":")[0]
    return op(
        f"dot.{start}",
        "convolution fusion",
        start,
        dur,
        tf_op=f"{path}mlp/dot_general:",
        stack=stack,
        source=source,
    )


def answer_of(*ops: Op) -> Json:
    found: Json = answer(trace(ops, [("0", 0, 1000)]), "bottleneck")
    return found


def rows(*ops: Op) -> list[tuple[str, int, str | None, str]]:
    """Return the cause, the gain or else the affected time, the line and the confidence."""
    return [
        (row["cause"], row["gain_ps"] or row["unknown_ps"], row["source_user"], row["confidence"])
        for row in answer_of(*ops)["causes"]
    ]


class Recompute(unittest.TestCase):
    def test_single_checkpoint_is_a_likely_cause(self) -> None:
        step = answer_of(
            matmul(FORWARD, 0, 100, STEP, LOSS), matmul(BACKWARD + AGAIN, 100, 90, STEP, LOSS)
        )
        (row,) = step["causes"]
        self.assertEqual((row["cause"], row["gain_ps"]), ("recompute", None))
        self.assertEqual(row["unknown_ps"], 90)
        self.assertEqual(row["confidence"], "likely")
        self.assertEqual(row["evidence"]["ops"], ["dot.100"])

    def test_communication_that_runs_again_counts_apart(self) -> None:
        gather = op("g.1", "all-gather", 300, 200, tf_op=f"{BACKWARD}{AGAIN}mlp/all_gather:")
        (row,) = answer_of(matmul(BACKWARD + AGAIN, 100, 90, STEP, LOSS), gather)["causes"]
        self.assertEqual((row["unknown_ps"], row["evidence"]["ops"]), (90, ["dot.100"]))
        self.assertIn("takes 90 ps, besides 200 ps of communication.", row["says"])

    def test_free_memory_is_the_minimum_reported_by_the_allocator(self) -> None:
        capture = trace([matmul(BACKWARD + AGAIN, 100, 90, STEP, LOSS)], [("0", 0, 1000)])
        reports: list[Said] = [
            (at, 0, {"bytes_available": free}) for at, free in ((100, 7000), (200, 4000))
        ]
        result = answer(with_host(capture, allocator(*reports)), "bottleneck")
        (row,) = result["causes"]
        self.assertIn("3.91 KiB of HBM stayed free", row["says"])

    def test_arrays_that_the_backward_pass_reads_would_have_to_be_kept(self) -> None:
        program = {
            "main": [
                hlo_op("x", "parameter", shape=array("f32", 1024)),
                hlo_op("again", "exponential", "x", shape=array("f32", 1024)),
                hlo_op("again2", "exponential", "again", shape=array("f32", 512)),
                hlo_op("back", "negate", "again2", shape=array("f32", 512)),
            ]
        }
        path = f"{BACKWARD}{AGAIN}mlp/exp:"
        ran = [
            op("again", "loop fusion", 0, 100, tf_op=path),
            op("again2", "loop fusion", 100, 100, tf_op=path),
            op("back", "loop fusion", 200, 100, tf_op=f"{BACKWARD}checkpoint/mlp/mul:"),
        ]
        (row,) = causes(program, ran)
        self.assertIn("takes 200 ps. Saving activations instead takes 2.00 KiB", row["says"])

    def test_line_of_the_cause_is_the_innermost_line_shared_by_all_stacks(self) -> None:
        again = [matmul(BACKWARD + AGAIN, 100 * i, 90, STEP, LOSS) for i in (1, 2)]
        self.assertEqual(rows(*again), [("recompute", 180, "block.py:9", "likely")])
        other = op(
            "exp.1",
            "loop fusion",
            300,
            20,
            tf_op=f"{BACKWARD}{AGAIN}exp:",
            stack=f"{STEP}\n{LOSS}\nact.py:3:1",
            source="act.py:3",
        )
        self.assertEqual(rows(*again, other), [("recompute", 200, "train.py:7", "likely")])

    def test_recomputation_without_a_checkpoint_is_not_reported(self) -> None:
        self.assertEqual(rows(op("fusion.1.remat", "loop fusion", 0, 100, tf_op="jit(f)/exp:")), [])

    def test_recomputation_below_half_a_percent_is_not_reported(self) -> None:
        for dur, n in ((4, 0), (5, 1)):
            with self.subTest(dur=dur):
                self.assertEqual(len(rows(matmul(BACKWARD + AGAIN, 0, dur, STEP))), n)


class Notes(unittest.TestCase):
    def test_missing_program_is_noted(self) -> None:
        notes = answer_of(self.op())["notes"]
        self.assertTrue(
            any("the capture does not contain the program of this step" in note for note in notes)
        )

    @staticmethod
    def op() -> Op:
        return op("f.1", "loop fusion", 0, 100)
