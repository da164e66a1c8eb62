"""Find matmuls that are sharded such that the largest of their three arrays is moved between
devices.

    logits = x @ embedding.T    # x and embedding are split along the contracted dimension, so
                                # partial sums [batch, time, vocabulary] are reduced

A matmul has three arrays: two operands and the result. An all-gather or a reduction next to the
matmul moves one of these arrays, and another sharding would move the other two instead. The moved
array must have more than twice as many bytes as the other two together, summed over all devices of
a group. Then even gathering both other arrays everywhere would be cheaper. The gain is the exposed
time minus the time for moving the other two arrays at the same rate. The cause is reported as a
`likely` `resharding`, because the line that sets the sharding is elsewhere.

The cause is also reported if one operand is gathered and the result is reduced. The gathered
operand must have more than twice as many bytes as the other operand has on all devices together.
Gathering only the other operand would then be cheaper.

    dx = dh @ w.T    # dh is gathered, and dx is reduced, although w is small

Reductions without a gather count only in the forward pass, because in the backward pass they sum
gradients over batches.
"""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import NamedTuple

from _analysis.causes.cause import LIKELY, Cause, Evidence
from _analysis.causes.graph import DOTS, Value, consumers, is_backward, is_layout, producers, reach
from _analysis.causes.resharding import NAME
from _analysis.causes.sentences import about, line_says
from _analysis.causes.step_program import (
    StepProgram,
    collective_name_of,
    place_of,
    place_of_longest,
)
from _analysis.remedies import CAUSES
from _pipeline.executions import Executions
from _proto.hlo.program import Instruction
from _units import size

_GATHER = "all-gather"
_REDUCTIONS = ("all-reduce", "reduce-scatter")
# Report a collective only if the moved array has more than this many times the bytes of the
# matmul's other arrays on all devices together.
_FACTOR = 2


class _Moved(NamedTuple):
    """A collective before or after matmuls, with the bytes of the moved array and of the matmuls'
    other arrays."""

    executions: Executions
    n_devices: int
    n_bytes: int
    n_others: int

    @property
    def saved(self) -> int:
        return self.executions.total * (self.n_bytes - self.n_others) // self.n_bytes


class _Line(NamedTuple):
    """The matmuls at a source line that have a gathered operand and a reduced result."""

    rows: list[_Moved]
    dots: list[Executions]
    members: list[Executions]


def find(of: StepProgram, left_out: Container[int]) -> list[Cause]:
    """Return the causes; `left_out` contains the ids of executions that belong to other causes."""
    gathered, reduced = [], []
    causes = _gathered_and_reduced(of, left_out)
    seen = {id(executions) for cause in causes for executions in cause.evidence.executions}
    for executions in of.collectives:
        if executions.total * 20 < of.floor or id(executions) in left_out or id(executions) in seen:
            continue
        name = collective_name_of(executions.op)
        if name == _GATHER and (moved := _gathered(executions)):
            gathered.append(moved)
        elif name in _REDUCTIONS and (moved := _reduced(executions)):
            reduced.append(moved)
    if gathered:
        causes.append(
            _cause(of, gathered, "gathers an operand", "the other operand and the result")
        )
    if reduced:
        causes.append(_cause(of, reduced, "reduces partial sums", "both operands"))
    return causes


def _gathered(executions: Executions) -> _Moved | None:
    here = executions.op.instruction
    if here is None:
        return None
    walk = reach([Value(here)], consumers, _is_same)
    dots = {value.instruction for value in walk.stopped}
    if not dots or any(dot.opcode not in DOTS for dot in dots):
        return None
    passed = {value.instruction for value in walk.passed}
    others = {operand for dot in dots for operand in dot.operands if operand not in passed}
    return _moved(executions, [here], [*others, *dots])


def _gathered_and_reduced(of: StepProgram, left_out: Container[int]) -> list[Cause]:
    """Return a cause for each line with matmuls that have a gathered operand and a reduced
    result."""
    reductions = {
        executions.op.instruction: executions
        for executions in of.collectives
        if collective_name_of(executions.op) in _REDUCTIONS and executions.op.instruction
    }
    by_line: dict[str | None, _Line] = {}
    counted: set[int] = set()
    for executions in of.collectives:
        here = executions.op.instruction
        if here is None or collective_name_of(executions.op) != _GATHER:
            continue
        if executions.total * 20 < of.floor or id(executions) in left_out:
            continue
        walk = reach([Value(here)], consumers, _is_same)
        passed = {value.instruction for value in walk.passed}
        for dot in sorted({value.instruction for value in walk.stopped}, key=lambda i: i.name):
            if dot.opcode not in DOTS or not _keeps(dot, executions):
                continue
            after = reach([Value(dot)], consumers, _is_same).stopped
            found = {value.instruction for value in after} & reductions.keys()
            moved = _moved(executions, [here], {o for o in dot.operands if o not in passed})
            ran = of.executed(dot)
            if found and moved and ran:
                place = place_of(ran.op)
                line = by_line.setdefault(
                    place.source_user or place.source_inner, _Line([], [], [])
                )
                line.rows.append(moved._replace(n_bytes=moved.n_bytes + (_bytes_of([dot]) or 0)))
                line.dots.append(ran)
                for member in (executions, *(reductions[reduction] for reduction in found)):
                    # Count each collective for one line only.
                    if id(member) not in counted:
                        counted.add(id(member))
                        line.members.append(member)
    return [_line_cause(of, line) for line in by_line.values() if line.members]


def _line_cause(of: StepProgram, line: _Line) -> Cause:
    largest = max(line.rows, key=lambda moved: moved.n_bytes)
    saved = of.links.saved_without(line.members)
    gain = saved * (largest.n_bytes - largest.n_others) // largest.n_bytes
    place = place_of_longest(line.dots)
    return Cause(
        NAME,
        gain,
        f"The matmul at {line_says(place)} gathers one operand and reduces its result"
        f" ({size(largest.n_bytes)}) among {largest.n_devices} devices, but the other operand has"
        f" only {size(largest.n_others)} on all of them together. Another sharding would save"
        f" {about(gain, of.step)}.",
        CAUSES["resharding, matmul"],
        LIKELY,
        Evidence(line.members, n_participants=largest.n_devices),
        *place,
    )


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


def _reduced(executions: Executions) -> _Moved | None:
    here = executions.op.instruction
    if here is None:
        return None
    dots = {value.instruction for value in reach([Value(here)], producers, _is_same).stopped}
    if not dots or any(
        dot.opcode not in DOTS or not dot.op_name or is_backward(dot) for dot in dots
    ):
        return None
    return _moved(executions, dots, {operand for dot in dots for operand in dot.operands})


def _is_same(value: Value) -> bool:
    return value.instruction.opcode == "convert" or is_layout(value.instruction)


def _moved(
    executions: Executions, moved: Iterable[Instruction], others: Iterable[Instruction]
) -> _Moved | None:
    who = executions.op.inside.who if executions.op.inside else None
    n_bytes, n_others = _bytes_of(moved), _bytes_of(others)
    if not who or not who.size or not n_bytes or not n_others:
        return None
    n_others *= who.size
    if n_bytes <= _FACTOR * n_others:
        return None
    return _Moved(executions, who.size, n_bytes, n_others)


def _bytes_of(instructions: Iterable[Instruction]) -> int | None:
    sizes = [array.n_bytes for i in instructions for array in i.arrays or ()]
    return sum(n for n in sizes if n) if sizes and None not in sizes else None


def _cause(of: StepProgram, rows: list[_Moved], action: str, others: str) -> Cause:
    members = [moved.executions for moved in rows]
    gain = sum(moved.saved for moved in rows)
    largest = max(rows, key=lambda moved: moved.executions.total)
    place = place_of_longest(members)
    name = collective_name_of(largest.executions.op)
    more = f" ({len(rows) - 1} more like it)" if len(rows) > 1 else ""
    return Cause(
        NAME,
        gain,
        f"The {name} at {line_says(place)} {action} of a matmul among"
        f" {largest.n_devices} devices{more}: {size(largest.n_bytes)}, but {others} have only"
        f" {size(largest.n_others)} on all of them together. Another sharding would save"
        f" {about(gain, of.step)}.",
        CAUSES["resharding, matmul"],
        LIKELY,
        Evidence(members, collective=name, n_participants=largest.n_devices),
        *place,
    )
