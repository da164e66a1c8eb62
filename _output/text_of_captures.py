"""Declare the sentences and tables that `--format text` shows for modes about captures.

This is data alone; `_output/layout.py` says what the parts mean.
"""

from __future__ import annotations

from _output.layout import Column, Each, End, Says, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.layout import Part

HOST, DEVICE = Column("host", "host"), Column("device", "device")
P_VALUE = Column("p", "p_value", "chance")
SIGNIFICANT = Column("significant", "significant")
CHANGE = (
    Column("change", "delta_ps", "delta"),
    Column("%", "delta_pct", "change"),
)
BEFORE_AFTER = (
    Column("before", "before_ps", "time"),
    Column("after", "after_ps", "time"),
    *CHANGE,
)

LINE_AFTER = ("source_inner", "before_source_inner", "agg_keys_after.0", "agg_keys_before.0")
COMPARE: tuple[Part, ...] = (
    Says("{mode}: {baseline_dir:file} before, {profile_dir:file} after"),
    *(
        Says(
            f"{side}: {{{side}.n_steps:count}} steps on {{{side}.device}} of {{{side}.host}}"
            f" ({{{side}.device_type}}), {{{side}.xplane_file:file}},"
            f" on the {{{side}.clock}}'s clock"
        )
        for side in ("before", "after")
    ),
    Table(
        "changes of the compiled program",
        "program_changes.rows",
        (
            Column("what", "what"),
            Column("name", "name", null=""),
            Column("before", "before", "values", null="-"),
            Column("after", "after", "values", null="-"),
        ),
    ),
    Says("The devices are of different types.", when="!same_device_type"),
    Table(
        "means over the steps, above 0 is slower; significant is more than noise between steps",
        "totals",
        (Column("total", "key"), *BEFORE_AFTER, P_VALUE, SIGNIFICANT),
    ),
    Table(
        "by file",
        "by_file",
        (
            *BEFORE_AFTER,
            P_VALUE,
            SIGNIFICANT,
            Column("rows", "n_rows", "count"),
            Column("file", ("file", "before_file"), "file", "(none known)"),
        ),
    ),
    Table(
        "by line; p up to {noise.alpha} is significant",
        "rows",
        (
            *BEFORE_AFTER,
            P_VALUE,
            Column("kind", "kind"),
            Column("matched by", "matched_by"),
            Column("line", LINE_AFTER, "file"),
        ),
        ends=(
            *(
                End(
                    f"tail.by_kind.{kind}.before_ps",
                    {
                        "before": f"tail.by_kind.{kind}.before_ps",
                        "after": f"tail.by_kind.{kind}.after_ps",
                        "change": f"tail.by_kind.{kind}.delta_ps",
                        "kind": kind,
                        "line": "in more rows",
                    },
                )
                for kind in ("compute", "data_move", "comm", "other")
            ),
            End("tail.n_rows_omitted", {"line": "{tail.n_rows_omitted:count} more rows"}),
        ),
    ),
    Says(
        "\nwithout a counterpart: {unmatched.before_ps:time} before"
        " ({unmatched.before_pct:percent}), {unmatched.after_ps:time} after"
        " ({unmatched.after_pct:percent})"
    ),
    Table(
        "how lines were matched",
        "by_match",
        (
            Column("matched by", "key"),
            Column("rows", "n_rows", "count"),
            Column("before", "before_ps", "time"),
            Column("after", "after_ps", "time"),
        ),
        unless_0="n_rows",
    ),
)

LOADS = (
    Column("load", "load_ps", "time"),
    Column("own", "own_ps", "time"),
    Column("comm", "comm_ps", "time"),
    Column("on host", "host_ps", "time"),
    Column("idle", "idle_ps", "time"),
    Column("step", "step_duration_ps", "time"),
    Column("slowest in", "n_slowest", "count"),
)
SPREAD: tuple[Part, ...] = (
    Says(
        "{mode}: {profile_dir:file}; devices: {n_devices:count}, hosts: {n_hosts:count}",
        when="n_devices",
    ),
    Each(
        "cohorts",
        (
            Says(
                "\nprogram {program}; devices: {n_devices:count}, hosts: {n_hosts:count},"
                " steps in common: {n_steps:count}"
            ),
            Says("no verdict: {verdict.why_not}", when="verdict.why_not"),
            Says("imbalance: {verdict.imbalance}", when="verdict.imbalance"),
            Says(
                "straggler: {verdict.straggler.device} of {verdict.straggler.host}, slowest in"
                " {verdict.n_slowest:count} of {verdict.n_steps:count} steps"
                " (p = {verdict.p_value:number});"
                " scope {verdict.scope}, cause {verdict.cause}",
                when="verdict.straggler",
            ),
            Says(
                "no straggler: no device is the slowest in more than {verdict.n_slowest:count} of"
                " {verdict.n_steps:count} steps (p = {verdict.p_value:number})",
                when="!verdict.straggler",
            ),
            Table(
                "devices; load is the step without communication, own is the load without host"
                " transfers and idling",
                "devices",
                (*LOADS, DEVICE, HOST),
                ends=(
                    End(
                        "tail.n_devices_omitted", {"device": "{tail.n_devices_omitted:count} more"}
                    ),
                ),
            ),
            Table(
                "hosts",
                "hosts",
                (*LOADS, Column("devices", "n_devices", "count"), HOST),
            ),
            Table(
                "{slowest_vs_median.slow.device} of {slowest_vs_median.slow.host} against"
                " {slowest_vs_median.median.device} of {slowest_vs_median.median.host}:"
                " {slowest_vs_median.excess_ps:delta}",
                "slowest_vs_median.rows",
                (
                    Column("median", "median_ps", "time"),
                    Column("slow", "slow_ps", "time"),
                    *CHANGE,
                    Column("kind", "kind"),
                    Column("line", ("source_inner", "agg_key"), "file"),
                ),
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
                    Column("most load", "max_load_ps", "time"),
                    Column("mean", "mean_load_ps", "time"),
                    Column("imbalance", "imbalance_ps", "time"),
                    Column("% step", "imbalance_pct_of_step", "percent"),
                    Column("slowest", "slowest.device"),
                    Column("host", "slowest.host"),
                ),
            ),
        ),
    ),
)

ANATOMY: tuple[Part, ...] = (
    Says("{mode}: {trace:file}, {file_bytes:bytes}, host {hostnames}"),
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
                        "events of {name}: the longest of {n_names:count} names",
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
                            Column("least", "min", "number"),
                            Column("mean", "mean", "number"),
                            Column("most", "max", "number"),
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

PARTS = {
    "compare": COMPARE,
    "spread": SPREAD,
    "anatomy": ANATOMY,
}
