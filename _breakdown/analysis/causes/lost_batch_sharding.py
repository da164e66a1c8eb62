"""Find activations of a whole batch that devices add up, although each gets a part of the batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from _breakdown.analysis.arrays.engine import Retime
from _breakdown.analysis.arrays.of_step import PARAMETER
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.step_program import (
    StepProgram,
    collective_name_of,
    counts_of,
    total_of,
)
from _breakdown.light import NamedTuple
from _breakdown.pipeline.executions import Executions
from _breakdown.units import counted, time
from _proto.hlo.shapes import Array

_TOKENS = ("s32", "u32", "s64", "u64")
_SUMMED = "all-reduce"
# An all-reduce moves its array twice.
_TIMES = {_SUMMED: 2}
# A step gathers divided weights for both passes, and adds up and scatters their gradients.
_PASSES, _WEIGHT_BYTES = 3, 2

REMEDY = (
    "Find the op at which activations lose the sharding of the batch, such as the lookup of"
    " embeddings or the start of a scan, and constrain what it returns"
    " (with_sharding_constraint). Check that the mesh and the logical axis rules are set where the"
    " model is traced: without them, constraints do nothing."
)


class _Exchange(NamedTuple):
    """A collective of activations of the whole batch."""

    ran: Executions
    array: Array
    n_devices: int


def find(of: StepProgram) -> Iterator[Cause]:
    exchanges = list(_exchanges(of))
    sums = [each.ran for each in exchanges if collective_name_of(each.ran.op) == _SUMMED]
    if total_of(sums) < max(1, of.floor):
        return
    n_devices = exchanges[0].n_devices
    moved = sum(
        _TIMES.get(collective_name_of(ran.op) or "", 1) * ran.n * (array.n_bytes or 0)
        for ran, array, _ in exchanges
    )
    weights = sum(
        array.shape.n_elements for array in of.arrays if of.arrays.kind_of(array) == PARAMETER
    )
    left = min(1.0, _PASSES * _WEIGHT_BYTES * weights * n_devices / max(1, moved))
    members = [each.ran for each in exchanges]
    biggest = max(exchanges, key=lambda each: each.array.n_bytes or 0).array
    yield Cause(
        f"{counted(n_devices, 'device')} exchange activations of the whole batch, such as"
        f" {biggest.text}, in {counts_of(members)}, although each gets only its part of the batch."
        f" This takes {time(total_of(members))}, with most time at <line>. Gathering the weights"
        " instead would save <gain>.",
        REMEDY,
        LIKELY,
        members,
        [Retime(ran, ran.total * left) for ran in members],
        evidence={"shape": biggest.text},
    )


def _exchanges(of: StepProgram) -> Iterator[_Exchange]:
    inputs = list(_inputs(of)) if of.trains else ()
    for ran in of.long_collectives if inputs else ():
        inside = ran.op.inside
        groups = inside.who.groups if inside and inside.who else None
        for array in (*(inside.outputs or ()), *(inside.inputs or ())) if inside else ():
            n = _n_parts(array, groups, inputs)
            if n:
                yield _Exchange(ran, array, n)
                break


def _inputs(of: StepProgram) -> Iterator[tuple[tuple[int, ...], Sequence[int]]]:
    """Yield the dimensions of each input of tokens, and for each device the first device with the
    same part."""
    entry = of.program.computation(of.program.message.entry_computation_id)
    for here in entry.parameters.values() if entry else ():
        equal = of.equal_copies.equal_at(here)
        for array in here.arrays or () if equal else ():
            if array.dtype in _TOKENS and len(array.dims) == 2 and equal:
                yield tuple(array.dims), equal


def _n_parts(
    array: Array,
    groups: Sequence[Sequence[int]] | None,
    inputs: Sequence[tuple[tuple[int, ...], Sequence[int]]],
) -> int:
    """Return the number of devices whose parts of the batch make the first dimension of an array;
    0 if it is not that of the whole batch."""
    if groups is None or len(array.dims) < 3:
        return 0
    for (batch, length), equal in inputs:
        for group in groups or [range(len(equal))]:
            n = len({equal[i] for i in group if i < len(equal)})
            if n > 1 and n == len(group) and tuple(array.dims[:2]) == (n * batch, length):
                return n
    return 0
