"""Find activations of a whole batch that devices add up, although each gets a part of the batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import islice

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
from _proto.hlo.parameters import n_partitions
from _proto.hlo.program import Instruction
from _proto.hlo.shapes import Array

_TOKENS = ("s32", "u32", "s64", "u64")
_SUMMED = "all-reduce"
_ADDING = (_SUMMED, "reduce-scatter")
# A step gathers divided weights for both passes, and adds up and scatters their gradients.
_PASSES, _WEIGHT_BYTES = 3, 2

REMEDY = (
    "Find the op at which activations lose the sharding of the batch, such as the lookup of"
    " embeddings or the start of a scan, and constrain what it returns"
    " (with_sharding_constraint). Check that the mesh and the logical axis rules are set where the"
    " model is traced: without them, constraints do nothing."
)


class _Exchange(NamedTuple):
    """A collective of activations that begin with the parts of an input that its devices have."""

    ran: Executions
    array: Array
    tokens: Instruction
    group: Sequence[int]


def find(of: StepProgram) -> Iterator[Cause]:
    exchanges = list(_exchanges(of)) if of.trains else []
    if _time_of_sums(exchanges) >= max(1, of.floor):
        exchanges = [each for each in exchanges if _has_parts(of, each)]
    if _time_of_sums(exchanges) < max(1, of.floor) or len(_widths_of(exchanges)) < 2:
        return
    n_devices = len(exchanges[0].group)
    # An all-reduce moves its array twice.
    moved = sum(
        (1 + (collective_name_of(ran.op) == _SUMMED)) * ran.n * (array.n_bytes or 0)
        for ran, array, *_ in exchanges
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


def _time_of_sums(exchanges: Sequence[_Exchange]) -> int:
    return total_of([each.ran for each in exchanges if collective_name_of(each.ran.op) == _SUMMED])


def _widths_of(exchanges: Sequence[_Exchange]) -> set[int]:
    """Return the numbers of elements of a token that devices add up. Tensor parallelism has only
    the width of the model, even if the devices of a group get different tokens at first."""
    return {
        math.prod(each.array.dims[2:])
        for each in exchanges
        if collective_name_of(each.ran.op) in _ADDING
    }


def _exchanges(of: StepProgram) -> Iterator[_Exchange]:
    entry = of.program.computation(of.program.message.entry_computation_id)
    inputs = [
        (here, array.dims)
        for here in (entry.parameters.values() if entry else ())
        for array in here.arrays or ()
        if array.dtype in _TOKENS and len(array.dims) == 2
    ]
    everywhere = range(n_partitions(of.program))
    for ran in of.long_collectives if inputs else ():
        inside = ran.op.inside
        if inside is None or inside.who is None or inside.who.groups is None:
            continue
        group = next(iter(inside.who.groups), everywhere)
        found = (
            _Exchange(ran, array, here, group)
            for array in (*(inside.outputs or ()), *(inside.inputs or ()))
            for here, (batch, length) in inputs
            if len(array.dims) > 2 and tuple(array.dims[:2]) == (len(group) * batch, length)
        )
        yield from islice(found, 1)


def _has_parts(of: StepProgram, exchange: _Exchange) -> bool:
    """Return whether each device of a group has another part of the input."""
    equal = of.equal_copies.equal_at(exchange.tokens) or ()
    parts = {equal[i] for i in exchange.group if i < len(equal)}
    return len(parts) == len(exchange.group) > 1
