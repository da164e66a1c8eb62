"""Describe the output of mode `roofline`: how far each line of math is from its roof."""

from __future__ import annotations

from _output.screen import Column, End, Says, Table
from _output.screens.shared import LINE, PEAKS, TOTAL, with_reads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

    from _output.screen import Part

MAIN: Final = "groups"

PARTS: tuple[Part, ...] = (
    Table(
        "lines by time lost beyond the roof; mfu, hbm and roof are utilizations in percent",
        "groups",
        (
            Column("lost", "shortfall_ps", "time"),
            TOTAL,
            Column("mfu", "mfu", "share"),
            Column("hbm", "hbm_util", "share"),
            Column("roof", "roofline_util", "share"),
            Column("bound", "bound", "word", least=7),
            Column("dtype", "dtype", "word", also=(" (reads {reads})",)),
            Column("flop/byte", "arithmetic_intensity", "number"),
            Column("kernel", "kernel", null=""),
            LINE,
        ),
        derive=lambda rows, _: [with_reads(row) for row in rows],
        by="shortfall_ps",
        size="total_dur_ps",
        what="group",
        omitted="tail.n_groups_omitted",
        tail={"time": "tail.dur_ps", "lost": "tail.shortfall_ps"},
        ends=(
            End(
                "step_summary.rooflined_dur_ps",
                {
                    "line": "all",
                    "time": "step_summary.rooflined_dur_ps",
                    "lost": "step_summary.step_shortfall_ps",
                    "mfu": "step_summary.weighted_avg_mfu",
                    "hbm": "step_summary.weighted_avg_hbm_util",
                    "roof": "step_summary.weighted_avg_roofline_util",
                },
            ),
        ),
    ),
    Says(
        "\nThese lines take {step_summary.rooflined_pct_of_compute:percent} of math; the other"
        " {skipped_groups.total_dur_ps_skipped:time} have no known roof."
    ),
    Table(
        "the costliest lines without a known roof",
        "skipped_groups.top_skipped",
        (
            TOTAL,
            Column("hbm", "hbm_util", "share"),
            Column("why", "reason", "word", least=22),
            Column("mostly", "top_signature", "what"),
            LINE,
        ),
        size="total_dur_ps",
        what="group",
        tail={"time": ""},
    ),
    PEAKS,
)
