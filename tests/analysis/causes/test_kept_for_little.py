"""Test the cause `kept_for_little`: arrays that a loop fills, and of which little is used."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes, rounds, take
from tests.builders.hlo_proto import Shape, array, op, tuple_of
from tests.builders.xspace import op as event

# At this peak, memory moves a million bytes per picosecond.
HBM = ("--peak-hbm-gibps", str(10**18 / 2**30))
N_ROUNDS = 4


def found(
    *,
    rows: int = 1024,
    reader: str = "reduce",
    result: Shape | None = None,
    path: str = "jit(f)/max:",
    is_kept: bool = True,
    is_filled: bool = False,
) -> list[Json]:
    """Return the causes if a loop writes `rows` rows of f32[8192] in each of its rounds, and an op
    reads all of them."""
    kept, part = array("f32", N_ROUNDS, rows, 8192), array("f32", 1, rows, 8192)
    update = kept if is_kept else part
    state = tuple_of(update, part)
    body = [
        op("state", "parameter", shape=state),
        take("stack", "state", 0, update),
        take("part", "state", 1, part),
        op("index", "constant"),
        op("put.1", "dynamic-update-slice", "stack", "part", "index", shape=kept, line="eval.py:5")
        if is_kept
        else op("put.1", "negate", "part", shape=part, line="eval.py:5"),
        op("root", "tuple", "put.1", "part", shape=state),
    ]
    main = [
        op("zero", "constant", shape=array("f32")),
        op("fill", "broadcast", "zero", shape=update)
        if is_filled
        else op("fill", "custom-call", shape=update, target="AllocateBuffer"),
        op("first", "parameter", shape=part),
        op("init", "tuple", "fill", "first", shape=state),
        op("while.1", "while", "init", shape=state, calls=["body", "condition"]),
        take("all", "while.1", 0, update),
        op(
            "out.1",
            reader,
            "all",
            "first",
            shape=result or array("f32", N_ROUNDS, rows),
            line="eval.py:9",
        ),
    ]
    n_bytes = 4 * rows * 8192
    category = "convolution fusion" if reader == "dot" else "loop fusion"
    ran = [
        event("while.1", "while", 0, 400),
        *rounds("put.1", "loop fusion", 0, 80, N_ROUNDS, bytes_accessed=2 * n_bytes),
        event("out.1", category, 400, 200, tf_op=path, bytes_accessed=N_ROUNDS * n_bytes),
    ]
    if is_filled:
        ran.append(event("fill", "broadcast", 600, 150, bytes_accessed=N_ROUNDS * n_bytes))
    condition = [op("rounds", "parameter", shape=state)]
    program = {"body": body, "condition": condition, "main": main}
    rows_found = causes(program, ran, *HBM)
    return [row for row in rows_found if row["cause"] == "kept_for_little"]


class KeptForLittle(unittest.TestCase):
    def test_array_of_all_rounds_that_is_reduced_is_reported(self) -> None:
        (row,) = found()
        # The copies into the array go; the reduction remains.
        self.assertEqual((row["gain_ps"], row["confidence"]), (4 * 80, "seen"))
        self.assertEqual(
            (row["source_user"], row["evidence"]["ops"]), ("eval.py:9", ["put.1", "out.1"])
        )
        self.assertIn("eval.py:9 takes or makes only 16.0 KiB of f32[4,1024,8192]", row["says"])

    def test_op_that_fills_the_array_with_zeros_first_goes_too(self) -> None:
        (row,) = found(is_filled=True)
        self.assertEqual(row["gain_ps"], 4 * 80 + 150)

    def test_smaller_array_is_not_reported(self) -> None:
        self.assertEqual(found(rows=1), [])

    def test_array_of_one_round_is_not_reported(self) -> None:
        self.assertEqual(found(rows=4096, is_kept=False), [])

    def test_array_that_the_backward_pass_reads_is_not_reported(self) -> None:
        self.assertEqual(found(path="jit(f)/transpose(jvp())/max:"), [])

    def test_array_of_which_much_is_used_is_not_reported(self) -> None:
        self.assertEqual(len(found(result=array("f32", N_ROUNDS, 1024, 2048))), 1)
        self.assertEqual(found(result=array("f32", N_ROUNDS, 1024, 2049)), [])

    def test_array_that_a_matmul_reads_is_not_reported(self) -> None:
        self.assertEqual(found(reader="dot"), [])
