"""Collect the devices of a run from records, and compare a slow device with the median by line.

Step times of all devices are kept in memory. Source lines are read again, but only for the few
devices that are compared by line.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

from _breakdown.analysis.devices.cohort import Cohort, Member, uniform_part
from _breakdown.analysis.devices.peer_devices import keys_of
from _breakdown.analysis.devices.record_format import HostRecord, RecordedStep
from _breakdown.analysis.devices.recorded_steps import RecordedLine, RecordedRun, runs_of, source_of
from _breakdown.analysis.processes import in_turn
from _breakdown.light import NamedTuple
from _breakdown.pipeline.device import MODULES, STEPS
from _breakdown.pipeline.groups import grouped
from _breakdown.pipeline.no_answer import NoAnswer
from _breakdown.pipeline.scopes import scope_of
from _breakdown.pipeline.vocabulary import LeafKind
from _breakdown.units import counted
from _proto.trace.ranks import planes_named

# Reads a file and returns a record or a NoAnswer for each host in it.
LoadRecords = Callable[[], Sequence[HostRecord | NoAnswer]]
# Applies a function to each item, in the current process or in others.
OnEach = Callable[[Callable[[Any], Any], Sequence[Any]], list[Any]]

LINE_KINDS = ("compute", "data_move", "other")


class Spread(NamedTuple):
    """The devices of a run, grouped by program; the program with the most devices comes first."""

    cohorts: list[Cohort]
    n_hosts: int
    n_devices: int
    # For each host that cannot be read, the reason.
    unreadable: list[str]
    notes: list[str]


class HostDevices(NamedTuple):
    """The host name and device names of a record, and the requested devices."""

    host: str
    devices: list[str]
    requested: list[Member]


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
    found = on_each(lambda load_records: devices_in(load_records, device, steps), readers)
    failures: list[NoAnswer] = []
    hosts: list[HostDevices] = []
    members: dict[tuple[str, str], Member] = {}
    file_of: dict[tuple[str, str], str] = {}
    for (file, load_records), of_file in zip(loaders.items(), found, strict=True):
        for place, of_host in enumerate(of_file):
            if isinstance(of_host, NoAnswer):
                failures.append(of_host)
                continue
            hosts.append(of_host)
            for member in of_host.requested:
                if member.name in members:
                    raise twice(member, file, file_of[member.name])
                members[member.name] = member._replace(load_records=load_records, place=place)
                file_of[member.name] = file
    failures.sort(key=lambda failure: failure.why)
    if failures and not hosts:
        if all(failure.reason == failures[0].reason for failure in failures):
            raise failures[0]
        raise NoAnswer("unreadable_xplane_pb", detail=failures[0].why)
    if not members:
        available = {name for of_host in hosts for name in of_host.devices}
        raise NoAnswer("device_not_found", available_devices=sorted(available))
    if steps != slice(None) and not any(member.steps for member in members.values()):
        raise NoAnswer("step_not_found", detail="--steps selects no usable step of any device")
    by_program = grouped((member.program, member) for member in members.values())
    cohorts = [Cohort(of_program) for of_program in by_program.values()]
    cohorts.sort(key=lambda cohort: (-len(cohort.members), cohort.program))
    notes = sorted(note for cohort in cohorts for note in notes_of(cohort))
    n_hosts = len({of_host.host for of_host in hosts})
    return Spread(cohorts, n_hosts, len(members), [failure.why for failure in failures], notes)


def twice(member: Member, *files: str) -> NoAnswer:
    # Sort the files, so that the message does not depend on the order of the arguments.
    detail = (
        f"{' and '.join(sorted(files))} both have {member.device} of host {member.host}; remove one"
        " of the files"
    )
    return NoAnswer("duplicate_host", detail=detail)


def notes_of(cohort: Cohort) -> Iterator[str]:
    members = cohort.members
    n_left_out = max(len(member.steps) for member in members) - len(cohort.keys)
    if n_left_out:
        yield (
            f"program {cohort.program}: left out {counted(n_left_out, 'step')}, because some"
            " devices lack figures"
        )
    if len(members) > 1 and any(member.step_source != STEPS for member in members):
        yield (
            f"program {cohort.program}: executions are aligned by index, so the comparison"
            " is wrong if captures begin at different executions"
        )


def devices_in(
    load_records: LoadRecords, device: str | None, steps: slice
) -> list[HostDevices | NoAnswer]:
    """Read a file, and return the devices of each host in it, or why they could not be read."""
    try:
        records = load_records()
    except NoAnswer as failure:
        return [failure]
    return [
        record if isinstance(record, NoAnswer) else devices_of_host(record, device, steps)
        for record in records
    ]


def devices_of_host(record: HostRecord, device: str | None, steps: slice) -> HostDevices:
    runs = runs_of(record, steps)
    devices = [run.device.name for run in runs]
    asked = devices if device is None else planes_named(device, devices)[:1]
    requested = [member_of(run) for run in runs if run.device.name in asked]
    return HostDevices(record.host, devices, requested)


def member_of(run: RecordedRun) -> Member:
    used = {step.number for step in run.steps}
    steps = {key: step for key, step in keyed_steps(run) if step.number in used}
    return Member(
        run.record.host,
        run.device.name,
        {key: step.sums for key, step in steps.items()},
        {key: step.name for key, step in steps.items()},
        run.device.program,
        run.device.step_source,
    )


def keyed_steps(run: RecordedRun) -> Iterable[tuple[Hashable, RecordedStep]]:
    """Return each step with the key that aligns it with the same step on other devices. Program
    executions are aligned by step number."""
    steps = run.device.steps
    is_module = run.device.step_source == MODULES
    keys = [step.number for step in steps] if is_module else keys_of(steps)
    return zip(keys, steps, strict=True)


def lines_of(member: Member, keys: Sequence[Hashable]) -> dict[tuple[str, str], RecordedLine]:
    """Read the source lines that ran in the given steps again, by kind and group key, excluding
    communication."""
    record = member.load_records()[member.place]
    if isinstance(record, NoAnswer):
        raise record
    wanted = set(keys)
    for run in runs_of(record, slice(None)):
        if run.device.name == member.device:
            steps = [step for key, step in keyed_steps(run) if key in wanted and step.used]
            if len(steps) == len(wanted):
                lines = RecordedRun(record, run.device, steps).lines()
                return {
                    (line.kind, line.group.agg_key): line
                    for line in lines
                    if line.kind in LINE_KINDS
                }
    detail = f"the record of host {member.host} changed while it was read; run the command again"
    raise NoAnswer("unreadable_record", detail=detail)


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


def line_deltas(cohort: Cohort, slow: Member, median: Member) -> list[LineDelta]:
    """Return the lines of two devices, sorted by absolute difference, largest first."""
    of_slow, of_median = lines_of(slow, cohort.keys), lines_of(median, cohort.keys)
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
    return sorted(lines, key=lambda line: (-abs(line.delta), line.kind, line.agg_key))


def uniform_pct(lines: Iterable[LineDelta]) -> Fraction | None:
    """Return the percentage of the excess that a uniform slowdown of all lines explains."""
    part = uniform_part((line.median, line.slow) for line in lines)
    return None if part is None else 100 * part
