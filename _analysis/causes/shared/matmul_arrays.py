"""Find collectives that move the largest array of a matmul, although another sharding would move
its other arrays instead."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from _analysis.arrays.graph import (
    DOTS,
    Reached,
    Value,
    consumers,
    is_backward,
    is_same,
    producers,
    reach,
)
from _analysis.causes.shared.step_program import (
    StepProgram,
    collective_name_of,
    devices_of,
    place_of,
)
from _light import NamedTuple
from _pipeline.executions import Executions
from _proto.hlo.program import Instruction

GATHER, REDUCTIONS = "all-gather", ("all-reduce", "reduce-scatter")
# A collective is found only if the moved array has more than this many times the bytes of the
# matmul's other arrays on all devices together.
_FACTOR = 2


class Moved(NamedTuple):
    """A collective before or after matmuls, with the bytes of the moved array and of the matmuls'
    other arrays."""

    executions: Executions
    n_devices: int
    n_bytes: int
    n_others: int

    def part_of(self, time: int) -> int:
        """Return the time that is saved if the other arrays move instead."""
        return time * (self.n_bytes - self.n_others) // self.n_bytes


class MatmulsOfLine(NamedTuple):
    """The matmuls at a source line that have a gathered operand and a reduced result."""

    rows: list[Moved]
    dots: list[Executions]
    members: list[Executions]


def gathered_or_reduced(
    of: StepProgram, left_out: Collection[int]
) -> tuple[list[Moved], list[Moved]]:
    """Return the gathers of a matmul's operand, and the reductions of a matmul's result."""
    gathered, reduced = [], []
    for executions in of.long_collectives:
        here, name = executions.op.instruction, collective_name_of(executions.op)
        if here is None or id(executions) in left_out:
            continue
        if name == GATHER and (moved := _gathered(executions, here)):
            gathered.append(moved)
        elif name in REDUCTIONS and (moved := _reduced(executions, here)):
            reduced.append(moved)
    return gathered, reduced


def _gathered(executions: Executions, here: Instruction) -> Moved | None:
    walk = reach([Value(here)], consumers, is_same)
    dots = {value.instruction for value in walk.stopped}
    if not dots or any(dot.opcode not in DOTS for dot in dots):
        return None
    return _moved(executions, [here], [*_other_operands(dots, walk), *dots])


def _reduced(executions: Executions, here: Instruction) -> Moved | None:
    dots = {value.instruction for value in reach([Value(here)], producers, is_same).stopped}
    if not dots or any(
        dot.opcode not in DOTS or not dot.op_name or is_backward(dot) for dot in dots
    ):
        return None
    return _moved(executions, dots, {operand for dot in dots for operand in dot.operands})


def _other_operands(dots: Iterable[Instruction], walk: Reached) -> set[Instruction]:
    passed = {value.instruction for value in walk.passed}
    return {operand for dot in dots for operand in dot.operands if operand not in passed}


def gathered_and_reduced(of: StepProgram, left_out: Collection[int]) -> list[MatmulsOfLine]:
    """Return the lines with matmuls that have a gathered operand and a reduced result."""
    reductions = {
        here: executions
        for here, executions in of.collective_at.items()
        if collective_name_of(executions.op) in REDUCTIONS
    }
    by_line: dict[str | None, MatmulsOfLine] = {}
    counted_ids: set[int] = set()
    for executions in of.long_collectives:
        here = executions.op.instruction
        is_gather = collective_name_of(executions.op) == GATHER
        if here is None or not is_gather or id(executions) in left_out:
            continue
        walk = reach([Value(here)], consumers, is_same)
        for dot in sorted({value.instruction for value in walk.stopped}, key=lambda i: i.name):
            if dot.opcode not in DOTS or not _keeps(dot, executions):
                continue
            after = reach([Value(dot)], consumers, is_same).stopped
            found = {value.instruction for value in after} & reductions.keys()
            moved = _moved(executions, [here], _other_operands([dot], walk))
            ran = of.executed(dot)
            if found and moved and ran:
                place = place_of(ran.op)
                line = by_line.setdefault(
                    place.source_user or place.source_inner, MatmulsOfLine([], [], [])
                )
                line.rows.append(moved._replace(n_bytes=moved.n_bytes + (_bytes_of([dot]) or 0)))
                line.dots.append(ran)
                for member in (executions, *(reductions[reduction] for reduction in found)):
                    # Count each collective for one line only.
                    if id(member) not in counted_ids:
                        counted_ids.add(id(member))
                        line.members.append(member)
    return [line for line in by_line.values() if line.members]


def _keeps(dot: Instruction, gather: Executions) -> bool:
    """Return True if the dimensions along which an operand was gathered are also in the dot's
    result.

    Otherwise the dot sums over these dimensions, as for the gradient of a weight.
    """
    inside, arrays = gather.op.inside, dot.arrays
    if inside is None or not inside.inputs or not inside.outputs or not arrays:
        return False
    dims = zip(inside.inputs[0].dims, inside.outputs[0].dims, strict=False)
    return all(whole in arrays[0].dims for part, whole in dims if part != whole)


def _moved(
    executions: Executions, moved: Iterable[Instruction], others: Iterable[Instruction]
) -> Moved | None:
    n_devices = devices_of(executions).size
    n_bytes, n_others = _bytes_of(moved), _bytes_of(others)
    if not n_devices or not n_bytes or not n_others:
        return None
    n_others *= n_devices
    if n_bytes <= _FACTOR * n_others:
        return None
    return Moved(executions, n_devices, n_bytes, n_others)


def _bytes_of(instructions: Iterable[Instruction]) -> int | None:
    sizes = [array.n_bytes for i in instructions for array in i.arrays or ()]
    return sum(n for n in sizes if n) if sizes and None not in sizes else None
