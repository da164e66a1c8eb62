"""Test the cause `repeated_rows`."""

from __future__ import annotations

import unittest

from tests.analysis.small_programs import Json, causes, combining, rows_of
from tests.builders.hlo_proto import Op, Shape, array, op, packed
from tests.builders.xspace import bytes_field, op as event

# At this peak, memory moves 1000 bytes per picosecond.
HBM = ("--peak-hbm-gibps", str(10**15 / 2**30))
TIME, WEIGHTS = array("f32", 2, 64), array("f32", 64, 32)
ROWS, RESULT = array("f32", 2, 400, 64), array("f32", 2, 400, 32)
OF_DOT = bytes_field(30, packed(1, [2]) + packed(2, [0]))
REPEATED = op("rows", "broadcast", "time", shape=ROWS, line="model.py:9", extra=packed(14, [0, 2]))


def dot(rows: str = "rows", shape: Shape = RESULT, extra: bytes = OF_DOT) -> Op:
    return op("dot", "dot", rows, "weights", shape=shape, line="model.py:14", extra=extra)


# 1024 rows, each of which is one of the 128 rows of a table.
LOOKED_UP = rows_of("table", "indices", array("f32", 1024, 64), "rows")
OF_MATRIX = bytes_field(30, packed(1, [1]) + packed(2, [0]))
LOWEST, ZERO = (bytes_field(8, bytes_field(8, bits)) for bits in (b"\0\0\x80\xff", bytes(4)))


def found(
    *ops: Op,
    options: tuple[str, ...] = HBM,
    also: int = 0,
    cause: str = "repeated_rows",
    **more: list[Op],
) -> list[Json]:
    """Return the rows for a program with these ops, of which `dot` takes 1 ns, and what makes
    `rows` some time more."""
    inputs = [
        op("time", "parameter", shape=TIME),
        op("weights", "parameter", shape=WEIGHTS, number=1),
        op("tokens", "parameter", shape=ROWS, number=2),
        op("table", "parameter", shape=array("f32", 128, 64), number=3),
        op("indices", "parameter", shape=array("s32", 1024), number=4),
    ]
    ran = [event("dot", "convolution fusion", also, 1000)]
    ran += [event("rows", "loop fusion", 0, also)] if also else []
    sums = {"addition": combining("add", "sum"), "largest": combining("maximum", "most")}
    program = {**sums, **more, "main": [*inputs, *ops]}
    rows = causes(program, ran, *options)
    return [row for row in rows if row["cause"] == cause]


class RepeatedRows(unittest.TestCase):
    def test_rows_that_are_broadcast_before_a_matmul_are_found(self) -> None:
        (row,) = found(REPEATED, dot())
        self.assertEqual((row["source_user"], row["confidence"]), ("model.py:14", "seen"))
        self.assertIn("rows that model.py:9 repeats: at most 0.2 % of them differ", row["says"])
        # Two rows take as long as 128 of the 800, which is longer than
        # reading and writing what is left.
        self.assertEqual(row["gain_ps"], 1000 * (800 - 128) // 800)

    def test_one_of_several_matmuls_of_an_op_keeps_its_part(self) -> None:
        def fused(second: str) -> list[Json]:
            inside = [
                op("a", "parameter", shape=ROWS),
                op("b", "parameter", shape=ROWS, number=1),
                op("w", "parameter", shape=WEIGHTS, number=2),
                op("one", "dot", "a", "w", shape=RESULT, extra=OF_DOT, line="model.py:20"),
                op("two", "dot", "b", "w", shape=RESULT, extra=OF_DOT, line="model.py:21"),
                op("both", "add", "one", "two", shape=RESULT),
            ]
            end = op("dot", "fusion", "rows", second, "weights", shape=RESULT, calls=["fused"])
            return found(REPEATED, end, fused=inside, options=())

        self.assertEqual(fused("rows")[0]["gain_ps"], 840)
        (row,) = fused("tokens")
        self.assertEqual((row["gain_ps"], row["source_user"]), (420, "model.py:20"))

    def test_numbers_that_are_equal_for_all_rows_repeat_in_each_way(self) -> None:
        joined = op("joined", "reshape", "rows", shape=array("f32", 800, 64))
        bias = op("biases", "broadcast", "bias", shape=array("f32", 800, 64), extra=packed(14, [1]))
        both = op("both", "add", "joined", "biases", shape=array("f32", 800, 64))
        given = op("bias", "parameter", shape=array("f32", 64), number=5)
        end = dot("both", array("f32", 800, 32), OF_MATRIX)
        (row,) = found(REPEATED, joined, given, bias, both, end)
        self.assertEqual(row["gain_ps"], 840)

    def test_part_of_each_row_repeats_but_a_part_of_the_rows_has_other_ones(self) -> None:
        def half(*sizes: int) -> list[Json]:
            part = op(
                "half", "slice", "rows", shape=array("f32", *sizes), extra=bytes_field(17, b"")
            )
            few = op("few", "parameter", shape=array("f32", sizes[2], 32), number=5)
            made = array("f32", *sizes[:2], 32)
            return found(
                REPEATED, part, few, op("dot", "dot", "half", "few", shape=made, extra=OF_DOT)
            )

        self.assertEqual(half(2, 400, 32)[0]["gain_ps"], 840)
        self.assertEqual(half(2, 200, 64), [])

    def test_op_that_repeats_goes_unless_a_matmul_needs_repeated_results(self) -> None:
        (row,) = found(REPEATED, dot(), also=400)
        self.assertEqual(row["gain_ps"], 840 + 399)
        self.assertEqual(found(REPEATED, dot(), also=400, cause="broadcast_in_memory"), [])
        square = op("square", "parameter", shape=array("f32", 400, 32, 32), number=5)
        of_each = packed(1, [2]) + packed(2, [1]) + packed(3, [1]) + packed(4, [0])
        more = op("more", "dot", "dot", "square", shape=array("f32", 400, 2, 32),
                  extra=bytes_field(30, of_each))  # fmt: skip
        (row,) = found(REPEATED, square, dot(), more, also=400)
        # The results have half as many elements.
        self.assertEqual(row["gain_ps"], 840 + 200)
        inside = [
            op("a", "parameter", shape=ROWS),
            op("w", "parameter", shape=WEIGHTS, number=1),
            op("b", "parameter", shape=RESULT, number=2),
            op("product", "dot", "a", "w", shape=RESULT, extra=OF_DOT),
            op("sum", "add", "product", "b", shape=RESULT),
        ]
        other = op("other", "parameter", shape=RESULT, number=6)
        added = op("dot", "fusion", "rows", "weights", "other", shape=RESULT, calls=["fused"])
        (row,) = found(REPEATED, square, other, added, more, also=400, fused=inside)
        # Results to which others are added do not repeat: the op moves these, and the weights.
        self.assertEqual(row["gain_ps"], 1000 - 214 + 399)

    def test_rows_that_differ_in_part_are_all_needed(self) -> None:
        self.assertEqual(found(dot("tokens")), [])
        mixed = op("mixed", "add", "rows", "tokens", shape=ROWS)
        self.assertEqual(found(REPEATED, mixed, dot("mixed")), [])
        mixed = op("mixed", "add", "tokens", "rows", shape=ROWS)
        self.assertEqual(found(REPEATED, mixed, dot("mixed")), [])

    def test_dimension_that_is_summed_needs_only_the_sums_of_the_other_operand(self) -> None:
        # The operand repeats along the dimension of 400, of which 128 take as long as one.
        weights = op("columns", "parameter", shape=array("f32", 400, 32), number=3)
        summed = bytes_field(30, packed(1, [1]) + packed(2, [0]))
        by = op("dot", "dot", "rows", "columns", shape=array("f32", 2, 64, 32), extra=summed)
        self.assertEqual(found(REPEATED, weights, by)[0]["gain_ps"], 1000 * (400 - 128) // 400)

    def test_rows_with_a_matrix_for_each_are_all_needed(self) -> None:
        # Each of the 400 rows is multiplied with another matrix.
        weights = op("columns", "parameter", shape=array("f32", 400, 64, 32), number=3)
        of_each = packed(1, [2]) + packed(2, [1]) + packed(3, [1]) + packed(4, [0])
        by = op(
            "dot",
            "dot",
            "rows",
            "columns",
            shape=array("f32", 400, 2, 32),
            extra=bytes_field(30, of_each),
        )
        self.assertEqual(found(REPEATED, weights, by), [])

    def test_joined_arrays_repeat_in_part(self) -> None:
        # Of 96 columns, 64 are repeated. The compiler can join arrays by their maximum.
        both, few = array("f32", 2, 400, 96), array("f32", 2, 400, 32)
        other = op("other", "parameter", shape=few, number=5)
        lowest = op("lowest", "constant", shape=array("f32"), extra=LOWEST)
        pads = [op(f"pad.{of}", "pad", of, "lowest", shape=both) for of in ("rows", "other")]
        largest = op("both", "maximum", "pad.rows", "pad.other", shape=both)
        joined = op("both", "concatenate", "rows", "other", shape=both)
        weights = op("weights.2", "parameter", shape=array("f32", 96, 32), number=6)
        end = op("dot", "dot", "both", "weights.2", shape=RESULT, line="a.py:1", extra=OF_DOT)
        left = (64 / 400 + 32) / 96
        for ops in ([joined], [lowest, *pads, largest]):
            (row,) = found(REPEATED, other, *ops, weights, end)
            self.assertEqual(row["gain_ps"], round(1000 * (1 - left)))
        # Pads with zeros join nothing, and neither does a maximum of other arrays.
        zero = op("lowest", "constant", shape=array("f32"), extra=ZERO)
        self.assertEqual(found(REPEATED, other, zero, *pads, largest, weights, end), [])
        unlike = op("both", "maximum", "tokens", "tokens", shape=both)
        self.assertEqual(found(unlike, weights, end), [])
        unlike = op("both", "concatenate", "tokens", "other", shape=both)
        self.assertEqual(found(other, unlike, weights, end), [])
        # The result of the matmul does not repeat.
        first = op("first", "dot", "both", "weights.2", shape=RESULT, extra=OF_DOT)
        square = op("square", "parameter", shape=array("f32", 32, 32), number=7)
        last = op("dot", "dot", "first", "square", shape=RESULT, extra=OF_DOT)
        self.assertEqual(found(REPEATED, other, joined, weights, first, square, last), [])

    def test_array_that_is_concatenated_with_itself_repeats(self) -> None:
        half, whole = array("f32", 1, 400, 64), array("f32", 2, 400, 64)
        first, second = (op(f"x.{i}", "parameter", shape=half, number=5 + i) for i in (0, 1))

        def joined(*of: str) -> list[Json]:
            return found(first, second, op("both", "concatenate", *of, shape=whole), dot("both"))

        self.assertEqual(joined("x.0", "x.0")[0]["gain_ps"], 500)
        self.assertEqual(joined("x.0", "x.1"), [])

    def test_rows_that_are_looked_up_repeatedly_are_found(self) -> None:
        end = dot("rows", array("f32", 1024, 32), OF_MATRIX)
        (row,) = found(LOOKED_UP, end)
        # Eight times fewer rows are read, besides 8192 bytes of weights, but the results of all are
        # written, which takes longer than to multiply the fewer rows.
        left = (128 * 64 * 4 + 8192 + 1024 * 32 * 4) / 1000
        self.assertEqual(row["gain_ps"], round(1000 - left))
        # The lookup brings 32 numbers for each row, not 64.
        (row,) = found(LOOKED_UP, end, also=400)
        self.assertEqual(row["gain_ps"], round(1000 - left) + 200)
        # Another op needs the rows, too, so the results are looked up besides.
        other = op("other", "negate", "rows", shape=array("f32", 1024, 64))
        (row,) = found(LOOKED_UP, other, end, also=400)
        self.assertEqual(row["gain_ps"], round(1000 - left) - 200)

    def test_rows_of_a_large_table_whose_numbers_are_repeated_are_found(self) -> None:
        def rows(numbers: str) -> list[Json]:
            ids, many = array("s32", 1024), array("f32", 1024, 64)
            mask = array("pred", 1024, 64)
            return found(
                op("large", "parameter", shape=array("f32", 4096, 64), number=5),
                op("few", "parameter", shape=array("s32", 8), number=6),
                op("many", "broadcast", "few", shape=array("s32", 128, 8), extra=packed(14, [1])),
                op("flat", "reshape", "many", shape=ids),
                op("checked", "custom-call", "flat", shape=ids),
                op("zero", "constant", shape=array("f32")),
                op("zeros", "broadcast", "zero", shape=many),
                op("valid", "not", numbers, shape=array("pred", 1024)),
                op("mask", "broadcast", "valid", shape=mask, extra=packed(14, [0])),
                rows_of("large", "checked", many, "looked"),
                op("rows", "select", "mask", "looked", "zeros", shape=many),
                dot("rows", array("f32", 1024, 32), OF_MATRIX),
            )

        (row,) = rows("flat")
        self.assertIn("at most 0.8 % of them differ", row["says"])
        # Other rows are replaced by zeros.
        self.assertEqual(rows("indices"), [])

    def test_lookups_that_cannot_be_moved_are_not_found(self) -> None:
        end = dot("rows", array("f32", 1024, 32), OF_MATRIX)
        # A table that is larger than what is looked up in it.
        few = rows_of("table", "indices", array("f32", 64, 64), "rows")
        self.assertEqual(found(few, dot("rows", array("f32", 64, 32), OF_MATRIX)), [])
        # Writing the results takes nearly as long as the matmul.
        slow = ("--peak-hbm-gibps", str(132 * 10**12 / 2**30))
        self.assertEqual(found(LOOKED_UP, end, options=slow), [])
        # Devices add up different rows.
        total = op("sums", "all-reduce", "rows", shape=array("f32", 1024, 64))
        self.assertEqual(
            found(LOOKED_UP, total, dot("sums", array("f32", 1024, 32), OF_MATRIX)), []
        )
        # Each row has its own matrix, and a sum of two lookups has other rows.
        each = op("each", "parameter", shape=array("f32", 1024, 64, 32), number=5)
        of_each = packed(1, [1]) + packed(2, [1]) + packed(3, [0]) + packed(4, [0])
        by = op(
            "dot", "dot", "rows", "each", shape=array("f32", 1024, 32),
            extra=bytes_field(30, of_each),
        )  # fmt: skip
        self.assertEqual(found(LOOKED_UP, each, by), [])
        more = op("others", "parameter", shape=array("s32", 1024), number=5)
        second = rows_of("table", "others", array("f32", 1024, 64), "second")
        both = op("both", "add", "rows", "second", shape=array("f32", 1024, 64))
        last = dot("both", array("f32", 1024, 32), OF_MATRIX)
        self.assertEqual(found(LOOKED_UP, more, second, both, last), [])

    def test_matrix_that_is_looked_up_for_each_row_is_found(self) -> None:
        def tables(n: int, how: str = "addition", over: int = 2) -> list[Json]:
            of_each = array("bf16", 1024, 16, 64)
            sums = array("bf16", *(size for i, size in enumerate(of_each.dims) if i != over))
            numbers = bytes_field(33, packed(1, [1, 2])) + packed(34, [1, 16, 64])
            return found(
                op("small", "parameter", shape=array("bf16", n, 16, 64), number=5),
                op("x", "parameter", shape=array("bf16", 1024, 64), number=6),
                op("zero", "constant", shape=array("bf16")),
                op("rows", "gather", "small", "indices", shape=of_each, extra=numbers),
                op("many", "broadcast", "x", shape=of_each, extra=packed(14, [0, 2])),
                op("product", "multiply", "rows", "many", shape=of_each),
                op("dot", "reduce", "product", "zero", shape=sums, extra=packed(14, [over]),
                   calls=[how], line="lora.py:15"),
                options=("--peak-tflops-bf16", "1e5"),
            )  # fmt: skip

        (row,) = tables(8)
        self.assertEqual((row["source_user"], row["confidence"]), ("lora.py:15", "likely"))
        self.assertIn("at most 0.8 % of them differ", row["says"])
        # 16.8 million operations, at a hundred thousand in a picosecond.
        self.assertEqual(row["gain_ps"], 1000 - 168)
        # The matmul of all rows with all matrices would take longer, or is none, or adds them up.
        self.assertEqual(tables(900), [])
        self.assertEqual(tables(8, "largest"), [])
        self.assertEqual(tables(8, over=0), [])

    def test_damaged_matmul_is_read(self) -> None:
        # Its dimensions do not exist, or they have no elements.
        for shape in (array("f32", 2), array("f32", 2, 400, 64, 0)):
            found(REPEATED, dot(shape=shape))
        empty = op(
            "rows", "broadcast", "time", shape=array("f32", 2, 0, 64), extra=packed(14, [0, 2])
        )
        self.assertEqual(found(empty, dot(shape=array("f32", 2, 0, 32))), [])

    def test_long_chain_of_ops_is_read(self) -> None:
        chain = [op(f"x{i}", "negate", f"x{i - 1}", shape=ROWS) for i in range(1, 2000)]
        first = op("x0", "broadcast", "time", shape=ROWS, extra=packed(14, [0, 2]))
        self.assertEqual(found(first, *reversed(chain), dot("x1999")), [])

    def test_few_copies_take_no_longer_than_one(self) -> None:
        few = array("f32", 2, 50, 64)
        rows = op("rows", "broadcast", "time", shape=few, extra=packed(14, [0, 2]))
        self.assertEqual(found(rows, dot(shape=array("f32", 2, 50, 32))), [])
