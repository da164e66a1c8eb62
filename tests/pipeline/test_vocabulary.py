"""Every category has one kind: the table, written down a second time, and checked row by row."""

from __future__ import annotations

import unittest
from collections.abc import Iterable

from tests.builders.xspace import Op, op, trace
from tests.harness import answer

FUSIONS = [
    *("fusion", "loop fusion", "input fusion", "output fusion", "custom fusion"),
    *("convolution fusion", "gather fusion", "scatter fusion", "some later fusion"),
]
ELEMENTWISE = (
    "abs add and atan2 cbrt ceil clamp compare complex cosine count-leading-zeros divide erf "
    "exponential exponential-minus-one floor imag is-finite log log-plus-one logistic maximum "
    "minimum multiply negate not or popcnt power real remainder round-nearest-afz "
    "round-nearest-even rsqrt select shift-left shift-right-arithmetic shift-right-logical sign "
    "sine sqrt subtract tan tanh xor"
).split()
COLLECTIVES = (
    "all-reduce all-gather reduce-scatter all-to-all ragged-all-to-all collective-permute "
    "collective-broadcast send recv"
).split()

ROWS: dict[str, list[str]] = {
    "compute": [
        *FUSIONS,
        *("convolution", "convolution base-dilated", "convolution window-dilated", "dot"),
        *("ragged-dot", "custom-call", "non-fusion elementwise", "reduce", "reduce-window"),
        *("select-and-scatter", "scatter", "sort", "topk", "map", "fft", "cholesky"),
        *("triangular-solve", "rng", "rng-bit-generator", "rng-get-and-update-state"),
        *("batch-norm-grad", "batch-norm-inference", "batch-norm-training"),
        *ELEMENTWISE,
    ],
    "data_move": [
        *("data formatting", "copy", "copy-start", "copy-done", "convert", "bitcast-convert"),
        *("stochastic-convert", "reduce-precision", "bitcast", "broadcast", "concatenate"),
        *("dynamic-reshape", "dynamic-slice", "dynamic-update-slice", "gather", "iota", "pad"),
        *("reshape", "reverse", "set-dimension-size", "slice", "transpose"),
    ],
    "comm": [
        *(
            name + suffix
            for name in [*COLLECTIVES, "host send", "host recv"]
            for suffix in ("", "-start", "-done", "-update")
        ),
        *("infeed", "outfeed", "sparsecorev0 infeed", "sparsecorev0 outfeed wait", "infeed fusion"),
        *("all-reduce fusion", "all-gather fusion", "all-reduce-scatter fusion"),
        *("async-start", "async-update", "async-done"),
    ],
    "other": [
        *("tuple", "get-tuple-element", "parameter", "constant", "after-all", "add-dependency"),
        *("domain", "opt-barrier", "partition-id", "replica-id", "get-dimension-size"),
    ],
    "container": ["while", "conditional", "call", "megacore fusion"],
}

# In no row, however much they look like one that is.
STRANGERS = [
    *("quantum-dot", "Loop Fusion", "loopfusion", "fusion loop", "convolution-like", "my-rng-"),
    *("rng2", "x batch-norm-grad", "slices", "copies", "all-reduce-begin", "send-recv", "asyncs"),
    *("while-done", "copy-update", " loop fusion ", "in-feed", "<none>"),
]

OPCODES = (
    "abs add add-dependency after-all all-gather all-gather-done all-gather-start all-reduce "
    "all-reduce-done all-reduce-start all-to-all and async-done async-start async-update atan2 "
    "batch-norm-grad batch-norm-inference batch-norm-training bitcast bitcast-convert broadcast "
    "call cbrt ceil cholesky clamp collective-broadcast collective-permute "
    "collective-permute-done collective-permute-start compare complex concatenate conditional "
    "constant convert convolution copy copy-done copy-start cosine count-leading-zeros "
    "custom-call divide domain dot dynamic-reshape dynamic-slice dynamic-update-slice erf "
    "exponential exponential-minus-one fft floor fusion gather get-dimension-size "
    "get-tuple-element imag infeed iota is-finite log log-plus-one logistic map maximum minimum "
    "multiply negate not opt-barrier or outfeed pad parameter partition-id popcnt power "
    "ragged-all-to-all ragged-dot real recv recv-done reduce reduce-precision reduce-scatter "
    "reduce-window remainder replica-id reshape reverse rng rng-bit-generator "
    "rng-get-and-update-state round-nearest-afz round-nearest-even rsqrt scatter select "
    "select-and-scatter send send-done set-dimension-size shift-left shift-right-arithmetic "
    "shift-right-logical sign sine slice sort sqrt stochastic-convert subtract tan tanh topk "
    "transpose triangular-solve tuple while xor"
).split()

# How ops of the three async categories are called, and what runs behind their names.
ASYNC_NAMES: dict[str, list[str]] = {
    "data_move": [
        *("slice", "slice-done.10", "slice-start.12", "slice.3", "slice_fusion", "slice2"),
        *("dynamic-slice-done", "dynamic-slice.1.clone", "dynamic-update-slice-start.4"),
        *("copy", "copy-done.1", "copy.7.remat", "pad.9", "pad-done", "concatenate.2"),
        *("sparse-core-data-format-call", "sparse-core-data-format-call-done.1"),
        *("sparse-core-data-format", "gather_offload_async_done", "gather_offload.5"),
        *("scatter_offload_async_start", "scatter_offload-done"),
    ],
    "comm": [
        *("all-gather.200.cloned.1.call-done", "reduce-scatter.90.cloned.1.call-start"),
        *("all-reduce-scatter.1", "all-reduce.3", "all-to-all.4", "ragged-all-to-all.1"),
        *("collective-permute-start.12", "collective-broadcast", "send.1", "recv-done.2"),
        # no transfer's name goes on like this
        *("slices", "slices.1", "slicer-done", "copyright.1", "copyx-done", "padding.2", "pads"),
        *("concatenated.3", "dynamic.slice", "dynamic-slices-done", "update-slice.1"),
        *("gather.1", "gather_done", "scatter.3", "gather-offload", "gather_offloads"),
        *("sparse-core-done", "sparse-core-data-formats", "my-slice.1", "all-slice", "Slice.1"),
        *("async-done.4", "fusion.8", "sort.1"),
    ],
}


def listed(ops: Iterable[Op]) -> list[tuple[str, str]]:
    """The (category, kind) of each op's row, sorted."""
    rows = answer(trace(list(ops)), "summary")["by_hlo_category"]
    return sorted((row["hlo_category"], row["kind"]) for row in rows)


def unknown(ops: Iterable[Op]) -> dict[str, int]:
    counts: dict[str, int] = answer(trace(list(ops)), "summary")["totals"]["unknown_categories"]
    return counts


class Categories(unittest.TestCase):
    def test_each_category_has_the_kind_of_its_row(self) -> None:
        for kind, categories in ROWS.items():
            for category in categories:
                with self.subTest(category=category):
                    self.assertEqual(listed([op("x.1", category, 0, 5)]), [(category, kind)])

    def test_no_category_stands_in_two_rows(self) -> None:
        every = [category for row in ROWS.values() for category in row]
        self.assertEqual(len(every), len(set(every)))

    def test_each_opcode_stands_in_one_row_or_is_a_container(self) -> None:
        for opcode in OPCODES:
            with self.subTest(opcode=opcode):
                self.assertEqual(sum(opcode in row for row in ROWS.values()), 1)
                (kind,) = [kind for kind, row in ROWS.items() if opcode in row]
                self.assertEqual(listed([op("x.1", opcode, 0, 5)]), [(opcode, kind)])

    def test_only_categories_in_no_row_are_unknown(self) -> None:
        every = [category for row in ROWS.values() for category in row]
        self.assertEqual(unknown(op("x.1", c, i, 1) for i, c in enumerate(every)), {})

    def test_categories_in_no_row_are_other_and_counted_by_execution(self) -> None:
        for category in STRANGERS:
            with self.subTest(category=category):
                ops = [op("x.1", category, 0, 5), op("x.1", category, 5, 5)]
                self.assertEqual(listed(ops), [(category, "other")])
                self.assertEqual(unknown(ops), {category: 2})

    def test_missing_and_empty_categories_are_none_and_unknown(self) -> None:
        for category in (None, ""):
            with self.subTest(category=category):
                ops = [op("x.1", category, 0, 5, opcode="fusion")]
                self.assertEqual(listed(ops), [("<none>", "other")])
                self.assertEqual(unknown(ops), {"<none>": 1})

    def test_unknown_containers_there_are_none(self) -> None:
        self.assertEqual(unknown([op("w", "while", 0, 9), op("m", "megacore fusion", 0, 9)]), {})


class AsyncByName(unittest.TestCase):
    def test_the_name_tells_a_local_transfer_from_communication(self) -> None:
        for kind, names in ASYNC_NAMES.items():
            for name in names:
                for category in ("async-start", "async-update", "async-done"):
                    with self.subTest(name=name, category=category):
                        self.assertEqual(listed([op(name, category, 0, 5)]), [(category, kind)])

    def test_one_category_can_be_of_both_kinds(self) -> None:
        ops = [op("slice-done.1", "async-done", 0, 5), op("all-gather.1", "async-done", 5, 5)]
        self.assertEqual(listed(ops), [("async-done", "comm"), ("async-done", "data_move")])

    def test_without_a_text_it_is_communication(self) -> None:
        ops = [op("", "async-done", 0, 5, text="")]
        self.assertEqual(listed(ops), [("async-done", "comm")])

    def test_the_name_decides_for_async_categories_alone(self) -> None:
        for name, category, kind in (
            ("slice-done.1", "all-gather-done", "comm"),
            ("all-gather.1", "slice", "data_move"),
            ("copy.1", "loop fusion", "compute"),
        ):
            with self.subTest(name=name):
                self.assertEqual(listed([op(name, category, 0, 5)]), [(category, kind)])


class AsyncCollectiveFusions(unittest.TestCase):
    """A pair of fusions named so is an asynchronous collective."""

    def test_the_name_tells_of_any_fusion(self) -> None:
        for category in FUSIONS:
            for name in ("async-collective-start", "async-collective-done.7.clone"):
                with self.subTest(category=category, name=name):
                    self.assertEqual(listed([op(name, category, 0, 5)]), [(category, "comm")])

    def test_others_keep_their_kind(self) -> None:
        for name, category, kind in (
            ("async_collective_fusion.2", "convolution fusion", "compute"),
            ("async-collective", "loop fusion", "compute"),
            ("async-collective-starts", "loop fusion", "compute"),
            ("async-collective-update.1", "loop fusion", "compute"),
            ("x-async-collective-done", "loop fusion", "compute"),
            ("async-collective-done", "custom-call", "compute"),
            ("async-collective-done", "copy-done", "data_move"),
            ("async-collective-done", "megacore fusion", "container"),
        ):
            with self.subTest(name=name, category=category):
                self.assertEqual(listed([op(name, category, 0, 5)]), [(category, kind)])

    def test_such_a_category_is_not_unknown(self) -> None:
        for category in ("my fusion", "myfusion"):
            self.assertEqual(unknown([op("async-collective-done", category, 0, 5)]), {})
        self.assertEqual(unknown([op("f.1", "myfusion", 0, 5)]), {"myfusion": 1})


class HiddenCasts(unittest.TestCase):
    def test_a_convert_among_the_elementwise_is_a_convert(self) -> None:
        ops = [op("x.1", "non-fusion elementwise", 0, 5, opcode="convert")]
        self.assertEqual(listed(ops), [("convert", "data_move")])

    def test_the_opcode_tells_not_the_name(self) -> None:
        for opcode in ("add", "bitcast-convert", "stochastic-convert", "converts"):
            with self.subTest(opcode=opcode):
                ops = [op("convert.1", "non-fusion elementwise", 0, 5, opcode=opcode)]
                self.assertEqual(listed(ops), [("non-fusion elementwise", "compute")])

    def test_other_categories_keep_their_converts(self) -> None:
        for category, kind in (("loop fusion", "compute"), ("data formatting", "data_move")):
            with self.subTest(category=category):
                ops = [op("convert.1", category, 0, 5, opcode="convert")]
                self.assertEqual(listed(ops), [(category, kind)])

    def test_without_a_text_nothing_shows_a_cast(self) -> None:
        ops = [op("x", "non-fusion elementwise", 0, 5, text="")]
        self.assertEqual(listed(ops), [("non-fusion elementwise", "compute")])


if __name__ == "__main__":
    unittest.main()
