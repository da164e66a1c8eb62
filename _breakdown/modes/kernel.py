"""Show the step's Pallas kernels: their time, cost, memory use, source lines and regions.

question: what happens inside Pallas kernels: source lines, units, waiting for copies, spilled
  registers
reads: a step
options: --top, peaks, --kernel-cost, --kernel
example: --kernel flash_attention
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from _breakdown.analysis.kernel.kernel_details import Details
from _breakdown.analysis.roof.costs import (
    DECLARED,
    OPAQUE,
    Cost,
    KernelCost,
    cost_of,
    costs_by_kernel,
    declared_notes,
)
from _breakdown.analysis.roof.ledger import entry_of
from _breakdown.analysis.roof.roofs import Roofs, roofs_of
from _breakdown.analysis.source.likely_lines import line_of
from _breakdown.analysis.source.rows import (
    chip_fields,
    duration_fields,
    op_name,
    peaks_used,
    scope_fields,
)
from _breakdown.output.columns import AVERAGE, LOST, OP_LINE, PEAKS, RUNS, STEP_SHARE, TOTAL
from _breakdown.output.phrases import Next, at_line_of, bracketed, short
from _breakdown.output.screen import Column, Each, Part, Says, Table
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.groups import Group, percent, ranked_by, sum_if_known
from _breakdown.pipeline.names import resolve_name
from _breakdown.pipeline.no_answer import NoAnswer
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.vocabulary import COMPUTE
from _breakdown.units import part_of, percentage, size, time
from _proto.hlo.text import DtypeClass

Json = dict[str, Any]
T = TypeVar("T")

NO_KERNELS = "the step runs no kernels (custom calls with target tpu_custom_call)"
# Registers spill if more than this part of the vector stores (1/20) only move them.
MANY_SPILLS = 20


def kernel(
    step: Step,
    context: Context,
    *,
    top: int = 10,
    chip: str | None = None,
    peaks: Sequence[tuple[str, float]] = (),
    kernel_cost: Sequence[tuple[str, int, int, DtypeClass | None]] = (),
    kernel: str | None = None,
) -> Json:
    roofs = roofs_of(step.device, chip, dict(peaks))
    by_user = costs_by_kernel(step.by_kind[COMPUTE], kernel_cost, context)
    executions = [ran for ran in step.leaves if ran.op.kernel]
    kernels: dict[str, Group] = dict(ranked_by(executions, lambda op: op.kernel))
    groups = list(kernels.values())
    if not groups:
        context.warn(NO_KERNELS)
    if kernel is not None:
        groups = ops_of_kernel(kernel, kernels, context)
    details = Details(step, groups[:top], context)
    rows = []
    for group in groups[:top]:
        ops = ops_of(group)
        inside = details.fields(group, ops[0].members[0].metadata_id, top)
        rows.append(kernel_row(group, ops, step, roofs, by_user) | inside)
    declared = {row["kernel"] for row in rows if row["cost_source"] == DECLARED}
    context.warn(*declared_notes(declared))
    context.note(*roofs.choice.notes)
    return {
        "kernels": rows,
        "tail": {
            "n_kernels_omitted": len(groups[top:]),
            "dur_ps": sum(group.total for group in groups[top:]),
        },
        **chip_fields(roofs),
        "peaks_used": peaks_used(roofs),
    }


def ops_of(kernel: Group) -> list[Group]:
    """Return the ops of a kernel, costliest first."""

    def key(op: Op) -> tuple[str, int]:
        return op_name(op), -1 if op.program_id is None else op.program_id

    return [group for _, group in ranked_by(kernel.members, key)]


def ops_of_kernel(asked: str, kernels: Mapping[str, Group], context: Context) -> list[Group]:
    """Return the ops of the kernel named `asked`; if there is none, the kernel op with this
    name."""
    by_kernel = {name: ops_of(group) for name, group in kernels.items()}
    by_op: dict[str, list[Group]] = {}
    for ops in by_kernel.values():
        for group in ops:
            by_op.setdefault(op_name(group.op), []).append(group)
    name = asked.removeprefix("%")
    for candidates in (by_kernel, by_op):
        found = resolve_name(name, candidates, "--kernel", context)
        if found is not None:
            return candidates[found]
    raise NoAnswer(
        "kernel_not_found",
        detail=f"no kernel in the step, and no op of a kernel, is named {asked!r}, and {asked!r} is"
        " not a unique prefix",
        available_kernels=list(by_kernel),
    )


def kernel_row(
    group: Group,
    ops: Sequence[Group],
    step: Step,
    roofs: Roofs,
    by_user: Mapping[str, KernelCost],
) -> Json:
    """Return what a row says about a kernel, or one of its ops, from outside. A field is null if
    its value differs between the ops."""
    each_op = [ran.op for ran in group.members]
    places = [line_of(op) for op in each_op]
    entries = [entry_of(ran, roofs, by_user) for ran in group.members]
    return {
        "kernel": group.op.kernel or "",
        "hlo_op": op_name(ops[0].op),
        "n_ops": len(ops),
        "source_inner": common(place.line for place in places),
        "source_user": common(place.line_user for place in places),
        "source_is": common(place.how for place in places),
        **scope_fields(group.members),
        "n_executions": group.n,
        **duration_fields(group),
        "pct_of_step": percent(group.total, step.duration),
        **cost_fields([cost_of(op, by_user) for op in each_op]),
        "at_roof_ps": sum_if_known((1, entry.at_roof) for entry in entries),
        "lost_ps": sum_if_known((1, entry.lost) for entry in entries),
        **memory_fields(each_op),
    }


def common(values: Iterable[T | None]) -> T | None:
    """Return the value that all items share; None if they differ."""
    first, *others = values
    return first if all(other == first for other in others) else None


def cost_fields(costs: Sequence[Cost]) -> Json:
    """Return the cost of one execution. Ignore XLA's flops for an opaque kernel, because they
    exclude the work inside it."""
    return {
        "flops": common(None if cost.source == OPAQUE else cost.flops for cost in costs),
        "bytes_accessed": common(cost.bytes_accessed for cost in costs),
        "cost_source": common(None if cost.source == OPAQUE else cost.source for cost in costs),
    }


def memory_fields(ops: Iterable[Op]) -> Json:
    configs = [op.instruction.config if op.instruction else None for op in ops]
    return {
        "vmem_used_bytes": common(config.vmem_used if config else None for config in configs),
        "vmem_limit_bytes": common(config.vmem_limit if config else None for config in configs),
    }


def are_ops(rows: Sequence[Json]) -> bool:
    """Return whether the rows are ops of one kernel, as with `--kernel`."""
    return all((row["kernel"], row["n_ops"]) == (rows[0]["kernel"], 1) for row in rows)


# What the rows without a line show in its place.
LABELS = {
    "wait": "(wait: {scope})",
    "vector": "(vector work without a line)",
    "spill": "(spilled registers)",
    "scalar": "(scalar work, starts of copies)",
    "unknown": "(unknown)",
}
DMA_WAIT = "(wait for a copy elsewhere)"


def with_label(rows: list[Json]) -> list[Json]:
    return [row | {"label": label_of(row), "scope": row["line"] and row["scope"]} for row in rows]


def label_of(row: Json) -> str | None:
    if row["line"]:
        return None
    is_dma = row["kind"] == "wait" and not row["scope"]
    return DMA_WAIT if is_dma else LABELS[row["kind"]].format_map(row)


def with_op(rows: list[Json]) -> list[Json]:
    return [row | {"op": row["hlo_op"]} for row in rows] if are_ops(rows) else rows


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "kernels"

USAGE = (
    Column("MXU", "usage.mxu", "percent", null=""),
    Column("XLU", "usage.xlu", "percent", null="", gives_way=True),
    Column("VALU", "usage.valu", "percent", null=""),
    Column("EUP", "usage.eup", "percent", null="", gives_way=True),
    Column("load", "usage.load", "percent", null=""),
    Column("store", "usage.store", "percent", null=""),
)
PARTS: tuple[Part, ...] = (
    Table(
        "kernels; waits: time in regions that only wait for copies, body: time in ep_run_kernel",
        "kernels",
        (
            TOTAL,
            STEP_SHARE,
            RUNS,
            AVERAGE,
            Column("% waits", "waiting_pct", "percent", null=""),
            Column("body", "computing_ps", "time", null=""),
            LOST,
            Column("VMEM", "vmem_used_bytes", "bytes"),
            Column("kernel", "kernel"),
            Column("op", "op", null=""),
            OP_LINE,
        ),
        derive=with_op,
        size="total_dur_ps",
        omitted="tail.n_kernels_omitted",
        tail={"time": "tail.dur_ps"},
    ),
    Each(
        "kernels",
        (
            Table(
                "inside {kernel}; {outside_regions_ps:time} is outside all regions",
                "regions",
                (
                    Column("region", "region", depth="depth"),
                    Column("waits", "waits", "word"),
                    Column("time", "total_dur_ps", "time"),
                    Column("self", "self_dur_ps", "time"),
                    Column("%", "pct_of_kernel", "percent"),
                    Column("n", "n", "count"),
                    *USAGE,
                    Column("spills", "spills", "count", null="", gives_way=True, only="all"),
                    Column("fills", "fills", "count", null="", gives_way=True, only="all"),
                ),
                size="total_dur_ps",
                whole="total_dur_ps",
                what="region",
                tail={"self": ""},
            ),
            Table(
                "lines of {kernel}, {lines_are:word}, as lower bounds; MXU to store: % in use",
                "lines",
                (
                    Column("time", "dur_ps", "time", null=""),
                    Column("%", "pct_of_kernel", "percent"),
                    *USAGE,
                    Column("bundles", "n_bundles", "number", gives_way=True, only="all"),
                    Column("line", ("line", "label"), "file", least=24),
                    Column("called from", "called_from", "file", null="", gives_way=True),
                    Column("scope", "scope", null="", gives_way=True),
                    Column("mostly", "primitives.0", null="", gives_way=True),
                ),
                derive=with_label,
                size="pct_of_kernel",
                whole="",
                what="row",
                omitted="lines_tail.n_rows_omitted",
                tail={"time": "lines_tail.dur_ps", "%": "lines_tail.pct_of_kernel"},
            ),
            Says(
                "\nschedule of {hlo_op}: {schedule.n_bundles:count} bundles;"
                " {schedule.spills:count} of {schedule.stores:count} vector stores only spill"
                " registers, and {schedule.fills:count} loads fill them again"
                " ({schedule.spilled_bytes:bytes})",
                when="schedule.spills",
            ),
        ),
    ),
    PEAKS,
)


def sentences(answer: Json) -> Iterator[str]:
    if not answer["kernels"]:
        omitted = answer["tail"]["dur_ps"]
        yield (
            f"The kernels of this answer take {time(omitted)}."
            if omitted
            else "No kernel ran in this step."
        )
        return
    top = answer["kernels"][0]
    name, line = short(top["kernel"]), at_line_of(top, answer)
    taken = part_of(top["total_dur_ps"], answer["step_duration_ps"]) + bracketed(top["pct_of_step"])
    if are_ops(answer["kernels"]):
        what = "op"
        yield f"The costliest op of kernel {name} is {short(top['hlo_op'])}{line}: {taken}."
    else:
        what = "kernel"
        yield f"The costliest kernel is {name}{line}: {taken}."
    yield from inside_sentences(top, what)
    if top["lost_ps"] is None:
        yield f"The {what}'s flops and bytes are unknown."
    else:
        cost = " (declared cost)" if top["cost_source"] == "declared" else ""
        yield f"The {what} takes {time(top['lost_ps'])} more than the chip needs{cost}."


# Names of units that are not abbreviations.
NAMES = {"load": "loads", "store": "stores"}


def inside_sentences(row: Json, what: str) -> Iterator[str]:
    if row["waiting_ps"] is None and not row["lines"]:
        yield "The capture does not show what happens inside the kernel."
    if row["waiting_ps"] is not None:
        waiting = part_of(row["waiting_ps"], row["total_dur_ps"])
        yield f"The {what} spends {waiting}{bracketed(row['waiting_pct'])} waiting for copies."
    schedule = row["schedule"]
    if schedule and schedule["spills"] * MANY_SPILLS > schedule["stores"]:
        yield (
            f"{schedule['spills']} of its {schedule['stores']} vector stores only spill registers"
            f" ({size(schedule['spilled_bytes'])})."
        )
    for line in [line for line in row["lines"] or () if line["kind"] == "line"][:1]:
        share = percentage(line["pct_of_kernel"])
        of = " of its schedule" if row["lines_are"] == "static" else ""
        name = line["line"].rpartition("/")[2]
        yield f"Line {short(name)} takes at least {share}{of}{busiest_unit(line)}."


def busiest_unit(line: Json) -> str:
    if not line["usage"]:
        return ""
    unit, used = max(line["usage"].items(), key=lambda item: item[1])
    return (
        "" if not used else f", its busiest unit ({NAMES.get(unit, unit.upper())}) at {used:.0f} %"
    )


def next_steps(answer: Json) -> Iterator[Next]:
    for row in answer["kernels"][:1]:
        if row["n_ops"] > 1:
            yield Next("the ops of this kernel", ("--mode", "kernel", "--kernel", row["kernel"]))
    yield Next("where the step loses time, and why", ("--mode", "bottleneck"))
