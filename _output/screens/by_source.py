"""Describe the output of mode `by_source`: groups of ops with the same stack and kind."""

from __future__ import annotations

from typing import Final

from _output.screen import Column, Part, Says, Section, Table
from _output.screens.shared import KIND, LINE, LOOP, MOSTLY, PHASES, RUNS, STEP_SHARE, TOTAL

MAIN: Final = "groups"

PARTS: tuple[Part, ...] = (
    Section(
        (
            Says(
                "not listed: {totals.left_out_ps.comm:time} of communication (--include-comm)",
                when="totals.left_out_ps.comm",
            ),
            Says(
                "not listed: {totals.left_out_ps.data_move:time} of data movement"
                " (--include-data-move)",
                when="totals.left_out_ps.data_move",
            ),
        )
    ),
    Table(
        "groups of ops with the same stack and kind: {totals.n_groups_total:count}; math takes"
        " {totals.compute_duration_ps:time}",
        "groups",
        (
            TOTAL,
            STEP_SHARE,
            RUNS,
            KIND,
            PHASES,
            MOSTLY,
            LOOP,
            Column("scope", "scopes.0.scope", "file", null=""),
            LINE,
        ),
        by="total_dur_ps",
        size="total_dur_ps",
        what="group",
        omitted="tail.n_groups_omitted",
        tail={"time": "tail.dur_ps"},
    ),
)
