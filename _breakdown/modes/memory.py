"""Show what fills the HBM at peak usage, by buffer and by source line.

question: what fills the HBM at the peak, by buffer and source line
reads: a step
options: --top
example: --top 10
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from _breakdown.analysis.arrays.of_step import arrays_of_step
from _breakdown.analysis.memory.allocator import runtime_of
from _breakdown.analysis.memory.memory_peak import TEMPORARY, HeldMemory, Peak, peak_of_program
from _breakdown.analysis.memory.roles import ROLES, Roles
from _breakdown.analysis.report import Runs, program_id_of, runs_of
from _breakdown.analysis.roof.ledger import ledger_of
from _breakdown.analysis.roof.roofs import roofs_of
from _breakdown.analysis.source.likely_lines import NO_LINE, likely_line, likely_line_of
from _breakdown.light import NamedTuple, cached_property
from _breakdown.output.columns import BYTES, KIND
from _breakdown.output.phrases import Next, at_line_of, bracketed
from _breakdown.output.screen import Column, End, Part, Says, Table
from _breakdown.pipeline import frames
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.groups import grouped, percent, summed
from _breakdown.pipeline.no_answer import NoAnswer, no_program
from _breakdown.pipeline.normalize import Step
from _breakdown.units import size
from _proto.hlo.program import Instruction, Program
from _proto.hlo.shapes import Array
from _proto.trace.trace import Trace

Json = dict[str, Any]

# Memory without a role.
UNKNOWN = "unknown"
ARGUMENT_RE = re.compile(r"\w+")


class Origin:
    """The instruction that defines a buffer, if known, and its likely source line."""

    def __init__(self, instruction: Instruction | None, runs: Runs) -> None:
        self.instruction = instruction
        likely = NO_LINE
        if instruction:
            executions = runs.get(instruction)
            likely = (
                likely_line(executions[0].op)
                if executions
                else likely_line_of(instruction, frames.is_not_plumbing)
            )
        self.line, self.how = likely.line, likely.how

    @cached_property
    def arrays(self) -> dict[tuple[int, ...], Array | None]:
        """Map each shape index of the instruction's output to its array."""
        return dict(self.instruction.leaves or ()) if self.instruction else {}

    @property
    def name(self) -> str | None:
        return self.instruction.name if self.instruction else None

    @cached_property
    def tf_op(self) -> str | None:
        return self.instruction.tf_op if self.instruction else None

    @cached_property
    def argument(self) -> str | None:
        """Return the first name in a parameter's path; None for other instructions."""
        if not self.instruction or self.instruction.opcode != "parameter":
            return None
        part = ARGUMENT_RE.search(self.tf_op or "")
        return part[0] if part else None


class Live(NamedTuple):
    """A piece of memory that is live at the peak, and the instruction that defines its buffer."""

    held: HeldMemory
    origin: Origin

    @property
    def shape_index(self) -> tuple[int, ...] | None:
        return self.held.buffer.shape_index if self.held.buffer else None

    @property
    def array(self) -> Array | None:
        """Return the array stored in this memory, or None if there is none."""
        return self.origin.arrays.get(self.shape_index or ())

    @property
    def padding(self) -> int | None:
        """Return the bytes of padding around the array's elements; None if there is no array or
        if the array does not fit into the memory."""
        n_bytes = self.array.n_bytes if self.array else None
        return None if n_bytes is None or n_bytes > self.held.size else self.held.size - n_bytes

    @property
    def rank(self) -> tuple[int, str, tuple[int, ...]]:
        return -self.held.size, self.origin.name or "", self.shape_index or ()


NO_ASSIGNMENT = "the step's program has no usable buffer assignment, which says what is in memory"


def memory(step: Step, context: Context, *, top: int = 20) -> Json:
    program_id = program_id_of(step)
    program = None if program_id is None else step.device.programs.program(program_id)
    if program is None or program_id is None:
        raise no_program()
    peak = peak_of_program(program)
    if peak is None:
        raise NoAnswer("no_buffer_assignment", detail=NO_ASSIGNMENT)
    runs = runs_of(step, program_id)
    instructions = {held.instruction for held in peak.held}
    origins = {instruction: Origin(instruction, runs) for instruction in instructions}
    live = [Live(held, origins[held.instruction]) for held in peak.held]
    live.sort(key=lambda piece: piece.rank)
    context.warn(*peak_notes(peak))
    peak_size = peak.size
    padding = [piece.padding for piece in live if piece.padding is not None]
    return {
        "peak_bytes": peak_size,
        "reserved_bytes": peak.reserved,
        "padding_bytes": sum(padding) if padding else None,
        "by_kind": peak.by_kind,
        "by_role": by_role(peak, step, program),
        "other_spaces": peak.other_spaces,
        "peak_at": peak_row(peak.instruction_name, program, runs),
        "buffers": [buffer_row(piece, peak_size) for piece in live[:top]],
        "by_source": share_rows(live, "source_inner", lambda origin: origin.line),
        "by_op_name": share_rows(live, "tf_op", lambda origin: origin.tf_op),
        "by_argument": share_rows(live, "argument", lambda origin: origin.argument),
        "tail": {
            "n_buffers_omitted": len(live[top:]),
            "bytes": sum(piece.held.size for piece in live[top:]),
        },
        "runtime": runtime_row(step.device.trace, step.device.plane.name, context),
    }


def by_role(peak: Peak, step: Step, program: Program) -> Json:
    """Return the bytes of each role, most bytes first, and of memory without a role."""
    roofs = roofs_of(step.device, None, {})
    roles = Roles(program, arrays_of_step(step, ledger_of(step, roofs, {}), roofs))
    sizes = summed((roles.of(held.buffer) or UNKNOWN, held.size) for held in peak.held)
    all_sizes = {**dict.fromkeys((*ROLES, UNKNOWN), 0), **sizes}
    return dict(sorted(all_sizes.items(), key=lambda role: -role[1]))


def fields_anyway(trace: Trace, device: str, context: Context) -> Json:
    """Return the fields that are printed even if the capture contains no program or no step."""
    return {"runtime": runtime_row(trace, device, context)}


def runtime_row(trace: Trace, device: str, context: Context) -> Json | None:
    runtime = runtime_of(trace, device, context)
    if runtime is None:
        return None
    peak, scattered = runtime.peak, runtime.fragmentation
    return {
        "capacity_bytes": runtime.capacity,
        "peak_bytes": sum(peak) if peak else None,
        "peak_pct": percent(sum(peak), runtime.capacity) if peak and runtime.capacity else None,
        "fragmentation_pct": None if scattered is None else round(100 * scattered, 3),
        "peak_reserved_bytes": peak[0] if peak else None,
        "peak_allocated_bytes": peak[1] if peak else None,
        "min_available_bytes": runtime.min_available,
    }


def peak_row(name: str, program: Program, runs: Runs) -> Json | None:
    """Describe the instruction at which memory usage peaks; None if no heap trace names it."""
    if not name:
        return None
    origin = Origin(program.instruction(name), runs)
    return {
        "hlo_op": name,
        "source_inner": origin.line,
        "source_is": origin.how,
        "tf_op": origin.tf_op,
    }


def buffer_row(piece: Live, peak: int) -> Json:
    held, origin, array = piece.held, piece.origin, piece.array
    return {
        "bytes": held.size,
        "padding_bytes": piece.padding,
        "pct_of_peak": percent(held.size, peak),
        "kind": held.kind,
        "shape": f"{array.dtype}[{','.join(map(str, array.dims))}]" if array else None,
        "hlo_op": origin.name,
        "tf_op": origin.tf_op,
        "source_inner": origin.line,
        "source_is": origin.how,
    }


def share_rows(
    live: Sequence[Live], name: str, key_of: Callable[[Origin], str | None]
) -> list[Json]:
    """Group the live memory by a property of the defining instruction, largest group first; memory
    without this property comes last."""
    sizes = grouped((key_of(piece.origin), piece.held.size) for piece in live)
    ranked = sorted(sizes, key=lambda key: (key is None, -sum(sizes[key]), key))
    return [{name: key, "bytes": sum(sizes[key]), "n_buffers": len(sizes[key])} for key in ranked]


def peak_notes(peak: Peak) -> list[str]:
    notes = []
    if len(peak.maxima) > 1:
        notes.append(
            f"the peak is an upper bound: {len(peak.maxima)} maxima of temporary memory are added,"
            " although they may occur at different times"
        )
    if peak.n_untraced:
        notes.append(
            f"the peak is an upper bound: {peak.n_untraced} bytes of temporary memory have no heap"
            " trace, so all these bytes count as live"
        )
    return notes


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "buffers"

BUFFERS = Column("buffers", "n_buffers", "count")


def by(title: str, rows: str, what: str, column: Column) -> Table:
    """Return a table of buffer sizes, summed by a property."""
    return Table(
        title, rows, (BYTES, BUFFERS, column), by="bytes",
        size="bytes", whole="peak_bytes", most=10, what=what, tail={"size": ""},
    )  # fmt: skip


PARTS: tuple[Part, ...] = (
    Says(
        "\n{peak_bytes:bytes} live at the peak ({by_kind:bytes}),"
        " {reserved_bytes:bytes} reserved; {padding_bytes:bytes} of padding"
    ),
    Says(
        "the peak is at {peak_at.hlo_op}, {peak_at.source_inner:file}",
        when="peak_at",
    ),
    Says(
        "runtime: {runtime.peak_bytes:bytes} of {runtime.capacity_bytes:bytes} at the peak"
        " ({runtime.peak_reserved_bytes:bytes} reserved for programs,"
        " {runtime.peak_allocated_bytes:bytes} in arrays),"
        " at least {runtime.min_available_bytes:bytes} free",
        when="runtime",
    ),
    Says(
        "{runtime.peak_pct:percent} of the capacity; {runtime.fragmentation_pct:percent} of what is"
        " free then is outside of the largest free block",
        when="runtime.fragmentation_pct",
    ),
    Says("by role: {by_role:bytes}"),
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
        size="bytes",
        whole="peak_bytes",
        what="buffer",
        omitted="tail.n_buffers_omitted",
        tail={"size": "tail.bytes"},
        ends=(End("peak_bytes", {"line": "all", "size": "peak_bytes"}),),
    ),
    by("by line", "by_source", "line", Column("line", "source_inner", "file")),
    by("by argument", "by_argument", "argument", Column("argument", "argument", null="(none)")),
    by("by op name", "by_op_name", "op name", Column("op name", "tf_op", "file", "(none)")),
    Table(
        "in other memory spaces (1 is VMEM, 5 is host memory)",
        "other_spaces",
        (Column("size", "value", "bytes"), Column("space", "key", "word")),
        by="value",
        size="value",
        whole="peak_bytes",
        what="space",
    ),
)


def sentences(answer: Json) -> Iterator[str]:
    peak = answer["peak_at"]
    where = at_line_of(peak, answer) if peak else ""
    yield f"The program's HBM peak is {size(answer['peak_bytes'])}{where}."
    if answer["buffers"]:
        top = answer["buffers"][0]
        shape = top["shape"] or "a buffer"
        share = bracketed(top["pct_of_peak"])
        line = at_line_of(top, answer)
        yield f"The largest buffer is {shape}{line}: {size(top['bytes'])}{share}."
    for role, n_bytes in answer["by_role"].items():
        if n_bytes and role not in (UNKNOWN, TEMPORARY):
            yield f"The largest role is {role.replace('_', ' ')}: {size(n_bytes)}."
            break
    runtime = answer["runtime"]
    if runtime and runtime["min_available_bytes"] is not None:
        yield f"At least {size(runtime['min_available_bytes'])} stayed free on the device."


def next_steps(answer: Json) -> Iterator[Next]:
    yield Next("which arguments are donated", ("--mode", "program"))
