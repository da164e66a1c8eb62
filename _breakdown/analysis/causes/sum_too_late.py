"""Find collectives and matmuls of arrays that are summed or reduced afterwards, although this could
be done first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from _breakdown.analysis.arrays.dims import TAKING
from _breakdown.analysis.arrays.engine import Change, Resize
from _breakdown.analysis.arrays.graph import DOTS, Value, is_layout
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.resized import Resized, cause_of, longest_of, sizes_of
from _breakdown.analysis.causes.shared.sentences import line_says
from _breakdown.analysis.causes.shared.step_program import (
    StepProgram,
    counts_of,
    devices_of,
    place_of_longest,
)
from _breakdown.analysis.sizes.edges import EXCHANGE, MATMUL, OTHER
from _breakdown.analysis.sizes.sums import adds
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted, size
from _proto.hlo.program import Instruction

FOR_COLLECTIVES = (
    "Sum first, and let the collective move the sums: take the psum or the sharding constraint of"
    " the summed array instead of the array before the sum."
)
FOR_PARTS = (
    "Reduce the part of each device first, and exchange only the results: psum, pmax, or a top_k of"
    " the gathered results of top_k."
)
FOR_MATMULS = (
    "Sum first, with the weights, and multiply the sums: (x @ a) @ b instead of x @ (a @ b), pool"
    " before a projection, apply a layer that makes few channels before one that makes many rows,"
    " such as an interpolation, or before rows are looked up for each edge of a graph. Let a matmul"
    " sum its batch itself: one einsum, or the gradient of the mean, not the mean of gradients."
)
# Names of the ops before a sum, by kind.
_NAMES = {MATMUL: "matmul", OTHER: "lookup"}


def find(of: StepProgram) -> Iterator[Cause]:
    sizes = sizes_of(of)
    found = [
        *sizes.ops_of(EXCHANGE, sizes.sum, sizes.local),
        *sizes.ops_of(MATMUL, sizes.sum),
        *sizes.ops_of(OTHER, sizes.sum),
    ]
    keyed = (((row.kind, of.place_at(row.moved.seed).source_user), row) for row in found)
    for (kind, _), rows in grouped(keyed).items():
        ops, longest = [row.ran for row in rows], longest_of(rows)
        is_sent, is_sum = kind == EXCHANGE, _is_sum(longest.moved.seed)
        # For rows that are only added up, more rows would have to be multiplied.
        if kind == OTHER and not any(
            "gather" in ran.op.instruction.opcodes for ran in ops if ran.op.instruction
        ):
            continue
        at = of.place_at(longest.matmul) if longest.matmul else place_of_longest(ops)
        before = counts_of(ops) if is_sent else counted(len(ops), _NAMES[kind])
        n = longest.value.array.n_bytes if longest.value.array else None
        over = f"to {size(round((n or 0) * longest.moved.left))}"
        if longest.law is sizes.sum and not (is_sent and longest.moved.seed.opcode in DOTS):
            over = f"over {round(1 / longest.moved.left)} elements"
        does = "computed" if kind == MATMUL else "moved"
        says = (
            f"<line> {'sums' if is_sum else 'reduces'} {longest.shape} {over}, after {before} at"
            f" {line_says(at)} {does} all of them."
            f" {'Summing' if is_sum else 'Reducing'} first"
            f"{', and moving the results,' if is_sent else ''} would save <gain>."
        )
        remedy = FOR_COLLECTIVES if is_sent else FOR_MATMULS
        more = [] if is_sent else _copies(of, rows)
        if longest.law is sizes.local:
            remedy, more = FOR_PARTS, _of_reducing(of, rows)
        place = of.place_at(longest.moved.seed)
        cause = cause_of([*rows, *more], says, remedy, SEEN if is_sent else LIKELY, place)
        if longest.law is sizes.sum:
            cause = cause._replace(changes=[*cause.changes, *_smaller(of, rows)])
        yield cause


def _of_reducing(of: StepProgram, rows: Sequence[Resized]) -> list[Resized]:
    """Return the ops that reduce what devices gathered, although each could reduce its part."""
    sizes = {of.executed(row.moved.seed): (row, devices_of(row.ran).size) for row in rows}
    return [row._replace(ran=ran, left=1 / n) for ran, (row, n) in sizes.items() if ran and n]


def _copies(of: StepProgram, rows: Sequence[Resized]) -> list[Resized]:
    """Return the copies of the results of matmuls."""
    return [
        row._replace(ran=copying)
        for row in rows
        for user in (row.ran.op.instruction.users if row.ran.op.instruction else ())
        if is_layout(user) and row.law.left(Value(user)) and (copying := of.executed(user))
    ]


def _smaller(of: StepProgram, rows: Sequence[Resized]) -> Iterator[Change]:
    """Yield the changes of the results of matmuls, and of what collectives read and write, because
    other ops make or read only the sums."""
    for row in rows:
        for array, use in of.arrays.uses_of.get(row.ran, ()):
            is_summed = use.is_write or row.kind == EXCHANGE
            if is_summed and row.law.left(array.value):
                yield Resize(array.value, row.moved.left)


def _is_sum(seed: Instruction) -> bool:
    return seed.opcode not in TAKING and adds(seed)
