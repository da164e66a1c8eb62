"""Describe the output of mode `summary`: kinds, lines, phases, communication, kernels, categories,
gaps and steps."""

from __future__ import annotations

from typing import Final

from _output.columns import (
    AVERAGE,
    CATEGORY,
    KIND,
    LINE,
    MOSTLY,
    OP_LINE,
    PHASES,
    RUNS,
    STEP_SHARE,
    TIME,
    TOTAL,
)
from _output.screen import Column, End, Part, Says, Table

MAIN: Final = "top_compute_groups"

PARTS: tuple[Part, ...] = (
    Table(
        "where the step goes",
        "by_kind_rollup",
        (Column("kind", "key", "word"), TIME, STEP_SHARE, Column("runs", "n", "count")),
        unless_0="n",
        ends=(
            End(
                "totals.idle_duration_ps",
                {
                    "kind": "idle",
                    "time": "totals.idle_duration_ps",
                    "% step": "totals.idle_pct_of_step",
                },
            ),
            End("step_duration_ps", {"kind": "step", "time": "step_duration_ps"}),
        ),
    ),
    Table(
        "the costliest lines; phases: forward (F), backward (B), recompute (R), other (O)",
        "top_compute_groups",
        (TOTAL, STEP_SHARE, RUNS, KIND, PHASES, MOSTLY, LINE),
        size="total_dur_ps",
        what="line",
        omitted="tail_compute.n_groups_omitted",
        tail={"time": "tail_compute.dur_ps"},
    ),
    Table(
        "compute by phase",
        "by_phase_rollup",
        (
            Column("phase", "key", "word"),
            TIME,
            Column("% compute", "pct_of_compute", "percent"),
            Column("runs", "n", "count"),
        ),
        unless_0="n",
    ),
    Says(
        "recomputation takes {recompute_total_dur_ps:time}"
        " ({recompute_total_pct_of_step:percent} of the step), including communication and copies",
        when="recompute_total_dur_ps",
    ),
    Table(
        "communication and waiting",
        "comm_rollup",
        (
            Column("waits for", "waits_for", "word"),
            Column("on core", "sync_dur_ps", "time"),
            Column("waiting", "wait_dur_ps", "time"),
            STEP_SHARE,
            Column("runs", "n", "count"),
            Column("longest op", "longest_hlo_op", "op"),
        ),
        size="pct_of_step",
        whole="",
        tail={"waiting": "", "on core": ""},
    ),
    Table(
        "kernels",
        "kernels",
        (TOTAL, STEP_SHARE, RUNS, AVERAGE, Column("kernel", "kernel"), PHASES, OP_LINE),
        size="total_dur_ps",
        what="kernel",
        tail={"time": ""},
    ),
    Table(
        "by category; containers enclose other ops",
        "by_hlo_category",
        (CATEGORY, KIND, TOTAL, STEP_SHARE, RUNS),
        size="total_dur_ps",
        what="category",
        tail={"time": ""},
    ),
    Table(
        "the longest idle gaps",
        "idle_gaps",
        (
            TIME,
            STEP_SHARE,
            Column("after", "after_hlo_op", "op", "(start)"),
            Column("before", "before_hlo_op", "op", "(end)"),
            Column("inside", "inside", null=""),
        ),
        size="dur_ps",
        what="gap",
        tail={"time": ""},
    ),
    Table(
        "steps by name; {steps_rollup.n_without_ops:count} of {steps_rollup.n:count} have no ops;"
        " time between steps: {steps_rollup.between_steps_ps:time}",
        "steps_rollup.by_name",
        (
            Column("step", "name", null="(numbered)"),
            Column("n", "n", "count"),
            TOTAL,
            Column("median", "median_dur_ps", "time"),
            Column("min", "min_dur_ps", "time"),
            Column("max", "max_dur_ps", "time"),
        ),
    ),
    Table(
        "all steps, on the {clock:word}'s clock",
        "steps",
        (
            Column("index", "index", "count"),
            Column("step", "name"),
            Column("time", "duration_ps", "time"),
            Column("ops", "n_xla_ops_events", "count"),
            Column("picked", "picked", "word", null=""),
        ),
        most=10,
        what="step",
        tail={"time": ""},
    ),
)
