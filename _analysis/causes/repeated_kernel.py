"""Find kernels that several devices run on the same data.

    attention = shard_map(kernel, mesh=mesh, in_specs=P("data", None, None), ...)
    out = attention(q, k, v)    # the heads are split by "model"

The compiler cannot split a kernel, so it gathers the dimensions that `in_specs` does not split, and
all devices along this mesh axis compute the same result. The cause is `seen` if all large operands
of a kernel come from all-gathers among the same devices, through layout ops only. If only keys and
values are gathered, each device works on different queries; if only weights are gathered, on
different activations. Other kernels, such as those of the backward pass, belong to the cause if
they read only these all-gathers.

For groups of n devices, the gain is (n - 1) / n of the kernels' time, plus the time that the step
saves without the collectives. These are the all-gathers, and the reductions of the kernels' results
in the backward pass. The cause is reported as a `resharding`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from _analysis.causes.cause import SEEN, Cause, Evidence
from _analysis.causes.graph import Value, consumers, is_layout, producers, reach
from _analysis.causes.resharding import NAME
from _analysis.causes.sentences import about, line_says
from _analysis.causes.step_program import (
    StepProgram,
    collective_name_of,
    place_of_longest,
    total_of,
)
from _analysis.remedies import CAUSES
from _pipeline.executions import Executions
from _proto.hlo.program import Instruction
from _units import counted

_GATHER, _REDUCTIONS = "all-gather", ("all-reduce", "reduce-scatter")
# An operand is large if it has at least 1 / _LARGE of the bytes of the largest operand or of the
# result, whichever is smaller.
_LARGE = 8


class _Group(NamedTuple):
    """The devices among which a collective runs."""

    label: str | None
    size: int


def find(of: StepProgram) -> list[Cause]:
    kernels = [executions for executions in of.leaves if executions.op.kernel]
    collectives = {
        executions.op.instruction: executions
        for executions in of.collectives
        if executions.op.instruction
    }
    read_by = [(kernel, _gathers_of(kernel, collectives)) for kernel in kernels]
    whole: dict[_Group, dict[int, Executions]] = {}
    for _, (group, gathers, is_all) in read_by:
        if is_all and group.size > 1:
            whole.setdefault(group, {}).update(gathers)
    causes = []
    for group, moved in whole.items():
        repeated = [
            kernel
            for kernel, (its_group, gathers, _) in read_by
            if its_group == group and gathers.keys() <= moved.keys()
        ]
        reductions = {
            id(reduction): reduction
            for kernel in repeated
            for reduction in _reached(kernel.op.instruction, consumers, collectives)
            if collective_name_of(reduction.op) in _REDUCTIONS and _group_of(reduction) == group
        }
        causes.append(_cause(of, group.size, repeated, list((moved | reductions).values())))
    return causes


class _Read(NamedTuple):
    """The all-gathers whose results a kernel reads, keyed by id; `is_all` is True if all large
    operands are gathered."""

    group: _Group
    gathers: dict[int, Executions]
    is_all: bool


def _gathers_of(kernel: Executions, collectives: Mapping[Instruction, Executions]) -> _Read:
    here = kernel.op.instruction
    operands = here.operands if here else ()
    sizes = [sum(array.n_bytes or 0 for array in operand.arrays or ()) for operand in operands]
    result = sum(array.n_bytes or 0 for array in (here.arrays if here else None) or ())
    large = min(max(sizes, default=0), result)
    gathers: dict[int, Executions] = {}
    is_all = bool(operands)
    for operand, size in zip(operands, sizes, strict=True):
        found = {
            id(gather): gather
            for gather in _reached(operand, producers, collectives)
            if collective_name_of(gather.op) == _GATHER
        }
        gathers |= found
        is_all = is_all and (bool(found) or size * _LARGE < large)
    groups = {_group_of(gather) for gather in gathers.values()}
    group = groups.pop() if len(groups) == 1 else _Group(None, 0)
    return _Read(group, gathers, is_all)


def _reached(
    start: Instruction | None,
    step: Callable[[Value], Sequence[Value]],
    collectives: Mapping[Instruction, Executions],
) -> Iterable[Executions]:
    """Yield the collectives that can be reached from `start` through layout ops only."""
    walk = reach([Value(start)] if start else [], step, lambda value: is_layout(value.instruction))
    for instruction in {value.instruction for value in walk.passed | walk.stopped}:
        if instruction in collectives:
            yield collectives[instruction]


def _group_of(executions: Executions) -> _Group:
    who = executions.op.inside.who if executions.op.inside else None
    return _Group(who.label if who else None, (who.size if who else None) or 0)


def _cause(
    of: StepProgram, n_devices: int, kernels: list[Executions], moved: list[Executions]
) -> Cause:
    gain = total_of(kernels) * (n_devices - 1) // n_devices + of.links.saved_without(moved)
    place = place_of_longest(kernels)
    n = sum(kernel.n for kernel in kernels)
    return Cause(
        NAME,
        gain,
        f"Kernels at {line_says(place)} compute the same result on {n_devices} devices in"
        f" {counted(n, 'execution')}, because these devices gather all operands first. Sharing the"
        f" work would save {about(gain, of.step)}.",
        CAUSES["resharding, kernel"],
        SEEN,
        Evidence([*kernels, *moved], n_participants=n_devices),
        *place,
    )
