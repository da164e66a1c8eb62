"""Decide whether the step has become too slow, for `compare --fail-over`."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from typing import Literal, NamedTuple

from _analysis.records.comparison import Change, Comparison

TYPE_CHECKING = False
if TYPE_CHECKING:
    Figure = Literal["step_duration", "period"]


class Gate(NamedTuple):
    """The figures that increased by more than `limit` percent; only significant changes count."""

    limit: float
    failed_by: dict[Figure, Change]
    # False if there are too few samples to distinguish a slower step from noise.
    is_decided: bool

    @property
    def passed(self) -> bool:
        return self.is_decided and not self.failed_by


def gate_of(found: Comparison, limit: float) -> Gate:
    duration = found.totals["step_duration"]
    # Convert the limit through its decimal digits, because the float can differ slightly from what
    # the user wrote.
    part = Fraction(str(limit)) / 100
    return Gate(limit, dict(too_slow(found, part)), duration.is_significant is not None)


def too_slow(found: Comparison, part: Fraction) -> Iterator[tuple[Figure, Change]]:
    figures: tuple[tuple[Figure, Change | None], ...] = (
        ("step_duration", found.totals["step_duration"]),
        ("period", found.period),
    )
    for name, change in figures:
        if change and change.is_significant and change.delta > part * change.before.mean:
            yield name, change
