"""Merge ops whose names and scopes differ only in numbers, such as ops of unrolled layers."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from heapq import heappop, heappush

from _breakdown.analysis.source.likely_lines import line_of
from _breakdown.analysis.source.rows import op_name, scope_fields
from _breakdown.light import NamedTuple
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import Group, group_by, grouped

NUMBER_RE = re.compile(r"\d+")


def ranked_ops(executions: Iterable[Executions]) -> list[Group]:
    """Group the executions by program and op name, costliest op first."""
    groups = group_by(executions, lambda op: (op.program_id, op_name(op)))
    ranked = sorted(
        groups.items(),
        # Sort ties by name, then by program; ops without a program come first.
        key=lambda item: (-item[1].total, item[0][1], -1 if item[0][0] is None else item[0][0]),
    )
    return [group for _, group in ranked]


class Alike(NamedTuple):
    """Ops that have some keys in common. Sorts by time, longest first; of equal times, the ops with
    keys to compare come first, then the first in the table."""

    minus_time: int
    n_compared: int
    rank: int
    ops: list[Group]


def merged_ops(
    ranked: Sequence[Group], class_key: Callable[[Group], object], top: int
) -> list[list[Group]]:
    """Merge ops whose names and scopes differ only in numbers and whose other keys are equal.
    Return the costliest lists of ops, costliest list first."""
    ranks = {id(group): i for i, group in enumerate(ranked)}
    keys = name_key, place_key, class_key
    # Lines and classes take long to find. So compare the keys one by one, of the costliest ops
    # only.
    heap = [Alike(0, 0, 0, list(ranked))]
    merged: list[list[Group]] = []
    while heap and len(merged) < top:
        alike = heappop(heap)
        if alike.n_compared == len(keys):
            merged.append(alike.ops)
            continue
        key = keys[alike.n_compared]
        for ops in grouped((key(group), group) for group in alike.ops).values():
            total = sum(group.total for group in ops)
            n_compared = alike.n_compared + 1 if len(ops) > 1 else len(keys)
            heappush(heap, Alike(-total, n_compared, ranks[id(ops[0])], ops))
    return merged


def name_key(group: Group) -> object:
    op = group.op
    return without_numbers(op_name(op)), op.kind, op.category, op.phase


def place_key(group: Group) -> object:
    likely = line_of(group.op)
    return without_numbers(scope_of(group) or ""), likely.line_user or likely.line


def scope_of(group: Group) -> str | None:
    scope: str | None = scope_fields(group.members)["scope"]
    return scope


def without_numbers(name: str) -> str:
    """Replace the numbers in a name with `*`. Append `.*` to a name without numbers, because the
    first of several copies of an op can lack a number."""
    starred: str = NUMBER_RE.sub("*", name)
    return starred if starred != name or not name else f"{name}.*"


def common_name(names: Sequence[str]) -> str:
    return names[0] if len(set(names)) == 1 else without_numbers(names[0])
