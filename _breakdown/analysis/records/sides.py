"""Turn the captures of one side of a comparison into samples: the steps of a single capture, or the
means of several captures."""

from __future__ import annotations

from collections.abc import Sequence

from _breakdown.analysis.devices.cohort import StepSums
from _breakdown.analysis.devices.record_format import RecordedGroup, RecordedStep
from _breakdown.analysis.devices.recorded_steps import RecordedLine, RecordedRun
from _breakdown.light import NamedTuple
from _breakdown.pipeline.groups import mean
from _breakdown.pipeline.vocabulary import LeafKind

TYPE_CHECKING = False
if TYPE_CHECKING:
    Key = tuple[LeafKind, str]


class Side(NamedTuple):
    """The captures of one side, and a run whose steps are the samples."""

    runs: list[RecordedRun]
    samples: RecordedRun

    @property
    def first(self) -> RecordedRun:
        return self.runs[0]


def sides_of(*sides: list[RecordedRun]) -> list[Side]:
    """Return the sides. Samples are steps if each side has only one capture, else captures."""
    if all(len(runs) == 1 for runs in sides):
        return [Side(runs, runs[0]) for runs in sides]
    return [Side(runs, means_of(runs)) for runs in sides]


def means_of(runs: Sequence[RecordedRun]) -> RecordedRun:
    """Return a run with one step per capture, which has the means over the capture's steps. Groups
    with equal keys are merged: `tf_ops` is that of all, and all else that of the first."""
    lines = [{(line.kind, line.group.agg_key): line for line in run.lines()} for run in runs]
    groups: dict[Key, RecordedGroup] = {}
    for of_run in lines:
        for key, line in of_run.items():
            tf_ops = {*line.group.tf_ops, *(groups[key].tf_ops if key in groups else ())}
            groups[key] = groups.get(key, line.group)._replace(tf_ops=sorted(tf_ops))
    record = runs[0].record._replace(groups=list(groups.values()))
    steps = [
        mean_of_steps(i, run.steps, [of_run.get(key) for key in groups])
        for i, (run, of_run) in enumerate(zip(runs, lines, strict=True))
    ]
    periods = [mean(run.periods) for run in runs if run.periods]
    return RecordedRun(record, runs[0].device, steps, periods)


def mean_of_steps(
    number: int, steps: Sequence[RecordedStep], lines: Sequence[RecordedLine | None]
) -> RecordedStep:
    return RecordedStep(
        number=number,
        name=None,
        used=True,
        sums=StepSums(*map(mean, zip(*(step.sums for step in steps), strict=True))),
        durs=[line.mean if line else 0 for line in lines],
        ns=[int(line is not None) for line in lines],
    )
