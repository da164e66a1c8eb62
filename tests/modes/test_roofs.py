"""Test the roof of an op: the flops and bytes that it is compared with, and that all modes use the
same roof."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders import hlo_proto
from tests.builders.hlo_proto import Shape, array, metadata_plane, packed, tuple_of
from tests.builders.xspace import (
    Space,
    bytes_field,
    encode,
    int_field,
    memory_access_breakdown,
    op as event,
    tpu_plane,
)
from tests.harness import Json, answer

Body = list[hlo_proto.Op]

MIB = 2**20
# A flop takes 1 ps, and a MiB of HBM 1000 ps.
PEAKS = ("--peak-tflops-bf16", "1", "--peak-hbm-gibps", str(10**9 / 1024))
DURATION = 10**9


def parameter(name: str, number: int, *dims: int, dtype: str = "bf16") -> hlo_proto.Op:
    return hlo_proto.op(name, "parameter", number=number, shape=array(dtype, *dims))


def of(name: str, opcode: str, *operands: str, shape: Shape, extra: bytes = b"") -> hlo_proto.Op:
    return hlo_proto.op(name, opcode, *operands, shape=shape, extra=extra)


def step_of(
    body: Body,
    n_bytes: int,
    flops: int | None = None,
    *,
    result: Shape | None = None,
    more: dict[str, Body] | None = None,
    n_accessed: int | None = None,
    category: str = "loop fusion",
) -> bytes:
    """Return a trace of a fusion that takes 1 ms. According to the trace, it moves `n_bytes` to and
    from HBM."""
    given = [op for op in body if op.opcode == "parameter"]
    names = [f"x.{i}" for i in range(len(given))]
    fusion = hlo_proto.op(
        "fusion.1", "fusion", *names, calls=["body"], shape=result or body[-1].instruction.shape
    )
    arguments = [
        hlo_proto.op(name, "parameter", number=i, shape=op.instruction.shape)
        for i, (name, op) in enumerate(zip(names, given, strict=True))
    ]
    program = {**(more or {}), "body": body, "main": [*arguments, fusion]}
    ran = event(
        "fusion.1",
        category,
        0,
        DURATION,
        shape="bf16[8,128]{1,0}",
        stack="m.py:1:1",
        program_id=7,
        bytes_accessed=n_bytes if n_accessed is None else n_accessed,
        memory_access_breakdown=memory_access_breakdown((1, 1, n_bytes)),
    )
    if flops is not None:
        ran.stats["flops"] = flops
    metadata = metadata_plane({7: ("jit_f(7)", hlo_proto.hlo_proto(program))})
    return encode(Space([tpu_plane([ran], [("0", 0, DURATION)]), metadata]))


def op_of(data: bytes) -> Json:
    """Return the op's row in `by_op`, after checking that `bottleneck`, `by_op` and `roofline`
    agree on it."""
    (row,) = answer(data, "by_op", *PEAKS)["ops"]
    whole = answer(data, "bottleneck", *PEAKS)
    (finding,) = whole["findings"]
    roofline = answer(data, "roofline", *PEAKS)
    groups: list[Json] = [*roofline["groups"], *roofline["skipped_groups"]["top_skipped"]]
    roof = row["at_roof_ps"], row["lost_ps"]
    assert (finding["at_roof_ps"], finding["lost_ps"]) == roof, (finding, roof)
    assert len(groups) == 1, groups
    for sums in (*groups, roofline["step_summary"]):
        assert (sums["t_roofline_per_op_ps"], sums["shortfall_per_op_ps"]) == roof, (sums, roof)
    result: Json = row
    return result


def scanned(*, is_read_whole: bool = False) -> Body:
    """Return a fusion that takes one of 128 matrices of 512 KiB, and multiplies 256 KiB by it."""
    one = array("bf16", 1, 512, 512)
    body = [
        parameter("weights", 0, 128, 512, 512),
        parameter("layer", 1, dtype="s32"),
        parameter("x", 2, 256, 512),
        of("slice.1", "dynamic-slice", "weights", "layer", shape=one),
        of("matrix", "bitcast", "slice.1", shape=array("bf16", 512, 512)),
    ]
    if is_read_whole:
        body.append(of("sum.1", "reduce", "weights", shape=array("bf16")))
    dimensions = bytes_field(30, packed(1, [1]) + packed(2, [0]))
    product = of("dot.1", "dot", "x", "matrix", shape=array("bf16", 256, 512), extra=dimensions)
    return [*body, product]


WHOLE = 64 * MIB + MIB // 2 + 4
MOVED = MIB + 4
FLOPS = 2 * 256 * 512 * 512


class Bytes(unittest.TestCase):
    def bytes_of(self, body: Body, n_bytes: int, **more: Any) -> int | None:
        row = op_of(step_of(body, n_bytes, 1, **more))
        found: int | None = row["hbm_bytes"]
        if found is not None:
            self.assertEqual(row["at_roof_ps"], round(found * 1000 / MIB))
        return found

    def test_slice_of_an_operand_counts_instead_of_the_operand(self) -> None:
        row = op_of(step_of(scanned(), WHOLE, FLOPS))
        self.assertEqual((row["hbm_bytes"], row["flops"]), (MOVED, FLOPS))
        # 134 217 728 flops take 134 217 728 ps; before, 64.5 MiB seemed to take 64 500 ps.
        self.assertEqual(row["at_roof_ps"], FLOPS)

    def test_all_modes_print_the_same_bytes_beside_the_count_of_xla(self) -> None:
        data = step_of(scanned(), WHOLE, FLOPS)
        found = {
            mode: answer(data, mode)[rows][0]
            for mode, rows in (
                ("summary", "top_compute_groups"),
                ("by_source", "groups"),
                ("roofline", "groups"),
            )
        }
        for mode, row in found.items():
            with self.subTest(mode):
                self.assertEqual((row["bytes_accessed_sum"], row["hbm_bytes_sum"]), (MOVED, MOVED))
                self.assertEqual(row.get("xla_bytes_accessed_sum", WHOLE), WHOLE)

    def test_count_that_includes_only_the_slice_is_kept(self) -> None:
        for n_bytes in (MOVED, MOVED - 1000):
            self.assertEqual(op_of(step_of(scanned(), n_bytes, FLOPS))["hbm_bytes"], n_bytes)

    def test_operand_that_is_also_read_as_a_whole_counts_as_a_whole(self) -> None:
        # Padding can make the count larger than the array.
        for n_bytes in (WHOLE, WHOLE + WHOLE // 50):
            data = step_of(scanned(is_read_whole=True), n_bytes, FLOPS)
            self.assertEqual(op_of(data)["hbm_bytes"], n_bytes)

    def test_roof_is_unknown_if_more_bytes_are_counted_than_the_arrays_have(self) -> None:
        row = op_of(step_of(scanned(), 2 * WHOLE, FLOPS))
        names = ("class", "hbm_bytes", "bytes_accessed", "flops", "at_roof_ps", "lost_ps")
        self.assertEqual([row[name] for name in names], ["unjudged", *[None] * 5])

    def test_update_in_place_counts_instead_of_the_array(self) -> None:
        body = [
            parameter("all", 0, 64, MIB // 2),
            parameter("one", 1, 1, MIB // 2),
            parameter("at", 2, dtype="s32"),
            of(
                "update.1",
                "dynamic-update-slice",
                "all",
                "one",
                "at",
                shape=array("bf16", 64, MIB // 2),
            ),
        ]
        # The update is read once and written once, and the 64 MiB around it are not touched.
        self.assertEqual(self.bytes_of(body, 129 * MIB + 4), 2 * MIB + 4)
        # Some counts include the whole array that is read, but only the update that is written.
        self.assertEqual(self.bytes_of(body, 66 * MIB + 4), 2 * MIB + 4)

    def test_copy_in_the_same_layout_moves_nothing(self) -> None:
        for order, n_bytes in (((1, 0), 2 * MIB), ((0, 1), 129 * MIB)):
            given = Shape("bf16", (64, MIB // 2), minor_to_major=(1, 0))
            full = Shape("bf16", (64, MIB // 2), minor_to_major=order)
            body = [
                parameter("all", 0, 64, MIB // 2),
                parameter("one", 1, 1, MIB // 2),
                of("copy.1", "copy", "all", shape=full),
                of("update.1", "dynamic-update-slice", "copy.1", "one", shape=full),
            ]
            body[0].instruction.shape = given
            self.assertEqual(self.bytes_of(body, 129 * MIB), n_bytes, order)

    def test_update_of_an_array_that_the_fusion_computes_counts_as_a_whole(self) -> None:
        full = array("bf16", 64, MIB // 2)
        body = [
            parameter("all", 0, 64, MIB // 2),
            parameter("one", 1, 1, MIB // 2),
            of("negated", "negate", "all", shape=full),
            of("update.1", "dynamic-update-slice", "negated", "one", shape=full),
        ]
        self.assertEqual(self.bytes_of(body, 129 * MIB), 129 * MIB)

    def test_updated_array_that_is_also_used_counts_as_read(self) -> None:
        full = array("bf16", 64, MIB // 2)
        body = [
            parameter("all", 0, 64, MIB // 2),
            parameter("one", 1, 1, MIB // 2),
            of("update.1", "dynamic-update-slice", "all", "one", shape=full),
            of("sum.1", "reduce", "update.1", shape=array("bf16", 64)),
            of("both", "tuple", "update.1", "sum.1", shape=tuple_of(full, array("bf16", 64))),
        ]
        self.assertEqual(self.bytes_of(body, 129 * MIB + 128), 66 * MIB + 128)

    def test_rows_that_a_gather_reads_count_instead_of_the_table(self) -> None:
        body = [
            parameter("table", 0, 1024, MIB // 2),
            parameter("rows", 1, 8, dtype="s32"),
            of("gather.1", "gather", "table", "rows", shape=array("bf16", 8, MIB // 2)),
        ]
        self.assertEqual(self.bytes_of(body, 1032 * MIB + 32), 16 * MIB + 32)

    def test_damaged_fusions_are_not_corrected(self) -> None:
        full = array("bf16", 64, MIB // 2)
        cycle = [
            parameter("all", 0, 64, MIB // 2),
            of("a", "bitcast", "b", shape=full),
            of("b", "bitcast", "a", shape=full),
            of("slice.1", "slice", "all", shape=array("bf16", 1, MIB // 2)),
            of("update.1", "dynamic-update-slice", "a", "slice.1", shape=full),
        ]
        # The slice of 1 MiB is known, and the update of the cycle is not.
        self.assertEqual(self.bytes_of(cycle, 128 * MIB), 65 * MIB)
        self.assertEqual(self.bytes_of(cycle[:1] + cycle[3:4], MIB, result=tuple_of()), MIB)


def product(output: Shape, left: Shape, right: Shape, opcode: str, extra: bytes) -> Body:
    return [
        hlo_proto.op("left", "parameter", shape=left),
        hlo_proto.op("right", "parameter", number=1, shape=right),
        of("dot.1", opcode, "left", "right", shape=output, extra=extra),
    ]


def window(*dimensions: dict[int, int]) -> bytes:
    """Encode a window. Keys are 1 size, 2 stride, 3 low padding, 5 and 6 dilation of the kernel and
    of the input."""
    fields = (b"".join(int_field(k, v) for k, v in one.items()) for one in dimensions)
    return bytes_field(15, b"".join(bytes_field(1, one) for one in fields))


def numbers(left: str, right: str, output: str) -> bytes:
    """Encode the dimension numbers of a convolution, written like `0bf_0io->0bf`."""
    n = sum(letter.isdigit() for letter in left)
    spatial = [str(i) for i in range(n)]
    return bytes_field(
        16,
        int_field(3, right.index("i"))
        + int_field(4, right.index("o"))
        + packed(6, [right.index(place) for place in spatial])
        + int_field(7, left.index("b"))
        + int_field(8, left.index("f"))
        + int_field(9, output.index("b"))
        + int_field(10, output.index("f"))
        + packed(11, [left.index(place) for place in spatial])
        + packed(12, [output.index(place) for place in spatial]),
    )


class FlopsOfDots(unittest.TestCase):
    # In attention of vision models, each of 7 images has 16 patches with 8 features.
    BATCHED = product(
        array("bf16", 7, 16, 16),
        array("bf16", 7, 16, 8),
        array("bf16", 7, 16, 8),
        "dot",
        bytes_field(30, packed(1, [2]) + packed(2, [2]) + packed(3, [0]) + packed(4, [0])),
    )
    FLOPS = 2 * 7 * 16 * 16 * 8

    def flops_of(self, body: Body, flops: int | None) -> int | None:
        row = op_of(step_of(body, 0, flops, category="convolution fusion"))
        found: int | None = row["flops"]
        self.assertEqual(row["at_roof_ps"], found)
        return found

    def assert_flops(self, flops: int, body: Body) -> None:
        for counted in (None, 0, 3 * flops, 10**6 * flops):
            self.assertEqual(self.flops_of(body, counted), flops, counted)

    def test_batched_matmul_counts_each_batch_once(self) -> None:
        self.assert_flops(self.FLOPS, self.BATCHED)
        # The square root of lhs * rhs / output exceeds the contracted size by a factor of
        # 7 ** 0.5 = 2.6.
        self.assertEqual(self.flops_of(self.BATCHED, round(self.FLOPS * 7**0.5)), self.FLOPS)

    def test_smaller_count_is_kept(self) -> None:
        self.assertEqual(self.flops_of(self.BATCHED, self.FLOPS // 2), self.FLOPS // 2)

    def test_batch_that_is_a_dilated_dimension_counts_each_batch_once(self) -> None:
        # On TPU, the batch of 4 matmuls of 16x8 and 8x32 is a window of size 4 that moves by 3 in
        # an input with 3 holes after each element. Each output meets one element.
        extra = window({1: 4, 2: 3, 6: 4}) + numbers("0bf", "0io", "0bf")
        body = product(
            array("bf16", 4, 16, 32),
            array("bf16", 4, 16, 8),
            array("bf16", 4, 8, 32),
            "convolution",
            extra,
        )
        self.assert_flops(2 * 4 * 16 * 8 * 32, body)

    def test_convolution_does_not_count_padding(self) -> None:
        # A 3x1 kernel on 5x1 positions with padding of 1 meets 2 + 3 + 3 + 3 + 2 = 13 elements, for
        # each of 2 images, 8 input features and 16 output features.
        extra = window({1: 3, 3: 1}, {1: 1}) + numbers("b01f", "01io", "b01f")
        body = product(
            array("bf16", 2, 5, 1, 16),
            array("bf16", 2, 5, 1, 8),
            array("bf16", 3, 1, 8, 16),
            "convolution",
            extra,
        )
        self.assert_flops(2 * 13 * 2 * 8 * 16, body)

    def test_strides_and_dilated_kernels_are_counted(self) -> None:
        # The four outputs meet the inputs -1 and 2, 1 and 4, 3 and 6, 5 and 8, of which -1 and 8 do
        # not exist.
        extra = window({1: 2, 2: 2, 3: 1, 5: 3}) + numbers("b0f", "0io", "b0f")
        body = product(
            array("bf16", 1, 4, 1),
            array("bf16", 1, 8, 1),
            array("bf16", 2, 1, 1),
            "convolution",
            extra,
        )
        self.assert_flops(2 * 6, body)
