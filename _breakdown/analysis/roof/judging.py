"""Compare each source group with the roofline: the sums of its flops and bytes with the peaks, and
each of its ops with its own roof in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fractions import Fraction
from typing import Literal

from _breakdown.analysis.roof.costs import OPAQUE, XLA, Cost, CostSource, Precision, sum_of_bytes
from _breakdown.analysis.roof.ledger import LedgerEntry
from _breakdown.analysis.roof.roofs import Roofs, rounded
from _breakdown.light import NamedTuple
from _breakdown.pipeline.groups import Group, grouped, most, sum_known, summed
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.vocabulary import OTHER

SkipReason = Literal["opaque", "no_flops", "no_bytes", "dtype_other", "peak_unknown_for_dtype"]


class GroupPart:
    """The ops of a source group whose cost is known, which have a verdict, or its opaque ops."""

    def __init__(self, op: Op, entries: list[LedgerEntry], opaque_time: int) -> None:
        # An example of the ops in the source group.
        self.op = op
        self.entries = entries
        # Time of the source group's opaque ops, for the part with ops of known cost.
        self.opaque_time = opaque_time
        self.group = Group([entry.ran for entry in entries])
        # Executions, each with the cost of one of them.
        self._costs = [(entry.ran, entry.cost) for entry in entries if entry.cost]
        self.source = most((cost.source, ran.total) for ran, cost in self._costs)
        # Kernels of known cost and their times, costliest first.
        self.kernels = sorted(
            summed((cost.kernel, ran.total) for ran, cost in self._costs if cost.kernel).items(),
            key=lambda item: (-item[1], item[0]),
        )
        self.flops = self.sum_of(lambda cost: cost.flops)
        self.model_flops = self.sum_of(lambda cost: cost.model_flops)
        self.bytes_accessed, self.hbm_bytes = sum_of_bytes(
            (ran.n, cost.bytes_accessed, cost.hbm_bytes) for ran, cost in self._costs
        )
        self.precision = self._main_precision()
        # Time at the roofs of the ops, and the time beyond; None if all these roofs are unknown.
        self.at_roof = sum_known((1, entry.at_roof) for entry in entries)
        self.lost = sum_known((1, entry.lost) for entry in entries)

    def sum_of(self, fact: Callable[[Cost], int | None]) -> int | None:
        """Sum a figure over all executions, skipping unknown values; return None if all are
        unknown."""
        return sum_known((ran.n, fact(cost)) for ran, cost in self._costs)

    @property
    def time_with_flops(self) -> int:
        return sum(ran.total for ran, cost in self._costs if cost.flops is not None)

    @property
    def differs_from_model(self) -> bool:
        """Return whether XLA's count of flops is not what the model's code requires."""
        by_xla = sum_known((ran.n, cost.flops) for ran, cost in self._costs if cost.source == XLA)
        return self.model_flops not in (None, by_xla)

    def n_bytes(self, hbm_only: bool) -> int | None:
        return self.hbm_bytes if hbm_only else self.bytes_accessed

    def _main_precision(self) -> Precision:
        """Return the dtype that takes the most time, and the source that accounts for most of this
        time."""
        dtype = most((cost.precision.dtype, ran.total) for ran, cost in self._costs)
        source = most(
            (cost.precision.source, ran.total)
            for ran, cost in self._costs
            if cost.precision.dtype == dtype
        )
        is_uncertain = any(cost.precision.is_uncertain for _, cost in self._costs)
        return Precision(dtype, source, is_uncertain)


def parts_of(ledger: Iterable[LedgerEntry]) -> list[GroupPart]:
    """Split source groups of math into ops of known cost and opaque ops."""
    math = grouped((entry.ran.op.agg_key, entry) for entry in ledger if entry.cost)
    parts = []
    for of_source in math.values():
        op = of_source[0].ran.op
        opaque = [entry for entry in of_source if entry.cost and entry.cost.source == OPAQUE]
        known = [entry for entry in of_source if entry.cost and entry.cost.source != OPAQUE]
        if known:
            parts.append(GroupPart(op, known, sum(entry.total for entry in opaque)))
        if opaque:
            parts.append(GroupPart(op, opaque, 0))
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
