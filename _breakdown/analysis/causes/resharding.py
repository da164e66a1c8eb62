"""Find arrays that move between devices because neighbouring ops split them differently."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from _breakdown.analysis.arrays.engine import removal_of
from _breakdown.analysis.arrays.graph import (
    Value,
    consumers,
    is_moved,
    is_same,
    producers,
    reach,
    walk,
)
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.sentences import only
from _breakdown.analysis.causes.shared.step_program import (
    StepProgram,
    collective_name_of,
    devices_of,
    place_of_longest,
)
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.vocabulary import DATA_MOVE, SPARSE_CORE
from _breakdown.units import counted
from _proto.hlo.collectives import collective_name
from _proto.hlo.program import Instruction

_ALL_TO_ALLS = ("all-to-all", "ragged-all-to-all")
_INTENDED = ("all_to_all", "ragged_all_to_all")
_PERMUTE, _GATHER = "collective-permute", "all-gather"
_CONSTRAINTS = ("sharding_constraint", "reshard")
_CUTS = ("slice", "split", "dynamic_slice")
# Ops of lookups and updates of tables, and ops that mask rows of other devices.
_LOOKUPS, _MASKS = frozenset(("gather", "scatter")), frozenset(("select", "multiply"))

FOR_CONSTRAINT = (
    "Change the constraint to the sharding that the array already has, or remove the constraint."
)
FOR_MODEL = (
    "Look near this line for a with_sharding_constraint, in_specs or parameter spec that splits a"
    " different dimension than its neighbours. If there is none, try constraints on the"
    " activations, and measure."
)
# A server multiplied by the weights of gate and up at once (sglang), another one by those of q, k
# and v (sglang-jax 1146).
FOR_CUTS = (
    "Make the parts separately, for example with a matmul each for q, k and v, or for gate and up."
    " Or order the columns of the weight so that each device has its piece of each part."
)

# Why arrays move, and what helps.
_OF_CONSTRAINT = "whose sharding constraint requires this", FOR_CONSTRAINT
_OF_MODEL = (
    "which calls no all_to_all (intended if the line dispatches tokens to experts)",
    FOR_MODEL,
)
_OF_CUT = "because an array is cut along a dimension that devices divide", FOR_CUTS


def find(of: StepProgram) -> Iterator[Cause]:
    moved = [ran for ran in of.collectives if _is_resharding(ran.op) and not _is_of_lookup(ran.op)]
    moved += [ran for ran in of.long_collectives if _is_gathered_to_cut(ran.op)]
    keyed = (((devices_of(ran), _is_cut(ran.op)), ran) for ran in moved)
    for (_, is_cut), members in grouped(keyed).items():
        yield _cause(of, members, is_cut)


def _primitive(op: Op) -> str | None:
    return op.scope.primitive if op.scope else None


def _is_resharding(op: Op) -> bool:
    """Return whether devices move parts of an array that is divided before and after that."""
    name, primitive = collective_name_of(op), _primitive(op)
    is_needless = name in _ALL_TO_ALLS and primitive not in _INTENDED
    return is_needless or (name == _PERMUTE and primitive in _CONSTRAINTS + _CUTS)


def _is_cut(op: Op) -> bool:
    return _primitive(op) in _CUTS or collective_name_of(op) == _GATHER


def _is_gathered_to_cut(op: Op) -> bool:
    """Return whether devices gather the result of a matmul, of which each then cuts several pieces
    of its own."""
    is_of_matmul = _primitive(op) == "dot_general" and collective_name_of(op) == _GATHER
    if op.instruction is None or not is_of_matmul:
        return False
    pieces = reach([Value(op.instruction)], consumers, is_moved).stopped
    return len(pieces) > 1 and all(_is_own(value.instruction) for value in pieces)


def _is_own(piece: Instruction) -> bool:
    """Return whether a slice begins at a place that depends on the device."""
    starts = [Value(start) for start in piece.operands[1:]]
    return piece.opcode == "dynamic-slice" and any(
        value.instruction.opcode == "partition-id"
        for value, _ in walk(starts, producers, lambda _: True)
    )


def _is_of_lookup(op: Op) -> bool:
    """Return whether a collective moves rows that are looked up in a table, or added to it."""
    starts = [Value(op.instruction)] if op.instruction else []
    around = [reach(starts, step, _keeps_rows) for step in (producers, consumers)]
    # A lookup can also run on a SparseCore, as an asynchronous op.
    return any(
        inner.opcode in _LOOKUPS
        for reached in around
        for value in reached.passed | reached.stopped
        for part in value.instruction.chain
        for inner in (part, *part.inside())
    )


def _keeps_rows(value: Value) -> bool:
    here = value.instruction
    is_collective = here.is_asynchronous or collective_name(here.opcode) is not None
    return is_same(value) or is_collective or here.opcode in _MASKS


def _copies_around(of: StepProgram, collectives: Sequence[Executions]) -> list[Executions]:
    """Return the executions of the layout ops before and after collectives."""
    starts = [Value(ran.op.instruction) for ran in collectives if ran.op.instruction]
    around = {
        of.ran_of[value.instruction]: None
        for step in (producers, consumers)
        for value in reach(starts, step, is_moved).passed
        if value.instruction in of.ran_of
    }
    return [
        ran
        for ran in around
        if ran not in collectives and (ran.op.kind == DATA_MOVE or ran.op.waits_for == SPARSE_CORE)
    ]


def _cause(of: StepProgram, members: list[Executions], is_cut: bool) -> Cause:
    constraints = [ran for ran in members if _primitive(ran.op) in _CONSTRAINTS]
    removed = [*members, *_copies_around(of, members)]
    n = sum(ran.n for ran in members)
    collective = only({name for ran in members if (name := collective_name_of(ran.op))})
    devices = only({str(devices_of(ran).size or "") for ran in members})
    among = f" among {devices} devices" if devices else ""
    why, helps = _OF_CUT if is_cut else _OF_CONSTRAINT if constraints else _OF_MODEL
    return Cause(
        f"{counted(n, collective or 'collective')}{among} {'changes' if n == 1 else 'change'} how"
        f" arrays are sharded, with most time at <line>, {why}. Matching shardings would save"
        " <gain>.",
        helps,
        SEEN if constraints or is_cut else LIKELY,
        removed,
        removal_of(removed),
        place=place_of_longest(constraints or members),
    )
