"""Choose what the headline names, and the base of the percentages of all causes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from _breakdown.analysis.causes import PAUSES, RULE_NAMED

Json = dict[str, Any]

# The headline names a cause if its least gain is at least this percentage of the step or period.
WORTH_NAMING_PCT = 2
# Nothing is large if no cause gains this percentage of the step or period, and no loss reaches the
# other one.
LARGE_GAIN_PCT, LARGE_LOSS_PCT = 4, 10


def main_cause(causes: Sequence[Json]) -> Json | None:
    """Return the first cause that a headline can name if even its least gain is worth naming."""
    first = next((row for row in causes if RULE_NAMED[row["cause"]].headline), None)
    return first if first and least_gain_pct(first) >= WORTH_NAMING_PCT else None


def least_gain_pct(cause: Json) -> float:
    """Return the least gain as a percentage of the step or period."""
    share: float = cause["gain_pct_of_step"] or 0
    low = (cause.get("gain_range_ps") or [cause["gain_ps"]])[0]
    return share * low / cause["gain_ps"] if cause["gain_ps"] else 0


def is_nothing_large(causes: Sequence[Json], largest_loss: Json | None) -> bool:
    gains = (row["gain_pct_of_step"] or 0 for row in causes)
    return max(gains, default=0) < LARGE_GAIN_PCT and not is_large_loss(largest_loss)


def is_large_loss(largest_loss: Json | None) -> bool:
    return largest_loss is not None and largest_loss["lost_pct"] >= LARGE_LOSS_PCT


def is_pause(cause: Json) -> bool:
    """Return whether a cause costs time between steps, so that its base is the period."""
    return RULE_NAMED[cause["cause"]].needs == PAUSES


def with_one_base(causes: Sequence[Json], period_ps: int | None) -> list[Json]:
    """Return the causes with the gain as a percentage of the period (`pct_of_period`) if one of
    them costs time between steps, or else of the step; `low_ps` and `high_ps` are its range."""
    is_of_period = bool(period_ps) and any(map(is_pause, causes))
    rows = []
    for row in causes:
        of_step = row["gain_pct_of_step"] if row["gain_ps"] else None
        low, high = row["gain_range_ps"] or (None, None)
        of_period = 100 * row["gain_ps"] / period_ps if row["gain_ps"] and period_ps else None
        rows.append(
            {
                **row,
                "gain_pct_of_step": None if is_of_period else of_step,
                "pct_of_period": of_period if is_of_period else None,
                # The range of a gain that was measured has no width.
                "low_ps": low if low != high else None,
                "high_ps": high if low != high else None,
            }
        )
    return rows
