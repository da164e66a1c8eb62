"""Find collectives whose result is whole on every device that keeps only a part."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.arrays.graph import (
    ELEMENTWISE,
    Value,
    consumers,
    is_same,
    producers,
    reach,
    walk,
)
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.step_program import (
    StepProgram,
    collective_name_of,
    counts_of,
    devices_of,
)
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _proto.hlo.collectives import collective_name
from _proto.hlo.program import Instruction

_GATHER, _REDUCTION = "all-gather", "all-reduce"
_SLICE = "dynamic-slice"
# Ignore arrays that have less than 1 / `_SMALL` of the bytes of a collective's largest array.
_SMALL = 100
# Opcodes that return the number of the device.
_DEVICE = ("partition-id", "replica-id")

# Instructions that join arrays, for example all gradients into a flat one.
_JOINS = ("concatenate", "dynamic-update-slice", "pad")

FOR_SUMS = (
    "Use psum_scatter instead of psum and a slice, or give the result the sharding of its slices,"
    " so that the compiler creates a reduce-scatter."
)
FOR_GATHERS = (
    "Look near this line for a with_sharding_constraint, in_specs or parameter spec that splits a"
    " different dimension than its neighbours. If there is none, try constraints on the"
    " activations, and measure."
)


def find(of: StepProgram) -> Iterator[Cause]:
    sliced = (
        (collective_name_of(ran.op), ran)
        for ran in of.long_collectives
        if collective_name_of(ran.op) in (_GATHER, _REDUCTION)
        and ran.op.instruction
        and _is_sliced(ran.op.instruction, devices_of(ran).size)
    )
    for name, members in grouped(sliced).items():
        yield _cause(name == _REDUCTION, members)


def _is_sliced(collective: Instruction, n_devices: int) -> bool:
    sizes = {path: (array and array.n_bytes) or 0 for path, array in collective.leaves or ()}
    # The compiler joins small arrays, such as the loss, with large ones.
    starts = [
        Value(collective, path)
        for path, size in sizes.items()
        if _SMALL * size >= max(sizes.values())
    ]
    n_parts = 0
    for value, is_passed in walk(starts, consumers, _is_passed_on):
        if _is_result(value.instruction) if is_passed else not _is_own_part(value, n_devices):
            return False
        n_parts += not is_passed
    return n_parts > 0


def _is_result(here: Instruction) -> bool:
    """Return True if the program returns what an instruction computes."""
    return here.computation.root is here and here.computation.caller is None


def _is_passed_on(value: Value) -> bool:
    """Return True if an op computes each element from one element of the array: a device that keeps
    a part of the result needs only this part of the array."""
    opcode = value.instruction.opcode
    return is_same(value) or opcode in _JOINS or opcode in ELEMENTWISE


def _is_own_part(value: Value, n_devices: int) -> bool:
    """Return True if a value is a part of an array, another one on each device."""
    here = value.instruction
    return here.opcode == _SLICE and _depends_on_device(here) and _is_part(here, n_devices)


def _depends_on_device(cut: Instruction) -> bool:
    """Return True if a dynamic-slice cuts out a different part on each device."""
    indices = [Value(index) for index in cut.operands[1:]]
    # The result of a collective is equal on all devices.
    needed = reach(indices, producers, lambda value: not collective_name(value.instruction.opcode))
    return any(value.instruction.opcode in _DEVICE for value in needed.passed)


def _is_part(cut: Instruction, n_devices: int) -> bool:
    """Return True if the parts of all devices together are about as large as the array."""
    part, whole = Value(cut).array, Value(cut.operands[0]).array
    if part is None or whole is None:
        return False
    together = part.n_elements * n_devices
    return 4 * together <= 5 * whole.n_elements and 4 * whole.n_elements <= 5 * together


def _cause(is_sum: bool, members: list[Executions]) -> Cause:
    what = "sums are" if is_sum else "arrays are"
    instead = "A reduce-scatter" if is_sum else "Matching shardings"
    return Cause(
        f"Whole {what} sent to all devices by {counts_of(members)}, with most time at <line>, but"
        f" each device then keeps only a part. {instead} would save <gain>.",
        FOR_SUMS if is_sum else FOR_GATHERS,
        SEEN if is_sum else LIKELY,
        members,
        [
            Retime(ran, ran.total / (2 if is_sum else max(2, devices_of(ran).size)))
            for ran in members
        ],
    )
