"""Declare the sentences and tables that `--format text` shows for the other modes of one step.

This is data alone; `_output/layout.py` says what the parts mean.
"""

from __future__ import annotations

from _output.layout import Column, Each, End, Says, Table
from _output.text_of_time import (
    AVERAGE,
    KIND,
    LIKELY,
    OP_LINE,
    PEAKS,
    RUNS,
    STEP_SHARE,
    TIME,
    TOTAL,
    more,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.layout import Part

COMM: tuple[Part, ...] = (
    Says(
        "\nexposed {totals.exposed_ps:time} ({totals.exposed_pct_of_step:percent} of the step);"
        " in flight {totals.in_flight_union_ps:time}, of this {totals.hidden_union_ps:time} hidden"
        " by math or copies"
    ),
    Says(
        "host: exposed {totals.host_ps:time}; in flight {totals.host_in_flight_union_ps:time},"
        " hidden {totals.host_hidden_union_ps:time}",
        when="totals.host_in_flight_union_ps",
    ),
    Table(
        "by collective; run is time on the core, wait is waiting for asynchronous ones",
        "totals.by_collective",
        (
            Column("collective", "key"),
            Column("run", "sync_dur_ps", "time"),
            Column("wait", "wait_dur_ps", "time"),
            RUNS,
            Column("payload", "payload_bytes", "bytes"),
        ),
    ),
    Table(
        "by line; moved is the bytes on the bus, GB/s a lower bound of their rate",
        "rows",
        (
            Column("run", "sync_dur_ps", "time"),
            Column("wait", "wait_dur_ps", "time"),
            RUNS,
            Column("hidden", "covered_ps", "time", null=""),
            Column("moved", "bus_bytes", "bytes"),
            Column("GB/s", "bus_gbps", "number"),
            Column("collective", "collective"),
            Column("groups", "groups"),
            LIKELY,
        ),
        ends=(
            more("rows", "tail.n_rows_omitted", run="tail.sync_dur_ps", wait="tail.wait_dur_ps"),
        ),
    ),
)

BYTES = Column("size", "bytes", "bytes")
BUFFERS = Column("buffers", "n_buffers", "count")
MEMORY: tuple[Part, ...] = (
    Says(
        "\n{peak_bytes:bytes} live at the peak ({by_kind:bytes}),"
        " {reserved_bytes:bytes} reserved; {padding_bytes:bytes} are padding"
    ),
    Says(
        "the peak is at {peak_at.hlo_op}, {peak_at.source_inner:file}",
        when="peak_at",
    ),
    Says(
        "runtime: {runtime.peak_bytes:bytes} of {runtime.capacity_bytes:bytes} at its peak"
        " ({runtime.peak_reserved_bytes:bytes} reserved for programs,"
        " {runtime.peak_allocated_bytes:bytes} of arrays),"
        " at least {runtime.min_available_bytes:bytes} free",
        when="runtime",
    ),
    Table(
        "buffers live at the peak",
        "buffers",
        (
            BYTES,
            Column("% peak", "pct_of_peak", "percent"),
            KIND,
            Column("shape", "shape", "shape"),
            Column("op", "hlo_op"),
            Column("line", ("source_inner", "tf_op"), "file"),
        ),
        ends=(
            more("buffers", "tail.n_buffers_omitted", size="tail.bytes"),
            End("peak_bytes", {"line": "all", "size": "peak_bytes"}),
        ),
    ),
    Table("by line", "by_source", (BYTES, BUFFERS, Column("line", "source_inner", "file"))),
    Table(
        "by argument",
        "by_argument",
        (BYTES, BUFFERS, Column("argument", "argument", null="(none)")),
    ),
    Table("by opcode", "by_opcode", (BYTES, BUFFERS, Column("opcode", "opcode", null="(none)"))),
    Table(
        "by op name", "by_op_name", (BYTES, BUFFERS, Column("op name", "tf_op", "file", "(none)"))
    ),
    Table(
        "in other memory spaces (1 is VMEM, 5 the host's memory)",
        "other_spaces",
        (Column("size", "value", "bytes"), Column("space", "key")),
        by="value",
        unless_0="value",
    ),
)

IDLE: tuple[Part, ...] = (
    Table(
        "why nothing runs",
        "idle_by_cause",
        (Column("cause", "key"), Column("time", "value", "time")),
        unless_0="value",
        ends=(
            End("totals.idle_duration_ps", {"cause": "idle", "time": "totals.idle_duration_ps"}),
        ),
    ),
    Table(
        "the longest gaps",
        "gaps",
        (
            TIME,
            STEP_SHARE,
            Column("cause", "cause"),
            Column("after", "after_hlo_op", "op", "(start)"),
            Column("before", "before_hlo_op", "op", "(end)"),
            Column("host", ("host.0.within.0", "host.0.event"), null=""),
        ),
    ),
    Table(
        "what the host did in these gaps, numbered from 1",
        "gaps[].host",
        (
            Column("gap", "^", "count"),
            TIME,
            Column("only waits", "still"),
            Column("thread", "thread"),
            Column("event", "event"),
            Column("within", "within", null=""),
        ),
    ),
    Table(
        "what the host did in all gaps of at least 1 us",
        "host_events",
        (TIME, Column("threads", "n_threads", "count"), Column("event", "event")),
    ),
)

PROGRAM: tuple[Part, ...] = (
    Says(
        "\n{n_instructions:count} instructions in {n_computations:count} computations,"
        " {n_fusions:count} fusions, for {n_devices:count} devices"
    ),
    Says(
        "{aliased_bytes:bytes} of parameters become outputs in place,"
        " {donated_unused_bytes:bytes} were donated in vain"
    ),
    Table(
        "collectives",
        "collectives",
        (
            Column("collective", "collective"),
            Column("how", "how"),
            Column("plan", "plan", null=""),
            Column("ops", "n_instructions", "count"),
            RUNS,
            Column("run", "sync_dur_ps", "time"),
            Column("wait", "wait_dur_ps", "time"),
            Column("payload", "payload_bytes", "bytes"),
        ),
    ),
    Table(
        "{flags.n:count} flags are set; these are about collectives",
        "flags.findings",
        (
            Column("flag", "flag", "file"),
            Column("set to", "set_to", null="(not set)"),
            Column("ops", "n_instructions", "count"),
            Column("seen", "n_seen", "count"),
            Column("exposed", "exposed_ps", "time"),
            Column("says", "says", null=""),
        ),
    ),
    Table(
        "kernels",
        "kernels",
        (
            TOTAL,
            RUNS,
            Column("ops", "n_instructions", "count"),
            Column("VMEM", "vmem_used_bytes", "bytes"),
            Column("limit", "vmem_limit_bytes", "bytes"),
            Column("declared", "declared.flops", "flops"),
            Column("kernel", "kernel"),
        ),
    ),
    Table(
        "ops that the compiler tried more than once",
        "retries",
        (
            Column("op", "hlo_op"),
            Column("retries", "retry_count", "count"),
            TOTAL,
            RUNS,
            Column("VMEM", "vmem_used_bytes", "bytes"),
            Column("limit", "vmem_limit_bytes", "bytes"),
        ),
    ),
    Table(
        "parameters",
        "parameters",
        (
            BYTES,
            Column("no.", "number", "count"),
            Column("path", "path"),
            Column("shape", "shape", "shape"),
            Column("of", "global_shape"),
            Column("sharding", "sharding"),
            Column("in place", "aliased_to_output"),
        ),
        ends=(
            End(
                "tail.n_parameters_omitted",
                {"size": "tail.bytes", "path": "{tail.n_parameters_omitted} more"},
            ),
        ),
    ),
    Says("\ninstructions: {opcodes:count}"),
    Says("flags set: {flags.set:values}", when="flags.set"),
)

KERNEL: tuple[Part, ...] = (
    Table(
        "kernels; waits is time in regions that only wait for copies, body that of ep_run_kernel",
        "kernels",
        (
            TOTAL,
            STEP_SHARE,
            RUNS,
            AVERAGE,
            Column("% waits", "waiting_pct", "percent", null=""),
            Column("body", "computing_ps", "time", null=""),
            Column("lost", "lost_ps", "time"),
            Column("VMEM", "vmem_used_bytes", "bytes"),
            Column("kernel", "kernel"),
            OP_LINE,
        ),
        ends=(more("kernels", "tail.n_kernels_omitted", time="tail.dur_ps"),),
    ),
    Each(
        "kernels",
        (
            Table(
                "inside {kernel}; {outside_regions_ps:time} are in no region",
                "regions",
                (
                    Column("region", "region", depth="depth"),
                    Column("waits", "waits"),
                    Column("time", "total_dur_ps", "time"),
                    Column("self", "self_dur_ps", "time"),
                    Column("%", "pct_of_kernel", "percent"),
                    Column("times", "n", "count"),
                ),
            ),
            Table(
                "counters during {kernel}, static estimates of the compiler",
                "counters",
                (
                    Column("counter", "name"),
                    Column("stat", "stat"),
                    Column("n", "n", "count"),
                    Column("least", "min", "number"),
                    Column("most", "max", "number"),
                ),
            ),
        ),
    ),
    PEAKS,
)

PARTS = {
    "comm": COMM,
    "memory": MEMORY,
    "idle": IDLE,
    "program": PROGRAM,
    "kernel": KERNEL,
}
