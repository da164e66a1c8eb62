"""Find the slow device of a run, its host, and the source lines that are slow on it.

question: which device of which host is slow, and on which lines
reads: all devices
options: --steps, --top
example: --top 5
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache, partial

from _analysis.comm import cohorts, stragglers
from _analysis.comm.cohorts import LoadRecords, Member, total_of
from _analysis.comm.stragglers import spread_of_records, step_spread, verdict_of
from _analysis.processes import work_on
from _analysis.records.captures import (
    RECORD_SUFFIXES,
    find_captures,
    host_of_record,
    record_at,
    records_at,
)
from _analysis.records.record_format import Record
from _analysis.records.recorded_steps import percent, rounded
from _pipeline.context import SCHEMA_VERSION, Context
from _pipeline.groups import rounded_mean
from _pipeline.load import Place, find_files, of_host
from _pipeline.no_answer import NoAnswer
from _pipeline.texts import cut_texts
from _proto.trace import STDIN

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields import spread as fields
    from _output.fields.rows import DeviceName

# Maximum number of source lines in the table that compares two devices.
N_LINES = 20


def spread(
    context: Context,
    *,
    steps: slice = slice(None),
    top: int = 50,
) -> fields.Returned:
    request = context.request
    places = of_host(captures_of(request.profiles, context), request.host)
    n_named = Counter(os.path.basename(place.path) for place in places)
    # Cache two files: two devices of each cohort are read again for their lines, and standard input
    # can be read only once.
    load_again = lru_cache(maxsize=2)(partial(load, context))
    n_bytes = sum(size_of(place, context) for place in places)
    place_of: dict[LoadRecords, Place] = {partial(load_again, place): place for place in places}
    found = spread_of_records(
        {name_in(place, n_named): loader for loader, place in place_of.items()},
        device=request.device,
        steps=steps,
        on_each=partial(work_on, activity="reading captures", context=context, n_bytes=n_bytes),
    )
    context.warn(
        *(f"a host is omitted, because it cannot be read: {why}" for why in found.unreadable),
        *found.notes,
    )
    of_spread = fields_of(found, top)
    slow = of_spread["cohorts"][0]["verdict"]["straggler"]
    paths = {member.name: place_of[member.load_records].path for member in found.cohorts[0].members}
    answer: fields.Returned = {
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


def captures_of(profiles: Sequence[str], context: Context) -> dict[str, str]:
    """Return the captures of all profiles by host, as if they were in one folder."""
    captures: dict[str, str] = {}
    seen: set[str] = set()
    for profile in profiles:
        for host, path in find_captures(profile, context).items():
            real = os.path.realpath(path)
            if real in seen:
                context.note(f"{path} was passed twice and is used once")
                continue
            seen.add(real)
            # Files with the same name are assumed to belong to different hosts; if they do not, the
            # answer is `duplicate_host`.
            captures[path if host in captures else host] = path
    return captures


def name_in(place: Place, n_named: Counter[str]) -> str:
    """Return the file's name, or its path if several files share the name."""
    name = os.path.basename(place.path)
    return place.path if n_named[name] > 1 else name


def load(context: Context, place: Place) -> Sequence[Record | NoAnswer]:
    """Read a file, and return a record (or the reason why there is none) for each host in it."""
    try:
        if place.host is None:
            records = records_at(place.path, context.request.device, context)
        else:
            records = [record_at(place, context.request.device, context.with_own_notes())]
    except NoAnswer as failure:
        raise failure_in(place, failure) from None
    return [
        failure_in(place, record) if isinstance(record, NoAnswer) else with_host(place, record)
        for record in records
    ]


def failure_in(place: Place, failure: NoAnswer) -> NoAnswer:
    """Return the failure with the file's name added to `detail`."""
    name = os.path.basename(place.path)
    detail = failure.fields.get("detail", failure.reason)
    named = detail if detail.startswith(f"{name}: ") else f"{name}: {detail}"
    return NoAnswer(failure.reason, **{**failure.fields, "detail": named})


def with_host(place: Place, record: Record) -> Record:
    """Name the host after the record's file if the record was made from standard input."""
    if record.host == STDIN and place.path.endswith(RECORD_SUFFIXES):
        return record._replace(host=host_of_record(place.path))
    return record


def trace_of(host: str, path: str, context: Context) -> fields.TraceOfDevice | None:
    """Return the arguments with which other modes read the trace of a host; None if there is no
    trace. `path` is the file that the host was read from: a trace, or a record next to it."""
    request = context.request
    for profile in request.profiles:
        if profile == STDIN or profile in request.in_memory:
            continue
        with suppress(NoAnswer):
            for name, file in find_files(profile, context.with_own_notes()).items():
                if file == path and not path.endswith(RECORD_SUFFIXES):
                    # Only in a merged file, the names of the host and the file can differ.
                    inside = host.removeprefix(f"{name}:")
                    is_merged = inside != name
                    return {"profile": profile, "host": f"{name}:{inside}" if is_merged else name}
                is_beside = os.path.dirname(file) == os.path.dirname(path) and file != path
                if is_beside and host == name == host_of_record(path):
                    return {"profile": profile, "host": name}
    return None


def size_of(place: Place, context: Context) -> int:
    """Return the file's size in bytes; 0 if the file is missing or is standard input."""
    data = context.request.bytes_of(place.path)
    if data is not None:
        return len(data)
    try:
        return os.stat(place.path).st_size
    except OSError:
        return 0


def fields_of(found: stragglers.Spread, top: int) -> fields.Fields:
    return {
        "n_hosts": found.n_hosts,
        "n_hosts_unreadable": len(found.unreadable),
        "n_devices": found.n_devices,
        "cohorts": [cohort_row(cohort, top) for cohort in found.cohorts],
    }


def cohort_row(cohort: cohorts.Cohort, top: int) -> fields.Cohort:
    n = len(cohort.keys)
    is_judged = n > 0 and len(cohort.members) > 1
    verdict = verdict_of(cohort) if is_judged else None
    omitted = cohort.ranked[top:]
    return {
        "program": cohort.program,
        "n_devices": len(cohort.members),
        "n_hosts": len(cohort.by_host),
        "n_steps": n,
        "verdict": verdict_row(verdict, n),
        "steps": [step_row(step_spread(cohort, key)) for key in cohort.keys],
        "hosts": host_rows(cohort),
        "devices": [
            {
                **name_of(member),
                "n_steps": n,
                "n_slowest": cohort.n_slowest[member.name],
                **means(cohort.totals[member.name], n),
            }
            for member in cohort.ranked[:top]
        ],
        "tail": {
            "n_devices_omitted": len(omitted),
            "n_slowest": sum(cohort.n_slowest[member.name] for member in omitted),
        },
        "slowest_vs_median": lines_row(verdict.lines) if verdict else None,
    }


def name_of(member: Member) -> DeviceName:
    return {"host": member.host, "device": member.loads.device}


def means(total: cohorts.Load, n: int) -> fields.Means:
    """Return the means over `n` steps; all are None if `n` is 0."""

    def mean(figure: int) -> int | None:
        return rounded_mean(figure, n) if n else None

    return {
        "step_duration_ps": mean(total.step_duration),
        "own_ps": mean(total.own),
        "comm_ps": mean(total.comm),
        "host_ps": mean(total.host),
        "idle_ps": mean(total.idle),
        "load_ps": mean(total.load),
    }


def host_rows(cohort: cohorts.Cohort) -> list[fields.Host]:
    rows: list[tuple[Fraction, str, fields.Host]] = []
    for host, members in cohort.by_host.items():
        total = total_of(cohort.totals[member.name] for member in members)
        n = len(cohort.keys) * len(members)
        row: fields.Host = {
            "host": host,
            "n_devices": len(members),
            "n_steps": len(cohort.keys),
            "n_slowest": sum(cohort.n_slowest[member.name] for member in members),
            **means(total, n),
        }
        rows.append((-Fraction(total.load, n or 1), host, row))
    return [row for _, _, row in sorted(rows, key=lambda ranked: ranked[:2])]


def step_row(step: stragglers.StepSpread) -> fields.SpreadStep:
    return {
        "name": step.name,
        "slowest": name_of(step.slowest),
        "max_load_ps": step.max_load,
        "mean_load_ps": step.mean_load,
        "gain_ps": None if step.next_load is None else step.max_load - step.next_load,
        "imbalance_ps": step.max_load - step.mean_load,
        "imbalance_pct_of_step": None if step.imbalance is None else rounded(step.imbalance, 3),
        "step_spread_pct": step.duration_spread,
    }


def verdict_row(verdict: stragglers.Verdict | None, n_steps: int) -> fields.Verdict:
    if verdict is None:
        return {
            "imbalance": None,
            "gain_ps": None,
            "gain_pct_of_step": None,
            "host_gain_ps": None,
            "straggler": None,
            "n_slowest": None,
            "n_steps": n_steps,
            "p_value": None,
            "scope": None,
            "cause": None,
            "uniform_pct": None,
            "slow_host": None,
            "why_not": "one_device" if n_steps else "no_common_step",
        }
    uniform = verdict.lines.uniform
    return {
        "imbalance": verdict.imbalance,
        "gain_ps": verdict.gain,
        "gain_pct_of_step": verdict.gain_pct,
        "host_gain_ps": verdict.host_gain,
        "straggler": name_of(verdict.straggler) if verdict.straggler else None,
        "n_slowest": verdict.n_slowest,
        "n_steps": n_steps,
        "p_value": rounded(verdict.p_value, 6),
        "scope": verdict.scope,
        "cause": verdict.cause,
        "uniform_pct": None if uniform is None else rounded(uniform, 3),
        "slow_host": slow_host_row(verdict.slow_host) if verdict.slow_host else None,
        "why_not": None,
    }


def slow_host_row(slow: stragglers.SlowHost) -> fields.SlowHost:
    return {
        "host": slow.host,
        "n_slowest": slow.n_slowest,
        "p_value": rounded(slow.p_value, 6),
    }


def lines_row(compared: stragglers.SlowVsMedian) -> fields.SlowestVsMedian:
    shown = compared.lines[:N_LINES]
    return {
        "slow": name_of(compared.slow),
        "median": name_of(compared.median),
        "excess_ps": compared.excess,
        "factor": compared.factor,
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
        "rest_ps": compared.excess - sum(line.delta for line in shown),
    }
