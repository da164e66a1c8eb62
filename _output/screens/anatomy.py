"""Describe the output of mode `anatomy`: what is in the file."""

from __future__ import annotations

from typing import Final

from _output.screen import Column, Each, Part, Says, Table

MAIN: Final = "planes"

PARTS: tuple[Part, ...] = (
    Says("{mode:word}: {trace:file}, {file_bytes:bytes}, host {hostnames}"),
    Says("versions: {versions:values}", when="versions"),
    Says("profiler options: {profile_options:values}", when="profile_options"),
    Says("errors: {errors:whole}", when="errors"),
    Says("warnings: {warnings:whole}", when="warnings"),
    Table(
        "planes",
        "planes",
        (
            Column("size", "bytes", "bytes"),
            Column("names", "n_event_metadata", "count"),
            Column("stats", "n_stat_metadata", "count"),
            Column("plane", "name"),
        ),
    ),
    Each(
        "planes",
        (
            Table(
                "lines of {name}",
                "lines",
                (
                    Column("events", "n_events", "count"),
                    Column("size", "bytes", "bytes"),
                    Column("busy", "busy_ps", "time"),
                    Column("names", "n_names", "count"),
                    Column("line", "name"),
                    Column("shown as", "display_name", null=""),
                ),
            ),
            Each(
                "lines",
                (
                    Table(
                        "events of {name}: the costliest of {n_names:count} names",
                        "names",
                        (
                            Column("time", "total_dur_ps", "time"),
                            Column("n", "n", "count"),
                            Column("name", "name"),
                        ),
                    ),
                    Table(
                        "counters of {name}",
                        "counters",
                        (
                            Column("n", "n", "count"),
                            Column("min", "min", "number"),
                            Column("mean", "mean", "number"),
                            Column("max", "max", "number"),
                            Column("first", "first", "number"),
                            Column("last", "last", "number"),
                            Column("name", "name"),
                            Column("stat", "stat"),
                        ),
                    ),
                    Table(
                        "first events of {name}",
                        "sample",
                        (
                            Column("time", "dur_ps", "time"),
                            Column("name", "name"),
                            Column("stats", "stats", "values", null=""),
                        ),
                    ),
                ),
            ),
        ),
    ),
    Table(
        "programs",
        "programs",
        (Column("HLO", "hlo_bytes", "bytes"), Column("id", "program_id"), Column("name", "name")),
    ),
)
