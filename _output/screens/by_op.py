"""Describe the output of mode `by_op`: the costliest ops, and the details of one op."""

from __future__ import annotations

import re

from _output.screen import Column, Each, Says, Section, Table
from _output.screens.shared import (
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

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from _output.screen import Part, View

    Json = dict[str, Any]

MAIN: Final = "ops"
NUMBER_RE: Final = re.compile(r"\d+")
# SUMS are added up when several ops are merged into one row; ops are merged only if they agree in
# SAME.
SUMS: Final = ("n_executions", "total_dur_ps", "pct_of_step")
SAME: Final = ("class", "kind", "hlo_category", "phase", "dtype")


def prepared(fields: Json) -> Json:
    """If the answer has `op`, add the field `reads` to it."""
    return {**fields, "op": with_reads(fields["op"])} if fields.get("op") else fields


def listed(ops: list[Json], view: View) -> list[Json]:
    """Merge ops whose names and scopes differ only in numbers, such as ops of unrolled layers."""
    if not view.merges:
        return [of_several([row]) for row in ops]
    groups: dict[Any, list[Json]] = {}
    for row in ops:
        names = (without_numbers(row.get(name) or "") for name in ("hlo_op", "scope"))
        key = (*names, row.get("source_user"), *(row.get(name) for name in SAME))
        groups.setdefault(key, []).append(row)
    return sorted(map(of_several, groups.values()), key=lambda row: -row["total_dur_ps"])


def without_numbers(name: str) -> str:
    """Replace the numbers in a name with `*`. Append `.*` to a name without numbers, because the
    first of several copies of an op can lack a number."""
    starred: str = NUMBER_RE.sub("*", name)
    return starred if starred != name or not name else f"{name}.*"


def of_several(members: list[Json]) -> Json:
    """Return one row for several ops: their sums, and other fields from the first (costliest)
    op."""
    first, n_ops = members[0], len(members)
    row = {**first}
    if n_ops > 1:
        row |= {name: sum(op[name] or 0 for op in members) for name in SUMS}
        for name in ("at_roof_ps", "lost_ps"):
            values = [op[name] for op in members]
            row[name] = None if None in values else sum(values)
        for name in ("hlo_op", "scope"):
            if len({op[name] for op in members}) > 1:
                row[name] = without_numbers(first[name])
        row["avg_dur_ps"] = row["total_dur_ps"] // (row["n_executions"] or 1)
    runs = {op["n_executions"] for op in members}
    known = row["at_roof_ps"] and row["total_dur_ps"]
    return {
        **row,
        "pct_of_roof": 100 * row["at_roof_ps"] / row["total_dur_ps"] if known else None,
        "ops_x_runs": f"{n_ops} x {first['n_executions']}"
        if len(runs) == 1
        else f"{n_ops}, {row['n_executions']} runs",
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
PARTS: tuple[Part, ...] = (
    *ONE_OP,
    Table(
        "ops; lost is the time beyond the roof, * stands for a number",
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
        derive=listed,
        size="total_dur_ps",
        most=10,
        takes_top=True,
        what="op",
        omitted="tail.n_ops_omitted",
        tail={"time": "tail.dur_ps"},
    ),
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
