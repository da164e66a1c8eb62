"""Test the mode `summary`: ranks, rollups, idle gaps and kernels."""

from __future__ import annotations

import unittest
from typing import Any

from tests.builders.xspace import Op, op, trace
from tests.harness import answer
from tests.modes.small_steps import column, leaf, summary


class IdleGaps(unittest.TestCase):
    def gaps(self, ops: list[Op]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = answer(trace(ops, [("s", 0, 100)]), "summary")["idle_gaps"]
        for row in rows:
            for key in ("after_hlo_op", "before_hlo_op"):
                row[key] = row[key] and row[key].split()[0]
        return rows

    def test_innermost_container_is_the_last_to_begin(self) -> None:
        for containers, inside in (
            ([("w", 0, 100), ("v", 10, 50)], "v"),
            ([("w", 0, 100), ("v", 10, 10)], "w"),
            ([("w", 0, 100), ("v", 20, 10)], "v"),
            ([("w", 0, 100), ("v", 0, 50)], "v"),
            ([("v", 0, 50), ("w", 0, 100)], "v"),
            ([("u", 0, 30), ("w", 0, 100), ("v", 0, 25)], "v"),
            ([("w", 0, 20)], None),
            ([("w", 21, 70)], None),
        ):
            with self.subTest(containers=containers):
                ops = [op(name, "while", start, dur) for name, start, dur in containers]
                rows = self.gaps([*ops, leaf(0, 20, "a"), leaf(90, 10, "z")])
                self.assertEqual(column(rows, "start_ps", "inside"), [(20, inside)])


class CommRollup(unittest.TestCase):
    def rollup(self, *ops: Op) -> list[tuple[Any, ...]]:
        rows = summary(list(ops))["comm_rollup"]
        return [tuple(row.values())[:4] for row in rows]

    def test_waits_are_grouped_by_what_they_wait_for(self) -> None:
        host = "(f32[8]{0}, f32[8]{0:S(5)}, u32[]{:S(2)}) %copy-start.1"
        local = "(f32[8]{0}, f32[8]{0:S(1)}, u32[]{:S(2)}) %copy-start.1"
        for category, name, operands, whom in (
            ("all-gather-done", "x", None, "all-gather"),
            ("collective-permute-done", "x", None, "collective-permute"),
            ("send-done", "x", None, "send"),
            ("recv-done", "x", None, "recv"),
            ("async-done", "all-gather.200.cloned.1.call-done", None, "all-gather"),
            ("async-done", "reduce-scatter.9.cloned.1.call-done", host, "reduce-scatter"),
            ("host send-done", "x", None, "host"),
            ("host recv-done", "x", None, "host"),
            ("copy-done", "copy-done.1", host, "host"),
            ("copy-done", "copy-done.1", local, "dma"),
            ("async-done", "slice-done.1", None, "dma"),
            ("async-done", "gather_offload_async_done", None, "sparse_core"),
            ("async-done", "scatter_offload-done", None, "sparse_core"),
            ("async-done", "sparse-core-data-format-call-done", None, "sparse_core"),
            ("async-done", "sparse-core-data-format-call-done", host, "host"),
            ("async-done", "something-done", None, "collective"),
            ("async-done", "async-collective-done", None, "collective"),
            ("loop fusion", "async-collective-done.2", None, "collective"),
            ("something-done", "x", None, "dma"),
        ):
            with self.subTest(category=category, name=name, operands=operands):
                ops = [op(name, category, 0, 5, operands=operands)]
                self.assertEqual(self.rollup(*ops), [(whom, 1, 0, 5)])

    def test_starts_and_updates_take_time_but_are_not_counted(self) -> None:
        for category in ("all-gather-start", "async-start", "async-update", "send-start"):
            with self.subTest(category=category):
                ((_, *figures),) = self.rollup(op("all-gather.1", category, 0, 5))
                self.assertEqual(figures, [0, 5, 0])

    def test_math_and_copies_on_the_core_are_not_exposed_communication(self) -> None:
        ops = [op("x", c, i, 5) for i, c in enumerate(("copy", "copy-start", "sort", "tuple"))]
        self.assertEqual(self.rollup(*ops), [])

    def test_rollup_separates_waits_from_synchronous_time(self) -> None:
        ops = [
            op("b", "all-reduce-done", 0, 7),
            op("a", "all-reduce", 10, 20),
            op("s", "async-done", 30, 30),
            op("c", "all-to-all", 60, 30),
            op("w", "copy-done", 90, 1),
        ]
        result = summary(ops)
        self.assertEqual(
            [tuple(row.values())[:5] for row in result["comm_rollup"]],
            [
                # Rows of equal time are ordered by name.
                ("all-to-all", 1, 30, 0, 3.0),
                ("collective", 1, 0, 30, 3.0),
                ("all-reduce", 2, 20, 7, 2.7),
                ("dma", 1, 0, 1, 0.1),
            ],
        )
        self.assertEqual(result["totals"]["wait_duration_ps"], 38)
        self.assertTrue(result["comm_rollup"][2]["longest_hlo_op"].startswith("%a ="))
