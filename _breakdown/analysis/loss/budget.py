"""Compute where a step's time goes by class of ops, and how fast the chip could run the step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final

from _breakdown.analysis.idle.periods import Periods
from _breakdown.analysis.roof.hideable import Hideable
from _breakdown.analysis.roof.ledger import (
    CLASSES,
    KERNEL,
    UNJUDGED,
    LedgerEntry,
    at_roof_of,
    counts_for_lower_bound,
)
from _breakdown.analysis.roof.roofs import Roofs, over_roof_note, rounded
from _breakdown.analysis.source.likely_lines import line_of
from _breakdown.light import NamedTuple
from _breakdown.pipeline.groups import Group, grouped, percent, summed
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.ops import Op
from _breakdown.units import counted, percentage, time

Json = dict[str, Any]

IDLE: Final = "idle"
OVERLAP: Final = "overlap"
AT_ROOF: Final = "at_roof"
# Smallest lower bound of a utilization that is printed; a smaller bound would be printed as 0.0 %.
SMALLEST_SHARE = Fraction(5, 10**4)
# A step is at its roof if less than 1/LITTLE of its time is lost, unknown or idle.
LITTLE = 10
# The figures of a class of ops; idle time and overlap have none.
OF_CLASS = ("at_roof_ps", "lost_ps", "hideable_ps", "n_executions")


class Budget(NamedTuple):
    """The time of a step: its ops, each with its class and roof, and the idle time."""

    step: Step
    ledger: Sequence[LedgerEntry]

    @property
    def idle(self) -> int:
        return self.step.duration - self.step.timeline.busy

    @property
    def over_roof(self) -> list[LedgerEntry]:
        return [entry for entry in self.ledger if entry.is_over_roof]

    def over_roof_row(self) -> Json:
        over = self.over_roof
        return {"n_ops": len(over), "dur_ps": sum(entry.total for entry in over)}

    def largest_loss(self, periods: Periods | None) -> str:
        """Return the class that loses the most time, or `at_roof` if little time is lost or
        unknown. Pauses outside the step count as idle time.

        In a tie, return the class that comes first in the budget.
        """
        pause = periods.mean_pause if periods and periods.picked else 0
        losses: dict[str, int] = dict.fromkeys(CLASSES, 0)
        losses |= summed((entry.name, entry.weight) for entry in self.ledger)
        losses[IDLE] = self.idle + pause
        lost = sum(losses.values())
        if not lost or lost * LITTLE < self.step.duration + pause:
            return AT_ROOF
        return max(losses, key=losses.__getitem__)

    def speed_of_light(self) -> Json:
        """Return bounds on the time in which the chip could run the step."""
        at_roof = at_roof_of(self.ledger)
        unknown = sum(entry.weight for entry in self.ledger if not entry.is_certain)
        at_least = at_roof_of(filter(counts_for_lower_bound, self.ledger))
        return {
            "at_roof_ps": at_roof,
            "unknown_ps": unknown,
            "at_least_ps": at_least,
            "at_most_ps": at_roof + unknown,
        }

    def utilization(
        self, periods: Periods | None, counts: Callable[[Op], bool] = lambda op: True
    ) -> float | None:
        """Return a lower bound on the share of the step's period during which the matrix units are
        busy.

        Return None for a share that is printed as 0.0 %: such a bound says nothing.
        """
        t_compute = sum(
            (
                min(Fraction(entry.total), entry.t_compute)
                for entry in self.ledger
                if entry.t_compute and counts_for_lower_bound(entry) and counts(entry.ran.op)
            ),
            Fraction(0),
        )
        whole = self.step.duration
        if periods and periods.picked:
            # The picked step can be longer than the mean period.
            whole = max(whole, periods.mean)
        share = t_compute / whole if whole else Fraction(0)
        return rounded(share, 6) if share >= SMALLEST_SHARE else None

    def mfu_at_least(self, periods: Periods | None) -> float | None:
        """Return the utilization by math that is no recomputation."""
        return self.utilization(periods, lambda op: op.phase != "recompute")

    def rows(self, hideable: Hideable) -> list[Json]:
        of_class = grouped((entry.name, entry) for entry in self.ledger)
        return [
            *(self.row_of(name, of_class.get(name, ()), hideable) for name in CLASSES),
            self.row(IDLE, self.idle),
            self.row(OVERLAP, self.step.timeline.busy - Group(self.step.leaves).total),
        ]

    def row_of(self, name: Any, entries: Sequence[LedgerEntry], hideable: Hideable) -> Json:
        is_known = name not in (KERNEL, UNJUDGED)
        return {
            **self.row(name, sum(entry.total for entry in entries)),
            "at_roof_ps": at_roof_of(entries) if is_known else None,
            "lost_ps": sum(entry.lost or 0 for entry in entries) if is_known else None,
            "hideable_ps": hideable.time_of(name, entries),
            "n_executions": sum(entry.ran.n for entry in entries),
        }

    def row(self, name: str, duration: int) -> Json:
        return {
            "class": name,
            "dur_ps": duration,
            "pct_of_step": percent(duration, self.step.duration),
            **dict.fromkeys(OF_CLASS),
        }

    def notes(self) -> list[str]:
        """Return a note about ops that are faster than their roof, if there are any."""
        over = sorted(self.over_roof, key=lambda entry: (-entry.total, entry.ran.op.agg_key))
        if not over:
            return []
        ops = [entry.ran.op for entry in over]
        total = sum(entry.total for entry in over)
        return [
            over_roof_note(
                "lower bounds exclude ops that are faster than their roof"
                f" ({counted(len(over), 'op')}, {time(total)})",
                (line_of(op).line or op.agg_key for op in ops),
            )
        ]


def time_of_one_step(step: Step, periods: Periods | None) -> int:
    """Return the time in which one step's work is done: its period if there is one."""
    return periods.mean if periods else step.duration


def mfu_of(useful: int | Fraction | None, step: Step, time: int, roofs: Roofs) -> float | None:
    """Return the share of the peak that the useful flops take, as given by the user, in the time of
    one step."""
    if useful is None or "bf16" not in roofs.flops or not time:
        return None
    # With megacore, one device of the program appears as two planes, and peaks are per plane.
    n_planes = 2 if step.device.stats.get("has_megacore") == 1 else 1
    return rounded(useful / (n_planes * roofs.flops["bf16"]) / time, 6)


def notes_of_mfu(mfu: float | None) -> list[str]:
    if mfu is None or mfu <= 1:
        return []
    return [
        f"an MFU of {percentage(100 * mfu)} is impossible: the flops are not those of one step on"
        " one device, or the peak is wrong"
    ]
