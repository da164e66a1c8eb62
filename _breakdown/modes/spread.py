"""Find the slow device of a run, its host, and the source lines that are slow on it.

question: which device of which host is slow, and on which lines
reads: all devices
options: --steps, --top
example: --top 5
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any

from _breakdown.analysis.devices.cohort import (
    Cohort,
    Member,
    SlowHost,
    SpreadVerdict,
    StepSpread,
    StepSums,
    step_spreads,
    total_of,
    verdict_of,
)
from _breakdown.analysis.devices.record_format import HostRecord
from _breakdown.analysis.devices.run_devices import (
    LineDelta,
    LoadRecords,
    Spread,
    line_deltas,
    spread_of_records,
    uniform_pct,
)
from _breakdown.analysis.processes import work_on
from _breakdown.analysis.records.captures import captures_of, records_of_file, size_of, trace_of
from _breakdown.output.columns import LINE, SCOPE
from _breakdown.output.phrases import Next
from _breakdown.output.screen import Column, Each, End, Part, Says, Section, Table
from _breakdown.pipeline.context import SCHEMA_VERSION, Context
from _breakdown.pipeline.groups import mean, percent, rounded_mean
from _breakdown.pipeline.load import Place, of_host
from _breakdown.pipeline.no_answer import NoAnswer
from _breakdown.pipeline.texts import cut_texts
from _breakdown.units import counted, time

Json = dict[str, Any]

# Fields of a verdict that are null without one.
OF_VERDICT = (
    *("imbalance", "gain_ps", "gain_pct_of_step", "host_gain_ps", "straggler", "n_slowest"),
    *("p_value", "cause", "uniform_pct", "slow_host"),
)
# The activity that the progress names.
READING = "reading captures"
# Maximum number of source lines in the table that compares two devices.
N_LINES = 20


def spread(
    context: Context,
    *,
    steps: slice = slice(None),
    top: int = 50,
) -> Json:
    request = context.request
    places = of_host(captures_of(request.profiles, context), request.host)
    n_named = Counter(os.path.basename(place.path) for place in places)
    # Cache two files: two devices of each cohort are read again for their lines, and standard input
    # can be read only once.
    load_again = lru_cache(maxsize=2)(partial(records_in, n=len(places), context=context))
    n_bytes = sum(size_of(place, context) for place in places)
    place_of: dict[LoadRecords, Place] = {partial(load_again, place): place for place in places}
    found = spread_of_records(
        {name_in(place, n_named): loader for loader, place in place_of.items()},
        device=request.device,
        steps=steps,
        on_each=partial(work_on, activity=READING, context=context, n_bytes=n_bytes),
    )
    context.warn(
        *(f"a host is omitted, because it cannot be read: {why}" for why in found.unreadable),
        *found.notes,
    )
    of_spread = fields_of(found, top)
    slow = of_spread["cohorts"][0]["verdict"]["straggler"]
    paths = {member.name: place_of[member.load_records].path for member in found.cohorts[0].members}
    answer: Json = {
        "status": "ok",
        "mode": request.mode,
        "schema_version": SCHEMA_VERSION,
        "profile_dir": request.profile,
        "notes": context.notes,
        **of_spread,
        "trace_of_straggler": trace_of(slow["host"], paths[slow["host"], slow["device"]], context)
        if slow
        else None,
    }
    # Shorten texts: another program may have written long texts into a record.
    cut_texts(answer)
    return answer


def records_in(place: Place, n: int, context: Context) -> Sequence[HostRecord | NoAnswer]:
    """Read one of `n` files. If it is read again for its lines, progress counts it as the last."""
    return context.doing(READING, n - 1, n, lambda: records_of_file(place, context))


def name_in(place: Place, n_named: Counter[str]) -> str:
    """Return the file's name, or its path if several files share the name."""
    name = os.path.basename(place.path)
    return place.path if n_named[name] > 1 else name


def fields_of(found: Spread, top: int) -> Json:
    return {
        "n_hosts": found.n_hosts,
        "n_hosts_unreadable": len(found.unreadable),
        "n_devices": found.n_devices,
        "cohorts": [cohort_row(cohort, top) for cohort in found.cohorts],
    }


def cohort_row(cohort: Cohort, top: int) -> Json:
    n = len(cohort.keys)
    is_judged = n > 0 and len(cohort.members) > 1
    verdict = verdict_of(cohort) if is_judged else None
    lines = line_deltas(cohort, verdict.slow, verdict.median) if verdict else []
    omitted = cohort.ranked[top:]
    return {
        "program": cohort.program,
        "n_devices": len(cohort.members),
        "n_hosts": len(cohort.by_host),
        "n_steps": n,
        "verdict": verdict_row(verdict, lines, cohort),
        "steps": list(map(step_row, step_spreads(cohort))),
        "hosts": host_rows(cohort),
        "devices": [
            {
                **name_of(member),
                "n_slowest": cohort.n_slowest[member.name],
                **means(cohort.totals[member.name], n),
            }
            for member in cohort.ranked[:top]
        ],
        "tail": {
            "n_devices_omitted": len(omitted),
            "n_slowest": sum(cohort.n_slowest[member.name] for member in omitted),
        },
        "slowest_vs_median": lines_row(verdict, lines, cohort) if verdict else None,
    }


def name_of(member: Member) -> Json:
    return {"host": member.host, "device": member.device}


def means(total: StepSums, n: int) -> Json:
    """Return the means over `n` steps; all are None if `n` is 0."""
    parts = ("own", "comm", "host", "idle", "load")
    figures = {"step_duration": total.duration} | {part: getattr(total, part) for part in parts}
    return {f"{name}_ps": rounded_mean(sum_, n) if n else None for name, sum_ in figures.items()}


def host_rows(cohort: Cohort) -> list[Json]:
    rows: list[tuple[Fraction, str, Json]] = []
    for host, members in cohort.by_host.items():
        total = total_of(cohort.totals[member.name] for member in members)
        n = len(cohort.keys) * len(members)
        row: Json = {
            "host": host,
            "n_devices": len(members),
            "n_slowest": sum(cohort.n_slowest[member.name] for member in members),
            **means(total, n),
        }
        rows.append((-Fraction(total.load, n or 1), host, row))
    return [row for _, _, row in sorted(rows, key=lambda ranked: ranked[:2])]


def step_row(step: StepSpread) -> Json:
    loads = step.loads
    return {
        "name": step.name,
        "slowest": name_of(step.slowest),
        "max_load_ps": loads[-1],
        "mean_load_ps": mean(loads),
        "gain_ps": loads[-1] - loads[-2] if len(loads) > 1 else None,
    }


def verdict_row(verdict: SpreadVerdict | None, lines: list[LineDelta], cohort: Cohort) -> Json:
    n = len(cohort.keys)
    if verdict is None:
        return {**dict.fromkeys(OF_VERDICT), "why_not": "one_device" if n else "no_common_step"}
    gain, slow_host, uniform = rounded_mean(cohort.lead, n), verdict.slow_host, uniform_pct(lines)
    duration = total_of(cohort.totals.values()).duration
    return {
        "imbalance": verdict.imbalance,
        "gain_ps": gain,
        "gain_pct_of_step": percent(gain, rounded_mean(duration, n * len(cohort.members))),
        "host_gain_ps": rounded_mean(slow_host.gain, n) if slow_host else None,
        "straggler": name_of(verdict.slow) if verdict.is_straggler else None,
        "n_slowest": verdict.n_slowest,
        "p_value": round(float(verdict.p_value), 6),
        "cause": verdict.cause,
        "uniform_pct": None if uniform is None else round(float(uniform), 3),
        "slow_host": slow_host_row(slow_host) if slow_host else None,
        "why_not": None,
    }


def slow_host_row(slow: SlowHost) -> Json:
    return {
        "host": slow.host,
        "n_slowest": slow.n_slowest,
        "p_value": round(float(slow.p_value), 6),
    }


def lines_row(verdict: SpreadVerdict, lines: list[LineDelta], cohort: Cohort) -> Json:
    shown = lines[:N_LINES]
    slow, median = (
        rounded_mean(cohort.load(member), len(cohort.keys))
        for member in (verdict.slow, verdict.median)
    )
    return {
        "slow": name_of(verdict.slow),
        "median": name_of(verdict.median),
        "excess_ps": slow - median,
        "rows": [
            {
                "kind": line.kind,
                "agg_key": line.agg_key,
                "source_inner": line.source,
                "source_user": line.source_user,
                "kernel": line.kernel,
                "scope": line.scope,
                "median_ps": line.median,
                "slow_ps": line.slow,
                "delta_ps": line.delta,
                "delta_pct": percent(line.delta, line.median),
            }
            for line in shown
        ],
        "rest_ps": slow - median - sum(line.delta for line in shown),
    }


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "cohorts[].devices"

HOST, DEVICE = Column("host", "host"), Column("device", "device")
LOADS = (
    Column("load", "load_ps", "time"),
    Column("own", "own_ps", "time"),
    Column("comm", "comm_ps", "time"),
    Column("on host", "host_ps", "time"),
    Column("idle", "idle_ps", "time"),
    Column("step", "step_duration_ps", "time"),
    Column("slowest in", "n_slowest", "count"),
)
STEP = "devices.0.step_duration_ps"

PARTS: tuple[Part, ...] = (
    Says(
        "{mode:word}: {profile_dir:file}; devices: {n_devices:count}, hosts: {n_hosts:count}",
        when="n_devices",
    ),
    Each(
        "cohorts",
        (
            Says(
                "\nprogram {program}; devices: {n_devices:count}, hosts: {n_hosts:count},"
                " steps in common: {n_steps:count}"
            ),
            Says("no verdict: {verdict.why_not:word}", when="verdict.why_not"),
            Says("imbalance: {verdict.imbalance:word}", when="verdict.imbalance"),
            Says(
                "a step saves {verdict.gain_ps:time} ({verdict.gain_pct_of_step:percent}) if the"
                " slowest device becomes as fast as the second slowest",
                when="verdict.gain_ps",
            ),
            Says(
                "a step saves {verdict.host_gain_ps:time} if the slow host becomes as fast as the"
                " second slowest",
                when="verdict.host_gain_ps",
            ),
            Section(
                (
                    Says(
                        "straggler: {verdict.straggler.device} of {verdict.straggler.host},"
                        " slowest in {verdict.n_slowest:count} of {n_steps:count} steps"
                        " (p = {verdict.p_value:number}); cause {verdict.cause:word}",
                        when="verdict.straggler",
                    ),
                    Says(
                        "; a slowdown common to all lines explains at most"
                        " {verdict.uniform_pct:percent} of the excess",
                        when="verdict.straggler verdict.uniform_pct",
                        continues=True,
                    ),
                )
            ),
            Says(
                "slow host: {verdict.slow_host.host}; its fastest device is slower than that of any"
                " other host in {verdict.slow_host.n_slowest:count} of {n_steps:count}"
                " steps (p = {verdict.slow_host.p_value:number})",
                when="verdict.slow_host",
            ),
            Section(
                (
                    Table(
                        "devices; load is the step without communication, own is the load without"
                        " host and idle time",
                        "devices",
                        (*LOADS, DEVICE, HOST),
                        most=10,
                        what="device",
                        omitted="tail.n_devices_omitted",
                        tail={"slowest in": "tail.n_slowest"},
                    ),
                    Table(
                        "hosts",
                        "hosts",
                        (*LOADS, Column("devices", "n_devices", "count"), HOST),
                        most=5,
                        fewest=2,
                        what="host",
                        tail={"slowest in": ""},
                    ),
                )
            ),
            Table(
                "{slowest_vs_median.slow.device} of {slowest_vs_median.slow.host} compared with"
                " {slowest_vs_median.median.device} of {slowest_vs_median.median.host}:"
                " {slowest_vs_median.excess_ps:delta}",
                "slowest_vs_median.rows",
                (
                    Column("median", "median_ps", "time"),
                    Column("slow", "slow_ps", "time"),
                    Column("change", "delta_ps", "delta"),
                    Column("%", "delta_pct", "change"),
                    Column("kind", "kind", "word"),
                    Column("kernel", "kernel", null="", least=12),
                    LINE,
                    SCOPE,
                ),
                size="delta_ps",
                whole=STEP,
                most=8,
                what="line",
                tail={"change": ""},
                ends=(
                    End(
                        "slowest_vs_median.rest_ps",
                        {"change": "slowest_vs_median.rest_ps", "line": "the rest"},
                    ),
                ),
            ),
            Table(
                "steps",
                "steps",
                (
                    Column("step", "name"),
                    Column("max load", "max_load_ps", "time"),
                    Column("mean", "mean_load_ps", "time"),
                    Column("gain", "gain_ps", "time"),
                    Column("slowest", "slowest.device"),
                    Column("host", "slowest.host"),
                ),
                only="top",
                takes_top=True,
                what="step",
            ),
        ),
    ),
)


IMBALANCES = {
    "balanced": "Balanced",
    "slight": "Slightly unbalanced",
    "large": "Unbalanced",
}


def sentences(answer: Json) -> Iterator[str]:
    if not answer["cohorts"]:
        yield "No two devices ran the same program."
        return
    cohort = answer["cohorts"][0]
    yield verdict(cohort)
    others = len(answer["cohorts"]) - 1
    if others:
        yield f"{counted(others, 'other group')} of devices ran other programs."


def verdict(cohort: Json) -> str:
    verdict = cohort["verdict"]
    if verdict["why_not"] == "one_device":
        return "Only one device ran this program, so there is nothing to compare."
    if verdict["why_not"] == "no_common_step":
        return "The devices have no step in common, so their loads cannot be compared."
    # An answer with a verdict also contains the slowest device.
    assert cohort["slowest_vs_median"] is not None
    slow = cohort["slowest_vs_median"]["slow"]
    name = " of ".join((slow["device"].removeprefix("/device:"), slow["host"]))
    step = cohort["hosts"][0]["step_duration_ps"] or 0
    if verdict["host_gain_ps"] is not None:
        cost = f"{time(verdict['host_gain_ps'])} of the {time(step)} step"
        return f"Host {verdict['slow_host']['host']} is slow: it costs {cost}."
    cost = f"{time(verdict['gain_ps'] or 0)} of the {time(step)} step"
    if verdict["straggler"]:
        return (
            f"{name} is slow, costs {cost}, and has the largest load in"
            f" {verdict['n_slowest']} of {counted(cohort['n_steps'], 'step')}."
        )
    imbalance = IMBALANCES[verdict["imbalance"] or "balanced"]
    if not verdict["gain_ps"]:
        return f"{imbalance}: {name} is the slowest device, and another one is as slow."
    return f"{imbalance}: the slowest device, {name}, costs {cost}."


def next_steps(answer: Json) -> Iterator[Next]:
    for cohort in answer["cohorts"][:1]:
        slow, trace = cohort["verdict"]["straggler"], answer["trace_of_straggler"]
        if slow and trace:
            place = ("--device", slow["device"], "--host", trace["host"])
            words = ("--mode", "bottleneck", *place)
            yield Next("what this device does", words, trace["profile"])
