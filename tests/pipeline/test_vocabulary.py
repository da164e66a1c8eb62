"""Test which kind each HLO category belongs to."""

from __future__ import annotations

import unittest

from tests.builders.xspace import Op, op, trace
from tests.harness import answer

UNKNOWN = (
    "quantum-dot, Loop Fusion, loopfusion, fusion loop, convolution-like, my-rng-, rng2, slices, "
    "x batch-norm-grad, all-reduce-begin, send-recv, while-done, copy-update, in-feed, <none>"
)


def kinds(ops: list[Op]) -> list[tuple[str, str]]:
    """Return the category and kind of each row of `by_hlo_category`, sorted."""
    rows = answer(trace(ops), "summary")["by_hlo_category"]
    return sorted((row["hlo_category"], row["kind"]) for row in rows)


def unknown(ops: list[Op]) -> dict[str, int]:
    counts: dict[str, int] = answer(trace(ops), "summary")["totals"]["unknown_categories"]
    return counts


def kind_of(name: str, category: str, **stats: str) -> str:
    [(_, kind)] = kinds([op(name, category, 0, 5, **stats)])
    return kind


class Categories(unittest.TestCase):
    def test_unknown_categories_have_kind_other_and_are_counted_by_execution(self) -> None:
        names = UNKNOWN.split(", ")
        ops = [op("x.1", name, 20 * i + j, 5) for i, name in enumerate(names) for j in (0, 10)]
        self.assertEqual(kinds(ops), sorted((name, "other") for name in names))
        self.assertEqual(unknown(ops), dict.fromkeys(names, 2))


class AsyncByName(unittest.TestCase):
    def test_name_of_an_async_op_distinguishes_local_transfer_and_communication(self) -> None:
        local = (
            *("slice", "slice-done.10", "slice_fusion", "slice2", "dynamic-slice.1.clone"),
            *("dynamic-update-slice-start.4", "copy-done.1", "copy.7.remat", "pad.9"),
            *("concatenate.2", "sparse-core-data-format-call-done.1", "gather_offload.5"),
            "scatter_offload_async_start",
        )
        communication = (
            *("all-gather.200.cloned.1.call-done", "all-reduce-scatter.1", "send.1", "slices.1"),
            *("slicer-done", "copyright.1", "padding.2", "dynamic.slice", "update-slice.1"),
            *("gather_done", "gather-offload", "sparse-core-done", "my-slice.1", "Slice.1"),
        )
        for category in ("async-start", "async-update", "async-done"):
            for kind, names in (("data_move", local), ("comm", communication)):
                for name in names:
                    with self.subTest(name=name, category=category):
                        self.assertEqual(kind_of(name, category), kind)


class HiddenCasts(unittest.TestCase):
    def test_elementwise_op_with_opcode_convert_is_a_cast(self) -> None:
        ops = [op("x.1", "non-fusion elementwise", 0, 5, opcode="convert")]
        self.assertEqual(kinds(ops), [("convert", "data_move")])

    def test_elementwise_op_without_opcode_convert_is_compute(self) -> None:
        for opcode in ("add", "bitcast-convert", "stochastic-convert", "converts"):
            kind = kind_of("convert.1", "non-fusion elementwise", opcode=opcode)
            self.assertEqual(kind, "compute", opcode)
        self.assertEqual(kind_of("x", "non-fusion elementwise", text=""), "compute")
        self.assertEqual(kind_of("convert.1", "loop fusion", opcode="convert"), "compute")
