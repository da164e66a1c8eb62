"""Show by_source: the groups of ops of one stack and kind."""

from __future__ import annotations

from _output.screen import Column, Table
from _output.screens.shared import KIND, LINE, MOSTLY, PHASES, RUNS, STEP_SHARE, TOTAL

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from _output.screen import Part

MAIN: Final = "groups"

PARTS: tuple[Part, ...] = (
    Table(
        "{totals.n_groups_total:count} groups of ops of one stack and kind; compute takes"
        " {totals.compute_duration_ps:time}",
        "groups",
        (
            TOTAL,
            STEP_SHARE,
            RUNS,
            KIND,
            PHASES,
            MOSTLY,
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
