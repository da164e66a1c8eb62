"""Test the mode `summary`: ranks, rollups, phases, idle gaps and kernels."""

from __future__ import annotations

import unittest
from typing import Any

from _breakdown.output.screen import View
from tests.builders.xspace import Op, StatValue, op, trace
from tests.harness import answer
from tests.modes.small_steps import HERE, by_source, column, kernel, leaf, summary
from tests.shown import text_of


class Summary(unittest.TestCase):
    OPS = (
        leaf(0, 10, tf_op="b"),
        leaf(10, 30, tf_op="c"),
        leaf(40, 10, tf_op="a"),
        op("r", "all-reduce", 50, 20, tf_op="a"),
        op("s", "all-gather", 70, 10, tf_op="a"),
        op("w", "while", 80, 30),
        op("t", "tuple", 110, 5),
    )

    def test_groups_are_ranked_by_time_and_then_by_key(self) -> None:
        self.assertEqual(
            column(summary(list(self.OPS))["top_compute_groups"], "rank", "agg_key"),
            [(1, "tfop:c"), (2, "tfop:a"), (3, "tfop:b")],
        )

    def test_communication_is_ranked_with_compute_if_requested(self) -> None:
        ops = [*self.OPS, leaf(200, 20, "g", tf_op="a")]
        result = summary(ops, "--include-comm")
        self.assertEqual(
            column(result["top_compute_groups"], "agg_key", "kind", "total_dur_ps"),
            [
                ("tfop:a", "comm", 30),
                ("tfop:a", "compute", 30),
                ("tfop:c", "compute", 30),
                ("tfop:b", "compute", 10),
            ],
        )
        # The percentage of communication is relative to compute, too.
        self.assertEqual(result["top_compute_groups"][0]["pct_of_compute"], 42.857)

    def test_top_lists_the_costliest_groups_with_their_ranks_among_all_groups(self) -> None:
        # The lines of the groups do not matter: the first and the last group are of one line.
        ops = [leaf(10 * i, time, f"f.{i}", stack=f"m.py:{line}:1\n/site-packages/jax/x.py:{i}:1")
               for i, (line, time) in enumerate(((1, 4), (2, 5), (3, 2), (1, 3)))]  # fmt: skip
        for mode, rows, tail in (("summary", "top_compute_groups", "tail_compute"),
                                 ("by_source", "groups", "tail")):  # fmt: skip
            result = answer(trace(ops, [("s", 0, 1000)]), mode, "--top", "2")
            self.assertEqual(column(result[rows], "source_user", "total_dur_ps"),
                             [("m.py:2", 5), ("m.py:1", 4)])  # fmt: skip
            self.assertEqual(result[tail], {"n_groups_omitted": 2, "dur_ps": 5})
            if mode == "summary":
                self.assertEqual(column(result[rows], "rank"), [1, 2])

    def test_text_cuts_every_table_to_top_rows(self) -> None:
        ops = [kernel(20 * i, 10 + i, f"k{i}", tf_op=f"k{i}") for i in range(4)]
        result = answer(trace(ops, [("s", 0, 100)]), "summary", "--top", "2")
        text = text_of(result, "utf-8", View(top=2))
        for counted in ("2 more groups", "2 more kernels", "2 more gaps"):
            self.assertIn(counted, text)

    def test_headline_says_of_what_the_time_is(self) -> None:
        ops, steps = [leaf(100, 50), leaf(350, 50)], [("0", 0, 200), ("1", 300, 200)]
        for words, some, takes in (
            ((), steps, "The step takes 200 ps"),
            (("--step", "all"), steps, "All 2 steps, with pauses, take 500 ps"),
            (("--step", "all"), steps[:1], "The capture takes 400 ps"),
            ((), [], "The capture takes 300 ps"),
        ):
            headline = answer(trace(ops, some), "summary", *words)["headline"]
            self.assertTrue(headline.startswith(takes), headline)

    def test_fifty_groups_are_shown_by_default(self) -> None:
        result = summary([leaf(2 * i, 1, tf_op=str(i)) for i in range(60)])
        self.assertEqual(len(result["top_compute_groups"]), 50)
        self.assertEqual(result["tail_compute"], {"n_groups_omitted": 10, "dur_ps": 10})


class Phases(unittest.TestCase):
    def test_phase_is_derived_from_name_and_path(self) -> None:
        for name, tf_op, phase in (
            ("f.1", None, "unknown"),
            ("f.1.remat", None, "unknown"),
            ("f.1.remat2", "jit(f)/jvp(g)/add:", "recompute"),
            ("f.1", "jit(f)/transpose(jvp(g))/rematted_computation/add:", "recompute"),
            ("f.1", "jit(f)/rematted_computation/add:", "recompute"),
            ("f.1", "jit(f)/rematted_computation", "other"),
            ("f.1", "jit(f)/transpose(jvp(g))/add:", "backward"),
            ("f.1", "jit(f)/transpose(jvp)/add:", "backward"),
            ("f.1", "jit(f)/jvp(g)/transpose:", "forward"),
            ("f.1", "jit(f)/jvp()/add:", "forward"),
            ("f.1", "jit(f)/jvp/add:", "other"),
            ("f.1", "jit(f)/transpose(g)/add:", "other"),
            ("f.1", "jit(f)/adam/add:", "other"),
            ("remat.1", "jit(f)/jvp(g)/add:", "forward"),
        ):
            with self.subTest(name=name, tf_op=tf_op):
                facts: dict[str, StatValue] = {} if tf_op is None else {"tf_op": tf_op}
                (row,) = by_source([leaf(0, 7, name, stack=HERE, **facts)])
                self.assertEqual(row["phases"], {phase: 7})


class IdleGaps(unittest.TestCase):
    def gaps(self, ops: list[Op]) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = answer(trace(ops, [("s", 0, 100)]), "summary")["idle_gaps"]
        for row in rows:
            for key in ("after_hlo_op", "before_hlo_op"):
                row[key] = row[key] and row[key].split()[0]
        return rows

    def test_gap_has_neighbours_and_innermost_container(self) -> None:
        ops = [
            leaf(10, 10, "a"),
            op("w.1", "while", 30, 60),
            op("c.1", "conditional", 45, 20),
            leaf(35, 15, "b"),
            leaf(70, 25, "c"),
        ]
        self.assertEqual(
            [tuple(row.values()) for row in self.gaps(ops)],
            [
                (50, 20, 20.0, "%b", "%c", "c.1"),
                (20, 15, 15.0, "%a", "%b", None),
                (0, 10, 10.0, None, "%a", None),
                (95, 5, 5.0, "%c", None, None),
            ],
        )

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

    def test_container_that_begins_in_a_gap_encloses_later_gaps(self) -> None:
        ops = [
            op("w", "while", 10, 85),
            op("v", "while", 15, 50),
            leaf(30, 10),
            leaf(60, 10),
            leaf(80, 5),
        ]
        self.assertEqual(
            column(self.gaps(ops), "start_ps", "inside"),
            [(0, None), (40, "v"), (85, "w"), (70, "w")],
        )

    def test_op_without_duration_does_not_end_a_gap(self) -> None:
        rows = self.gaps([leaf(0, 10, "a"), leaf(50, 0, "instant"), leaf(90, 10, "z")])
        self.assertEqual(
            column(rows, "start_ps", "dur_ps", "after_hlo_op", "before_hlo_op"),
            [(10, 80, "%a", "%z")],
        )

    def test_step_without_ops_is_one_gap(self) -> None:
        self.assertEqual(
            [tuple(row.values()) for row in self.gaps([])], [(0, 100, 100.0, None, None, None)]
        )


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

    def test_synchronous_communication_has_no_waiting_time(self) -> None:
        for category, whom in (
            *(("all-to-all", "all-to-all"), ("ragged-all-to-all", "ragged-all-to-all")),
            *(("all-reduce", "all-reduce"), ("all-reduce fusion", "all-reduce")),
            *(("all-gather fusion", "all-gather"), ("all-reduce-scatter fusion", "reduce-scatter")),
            *(("infeed", "host"), ("outfeed", "host"), ("host send", "host")),
        ):
            with self.subTest(category=category):
                self.assertEqual(self.rollup(op("x", category, 0, 5)), [(whom, 1, 5, 0)])

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


class Kernels(unittest.TestCase):
    def test_shapes_of_a_kernel_are_those_of_its_longest_execution(self) -> None:
        target = ', custom_call_target="tpu_custom_call"'
        ops = [
            op("k.1", "custom-call", 0, 5, shape="f32[1]", attributes=target),
            op(
                *("k.2", "custom-call", 5, 9),
                shape="f32[2]{0}",
                operands="s8[3]{0} %a, s8[4]{0} %b",
                attributes=target,
            ),
        ]
        (row,) = summary(ops)["kernels"]
        self.assertEqual(
            (row["shapes_in"], row["shapes_out"]), (["s8[3]{0}", "s8[4]{0}"], ["f32[2]{0}"])
        )
