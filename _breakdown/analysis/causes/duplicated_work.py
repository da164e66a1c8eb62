"""Find work that several devices do in the same way, although each could do a part of it.

needs: a program
headline: Work that several devices repeat

What it finds: Ops whose inputs are whole on several devices, so that all of these devices compute
the same.

Why it costs: Work that n devices could divide takes n times as long. Often a collective first makes
the inputs whole. The gain is the time of the ops without the part of one device, and of these
collectives. The time to collect results that other ops need whole is deducted.

How the program shows it: The program is followed from its parameters, whose shardings tell which
devices have the same part. An op computes the same on two devices if all of its inputs are equal
there. Results of an all-gather or an all-reduce are equal in each group; the number of the device
is equal nowhere. Ops count if dividing them saves more time than collecting their results takes,
and if no other op needs their inputs whole. The cause is `likely`, because not all ops can be
divided. Ops that share arrays are one row; its line is the innermost line that the ops with nine
tenths of the time have in common.

What to change: Find the op at which an array loses its sharding. A reshape that merges two
dimensions keeps only the sharding of the first one. The compiler does not divide sorts and custom
calls along the dimension on which they work. An input without a sharding is whole everywhere.
Constrain what such ops get and return, or write them with `shard_map`.

When it is intended: The optimizer's ops in data parallelism, and norms in tensor parallelism, are
not reported: dividing them takes further collectives.

Example:

    # Before: the batch is the inner dimension of the merged two, so devices get the whole array
    y = layer(x.reshape(time * batch, -1))
    # After: the batch, which is divided, is the outer dimension
    y = layer(x.swapaxes(0, 1).reshape(batch * time, -1))
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate

from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.checkpoints import common_place_of
from _breakdown.analysis.causes.shared.duplicates import Duplicates
from _breakdown.analysis.causes.shared.step_program import StepProgram, total_of
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.vocabulary import COMPUTE
from _breakdown.units import size

REMEDY = (
    "Split a weight that is whole on each device. Otherwise find the op at which an array loses its"
    " sharding, such as a constraint, a reshape whose divided dimension is not the first of those"
    " that it merges, or a sort along the divided dimension. Constrain what it gets and returns"
    " (with_sharding_constraint), or divide the inputs of the program."
)


def find(of: StepProgram) -> Iterator[Cause]:
    duplicates = Duplicates(of)
    explained = of.explained_by("oversized_transfer")
    for members in duplicates.groups():
        saved = {change.op: change.op.total - change.time for change in duplicates.divided(members)}
        computing = sum(saved[ran] for ran in members if ran.op.kind == COMPUTE)
        # Copies and collectives alone are the business of other rules.
        is_work = max(of.floor, sum(saved[ran] for ran in members) / 2) <= computing
        if is_work and explained.isdisjoint(map(id, members)):
            yield _cause(duplicates, members)


def _cause(duplicates: Duplicates, members: Sequence[Executions]) -> Cause:
    ranked = sorted(members, key=lambda ran: -ran.total)
    longest = ranked[0]
    inputs = list(duplicates.inputs(members))
    why = ""
    if inputs:
        array = max((array for array, _ in inputs), key=lambda array: array.shape.n_bytes or 0)
        why = f", such as {array.shape.text} ({size(array.shape.n_bytes or 0)}) after a collective"
    return Cause(
        f"{duplicates.n_of[longest]} devices run the same ops on the same data at <line>: the"
        f" inputs are whole on each of them{why}. Dividing the work would save <gain>.",
        REMEDY,
        LIKELY,
        [*members, *(ran for _, makers in inputs for ran in makers)],
        duplicates.divided(members),
        place=common_place_of(_most_of(ranked)),
    )


def _most_of(ranked: Sequence[Executions]) -> list[Executions]:
    """Return the longest ops that together take nine tenths of the time."""
    sums = accumulate((ran.total for ran in ranked), initial=0)
    total = total_of(ranked)
    return [ran for ran, before in zip(ranked, sums, strict=False) if 10 * before < 9 * total]
