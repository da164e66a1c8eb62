"""Test the cause `recompute` on traces without a program."""

from __future__ import annotations

import unittest

from tests.builders.allocator import allocator, with_host
from tests.builders.checkpoints import AGAIN, BACKWARD, FORWARD, LOSS, STEP, answer_of, matmul, rows
from tests.builders.hlo_proto import array, hlo_proto, metadata_plane, op as hlo_op
from tests.builders.xspace import Op, Space, encode, op, tpu_plane
from tests.harness import Json, answer


def of_program(
    again: int, back: int, *, kernel: int = 0, free: int | None = None, inside: bool = False
) -> list[Json]:
    """Return the causes of a program that computes an array of 4 KiB again, for the backward pass.
    HBM moves 1 byte per picosecond."""
    wide, remat = array("f32", 1024), f"{BACKWARD}{AGAIN}mlp/exp"
    later, flash = f"{BACKWARD}checkpoint/mlp/mul", f"{BACKWARD}{AGAIN}attention/pallas_call"
    narrow = array("f32", 512)
    computations = {
        "fused": [
            hlo_op("y", "parameter", shape=wide, number=0),
            hlo_op("half", "sqrt", "y", shape=narrow, tf_op=remat),
            hlo_op("product", "multiply", "half", "y", shape=wide, tf_op=later),
        ]
    }
    main = [
        hlo_op("x", "parameter", shape=wide),
        hlo_op("again", "exponential", "x", shape=wide, tf_op=remat),
        hlo_op("splash", "custom-call", "x", shape=array("f32", 128), tf_op=flash,
               target="tpu_custom_call"),
        hlo_op("use", "negate", "splash", shape=array("f32", 128), tf_op=later),
        hlo_op("back", "fusion", "again", shape=wide, calls=("fused",), tf_op=later)
        if inside
        else hlo_op("back", "negate", "again", shape=wide, tf_op=later),
    ]  # fmt: skip
    ran = [
        op("again", "loop fusion", 0, again, tf_op=f"{remat}:", bytes_accessed=8192),
        op("back", "loop fusion", again, back, tf_op=f"{later}:", bytes_accessed=8192),
    ]
    if kernel:
        target = ', custom_call_target="tpu_custom_call"'
        ran.append(
            op("splash", "custom-call", 50_000, kernel, tf_op=f"{flash}:", shape="f32[128]{0}",
               attributes=target)
        )  # fmt: skip
    for made in ran:
        made.stats["program_id"] = 7
    program = metadata_plane(
        {7: ("jit_f(7)", hlo_proto({**(computations if inside else {}), "main": main}))}
    )
    data = encode(Space([tpu_plane(ran, [("0", 0, 100_000)]), program]))
    if free is not None:
        data = with_host(data, allocator((100, 0, {"bytes_available": free})))
    peaks = ("--peak-hbm-gibps", str(10**12 / 2**30))
    rows: list[Json] = answer(data, "bottleneck", *peaks)["causes"]
    return [row for row in rows if row["cause"] == "recompute"]


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

    def test_gain_is_the_time_without_that_to_write_and_read_what_is_kept(self) -> None:
        """The ops reach 0.4096 bytes per picosecond, so the array of 4096 bytes costs 20 000 ps."""
        (row,) = of_program(30_000, 10_000)
        self.assertEqual((row["gain_ps"], row["gain_range_ps"]), (10_000, [0, 10_000]))
        self.assertEqual(row["evidence"]["keeps_bytes"], 4096)
        self.assertIn("takes 30.0 ns. Without it in all layers, 4.00 KiB more", row["says"])

    def test_recomputation_that_is_faster_than_keeping_is_not_reported(self) -> None:
        self.assertEqual(of_program(3000, 40_000), [])

    def test_checkpoint_goes_only_in_as_many_layers_as_fit_into_the_free_memory(self) -> None:
        (row,) = of_program(30_000, 10_000, free=1600)
        self.assertEqual((row["gain_ps"], row["evidence"]["keeps_bytes"]), (3333, 1365))
        self.assertIn(
            "in one of 3 layers, 1.33 KiB more are kept (1.56 KiB of HBM are free).", row["says"]
        )
        self.assertIn("one of 3 layers", row["what_helps"])

    def test_results_of_kernels_have_a_row_of_their_own(self) -> None:
        rows = of_program(30_000, 10_000, kernel=25_000)
        self.assertEqual([row["evidence"]["ops"] for row in rows], [["splash"], ["again"]])
        self.assertEqual([row["evidence"]["keeps_bytes"] for row in rows], [512, 4096])
        # The kernel's operands and results do not count as memory-bound.
        self.assertEqual([row["gain_range_ps"] for row in rows], [[3750, 22_500], [0, 10_000]])

    def test_values_inside_fusions_are_kept_too(self) -> None:
        """The backward pass reads what the compiler computes again inside of its own fusion."""
        (row,) = of_program(40_000, 10_000, inside=True)
        self.assertEqual(row["evidence"]["keeps_bytes"], 4096 + 2048)

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
