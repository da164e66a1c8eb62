"""List the cost of each op in the step, or everything known about a single op.

question: what each op costs; with --op, one op in detail
reads: a step
options: --top, peaks, --kernel-cost, --op, --no-merge
example: --top 0 --op fusion.115
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush, nsmallest
from operator import itemgetter
from typing import NamedTuple

from _analysis.likely_lines import line_of
from _analysis.loops import Loops
from _analysis.roof.costs import (
    DECLARED,
    OPAQUE,
    KernelCost,
    cost_of,
    costs_by_kernel,
    declared_notes,
    precision_of,
)
from _analysis.roof.exposed import is_exposed
from _analysis.roof.ledger import Entry, entry_of
from _analysis.roof.roofs import Roofs, roofs_of
from _analysis.rows import (
    chip_fields,
    duration_fields,
    likely_fields,
    op_name,
    peaks_used,
    scope_fields,
)
from _pipeline.context import Context
from _pipeline.executions import Executions
from _pipeline.groups import Group, group_by, percent, sum_if_known
from _pipeline.names import nearest_names, resolve_name
from _pipeline.no_answer import NoAnswer
from _pipeline.normalize import Step
from _pipeline.timeline import events_of
from _pipeline.vocabulary import COMPUTE

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.by_op import (
        Called,
        CalledInstruction,
        Container,
        DetailClassed,
        Fields,
        MergedOps,
        MergedUnlessAsked,
        OpDetail,
        OpFields,
        OpIfAsked,
        OpInProgram,
    )
    from _output.fields.by_op import Instruction as InstructionRow
    from _output.fields.by_op import Op as OpRow
    from _output.fields.units import Dtype
    from _proto.hlo.program import Computation, Instruction

    class AnyOpFields(OpFields, DetailClassed):
        """Fields that ops and containers share, in printed order."""

        rank: int | None


NUMBER_RE = re.compile(r"\d+")
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
    kernel_cost: Sequence[tuple[str, int, int, Dtype | None]] = (),
    op: str | None = None,
    no_merge: bool = False,
) -> Fields:
    roofs = roofs_of(step.device, chip, dict(peaks))
    by_user = costs_by_kernel(step.by_kind[COMPUTE], kernel_cost, context)
    ranked = ranked_ops(step.leaves)
    containers = ranked_ops(step.containers)
    asked = None if op is None else find_op(op, [*ranked, *containers], context)
    judge = Judge(step, roofs, by_user)
    merged = [] if no_merge else merged_ops(ranked, judge, top)
    shown = [*ranked[:top], *([asked] if asked else [])]
    shown += [group for ops in merged for group in ops]
    judge.loops = Loops(step, [member for group in shown for member in group.members])
    rows_of_merged: MergedUnlessAsked = {}
    if not no_merge:
        rows_of_merged = {"merged": [judge.merged_row(ops) for ops in merged]}
    rows = [judge.op_row(rank, group) for rank, group in enumerate(ranked[:top], 1)]
    declared = {row["kernel"] for row in rows if row["cost_source"] == DECLARED}
    detail: OpIfAsked = {}
    if asked:
        row = judge.detail_row(ranked.index(asked) + 1 if asked in ranked else None, asked)
        detail = {"op": row}
        if row["cost_source"] == DECLARED:
            declared.add(row["kernel"])
    context.warn(*declared_notes(declared))
    context.note(*roofs.choice.notes)
    return {
        "ops": rows,
        **rows_of_merged,
        "tail": {
            "n_ops_omitted": len(ranked[top:]),
            "dur_ps": sum(group.total for group in ranked[top:]),
        },
        "containers": [container_row(group) for group in containers],
        **chip_fields(roofs),
        "peaks_used": peaks_used(roofs),
        **detail,
    }


def ranked_ops(executions: Iterable[Executions]) -> list[Group]:
    """Group the executions by program and op name, costliest op first."""
    groups = group_by(executions, lambda op: (op.program_id, op_name(op)))
    ranked = sorted(
        groups.items(),
        # Sort ties by name, then by program; ops without a program come first.
        key=lambda item: (-item[1].total, item[0][1], -1 if item[0][0] is None else item[0][0]),
    )
    return [group for _, group in ranked]


class Alike(NamedTuple):
    """Ops that have some keys in common. Sorts by time, longest first; of equal times, the ops with
    keys to compare come first, then the first in the table."""

    minus_time: int
    n_compared: int
    rank: int
    ops: list[Group]


def merged_ops(ranked: Sequence[Group], judge: Judge, top: int) -> list[list[Group]]:
    """Merge ops whose names and scopes differ only in numbers, such as ops of unrolled layers.
    Return the costliest lists of ops, costliest list first."""
    ranks = {id(group): i for i, group in enumerate(ranked)}
    keys = name_key, place_key, judge.class_key
    # Lines and classes take long to find. So compare the keys one by one, of the costliest ops
    # only.
    heap = [Alike(0, 0, 0, list(ranked))]
    merged: list[list[Group]] = []
    while heap and len(merged) < top:
        alike = heappop(heap)
        if alike.n_compared == len(keys):
            merged.append(alike.ops)
            continue
        lists: dict[object, list[Group]] = {}
        for group in alike.ops:
            lists.setdefault(keys[alike.n_compared](group), []).append(group)
        for ops in lists.values():
            total = sum(group.total for group in ops)
            n_compared = alike.n_compared + 1 if len(ops) > 1 else len(keys)
            heappush(heap, Alike(-total, n_compared, ranks[id(ops[0])], ops))
    return merged


def name_key(group: Group) -> object:
    op = group.op
    return without_numbers(op_name(op)), op.kind, op.category, op.phase


def place_key(group: Group) -> object:
    likely = line_of(group.op)
    return without_numbers(scope_of(group) or ""), likely.line_user or likely.line


def scope_of(group: Group) -> str | None:
    return scope_fields(group.members)["scope"]


def without_numbers(name: str) -> str:
    """Replace the numbers in a name with `*`. Append `.*` to a name without numbers, because the
    first of several copies of an op can lack a number."""
    starred: str = NUMBER_RE.sub("*", name)
    return starred if starred != name or not name else f"{name}.*"


def common_name(names: Sequence[str]) -> str:
    return names[0] if len(set(names)) == 1 else without_numbers(names[0])


def find_op(asked: str, ops: Sequence[Group], context: Context) -> Group:
    """Return the op with the given name; if several programs have one, return the op that takes the
    most time."""
    by_name: dict[str, list[Group]] = {}
    for group in ops:
        by_name.setdefault(op_name(group.op), []).append(group)
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


def container_row(group: Group) -> Container:
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
        self.loops = Loops(step, [])
        self._judged: dict[int, Entry] = {}

    def class_key(self, group: Group) -> object:
        entry = self._entry(group.members[0])
        precision = entry.cost.precision if entry.cost else precision_of(group.op)
        return entry.name, precision.dtype

    def op_row(self, rank: int, group: Group) -> OpRow:
        entries = self._entries(group)
        return {**self._fields(group, entries), "rank": rank, "class": entries[0].name}

    def merged_row(self, ops: Sequence[Group]) -> MergedOps:
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
        }

    def detail_row(self, rank: int | None, group: Group) -> OpDetail:
        entries = [] if group.op.is_container else self._entries(group)
        ids = {executions.metadata_id for executions in group.members}
        events = events_of(self.step.admitted.pieces, self.step.clock, ids)
        shown = nsmallest(N_EXECUTIONS, events, key=itemgetter(0))
        return {
            **self._fields(group, entries),
            "rank": rank,
            "class": entries[0].name if entries else None,
            "text": group.op.text,
            "source_stack": group.op.source_stack,
            "executions": [[start, duration] for start, duration, _ in shown],
            "n_executions_omitted": group.n - len(shown),
            "program": program_row(group.op.instruction),
        }

    def _entries(self, group: Group) -> list[Entry]:
        return [self._entry(executions) for executions in group.members]

    def _entry(self, executions: Executions) -> Entry:
        key = id(executions)
        if key not in self._judged:
            self._judged[key] = entry_of(executions, self.roofs, self.by_user)
        return self._judged[key]

    def _fields(self, group: Group, entries: Sequence[Entry]) -> AnyOpFields:
        """Return properties of the group's first op, and sums over all executions. For a container,
        `entries` is empty."""
        op = group.op
        cost = cost_of(op, self.by_user)
        # The flops in the trace exclude the work inside an opaque op.
        flops = None if cost.source == OPAQUE else cost.flops
        n_bytes = cost.moved_bytes
        times = duration_fields(group)
        # In the trace, a container's flops and bytes ignore how often its body runs.
        average = None if op.is_container else times["avg_dur_ps"]
        return {
            # The callers replace the values of `rank` and `class`; the keys here fix the printed
            # order.
            "rank": None,
            "hlo_op": op_name(op),
            "program_id": None if op.program_id is None else str(op.program_id),
            "hlo_category": op.category,
            "kind": op.kind,
            "class": None,
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
            "dtype_source": cost.precision.source,
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
            "kernel": (entries[0].kernel or op.kernel) if entries else None,
            "waits_for": op.waits_for if is_exposed(op) else None,
        }


def known_sum(times: Iterable[int | None]) -> int | None:
    """Return the sum of the times; None if the list is empty, or if any time is unknown."""
    known = list(times)
    return sum_if_known((1, time) for time in known) if known else None


def rate(amount: int | None, duration: int | None) -> float | None:
    return round(amount / duration, 3) if amount and duration else None


def program_row(instruction: Instruction | None) -> OpInProgram | None:
    if instruction is None:
        return None
    return {
        "opcode": instruction.opcode,
        "computation": instruction.computation.name,
        "operands": [instruction_row(operand) for operand in instruction.operands[:N_NEIGHBOURS]],
        "users": [instruction_row(user) for user in instruction.users[:N_NEIGHBOURS]],
        "chain": [part.name for part in instruction.chain] if instruction.is_asynchronous else [],
        "called": [called_row(computation) for computation in instruction.called[:N_CALLED]],
    }


def instruction_row(instruction: Instruction) -> InstructionRow:
    return {
        "name": instruction.name,
        "opcode": instruction.opcode,
        "shape": instruction.shape,
        "source_inner": instruction.line,
    }


def called_row(computation: Computation) -> Called:
    shown = computation.instructions[:N_INSTRUCTIONS]
    return {
        "name": computation.name,
        "n_instructions": len(computation.instructions),
        "instructions": [called_instruction_row(instruction) for instruction in shown],
    }


def called_instruction_row(instruction: Instruction) -> CalledInstruction:
    return {
        "name": instruction.name,
        "opcode": instruction.opcode,
        "shape": instruction.shape,
        "operands": [operand.name for operand in instruction.operands],
        "source_inner": instruction.line,
    }
