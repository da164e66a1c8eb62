"""Describe the output of mode `comm`: the cost of communication, by collective and by line."""

from __future__ import annotations

from typing import Final

from _output.columns import LIKELY, LOOP, PEERS, RUNS
from _output.screen import Column, Part, Says, Section, Table

MAIN: Final = "rows"

PARTS: tuple[Part, ...] = (
    Says(
        "\nNo communication ran in this step. If other steps communicate, pick one with --step N"
        " (--mode summary lists the steps), or use --step all.",
        when="!rows !totals.host_in_flight_union_ps",
    ),
    Section(
        (
            Says(
                "\nexposed {totals.exposed_ps:time} ({totals.exposed_pct_of_step:percent} of the"
                " step); in flight {totals.in_flight_union_ps:time}, of which"
                " {totals.hidden_union_ps:time} is hidden by math or copies",
                when="totals.exposed_ps",
            ),
            Says(
                "host: exposed {totals.host_ps:time} ({totals.host_pct_of_step:percent} of the"
                " step); in flight {totals.host_in_flight_union_ps:time}, of which"
                " {totals.host_hidden_union_ps:time} is hidden",
                when="totals.host_in_flight_union_ps",
            ),
            Table(
                "by collective; run is time on the core, wait is for asynchronous collectives",
                "totals.by_collective",
                (
                    Column("collective", "key", "word"),
                    Column("run", "sync_dur_ps", "time"),
                    Column("wait", "wait_dur_ps", "time"),
                    RUNS,
                    Column("payload", "payload_bytes", "bytes"),
                ),
            ),
        )
    ),
    PEERS,
    Table(
        "by device; caused is the time that all devices together wait for this device",
        "totals.peers.by_device",
        (
            Column("device", "device"),
            Column("waits", "peer_wait_ps", "time"),
            Column("last", "n_last", "count"),
            Column("caused", "caused_ps", "time"),
            Column("at barriers", "barrier_ps", "time"),
        ),
    ),
    Table(
        "waiting for a late device, by line",
        "rows",
        (
            Column("transfer", "transfer_ps", "time"),
            Column("waits", "peer_wait_ps", "time"),
            Column("collective", "collective", "word"),
            Column("last device", "last_device", null=""),
            Column("% of waits", "last_pct", "percent", null=""),
            LIKELY,
        ),
        by="peer_wait_ps",
        unless_0="peer_wait_ps",
        size="peer_wait_ps",
        what="row",
    ),
    Table(
        "by line; moved is the bytes on the bus, GB/s a lower bound on the bandwidth",
        "rows",
        (
            Column("run", "sync_dur_ps", "time"),
            Column("wait", "wait_dur_ps", "time"),
            RUNS,
            Column("hidden", "covered_ps", "time", null=""),
            Column("moved", "bus_bytes", "bytes"),
            Column("GB/s", "bus_gbps", "number"),
            Column("collective", "collective", "word", least=10),
            LOOP,
            Column("groups", "groups", "word", null="", least=6),
            LIKELY._replace(least=16),
        ),
        size="pct_of_step",
        whole="",
        what="row",
        omitted="tail.n_rows_omitted",
        tail={"run": "tail.sync_dur_ps", "wait": "tail.wait_dur_ps"},
    ),
)
