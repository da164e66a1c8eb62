"""Name what limits an op: a roof that explains at least half of its time, or its start."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Literal

from _breakdown.analysis.roof.ledger import NO_TIME, LedgerEntry
from _breakdown.analysis.roof.roofs import rounded

Limit = Literal["mxu", "hbm", "latency", "neither"]
# Math below this part of its roof is not bound by it.
FAR_FROM_ROOF = Fraction(2, 5)
# A shorter op mostly waits for its first bytes.
_SHORT_PS = 2_000_000


def limit_of(entries: Iterable[LedgerEntry]) -> Limit | None:
    """Return what limits the op that takes the most time. Return None if it is no math, or if a
    roof that may limit it is unknown."""
    entry = max(entries, key=lambda entry: entry.total, default=None)
    if entry is None or entry.cost is None or entry.at_roof is None:
        return None
    if 2 * _roof(entry) >= entry.total:
        return "mxu" if entry.t_compute >= (entry.t_memory or NO_TIME) else "hbm"
    if entry.total < _SHORT_PS * entry.ran.n:
        return "latency"
    return "neither" if entry.is_certain else None


def is_far_from_roofs(entry: LedgerEntry) -> bool:
    """Return whether math is bound by neither roof."""
    return bool(entry.cost and entry.at_roof and _roof(entry) < FAR_FROM_ROOF * entry.total)


def roofs_missed(entries: Sequence[LedgerEntry]) -> dict[str, float | None]:
    """Return which parts of both roofs math reaches if it is bound by neither; None for other
    ops."""
    total = sum(entry.total for entry in entries)
    shares = [NO_TIME, NO_TIME]
    if total and all(entry.cost and entry.is_certain for entry in entries):
        shares[0] = sum((entry.t_compute for entry in entries), NO_TIME) / total
        shares[1] = sum((entry.t_memory or NO_TIME for entry in entries), NO_TIME) / total
    is_missed = 0 < max(shares) < FAR_FROM_ROOF
    mxu, hbm = (rounded(100 * share, 3) if is_missed else None for share in shares)
    return {"mxu_pct": mxu, "hbm_pct": hbm}


def _roof(entry: LedgerEntry) -> Fraction:
    return max(entry.t_compute, entry.t_memory or NO_TIME)
