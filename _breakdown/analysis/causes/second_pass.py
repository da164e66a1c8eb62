"""Find reductions that read a large array a second time."""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import removal_of
from _breakdown.analysis.arrays.graph import is_dot_general
from _breakdown.analysis.arrays.of_step import StepArray, Use
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.vocabulary import COMPUTE
from _breakdown.units import counted, size
from _proto.hlo.program import Instruction
from _proto.hlo.text import HBM

# A reduction makes an array much smaller. Programs sum over rows of hundreds of elements; a pooling
# of neighbours by 2 x 2 is no reduction of this kind.
_SHRINKING = 8
# Number of ops between the first and the second reduction, such as a division by the number of
# elements and an all-reduce among devices. The gradient of a variance needs one or two more.
_MOST_STEPS = 6

WHAT_HELPS = (
    "Compute both sums in one pass: the variance as E[x²] - E[x]² in f32 (in flax:"
    " use_fast_variance), if the values are not far from zero."
)
_Uses = dict[Executions, list[tuple[StepArray, Use]]]


def find(of: StepProgram) -> Iterator[Cause]:
    uses_of = of.arrays.uses_of
    second: dict[str | None, list[tuple[Executions, StepArray, int]]] = {}
    summing = {of.executed(here) for here in of.with_opcodes("reduce") if _sums(here)}
    for ran in of.leaves if summing else ():
        reduced = _reduced_by(ran, uses_of) if ran in summing else None
        if reduced and not _exponentiates(ran) and _was_summed(ran, *reduced, uses_of, summing):
            second.setdefault(place_of(ran.op).source_user, []).append((ran, *reduced))
    for found in second.values():
        members = [ran for ran, _, _ in found]
        _, biggest, _ = max(found, key=lambda each: each[2])
        n_bytes = sum(n_bytes * ran.n for ran, _, n_bytes in found)
        yield Cause(
            f"Sums at <line> over arrays such as {biggest.shape.text} need a first sum over the"
            f" same array, so {counted(len(members), 'op')} read {size(n_bytes)} a second time. One"
            " pass for both sums would save <gain>.",
            WHAT_HELPS,
            LIKELY,
            members,
            removal_of(members),
            evidence={"shape": biggest.shape.text},
        )


def _size(array: StepArray, use: Use) -> int:
    """Return the bytes that one execution reads or writes. Arrays in VMEM have no bytes in HBM."""
    is_in_hbm = array.shape.memory_space == HBM
    return use.n_bytes // use.ran.n if is_in_hbm else array.shape.n_bytes or 0


def _reduced_by(ran: Executions, uses_of: _Uses) -> tuple[StepArray, int] | None:
    """Return the array that an op reads, and its size, if all that the op sums is this array."""
    if ran.op.kind != COMPUTE or ran.op.dot or ran.op.kernel:
        return None
    sizes = {(array, use.is_write): _size(array, use) for array, use in uses_of.get(ran, ())}
    if not sizes:
        return None
    (array, is_write), n_bytes = max(sizes.items(), key=lambda item: item[1])
    others = [other for key, other in sizes.items() if key != (array, is_write)]
    is_reduced = not is_write and all(_SHRINKING * other <= n_bytes for other in others)
    return (array, n_bytes) if is_reduced and others else None


def _sums(reduce: Instruction) -> bool:
    """Return whether a reduction is a sum; a maximum is not. Matmuls that need each other's results
    are no mean and variance."""
    root = reduce.called[0].root if reduce.called else None
    return root is not None and root.opcode == "add" and not is_dot_general(reduce)


def _exponentiates(ran: Executions) -> bool:
    here = ran.op.instruction
    return here is not None and "exponential" in here.opcodes


def _was_summed(
    ran: Executions,
    array: StepArray,
    n_bytes: int,
    uses_of: _Uses,
    summing: set[Executions | None],
) -> bool:
    """Return whether a small operand of an op comes from a sum over `array`."""
    # Ops that together read less than the array can read different parts, such as the keys and the
    # values of a stacked cache.
    whole = array.shape.n_bytes or 0
    touching = {use.ran for use in array.uses if _size(array, use) + n_bytes > whole}
    touching.discard(ran)
    seen, front = {ran}, [ran]
    for _ in range(_MOST_STEPS):
        makers = [
            written.ran
            for reader in front
            for small, use in uses_of.get(reader, ())
            if not use.is_write and _SHRINKING * _size(small, use) <= n_bytes
            for written in small.writes
        ]
        front = [
            maker
            for maker in dict.fromkeys(makers)
            # The weights of attention depend on a first sum, too, but no single pass has both.
            if maker not in seen and not _exponentiates(maker)
        ]
        seen.update(front)
        if any(maker in touching and maker in summing for maker in front):
            return True
    return False
