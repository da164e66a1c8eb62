"""Describe the output of mode `by_op`: the costliest ops, and the details of one op."""

from __future__ import annotations

from typing import Any, Final

from _output.columns import (
    AVERAGE,
    CATEGORY,
    LOOP,
    LOST,
    OF_ROOF,
    PEAKS,
    RUNS,
    STEP_SHARE,
    TOTAL,
    with_reads,
)
from _output.screen import Column, Each, Part, Says, Section, Table

Json = dict[str, Any]

MAIN: Final = "ops"


def prepared(fields: Json) -> Json:
    """Add the tail of the main table, and drop `ops` if `merged` has the rows. If the answer has
    `op`, add the field `reads` to it."""
    fields = {**fields, "op": with_reads(fields["op"])} if fields.get("op") else fields
    if "merged" not in fields:
        return fields
    ops, tail, rows = fields["ops"], fields["tail"], fields["merged"]
    n_ops = len(ops) + tail["n_ops_omitted"] - sum(row["n_ops"] for row in rows)
    time = sum(row["total_dur_ps"] for row in ops) + tail["dur_ps"]
    time -= sum(row["total_dur_ps"] for row in rows)
    fields = {**fields, "tail": {"n_ops_omitted": n_ops, "dur_ps": time}}
    del fields["ops"]
    return fields


def with_all_shares(rows: list[Json]) -> list[Json]:
    return [with_shares(row) for row in rows]


def with_shares(row: Json) -> Json:
    """Return a row with the number of ops and runs, and the share of the time at the roof."""
    n_ops = row.get("n_ops", 1)
    each = row.get("n_executions_each", row["n_executions"])
    known = row["at_roof_ps"] and row["total_dur_ps"]
    return {
        **row,
        "pct_of_roof": 100 * row["at_roof_ps"] / row["total_dur_ps"] if known else None,
        "ops_x_runs": f"{n_ops}, {row['n_executions']} runs"
        if each is None
        else f"{n_ops} x {each}",
        "n_merged": n_ops,
    }


OF_PROGRAM = (
    Column("name", "name"),
    Column("opcode", "opcode", "word"),
    Column("shape", "shape", "shape"),
    Column("line", "source_inner", "file"),
)
ONE_OP: tuple[Part, ...] = (
    Says(
        "\n{op.hlo_op}: {op.hlo_category}, {op.class:word}, {op.phase:word}, in {op.scope:file}",
        when="op.scope",
    ),
    Says("\n{op.hlo_op}: {op.hlo_category}, {op.class:word}, {op.phase:word}", when="!op.scope"),
    Section(
        (
            Says(
                "runs: {op.n_executions:count}, total {op.total_dur_ps:time}"
                " ({op.pct_of_step:percent} of step), each {op.min_dur_ps:time} to"
                " {op.max_dur_ps:time}; at roof {op.at_roof_ps:time}, lost {op.lost_ps:time}"
            ),
        )
    ),
    Says(
        "per run: {op.flops:flops}, {op.hbm_bytes:bytes} of HBM traffic;"
        " {op.achieved_tflops:number} TFLOP/s, {op.achieved_gbps:number} GB/s"
    ),
    Section(
        (
            Says("dtype {op.dtype:word}"),
            Says("(reads {op.reads})", when="op.reads", continues=True),
            Says("; in a loop with {op.loop.trips:number} trips", when="op.loop", continues=True),
        )
    ),
    Says("line: {op.source_user:file} ({op.source_is:word}), innermost {op.source_inner:file}"),
    Says("stack: {op.source_stack:stack}", when="op.source_stack"),
    Says("text: {op.text:whole}"),
    Says("parts: {op.program.chain:whole}", when="op.program.chain"),
    Table("operands", "op.program.operands", OF_PROGRAM),
    Table("users", "op.program.users", OF_PROGRAM),
    Each(
        "op.program.called",
        (
            Table(
                "instructions in {name}: {n_instructions:count}",
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
OPS = Table(
    "ops; lost is the time beyond the roof",
    "ops",
    (
        TOTAL,
        STEP_SHARE,
        LOST,
        Column("ops x runs", "ops_x_runs", "word"),
        AVERAGE,
        OF_ROOF,
        LOOP,
        Column("op", "hlo_op", also=(" · {scope}",), least=30),
    ),
    derive=with_all_shares,
    size="total_dur_ps",
    most=10,
    takes_top=True,
    what="op",
    omitted="tail.n_ops_omitted",
    tail={"time": "tail.dur_ps"},
)
PARTS: tuple[Part, ...] = (
    *ONE_OP,
    OPS._replace(title=f"{OPS.title}, * stands for a number", rows="merged"),
    OPS,
    Table(
        "containers, which enclose other ops",
        "containers",
        (TOTAL, RUNS, Column("op", "hlo_op"), CATEGORY),
        size="total_dur_ps",
        what="container",
        tail={"time": ""},
        only="all",
    ),
    PEAKS,
)
