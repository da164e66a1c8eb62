"""Decide whether the step has become too slow, for `compare --fail-over`."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Literal

from _breakdown.analysis.records.comparison import Change, Comparison
from _breakdown.light import NamedTuple
from _breakdown.units import percentage

TYPE_CHECKING = False
if TYPE_CHECKING:
    Figure = Literal["step_duration", "period"]


class Gate(NamedTuple):
    """The figures that increased by more than `limit` percent; only significant changes count."""

    limit: float
    failed_by: dict[Figure, Change]
    # The reason if there are too few samples to distinguish a slower step from noise.
    why_not: str | None

    @property
    def passed(self) -> bool:
        return not self.why_not and not self.failed_by

    @property
    def says(self) -> str:
        if self.passed:
            return "passed"
        if not self.failed_by:
            return f"failed: no change can be significant ({self.why_not}); use at least 4 per side"
        slower = [
            f"{name} is {percentage(100 * change.delta / change.before.mean)} slower"
            for name, change in self.failed_by.items()
        ]
        return f"failed: {' and '.join(slower)}; the limit is {self.limit:g} %"


def gate_of(found: Comparison, limit: float) -> Gate:
    # Convert the limit through its decimal digits, because the float can differ slightly from what
    # the user wrote.
    part = Fraction(str(limit)) / 100
    return Gate(limit, dict(too_slow(found, part)), found.why_not)


def too_slow(found: Comparison, part: Fraction) -> Iterator[tuple[Figure, Change]]:
    figures: tuple[tuple[Figure, Change | None], ...] = (
        ("step_duration", found.totals["step_duration"]),
        ("period", found.period),
    )
    for name, change in figures:
        if change and change.is_significant and change.delta > part * change.before.mean:
            yield name, change
