"""Describe the output of mode `kernel`: Pallas kernels, their regions and counters."""

from __future__ import annotations

from typing import Final

from _output.columns import AVERAGE, LOST, OP_LINE, PEAKS, RUNS, STEP_SHARE, TOTAL
from _output.screen import Column, Each, Part, Table

MAIN: Final = "kernels"

PARTS: tuple[Part, ...] = (
    Table(
        "kernels; waits: time in regions that only wait for copies, body: time in ep_run_kernel",
        "kernels",
        (
            TOTAL,
            STEP_SHARE,
            RUNS,
            AVERAGE,
            Column("% waits", "waiting_pct", "percent", null=""),
            Column("body", "computing_ps", "time", null=""),
            LOST,
            Column("VMEM", "vmem_used_bytes", "bytes"),
            Column("kernel", "kernel"),
            OP_LINE,
        ),
        size="total_dur_ps",
        what="kernel",
        omitted="tail.n_kernels_omitted",
        tail={"time": "tail.dur_ps"},
    ),
    Each(
        "kernels",
        (
            Table(
                "inside {kernel}; {outside_regions_ps:time} is outside all regions",
                "regions",
                (
                    Column("region", "region", depth="depth"),
                    Column("waits", "waits", "word"),
                    Column("time", "total_dur_ps", "time"),
                    Column("self", "self_dur_ps", "time"),
                    Column("%", "pct_of_kernel", "percent"),
                    Column("n", "n", "count"),
                ),
                size="total_dur_ps",
                whole="total_dur_ps",
                what="region",
                tail={"self": ""},
            ),
            Table(
                "counters of {kernel}, estimated by the compiler",
                "counters",
                (
                    Column("counter", "name"),
                    Column("stat", "stat"),
                    Column("n", "n", "count"),
                    Column("min", "min", "number"),
                    Column("max", "max", "number"),
                ),
            ),
        ),
    ),
    PEAKS,
)
