"""Build the ledger: an entry for each op that ran in the step, with the least time that the chip
needs for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Final, Literal

from _breakdown.analysis.roof.costs import DECLARED, OPAQUE, XLA, Cost, KernelCost, cost_of
from _breakdown.analysis.roof.roofs import Roofs
from _breakdown.light import NamedTuple
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.vocabulary import COMM, COMPUTE, DATA_MOVE, HOST, OTHER

COLLECTIVE: Final = "collective"
DATA_MOVEMENT: Final = "data_movement"
COMPUTE_BOUND: Final = "compute_bound"
MEMORY_BOUND: Final = "memory_bound"
KERNEL: Final = "kernel"
UNJUDGED: Final = "unjudged"
OpClass = Literal[
    "collective",
    "host",
    "data_movement",
    "compute_bound",
    "memory_bound",
    "kernel",
    "unjudged",
    "other",
]
CLASSES: tuple[OpClass, ...] = (
    *(COLLECTIVE, HOST, DATA_MOVEMENT, COMPUTE_BOUND, MEMORY_BOUND, KERNEL, UNJUDGED),
    OTHER,
)
NO_TIME = Fraction(0)


class LedgerEntry(NamedTuple):
    """The executions of an op, the least time that the chip needs for them, and the time lost."""

    ran: Executions
    name: OpClass
    # Cost of the op; None if the op is not compute.
    cost: Cost | None
    # Time that the executions would take at the roof, and the measured time beyond it; None if
    # unknown.
    at_roof: int | None
    lost: int | None
    # False if the flops, the bytes or a peak rate for the roof are unknown.
    is_certain: bool
    # True if the executions are faster than the roof; then flops, bytes or a peak rate must be
    # wrong. The roof of a kernel is unknown then.
    is_over_roof: bool
    # Exact time that the flops alone take at the peak rate; 0 if unknown.
    t_compute: Fraction
    # Exact time that the bytes alone take at the peak bandwidth; None if unknown.
    t_memory: Fraction | None

    @property
    def total(self) -> int:
        return self.ran.total

    @property
    def weight(self) -> int:
        """Return the lost time, or the whole time if the loss is unknown. What loses time is
        ordered by this."""
        return self.total if self.lost is None else self.lost

    @property
    def kernel(self) -> str | None:
        if self.name == KERNEL:
            return self.ran.op.kernel
        return self.cost.kernel if self.cost else None


def ledger_of(step: Step, roofs: Roofs, by_user: Mapping[str, KernelCost]) -> list[LedgerEntry]:
    """Return the entries of all ops. Several modes of a page ask for the same ones."""
    key = ledger_of, tuple(roofs.flops.items()), roofs.hbm, tuple(by_user.items())
    return step.once(key, lambda: [entry_of(ran, roofs, by_user) for ran in step.leaves])


def entry_of(ran: Executions, roofs: Roofs, by_user: Mapping[str, KernelCost]) -> LedgerEntry:
    if ran.op.kind == COMPUTE:
        return judged(ran, cost_of(ran.op, by_user), roofs)
    return avoidable(ran)


def avoidable(ran: Executions) -> LedgerEntry:
    """Return the entry of an op that is not compute. Its roof is 0, because such an op could be
    hidden or avoided."""
    op = ran.op
    name: OpClass
    if (op.kind == COMM or op.is_wait) and op.waits_for == HOST:
        name = HOST
    elif op.kind == COMM:
        name = COLLECTIVE
    else:
        name = DATA_MOVEMENT if op.kind == DATA_MOVE else OTHER
    return LedgerEntry(ran, name, None, 0, ran.total, True, False, NO_TIME, None)


def judged(ran: Executions, cost: Cost, roofs: Roofs) -> LedgerEntry:
    """Compare a compute op with its roof: the time that its flops or its bytes need, whichever is
    longer. An unknown time counts as zero."""
    n, total = ran.n, ran.total
    n_bytes = cost.moved_bytes
    of_flops = roofs.t_compute(cost.flops and n * cost.flops, cost.precision.dtype)
    of_bytes = roofs.t_memory(n_bytes and n * n_bytes)
    t_compute, t_memory = of_flops or NO_TIME, of_bytes or NO_TIME
    roof = max(t_compute, t_memory)
    times = t_compute, None if of_bytes is None else t_memory
    # Times are rounded, so tolerate a deviation of 1 %.
    is_over_roof = roof > total > 0 and 100 * roof > 101 * total
    is_opaque = cost.source == OPAQUE and ran.op.kernel is not None
    is_false_claim = is_over_roof and (ran.op.kernel or cost.source != XLA)
    name: OpClass
    if is_opaque or is_false_claim or not roof:
        is_kernel = ran.op.kernel and (is_opaque or is_false_claim)
        name = KERNEL if is_kernel else UNJUDGED
        return LedgerEntry(ran, name, cost, None, None, False, bool(is_false_claim), *times)
    at_roof = min(total, round(roof))
    # Comparing fractions takes long, even with None.
    name = COMPUTE_BOUND if roof is t_compute else MEMORY_BOUND
    is_certain = of_flops is not None and of_bytes is not None
    lost = total - at_roof
    return LedgerEntry(ran, name, cost, at_roof, lost, is_certain, is_over_roof, *times)


def is_declared(entry: LedgerEntry) -> bool:
    return entry.cost is not None and entry.cost.source == DECLARED and not entry.is_over_roof


def counts_for_lower_bound(entry: LedgerEntry) -> bool:
    """Return True if the roof is reliable: it does not come from a kernel's declared cost and is
    not known to be wrong."""
    return not is_declared(entry) and not entry.is_over_roof


def at_roof_of(entries: Iterable[LedgerEntry]) -> int:
    return sum(entry.at_roof or 0 for entry in entries)
