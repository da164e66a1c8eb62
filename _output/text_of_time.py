"""Declare the sentences and tables that `--format text` shows for modes that divide a step's time.

This is data alone; `_output/layout.py` says what the parts mean.
"""

from __future__ import annotations

from _output.layout import Column, Each, End, Says, Table

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.layout import Part

# Columns that many tables have. The line is the user's own, else the innermost, else the key.
LINE = Column("line", ("source_user", "source_inner", "agg_key"), "file", least=24)
# Ops and kernels have no key.
OP_LINE = Column("line", ("source_user", "source_inner"), "file", least=24)
LIKELY = Column("line", ("source_user", "source_inner"), "file", "(none known)", least=18)
KIND = Column("kind", "kind", least=9)
CLASS = Column("class", "class", least=13)
STEP_SHARE = Column("% step", "pct_of_step", "percent")
RUNS = Column("runs", "n_executions", "count")
TOTAL = Column("time", "total_dur_ps", "time")
TIME = Column("time", "dur_ps", "time")
AVERAGE = Column("each", "avg_dur_ps", "time")
CATEGORY = Column("category", "hlo_category")
PHASES = Column("phases", "phases", "initials", null="")


def more(what: str, count: str, **cells: str) -> End:
    """Return a row for what `--top` leaves out."""
    return End(count, {"line": f"{{{count}}} more {what}", **cells})


PEAKS = Says(
    "\npeaks of {chip}: {peaks_used.peak_tflops_bf16} TFLOP/s in bf16,"
    " {peaks_used.peak_tflops_fp8} in fp8, {peaks_used.peak_tflops_fp32} in fp32;"
    " {peaks_used.peak_hbm_gibps} GiB/s of HBM"
)

PEERS = Says(
    "\nof communication with other devices {totals.peers.transfer_ps:time} is transfer,"
    " {totals.peers.peer_wait_ps:time} waiting for a late device,"
    " {totals.peers.unmatched_ps:time} not known",
    when="totals.peers.by_device",
)

BOTTLENECK: tuple[Part, ...] = (
    PEERS,
    Says("\nwhy: causes, those with most gain first and recomputation last", when="causes"),
    Each(
        "causes",
        (
            Says(
                "{rank}. {cause}, {confidence}: {says:whole} What helps: {what_helps:whole}",
            ),
        ),
    ),
    Table(
        "where the step goes; lost is what the chip would not need, ? is unknown",
        "budget",
        (
            CLASS,
            TIME,
            STEP_SHARE,
            Column("at roof", "at_roof_ps", "time", of="n_executions"),
            Column("lost", "lost_ps", "time", of="n_executions"),
            Column("can hide", "hideable_ps", "time", null=""),
            Column("runs", "n_executions", "count", null=""),
        ),
        unless_0="dur_ps",
        ends=(
            End(
                "step_duration_ps",
                {
                    "class": "step",
                    "time": "step_duration_ps",
                    "at roof": "speed_of_light.at_roof_ps",
                },
            ),
        ),
    ),
    Table(
        "the lines that lose most",
        "findings",
        (
            Column("lost", "lost_ps", "time"),
            TIME,
            STEP_SHARE,
            CLASS,
            Column("what", ("kernel", "waits_for", "top_signature"), "what"),
            LINE,
        ),
        ends=(
            more("findings", "tail.n_findings_omitted", time="tail.dur_ps", lost="tail.lost_ps"),
        ),
    ),
    Says(
        "\nBottleneck: {bottleneck}. At the chip's roofs the step would take"
        " {speed_of_light.pct_at_least:percent} to {speed_of_light.pct_at_most:percent} of it."
    ),
    Says("MFU {mfu_at_least:share} at least.", when="!recompute_dur_ps"),
    Says(
        "MFU {mfu_at_least:share} at least, {hfu_at_least:share} with recomputation, which takes"
        " {recompute_dur_ps:time} ({recompute_pct_of_step:percent}).",
        when="recompute_dur_ps",
    ),
    Says("MFU {mfu:share} by the flops that were given.", when="mfu"),
    Says("{tokens_per_s:number} tokens a second.", when="tokens_per_s"),
    Says("Idle: {idle_by_cause:time}.", when="totals.idle_duration_ps"),
)

SUMMARY: tuple[Part, ...] = (
    Table(
        "where the step goes",
        "by_kind_rollup",
        (
            Column("kind", "key"),
            TIME,
            STEP_SHARE,
            Column("runs", "n", "count"),
        ),
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
        "the costliest lines, forward (F), backward (B) or recomputed (R)",
        "top_compute_groups",
        (
            TOTAL,
            STEP_SHARE,
            RUNS,
            KIND,
            PHASES,
            Column("mostly", "hlo_op_breakdown.0.signature", "what"),
            LINE,
        ),
        ends=(more("lines", "tail_compute.n_groups_omitted", time="tail_compute.dur_ps"),),
    ),
    Table(
        "compute by phase",
        "by_phase_rollup",
        (
            Column("phase", "key"),
            TIME,
            Column("% compute", "pct_of_compute", "percent"),
            Column("runs", "n", "count"),
        ),
        unless_0="n",
    ),
    Table(
        "communication and waiting",
        "comm_rollup",
        (
            Column("waits for", "waits_for"),
            Column("runs on core", "sync_dur_ps", "time"),
            Column("is waited for", "wait_dur_ps", "time"),
            STEP_SHARE,
            Column("runs", "n", "count"),
            Column("longest op", "longest_hlo_op", "op"),
        ),
    ),
    Table(
        "kernels",
        "kernels",
        (TOTAL, STEP_SHARE, RUNS, AVERAGE, Column("kernel", "kernel"), PHASES, OP_LINE),
    ),
    Table(
        "by category; containers enclose other ops",
        "by_hlo_category",
        (CATEGORY, KIND, TOTAL, STEP_SHARE, RUNS),
    ),
    Table(
        "the longest gaps",
        "idle_gaps",
        (
            TIME,
            STEP_SHARE,
            Column("after", "after_hlo_op", "op", "(start)"),
            Column("before", "before_hlo_op", "op", "(end)"),
            Column("inside", "inside", null=""),
        ),
    ),
    Table(
        "steps by name; {steps_rollup.n_without_ops:count} of {steps_rollup.n:count} have no op,"
        " {steps_rollup.between_steps_ps:time} are between steps",
        "steps_rollup.by_name",
        (
            Column("step", "name", null="(numbered)"),
            Column("n", "n", "count"),
            TOTAL,
            Column("median", "median_dur_ps", "time"),
            Column("least", "min_dur_ps", "time"),
            Column("most", "max_dur_ps", "time"),
        ),
    ),
    Table(
        "all steps, on the trace's clock",
        "steps",
        (
            Column("index", "index", "count"),
            Column("step", "name"),
            Column("time", "duration_ps", "time"),
            Column("ops", "n_xla_ops_events", "count"),
            Column("picked", "picked", null=""),
        ),
    ),
)

BY_SOURCE: tuple[Part, ...] = (
    Table(
        "{totals.n_groups_total:count} groups of ops of one stack and kind; compute takes"
        " {totals.compute_duration_ps:time}",
        "groups",
        (
            TOTAL,
            STEP_SHARE,
            RUNS,
            KIND,
            PHASES,
            Column("mostly", "hlo_op_breakdown.0.signature", "what"),
            Column("scope", "scopes.0.scope", "file", null=""),
            LINE,
        ),
        by="total_dur_ps",
        ends=(more("groups", "tail.n_groups_omitted", time="tail.dur_ps"),),
    ),
)

BY_SCOPE: tuple[Part, ...] = (
    Table(
        "scopes with everything below; self is only the scope's own ops, again is recomputation",
        "scopes",
        (
            Column("scope", "name", null="(all)", depth="depth"),
            TOTAL,
            Column("self", "self_dur_ps", "time"),
            STEP_SHARE,
            Column("fwd", "phases.forward", "time", null=""),
            Column("bwd", "phases.backward", "time", null=""),
            Column("again", "phases.recompute", "time", null=""),
            Column("comm", "kinds.comm", "time", null=""),
        ),
        ends=(
            End(
                "no_scope.n_executions",
                {"scope": "(no scope)", "time": "no_scope.dur_ps", "comm": "no_scope.kinds.comm"},
            ),
        ),
    ),
    Says("{n_scopes_omitted:count} deeper scopes are in --depth all", when="n_scopes_omitted"),
    Table(
        "ops without a scope, by the line of the data that they move or wait for",
        "no_scope.likely_sources",
        (TIME, RUNS, Column("by", "source_is", null="", least=8), LIKELY),
    ),
)

OP_COLUMNS = (
    TOTAL,
    STEP_SHARE,
    RUNS,
    Column("lost", "lost_ps", "time"),
    Column("TFLOP/s", "achieved_tflops", "number"),
    Column("GB/s", "achieved_gbps", "number"),
    Column("op", "hlo_op"),
    OP_LINE,
)
OF_PROGRAM = (
    Column("name", "name"),
    Column("opcode", "opcode"),
    Column("shape", "shape", "shape"),
    Column("line", "source_inner", "file"),
)
ONE_OP: tuple[Part, ...] = (
    Says("\n{op.hlo_op}: {op.hlo_category}, {op.class}, {op.phase}, in {op.scope:file}"),
    Says(
        "{op.n_executions:count} runs, {op.total_dur_ps:time} ({op.pct_of_step:percent} of the"
        " step), each {op.min_dur_ps:time} to {op.max_dur_ps:time};"
        " at its roof {op.at_roof_ps:time}, lost {op.lost_ps:time}"
    ),
    Says(
        "each {op.flops:flops}, {op.hbm_bytes:bytes} of HBM:"
        " {op.achieved_tflops:number} TFLOP/s, {op.achieved_gbps:number} GB/s"
    ),
    Says("line: {op.source_user:file} ({op.source_is}), innermost {op.source_inner:file}"),
    Says("stack: {op.source_stack:stack}", when="op.source_stack"),
    Says("text: {op.text:whole}"),
    Says("parts: {op.program.chain:whole}", when="op.program.chain"),
    Table("operands", "op.program.operands", OF_PROGRAM),
    Table("users", "op.program.users", OF_PROGRAM),
    Each(
        "op.program.called",
        (
            Table(
                "{n_instructions:count} instructions in {name}",
                "instructions",
                (
                    OF_PROGRAM[0],
                    OF_PROGRAM[1],
                    Column("operands", "operands", null=""),
                    *OF_PROGRAM[2:],
                ),
            ),
        ),
    ),
)
BY_OP: tuple[Part, ...] = (
    *ONE_OP,
    Table(
        "ops; lost is what the chip would not need",
        "ops",
        OP_COLUMNS,
        ends=(more("ops", "tail.n_ops_omitted", time="tail.dur_ps"),),
    ),
    Table(
        "containers, which enclose other ops",
        "containers",
        (TOTAL, RUNS, Column("op", "hlo_op"), CATEGORY),
    ),
    PEAKS,
)

NON_COMPUTE: tuple[Part, ...] = (
    Table(
        "{totals.non_compute_duration_ps:time} is not math,"
        " {totals.non_compute_pct_of_step:percent} of the step",
        "by_category",
        (
            TOTAL,
            RUNS,
            AVERAGE,
            Column("groups", "n_groups", "count"),
            KIND,
            CATEGORY,
        ),
        by="total_dur_ps",
    ),
    Table(
        "by line; casts and layout are the time of runs that change dtype or layout",
        "by_source_within_category",
        (
            TOTAL,
            RUNS,
            Column("casts", "dtype_change_dur_ps", "time"),
            Column("layout", "layout_change_dur_ps", "time"),
            CATEGORY,
            LINE,
            # This line is inferred, and only for the longest part of a group, so it is not in the
            # column "line".
            Column(
                "likely first",
                ("likely_sources.0.source_user", "likely_sources.0.source_inner"),
                "file",
                null="",
                least=18,
            ),
        ),
        by="total_dur_ps",
        ends=(more("rows", "tail.n_groups_omitted", time="tail.dur_ps"),),
    ),
)

ROOFLINE: tuple[Part, ...] = (
    Table(
        "lines by what they lose against the roof; mfu, hbm and roof are percent of it",
        "groups",
        (
            Column("lost", "shortfall_ps", "time"),
            TOTAL,
            Column("mfu", "mfu", "share"),
            Column("hbm", "hbm_util", "share"),
            Column("roof", "roofline_util", "share"),
            Column("bound", "bound", least=7),
            Column("dtype", "dtype"),
            Column("flop/byte", "arithmetic_intensity", "number"),
            Column("kernel", "kernel", null=""),
            LINE,
        ),
        by="shortfall_ps",
        ends=(
            more("groups", "tail.n_groups_omitted", time="tail.dur_ps", lost="tail.shortfall_ps"),
            End(
                "step_summary.rooflined_dur_ps",
                {
                    "line": "all",
                    "time": "step_summary.rooflined_dur_ps",
                    "lost": "step_summary.step_shortfall_ps",
                    "mfu": "step_summary.weighted_avg_mfu",
                    "hbm": "step_summary.weighted_avg_hbm_util",
                    "roof": "step_summary.weighted_avg_roofline_util",
                },
            ),
        ),
    ),
    Says(
        "\nThat is {step_summary.rooflined_pct_of_compute:percent} of compute; the other"
        " {skipped_groups.total_dur_ps_skipped:time} have no verdict."
    ),
    Table(
        "the longest without a verdict",
        "skipped_groups.top_skipped",
        (
            TOTAL,
            Column("hbm", "hbm_util", "share"),
            Column("why", "reason", least=22),
            Column("mostly", "top_signature", "what"),
            LINE,
        ),
    ),
    PEAKS,
)

PARTS = {
    "bottleneck": BOTTLENECK,
    "summary": SUMMARY,
    "by_source": BY_SOURCE,
    "by_scope": BY_SCOPE,
    "by_op": BY_OP,
    "non_compute": NON_COMPUTE,
    "roofline": ROOFLINE,
}
