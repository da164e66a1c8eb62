"""Describe the output of mode `roofline`: how far each line of math is from its roof."""

from __future__ import annotations

from typing import Any, Final

from _output.columns import LINE, OF_ROOF, PEAKS, TOTAL, with_reads
from _output.screen import Column, End, Part, Says, Table

Json = dict[str, Any]

MAIN: Final = "groups"
LOST: Final = Column("lost", "shortfall_per_op_ps", "time")


def prepared(fields: Json) -> Json:
    """Add `lost_of_groups`, the sum of the groups' losses; null if `--top` omits groups."""
    losses = [row["shortfall_per_op_ps"] or 0 for row in fields.get("groups", ())]
    is_whole = not fields.get("tail", {}).get("n_groups_omitted")
    return {**fields, "lost_of_groups": sum(losses) if is_whole else None}


def with_roof(row: Json) -> Json:
    at_roof, lost = row["t_roofline_per_op_ps"], row["shortfall_per_op_ps"]
    return {**row, "pct_of_roof": 100 * at_roof / (at_roof + lost) if at_roof else None}


PARTS: tuple[Part, ...] = (
    Table(
        "lines by time lost beyond the roof; mfu and hbm are utilizations in percent",
        "groups",
        (
            LOST,
            TOTAL,
            Column("mfu", "mfu", "share"),
            Column("hbm", "hbm_util", "share"),
            OF_ROOF,
            Column("bound", "bound", "word", least=7),
            Column("dtype", "dtype", "word", also=(" ({reads})",), least=12),
            Column("flop/byte", "arithmetic_intensity", "number"),
            Column("kernel", "kernel", null=""),
            LINE,
        ),
        derive=lambda rows: [with_roof(with_reads(row)) for row in rows],
        by="shortfall_per_op_ps",
        size="total_dur_ps",
        what="group",
        omitted="tail.n_groups_omitted",
        tail={"time": "tail.dur_ps"},
        ends=(
            End(
                "step_summary.rooflined_dur_ps",
                {
                    "line": "all",
                    "time": "step_summary.rooflined_dur_ps",
                    "lost": "lost_of_groups",
                    "mfu": "step_summary.weighted_avg_mfu",
                    "hbm": "step_summary.weighted_avg_hbm_util",
                },
            ),
        ),
    ),
    Says(
        "\nThese lines take {step_summary.rooflined_pct_of_compute:percent} of math."
        " The flops, bytes or peak of the other {skipped_groups.total_dur_ps_skipped:time} are"
        " unknown."
    ),
    Table(
        "the costliest lines of which flops, bytes or a peak are unknown",
        "skipped_groups.top_skipped",
        (
            LOST._replace(null="?"),
            TOTAL,
            Column("hbm", "hbm_util", "share"),
            OF_ROOF,
            Column("why", "reason", "word", least=22),
            Column("mostly", "top_signature", "what"),
            LINE,
        ),
        derive=lambda rows: [with_roof(row) for row in rows],
        size="total_dur_ps",
        what="group",
        tail={"time": ""},
    ),
    PEAKS,
)
