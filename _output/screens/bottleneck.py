"""Describe the output of mode `bottleneck`: causes, classes, and the lines that lose the most
time."""

from __future__ import annotations

from typing import Any, Final

from _output.columns import (
    CLASS,
    LINE,
    LOOP,
    LOST,
    OP_LINE,
    PEERS,
    RUNS,
    SCOPE,
    STEP_SHARE,
    TIME,
)
from _output.figures import figure
from _output.screen import Column, Part, Says, Section, Table

Json = dict[str, Any]

MAIN: Final = "findings"


def told_once(rows: list[Json]) -> list[Json]:
    """Add `advice` to rows: what helps, unless a row above has the same advice."""
    told: set[str | None] = set()
    found = []
    for row in rows:
        advice = row.get("what_helps")
        found.append({**row, "advice": None if advice in told else advice})
        told.add(advice)
    return found


def with_sentences(causes: list[Json]) -> list[Json]:
    """Add the sentences below a cause: `in_full`, and `in_short` for the first cause and for a
    second one that gains at least 5 % of the step."""
    rows = told_once(causes)
    for i, row in enumerate(rows):
        helps = f" What helps: {row['advice']}" if row["advice"] else ""
        row["in_full"] = row["says"] + helps
        if i == 0 or (i == 1 and (row["gain_pct_of_step"] or 0) >= 5):
            first = row["says"].partition(". ")[0].removesuffix(".")
            row["in_short"] = f"{first}.{helps if i == 0 else ''}"
    return rows


def prepared(fields: Json) -> Json:
    """Add `hfu_if_other`: the utilization with recomputation, unless it is printed like the MFU."""
    mfu, hfu = fields.get("mfu_at_least"), fields.get("hfu_at_least")
    is_other = mfu is not None and hfu is not None and figure(mfu, "share") != figure(hfu, "share")
    return {**fields, "hfu_if_other": hfu if is_other else None}


WHAT = Column("what", ("kernel", "waits_for", "top_signature"), "what", least=12)

PARTS: tuple[Part, ...] = (
    PEERS,
    Table(
        "",
        "causes",
        (
            Column("gain", "gain_ps", "time", of="gain_ps"),
            Column("%", "gain_pct_of_step", "percent", of="gain_ps"),
            Column("cause", "cause", "word", also=(" ({confidence})",)),
            Column("line", ("source_user", "source_inner"), "file", null=""),
        ),
        size="gain_ps",
        part=100,
        most=3,
        takes_top=True,
        what="cause",
        group=with_sentences,
        below="{in_short:whole}",
        below_all="{in_full:whole}",
    ),
    Section(
        (
            Table(
                "",
                "budget",
                (
                    Column("where the step goes", "class", "word"),
                    TIME,
                    STEP_SHARE,
                    Column("at roof", "at_roof_ps", "time", of="n_executions"),
                    Column("lost", "lost_ps", "time", of="n_executions"),
                    Column("hideable", "hideable_ps", "time", null=""),
                    Column("runs", "n_executions", "count", null=""),
                ),
                unless_0="dur_ps",
                size="dur_ps",
                part=100,
                what="class",
                tail={"time": ""},
            ),
            Says(
                "The chip needs {speed_of_light.at_least_ps:time} to"
                " {speed_of_light.at_most_ps:time}."
            ),
            Says(
                "MFU is at least {mfu_at_least:share}.",
                when="mfu_at_least !hfu_if_other",
                continues=True,
            ),
            Says(
                "MFU is at least {mfu_at_least:share}, or {hfu_if_other:share} with recomputation"
                " ({recompute_total_dur_ps:time}).",
                when="mfu_at_least hfu_if_other",
                continues=True,
            ),
            Says(
                "MFU is unknown, because too few flops are known.",
                when="!mfu_at_least",
                continues=True,
            ),
            Says("MFU is {mfu:share} for the given model flops.", when="mfu", continues=True),
            Says("{tokens_per_s:number} tokens per second.", when="tokens_per_s", continues=True),
        )
    ),
    Table(
        "",
        "lines",
        (
            LOST,
            TIME,
            STEP_SHARE,
            Column("lines that lose most", LINE.path, "file", least=20),
            CLASS,
            Column("mostly", "mostly", "what", least=12),
            SCOPE,
        ),
        size="dur_ps",
        most=4,
        takes_top=True,
        what="line",
        omitted="tail.n_lines_omitted",
        tail={"time": "tail.lines_dur_ps", "lost": "tail.lines_lost_ps"},
    ),
    Table(
        "",
        "findings",
        (
            LOST,
            TIME,
            STEP_SHARE,
            Column("findings", LINE.path, "file", least=20),
            CLASS,
            WHAT,
            LOOP,
            SCOPE,
        ),
        size="dur_ps",
        takes_top=True,
        what="finding",
        omitted="tail.n_findings_omitted",
        tail={"time": "tail.dur_ps", "lost": "tail.lost_ps"},
        only="all",
        group=told_once,
        below_all="{shape:shape}: {advice:whole}",
    ),
    Table(
        "",
        "kernels_of_unknown_cost",
        (
            TIME,
            STEP_SHARE,
            RUNS,
            Column("kernels of unknown cost", "kernel"),
            OP_LINE,
            SCOPE,
        ),
        size="dur_ps",
        most=3,
        takes_top=True,
        what="kernel",
        omitted="tail.n_kernels_omitted",
        tail={"time": "tail.kernels_dur_ps"},
    ),
)
