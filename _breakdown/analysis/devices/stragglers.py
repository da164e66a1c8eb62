"""Find the slow device or host of a cohort, and the lines on which it is slow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal

from _breakdown.analysis.devices.cohorts import (
    Cohort,
    LoadRecords,
    Member,
    crew_of,
    found_in,
    slowest,
    twice_median,
)
from _breakdown.analysis.devices.recorded_steps import ALPHA, source_of
from _breakdown.analysis.devices.step_sums import StepSums, is_costly, total_of
from _breakdown.analysis.processes import in_turn
from _breakdown.light import NamedTuple
from _breakdown.pipeline.device import STEPS
from _breakdown.pipeline.groups import grouped, mean, percent, rounded_mean
from _breakdown.pipeline.no_answer import NoAnswer
from _breakdown.pipeline.scopes import scope_of
from _breakdown.pipeline.vocabulary import LeafKind
from _breakdown.units import counted

# Applies a function to each item, in the current process or in others.
OnEach = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
Imbalance = Literal["balanced", "slight", "large"]
Scope = Literal["host", "device"]
Cause = Literal["own", "idle", "host"]

# Limits of the verdict, in percent of the step: an imbalance below the first limit is `balanced`,
# below the second `slight`, and otherwise `large`.
BALANCED, SLIGHT = 1, 5
# A cause must account for at least this share of the excess.
CAUSE_COVERS = Fraction(4, 5)


class Spread(NamedTuple):
    """The devices of a run, grouped by program; the program with the most devices comes first."""

    cohorts: list[Cohort]
    n_hosts: int
    n_devices: int
    # For each host that cannot be read, the reason.
    unreadable: list[str]
    notes: list[str]


def spread_of_records(
    loaders: Mapping[str, LoadRecords],
    *,
    device: str | None = None,
    steps: slice = slice(None),
    on_each: OnEach = in_turn,
) -> Spread:
    """Compare the devices of a run.

    `loaders` maps file names to functions that read the file. Such a function returns a record or a
    NoAnswer for each host, or raises NoAnswer if the file cannot be read. The function is called
    again to read the lines of a few devices. `steps` is a slice of the steps in order of time.
    `on_each` decides in which processes files are read.
    """
    readers = list(loaders.values())
    found = on_each(lambda load_records: found_in(load_records, device, steps), readers)
    crew = crew_of(zip(loaders, readers, found, strict=True))
    if steps != slice(None) and not any(member.steps for member in crew.members.values()):
        raise NoAnswer("step_not_found", detail="--steps selects no usable step of any device")
    by_program = grouped((member.recorded.program, member) for member in crew.members.values())
    cohorts = [Cohort(members) for members in by_program.values()]
    cohorts.sort(key=lambda cohort: (-len(cohort.members), cohort.program))
    notes = {*crew.notes, *(note for cohort in cohorts for note in notes_of(cohort))}
    return Spread(cohorts, len(crew.hosts), len(crew.members), crew.unreadable, sorted(notes))


def notes_of(cohort: Cohort) -> Iterator[str]:
    members = cohort.members
    n_left_out = max(len(member.steps) for member in members) - len(cohort.keys)
    if n_left_out:
        yield (
            f"program {cohort.program}: left out {counted(n_left_out, 'step')}, because some"
            " devices lack figures"
        )
    if len(members) > 1 and any(member.recorded.step_source != STEPS for member in members):
        yield (
            f"program {cohort.program}: executions are aligned by index, so the comparison"
            " is wrong if captures begin at different executions"
        )


class StepSpread(NamedTuple):
    """Figures of one step over all devices of a cohort."""

    name: str | None
    slowest: Member
    max_load: int
    # Largest load of the other devices; None if the cohort has only one device.
    next_load: int | None
    mean_load: int


def step_spread(cohort: Cohort, key: Hashable) -> StepSpread:
    steps = [member.steps[key] for member in cohort.members]
    slow = slowest(cohort.members, key)
    return StepSpread(
        name=cohort.members[0].recorded.names[key],
        slowest=slow,
        max_load=slow.steps[key].load,
        next_load=max(
            (member.steps[key].load for member in cohort.members if member is not slow),
            default=None,
        ),
        mean_load=mean([step.load for step in steps]),
    )


def imbalance_of(steps: Sequence[StepSums]) -> Fraction | None:
    """Return the time that perfect balance would save, as a percentage of the mean step
    duration."""
    loads = [step.load for step in steps]
    duration = sum(step.duration for step in steps)
    return Fraction(100 * (len(loads) * max(loads) - sum(loads)), duration) if duration else None


class SlowHost(NamedTuple):
    host: str
    n_slowest: int
    p_value: Fraction


class SpreadVerdict(NamedTuple):
    """The slow device or host of a cohort with several devices, and its slow lines."""

    imbalance: Imbalance | None
    # Time saved per step if the slowest device (for `host_gain`, the slow host) became as fast as
    # the second slowest.
    gain: int
    gain_pct: float | None
    host_gain: int | None
    n_slowest: int
    p_value: Fraction
    straggler: Member | None
    scope: Scope | None
    cause: Cause | None
    slow_host: SlowHost | None
    lines: SlowVsMedian


def verdict_of(cohort: Cohort) -> SpreadVerdict:
    suspect, median = cohort.suspect(), cohort.median()
    n_slowest = cohort.n_slowest[suspect.name]
    p_value = chance_of_slowest(n_slowest, len(cohort.keys), len(cohort.members))
    scope = scope_of_straggler(cohort, suspect)
    lead = lead_of_host(cohort, suspect.host) if scope == "host" else lead_of(cohort, suspect)
    # If all devices are equal, the first by name counts as the slowest in each step although no
    # device is slow, so also compare loads.
    is_slow = (
        p_value <= ALPHA
        and cohort.load(suspect) > cohort.load(median)
        and is_costly(lead, cohort.totals.values())
    )
    slow_host = None if is_slow else slow_host_of(cohort)
    slow_name = slow_host.host if slow_host else None
    if is_slow and scope == "host":
        slow_name = suspect.host
    totals = cohort.totals
    n = len(cohort.keys)
    gain = rounded_mean(lead_of(cohort, cohort.ranked[0]), n)
    all_steps = total_of(totals.values()).duration
    return SpreadVerdict(
        imbalance=imbalance_verdict(cohort),
        gain=gain,
        gain_pct=percent(gain, rounded_mean(all_steps, n * len(cohort.members))),
        host_gain=rounded_mean(lead_of_host(cohort, slow_name), n) if slow_name else None,
        n_slowest=n_slowest,
        p_value=p_value,
        straggler=suspect if is_slow else None,
        scope=scope if is_slow else None,
        cause=cause_of(totals[suspect.name], totals[median.name]) if is_slow else None,
        slow_host=slow_host,
        lines=slow_vs_median(cohort, suspect if is_slow else cohort.ranked[0], median),
    )


def lead_of(cohort: Cohort, device: Member) -> int:
    """Return a device's total load, minus the largest total load of any other device."""
    others = (cohort.load(member) for member in cohort.members if member is not device)
    return cohort.load(device) - max(others)


def lead_of_host(cohort: Cohort, host: str) -> int:
    """Return the largest total load of the host's devices, minus the largest total load of any
    device on another host."""
    largest = {name: max(map(cohort.load, members)) for name, members in cohort.by_host.items()}
    return largest.pop(host) - max(largest.values())


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
    """Return a host on which all devices are slow, so that no single device stands out.

    Hosts are compared by their fastest devices. Hosts with different numbers of devices are not
    compared, because the fastest of few devices tends to be slower than the fastest of many.
    """
    by_host = cohort.by_host
    sizes = set(map(len, by_host.values()))
    if len(by_host) == 1 or len(sizes) > 1 or sizes == {1}:
        return None
    n_slowest: Counter[str] = Counter()
    for key in cohort.keys:
        least = {
            host: min(member.steps[key].load for member in members)
            for host, members in by_host.items()
        }
        first, second = sorted(by_host, key=least.__getitem__, reverse=True)[:2]
        if least[first] > least[second]:
            n_slowest[first] += 1
    host, n = max(n_slowest.items(), key=lambda host_and_n: host_and_n[1], default=("", 0))
    p_value = chance_of_slowest(n, len(cohort.keys), len(by_host))
    if p_value > ALPHA or not is_costly(lead_of_host(cohort, host), cohort.totals.values()):
        return None
    return SlowHost(host, n, p_value)


def imbalance_verdict(cohort: Cohort) -> Imbalance | None:
    steps = [[member.steps[key] for member in cohort.members] for key in cohort.keys]
    known = [part for part in map(imbalance_of, steps) if part is not None]
    if not known:
        return None
    part = sum(known) / len(known)
    return "balanced" if part < BALANCED else "slight" if part < SLIGHT else "large"


def scope_of_straggler(cohort: Cohort, straggler: Member) -> Scope | None:
    """Return `host` if all devices of the straggler's host are slow, else `device`. Return None if
    there is only one host, or if the straggler is the only device of its host."""
    members = cohort.members
    own = [cohort.load(member) for member in members if member.host == straggler.host]
    others = [cohort.load(member) for member in members if member.host != straggler.host]
    if not others or len(own) == 1:
        return None
    # Half of all devices exceed the median by chance, so require at least half the straggler's
    # excess.
    middle = twice_median(others)
    is_host = 2 * min(own) > middle and 4 * min(own) - middle >= 2 * cohort.load(straggler)
    return "host" if is_host else "device"


def cause_of(slow: StepSums, median: StepSums) -> Cause | None:
    """Return the part of the load that accounts for at least 80 % of the excess; None if no part
    does."""
    parts: dict[Cause, int] = {
        "own": slow.own - median.own,
        "idle": (slow.idle - slow.barrier) - (median.idle - median.barrier),
        "host": slow.host - median.host,
    }
    largest = max(parts, key=parts.__getitem__)
    return largest if parts[largest] >= CAUSE_COVERS * (slow.load - median.load) else None


class LineDelta(NamedTuple):
    """The mean time of a line on the median device and on the slow device."""

    kind: LeafKind
    agg_key: str
    source: str | None
    source_user: str | None
    kernel: str | None
    scope: str | None
    median: int
    slow: int

    @property
    def delta(self) -> int:
        return self.slow - self.median


class SlowVsMedian(NamedTuple):
    """A comparison of a slow device with the median device."""

    slow: Member
    median: Member
    excess: int
    # Percentage of the excess that a uniform slowdown of all lines explains.
    uniform: Fraction | None
    # Lines, sorted by absolute difference, largest first.
    lines: list[LineDelta]


def slow_vs_median(cohort: Cohort, slow: Member, median: Member) -> SlowVsMedian:
    of_slow, of_median = slow.lines(cohort.keys), median.lines(cohort.keys)
    lines: list[LineDelta] = []
    for key in of_slow.keys() | of_median.keys():
        ours, theirs = of_slow.get(key), of_median.get(key)
        there = [line for line in (ours, theirs) if line]
        group = there[0].group
        lines.append(
            LineDelta(
                kind=there[0].kind,
                agg_key=group.agg_key,
                source=source_of(there),
                source_user=there[0].source_user,
                kernel=group.kernel,
                scope=scope_of(group.tf_ops[0]).name if group.tf_ops else None,
                median=theirs.mean if theirs else 0,
                slow=ours.mean if ours else 0,
            )
        )
    lines.sort(key=lambda line: (-abs(line.delta), line.kind, line.agg_key))
    slow_sum, median_sum = sum(line.slow for line in lines), sum(line.median for line in lines)
    uniform = None
    if median_sum and slow_sum != median_sum:
        off = sum(abs(line.slow * median_sum - line.median * slow_sum) for line in lines)
        uneven = Fraction(off, 2 * median_sum * abs(slow_sum - median_sum))
        uniform = max(Fraction(0), 100 * (1 - uneven))
    n = len(cohort.keys)
    excess = rounded_mean(cohort.load(slow), n) - rounded_mean(cohort.load(median), n)
    return SlowVsMedian(slow, median, excess, uniform, lines)
