"""Compare the devices that run the same program: which one is slow, what that costs, and whether it
is chance.

Collectives make the steps of all devices equally long, so a slow device is recognised by its load:
the step without communication and idle time at barriers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final, Literal

from _breakdown.light import NamedTuple
from _breakdown.pipeline.groups import grouped

# A device is reported as slow only if it costs at least this share of the step.
SMALLEST_COST: Final = Fraction(1, 200)
# A difference is significant if its probability by chance is at most this.
ALPHA = Fraction(1, 20)
# Limits of the verdict, in percent of the step: an imbalance below the first limit is `balanced`,
# below the second `slight`, and otherwise `large`.
BALANCED, SLIGHT = 1, 5
# A cause must account for at least this share of the excess.
CAUSE_COVERS = Fraction(4, 5)

Imbalance = Literal["balanced", "slight", "large"]
ExcessCause = Literal["own", "idle", "host"]


class StepSums(NamedTuple):
    """Times of one step on one device, or their sums over several steps."""

    duration: int
    busy: int
    # Communication with other devices and with the host that nothing hides.
    comm: int
    host: int
    # Waits among the communication.
    wait: int
    # Idle time at barriers, where the device waits for other devices.
    barrier: int

    @property
    def idle(self) -> int:
        return self.duration - self.busy

    @property
    def load(self) -> int:
        return self.duration - self.comm - self.barrier

    @property
    def own(self) -> int:
        """Return the time of the device's own ops."""
        return self.busy - self.comm - self.host


def total_of(steps: Iterable[StepSums]) -> StepSums:
    return StepSums(*map(sum, zip(StepSums(0, 0, 0, 0, 0, 0), *steps, strict=True)))


class Member(NamedTuple):
    """A device, picklable so that worker processes can return it."""

    host: str
    device: str
    # The key of a step is the same on all devices.
    steps: dict[Hashable, StepSums]
    # Only of devices that were read from records.
    names: Mapping[Hashable, str | None] = {}
    program: str = ""
    step_source: str | None = None
    # Reads the device's file again and returns the records of its hosts, of which the device's is
    # at `place`.
    load_records: Callable[[], Sequence[Any]] = list
    place: int = 0

    @property
    def name(self) -> tuple[str, str]:
        return self.host, self.device


class Cohort:
    """The devices that run one program, the steps common to all of them, and each device's totals
    over these steps."""

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = sorted(members, key=lambda member: member.name)
        first = self.members[0]
        self.program = first.program
        self.keys = [
            key for key in first.steps if all(key in member.steps for member in self.members)
        ]
        self.totals = {
            member.name: total_of(member.steps[key] for key in self.keys) for member in self.members
        }
        # Members sorted by load, largest first; ties in order of name.
        self.ranked = sorted(self.members, key=lambda member: -self.load(member))
        self.slowest = {
            key: max(self.members, key=lambda member: member.steps[key].load) for key in self.keys
        }
        self.n_slowest = Counter(member.name for member in self.slowest.values())
        self.by_host = grouped((member.host, member) for member in self.members)

    def load(self, member: Member) -> int:
        return self.totals[member.name].load

    def median(self) -> Member:
        """Return the device with the median load; for an even number of devices, the lower of the
        two middle ones."""
        ranked = sorted(self.members, key=self.load)
        return ranked[(len(ranked) - 1) // 2]

    @property
    def lead(self) -> int:
        """Return the largest load minus the second largest."""
        first, second = self.ranked[:2]
        return self.load(first) - self.load(second)

    def is_costly(self, lead: int) -> bool:
        """Return whether a lead in load is large enough to be reported."""
        duration = sum(total.duration for total in self.totals.values())
        return lead * len(self.members) >= SMALLEST_COST * duration


class StepSpread(NamedTuple):
    """Figures of one step over all devices of a cohort."""

    name: str | None
    slowest: Member
    # Loads of all devices, in ascending order.
    loads: list[int]
    # The sum over all devices.
    duration: int

    @property
    def imbalance(self) -> Fraction:
        """Return the time that perfect balance would save, as a percentage of the mean step
        duration."""
        excess = len(self.loads) * self.loads[-1] - sum(self.loads)
        return Fraction(100 * excess, self.duration)


def step_spreads(cohort: Cohort) -> list[StepSpread]:
    first = cohort.members[0]
    found = []
    for key in cohort.keys:
        steps = [member.steps[key] for member in cohort.members]
        loads, duration = sorted(step.load for step in steps), sum(step.duration for step in steps)
        found.append(StepSpread(first.names.get(key), cohort.slowest[key], loads, duration))
    return found


class SlowHost(NamedTuple):
    """A host whose devices are all slow. The gain is the largest load of its devices minus that of
    all other devices."""

    host: str
    n_slowest: int
    p_value: Fraction
    gain: int


class SpreadVerdict(NamedTuple):
    """The slow device or host of a cohort with several devices; times are sums over all steps."""

    imbalance: Imbalance | None
    # The device with the largest load, and the median device.
    slow: Member
    median: Member
    is_straggler: bool
    n_slowest: int
    p_value: Fraction
    cause: ExcessCause | None
    slow_host: SlowHost | None


def verdict_of(cohort: Cohort) -> SpreadVerdict:
    slow, median = cohort.ranked[0], cohort.median()
    n_slowest = max(cohort.n_slowest.values())
    p_value = chance_of_slowest(n_slowest, len(cohort.keys), len(cohort.members))
    is_most_often = cohort.n_slowest[slow.name] == n_slowest
    is_straggler = is_most_often and p_value <= ALPHA and cohort.is_costly(cohort.lead)
    totals = cohort.totals
    return SpreadVerdict(
        imbalance=imbalance_of([step for step in step_spreads(cohort) if step.duration]),
        slow=slow,
        median=median,
        is_straggler=is_straggler,
        n_slowest=n_slowest,
        p_value=p_value,
        cause=cause_of(totals[slow.name], totals[median.name]) if is_straggler else None,
        slow_host=slow_host_of(cohort),
    )


def chance_of_slowest(k: int, n: int, n_devices: int) -> Fraction:
    """Return the probability that any of several equal devices is the slowest in at least k of n
    steps.

    The result is an upper bound: the probability for one device, times the number of devices.
    """
    ways, term = 0, 1
    # Sum from n down to k, so that each term of the binomial sum can be computed from the preceding
    # term.
    for i in range(n, k - 1, -1):
        ways += term
        term = term * i * (n_devices - 1) // (n - i + 1)
    return min(Fraction(1), n_devices * Fraction(ways, n_devices**n))


def slow_host_of(cohort: Cohort) -> SlowHost | None:
    """Return a host whose devices are all slow.

    Hosts are compared by their fastest devices, whose excess is at least half of the largest: a
    host with one slow device is no slow host. Hosts with different numbers of devices are not
    compared, because the fastest of few devices tends to be slower than the fastest of many.
    """
    by_host = cohort.by_host
    sizes = set(map(len, by_host.values()))
    if len(by_host) == 1 or len(sizes) > 1 or sizes == {1}:
        return None
    n_slowest = Counter(
        max(by_host, key=lambda host: min(member.steps[key].load for member in by_host[host]))
        for key in cohort.keys
    )
    [(host, n)] = n_slowest.most_common(1)
    p_value = chance_of_slowest(n, len(cohort.keys), len(by_host))
    loads = {other: list(map(cohort.load, members)) for other, members in by_host.items()}
    own = loads.pop(host)
    gain = max(own) - max(map(max, loads.values()))
    least = min(own) - max(map(min, loads.values()))
    if p_value > ALPHA or not cohort.is_costly(gain) or 2 * least < gain:
        return None
    return SlowHost(host, n, p_value, gain)


def imbalance_of(steps: Collection[StepSpread]) -> Imbalance | None:
    if not steps:
        return None
    part = sum(step.imbalance for step in steps) / len(steps)
    return "balanced" if part < BALANCED else "slight" if part < SLIGHT else "large"


def cause_of(slow: StepSums, median: StepSums) -> ExcessCause | None:
    """Return the part of the load that accounts for at least 80 % of the excess; None if no part
    does."""
    parts: dict[ExcessCause, int] = {
        "own": slow.own - median.own,
        "idle": (slow.idle - slow.barrier) - (median.idle - median.barrier),
        "host": slow.host - median.host,
    }
    largest = max(parts, key=parts.__getitem__)
    return largest if parts[largest] >= CAUSE_COVERS * (slow.load - median.load) else None


def uniform_part(times: Iterable[tuple[int, int]]) -> Fraction | None:
    """Return the part of the difference of two sums that one factor on all their terms explains;
    None if the sums are equal. `times` are pairs of terms: those to compare with, and the others.

    If a chip is slow, all of its lines take longer by the same factor.
    """
    pairs = list(times)
    before, after = (sum(side) for side in zip(*pairs, strict=True)) if pairs else (0, 0)
    if not before or before == after:
        return None
    off = sum(abs(late * before - early * after) for early, late in pairs)
    return max(Fraction(0), 1 - Fraction(off, 2 * before * abs(after - before)))
