"""Summarise counters: trace lines whose events are measurements, such as power or utilization."""

from __future__ import annotations

import math
import re
from fractions import Fraction

from _proto.trace.plane import Value
from _proto.xplane_pb2 import XEvent

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _proto.trace.survey import PlanePart


Number = int | float

# A trace line holds counters if its name contains this text.
COUNTER = "counter"
# Matches a decimal number; longer digit sequences are not treated as numbers.
DECIMAL_RE = re.compile(r"[+-]?\d{1,40}(\.\d{1,40})?([eE][+-]?\d{1,3})?", re.ASCII)


class Figures:
    """A summary of one stat's values over all events with the same name. The constructor requires
    the first value."""

    def __init__(self, number: Number, start: int | None) -> None:
        self.n = 0
        # Keep the sum exact, so that the mean is rounded only once.
        self._sum = Fraction()
        self.least = self.most = number
        # Time and value of the earliest and the latest event; None until an event with a time is
        # added.
        self._first: tuple[int, Number] | None = None
        self._last: tuple[int, Number] | None = None
        self.add(number, start)

    def add(self, number: Number, start: int | None) -> None:
        self.n += 1
        self._sum += Fraction(number)
        self.least, self.most = min(self.least, number), max(self.most, number)
        if start is not None:
            if self._first is None or start < self._first[0]:
                self._first = start, number
            if self._last is None or start >= self._last[0]:
                self._last = start, number

    @property
    def mean(self) -> float:
        return float(self._sum / self.n)

    @property
    def first(self) -> Number | None:
        return self._first[1] if self._first else None

    @property
    def last(self) -> Number | None:
        return self._last[1] if self._last else None


class Counters:
    """A line's counters, keyed by event name and stat, in order of appearance."""

    def __init__(self) -> None:
        self._names: dict[tuple[PlanePart, int], str | None] = {}
        self.figures: dict[tuple[str | None, str], Figures] = {}

    def add(self, part: PlanePart, shift: int, at: int, event: XEvent) -> None:
        name_key = part, event.metadata_id
        if name_key not in self._names:
            self._names[name_key] = part.event_name(event.metadata_id)
        start = None if event.HasField("num_occurrences") else event.offset_ps + shift
        for stat, value in part.resolved(event.stats, at).items():
            number = number_in(value)
            if number is not None:
                key = self._names[name_key], stat
                if key in self.figures:
                    self.figures[key].add(number, start)
                else:
                    self.figures[key] = Figures(number, start)


def number_in(value: Value | None) -> Number | None:
    """Convert a finite number or a decimal text to a number; return None for other values."""
    if isinstance(value, str) and DECIMAL_RE.fullmatch(value):
        value = int(value) if value.lstrip("+-").isdigit() else float(value)
    if isinstance(value, (int, float)) and math.isfinite(value):
        return value
    return None
