"""Find kernels that several devices run on the same data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from _breakdown.analysis.arrays.engine import Remove, Retime
from _breakdown.analysis.arrays.graph import Value, consumers, is_moved, producers, reach
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.step_program import (
    Devices,
    StepProgram,
    collective_name_of,
    devices_of,
    place_of_longest,
)
from _breakdown.light import NamedTuple
from _breakdown.pipeline.executions import Executions
from _breakdown.units import counted
from _proto.hlo.program import Instruction

_GATHER, _REDUCTIONS = "all-gather", ("all-reduce", "reduce-scatter")
# An operand is large if it has at least 1 / _LARGE of the bytes of the largest operand or of the
# result, whichever is smaller. Smaller operands, such as segment ids, are often on all devices.
_LARGE = 8

REMEDY = (
    "Name the mesh axis in in_specs and out_specs of the shard_map around the kernel, so that each"
    " device gets its own part, for example some of the heads."
)


class _Read(NamedTuple):
    """The all-gathers whose results a kernel reads, in order; `is_all` is True if all large
    operands are gathered."""

    devices: Devices
    gathers: dict[Executions, None]
    is_all: bool


def find(of: StepProgram) -> Iterator[Cause]:
    read_by = [(kernel, _gathers_of(of, kernel)) for kernel in of.leaves if kernel.op.kernel]
    whole: dict[Devices, dict[Executions, None]] = {}
    for _, (devices, gathers, is_all) in read_by:
        if is_all and devices.size > 1:
            whole.setdefault(devices, {}).update(gathers)
    for devices, moved in whole.items():
        repeated = [
            kernel
            for kernel, read in read_by
            if read.devices == devices and read.gathers.keys() <= moved.keys()
        ]
        reductions = {
            reduction: None
            for kernel in repeated
            for reduction in _reached(of, kernel.op.instruction, consumers)
            if collective_name_of(reduction.op) in _REDUCTIONS and devices_of(reduction) == devices
        }
        yield _cause(devices.size, repeated, [*(moved | reductions)])


def _gathers_of(of: StepProgram, kernel: Executions) -> _Read:
    here = kernel.op.instruction
    operands = here.operands if here else ()
    sizes = [_bytes_of(operand) for operand in operands]
    large = min(max(sizes, default=0), _bytes_of(here) if here else 0)
    gathers: dict[Executions, None] = {}
    is_all = bool(operands)
    for operand, n_bytes in zip(operands, sizes, strict=True):
        reached = _reached(of, operand, producers)
        found = {ran: None for ran in reached if collective_name_of(ran.op) == _GATHER}
        gathers |= found
        is_all = is_all and (bool(found) or n_bytes * _LARGE < large)
    groups = {devices_of(gather) for gather in gathers}
    devices = groups.pop() if len(groups) == 1 else Devices(None, 0)
    return _Read(devices, gathers, is_all)


def _bytes_of(here: Instruction) -> int:
    return sum(array.n_bytes or 0 for array in here.arrays or ())


def _reached(
    of: StepProgram, start: Instruction | None, step: Callable[[Value], Sequence[Value]]
) -> Iterator[Executions]:
    """Yield the collectives that can be reached from `start` through layout ops only."""
    walk = reach([Value(start)] if start else [], step, is_moved)
    for instruction in {value.instruction for value in walk.passed | walk.stopped}:
        if instruction in of.collective_at:
            yield of.collective_at[instruction]


def _cause(n_devices: int, kernels: list[Executions], moved: list[Executions]) -> Cause:
    n = sum(kernel.n for kernel in kernels)
    return Cause(
        f"Kernels at <line> compute the same result on {n_devices} devices in"
        f" {counted(n, 'execution')}, because these devices gather all operands first. Sharing the"
        " work would save <gain>.",
        REMEDY,
        LIKELY,
        [*kernels, *moved],
        [*(Retime(ran, ran.total / n_devices) for ran in kernels), Remove(moved)],
        place=place_of_longest(kernels),
    )
