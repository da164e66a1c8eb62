"""What fills the HBM when it is fullest, by buffer and source line."""

from __future__ import annotations

import re

from _analysis.allocator import runtime_of
from _analysis.likely_lines import NO_LINE, likely_line, likely_line_of
from _analysis.memory_peak import Contradiction, peak_of
from _analysis.report import Report, program_id_of
from _pipeline import frames
from _pipeline.executions import Executions
from _pipeline.groups import percent
from _pipeline.no_answer import NoAnswer
from _pipeline.timeline import events_of
from _proto.hlo.buffers import read_buffers
from _proto.record import cached_property, record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Any

    from _analysis.memory_peak import Held, Peak
    from _pipeline.context import Context
    from _pipeline.normalize import Step
    from _proto.hlo.program import Instruction, Program
    from _proto.hlo.shapes import Array
    from _proto.trace.trace import Trace

    Json = dict[str, Any]

ARGUMENT_RE = re.compile(r"\w+")
# What ran, by what its program says of it: of several ops that are one instruction, all.
Ran = dict["Instruction | None", list[Executions]]


class Origin:
    """The instruction that defines buffers, if it is known, and its likely line."""

    def __init__(self, instruction: Instruction | None, ran: Ran) -> None:
        self.instruction = instruction
        likely = NO_LINE
        if instruction:
            executions = ran.get(instruction)
            likely = (
                likely_line(executions[0].op)
                if executions
                else likely_line_of(instruction, frames.is_not_library)
            )
        self.line, self.how = likely.line, likely.how

    @cached_property
    def arrays(self) -> dict[tuple[int, ...], Array | None]:
        """Map places in the output's nested tuples to arrays."""
        return dict(self.instruction.leaves or ()) if self.instruction else {}

    @property
    def name(self) -> str | None:
        return self.instruction.name if self.instruction else None

    @property
    def opcode(self) -> str | None:
        return self.instruction.opcode if self.instruction else None

    @cached_property
    def tf_op(self) -> str | None:
        return self.instruction.tf_op if self.instruction else None

    @cached_property
    def stack(self) -> str | None:
        return self.instruction.stack if self.instruction else None

    @cached_property
    def argument(self) -> str | None:
        """Of a parameter the first part of its path."""
        part = ARGUMENT_RE.search(self.tf_op or "") if self.opcode == "parameter" else None
        return part[0] if part else None


@record
class Live:
    """A piece of memory that is live at the peak, and where it comes from."""

    held: Held
    origin: Origin

    @property
    def shape_index(self) -> tuple[int, ...] | None:
        return self.held.buffer.shape_index if self.held.buffer else None

    @property
    def array(self) -> Array | None:
        """What it holds, if that is one."""
        return self.origin.arrays.get(self.shape_index or ())

    @property
    def padding(self) -> int | None:
        """What tiles take beyond the elements of an array; None where it holds less than these."""
        n_bytes = self.array.n_bytes if self.array else None
        return None if n_bytes is None or n_bytes > self.held.size else self.held.size - n_bytes

    @property
    def rank(self) -> tuple[int, str, tuple[int, ...]]:
        return -self.held.size, self.origin.name or "", self.shape_index or ()


def memory(step: Step, context: Context, *, top: int = 20) -> Report:
    program_id = program_id_of(step)
    program = None if program_id is None else step.device.programs.program(program_id)
    if program is None:
        raise NoAnswer("no_program")
    peak = peak_of_program(program)
    if peak is None:
        raise NoAnswer("no_buffer_assignment")
    ran: Ran = {}
    for each in [*step.leaves, *step.containers]:
        # Other programs aren't even read: they may be broken.
        if each.op.program_id == program_id and each.op.instruction:
            ran.setdefault(each.op.instruction, []).append(each)
    instructions = {held.instruction for held in peak.held}
    origins = {each: Origin(each, ran) for each in instructions}
    live = [Live(held, origins[held.instruction]) for held in peak.held]
    live.sort(key=lambda each: each.rank)
    context.notes += peak_notes(peak)
    size = peak.size
    padding = [each.padding for each in live if each.padding is not None]
    return Report(
        {
            "peak_bytes": size,
            "reserved_bytes": peak.reserved,
            "fragmentation_bytes": peak.reserved - size,
            "padding_bytes": sum(padding) if padding else None,
            "by_kind": peak.by_kind,
            "other_spaces": peak.other_spaces,
            "peak_at": peak_row(peak.instruction_name, program, ran, step),
            "buffers": [buffer_row(i, each, size) for i, each in enumerate(live[:top], 1)],
            "by_source": share_rows(live, "source_inner", lambda each: each.origin.line),
            "by_op_name": share_rows(live, "tf_op", lambda each: each.origin.tf_op),
            "by_opcode": share_rows(live, "opcode", lambda each: each.origin.opcode),
            "by_argument": share_rows(live, "argument", lambda each: each.origin.argument),
            "tail": {
                "n_buffers_omitted": len(live[top:]),
                "bytes": sum(each.held.size for each in live[top:]),
            },
            **runtime_anyway(step.device.trace, step.device.plane.name, context),
        },
    )


def runtime_anyway(trace: Trace, device: str, context: Context) -> Json:
    """What needs neither a program nor a step."""
    return {"runtime": runtime_of(trace, device, context)}


def peak_of_program(program: Program) -> Peak | None:
    """What its memory holds when it holds most; None where that isn't told."""
    buffers = read_buffers(program)
    try:
        return None if buffers is None else peak_of(buffers)
    except Contradiction as error:
        program.complain(f"the buffer assignment: {error}")
        return None


def peak_row(name: str, program: Program, ran: Ran, step: Step) -> Json | None:
    """The instruction that the peak is reached at; None where no heap trace tells."""
    if not name:
        return None
    origin = Origin(program.instruction(name), ran)
    # None where it didn't run in the step, under its own name.
    ran_as = {each.metadata_id for each in ran.get(origin.instruction, ())}
    events = events_of(step.admitted.pieces, step.clock, ran_as)
    return {
        "hlo_op": name,
        "source_inner": origin.line,
        "source_is": origin.how,
        "tf_op": origin.tf_op,
        "first_start_ps": min((start for start, _, _ in events), default=None),
    }


def buffer_row(rank: int, live: Live, peak: int) -> Json:
    held, origin, index = live.held, live.origin, live.shape_index
    array = live.array
    return {
        "rank": rank,
        "bytes": held.size,
        "padding_bytes": live.padding,
        "pct_of_peak": percent(held.size, peak),
        "kind": held.kind,
        "shape": f"{array.dtype}[{','.join(map(str, array.dims))}]" if array else None,
        "hlo_op": origin.name,
        "opcode": origin.opcode,
        "shape_index": None if index is None else list(index),
        "parameter_number": held.parameter_number,
        "tf_op": origin.tf_op,
        "source_inner": origin.line,
        "source_is": origin.how,
        "source_stack": origin.stack,
    }


def share_rows(live: Sequence[Live], name: str, key: Callable[[Live], str | None]) -> list[Json]:
    """What is live by one of its facts, most bytes first; what lacks it comes last."""
    sizes: dict[str | None, list[int]] = {}
    for each in live:
        sizes.setdefault(key(each), []).append(each.held.size)
    ranked = sorted(sizes, key=lambda value: (value is None, -sum(sizes[value]), value))
    return [
        {name: value, "bytes": sum(sizes[value]), "n_buffers": len(sizes[value])}
        for value in ranked
    ]


def peak_notes(peak: Peak) -> list[str]:
    notes = []
    if peak.n_maxima > 1:
        notes.append(
            f"the peak is an upper bound: {peak.n_maxima} maxima of temporary memory, which need"
            " not be at one time, are added up"
        )
    if peak.n_untraced:
        notes.append(
            f"the peak is an upper bound: of {peak.n_untraced} bytes of temporary memory no trace"
            " tells when they are live; they count in whole"
        )
    return notes
