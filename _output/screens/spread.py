"""Describe the output of mode `spread`: the slow device, and the load of each device."""

from __future__ import annotations

from typing import Final

from _output.columns import LINE, SCOPE
from _output.screen import Column, Each, End, Part, Says, Section, Table

MAIN: Final = "cohorts[].devices"

HOST, DEVICE = Column("host", "host"), Column("device", "device")
LOADS = (
    Column("load", "load_ps", "time"),
    Column("own", "own_ps", "time"),
    Column("comm", "comm_ps", "time"),
    Column("on host", "host_ps", "time"),
    Column("idle", "idle_ps", "time"),
    Column("step", "step_duration_ps", "time"),
    Column("slowest in", "n_slowest", "count"),
)
STEP = "devices.0.step_duration_ps"

PARTS: tuple[Part, ...] = (
    Says(
        "{mode:word}: {profile_dir:file}; devices: {n_devices:count}, hosts: {n_hosts:count}",
        when="n_devices",
    ),
    Each(
        "cohorts",
        (
            Says(
                "\nprogram {program}; devices: {n_devices:count}, hosts: {n_hosts:count},"
                " steps in common: {n_steps:count}"
            ),
            Says("no verdict: {verdict.why_not:word}", when="verdict.why_not"),
            Says("imbalance: {verdict.imbalance:word}", when="verdict.imbalance"),
            Says(
                "a step saves {verdict.gain_ps:time} ({verdict.gain_pct_of_step:percent}) if the"
                " slowest device becomes as fast as the second slowest",
                when="verdict.gain_ps",
            ),
            Says(
                "a step saves {verdict.host_gain_ps:time} if the slow host becomes as fast as the"
                " second slowest",
                when="verdict.host_gain_ps",
            ),
            Section(
                (
                    Says(
                        "straggler: {verdict.straggler.device} of {verdict.straggler.host},"
                        " slowest in {verdict.n_slowest:count} of {verdict.n_steps:count} steps"
                        " (p = {verdict.p_value:number});"
                        " scope {verdict.scope:word}, cause {verdict.cause:word}",
                        when="verdict.straggler",
                    ),
                    Says(
                        "; {verdict.uniform_pct:percent} of the excess is a uniform slowdown of all"
                        " lines",
                        when="verdict.straggler verdict.uniform_pct",
                        continues=True,
                    ),
                )
            ),
            Says(
                "slow host: {verdict.slow_host.host}; its fastest device is slower than that of any"
                " other host in {verdict.slow_host.n_slowest:count} of {verdict.n_steps:count}"
                " steps (p = {verdict.slow_host.p_value:number})",
                when="verdict.slow_host",
            ),
            Section(
                (
                    Table(
                        "devices; load is the step without communication, own is the load without"
                        " host and idle time",
                        "devices",
                        (*LOADS, DEVICE, HOST),
                        most=10,
                        what="device",
                        omitted="tail.n_devices_omitted",
                        tail={"slowest in": "tail.n_slowest"},
                    ),
                    Table(
                        "hosts",
                        "hosts",
                        (*LOADS, Column("devices", "n_devices", "count"), HOST),
                        most=5,
                        fewest=2,
                        what="host",
                        tail={"slowest in": ""},
                    ),
                )
            ),
            Table(
                "{slowest_vs_median.slow.device} of {slowest_vs_median.slow.host} compared with"
                " {slowest_vs_median.median.device} of {slowest_vs_median.median.host}:"
                " {slowest_vs_median.excess_ps:delta}",
                "slowest_vs_median.rows",
                (
                    Column("median", "median_ps", "time"),
                    Column("slow", "slow_ps", "time"),
                    Column("change", "delta_ps", "delta"),
                    Column("%", "delta_pct", "change"),
                    Column("kind", "kind", "word"),
                    Column("kernel", "kernel", null="", least=12),
                    LINE,
                    SCOPE,
                ),
                size="delta_ps",
                whole=STEP,
                most=8,
                what="line",
                tail={"change": ""},
                ends=(
                    End(
                        "slowest_vs_median.rest_ps",
                        {"change": "slowest_vs_median.rest_ps", "line": "the rest"},
                    ),
                ),
            ),
            Table(
                "steps",
                "steps",
                (
                    Column("step", "name"),
                    Column("max load", "max_load_ps", "time"),
                    Column("mean", "mean_load_ps", "time"),
                    Column("gain", "gain_ps", "time"),
                    Column("slowest", "slowest.device"),
                    Column("host", "slowest.host"),
                ),
                only="top",
                takes_top=True,
                what="step",
            ),
        ),
    ),
)
