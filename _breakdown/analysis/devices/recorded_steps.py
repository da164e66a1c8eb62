"""Select steps of a device in a record, and the lines that ran in these steps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest

from _breakdown.light import NamedTuple, cached_property
from _breakdown.pipeline.frames import innermost_own, is_not_plumbing
from _breakdown.pipeline.groups import mean
from _breakdown.pipeline.no_answer import NoAnswer
from _breakdown.pipeline.vocabulary import LeafKind
from _breakdown.units import counted
from _proto.trace.ranks import planes_named

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _breakdown.analysis.devices.record_format import (
        HostRecord,
        RecordedDevice,
        RecordedGroup,
        RecordedStep,
    )


class RecordedLine:
    """A group, with its time in each step."""

    def __init__(self, group: RecordedGroup, durs: tuple[int, ...]) -> None:
        self.group, self.durs = group, durs

    @property
    def kind(self) -> LeafKind:
        return self.group.kind

    @cached_property
    def mean(self) -> int:
        return mean(self.durs)

    @cached_property
    def source_user(self) -> str | None:
        """Return the innermost line in the user's own code; None if it is unknown."""
        group = self.group
        frames = group.frames or ([group.source] if group.source else [])
        return innermost_own(frames, is_not_plumbing)


class RecordedRun(NamedTuple):
    """A device in a record, with the steps of this device that are compared."""

    record: HostRecord
    device: RecordedDevice
    steps: list[RecordedStep]
    # Periods, also of steps that have other ops than usual, because they delay the next step.
    periods: Sequence[int] = ()

    def lines(self) -> list[RecordedLine]:
        """Return the groups that ran in at least one step."""
        durs = zip_longest(*(step.durs for step in self.steps), fillvalue=0)
        ns = zip_longest(*(step.ns for step in self.steps), fillvalue=0)
        # Steps omit trailing zeros, so the last groups can lack figures.
        figures_of = zip_longest(durs, ns, fillvalue=(0,) * len(self.steps))
        return [
            RecordedLine(group, durs)
            for group, (durs, ns) in zip(self.record.groups, figures_of, strict=False)
            if any(ns) or any(durs)
        ]


def runs_of(record: HostRecord, asked: slice) -> list[RecordedRun]:
    """Return a run for each device of a record. A run contains the steps of the slice `asked`
    that the record marks as used."""
    return [
        RecordedRun(
            record,
            device,
            [step for step in device.steps[asked] if step.used],
            [step.period for step in device.steps[asked] if step.period is not None],
        )
        for device in record.devices
    ]


def run_of(record: HostRecord, device: str, asked: slice, **more: str) -> RecordedRun:
    """Return the run of one device; raise NoAnswer, with `more` as additional fields, if the device
    is missing or no step is left."""
    runs = {run.device.name: run for run in runs_of(record, asked)}
    found = planes_named(device, runs)
    if not found:
        raise NoAnswer("device_not_found", available_devices=list(runs), **more)
    run = runs[found[0]]
    if not run.steps:
        steps = run.device.steps
        detail = (
            f"of {counted(len(steps), 'step')}, none is both usable and selected; check --steps,"
            " and why_not in the record"
        )
        names = [step.name for step in steps]
        raise NoAnswer("step_not_found", detail=detail, available_steps=names, **more)
    return run


def source_of(lines: Iterable[RecordedLine]) -> str | None:
    """Return the source with the most time among the given lines, or None if no line has one."""
    return longest((line.group.source, line.mean) for line in lines)


def user_line_of(lines: Iterable[RecordedLine]) -> str | None:
    """Return the user's line with the most time, or None if none is known."""
    return longest((line.source_user, line.mean) for line in lines)


def longest(times: Iterable[tuple[str | None, int]]) -> str | None:
    known = [(-time, place) for place, time in times if place]
    return min(known)[1] if known else None
