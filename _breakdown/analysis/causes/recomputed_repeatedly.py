"""Find ops that are recomputed twice, because one checkpoint contains another."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from _breakdown.analysis.arrays.engine import removal_of
from _breakdown.analysis.causes.shared.cause import SEEN, Cause, StepFacts
from _breakdown.analysis.causes.shared.checkpoints import (
    REPEATED_PART,
    Recomputed,
    common_place_of,
    multiplies,
    parts_of,
    recomputed_in,
)
from _breakdown.analysis.causes.shared.sentences import line_says
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import grouped
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.scopes import merged_layers
from _breakdown.pipeline.vocabulary import COMPUTE

FOR_OUTER = "Remove the outer checkpoint; the inner checkpoints already save the memory."
FOR_INNER = "Remove the inner checkpoint; the outer checkpoint already saves the memory."


def find(facts: StepFacts) -> Iterator[Cause]:
    recomputed = recomputed_in(facts.step)
    once = {work.path for work in recomputed if work.depth == 1}
    twice = [
        work
        for work in recomputed
        if work.depth > 1 and multiplies(work.ran.op) and work.path in once
    ]
    if not twice:
        return
    is_outer = _is_outer_in_excess(facts.step, twice)
    prefixes = {(*work.prefix(-2 if is_outer else -1), REPEATED_PART) for work in twice}
    # Ops that only the inner checkpoint recomputes must still be recomputed once if it is removed,
    # so their time would not be saved.
    excess = [
        work.ran
        for work in recomputed
        if _starts(work.parts, prefixes) and (is_outer or work.path in once)
    ]
    if excess:
        yield _cause(facts, excess, is_outer, recomputed)


def _written_for(facts: StepFacts, excess: Sequence[Executions]) -> list[Executions]:
    """Return the ops outside a checkpoint whose results only ops inside it read."""
    inside = {_place_in_model(ran.op) for ran in excess}
    read_elsewhere: set[Executions] = set()
    written: set[Executions] = set()
    for array in facts.arrays:
        makers = {use.ran for use in array.writes}
        written |= makers
        is_only_inside = (
            array.reads
            and not array.is_result
            and all(_place_in_model(use.ran.op) in inside for use in array.reads)
        )
        if not is_only_inside:
            read_elsewhere |= makers
    return [
        ran
        for ran in facts.step.leaves
        if ran in written
        and ran not in read_elsewhere
        and ran.op.kind == COMPUTE
        and not multiplies(ran.op)
        and _place_in_model(ran.op) not in inside
    ]


def _place_in_model(op: Op) -> tuple[str, str | None] | None:
    """Return the scope and the primitive, which all repetitions of an op have in common."""
    return (op.scope.name, op.scope.primitive) if op.scope else None


def _starts(parts: tuple[str, ...], prefixes: Collection[tuple[str, ...]]) -> bool:
    return any(parts[: len(prefix)] == prefix for prefix in prefixes)


def _is_outer_in_excess(step: Step, twice: Sequence[Recomputed]) -> bool:
    if any("while" in work.parts[work.checkpoints[-2] : work.checkpoints[-1]] for work in twice):
        return True
    if _is_around_each_block(twice):
        return False
    outer, inner = ({work.prefix(place) for work in twice} for place in (-2, -1))
    in_outer = in_inner = 0
    for ran in step.leaves:
        if ran.op.phase == "backward" and multiplies(ran.op):
            parts = parts_of(ran.op)
            in_outer += ran.total * _starts(parts, outer)
            in_inner += ran.total * _starts(parts, inner)
    return 10 * in_inner >= 9 * in_outer


def _is_around_each_block(twice: Sequence[Recomputed]) -> bool:
    """Return whether the outer checkpoint is repeated, around one block each time. It then keeps
    only the activations of one block, so the inner checkpoints save little memory."""
    inner_of = grouped((work.prefix(-2), "/".join(work.prefix(-1))) for work in twice)
    is_repeated = len(inner_of) > 1 or any("while" in outer for outer in inner_of)
    # Numbered layers inside one checkpoint are several blocks.
    return is_repeated and all(
        len({*inner}) == len(set(map(merged_layers, inner))) for inner in inner_of.values()
    )


def _cause(
    facts: StepFacts, excess: list[Executions], is_outer: bool, recomputed: Sequence[Recomputed]
) -> Cause:
    removed = excess if is_outer else [*excess, *_written_for(facts, excess)]
    which = "is inside another checkpoint"
    if is_outer:
        inner = common_place_of([work.ran for work in recomputed if work.depth > 1])
        which = f"contains other checkpoints ({line_says(inner)})"
    return Cause(
        f"The checkpoint at <line> {which}, so the same forward work is recomputed twice. Once"
        " would save <gain>.",
        FOR_OUTER if is_outer else FOR_INNER,
        SEEN,
        excess,
        removal_of(removed),
        place=common_place_of(excess),
    )
