"""Test the cause `matmul_order`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, Program, causes, take
from tests.builders.hlo_proto import Op, Shape, array, op, packed, tuple_of
from tests.builders.xspace import Op as Event
from tests.builders.xspace import bytes_field
from tests.builders.xspace import op as event

# Keys of 4096 positions with 128 elements, and scores of all pairs of positions.
ROWS, SCORES = array("bf16", 4096, 128), array("bf16", 4096, 4096)
NUMBER = array("bf16")
INPUTS = [op(name, "parameter", shape=ROWS, number=i) for i, name in enumerate("qkv")]


def dot(name: str, left: str, right: str, shape: Shape, dims: tuple[int, int]) -> Op:
    """Return a matmul that sums over these dimensions of its operands."""
    numbers = packed(1, [dims[0]]) + packed(2, [dims[1]])
    extra = bytes_field(30, numbers)
    return op(name, "dot", left, right, shape=shape, line=f"{name}.py:3", extra=extra)


ALL = dot("scores", "q", "k", SCORES, (1, 1))
LAST = dot("y", "scores", "v", ROWS, (1, 0))


def ran(times: dict[str, int]) -> list[Event]:
    """Return executions of the named ops, one after the other."""
    found, start = [], 0
    for name, dur in times.items():
        category = "all-reduce" if name == "sum" else "convolution fusion"
        found.append(event(name, category, start, dur))
        start += dur
    return found


def found(*main: Op, times: dict[str, int] | None = None, **more: list[Op]) -> list[Json]:
    """Return the causes of a program in which the named ops take these times."""
    program: Program = {**more, "main": [*INPUTS, *main]}
    rows = causes(program, ran(times or {"scores": 320, "y": 320}))
    return [row for row in rows if row["cause"] == "matmul_order"]


class MatmulOrder(unittest.TestCase):
    def test_scores_without_softmax_are_found_at_the_line_that_computes_them(self) -> None:
        (row,) = found(ALL, LAST)
        self.assertEqual((row["source_user"], row["confidence"]), ("scores.py:3", "likely"))
        # Both matmuls have a 32nd of the flops in the other order.
        self.assertEqual(row["gain_ps"], 620)
        self.assertIn("makes bf16[4096,4096] in 1 matmul, only to multiply it", row["says"])

    def test_softmax_needs_the_scores(self) -> None:
        weights = op("weights", "exponential", "scores", shape=SCORES)
        self.assertEqual(found(ALL, weights, dot("y", "weights", "v", ROWS, (1, 0))), [])

    def test_result_is_followed_through_a_scale_and_a_reshape(self) -> None:
        split = array("bf16", 4096, 32, 128)
        more = [
            op("half", "constant", shape=NUMBER),
            op("halves", "broadcast", "half", shape=SCORES),
            op("scaled", "multiply", "scores", "halves", shape=SCORES),
            op("split", "reshape", "scaled", shape=split),
            op("joined", "reshape", "split", shape=SCORES),
            dot("y", "joined", "v", ROWS, (1, 0)),
        ]
        (row,) = found(ALL, *more, times={"scores": 320, "scaled": 100, "y": 320})
        # The scaled copy is not needed, either.
        self.assertEqual(row["gain_ps"], 720)

    def test_scale_of_each_position_is_no_number(self) -> None:
        scales = op("s", "parameter", shape=array("bf16", 4096), number=3)
        each = op("each", "broadcast", "s", shape=SCORES, extra=packed(14, [0]))
        scaled = op("scaled", "multiply", "scores", "each", shape=SCORES)
        self.assertEqual(
            found(ALL, scales, each, scaled, dot("y", "scaled", "v", ROWS, (1, 0))), []
        )

    def test_sum_over_a_part_of_a_dimension_is_not_followed(self) -> None:
        more = [
            op("split", "reshape", "scores", shape=array("bf16", 4096, 32, 128)),
            op("v.2", "parameter", shape=array("bf16", 128, 128), number=3),
            dot("y", "split", "v.2", array("bf16", 4096, 32, 128), (2, 0)),
        ]
        self.assertEqual(found(ALL, *more), [])

    def test_result_that_the_step_returns_is_needed(self) -> None:
        both = op("both", "tuple", "scores", "y", shape=tuple_of(SCORES, ROWS))
        self.assertEqual(found(ALL, LAST, both), [])

    def test_product_with_itself_has_no_other_order(self) -> None:
        times = {"scores": 320, "y": 10240}
        square = dot("y", "scores", "scores", SCORES, (1, 0))
        self.assertEqual(found(ALL, square, times=times), [])
        # The other operand can be a copy of the result.
        turned = op("turned", "copy", "scores", shape=SCORES)
        square = dot("y", "scores", "turned", SCORES, (1, 0))
        self.assertEqual(found(ALL, turned, square, times=times), [])

    def test_small_rank_that_is_multiplied_first_is_the_best_order(self) -> None:
        rank = array("bf16", 4096, 16)
        inputs = [
            op("a", "parameter", shape=array("bf16", 128, 16), number=3),
            op("b", "parameter", shape=array("bf16", 16, 128), number=4),
        ]
        chain = [dot("scores", "q", "a", rank, (1, 0)), dot("y", "scores", "b", ROWS, (1, 0))]
        self.assertEqual(found(*inputs, *chain), [])

    def test_two_layers_without_activation_are_found_only_for_many_rows(self) -> None:
        # The product of both weights needs as many flops as 128 rows in one of the layers.
        for n_rows, n in ((128, 0), (256, 1)):
            rows, hidden = array("bf16", n_rows, 128), array("bf16", n_rows, 4096)
            inputs = [
                op("up", "parameter", shape=array("bf16", 128, 4096), number=3),
                op("down", "parameter", shape=ROWS, number=4),
                op("x", "parameter", shape=rows, number=5),
            ]
            first = dot("scores", "x", "up", hidden, (1, 0))
            with self.subTest(n_rows):
                rows_found = found(*inputs, first, dot("y", "scores", "down", rows, (1, 0)))
                self.assertEqual(len(rows_found), n)

    def test_sum_over_devices_shrinks_with_the_result(self) -> None:
        more = [
            op("sum", "all-reduce", "scores", shape=SCORES),
            dot("y", "sum", "v", ROWS, (1, 0)),
        ]
        (row,) = found(ALL, *more, times={"scores": 320, "sum": 320, "y": 320})
        self.assertEqual((row["gain_ps"], row["confidence"]), (930, "likely"))
        self.assertIn("and sends it to other devices", row["says"])

    def test_result_that_a_loop_uses_in_each_round_is_not_found(self) -> None:
        state = tuple_of(SCORES, ROWS)
        body = [
            op("state", "parameter", shape=state),
            take("all", "state", 0, SCORES),
            take("h", "state", 1, ROWS),
            dot("y", "all", "h", ROWS, (1, 0)),
            op("next", "tuple", "all", "y", shape=state),
        ]
        main = [
            op("init", "tuple", "scores", "v", shape=state),
            op("while.1", "while", "init", shape=state, calls=["body", "condition"]),
        ]
        condition = [op("rounds", "parameter", shape=state)]
        self.assertEqual(found(ALL, *main, body=body, condition=condition), [])

    def test_damaged_copies_of_the_result_are_read(self) -> None:
        # A tuple returns an array of another shape, or contains itself.
        half = op("half", "transpose", "part", shape=ROWS, extra=packed(14, [1, 0]))
        flat = take("part", "all", 0, array("bf16", 8, 8, 8))
        pair = op("all", "tuple", "scores", "all", shape=tuple_of(SCORES, SCORES))
        for copies in ([pair, flat, half], [pair, flat, dot("y", "part", "v", ROWS, (2, 0))]):
            self.assertEqual(found(ALL, *copies), [])
        barrier = op("all", "opt-barrier", "all", shape=tuple_of(SCORES, SCORES))
        for more in ([pair], [barrier], [take("all", "all", 0, SCORES)]):
            self.assertEqual(found(ALL, *more, dot("y", "all", "v", ROWS, (1, 0))), [])

    def test_pieces_of_bytes_in_vmem_are_the_same_array(self) -> None:
        n = 4096 * 4096
        flat, piece = array("s8", 2 * n), array("s8", n, space=1)
        more = [
            op("bytes", "bitcast", "scores", shape=flat),
            op("first", "slice-start", "bytes", shape=piece),
            op("second", "slice-start", "bytes", shape=piece),
            op("first.done", "slice-done", "first", shape=piece),
            op("second.done", "slice-done", "second", shape=piece),
            op(
                *("fast", "custom-call", "first.done", "second.done"),
                shape=SCORES,
                target="ConcatBitcast",
            ),
            dot("y", "fast", "v", ROWS, (1, 0)),
        ]
        self.assertEqual(len(found(ALL, *more)), 1)
