"""Test the cause `recomputed_repeatedly` on traces without a program."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import causes
from tests.builders.checkpoints import (
    AGAIN,
    BACKWARD,
    FORWARD,
    LOOP,
    LOSS,
    STEP,
    answer_of,
    matmul,
    rows,
)
from tests.builders.hlo_proto import op as hlo_op
from tests.builders.xspace import op


class Repeatedly(unittest.TestCase):
    FORWARD = matmul(FORWARD + LOOP, 0, 100, STEP, LOSS)
    # The outer checkpoint recomputes the whole loop; each inner checkpoint recomputes one block.
    OUTER = matmul(f"{BACKWARD}{AGAIN}{LOOP}", 100, 90, STEP, LOSS)
    INNER = matmul(f"{BACKWARD}checkpoint/{LOOP}{AGAIN}", 200, 80, STEP, LOSS, "scan.py:4:1")

    def test_needless_outer_checkpoint_around_a_loop_is_reported(self) -> None:
        found = rows(self.FORWARD, self.OUTER, self.INNER)
        self.assertEqual(
            found,
            [
                ("recomputed_repeatedly", 90, "block.py:9", "seen"),
                ("recompute", 80, "block.py:9", "likely"),
            ],
        )
        (row, _) = answer_of(self.FORWARD, self.OUTER, self.INNER)["causes"]
        self.assertIn("Remove the outer checkpoint", row["what_helps"])

    def test_needless_inner_checkpoint_within_a_block_is_reported(self) -> None:
        inner = matmul(f"{BACKWARD}checkpoint/attention/{AGAIN}", 200, 80, STEP, LOSS)
        outer = matmul(f"{BACKWARD}{AGAIN}attention/", 100, 90, STEP, LOSS)
        # The outer checkpoint also covers other parts of the block, but the inner one does not.
        backward = matmul(f"{BACKWARD}checkpoint/other/", 300, 100, STEP, LOSS)
        (first, second) = answer_of(outer, inner, backward)["causes"]
        self.assertEqual((first["cause"], first["gain_ps"]), ("recomputed_repeatedly", 80))
        # `recompute` comes last despite its longer time, because its gain can be far smaller.
        self.assertEqual((second["cause"], second["unknown_ps"]), ("recompute", 90))
        self.assertIn("Remove the inner checkpoint", first["what_helps"])

    def found_with(self, *places: tuple[str, str]) -> tuple[str, int]:
        """Return the advice and the gain for two levels of checkpoints. Each place is where the
        outer checkpoint is, and the name of an inner checkpoint; these have all matmuls."""
        ran = []
        for i, (around, name) in enumerate(places):
            once = matmul(f"{BACKWARD}{around}{AGAIN}{name}/", 300 * i, 90, STEP)
            twice = f"{BACKWARD}{around}checkpoint/{name}/"
            again = matmul(f"{twice}{AGAIN}", 300 * i + 100, 80, STEP, LOSS)
            ran += [once, again, matmul(f"{twice}checkpoint/", 300 * i + 200, 99, STEP)]
        row = answer_of(*ran)["causes"][0]
        self.assertEqual(row["cause"], "recomputed_repeatedly")
        return row["what_helps"].partition(";")[0], row["gain_ps"]

    def test_inner_checkpoints_in_each_block_are_needless(self) -> None:
        # The outer checkpoint is around one block, so removing it would need more memory.
        inner = ("Remove the inner checkpoint", 160)
        outer = ("Remove the outer checkpoint", 180)
        for places, expected in (
            (((LOOP, "attention_0"), (LOOP, "mlp_0")), inner),
            ((("block_0/", "mlp"), ("block_1/", "mlp")), inner),
            ((("", "attention_0"), ("", "mlp_0")), outer),
            # A loop over parts of a batch runs all blocks in each round.
            (((LOOP, "block_0"), (LOOP, "block_1")), outer),
        ):
            self.assertEqual(self.found_with(*places), expected, places)

    def gain_with_input_read_by(self, reader: str) -> int:
        """Return the gain for an inner checkpoint around a matmul whose input `norm` is written by
        an op before it, and is read again by an op with the path `reader`."""
        paths = {
            "norm": f"{BACKWARD}{AGAIN}norm/mul:",
            "once": f"{BACKWARD}{AGAIN}attention/dot_general:",
            "twice": f"{BACKWARD}checkpoint/attention/{AGAIN}dot_general:",
            "other": f"{BACKWARD}checkpoint/{reader}",
        }
        readers = [hlo_op(name, "negate", "norm") for name in paths if name != "norm"]
        program = {"main": [hlo_op("x", "parameter"), hlo_op("norm", "negate", "x"), *readers]}
        # Most of the backward pass is outside of the inner checkpoint.
        back = matmul(f"{BACKWARD}checkpoint/mlp/", 900, 100, STEP)
        ran = [
            op(name, "loop fusion", 100 * i, 50, tf_op=path)
            for i, (name, path) in enumerate(paths.items())
        ]
        row = causes(program, [*ran, back])[0]
        self.assertEqual(row["cause"], "recomputed_repeatedly")
        gain: int = row["gain_ps"]
        return gain

    def test_op_that_writes_only_what_the_inner_checkpoint_reads_goes_with_it(self) -> None:
        self.assertEqual(self.gain_with_input_read_by("attention/dot_general:"), 100)
        self.assertEqual(self.gain_with_input_read_by("mlp/dot_general:"), 50)

    def test_work_recomputed_only_once_is_not_recomputed_repeatedly(self) -> None:
        found = rows(self.FORWARD, self.INNER)
        self.assertEqual([cause for cause, *_ in found], ["recompute"])

    def test_outer_checkpoint_without_recomputation_is_not_reported(self) -> None:
        both = matmul(f"{BACKWARD}checkpoint/block/{AGAIN}", 100, 90, STEP, LOSS)
        inner = matmul(f"{BACKWARD}block/{AGAIN}", 300, 90, STEP, LOSS)
        self.assertEqual(rows(both, inner), [("recompute", 180, "block.py:9", "likely")])
