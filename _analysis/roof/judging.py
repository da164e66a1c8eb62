"""Compare each source group with the roofline: the sums of its flops and bytes with the peaks, and
each of its ops with its own roof in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Literal

from _analysis.roof.costs import (
    OPAQUE,
    XLA,
    Cost,
    CostSource,
    KernelCost,
    Precision,
    cost_of,
)
from _analysis.roof.ledger import Entry, judged
from _analysis.roof.roofs import Roofs, rounded
from _light import NamedTuple
from _pipeline.executions import Executions
from _pipeline.groups import Group, group_by, most, source_key, sum_known
from _pipeline.vocabulary import OTHER

SkipReason = Literal["opaque", "no_flops", "no_bytes", "dtype_other", "peak_unknown_for_dtype"]


class Costed(NamedTuple):
    """The executions of an op, the cost of one execution, and the ledger's judgement."""

    executions: Executions
    cost: Cost
    entry: Entry


class GroupPart:
    """A part of a source group with its own verdict: ops with a cost from XLA, one kernel, or
    opaque ops."""

    def __init__(self, whole: Group, members: list[Costed], opaque_time: int) -> None:
        self.whole = whole
        self.members = members
        # Time of the source group's opaque ops. Only the part with ops that have a cost from XLA
        # has this time; it is 0 in all other parts.
        self.opaque_time = opaque_time
        self.group = Group([member.executions for member in members])
        self.source, self.kernel = members[0].cost.source, members[0].cost.kernel
        self.flops = self.sum_of(lambda cost: cost.flops)
        self.model_flops = self.sum_of(lambda cost: cost.model_flops)
        self.bytes_accessed = self.sum_of(lambda cost: cost.bytes_accessed)
        self.precision = self._main_precision()
        # Time at the roofs of the ops, and the time beyond; None if all these roofs are unknown.
        self.at_roof = sum_known((1, member.entry.at_roof) for member in members)
        self.lost = sum_known((1, member.entry.lost) for member in members)

    def sum_of(self, fact: Callable[[Cost], int | None]) -> int | None:
        """Sum a figure over all executions, skipping unknown values; return None if all are
        unknown."""
        return sum_known((member.executions.n, fact(member.cost)) for member in self.members)

    @property
    def time_with_flops(self) -> int:
        return sum(
            member.executions.total for member in self.members if member.cost.flops is not None
        )

    @property
    def hbm_bytes(self) -> int | None:
        """Return the bytes read from and written to HBM; None if it is unknown which memory an op
        accesses."""
        costs = [member.cost for member in self.members]
        if any(cost.bytes_accessed and cost.hbm_bytes is None for cost in costs):
            return None
        return self.sum_of(lambda cost: cost.hbm_bytes)

    def n_bytes(self, hbm_only: bool) -> int | None:
        return self.hbm_bytes if hbm_only else self.bytes_accessed

    def _main_precision(self) -> Precision:
        """Return the dtype that takes the most time, and the source that accounts for most of this
        time."""
        dtype = most((cost.precision.dtype, ran.total) for ran, cost, _ in self.members)
        source = most(
            (cost.precision.source, ran.total)
            for ran, cost, _ in self.members
            if cost.precision.dtype == dtype
        )
        is_uncertain = any(member.cost.precision.is_uncertain for member in self.members)
        return Precision(dtype, source, is_uncertain)


def parts_of(compute: Group, roofs: Roofs, by_user: Mapping[str, KernelCost]) -> list[GroupPart]:
    """Split source groups into parts: opaque ops, each kernel of known cost, and all other ops."""
    parts = []
    for whole in group_by(compute.members, source_key).values():
        members_by_cost: dict[tuple[str, str], list[Costed]] = {}
        for executions in whole.members:
            cost = cost_of(executions.op, by_user)
            costed = Costed(executions, cost, judged(executions, cost, roofs))
            members_by_cost.setdefault(cost.key, []).append(costed)
        opaque = members_by_cost.get((OPAQUE, ""), ())
        opaque_time = sum(member.executions.total for member in opaque)
        # Ops with a cost from XLA come first.
        for key, members in sorted(members_by_cost.items(), key=lambda item: item[0] != (XLA, "")):
            parts.append(GroupPart(whole, members, opaque_time if key == (XLA, "") else 0))
    return parts


class Verdict(NamedTuple):
    """The exact times, in picoseconds, that a part would take at the chip's peak rates."""

    part: GroupPart
    source: CostSource
    flops: int
    n_bytes: int
    t_compute: Fraction
    t_hbm: Fraction
    ridge_point: float

    @property
    def total(self) -> int:
        return self.part.group.total

    @property
    def t_roofline(self) -> Fraction:
        return max(self.t_compute, self.t_hbm)

    @property
    def shortfall(self) -> int:
        return self.total - round(self.t_roofline)

    @property
    def bound(self) -> Literal["compute", "memory"]:
        # Equivalent to arithmetic intensity >= ridge point, but also defined if no bytes are
        # accessed.
        return "compute" if self.t_compute >= self.t_hbm else "memory"

    @property
    def is_over_roof(self) -> bool:
        """Return whether a part is faster than its roof. A correct roof cannot be exceeded, so in
        this case the dtype, the peak or the flop count is wrong."""
        return (self.utilization(self.t_roofline) or 0) > 1

    def utilization(self, t: Fraction) -> float | None:
        return rounded(t / self.total, 6) if self.total else None


class Skipped(NamedTuple):
    """A part without a verdict, and the reason."""

    part: GroupPart
    reason: SkipReason


def judge(part: GroupPart, roofs: Roofs, hbm_only: bool) -> Verdict | Skipped:
    dtype, flops = part.precision.dtype, part.flops
    n_bytes = part.n_bytes(hbm_only)
    if part.source == OPAQUE:
        return Skipped(part, OPAQUE)
    if not flops:
        return Skipped(part, "no_flops")
    if n_bytes is None or (n_bytes == 0 and not hbm_only):
        return Skipped(part, "no_bytes")
    if dtype == OTHER:
        return Skipped(part, "dtype_other")
    ridge_point = roofs.ridge_point(dtype)
    t_compute, t_hbm = roofs.t_compute(flops, dtype), roofs.t_memory(n_bytes)
    if ridge_point is None or t_compute is None or t_hbm is None:
        return Skipped(part, "peak_unknown_for_dtype")
    return Verdict(part, part.source, flops, n_bytes, t_compute, t_hbm, ridge_point)


def weighted_average(
    verdicts: Iterable[Verdict], t_of: Callable[[Verdict], Fraction]
) -> float | None:
    """Return the time-weighted average of the utilizations."""
    weighted = [(t_of(verdict), verdict.total) for verdict in verdicts if verdict.total]
    if not weighted:
        return None
    return rounded(
        sum((t for t, _ in weighted), Fraction(0)) / sum(total for _, total in weighted), 6
    )
