"""Test the mode `kernel`: rows, regions inside kernels, waiting, and `--kernel`."""

from __future__ import annotations

import unittest
from collections.abc import Sequence
from typing import Any

from tests.builders.drawn import Drawn, traced
from tests.builders.xspace import Op
from tests.harness import Json, answer, run
from tests.modes.small_steps import PEAKS, column, kernel, leaf

NO_REGIONS = "the capture has no regions inside kernels"


def result_of(*parts: Any, options: Sequence[str] = (), **more: Any) -> Json:
    return answer(traced(*parts, **more), "kernel", *options)


def tree(row: Json) -> list[tuple[Any, ...]]:
    return [
        (region["region"], region["depth"], region["n"], region["total_dur_ps"])
        for region in row["regions"]
    ]


def assert_adds_up(test: unittest.TestCase, row: Json) -> None:
    own = sum(region["self_dur_ps"] for region in row["regions"])
    test.assertEqual(own + row["outside_regions_ps"], row["total_dur_ps"])


class Regions(unittest.TestCase):
    def row(self, ops: list[Op], regions: Sequence[Drawn], **more: Any) -> Json:
        [row] = result_of(ops, regions, **more)["kernels"]
        assert_adds_up(self, row)
        found: Json = row
        return found

    def test_regions_with_equal_names_but_different_parents_have_separate_rows(self) -> None:
        row = self.row(
            [kernel(100, 100), kernel(300, 50)],
            [
                *(("a", 110, 150), ("b", 115, 125), ("c", 116, 120), ("b", 130, 135)),
                *(("b", 160, 190), ("c", 165, 166)),
                # Regions in the kernel's second execution.
                *(("a", 300, 310), ("b", 302, 304)),
            ],
        )
        self.assertEqual(
            tree(row),
            [("a", 0, 2, 50), ("b", 1, 3, 17), ("c", 2, 1, 4), ("b", 0, 1, 30), ("c", 1, 1, 1)],
        )
        self.assertEqual(column(row["regions"], "self_dur_ps"), [33, 13, 4, 29, 1])
        self.assertEqual(column(row["regions"], "pct_of_kernel")[:2], [33.333, 11.333])
        self.assertEqual(row["outside_regions_ps"], 70)

    def test_sibling_regions_are_ordered_by_time_then_by_name(self) -> None:
        row = self.row([kernel(0, 100)], [("b", 0, 10), ("c", 10, 30), ("a", 40, 50)])
        self.assertEqual(column(row["regions"], "region"), ["c", "a", "b"])

    def test_longest_of_regions_that_begin_together_contains_the_others(self) -> None:
        row = self.row([kernel(0, 100)], [("in", 10, 20), ("out", 10, 30)])
        self.assertEqual(tree(row), [("out", 0, 1, 20), ("in", 1, 1, 10)])

    def test_region_that_begins_where_another_ends_is_not_nested_in_it(self) -> None:
        row = self.row([kernel(0, 100)], [("a", 10, 20), ("b", 20, 30), ("instant", 20, 20)])
        self.assertEqual(tree(row), [("a", 0, 1, 10), ("b", 0, 1, 10), ("instant", 1, 1, 0)])

    def test_region_is_truncated_at_the_end_of_its_parent_or_execution(self) -> None:
        row = self.row([kernel(0, 100)], [("a", 10, 20), ("b", 15, 27), ("c", 90, 130)])
        self.assertEqual(tree(row), [("a", 0, 1, 10), ("b", 1, 1, 5), ("c", 0, 1, 10)])
        assert_adds_up(self, row)

    def test_region_belongs_to_the_execution_in_which_it_begins(self) -> None:
        first, second = result_of(
            [kernel(0, 100), leaf(100, 50), kernel(150, 60, "other.1"), kernel(210, 5, "none.1")],
            [
                # `z` begins in the first kernel and `x` in the second; `y` begins in the op between
                # them, which is not a kernel.
                *(("x", 150, 160), ("y", 149, 170), ("y", 100, 160), ("z", 99, 100))
            ],
        )["kernels"][:2]
        self.assertEqual((first["kernel"], tree(first)), ("flash", [("z", 0, 1, 1)]))
        self.assertEqual((second["kernel"], tree(second)), ("other", [("x", 0, 1, 10)]))

    def test_regions_belong_to_the_inner_of_two_nested_kernels(self) -> None:
        outer, inner = result_of(
            [kernel(0, 100), kernel(20, 10, "inner.1")],
            [("a", 5, 50), ("b", 20, 25), ("c", 30, 40)],
        )["kernels"]
        self.assertEqual(tree(outer), [("a", 0, 1, 45), ("c", 1, 1, 10)])
        self.assertEqual(tree(inner), [("b", 0, 1, 5)])

    def test_waits_of_the_core_are_not_regions(self) -> None:
        result = result_of(
            [kernel(0, 100)], [("barrier-cores", 0, 50), ("dependency-wait", 50, 60)]
        )
        [row] = result["kernels"]
        for field in ("regions", "waiting_ps", "waiting_pct", "computing_ps", "outside_regions_ps"):
            self.assertIsNone(row[field])
        self.assertTrue(any(note.startswith(NO_REGIONS) for note in result["notes"]))

    def test_regions_are_summed_over_all_steps(self) -> None:
        ops, regions = [kernel(0, 100), kernel(2000, 50)], [("a", 0, 10), ("a", 2000, 2003)]
        self.assertEqual(tree(self.row(ops, regions)), [("a", 0, 1, 10)])
        self.assertEqual(tree(self.row(ops, regions, options=["--step", "all"])), [("a", 0, 2, 13)])


class Waiting(unittest.TestCase):
    def row(self, *regions: Drawn) -> Json:
        [row] = result_of([kernel(0, 200)], regions)["kernels"]
        found: Json = row
        return found

    def test_regions_that_wait_are_recognised_by_name(self) -> None:
        row = self.row(
            ("ep_wait_in", 0, 50),
            ("ep_wait_out", 50, 60),
            ("loop/wait_scores", 60, 63),
            # Not waiting: the part after the last `/` does not begin with `wait`.
            ("wait/math", 70, 80),
            ("await", 80, 90),
            ("ep_copy_in", 90, 99),
        )
        self.assertEqual((row["waiting_ps"], row["waiting_pct"]), (63, 31.5))
        self.assertEqual(
            [region["region"] for region in row["regions"] if not region["waits"]],
            ["await", "wait/math", "ep_copy_in"],
        )

    def test_nested_waiting_regions_count_once(self) -> None:
        row = self.row(("ep_wait_in", 0, 50), ("wait", 10, 20), ("x", 20, 30), ("wait", 22, 24))
        self.assertEqual(row["waiting_ps"], 50)
        self.assertEqual(column(row["regions"], "waits"), [True] * 4)

    def test_computing_is_the_time_of_the_body_without_waiting_inside_it(self) -> None:
        row = self.row(
            *(("ep_run_kernel", 0, 100), ("dot", 0, 60), ("wait_dma", 10, 25)),
            *(("ep_run_kernel", 70, 80), ("ep_wait_in", 75, 76), ("ep_wait_in", 100, 130)),
        )
        self.assertEqual((row["computing_ps"], row["waiting_ps"]), (84, 46))


class Clocks(unittest.TestCase):
    def test_regions_are_placed_on_the_device_clock(self) -> None:
        # On the trace clock, the regions are outside of the kernel.
        [row] = result_of(
            [kernel(0, 100)],
            [("a", 500, 510, 1010, 30), ("b", 500, 505, 1020, 5)],
            measured=[(1000, 90)],
        )["kernels"]
        self.assertEqual(tree(row), [("a", 0, 1, 30), ("b", 1, 1, 5)])
        self.assertEqual(row["total_dur_ps"], 90)

    def test_device_times_of_regions_are_ignored_on_the_trace_clock(self) -> None:
        result = result_of([kernel(0, 100)], [("a", 10, 30, 1010, 5)])
        self.assertEqual(result["clock"], "trace")
        self.assertEqual(tree(result["kernels"][0]), [("a", 0, 1, 20)])

    def test_region_without_device_times_is_shifted_like_the_nearest_op(self) -> None:
        # The kernel begins 1000 ps later on the device clock than on the trace clock, and ends
        # 990 ps later.
        [row] = result_of(
            [kernel(0, 100), leaf(200, 10)],
            [("a", 10, 20), ("b", 60, 70), ("other", 195, 199)],
            measured=[(1000, 90), (1300, 10)],
        )["kernels"]
        self.assertEqual(tree(row), [("a", 0, 1, 10), ("b", 0, 1, 10)])
        [row] = result_of([kernel(0, 100)], [("a", 40, 60)], measured=[(1000, 90)])["kernels"]
        # The region lasts from 1040 to 1050.
        self.assertEqual(tree(row), [("a", 0, 1, 10)])


class Rows(unittest.TestCase):
    OPS = (
        kernel(0, 100, "flash.3", stack="m.py:3:1", tf_op="jit(f)/a/flash:"),
        kernel(100, 50, "flash.4", stack="m.py:4:1", tf_op="jit(f)/a/flash:"),
        kernel(150, 200, "other.1"),
        leaf(350, 10),
        kernel(360, 30, "flash.3", stack="m.py:3:1", tf_op="jit(f)/a/flash:"),
    )

    def test_value_that_differs_between_ops_of_a_kernel_is_null(self) -> None:
        result = result_of(self.OPS)
        self.assertEqual(
            column(result["kernels"], "kernel", "hlo_op", "n_ops", "n_executions"),
            [("other", "other.1", 1, 1), ("flash", "flash.3", 2, 3)],
        )
        flash = result["kernels"][1]
        times = ("total_dur_ps", "min_dur_ps", "avg_dur_ps", "max_dur_ps", "pct_of_step")
        self.assertEqual([flash[name] for name in times], [180, 30, 60, 100, 18.0])
        self.assertEqual((flash["scope"], flash["source_is"]), ("a", "own"))
        self.assertEqual((flash["source_inner"], flash["source_user"]), (None, None))
        self.assertEqual((flash["flops"], flash["cost_source"]), (None, None))

    def test_top_keeps_the_longest_kernels_and_the_tail_sums_the_rest(self) -> None:
        ops = [kernel(10 * i, i % 9 + 1, f"k{i}.1") for i in range(12)]
        result = result_of(ops)
        self.assertEqual(len(result["kernels"]), 10)
        self.assertEqual(result["tail"], {"n_kernels_omitted": 2, "dur_ps": 2})
        result = result_of(ops, options=["--top", "0"])
        self.assertEqual(result["tail"], {"n_kernels_omitted": 12, "dur_ps": 51})

    def test_step_without_kernels_has_no_rows_and_a_note(self) -> None:
        target = ', custom_call_target="ConcatBitcast"'
        result = result_of([leaf(0, 10), leaf(10, 5, "c.1", attributes=target)])
        self.assertEqual(result["kernels"], [])
        self.assertIn("the step runs no kernels", " ".join(result["notes"]))
        self.assertFalse(any(note.startswith(NO_REGIONS) for note in result["notes"]))

    def test_roof_of_a_kernel_with_a_given_cost_is_summed_over_its_ops(self) -> None:
        # The peak is 2 flops per picosecond.
        result = result_of(self.OPS, options=[*PEAKS, "--kernel-cost", "flash=20,0,bf16"])
        flash = result["kernels"][1]
        self.assertEqual((flash["flops"], flash["cost_source"]), (20, "user"))
        self.assertEqual((flash["at_roof_ps"], flash["lost_ps"]), (30, 150))
        self.assertIsNone(result["kernels"][0]["at_roof_ps"])


class Asked(unittest.TestCase):
    """Test `--kernel`, which shows the ops of one kernel."""

    REGIONS = (("a", 0, 10), ("a", 100, 103))

    def ops(self, name: str) -> list[tuple[str, int]]:
        result = result_of(Rows.OPS, self.REGIONS, options=["--kernel", name])
        rows = result["kernels"]
        self.assertEqual(column(rows, "n_ops"), [1] * len(rows))
        return [(row["hlo_op"], row["total_dur_ps"]) for row in rows]

    def test_name_of_a_kernel_selects_its_ops(self) -> None:
        self.assertEqual(self.ops("flash"), [("flash.3", 130), ("flash.4", 50)])

    def test_row_of_an_op_has_only_its_own_regions(self) -> None:
        rows = result_of(Rows.OPS, self.REGIONS, options=["--kernel", "flash"])["kernels"]
        self.assertEqual([tree(row) for row in rows], [[("a", 0, 1, 10)], [("a", 0, 1, 3)]])

    def test_op_of_several_programs_has_a_row_for_each_program(self) -> None:
        ops = [kernel(0, 10, program_id=7), kernel(10, 20, program_id=8)]
        result = result_of(ops, options=["--kernel", "flash.3"])
        self.assertEqual(column(result["kernels"], "total_dur_ps"), [20, 10])

    def test_unknown_and_ambiguous_names_are_rejected(self) -> None:
        for name in ("nowhere", "", "flash.", "f.1"):
            outcome = run(traced(Rows.OPS), "kernel", "--kernel", name)
            self.assertEqual(outcome.status, 1)
            self.assertEqual(outcome.object["reason"], "kernel_not_found")
            self.assertEqual(outcome.object["available_kernels"], ["other", "flash"])
