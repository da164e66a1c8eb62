"""The devices of a run, and those of them that run one program.

Collectives make the steps of all devices equally long: who is slow shows in the load, the part
of a step that is not communication. Figures are kept of all devices, lines read only of two.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache, partial

from _analysis.recorded_steps import rounded_mean, runs_of, source_of
from _pipeline.no_answer import NoAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
    from typing import Any

    from _analysis.recorded_steps import Line, Run

    Json = dict[str, Any]
    # As RECORD says.
    Record = dict[str, Any]
    # Of a member, all but how its record is loaded: what one process can hand to another.
    Figures = tuple[str, str, str, str | None, dict[Hashable, "Load"]]

MODULES = "modules"


LINE_KINDS = ("compute", "data_move", "other")


@dataclass(slots=True)
class Load:
    """A step of a device, or what several take together."""

    step_name: str | None
    step_duration: int
    comm: int
    host: int
    idle: int

    @property
    def load(self) -> int:
        return self.step_duration - self.comm

    @property
    def own(self) -> int:
        return self.load - self.host - self.idle

    def means(self, n: int) -> Json:
        names = ("step_duration", "own", "comm", "host", "idle", "load")
        return {f"{name}_ps": rounded_mean(getattr(self, name), n) if n else None for name in names}


@dataclass(slots=True)
class Member:
    """A device of the run, and where its record is to be had again."""

    host: str
    device: str
    program: str
    step_source: str | None
    # By what makes them the same step on all devices.
    steps: dict[Hashable, Load]
    load_record: Callable[[], Record]

    @property
    def name(self) -> tuple[str, str]:
        return self.host, self.device

    @property
    def fields(self) -> Json:
        return {"host": self.host, "device": self.device}


def total_of(loads: Iterable[Load]) -> Load:
    columns = zip(
        *((each.step_duration, each.comm, each.host, each.idle) for each in loads), strict=True
    )
    return Load(None, *(list(map(sum, columns)) or [0, 0, 0, 0]))


@dataclass(slots=True)
class Cohort:
    """The devices of one program, by name, the steps that all of them have, and their totals."""

    members: list[Member]
    keys: list[Hashable]
    totals: dict[tuple[str, str], Load]
    # By load, most first; ties by name.
    ranked: list[Member]
    n_slowest: Counter[tuple[str, str]]

    @classmethod
    def of(cls, members: list[Member]) -> Cohort:
        members = sorted(members, key=lambda member: member.name)
        keys = [key for key in members[0].steps if all(key in each.steps for each in members)]
        totals = {each.name: total_of(each.steps[key] for key in keys) for each in members}
        ranked = sorted(members, key=lambda each: -totals[each.name].load)
        n_slowest = Counter(slowest(members, key).name for key in keys)
        return cls(members, keys, totals, ranked, n_slowest)

    def load(self, member: Member) -> int:
        return self.totals[member.name].load

    @property
    def by_host(self) -> dict[str, list[Member]]:
        hosts: dict[str, list[Member]] = defaultdict(list)
        for member in self.members:
            hosts[member.host].append(member)
        return hosts

    def median(self) -> Member:
        """Of an even number the one of less load."""
        ranked = sorted(self.members, key=self.load)
        return ranked[(len(ranked) - 1) // 2]

    def suspect(self) -> Member:
        """The slowest in most steps."""
        return max(self.members, key=lambda member: self.n_slowest[member.name])


def slowest(members: Sequence[Member], key: Hashable) -> Member:
    return max(members, key=lambda member: member.steps[key].load)


@dataclass(slots=True)
class Crew:
    """All devices of the run by name, all hosts, and what is wrong with the rest."""

    members: dict[tuple[str, str], Member]
    hosts: set[str]
    unreadable: list[str]
    notes: set[str]


@dataclass(slots=True)
class Found:
    """What one record holds of the run; or why there is none, and what else is said of that."""

    host: str = ""
    devices: list[str] = field(default_factory=list)
    members: list[Figures] = field(default_factory=list)
    failure: tuple[str, str, Json] | None = None


def found_in(
    load_records: Callable[[], Sequence[Record | NoAnswer]], device: str | None, steps: slice
) -> list[Found]:
    """Return what a file holds of the run, for each of its hosts."""
    try:
        records = load_records()
    except NoAnswer as failure:
        records = [failure]
    return [found_in_record(record, device, steps) for record in records]


def found_in_record(record: Record | NoAnswer, device: str | None, steps: slice) -> Found:
    if isinstance(record, NoAnswer):
        detail = str(record.fields.get("detail", record.reason))
        return Found(failure=(detail, record.reason, record.fields))
    runs = runs_of(record, steps)
    devices = [run.device["device"] for run in runs]
    wanted = [run for run in runs if device in (None, run.device["device"])]
    return Found(record["host"], devices, list(map(figures_of, wanted)))


def crew_of(
    all_found: Iterable[tuple[str, list[Found], Callable[[], Sequence[Record | NoAnswer]]]],
) -> Crew:
    """Put together what was found, each with its file and what loads its records again."""
    crew = Crew({}, set(), [], set())
    # By name, each with its file.
    alike: dict[tuple[str, str], list[tuple[str, Member]]] = defaultdict(list)
    failures: list[tuple[str, str, Json]] = []
    available: set[str] = set()
    # Cohorts may be many, of devices of the same hosts.
    load_again = lru_cache(maxsize=2)(called)
    of_hosts = (
        (file, found, partial(record_at_place, load_again, load_records, place))
        for file, of_file, load_records in all_found
        for place, found in enumerate(of_file)
    )
    for file, found, load_record in of_hosts:
        if found.failure:
            failures.append(found.failure)
            continue
        crew.hosts.add(found.host)
        available.update(found.devices)
        for figures in found.members:
            member = Member(*figures, load_record)
            alike[member.name].append((file, member))
    for name, members in sorted(alike.items()):
        crew.members[name] = the_one_of(members, crew.notes)
    failures.sort(key=lambda each: each[0])
    crew.unreadable += (detail for detail, *_ in failures)
    if failures and not crew.hosts:
        detail, reason, fields = failures[0]
        if all(each == reason for _, each, _ in failures):
            raise NoAnswer(reason, **fields)
        raise NoAnswer("unreadable_xplane_pb", detail=detail)
    if not crew.members:
        raise NoAnswer("device_not_found", available_devices=sorted(available))
    return crew


def the_one_of(members: list[tuple[str, Member]], notes: set[str]) -> Member:
    """What is there once, or several times the same."""
    # Whatever is said is the same in any order.
    (file, first), *others = sorted(members, key=lambda each: each[0])
    for other_file, other in others:
        is_same = identity(first) == identity(other)
        if not is_same or identity_of_lines(first) != identity_of_lines(other):
            raise NoAnswer(
                "duplicate_host",
                detail=f"{file} and {other_file} are both of host {first.host}, and differ in"
                f" {first.device}",
            )
        notes.add(f"{first.device} of host {first.host} is there twice: taken once")
    return first


def called(load_records: Callable[[], Sequence[Record | NoAnswer]]) -> Sequence[Record | NoAnswer]:
    return load_records()


def record_at_place(
    load: Callable[[Callable[[], Sequence[Record | NoAnswer]]], Sequence[Record | NoAnswer]],
    load_records: Callable[[], Sequence[Record | NoAnswer]],
    place: int,
) -> Record:
    record = load(load_records)[place]
    if isinstance(record, NoAnswer):
        raise record
    return record


def figures_of(run: Run) -> Figures:
    used = {step["index"] for step in run.steps}
    return (
        run.record["host"],
        run.device["device"],
        run.device["program"],
        run.device["step_source"],
        {
            key: Load(
                step["name"],
                step["duration_ps"],
                step["comm_ps"],
                step["host_ps"],
                step["duration_ps"] - step["busy_ps"],
            )
            for key, step in keyed_steps(run)
            if step["index"] in used
        },
    )


def keyed_steps(run: Run) -> Iterator[tuple[Hashable, Json]]:
    """Steps are the same by their name and its k-th time, executions of programs by their index."""
    times: Counter[str | None] = Counter()
    for step in run.all_steps:
        times[step["name"]] += 1
        is_module = run.device["step_source"] == MODULES
        yield step["index"] if is_module else (step["name"], times[step["name"]]), step


def identity(member: Member) -> tuple[Any, ...]:
    loads = [
        (each.load, each.step_duration, each.host, each.idle) for each in member.steps.values()
    ]
    names = list(map(repr, member.steps))
    return len(loads), loads, names, member.program, member.step_source or ""


def identity_of_lines(member: Member) -> tuple[Any, ...]:
    lines = lines_of(member.load_record(), member, list(member.steps)) if member.steps else {}
    return tuple(sorted((*key, line.durs, source_of([line]) or "") for key, line in lines.items()))


def lines_of(
    record: Record, member: Member, keys: Sequence[Hashable]
) -> dict[tuple[str, str], Line]:
    """What ran on a device in these steps, communication aside."""
    wanted = set(keys)
    for run in runs_of(record, slice(None)):
        if run.device["device"] == member.device:
            run.steps = [s for key, s in keyed_steps(run) if key in wanted and s["used"]]
            if len(run.steps) == len(wanted):
                lines = [line for line in run.lines() if line.kind in LINE_KINDS]
                return {(line.kind, line.group["agg_key"]): line for line in lines}
    detail = f"the record of host {member.host} changed while it was read"
    raise NoAnswer("unreadable_record", detail=detail)


def twice_median(figures: Iterable[int]) -> int:
    """The two in the middle, or the one twice."""
    ranked = sorted(figures)
    return ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]
