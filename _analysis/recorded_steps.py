"""What is used of a record: steps of one device, and the lines that ran in them."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import zip_longest

from _pipeline.no_answer import NoAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    Json = dict[str, Any]
    # As RECORD says.
    Record = dict[str, Any]

ALPHA = Fraction(1, 20)


@dataclass(slots=True)
class Line:
    """A group, and what it took in each step."""

    group: Json
    frames: list[str]
    durs: tuple[int, ...]
    ns: tuple[int, ...]

    @property
    def kind(self) -> str:
        kind: str = self.group["kind"]
        return kind

    @property
    def mean(self) -> int:
        return mean(self.durs)


@dataclass(slots=True)
class Run:
    """The used steps of one device, and all its steps."""

    record: Record
    device: Json
    all_steps: list[Json]
    steps: list[Json]

    def lines(self) -> list[Line]:
        """The groups of which anything ran."""
        groups, frames = self.record["groups"], self.record["frames"]
        durs, ns = (
            zip_longest(*(step[name] for step in self.steps), fillvalue=0)
            for name in ("durs_ps", "ns")
        )
        # Groups that no step has figures of are last.
        figures_of = zip_longest(durs, ns, fillvalue=(0,) * len(self.steps))
        return [
            Line(group, [frames[index] for index in group["frames"]], *figures)
            for group, figures in zip(groups, figures_of, strict=False)
            if any(map(any, figures))
        ]


def runs_of(record: Record, asked: slice) -> list[Run]:
    """Of each device the steps that are used and asked for."""
    of_devices: list[list[Json]] = [[] for _ in record["devices"]]
    for step in record["steps"]:
        of_devices[step["device"]].append(step)
    return [
        Run(record, device, steps, [step for step in steps[asked] if step["used"]])
        for device, steps in zip(record["devices"], of_devices, strict=True)
    ]


def run_of(record: Record, device: str, asked: slice, **said: str) -> Run:
    """The used steps of a device; `said` is part of the reason if there are none."""
    runs = {run.device["device"]: run for run in runs_of(record, asked)}
    if device not in runs:
        raise NoAnswer("device_not_found", available_devices=list(runs), **said)
    run = runs[device]
    if not run.steps:
        detail = f"of {len(run.all_steps)} steps none is used and asked for"
        names = [step["name"] for step in run.all_steps]
        raise NoAnswer("step_not_found", detail=detail, available_steps=names, **said)
    return run


def mean(figures: Sequence[int]) -> int:
    return rounded_mean(sum(figures), len(figures))


def rounded_mean(total: int, n: int) -> int:
    """Half up."""
    return (2 * total + n) // (2 * n)


def percent(part: int, whole: int) -> float | None:
    return ratio(100 * part, whole, 3)


def ratio(part: int, whole: int, digits: int) -> float | None:
    # Adding 0.0 makes a zero of -0.0.
    return round(part / whole, digits) + 0.0 if whole else None


def rounded(number: Fraction | None, digits: int) -> float | None:
    return None if number is None else ratio(number.numerator, number.denominator, digits)


def source_of(lines: Sequence[Line]) -> str | None:
    sources = [line.group["source"] for line in lines]
    return min((source for source in sources if source), default=None)
