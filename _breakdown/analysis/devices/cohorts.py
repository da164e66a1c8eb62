"""Collect the devices of a run. All devices that run the same program are a cohort.

Collectives make the steps of all devices equally long, so a slow device is recognised by its load:
step duration minus communication and idle time at barriers. Step times of all devices are kept in
memory. Source lines are read again, but only for the few devices that are compared by line.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import Any

from _breakdown.analysis.devices.peer_devices import keys_of
from _breakdown.analysis.devices.record_format import Record, RecordedStep
from _breakdown.analysis.devices.recorded_steps import Line, Run, runs_of, source_of
from _breakdown.analysis.devices.step_sums import StepSums, total_of
from _breakdown.light import NamedTuple
from _breakdown.pipeline.device import MODULES
from _breakdown.pipeline.groups import grouped
from _breakdown.pipeline.no_answer import NoAnswer
from _proto.trace.ranks import planes_named

# Reads a file and returns a record or a NoAnswer for each host in it.
LoadRecords = Callable[[], Sequence[Record | NoAnswer]]
# Host and device.
Name = tuple[str, str]

LINE_KINDS = ("compute", "data_move", "other")


class DeviceSteps(NamedTuple):
    """A device and its steps, picklable so that worker processes can return them."""

    host: str
    device: str
    program: str
    step_source: str | None
    # Names and sums of the steps. The key of a step is the same on all devices.
    names: dict[Hashable, str | None]
    steps: dict[Hashable, StepSums]

    @property
    def name(self) -> Name:
        return self.host, self.device


class Member(NamedTuple):
    """A device of the run, and a function that reads its record again."""

    recorded: DeviceSteps
    load_records: LoadRecords
    # Index of the device's host among the hosts in the file.
    place: int

    @property
    def name(self) -> Name:
        return self.recorded.name

    @property
    def host(self) -> str:
        return self.recorded.host

    @property
    def steps(self) -> dict[Hashable, StepSums]:
        return self.recorded.steps

    def lines(self, keys: Sequence[Hashable]) -> dict[tuple[str, str], Line]:
        """Return the source lines that ran in the given steps, by kind and group key, excluding
        communication."""
        record = self.load_records()[self.place]
        if isinstance(record, NoAnswer):
            raise record
        wanted = set(keys)
        for run in runs_of(record, slice(None)):
            if run.device.name == self.recorded.device:
                steps = [step for key, step in keyed_steps(run) if key in wanted and step.used]
                if len(steps) == len(wanted):
                    lines = Run(record, run.device, steps).lines()
                    return {
                        (line.kind, line.group.agg_key): line
                        for line in lines
                        if line.kind in LINE_KINDS
                    }
        detail = f"the record of host {self.host} changed while it was read; run the command again"
        raise NoAnswer("unreadable_record", detail=detail)


class Cohort:
    """The devices that run one program, the steps common to all of them, and each device's totals
    over these steps."""

    def __init__(self, members: Iterable[Member]) -> None:
        self.members = sorted(members, key=lambda member: member.name)
        first = self.members[0]
        self.program = first.recorded.program
        self.keys = [
            key for key in first.steps if all(key in member.steps for member in self.members)
        ]
        self.totals = {
            member.name: total_of(member.steps[key] for key in self.keys) for member in self.members
        }
        # Members sorted by load, largest first; ties in order of name.
        self.ranked = sorted(self.members, key=lambda member: -self.load(member))
        self.n_slowest = Counter(slowest(self.members, key).name for key in self.keys)
        self.by_host = grouped((member.host, member) for member in self.members)

    def load(self, member: Member) -> int:
        return self.totals[member.name].load

    def median(self) -> Member:
        """Return the device with the median load; for an even number of devices, the lower of the
        two middle ones."""
        ranked = sorted(self.members, key=self.load)
        return ranked[(len(ranked) - 1) // 2]

    def suspect(self) -> Member:
        """Return the device that is slowest in the largest number of steps."""
        return max(self.members, key=lambda member: self.n_slowest[member.name])


def slowest(members: Sequence[Member], key: Hashable) -> Member:
    return max(members, key=lambda member: member.steps[key].load)


class Crew(NamedTuple):
    """The devices of a run by name, its hosts, the reasons why files are unreadable, and notes."""

    members: dict[Name, Member]
    hosts: set[str]
    unreadable: list[str]
    notes: list[str]


class Found(NamedTuple):
    """The host name and device names of a record, and the requested devices."""

    host: str
    devices: list[str]
    requested: list[DeviceSteps]


def found_in(load_records: LoadRecords, device: str | None, steps: slice) -> list[Found | NoAnswer]:
    """Read a file, and return the devices of each host in it, or why they could not be read."""
    try:
        records = load_records()
    except NoAnswer as failure:
        return [failure]
    return [
        record if isinstance(record, NoAnswer) else found_in_record(record, device, steps)
        for record in records
    ]


def found_in_record(record: Record, device: str | None, steps: slice) -> Found:
    runs = runs_of(record, steps)
    devices = [run.device.name for run in runs]
    asked = devices if device is None else planes_named(device, devices)[:1]
    requested = [steps_of(run) for run in runs if run.device.name in asked]
    return Found(record.host, devices, requested)


def crew_of(all_found: Iterable[tuple[str, LoadRecords, list[Found | NoAnswer]]]) -> Crew:
    """Combine the devices of all files. Each entry is a file's name, the function that reads the
    file, and what was found in it."""
    hosts: set[str] = set()
    available: set[str] = set()
    # All devices with the same host and name, each with its file's name.
    alike: dict[Name, list[tuple[str, Member]]] = defaultdict(list)
    failures: list[NoAnswer] = []
    for file, load_records, of_file in all_found:
        for place, found in enumerate(of_file):
            if isinstance(found, NoAnswer):
                failures.append(found)
                continue
            hosts.add(found.host)
            available.update(found.devices)
            for recorded in found.requested:
                alike[recorded.name].append((file, Member(recorded, load_records, place)))
    notes: set[str] = set()
    members = {name: merged_member(alike[name], notes) for name in sorted(alike)}
    failures.sort(key=lambda failure: failure.why)
    if failures and not hosts:
        if all(failure.reason == failures[0].reason for failure in failures):
            raise failures[0]
        raise NoAnswer("unreadable_xplane_pb", detail=failures[0].why)
    if not members:
        raise NoAnswer("device_not_found", available_devices=sorted(available))
    return Crew(members, hosts, [failure.why for failure in failures], sorted(notes))


def merged_member(members: list[tuple[str, Member]], notes: set[str]) -> Member:
    """Return a device that is recorded in one or more files; raise NoAnswer if the files disagree
    about it."""
    # Sort by file name, so that the message does not depend on the order of the arguments.
    (file, first), *others = sorted(members, key=lambda file_and_member: file_and_member[0])
    device = first.recorded.device
    for other_file, other in others:
        is_same = identity(first) == identity(other)
        if not is_same or identity_of_lines(first) != identity_of_lines(other):
            raise NoAnswer(
                "duplicate_host",
                detail=f"{file} and {other_file} are both of host {first.host}, but their figures"
                f" for {device} differ; remove one of the files",
            )
        notes.add(
            f"several files have equal figures for {device} of host {first.host}; this"
            " device is counted once"
        )
    return first


def steps_of(run: Run) -> DeviceSteps:
    used = {step.number for step in run.steps}
    steps = {key: step for key, step in keyed_steps(run) if step.number in used}
    return DeviceSteps(
        run.record.host,
        run.device.name,
        run.device.program,
        run.device.step_source,
        {key: step.name for key, step in steps.items()},
        {key: step.sums for key, step in steps.items()},
    )


def keyed_steps(run: Run) -> Iterator[tuple[Hashable, RecordedStep]]:
    """Return each step with the key that aligns it with the same step on other devices. Program
    executions are aligned by step number."""
    steps = run.device.steps
    is_module = run.device.step_source == MODULES
    keys = [step.number for step in steps] if is_module else keys_of(steps)
    return zip(keys, steps, strict=True)


def identity(member: Member) -> tuple[Any, ...]:
    """Return the values that must be equal if two files contain the same device."""
    sums = [(step.load, step.duration, step.host, step.idle) for step in member.steps.values()]
    names = list(map(repr, member.steps))
    return sums, names, member.recorded.program, member.recorded.step_source


def identity_of_lines(member: Member) -> tuple[Any, ...]:
    lines = member.lines(list(member.steps)) if member.steps else {}
    return tuple(sorted((*key, line.durs, source_of([line]) or "") for key, line in lines.items()))


def twice_median(figures: Iterable[int]) -> int:
    """Return twice the median, which is an integer: the sum of the two middle figures, or twice the
    middle figure."""
    ranked = sorted(figures)
    return ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]
