"""Find copies of whole buffers that only keep the old contents while an op writes in place."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from _breakdown.analysis.arrays.engine import removal_of
from _breakdown.analysis.arrays.graph import is_layout
from _breakdown.analysis.arrays.of_step import StepArray, Use
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.copies import changes_layout, moved_between
from _breakdown.analysis.causes.shared.sentences import clipped
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted
from _proto.hlo.text import HBM

FOR_ARGUMENTS = "Donate the arrays that the step updates: pass donate_argnums to jax.jit."
FOR_VALUES = "Read the old contents before the update, or use only the new ones."


def find(of: StepProgram) -> Iterator[Cause]:
    kept = {a.shape for a in of.arrays if a.is_parameter and not of.arrays.is_donated(a)}
    results = [
        array
        for array in of.arrays
        if array.is_result and array.shape in kept and not array.is_parameter
    ]
    chains = [chain for result in results if (chain := _from_argument(of, result))]
    of_arguments = [use.ran for chain in chains for use in _fills(chain)]
    if chains:
        name = clipped(chains[0][-1].name or "an array")
        yield Cause(
            f"The step copies {counted(len(chains), 'argument')} such as {name} to update"
            f" {'it' if len(chains) == 1 else 'them'} at <line>, because the caller keeps the old"
            " contents. Donating would save <gain>.",
            FOR_ARGUMENTS,
            SEEN,
            of_arguments,
            removal_of(of_arguments),
        )
    explained = set(of_arguments)
    others = [ran for ran in of.long_ops if ran not in explained]
    rows = grouped((place_of(r.op).source_user, r) for r in others if _keeps_old_contents(of, r))
    for members in rows.values():
        shape = members[0].op.instruction.shape if members[0].op.instruction else None
        yield Cause(
            f"{counted(sum(ran.n for ran in members), 'copy')} at <line> keep the contents of"
            f" buffers such as {clipped(shape or '?')} while another op writes in place."
            " Updating in place everywhere would save <gain>.",
            FOR_VALUES,
            LIKELY,
            members,
            removal_of(members),
        )


def _from_argument(of: StepProgram, result: StepArray) -> list[StepArray]:
    """Return a result, the arrays of which it is a copy, and the argument that could have become
    it; an empty list if there is none."""
    chain = [result]
    while value := chain[-1].filled_from:
        source = of.arrays.by_value.get(value)
        if source is None or source in chain:
            return []
        chain.append(source)
    last = chain[-1]
    if not last.is_parameter or last.shape != result.shape or of.arrays.is_donated(last):
        return []
    moves = (use.ran.op.instruction for use in _fills(chain))
    return [] if any(here and changes_layout(here) for here in moves) else chain


def _fills(chain: Sequence[StepArray]) -> Iterator[Use]:
    """Yield the copies between the arrays of a chain."""
    for array in chain[:-1]:
        yield from (use for use in array.writes if use.is_filling)


def _keeps_old_contents(of: StepProgram, ran: Executions) -> bool:
    """Return whether an op copies a whole array in HBM to the same layout in HBM, and another op
    updates one of the two in place."""
    here = ran.op.instruction
    moved = moved_between(of, ran) if here is not None and is_layout(here) else None
    # A SparseCore formats arrays; it does not copy them to keep their contents.
    if here is None or moved is None or changes_layout(here) or here.on_sparse_core:
        return False
    read, written = moved
    is_updated = not all(use.is_filling for use in (*read.writes, *written.writes))
    return is_updated and read.shape == written.shape and read.shape.memory_space == HBM
