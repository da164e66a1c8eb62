"""Who is slow, and on which lines. Values in, values out."""

from __future__ import annotations

from collections import Counter, defaultdict
from fractions import Fraction

from _analysis.cohorts import (
    MODULES,
    Cohort,
    crew_of,
    found_in,
    lines_of,
    slowest,
    total_of,
    twice_median,
)
from _analysis.processes import in_turn
from _analysis.recorded_steps import ALPHA, mean, percent, ratio, rounded, rounded_mean, source_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping, Sequence
    from typing import Any

    from _analysis.cohorts import Load, Member
    from _pipeline.no_answer import NoAnswer

    Json = dict[str, Any]
    # Works on each of several things, in whatever process.
    OnEach = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]
    # As RECORD says.
    Record = dict[str, Any]

N_LINES = 20
# What is below so many percent of the step.
BALANCED, SLIGHT = 1, 5
CAUSES = ("own", "idle", "host")
CAUSE_COVERS = Fraction(4, 5)


def spread_of_records(
    loaders: Mapping[str, Callable[[], Sequence[Record | NoAnswer]]],
    *,
    device: str | None = None,
    steps: slice = slice(None),
    top: int = 50,
    on_each: OnEach = in_turn,
) -> Json:
    """What of the output names no paths.

    A loader of a file, by its name, returns for each host in it a record, or why it has none; it
    raises NoAnswer where the file can't be read. Those of two devices of each cohort are called
    again, for their lines. `steps` narrows what is used; `on_each` says in which processes they
    are read.
    """
    readers = list(loaders.values())
    found = on_each(lambda load_records: found_in(load_records, device, steps), readers)
    crew = crew_of(zip(loaders, found, readers, strict=True))
    by_program: dict[str, list[Member]] = defaultdict(list)
    for member in crew.members.values():
        by_program[member.program].append(member)
    cohorts = sorted(by_program.items(), key=lambda each: (-len(each[1]), each[0]))
    notes = set(crew.notes)
    fields = [cohort_fields(Cohort.of(each), notes, top) for _, each in cohorts]
    return {
        "notes": [*(f"a host can't be read: {why}" for why in crew.unreadable), *sorted(notes)],
        "n_hosts": len(crew.hosts),
        "n_hosts_unreadable": len(crew.unreadable),
        "n_devices": len(crew.members),
        "cohorts": fields,
    }


def cohort_fields(cohort: Cohort, notes: set[str], top: int) -> Json:
    members, n = cohort.members, len(cohort.keys)
    program = members[0].program
    n_left_out = max(len(member.steps) for member in members) - n
    if n_left_out:
        notes.add(f"program {program}: {n_left_out} steps left out that not all devices have used")
    if len(members) > 1 and any(member.step_source == MODULES for member in members):
        notes.add(
            f"program {program}: executions are aligned by their place in the capture; captures"
            " may be offset"
        )
    verdict, slowest_vs_median = verdict_of(cohort)
    hosts = host_rows(cohort)
    return {
        "program": program,
        "n_devices": len(members),
        "n_hosts": len(hosts),
        "n_steps": n,
        "verdict": verdict,
        "steps": [step_row(cohort, key) for key in cohort.keys],
        "hosts": hosts,
        "devices": [
            {
                **member.fields,
                "n_steps": n,
                "n_slowest": cohort.n_slowest[member.name],
                **cohort.totals[member.name].means(n),
            }
            for member in cohort.ranked[:top]
        ],
        "tail": {
            "n_devices_omitted": len(cohort.ranked[top:]),
            "n_slowest": sum(cohort.n_slowest[member.name] for member in cohort.ranked[top:]),
        },
        "slowest_vs_median": slowest_vs_median,
    }


def host_rows(cohort: Cohort) -> list[Json]:
    rows = []
    for host, members in cohort.by_host.items():
        total = total_of(cohort.totals[member.name] for member in members)
        n = len(cohort.keys) * len(members)
        row = {
            "host": host,
            "n_devices": len(members),
            "n_steps": len(cohort.keys),
            "n_slowest": sum(cohort.n_slowest[member.name] for member in members),
            **total.means(n),
        }
        rows.append((-Fraction(total.load, n or 1), host, row))
    return [row for _, _, row in sorted(rows, key=lambda each: each[:2])]


def step_row(cohort: Cohort, key: Hashable) -> Json:
    steps = [member.steps[key] for member in cohort.members]
    durations = [step.step_duration for step in steps]
    slow = slowest(cohort.members, key)
    largest = slow.steps[key].load
    mean_load = mean([step.load for step in steps])
    return {
        "name": steps[0].step_name,
        "slowest": slow.fields,
        "max_load_ps": largest,
        "mean_load_ps": mean_load,
        "imbalance_ps": largest - mean_load,
        "imbalance_pct_of_step": rounded(imbalance_of(steps), 3),
        "step_spread_pct": percent(2 * (max(durations) - min(durations)), twice_median(durations)),
    }


def imbalance_of(steps: Sequence[Load]) -> Fraction | None:
    """What perfect balance could win at most, in percent of the mean step."""
    loads = [step.load for step in steps]
    duration = sum(step.step_duration for step in steps)
    return Fraction(100 * (len(loads) * max(loads) - sum(loads)), duration) if duration else None


def verdict_of(cohort: Cohort) -> tuple[Json, Json | None]:
    """Who is slow and why, and the lines that tell it."""
    n, n_devices = len(cohort.keys), len(cohort.members)
    verdict: Json = dict.fromkeys(
        "imbalance straggler n_slowest n_steps p_value scope cause uniform_pct slow_host"
        " why_not".split()
    )
    verdict["n_steps"] = n
    if not n or n_devices == 1:
        verdict["why_not"] = "one_device" if n else "no_common_step"
        return verdict, None
    suspect, median = cohort.suspect(), cohort.median()
    n_slowest = cohort.n_slowest[suspect.name]
    p_value = chance_of_slowest(n_slowest, n, n_devices)
    # Where all are equal the first by name is the slowest every time, and yet nobody is slow.
    is_slow = p_value <= ALPHA and cohort.load(suspect) > cohort.load(median)
    lines, uniform = slow_vs_median(cohort, suspect if is_slow else cohort.ranked[0], median)
    verdict |= {
        "imbalance": imbalance_verdict(cohort),
        "n_slowest": n_slowest,
        "p_value": rounded(p_value, 6),
        "uniform_pct": rounded(uniform, 3),
    }
    if is_slow:
        verdict |= {
            "straggler": suspect.fields,
            "scope": scope_of_straggler(cohort, suspect),
            "cause": cause_of(cohort.totals[suspect.name], cohort.totals[median.name]),
        }
    else:
        verdict["slow_host"] = slow_host_of(cohort)
    return verdict, lines


def chance_of_slowest(k: int, n: int, n_devices: int) -> Fraction:
    """At most: that one of so many equal devices is the slowest in k or more of n steps."""
    ways, of_term = 0, 1
    # From n steps down: each term of the binomial comes from the one before.
    for i in range(n, k - 1, -1):
        ways += of_term
        of_term = of_term * i * (n_devices - 1) // (n - i + 1)
    return min(Fraction(1), n_devices * Fraction(ways, n_devices**n))


def slow_host_of(cohort: Cohort) -> Json | None:
    """The host that is slow as a whole: its devices share the steps, so that none stands out.

    So hosts are compared by their fastest device. Of fewer devices that is slower by itself: hosts
    of different sizes aren't compared.
    """
    by_host = cohort.by_host
    sizes = set(map(len, by_host.values()))
    if len(by_host) == 1 or len(sizes) > 1 or sizes == {1}:
        return None
    n_slowest: Counter[str] = Counter()
    for key in cohort.keys:
        least = {host: min(each.steps[key].load for each in own) for host, own in by_host.items()}
        first, second = sorted(by_host, key=least.__getitem__, reverse=True)[:2]
        if least[first] > least[second]:
            n_slowest[first] += 1
    host, n = max(n_slowest.items(), key=lambda each: each[1], default=("", 0))
    p_value = chance_of_slowest(n, len(cohort.keys), len(by_host))
    if p_value > ALPHA:
        return None
    return {"host": host, "n_slowest": n, "p_value": rounded(p_value, 6)}


def imbalance_verdict(cohort: Cohort) -> str | None:
    steps = [[member.steps[key] for member in cohort.members] for key in cohort.keys]
    known = [part for part in map(imbalance_of, steps) if part is not None]
    if not known:
        return None
    part = sum(known) / len(known)
    return "balanced" if part < BALANCED else "slight" if part < SLIGHT else "large"


def scope_of_straggler(cohort: Cohort, straggler: Member) -> str | None:
    own = [cohort.load(each) for each in cohort.members if each.host == straggler.host]
    others = [cohort.load(each) for each in cohort.members if each.host != straggler.host]
    if not others or len(own) == 1:
        return None
    # Being above the median happens by chance, half the time for each: so it has to be so by half
    # of what the straggler is.
    middle = twice_median(others)
    is_host = 2 * min(own) > middle and 4 * min(own) - middle >= 2 * cohort.load(straggler)
    return "host" if is_host else "device"


def cause_of(slow: Load, median: Load) -> str | None:
    """What most of the excess is."""
    parts = {name: getattr(slow, name) - getattr(median, name) for name in CAUSES}
    largest = max(CAUSES, key=lambda name: parts[name])
    return largest if parts[largest] >= CAUSE_COVERS * (slow.load - median.load) else None


def slow_vs_median(cohort: Cohort, slow: Member, median: Member) -> tuple[Json, Fraction | None]:
    """The lines of both; and in percent how much of the excess is one factor on all of them."""
    sides = [lines_of(each.load_record(), each, cohort.keys) for each in (slow, median)]
    rows: list[Json] = []
    for kind, agg_key in sides[0].keys() | sides[1].keys():
        both = [side.get((kind, agg_key)) for side in sides]
        slow_ps, median_ps = (line.mean if line else 0 for line in both)
        rows.append(
            {
                "kind": kind,
                "agg_key": agg_key,
                "source_inner": source_of([line for line in both if line]),
                "median_ps": median_ps,
                "slow_ps": slow_ps,
                "delta_ps": slow_ps - median_ps,
                "delta_pct": percent(slow_ps - median_ps, median_ps),
            }
        )
    rows.sort(key=lambda row: (-abs(row["delta_ps"]), row["kind"], row["agg_key"]))
    top = rows[:N_LINES]
    pairs = [(row["slow_ps"], row["median_ps"]) for row in rows]
    of_slow, of_median = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    uniform = None
    if of_median and of_slow != of_median:
        off = sum(abs(ours * of_median - theirs * of_slow) for ours, theirs in pairs)
        uneven = Fraction(off, 2 * of_median * abs(of_slow - of_median))
        uniform = max(Fraction(0), 100 * (1 - uneven))
    n = len(cohort.keys)
    excess = rounded_mean(cohort.load(slow), n) - rounded_mean(cohort.load(median), n)
    fields = {
        "slow": slow.fields,
        "median": median.fields,
        "excess_ps": excess,
        "factor": ratio(of_slow, of_median, 6),
        "rows": top,
        "rest_ps": excess - sum(row["delta_ps"] for row in top),
    }
    return fields, uniform
