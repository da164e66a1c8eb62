"""Test the cause `sum_too_late`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import FAST, OF_ROWS, Json, causes, combining, rows_of, take
from tests.builders.hlo_proto import Op, array, listed_groups, op, packed, tuple_of
from tests.builders.xspace import bytes_field, op as event

FOUR = listed_groups((0, 1, 2, 3))
# The results of 8 experts for each of 64 tokens, and their sums.
ALL, SUMS, WEIGHTS = array("f32", 64, 8, 512), array("f32", 64, 512), array("f32", 64, 8)
OVER_EXPERTS = packed(14, [1])
DOT = bytes_field(30, packed(1, [2]) + packed(2, [0]))


def total(of: str, name: str = "total", calls: str = "addition") -> Op:
    """Return a sum over the experts."""
    return op(
        name, "reduce", of, "zero", shape=SUMS, extra=OVER_EXPERTS, calls=[calls], line="moe.py:61"
    )


def found(*ops: Op, collective: str = "all-reduce", addition: str = "add") -> list[Json]:
    """Return the rows for a program that exchanges the results of all experts in 200 ps."""
    main = [
        op("x", "parameter", shape=ALL),
        op("weights", "parameter", shape=WEIGHTS, number=1),
        op("device", "partition-id", shape=array("u32")),
        op("zero", "constant", shape=array("f32")),
        *ops,
    ]
    if not any(each.instruction.name == "moved" for each in ops):
        main.insert(4, op("moved", collective, "x", shape=ALL, line="moe.py:60", extra=FOUR))
    ran = [event("moved", collective, 100, 200)]
    sums = {"addition": combining(addition), "largest": combining("maximum", "most")}
    rows = causes({**sums, "main": main}, ran, devices=(1, 4))
    return [row for row in rows if row["cause"] == "sum_too_late"]


def multiplied(weights: tuple[int, ...], *, also: bool = False, dims: bytes = b"") -> list[Json]:
    """Return the rows for a matmul of 64 times 512 rows, whose results are multiplied with an array
    that repeats along the other dimensions than `weights`, and added up over the 512."""
    made, sums = array("f32", 64, 512, 1024), array("f32", 64, 1024)
    few = array("f32", *(made.dims[i] for i in weights))
    fused = [
        op("rows", "parameter", shape=array("f32", 64, 512, 16)),
        op("weight", "parameter", shape=array("f32", 16, 1024), number=1),
        op("few", "parameter", shape=few, number=2),
        op("zero", "constant", shape=array("f32")),
        op("dot", "dot", "rows", "weight", shape=made, line="pool.py:36", extra=DOT),
        op("many", "broadcast", "few", shape=made, extra=packed(14, weights)),
        op("product", "multiply", "dot", "many", shape=made),
        op("sum", "reduce", "product", "zero", shape=sums, extra=packed(14, [1]),
           calls=["addition"], line="pool.py:37"),
        op("max", "reduce", "dot", "zero", shape=sums, extra=packed(14, [1])),
        op("both", "tuple", "sum", "max", shape=tuple_of(sums, sums)),
    ]  # fmt: skip
    if not also:
        fused = fused[:-2]
    main = [
        op("x", "parameter", shape=array("f32", 64, 512, 16)),
        op("w", "parameter", shape=array("f32", 16, 1024), number=1),
        op("weights", "parameter", shape=few, number=2),
        op("pooled", "fusion", "x", "w", "weights", calls=["fused"], line="pool.py:36",
           shape=tuple_of(sums, sums) if also else sums),
    ]  # fmt: skip
    ran = [event("pooled", "convolution fusion", 100, 2000, flops=10**9)]
    called = {"addition": combining("add"), "fused": fused}
    rows = causes({**called, "main": main}, ran, *FAST)
    return [row for row in rows if row["cause"] == "sum_too_late"]


class Matmuls(unittest.TestCase):
    def test_rows_can_be_summed_before_the_matmul(self) -> None:
        (row,) = multiplied((0, 1))
        self.assertEqual((row["source_user"], row["confidence"]), ("pool.py:37", "likely"))
        self.assertEqual(row["gain_ps"], 2000 * 511 // 512)
        self.assertIn("over 512 elements, after 1 matmul at pool.py:36 computed", row["says"])

    def test_pixels_can_be_pooled_before_the_matmul(self) -> None:
        def pooled(opcode: str) -> list[Json]:
            pixels, made = array("f32", 64, 56, 56, 16), array("f32", 64, 56, 56, 1024)
            of_three = bytes_field(30, packed(1, [3]) + packed(2, [0]))
            main = [
                op("x", "parameter", shape=pixels),
                op("w", "parameter", shape=array("f32", 16, 1024), number=1),
                op("zero", "constant", shape=array("f32")),
                op("dot", "dot", "x", "w", shape=made, line="pool.py:21", extra=of_three),
                op("pool", "reduce-window", "dot", "zero", shape=array("f32", 64, 28, 28, 1024),
                   calls=["combining"], line="pool.py:22"),
            ]  # fmt: skip
            program = {"combining": combining(opcode), "main": main}
            n_bytes = 4 * 64 * 1024 * (56**2 + 28**2)
            ran = [
                event("dot", "convolution fusion", 0, 2000),
                event("pool", "loop fusion", 2000, 1200, bytes_accessed=n_bytes),
            ]
            # A million bytes take a picosecond.
            hbm = ("--peak-hbm-gibps", str(10**18 / 2**30))
            return causes(program, ran, *hbm, duration=4000)

        (row,) = pooled("add")
        self.assertEqual((row["cause"], row["source_user"]), ("sum_too_late", "pool.py:22"))
        # A quarter of the products, of which the pool reads a quarter and writes as many.
        self.assertEqual(row["gain_ps"], 1500 + 1200 * 3 // 5)
        self.assertEqual(pooled("maximum"), [])

    def test_rows_can_be_added_up_by_a_scatter_before_the_matmul(self) -> None:
        def added(n_sums: int, opcode: str = "add", width: int = 16) -> list[Json]:
            many, sums = array("f32", 1024, 64), array("f32", n_sums, 64)
            main = [
                op("x", "parameter", shape=array("f32", 1024, width)),
                op("w", "parameter", shape=array("f32", width, 64), number=1),
                op("to", "parameter", shape=array("s32", 1024), number=2),
                op("sums", "parameter", shape=sums, number=3),
                op("dot", "dot", "x", "w", shape=many, line="edges.py:8",
                   extra=bytes_field(30, packed(1, [1]) + packed(2, [0]))),
                op("out", "scatter", "sums", "to", "dot", shape=sums, line="edges.py:9",
                   calls=["combining"], extra=OF_ROWS),
            ]  # fmt: skip
            program = {"combining": combining(opcode), "main": main}
            ran = [event("dot", "convolution fusion", 0, 2000)]
            return causes(program, ran, *FAST, duration=4000)

        (row,) = added(64)
        self.assertEqual((row["source_user"], row["gain_ps"]), ("edges.py:9", 2000 * 15 // 16))
        self.assertEqual(added(1024), [])
        self.assertEqual(added(64, "maximum"), [])
        # Adding up wider rows takes longer.
        self.assertEqual(added(64, width=128), [])

    def test_layer_can_make_few_channels_before_rows_are_looked_up_for_edges(self) -> None:
        def found(n_channels: int, *, weights: bool = False) -> list[Json]:
            nodes, edges = array("f32", 64, 512), array("f32", 1024, 512)
            of_rows = bytes_field(30, packed(1, [1]) + packed(2, [0]))
            main = [
                op("x", "parameter", shape=nodes),
                op("w", "parameter", shape=array("f32", 512, n_channels), number=1),
                op("ends", "parameter", shape=array("s32", 1024), number=2),
                op("each", "parameter", shape=edges, number=3),
                op("zero", "constant", shape=array("f32")),
                op("zeros", "broadcast", "zero", shape=nodes),
                op("half", "broadcast", "zero", shape=edges),
                rows_of("x", "ends", edges, "rows"),
                op("sent", "multiply", "rows", "each" if weights else "half", shape=edges),
                op("sums", "scatter", "zeros", "ends", "sent",
                   shape=nodes, calls=["addition"], extra=OF_ROWS),
                op("out", "dot", "sums", "w", shape=array("f32", 64, n_channels),
                   line="gcn.py:9", extra=of_rows),
            ]  # fmt: skip
            ran = [event("rows", "gather", 0, 1600), event("sums", "scatter", 1600, 1600)]
            program = {"addition": combining("add"), "main": main}
            rows = causes(program, ran, *FAST, duration=4000)
            return [row for row in rows if row["cause"] == "sum_too_late"]

        (row,) = found(64)
        self.assertEqual((row["source_user"], row["gain_ps"]), ("gcn.py:9", 2 * 1400))
        self.assertEqual(found(512), [])
        self.assertEqual(found(64, weights=True), [])

    def test_layer_can_make_few_channels_before_an_interpolation_makes_many_pixels(self) -> None:
        def found(n_channels: int, *more: Op) -> list[Json]:
            pixels, many = array("f32", 32, 512), array("f32", 1024, 512)
            of_rows = bytes_field(30, packed(1, [1]) + packed(2, [0]))
            main = [
                op("x", "parameter", shape=pixels),
                op("between", "parameter", shape=array("f32", 1024, 32), number=1),
                op("w", "parameter", shape=array("f32", 512, n_channels), number=2),
                op("dot", "dot", "between", "x", shape=many, line="up.py:8", extra=of_rows),
                *more,
                op("out", "dot", more[-1].name if more else "dot", "w",
                   shape=array("f32", 1024, n_channels), line="up.py:9", extra=of_rows),
            ]  # fmt: skip
            ran = [event("dot", "convolution fusion", 0, 1600), event("turned", "copy", 1600, 800)]
            return causes({"main": main}, ran, *FAST, duration=4000)

        (row,) = found(32)
        self.assertEqual((row["source_user"], row["gain_ps"]), ("up.py:9", 1500))
        turned = op("turned", "copy", "dot", shape=array("f32", 1024, 512))
        (row, *_) = found(32, turned)
        self.assertEqual((row["cause"], row["gain_ps"]), ("sum_too_late", 1500 + 750))
        self.assertEqual(found(512), [])
        self.assertEqual(found(32, op("not", "tanh", "dot", shape=array("f32", 1024, 512))), [])

    def test_product_of_three_is_found_if_the_other_order_takes_less(self) -> None:
        def gains(between: str = "convert", n_columns: int = 4096) -> list[int]:
            of_rows = bytes_field(30, packed(1, [1]) + packed(2, [0]))
            shapes = {"x": (512, 1024), "a": (1024, 16), "b": (16, n_columns)}
            taken, given = (
                [
                    op(name + place, "parameter", shape=array("f32", *dims), number=i)
                    for i, (name, dims) in enumerate(shapes.items())
                ]
                for place in (".in", "")
            )
            product, end = array("f32", 1024, n_columns), array("f32", 512, n_columns)
            inner = [
                *taken,
                op("ab", "dot", "a.in", "b.in", shape=product, line="lora.py:21", extra=of_rows),
                op("w", between, "ab", shape=product),
                op("y", "dot", "x.in", "w", shape=end, line="lora.py:22", extra=of_rows),
            ]
            out = op("out", "fusion", "x", "a", "b", shape=end, calls=["inner"])
            ran = [event("out", "convolution fusion", 0, 3200)]
            rows = causes({"inner": inner, "main": [*given, out]}, ran, *FAST, duration=4000)
            for row in rows:
                self.assertEqual((row["cause"], row["source_user"]), ("sum_too_late", "lora.py:22"))
                self.assertIn("after 1 matmul at lora.py:21 computed", row["says"])
            return [row["gain_ps"] for row in rows]

        # With 16 columns, the matrix unit takes as long as with 128 in the place of 4096 and 1024.
        left = 128 / 4096 + 128 / 1024
        self.assertEqual(gains(), [round(3200 * 512 / (512 + 16) * (1 - left))])
        self.assertEqual(gains(n_columns=128) + gains(n_columns=0), [])
        self.assertEqual(gains("tanh"), [])

    def test_batch_that_is_summed_makes_short_sums_of_a_matmul_longer(self) -> None:
        def gains(n_terms: int) -> list[int]:
            each, sums = array("f32", 256, 512, 256), array("f32", 512, 256)
            of_batch = packed(1, [1]) + packed(2, [1]) + packed(3, [0]) + packed(4, [0])
            rows, grads = array("f32", 256, n_terms, 512), array("f32", 256, n_terms, 256)
            inner = [
                op("x", "parameter", shape=rows),
                op("g", "parameter", shape=grads, number=1),
                op("zero", "constant", shape=array("f32")),
                op("dw", "dot", "x", "g", shape=each, extra=bytes_field(30, of_batch)),
                op("all", "reduce", "dw", "zero", shape=sums, extra=packed(14, [0]), calls=["add"]),
            ]
            main = [
                op("rows", "parameter", shape=rows),
                op("grads", "parameter", shape=grads, number=1),
                op("out", "fusion", "rows", "grads", shape=sums, calls=["inner"]),
            ]
            program = {"add": combining("add"), "inner": inner, "main": main}
            ran = [event("out", "convolution fusion", 0, 3200)]
            found = causes(program, ran, *FAST, duration=4000)
            return [row["gain_ps"] for row in found if row["cause"] == "sum_too_late"]

        self.assertEqual((gains(32), gains(128)), ([2400], []))

    def test_weights_that_differ_between_rows_of_the_other_operand_stay(self) -> None:
        self.assertEqual(multiplied((0, 1, 2)), [])
        self.assertEqual(multiplied((1, 2)), [])

    def test_results_of_which_the_largest_is_needed_too_stay(self) -> None:
        self.assertEqual(multiplied((0, 1), also=True), [])


class SumTooLate(unittest.TestCase):
    def test_two_sums_over_devices_that_are_added_are_one(self) -> None:
        def rows(second: int, opcode: str) -> list[Json]:
            main = [
                op("x", "parameter", shape=SUMS),
                op("y", "parameter", shape=SUMS, number=1),
                op("sums", "all-reduce", "x", "y", shape=tuple_of(SUMS, SUMS), extra=FOUR),
                take("first", "sums", 0, SUMS),
                take("second", "sums", second, SUMS),
                op("both", opcode, "first", "second", shape=SUMS, line="moe.py:30"),
            ]
            return causes({"main": main}, [event("sums", "all-reduce", 0, 200)])

        (row,) = rows(1, "add")
        self.assertEqual((row["cause"], row["source_user"]), ("sum_too_late", "moe.py:30"))
        self.assertEqual((row["gain_ps"], row["confidence"]), (100, "seen"))
        self.assertEqual(rows(0, "add"), [])
        self.assertEqual(rows(1, "multiply"), [])

    def test_sum_after_an_all_reduce_is_found_at_the_line_that_sums(self) -> None:
        (row,) = found(total("moved"))
        self.assertEqual((row["source_user"], row["confidence"]), ("moe.py:61", "seen"))
        self.assertEqual(row["gain_ps"], 200 * 7 // 8)
        self.assertIn("over 8 elements, after 1 all-reduce at moe.py:60", row["says"])

    def test_sum_is_found_if_each_device_multiplies_the_sums_with_its_own_weights(self) -> None:
        own = array("f32", 512, 64)
        ops = [
            op("all", "parameter", shape=array("f32", 2048, 64), number=2),
            op("own", "dynamic-slice", "all", "device", "device", shape=own),
            op("out", "dot", "total", "own", shape=array("f32", 64, 64),
               extra=bytes_field(30, packed(1, [1]) + packed(2, [0]))),
        ]  # fmt: skip
        (row,) = found(total("moved"), *ops)
        self.assertEqual((row["source_user"], row["gain_ps"]), ("moe.py:61", 175))
        self.assertIn("over 8 elements", row["says"])

    def test_linear_ops_and_gathers_along_other_dimensions_are_passed(self) -> None:
        half = op("half", "negate", "moved", shape=ALL)
        more = op("more", "add", "half", "x", shape=ALL)
        (row,) = found(half, more, total("more"), collective="all-gather")
        self.assertEqual(row["gain_ps"], 175)

    def test_sum_over_the_dimension_that_is_gathered_is_an_all_reduce(self) -> None:
        def rows(weights: str, law: str = "addition") -> list[Json]:
            part, own = array("f32", 64, 2, 512), array("f32", 8)
            return found(
                op("part", "parameter", shape=part, number=2),
                op("own", "parameter", shape=array("f32", 32), number=3),
                op("first", "dynamic-slice", "own", "device", shape=own, extra=packed(19, [8])),
                op("few", "parameter", shape=array("f32", 2), number=4),
                op("all", "all-gather", "few", shape=own, extra=FOUR),
                op("moved", "all-gather", "part", shape=ALL, line="moe.py:60", extra=FOUR),
                op("many", "broadcast", weights, shape=ALL, extra=packed(14, [1])),
                op("product", "multiply", "moved", "many", shape=ALL),
                total("product", calls=law), collective="all-gather",
            )  # fmt: skip

        (row,) = rows("all")
        # Each of four devices has sums, which are an eighth of the array.
        self.assertEqual((row["source_user"], row["gain_ps"]), ("moe.py:61", 100))
        self.assertEqual(rows("first"), [])
        # The largest products are found in the same way.
        (row,) = rows("all", "largest")
        self.assertIn("moe.py:61 reduces f32[64,8,512] to 128.0 KiB", row["says"])

    def test_matmul_of_gathered_rows_is_done_on_each_device_first(self) -> None:
        def rows(groups: bytes) -> list[Json]:
            # The weights are equal on devices of a pair.
            made = array("f32", 64, 8, 8)
            main = [
                op("part", "parameter", shape=array("f32", 64, 8, 256), number=2),
                op("half", "parameter", shape=array("f32", 256, 8), number=3),
                op("w", "all-gather", "half", shape=array("f32", 512, 8),
                   extra=listed_groups((0, 1), (2, 3))),
                op("moved", "all-gather", "part", shape=ALL, line="moe.py:60", extra=groups),
                op("out", "dot", "moved", "w", shape=made, line="moe.py:61", extra=DOT),
            ]  # fmt: skip
            return found(*main, collective="all-gather")

        (row,) = rows(listed_groups((0, 1), (2, 3)))
        self.assertIn("sums f32[64,8,512] to 16.0 KiB, after 1 all-gather", row["says"])
        self.assertEqual(rows(listed_groups((0, 2), (1, 3))), [])

    def test_largest_few_are_taken_on_each_device_first(self) -> None:
        few, ids = array("f32", 64, 16), array("s32", 64, 16)
        logits = array("f32", 64, 4096)
        main = [
            op("part", "parameter", shape=array("f32", 64, 1024)),
            op("moved", "all-gather", "part", shape=logits, line="sample.py:32", extra=FOUR),
            op("top", "custom-call", "moved", shape=tuple_of(few, ids), target="TopK",
               line="sample.py:33"),
        ]  # fmt: skip
        ran = [event("moved", "all-gather", 0, 640), event("top", "custom-call", 640, 200)]
        (row,) = causes({"main": main}, ran)
        self.assertEqual((row["cause"], row["source_user"]), ("sum_too_late", "sample.py:33"))
        # Each of four devices sends 16 of 1024 with their places, and looks for them in a quarter.
        self.assertEqual(row["gain_ps"], 620 + 150)

    def test_greatest_element_is_no_sum(self) -> None:
        self.assertEqual(found(total("moved"), addition="maximum"), [])

    def test_greatest_element_on_all_devices_is_no_sum_of_devices(self) -> None:
        def rows(combine: str) -> list[Json]:
            main = [
                op("x", "parameter", shape=ALL),
                op("zero", "constant", shape=array("f32")),
                op("moved", "all-reduce", "x", shape=ALL, extra=FOUR, calls=["combine"]),
                total("moved"),
            ]
            called = {"addition": combining("add"), "combine": combining(combine, "devices")}
            return causes({**called, "main": main}, [event("moved", "all-reduce", 100, 200)])

        self.assertEqual([row["cause"] for row in rows("add")], ["sum_too_late"])
        self.assertEqual(rows("maximum"), [])

    def test_sum_of_a_function_that_is_not_linear_is_not_reported(self) -> None:
        self.assertEqual(found(op("e", "exponential", "moved", shape=ALL), total("e")), [])
        squares = op("squares", "multiply", "moved", "moved", shape=ALL)
        self.assertEqual(found(squares, total("squares")), [])
        twice = op("twice", "add", "moved", "moved", shape=ALL)
        product = op("squares", "multiply", "moved", "twice", shape=ALL)
        self.assertEqual(found(twice, product, total("squares")), [])

    def test_array_that_is_also_needed_whole_is_not_reported(self) -> None:
        self.assertEqual(found(total("moved"), op("out", "tanh", "moved", shape=ALL)), [])

    def test_two_sums_over_different_dimensions_need_the_whole(self) -> None:
        over_tokens = op(
            "other",
            "reduce",
            "moved",
            "zero",
            shape=array("f32", 8, 512),
            extra=packed(14, [0]),
            calls=["addition"],
        )
        self.assertEqual(found(total("moved"), over_tokens), [])

    def test_weights_must_be_the_same_on_all_devices(self) -> None:
        spread = op("spread", "broadcast", "weights", shape=ALL, extra=packed(14, [0, 1]))
        # The sharding of the weights is unknown, so each device can have others.
        product = op("weighted", "multiply", "moved", "spread", shape=ALL)
        self.assertEqual(found(spread, product, total("weighted")), [])
        gathered = op("same", "all-reduce", "spread", shape=ALL, extra=FOUR)
        product = op("weighted", "multiply", "moved", "same", shape=ALL)
        (row,) = found(spread, gathered, product, total("weighted"))
        self.assertEqual(row["gain_ps"], 175)

    def test_matmul_with_weights_is_a_sum_if_it_makes_less(self) -> None:
        def rows(result: tuple[int, ...]) -> list[Json]:
            columns = array("f32", *result[1:], 64, 8)
            same = op("same", "all-reduce", "given", shape=columns, extra=FOUR)
            given = op("given", "parameter", shape=columns, number=2)
            batches = packed(1, [1]) + packed(2, [len(columns.dims) - 1])
            batches += packed(3, [0]) + packed(4, [len(columns.dims) - 2])
            extra = bytes_field(30, batches)
            shape = array("f32", 64, 512, *result[1:])
            made = op("y", "dot", "moved", "same", shape=shape, extra=extra, line="moe.py:61")
            return found(given, same, made)

        (row,) = rows((1,))
        self.assertEqual(row["gain_ps"], 175)
        self.assertIn("sums f32[64,8,512] to 128.0 KiB, after 1 all-reduce", row["says"])
        # Eight sums of eight elements are no less.
        self.assertEqual(rows((1, 8)), [])
