"""Find copies inside the program that only change the order of an array's elements in memory.

needs: a program
headline: Changing the layout of arrays

What it finds: Copies of computed arrays that only change a layout. Copies of parameters and results
are `parameter_relayout`.

Why it costs: If two successive ops require different orders of dimensions or different tiles in
memory, the compiler inserts a copy between them, which reads and writes all bytes and computes
nothing. Around an attention kernel, such copies can take as long as the kernel. A scan saves arrays
for its backward pass; if a gradient needs them in another order, each of them is copied. In
recompiled pairs, einsums in the other order saved 7.3 of 27.4 ms and 5.9 of 50.2 ms.

How the program shows it: A synchronous copy or transpose whose layout differs from its operand's, a
fusion of only such ops, or a reshape that runs as an op; other reshapes are free. All changes at
one line share a row. Copies that belong to a `resharding` are excluded.

What to change: Use the same order of dimensions on both sides of the line: let matmuls write the
order that the next op reads, for example with `jnp.einsum`, and avoid reshapes that split or
interleave the last dimension.

When it is intended: One copy can be cheaper than several slow ops that read the array in the wrong
order.

Example:

    # Before: the projection's result is copied to the order that the kernel reads
    q = (x @ wq).reshape(b, t, heads, d).transpose(0, 2, 1, 3)
    # After: the matmul writes this order
    q = jnp.einsum("btm,mhd->bhtd", x, wq.reshape(m, heads, d))
"""

from __future__ import annotations

from collections.abc import Iterator

from _breakdown.analysis.arrays.engine import Remove
from _breakdown.analysis.causes.shared.cause import SEEN, Cause
from _breakdown.analysis.causes.shared.copies import changes_layout
from _breakdown.analysis.causes.shared.sentences import clipped
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of
from _breakdown.pipeline.groups import grouped
from _breakdown.units import counted

REMEDY = (
    "Use the same order of dimensions before and after this line: let einsum transpose, and avoid"
    " reshapes that split or interleave the last dimension."
)


def find(of: StepProgram) -> Iterator[Cause]:
    left_out = of.explained_by(
        "loop_of_tiny_ops", "parameter_relayout", "array_of_pairs", "flat_array", "resharding"
    )
    changes = [
        ran
        for ran in of.long_ops
        if id(ran) not in left_out and ran.op.instruction and changes_layout(ran.op.instruction)
    ]
    places = ((place_of(ran.op), ran) for ran in changes)
    rows = grouped((place.source_user or place.source_inner, ran) for place, ran in places)
    for members in rows.values():
        longest = max(members, key=lambda ran: ran.total)
        shape = longest.op.instruction.shape if longest.op.instruction else None
        n = sum(ran.n for ran in members)
        only, them = ("only changes", "it") if n == 1 else ("only change", "them")
        yield Cause(
            f"{counted(n, 'copy')} at <line> {only} the layout of arrays such as"
            f" {clipped(shape or '?')}. Without {them}, the step would save <gain>.",
            REMEDY,
            SEEN,
            members,
            [Remove(members)],
            evidence={"shape": shape},
        )
