"""Find parameters and results whose elements each step moves to another layout."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import removal_of
from _breakdown.analysis.arrays.of_step import StepArray
from _breakdown.analysis.causes.shared.cause import SEEN, Cause
from _breakdown.analysis.causes.shared.copies import changes_layout, moved_between
from _breakdown.analysis.causes.shared.sentences import clipped
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of
from _breakdown.pipeline.executions import Executions
from _breakdown.units import counted
from _proto.hlo.text import HBM

REMEDY = (
    "Store the array in the order that the step needs, for example when weights are loaded, or let"
    " the compiler choose the layout (Layout.AUTO of jax.experimental.layout) and donate it."
)

# What helps if only results change their layout.
OF_RESULTS = (
    "Return the array in the order in which the step computes it, or let the compiler choose the"
    " layout (Layout.AUTO of jax.experimental.layout)."
)


def find(of: StepProgram) -> Iterator[Cause]:
    moves = [
        (ran, source, result)
        for ran in of.long_ops
        if (here := ran.op.instruction) and changes_layout(here)
        for source, result in _at_boundary(of, ran)
    ]
    # A result that replaces a parameter is copied back, often at another line.
    of_shape = {source.shape: ran for ran, source, _ in moves if source}
    rows: dict[str | None, list[tuple[Executions, StepArray | None]]] = {}
    for ran, source, result in moves:
        place = place_of(of_shape.get(result.shape, ran).op if result else ran.op)
        rows.setdefault(place.source_user or place.source_inner, []).append((ran, source))
    for row in rows.values():
        members = [ran for ran, _ in row]
        # A result that replaces a parameter seldom takes much longer than the parameter.
        longest, source = max(row, key=lambda move: (1 + (move[1] is not None)) * move[0].total)
        here = longest.op.instruction
        name = f"parameters such as {clipped(source.name or '?')}" if source else "results"
        yield Cause(
            f"Each step moves elements of {name} to another layout at <line>, in"
            f" {counted(len(members), 'op')}. Without that, the step would save <gain>.",
            REMEDY if source else OF_RESULTS,
            SEEN,
            members,
            removal_of(members),
            place=place_of(longest.op),
            evidence={"shape": here.shape if here else None},
        )


def _at_boundary(
    of: StepProgram, ran: Executions
) -> Iterator[tuple[StepArray | None, StepArray | None]]:
    """Yield the parameter or the result of which an op changes the layout, if there is one."""
    if moved := moved_between(of, ran):
        read, written = moved
        source = of.arrays.source_of(read)
        if source.is_parameter and source.shape.memory_space == HBM:
            yield source, None
        elif written.is_result:
            yield None, written
