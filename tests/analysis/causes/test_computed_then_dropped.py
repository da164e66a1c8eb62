"""Test the cause `computed_then_dropped`."""

from __future__ import annotations

import struct
import unittest

from _breakdown.analysis.arrays.dims import links_of
from _proto.hlo.program import Program
from tests.analysis.small_programs import OF_ROWS, Json, causes, equal, zeros
from tests.builders.hlo_proto import (
    Op,
    Shape,
    array,
    direction,
    element,
    module,
    op,
    packed,
    tuple_of,
)
from tests.builders.xspace import Op as Event, bytes_field, encode, int_field, op as event

X, HEAD, LOGITS = array("bf16", 512, 64), array("bf16", 64, 4096), array("bf16", 512, 4096)
INDICES = array("s32", 76, 1)


def dot(name: str, left: str, right: str, shape: Shape, dims: tuple[int, int], line: str) -> Op:
    """Return a matmul that sums over these dimensions of its operands."""
    numbers = packed(1, [dims[0]]) + packed(2, [dims[1]])
    return op(name, "dot", left, right, shape=shape, line=line, extra=bytes_field(30, numbers))


def gather(name: str, source: str, shape: Shape, n_columns: int, indices: str = "where") -> Op:
    """Return a gather of rows of a matrix with `n_columns`."""
    extra = bytes_field(33, packed(1, [1])) + packed(34, [1, n_columns])
    return op(name, "gather", source, indices, shape=shape, line="loss.py:12", extra=extra)


def cut_of(source: str) -> Op:
    """Return a slice with half of the columns."""
    return op("cut", "slice", source, shape=array("bf16", 512, 2048), line="model.py:4")


INPUTS = [
    op("x", "parameter", shape=X),
    op("head", "parameter", shape=HEAD, number=1),
    op("where", "parameter", shape=INDICES, number=2),
]
ALL = dot("logits", "x", "head", LOGITS, (1, 0), "train.py:19")
PICKED = gather("picked", "logits", array("bf16", 76, 4096), 4096)


def found(*more: Op, times: dict[str, int] | None = None) -> list[Json]:
    """Return the causes of a program in which the named ops take these times, and others none."""
    times = times or {"logits": 400}
    others = dict.fromkeys(one.name for one in more if one.opcode not in ("parameter", "constant"))
    ran, start = [], 0
    for name in {**times, **others}:
        dur = times.get(name, 0)
        ran.append(event(name, "loop fusion", start, dur, tf_op=f"jit(step)/{name}:"))
        start += dur
    return dropped({"main": [*INPUTS, ALL, *more]}, ran)


def dropped(program: dict[str, list[Op]], ran: list[Event]) -> list[Json]:
    return [row for row in causes(program, ran) if row["cause"] == "computed_then_dropped"]


class Damage(unittest.TestCase):
    def test_update_without_operands_is_read(self) -> None:
        self.assertEqual(len(found(PICKED, op("grad", "scatter", shape=LOGITS))), 1)

    def test_gather_without_elements_is_read(self) -> None:
        empty = gather("picked", "logits", array("bf16", 0, 4096), 4096)
        program = Program(encode(module({"main": [*INPUTS, ALL, empty]})), 0, lambda: None, print)
        here = program.instruction("picked")
        assert here
        # Other parts are divided by this one.
        self.assertGreater(min(link.taken for link in links_of(here)), 0)


class Dropped(unittest.TestCase):
    def test_matmul_of_which_rows_are_picked_is_found_at_the_line_that_picks(self) -> None:
        (row,) = found(PICKED)
        self.assertEqual((row["source_user"], row["confidence"]), ("loss.py:12", "seen"))
        # 76 of 512 rows are left of 400 ps.
        self.assertEqual(row["gain_ps"], 341)
        taken = f"loss.py:12 takes {76 * 4096} of the {512 * 4096} elements of bf16[512,4096]."
        self.assertIn(taken, row["says"])

    def test_single_elements_of_a_matmul_are_sums_on_the_vector_unit(self) -> None:
        def of_elements(n: int) -> list[Json]:
            numbers = packed(2, [0, 1]) + packed(3, [0, 1]) + int_field(4, 1)
            extra = bytes_field(33, numbers) + packed(34, [1, 1])
            both = op("both", "parameter", shape=array("s32", n, 2), number=3)
            picked = op("picked", "gather", "logits", "both", shape=array("bf16", n), extra=extra)
            return found(both, picked)

        (row,) = of_elements(512)
        # One of 4096 elements takes as long as 128 of them.
        self.assertEqual(row["gain_ps"], 400 - 400 * 128 // 4096)
        self.assertEqual(of_elements(512 * 4096 // 128), [])

    def test_function_of_a_whole_table_is_found_where_rows_are_looked_up(self) -> None:
        scaled = op("scaled", "negate", "table", shape=LOGITS, line="towers.py:17")
        table = op("table", "parameter", shape=LOGITS, number=3)
        looked_up = gather("picked", "scaled", array("bf16", 76, 4096), 4096)
        (row,) = found(table, scaled, looked_up, times={"scaled": 300})
        self.assertEqual((row["source_user"], row["gain_ps"]), ("loss.py:12", 255))
        # The whole result is needed, too.
        result = op("kept", "tanh", "scaled", shape=LOGITS)
        self.assertEqual(found(table, scaled, looked_up, result, times={"scaled": 300}), [])

    def test_array_that_is_also_reduced_is_left_to_the_rule_about_large_intermediates(self) -> None:
        wide = array("f32", 512, 4096)
        main = [
            *INPUTS,
            op("y", "parameter", shape=wide, number=3),
            op("scaled", "negate", "y", shape=wide, line="loss.py:5"),
            gather("picked", "scaled", array("f32", 4, 4096), 4096),
        ]
        ran = [
            event("scaled", "loop fusion", 0, 500, bytes_accessed=2 * 4 * 512 * 4096),
            event("picked", "gather", 500, 10, bytes_accessed=2 * 4 * 4 * 4096),
        ]
        # At this peak, memory moves 100 kB per picosecond.
        rows = causes({"main": main}, ran, "--peak-hbm-gibps", str(10**17 / 2**30))
        self.assertEqual([row["cause"] for row in rows], ["large_intermediate"])

    def test_op_with_two_results_of_which_parts_are_taken_is_found(self) -> None:
        both = tuple_of(LOGITS, LOGITS)
        parts = [
            op("given", "parameter", shape=LOGITS),
            op("first", "negate", "given", shape=LOGITS),
            op("second", "tanh", "given", shape=LOGITS),
            op("two", "tuple", "first", "second", shape=both),
        ]
        main = [
            *INPUTS,
            op("table", "parameter", shape=LOGITS, number=3),
            op("scaled", "fusion", "table", shape=both, calls=["parts"], line="towers.py:17"),
            *(
                one
                for i in (0, 1)
                for one in (
                    op(f"part.{i}", "get-tuple-element", "scaled", shape=LOGITS, extra=element(i)),
                    gather(f"picked.{i}", f"part.{i}", array("bf16", 76, 4096), 4096),
                )
            ),
        ]
        ran = [
            event("scaled", "loop fusion", 0, 300),
            event("picked.0", "gather", 300, 0),
            event("picked.1", "gather", 300, 0),
        ]
        (row,) = dropped({"parts": parts, "main": main}, ran)
        self.assertEqual((row["source_user"], row["gain_ps"]), ("loss.py:12", 255))

    def test_asynchronous_lookup_that_first_slices_its_indices_is_followed(self) -> None:
        picked = array("bf16", 76, 4096)
        lookup = [
            op("given", "parameter", shape=LOGITS),
            op("indices", "parameter", shape=INDICES, number=1),
            op("sliced", "slice", "indices", shape=INDICES),
            gather("rows", "given", picked, 4096, "sliced"),
        ]
        main = [
            *INPUTS,
            ALL,
            op("start", "async-start", "logits", "where", shape=LOGITS, calls=["lookup"]),
            op("done", "async-done", "start", shape=picked),
        ]
        ran = [
            event("logits", "loop fusion", 0, 400),
            event("start", "async-start", 400, 1),
            event("done", "async-done", 401, 1),
        ]
        (row,) = dropped({"lookup": lookup, "main": main}, ran)
        self.assertEqual(row["gain_ps"], 341)

    def test_rows_are_followed_through_a_norm_a_reshape_and_a_matmul(self) -> None:
        wide, out = array("bf16", 512, 4096), array("bf16", 512, 512)
        more = [
            op("sums", "reduce", "logits", "x", shape=array("bf16", 512), extra=packed(14, [1])),
            op("all", "broadcast", "sums", shape=wide, extra=packed(14, [0])),
            op("normed", "multiply", "logits", "all", shape=wide),
            op("down", "parameter", shape=array("bf16", 4096, 512), number=3),
            dot("y", "normed", "down", out, (1, 0), "train.py:20"),
            op("split", "reshape", "y", shape=array("bf16", 4, 128, 512)),
            op("joined", "reshape", "split", shape=out),
            gather("picked", "joined", array("bf16", 76, 512), 512),
        ]
        (row,) = found(*more, times={"logits": 400, "y": 200})
        self.assertEqual(row["gain_ps"], 511)

    def test_result_that_is_also_used_whole_is_needed(self) -> None:
        total = op("total", "reduce", "logits", "x", shape=array("bf16"), extra=packed(14, [0, 1]))
        self.assertEqual(found(PICKED, total), [])

    def test_result_that_the_program_returns_is_needed(self) -> None:
        self.assertEqual(found(PICKED, op("out", "negate", "logits", shape=LOGITS)), [])

    def test_two_halves_that_are_both_used_are_the_whole(self) -> None:
        halves = [part("low", (0, 256)), part("high", (256, 512))]
        self.assertEqual(found(*halves), [])
        # Two ops that take the same half leave the other.
        (row,) = found(part("low", (0, 256)), part("again", (0, 256)))
        self.assertEqual(row["gain_ps"], 200)

    def test_op_that_needs_all_positions_takes_as_long_for_a_part(self) -> None:
        # A kernel can need a padded dimension, and the last sum of a cumsum adds all elements.
        for opcode, n in (("tanh", 1), ("custom-call", 0), ("reduce-window", 0), ("sort", 0)):
            made = op("made", opcode, "x", shape=LOGITS)
            then = op("then", "negate", "made", shape=LOGITS)
            with self.subTest(opcode):
                rows = found(made, then, cut_of("then"), times={"made": 300, "then": 100})
                self.assertEqual([row["gain_ps"] for row in rows], [200 if n else 50])
                rows = found(made, cut_of("made"), times={"made": 300})
                self.assertEqual(len(rows), n)

    def test_slice_that_drops_one_position_is_a_shift(self) -> None:
        self.assertEqual(found(part("shifted", (1, 512))), [])

    def test_op_that_pads_its_result_drops_nothing(self) -> None:
        small = op("small", "parameter", shape=array("bf16", 512, 1024), number=3)
        pad = op("padded", "pad", "small", "zeros.0", shape=LOGITS, line="model.py:13")
        more = op("more", "negate", "padded", shape=LOGITS)
        times = {"padded": 400, "more": 200}
        self.assertEqual(found(*zeros("zeros", LOGITS), small, pad, times=times), [])
        (row,) = found(*zeros("zeros", LOGITS), small, pad, more, times=times)
        self.assertEqual((row["source_user"], row["gain_ps"]), ("model.py:13", 150))
        self.assertIn("leaves zeros except for 524288 of the 2097152 elements", row["says"])

    def test_rows_that_pad_an_array_to_a_bucket_are_dropped(self) -> None:
        (row,) = found(part("rows", (0, 384)))
        self.assertEqual(row["gain_ps"], 100)

    def test_block_whose_result_is_added_to_others_is_written_for_all_positions(self) -> None:
        stream = op("stream", "dot", "x", "head", shape=LOGITS)
        total = op("sum", "add", "logits", "stream", shape=LOGITS)
        picked = gather("picked", "sum", array("bf16", 76, 4096), 4096)
        self.assertEqual(found(stream, total, picked), [])

    def test_gelu_that_adds_functions_of_one_array_is_followed(self) -> None:
        cube = op("cube", "multiply", "logits", "logits", shape=LOGITS)
        total = op("sum", "add", "logits", "cube", shape=LOGITS)
        picked = gather("picked", "sum", array("bf16", 76, 4096), 4096)
        self.assertEqual(len(found(cube, total, picked)), 1)


def part(name: str, rows: tuple[int, int]) -> Op:
    """Return a slice of rows of the logits."""
    begin, end = rows
    cut = bytes_field(17, int_field(1, begin) + int_field(2, end) + int_field(3, 1))
    shape = array("bf16", end - begin, 4096)
    return op(name, "slice", "logits", shape=shape, line="loss.py:12", extra=cut)


class Masks(unittest.TestCase):
    def window(self, begin: str = "end", end: str = "end", fill: float = -1e9) -> list[Json]:
        """Return the causes if a softmax keeps 1024 of 4096 scores, up to `end`, and multiplies the
        values of all positions with its weights."""
        places, mask, row = array("s32", 512, 4096), array("pred", 512, 4096), packed(14, [0])
        scale = bytes_field(8, bytes_field(8, struct.pack("<f", fill)))
        number = bytes_field(8, bytes_field(4, b"\x80\xf8\xff\xff\xff\xff\xff\xff\xff\x01"))
        dims = packed(14, [0, 1] if end == "row" else [])
        return found(
            op("end", "parameter", shape=array("s32"), number=3),
            op("other", "parameter", shape=array("s32"), number=4),
            op("values", "parameter", shape=array("bf16", 4096, 64), number=5),
            op("-1024", "constant", shape=array("s32"), extra=number),
            op("before", "add", begin, "-1024", shape=places if begin == "row" else array("s32")),
            op("row", "iota", shape=places, extra=row),
            op("place", "iota", shape=places, extra=packed(14, [1])),
            op("last", "broadcast", end, shape=places, extra=dims),
            op("first", "broadcast", "before", shape=places, extra=dims),
            op("le", "compare", "place", "last", shape=mask, extra=direction("LE")),
            op("gt", "compare", "place", "first", shape=mask, extra=direction("GT")),
            op("seen", "and", "le", "gt", shape=mask),
            op("fill", "constant", shape=array("f32"), extra=scale),
            op("low", "broadcast", "fill", shape=LOGITS),
            op("masked", "select", "seen", "logits", "low", shape=LOGITS, line="model.py:7"),
            op("shifted", "subtract", "masked", "low", shape=LOGITS),
            op("exp", "exponential", "shifted", shape=LOGITS, line="model.py:8"),
            dot("y", "exp", "values", array("bf16", 512, 64), (1, 0), "model.py:9"),
            times={"logits": 400, "y": 200},
        )

    def test_matmuls_before_and_after_a_softmax_of_a_window_need_only_the_window(self) -> None:
        (row,) = self.window()
        self.assertEqual((row["source_user"], row["gain_ps"]), ("model.py:7", 450))
        self.assertIn("takes 524288 of the 2097152 elements", row["says"])
        # With other numbers, weights are not zero.
        (row,) = self.window(fill=-1)
        self.assertEqual(row["gain_ps"], 300)

    def test_window_of_unknown_size_or_at_another_place_for_each_row_is_no_part(self) -> None:
        for ends in (("other", "end"), ("end", "other"), ("row", "row")):
            with self.subTest(ends):
                self.assertEqual(self.window(*ends), [])


class Zeros(unittest.TestCase):
    def gradient(self, *more: Op, filled: str = "zeros") -> list[Json]:
        """Return the causes if the gradient of the picked rows is scattered into `filled`."""
        program = [
            PICKED,
            *zeros("zeros", LOGITS),
            op("state", "parameter", shape=LOGITS, number=3),
            op(
                "scattered",
                "scatter",
                filled,
                "where",
                "picked",
                shape=LOGITS,
                line="loss.py:12",
                extra=OF_ROWS,
            ),
            *more,
            dot("dw", "x", "scattered", HEAD, (0, 0), "train.py:19"),
        ]
        return found(*program, times={"logits": 400, "zeros": 100, "dw": 300})

    def test_matmul_with_the_scattered_gradient_counts_and_the_zeros_stay(self) -> None:
        (row,) = self.gradient()
        self.assertEqual(row["gain_ps"], round(700 * (1 - 76 / 512)))

    def test_gradient_that_is_added_to_an_array_is_no_array_of_zeros(self) -> None:
        (row,) = self.gradient(filled="state")
        self.assertEqual(row["gain_ps"], 341)

    def test_elements_at_other_places_of_each_row_fill_the_sum_of_rows(self) -> None:
        places, sums = array("s32", 512, 4096), array("bf16", 64, 4096)
        one_hot = [
            op("ends", "parameter", shape=array("s32", 512), number=3),
            op("index", "broadcast", "ends", shape=places, extra=packed(14, [0])),
            op("place", "iota", shape=places, extra=packed(14, [1])),
            equal("is_place", "index", "place", shape=array("pred", 512, 4096)),
            *zeros("zeros", LOGITS),
            op("one", "select", "is_place", "logits", "zeros", shape=LOGITS, line="moe.py:9"),
            op("scaled", "negate", "one", shape=LOGITS),
            dot("sums", "x", "scaled", sums, (0, 0), "moe.py:10"),
            op("kept", "negate", "sums", shape=sums),
        ]
        (row,) = found(*one_hot, times={"scaled": 300, "kept": 300})
        # 512 rows can fill as many of 4096 places.
        gain = round(300 * (1 - 1 / 4096) + 300 * (1 - 512 / 4096))
        self.assertEqual((row["source_user"], row["gain_ps"]), ("moe.py:9", gain))

    def test_parts_in_different_places_fill_the_array_together(self) -> None:
        rows = array("bf16", 128, 4096)
        pads = [
            op(f"pad.{i}", "pad", "piece", "zeros.0", shape=LOGITS, line="loss.py:12")
            for i in range(4)
        ]
        sums = [
            op(f"sum.{i}", "add", "pad.0" if i == 1 else f"sum.{i - 1}", f"pad.{i}", shape=LOGITS)
            for i in range(1, 4)
        ]
        piece = op("piece", "slice", "logits", shape=rows, line="loss.py:12")
        end = dot("dw", "x", "sum.3", HEAD, (0, 0), "train.py:19")
        times = {"logits": 400, "dw": 300}
        (row,) = found(*zeros("zeros", LOGITS), piece, *pads, *sums, end, times=times)
        self.assertEqual(row["gain_ps"], 300)
        end = dot("dw", "x", "pad.1", HEAD, (0, 0), "train.py:19")
        (row,) = found(*zeros("zeros", LOGITS), piece, *pads[:2], end, times=times)
        # Of the gradient, too, only a quarter is not zero.
        self.assertEqual(row["gain_ps"], 300 + 225)
