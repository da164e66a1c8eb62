"""Compute periods (the times from the start of a step to the start of the next step of the same
kind) and the pauses within them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise

from _breakdown.light import NamedTuple
from _breakdown.pipeline.device import STEPS, Device
from _breakdown.pipeline.groups import mean
from _breakdown.pipeline.intervals import complement, union
from _breakdown.pipeline.step_event import StepEvent

# A pause counts if it takes at least this part of the longest pause. Shorter times are those that
# every launch of a program needs.
_COUNTED_PART = 20
_ORDINALS = {2: "second", 3: "third", 4: "fourth", 5: "fifth"}


class Pause(NamedTuple):
    """A time between two steps, or two programs of a cycle, on the trace's clock."""

    start: int
    end: int
    # Index of the period.
    gap: int

    @property
    def duration(self) -> int:
        return self.end - self.start


class Occurrences(NamedTuple):
    """Describe how often pauses occur: in which of the gaps between steps, and how long they
    take."""

    n_gaps: int
    # Indices of the gaps with a pause that counts.
    gaps: list[int]
    shortest: int
    longest: int
    # Time of all pauses, as a percentage of the time of all periods.
    share: float
    # The steps after which the pauses occur, such as `after every second step`.
    when: str


def when_in(gaps: Sequence[int], n_gaps: int, *, is_inside: bool = False) -> str:
    """Return in words which gaps are listed: those after steps, or pauses inside of steps."""
    at, among = ("in", "steps") if is_inside else ("after", "gaps between steps")
    if len(gaps) == n_gaps:
        return f"{at} every step"
    distances = {later - gap for gap, later in pairwise(gaps)}
    n = min(distances, default=0)
    if len(distances) == 1 and gaps[0] < n and gaps[-1] + n >= n_gaps:
        return f"{at} every {_ORDINALS.get(n) or f'{n}th'} step"
    return f"in {len(gaps)} of {n_gaps} {among}"


class Periods(NamedTuple):
    """The periods of all steps of the picked step's kind, in order of time; of all steps if no step
    is picked."""

    # The step with which each period begins, and the step that ends it.
    steps: list[tuple[StepEvent, StepEvent]]
    # None if the step is the whole capture, which contains the pauses.
    picked: StepEvent | None
    pauses: list[Pause]
    # Times between the programs of a cycle, which belong to the step.
    inside: list[Pause]
    # True for steps of several kinds, such as different programs, which have no common period.
    is_mixed: bool

    @property
    def durations(self) -> list[int]:
        return [following.start - step.start for step, following in self.steps]

    @property
    def mean(self) -> int:
        return mean(self.durations)

    @property
    def median(self) -> int:
        return lower_median(self.durations)

    @property
    def n_gaps(self) -> int:
        return len(self.steps)

    @property
    def mean_pause(self) -> int:
        return self.mean_of(self.pauses)

    @property
    def median_pause(self) -> int:
        return lower_median(self.by_gap(self.pauses))

    def mean_of(self, pauses: Iterable[Pause]) -> int:
        """Return the time of the given pauses, divided by the number of periods."""
        return mean(self.by_gap(pauses))

    def cost_of(self, pauses: Iterable[Pause]) -> int:
        """Return the time that the given pauses cost a step; all of it for the whole capture."""
        return self.mean_of(pauses) if self.picked else sum(self.by_gap(pauses))

    def by_gap(self, pauses: Iterable[Pause]) -> list[int]:
        """Return the time of the given pauses in each gap between steps."""
        times = [0] * self.n_gaps
        for pause in pauses:
            times[pause.gap] += pause.duration
        return times

    def occurrences(self, pauses: Iterable[Pause]) -> Occurrences | None:
        """Return how often the given pauses occur; None if there are none."""
        times = self.by_gap(pauses)
        longest = max(times)
        if not longest:
            return None
        gaps = [gap for gap, time in enumerate(times) if _COUNTED_PART * time >= longest]
        return Occurrences(
            self.n_gaps,
            gaps,
            min(times[gap] for gap in gaps),
            longest,
            round(100 * sum(times) / sum(self.durations), 3),
            when_in(gaps, self.n_gaps),
        )

    @property
    def of_picked(self) -> tuple[int, int] | None:
        """Return the start and end of the picked step's period; None if no step is picked.

        The last step has no following step, so its period begins at the preceding step's end and
        ends at its own end.
        """
        for step, following in self.steps:
            if step is self.picked:
                return step.start, following.start
        if self.picked is None:
            return None
        return min(self.steps[-1][0].end, self.picked.start), self.picked.end


def lower_median(figures: Sequence[int]) -> int:
    """Return the median; for an even number of figures, the lower of the two middle ones."""
    return sorted(figures)[(len(figures) - 1) // 2]


def steps_like(device: Device, picked: StepEvent) -> list[StepEvent]:
    return [step for step in device.steps if step.kind == picked.kind]


def sequence_of(device: Device, picked: StepEvent | None) -> list[StepEvent]:
    """Return the steps that end each other's periods: all steps if no step is picked. A cycle ends
    when the next one begins, even if that is of another kind."""
    return device.steps if picked is None or device.has_cycles else steps_like(device, picked)


def periods_of(device: Device, picked: StepEvent | None) -> Periods | None:
    """Return the periods of all steps of the picked step's kind, or of all steps if no step is
    picked. Return None if there is only one such step."""
    pairs = list(pairwise(sequence_of(device, picked)))
    if picked:
        pairs = [pair for pair in pairs if pair[0].kind == picked.kind]
    if not pairs:
        return None
    running = union((step.start, step.end) for step in device.steps)
    idle = complement(running, (pairs[0][0].start, pairs[-1][1].start))
    pauses, gap = [], 0
    for start, end in idle:
        # No step runs during a pause, so a pause does not contain the start of a step.
        while pairs[gap][1].start < end:
            gap += 1
        if pairs[gap][0].start <= start:
            pauses.append(Pause(start, end, gap))
    is_mixed = device.step_source != STEPS and len({step.kind for step, _ in pairs}) > 1
    inside = [
        Pause(start, end, gap)
        for gap, (step, _) in enumerate(pairs)
        for start, end in complement(
            union((program.start, program.end) for program in step.programs), (step.start, step.end)
        )
        if step.programs
    ]
    return Periods(pairs, picked, pauses, inside, is_mixed)


def periods_by_index(device: Device) -> dict[int, int]:
    """Map step indices to periods; steps without a following step are omitted."""
    periods, next_start = {}, dict[str | None, int]()
    for step in reversed(device.steps):
        kind = None if device.has_cycles else step.kind
        if kind in next_start:
            periods[step.index] = next_start[kind] - step.start
        next_start[kind] = step.start
    return periods
