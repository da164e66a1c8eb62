"""Describe the output of mode `non_compute`: data movement and waits, by category and line."""

from __future__ import annotations

from typing import Final

from _output.columns import AVERAGE, CATEGORY, KIND, LINE, RUNS, TOTAL
from _output.screen import Column, Part, Says, Table

MAIN: Final = "by_source_within_category"

PARTS: tuple[Part, ...] = (
    Says(
        "\nThis step has no data movement or waits to list. --include-comm also lists synchronous"
        " collectives, and --mode comm shows all communication.",
        when="!by_category",
    ),
    Says(
        "not listed: {totals.left_out_ps.comm:time} of communication (--include-comm)",
        when="totals.left_out_ps.comm",
    ),
    Table(
        "data movement and waits take {totals.non_compute_duration_ps:time},"
        " {totals.non_compute_pct_of_step:percent} of the step",
        "by_category",
        (TOTAL, RUNS, AVERAGE, Column("groups", "n_groups", "count"), KIND, CATEGORY),
        by="total_dur_ps",
        size="total_dur_ps",
        what="category",
        tail={"time": ""},
    ),
    Table(
        "by line; casts and layout are the times of ops that change dtype or layout",
        "by_source_within_category",
        (
            TOTAL,
            RUNS,
            Column("casts", "dtype_change_dur_ps", "time"),
            Column("layout", "layout_change_dur_ps", "time"),
            CATEGORY,
            LINE,
            # The likely line has a column of its own, because it is inferred and applies only to
            # the costliest part of the group.
            Column(
                "likely line",
                ("likely_sources.0.source_user", "likely_sources.0.source_inner"),
                "file",
                null="",
                least=18,
            ),
        ),
        by="total_dur_ps",
        size="total_dur_ps",
        what="row",
        omitted="tail.n_groups_omitted",
        tail={"time": "tail.dur_ps"},
    ),
)
