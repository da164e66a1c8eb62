"""List the cost of each op in the step, or everything known about a single op.

question: what each op costs; with --op, one op in detail
reads: a step
options: --top, peaks, --kernel-cost, --op, --no-merge
example: --top 0 --op fusion.115
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from heapq import nsmallest
from operator import itemgetter
from typing import Any

from _breakdown.analysis.roof.costs import (
    DECLARED,
    OPAQUE,
    KernelCost,
    cost_of,
    costs_by_kernel,
    declared_notes,
    precision_of,
)
from _breakdown.analysis.roof.exposed import is_exposed
from _breakdown.analysis.roof.ledger import LedgerEntry, entry_of
from _breakdown.analysis.roof.limits import limit_of
from _breakdown.analysis.roof.roofs import Roofs, roofs_of
from _breakdown.analysis.source.likely_lines import line_of
from _breakdown.analysis.source.loops import loops_of
from _breakdown.analysis.source.merged_ops import common_name, merged_ops, ranked_ops, scope_of
from _breakdown.analysis.source.rows import (
    chip_fields,
    duration_fields,
    likely_fields,
    op_name,
    peaks_used,
    scope_fields,
    with_reads,
)
from _breakdown.output.columns import (
    AVERAGE,
    CATEGORY,
    LIMIT,
    LOOP,
    LOST,
    OF_ROOF,
    PEAKS,
    RUNS,
    STEP_SHARE,
    TOTAL,
)
from _breakdown.output.phrases import Next, at_line_of, bracketed, short
from _breakdown.output.screen import Column, Each, Part, Says, Section, Table
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import Group, grouped, percent, sum_if_known
from _breakdown.pipeline.names import nearest_names, resolve_name
from _breakdown.pipeline.no_answer import NoAnswer
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.timeline import events_of
from _breakdown.pipeline.vocabulary import COMPUTE
from _breakdown.units import counted, part_of, time
from _proto.hlo.program import Computation, Instruction
from _proto.hlo.text import DtypeClass

Json = dict[str, Any]

N_EXECUTIONS = 1000
N_NEIGHBOURS = 50
N_CALLED, N_INSTRUCTIONS = 20, 200


def by_op(
    step: Step,
    context: Context,
    *,
    top: int = 50,
    chip: str | None = None,
    peaks: Sequence[tuple[str, float]] = (),
    kernel_cost: Sequence[tuple[str, int, int, DtypeClass | None]] = (),
    op: str | None = None,
    no_merge: bool = False,
) -> Json:
    roofs = roofs_of(step.device, chip, dict(peaks))
    by_user = costs_by_kernel(step.by_kind[COMPUTE], kernel_cost, context)
    ranked = ranked_ops(step.leaves)
    containers = ranked_ops(step.containers)
    asked = None if op is None else find_op(op, [*ranked, *containers], context)
    judge = Judge(step, roofs, by_user)
    merged = [] if no_merge else merged_ops(ranked, judge.class_key, top)
    shown = [*ranked[:top], *([asked] if asked else [])]
    shown += [group for ops in merged for group in ops]
    judge.loops.add(member for group in shown for member in group.members)
    rows = [judge.op_row(group) for group in ranked[:top]]
    declared = {row["kernel"] for row in rows if row["cost_source"] == DECLARED}
    detail = {}
    if asked:
        row = judge.detail_row(asked)
        detail = {"op": row}
        if row["cost_source"] == DECLARED:
            declared.add(row["kernel"])
    context.warn(*declared_notes(declared))
    context.note(*roofs.choice.notes)
    return {
        "ops": rows,
        **({} if no_merge else {"merged": [judge.merged_row(ops) for ops in merged]}),
        "tail": {
            "n_ops_omitted": len(ranked[top:]),
            "dur_ps": sum(group.total for group in ranked[top:]),
        },
        "containers": [container_row(group) for group in containers],
        **chip_fields(roofs),
        "peaks_used": peaks_used(roofs),
        **detail,
    }


def find_op(asked: str, ops: Sequence[Group], context: Context) -> Group:
    """Return the op with the given name; if several programs have one, return the op that takes the
    most time."""
    by_name = grouped((op_name(group.op), group) for group in ops)
    name = resolve_name(asked.removeprefix("%"), by_name, "--op", context)
    if name is None:
        raise NoAnswer(
            "op_not_found",
            detail=f"no op in the step is named {asked!r}, and {asked!r} is not a unique prefix",
            available_ops=nearest_names(asked.removeprefix("%"), by_name),
        )
    found = max(by_name[name], key=lambda group: group.total)
    if len(by_name[name]) > 1:
        context.note(
            f"{len(by_name[name])} programs have an op {name}; using the op of program"
            f" {found.op.program_id}, because it takes the most time"
        )
    return found


def container_row(group: Group) -> Json:
    return {
        "hlo_op": op_name(group.op),
        "hlo_category": group.op.category,
        "n_executions": group.n,
        "total_dur_ps": group.total,
    }


class Judge:
    """Builds the rows for ops, including each op's cost and its time at the roof."""

    def __init__(self, step: Step, roofs: Roofs, by_user: Mapping[str, KernelCost]) -> None:
        self.step = step
        self.roofs = roofs
        self.by_user = by_user
        # The caller adds the ops that are shown.
        self.loops = loops_of(step, ())
        self._judged: dict[int, LedgerEntry] = {}

    def class_key(self, group: Group) -> object:
        entry = self._entry(group.members[0])
        precision = entry.cost.precision if entry.cost else precision_of(group.op)
        return entry.name, precision.dtype

    def op_row(self, group: Group) -> Json:
        return self._fields(group, self._entries(group))

    def merged_row(self, ops: Sequence[Group]) -> Json:
        whole = Group([member for group in ops for member in group.members])
        entries = self._entries(whole)
        scopes = [scope_of(group) for group in ops]
        runs = {group.n for group in ops}
        inner = {line_of(group.op).line for group in ops}
        return {
            "hlo_op": common_name([op_name(group.op) for group in ops]),
            "scope": common_name([scope or "" for scope in scopes]) or None,
            "source_inner": inner.pop() if len(inner) == 1 else None,
            "source_user": line_of(whole.op).line_user,
            "source_is": line_of(whole.op).how,
            "class": entries[0].name,
            "n_ops": len(ops),
            "n_executions": whole.n,
            "n_executions_each": runs.pop() if len(runs) == 1 else None,
            "total_dur_ps": whole.total,
            "avg_dur_ps": duration_fields(whole)["avg_dur_ps"],
            "pct_of_step": percent(whole.total, self.step.duration),
            "loop": self.loops.row(ops[0].members),
            "at_roof_ps": known_sum(entry.at_roof for entry in entries),
            "lost_ps": known_sum(entry.lost for entry in entries),
            "limited_by": limit_of(entries),
        }

    def detail_row(self, group: Group) -> Json:
        entries = [] if group.op.is_container else self._entries(group)
        ids = {ran.metadata_id for ran in group.members}
        events = events_of(self.step.admitted.pieces, self.step.clock, ids)
        shown = nsmallest(N_EXECUTIONS, events, key=itemgetter(0))
        return {
            **self._fields(group, entries),
            "text": group.op.text,
            "source_stack": group.op.source_stack,
            "executions": [[start, duration] for start, duration, _ in shown],
            "program": program_row(group.op.instruction),
        }

    def _entries(self, group: Group) -> list[LedgerEntry]:
        return [self._entry(ran) for ran in group.members]

    def _entry(self, ran: Executions) -> LedgerEntry:
        key = id(ran)
        if key not in self._judged:
            self._judged[key] = entry_of(ran, self.roofs, self.by_user)
        return self._judged[key]

    def _fields(self, group: Group, entries: Sequence[LedgerEntry]) -> Json:
        """Return properties of the group's first op, and sums over all executions. For a container,
        `entries` is empty."""
        op = group.op
        cost = (entries[0].cost if entries else None) or cost_of(op, self.by_user)
        # The flops in the trace exclude the work inside an opaque op.
        flops = None if cost.source == OPAQUE else cost.flops
        n_bytes = cost.moved_bytes
        times = duration_fields(group)
        # In the trace, a container's flops and bytes ignore how often its body runs.
        average = None if op.is_container else times["avg_dur_ps"]
        return {
            "hlo_op": op_name(op),
            "program_id": None if op.program_id is None else str(op.program_id),
            "hlo_category": op.category,
            "kind": op.kind,
            "class": entries[0].name if entries else None,
            "n_executions": group.n,
            **times,
            "pct_of_step": percent(group.total, self.step.duration),
            "phase": op.phase,
            **scope_fields(group.members),
            "tf_op": op.tf_op,
            **likely_fields(line_of(op)),
            "loop": self.loops.row(group.members),
            "shape": op.hlo.shape or op.shape,
            "dtype": cost.precision.dtype,
            "operand_dtypes": op.dtypes_read,
            "cost_source": None if cost.source == OPAQUE else cost.source,
            "flops": flops,
            "bytes_accessed": cost.bytes_accessed,
            "hbm_bytes": cost.hbm_bytes,
            # One flop per picosecond is 1 TFLOP/s, and one byte per picosecond is 1 TB/s.
            "achieved_tflops": rate(flops, average),
            "achieved_gbps": rate(n_bytes and 1000 * n_bytes, average),
            "at_roof_ps": known_sum(entry.at_roof for entry in entries),
            "lost_ps": known_sum(entry.lost for entry in entries),
            "limited_by": limit_of(entries),
            "kernel": (entries[0].kernel or op.kernel) if entries else None,
            "waits_for": op.waits_for if is_exposed(op) else None,
        }


def known_sum(times: Iterable[int | None]) -> int | None:
    """Return the sum of the times; None if the list is empty, or if any time is unknown."""
    known = list(times)
    return sum_if_known((1, duration) for duration in known) if known else None


def rate(amount: int | None, duration: int | None) -> float | None:
    return round(amount / duration, 3) if amount and duration else None


def program_row(instruction: Instruction | None) -> Json | None:
    if instruction is None:
        return None
    return {
        "computation": instruction.computation.name,
        "operands": [instruction_row(operand) for operand in instruction.operands[:N_NEIGHBOURS]],
        "users": [instruction_row(user) for user in instruction.users[:N_NEIGHBOURS]],
        "chain": [part.name for part in instruction.chain] if instruction.is_asynchronous else [],
        "called": [called_row(computation) for computation in instruction.called[:N_CALLED]],
    }


def instruction_row(instruction: Instruction) -> Json:
    return {
        "name": instruction.name,
        "opcode": instruction.opcode,
        "shape": instruction.shape,
        "source_inner": instruction.line,
    }


def called_row(computation: Computation) -> Json:
    shown = computation.instructions[:N_INSTRUCTIONS]
    return {
        "name": computation.name,
        "n_instructions": len(computation.instructions),
        "instructions": [called_instruction_row(instruction) for instruction in shown],
    }


def called_instruction_row(instruction: Instruction) -> Json:
    return {
        "name": instruction.name,
        "opcode": instruction.opcode,
        "shape": instruction.shape,
        "operands": [operand.name for operand in instruction.operands],
        "source_inner": instruction.line,
    }


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "ops"


def prepared(fields: Json) -> Json:
    """Add the tail of the main table, and drop `ops` if `merged` has the rows. If the answer has
    `op`, add the field `reads` to it."""
    fields = {**fields, "op": with_reads(fields["op"])} if fields.get("op") else fields
    if "merged" not in fields:
        return fields
    ops, tail, rows = fields["ops"], fields["tail"], fields["merged"]
    n_ops = len(ops) + tail["n_ops_omitted"] - sum(row["n_ops"] for row in rows)
    omitted = sum(row["total_dur_ps"] for row in ops) + tail["dur_ps"]
    omitted -= sum(row["total_dur_ps"] for row in rows)
    fields = {**fields, "tail": {"n_ops_omitted": n_ops, "dur_ps": omitted}}
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
        "per run: math {op.flops:flops}, HBM traffic {op.hbm_bytes:bytes};"
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
        LIMIT,
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


def sentences(answer: Json) -> Iterator[str]:
    """Describe the op passed as `--op`, or the first row that text lists: ops that are merged into
    one row count together."""
    asked = answer.get("op")
    if asked:
        yield from described(asked, 1, answer, "Op")
    elif answer.get("merged"):
        row = answer["merged"][0]
        are = "The costliest op is" if row["n_ops"] == 1 else "The costliest ops are"
        yield from described(row, row["n_ops"], answer, are)
    elif answer["ops"]:
        yield from described(answer["ops"][0], 1, answer, "The costliest op is")
    else:
        yield "The answer lists no ops."


def described(row: Json | Json, n_ops: int, answer: Json, before: str) -> Iterator[str]:
    taken = part_of(row["total_dur_ps"], answer["step_duration_ps"]) + bracketed(row["pct_of_step"])
    runs = counted(row["n_executions"], "execution")
    of_ops = f" of {counted(n_ops, 'op')}" if n_ops > 1 else ""
    yield f"{before} {short(row['hlo_op'])}{at_line_of(row, answer)}: {taken} in {runs}{of_ops}."
    this, its = ("this op", "its roof") if n_ops == 1 else ("these ops", "their roofs")
    if row["lost_ps"] and row["at_roof_ps"] == 0:
        yield "All of this time counts as lost."
    elif row["lost_ps"]:
        yield f"At {its}, {this} would take {time(row['lost_ps'])} less."
    elif row["at_roof_ps"] is None:
        yield f"The roof of {this} is unknown."


def next_steps(answer: Json) -> Iterator[Next]:
    if "op" not in answer and answer["ops"]:
        names = [op["hlo_op"] for op in answer["ops"]]
        pattern = answer["merged"][0]["hlo_op"] if answer.get("merged") else names[0]
        # Of merged ops, show the costliest one.
        name = next((name for name in names if fnmatchcase(name, pattern)), names[0])
        yield Next("what is inside this op", ("--mode", "by_op", "--op", name, "--top", "0"))
