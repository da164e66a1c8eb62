"""Find the parts of a program that a combined collective belongs to.

The compiler combines collectives of several layers into one, which keeps the path of one of them.
"""

from __future__ import annotations

from _proto.hlo.collectives import first_collective
from _proto.hlo.nearest_line import before
from _proto.hlo.program import Instruction

# Opcodes that only pass an array on, and often have the path of a library's function.
_NO_WORK = frozenset(
    "parameter constant bitcast reshape transpose broadcast copy copy-start copy-done convert tuple"
    " get-tuple-element".split()
)
# Maximum number of instructions without a path between a collective and the op that computes its
# input.
_MAX_HOPS = 8


def combined_paths(op: Instruction) -> list[str]:
    """Return the paths of the ops that compute the operands of a combined collective. Return an
    empty list if the op is no collective with several operands."""
    found = first_collective(op.chain)
    if found is None or len(found.chain[0].operands) < 2:
        return []
    paths: dict[str, None] = {}
    level = found.chain[0].operands
    seen = set(level)
    for _ in range(_MAX_HOPS):
        next_level = []
        for here in level:
            if here.tf_op and here.opcode not in _NO_WORK:
                paths[here.tf_op] = None
                continue
            reached = [producer for producer in before(here) if producer not in seen]
            seen.update(reached)
            next_level += reached
        level = next_level
    return list(paths)
