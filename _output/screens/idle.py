"""Describe the output of mode `idle`: why the device is idle, and what the host does at that
time."""

from __future__ import annotations

from typing import Final

from _output.columns import STEP_SHARE, TIME
from _output.screen import Column, End, Part, Says, Section, Table

MAIN: Final = "gaps"

PARTS: tuple[Part, ...] = (
    Says(
        "this step is 1 of {capture.n_steps:count}; {capture.in_no_step_ps:time} of"
        " {capture.dur_ps:time} ({capture.in_no_step_pct:percent}) pass between steps",
        when="step_source capture.n_steps",
    ),
    Section(
        (
            Table(
                "why the device is idle",
                "idle_by_cause",
                (Column("cause", "key", "word"), Column("time", "value", "time")),
                unless_0="value",
                ends=(
                    End(
                        "totals.idle_duration_ps",
                        {"cause": "idle", "time": "totals.idle_duration_ps"},
                    ),
                ),
            ),
            Table(
                "the longest idle gaps",
                "gaps",
                (
                    TIME,
                    STEP_SHARE,
                    Column("cause", "cause", "word"),
                    Column("after", "after_hlo_op", "op", "(start)"),
                    Column("before", "before_hlo_op", "op", "(end)"),
                    Column("host", ("host.0.within.0", "host.0.event"), null=""),
                ),
                size="dur_ps",
                what="gap",
                tail={"time": ""},
            ),
        )
    ),
    Table(
        "what the host did in these gaps (gap 1 is the longest)",
        "gaps[].host",
        (
            Column("gap", "^", "count"),
            TIME,
            Column("in period", "in_period_ps", "time", null=""),
            Column("only waits", "still", "word"),
            Column("launches", "is_launching", "word", null=""),
            Column("thread", "thread"),
            Column("event", "event"),
            Column("within", "within", null=""),
        ),
        size="dur_ps",
        most=10,
        what="row",
    ),
    Table(
        "what the host did in all gaps of at least 1 us",
        "host_events",
        (TIME, Column("threads", "n_threads", "count"), Column("event", "event")),
        size="dur_ps",
        most=10,
        what="event",
    ),
)
