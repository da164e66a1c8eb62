"""Compute how much HBM is free, and by how much a program's peak falls with smaller arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from _breakdown.analysis.arrays.engine import Change, Resize, Retime
from _breakdown.analysis.arrays.graph import Value
from _breakdown.analysis.arrays.of_step import StepArrays
from _breakdown.analysis.memory.allocator import runtime_of
from _breakdown.analysis.memory.memory_peak import peak_of_program
from _breakdown.light import NamedTuple
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.vocabulary import COMPUTE
from _peaks import CHIPS
from _proto.hlo.buffers import Buffer
from _proto.hlo.program import Program


def free_memory(step: Step, chip: str, context: Context) -> int | None:
    """Return the bytes of HBM that a step could use, too: what the allocator reported, or else what
    the step's program leaves of the chip's memory. Return None if both are unknown."""
    device = step.device
    runtime = runtime_of(device.trace, device.plane.name, context)
    if runtime and runtime.min_available is not None:
        return runtime.min_available
    capacity = CHIPS[chip].hbm_gib if chip in CHIPS else None
    programs = {ran.op.program for ran in step.leaves if ran.op.program}
    peaks = [peak.reserved for program in programs if (peak := peak_of_program(program))]
    if not capacity or not peaks:
        return None
    return max(0, capacity * 2**30 - max(peaks))


class Freed(NamedTuple):
    """The bytes by which the peak falls, and the peak."""

    n_bytes: int
    peak: int


def sizes_after(changes: Iterable[Change], arrays: StepArrays) -> dict[Value, float]:
    """Map the arrays that become smaller, or are no longer computed, to their new size as a
    fraction of the present one. Without a copy or a collective, its operand stays in memory."""
    removed = {
        change.ran
        for change in changes
        if isinstance(change, Retime) and not change.time and change.ran.op.kind == COMPUTE
    }
    touched = {array for ran in removed for array, _ in arrays.uses_of.get(ran, ())}
    unwritten = (
        array.value
        for array in touched
        if array.writes and removed.issuperset(use.ran for use in array.writes)
    )
    resized = {change.array: change.factor for change in changes if isinstance(change, Resize)}
    return {**resized, **dict.fromkeys(unwritten, 0)}


def freed_by(sizes: Mapping[Value, float], arrays: StepArrays, program: Program) -> Freed | None:
    """Replay the program's use of memory with the new sizes; return None if the program does not
    tell its use of memory."""
    peak = peak_of_program(program)
    if peak is None:
        return None

    def size_of(buffer: Buffer) -> int:
        here = buffer.instruction
        array = arrays.array_at(Value(here, buffer.shape_index)) if here else None
        return round(sizes.get(array.value, 1) * buffer.size) if array else buffer.size

    return Freed(peak.fall_with(size_of), peak.size)
