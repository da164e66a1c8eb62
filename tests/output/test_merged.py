"""Test the rows of a line that text adds up."""

from __future__ import annotations

import unittest
from typing import Any

from _breakdown.modes import module_named
from _breakdown.output.fill import is_figure
from _breakdown.output.merged import SUMS, merged_lines

Json = dict[str, Any]

# Figures that all rows of a line share, or that are left out if they differ.
OF_LINE = ("line_dur_ps", "loop.trips")


def group(line: str | None, time: int, **more: Any) -> Json:
    return {
        "source_user": line,
        "source_inner": line,
        "agg_key": f"key {time}",
        "total_dur_ps": time,
        "n_executions": 1,
        **more,
    }


class Merged(unittest.TestCase):
    def test_groups_of_a_line_are_added_up_and_named_by_the_costliest(self) -> None:
        rows = merged_lines([group("a", 10), group("b", 15), group("a", 20)])
        found = [(row["source_user"], row["total_dur_ps"], row["n_merged"]) for row in rows]
        self.assertEqual(found, [("a", 30, 2), ("b", 15, 1)])
        self.assertEqual((rows[0]["n_executions"], rows[0]["agg_key"]), (2, "key 20"))

    def test_groups_without_a_line_and_of_other_kinds_stay_separate(self) -> None:
        groups = [group(None, 1), group(None, 2)]
        for name in ("kind", "hlo_category", "source_is"):
            groups += [group("a", 3, **{name: "x"}), group("a", 4, **{name: "y"})]
        self.assertEqual(len(merged_lines(groups)), len(groups))

    def test_figures_of_merged_rows_are_sums_or_the_same_for_the_whole_line(self) -> None:
        n_tables = 0
        for mode in ("summary", "by_source", "non_compute"):
            for table in module_named(mode).PARTS:
                if getattr(table, "merges_lines", False):
                    n_tables += 1
                    figures = {column.path for column in table.columns if is_figure(column)}
                    advice = (
                        f"{mode}: add a figure that may be added up to SUMS, or say here why not"
                    )
                    self.assertLessEqual(figures, {*SUMS, *OF_LINE}, advice)
        self.assertEqual(n_tables, 3)

    def test_sum_with_an_unknown_part_is_unknown(self) -> None:
        groups = [group("a", time, layout_change_dur_ps=part) for time, part in ((1, 5), (2, None))]
        self.assertIsNone(merged_lines(groups)[0]["layout_change_dur_ps"])
