"""Step-pick: from the steps to the one that is asked for."""

from __future__ import annotations

from _pipeline.device import count_starts
from _pipeline.groups import percent
from _pipeline.names import taken_for
from _pipeline.request import Absent
from _pipeline.timeline import merged
from _proto.record import record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from _pipeline.device import Device, StepEvent

ALL_STEPS = "all"


@record
class StepChoice:
    """What the command line says of the step: an index or `all`, a name, or nothing."""

    index: int | str | None = None
    name: str | None = None


def pick_step(device: Device, choice: StepChoice, notes: list[str]) -> StepEvent | None:
    """The step that the choice names, or else the busiest; None where all ops are the step."""
    count_starts(device)
    picked = pick_among(device, choice, notes)
    notes += notes_beside_steps(device.steps)
    return picked


def pick_among(device: Device, choice: StepChoice, notes: list[str]) -> StepEvent | None:
    steps = device.steps
    if choice.index == ALL_STEPS:
        return None
    if isinstance(choice.index, int):
        if not -len(steps) <= choice.index < len(steps):
            detail = f"no step {choice.index} among {len(steps)}"
            if any(step.name == str(choice.index) for step in steps):
                detail += f"; one is named so: --step-id {choice.index}"
            raise step_not_found(steps, detail)
        picked = steps[choice.index]
    elif choice.name is not None:
        names = {step.name for step in steps if step.name is not None}
        name = taken_for(choice.name, names, "--step-id", notes)
        if name is None:
            detail = f"no step is named {choice.name!r}, nor does just one name begin so"
            raise step_not_found(steps, detail)
        named = [step for step in steps if step.name == name]
        picked, n_busy = busiest(named)
        if len(named) > 1:
            busy = f"typical of {n_busy} as busy" if n_busy else "the middle one"
            notes.append(f"{len(named)} steps are named {name!r}; took idx={picked.index}, {busy}")
    elif steps:
        picked, n_busy = busiest(steps)
        if n_busy:
            typical = f"; typical of {n_busy} as busy" if n_busy > 1 else ""
            notes.append(
                f"auto-picked busiest step (idx={picked.index}, n_xla_ops_events={picked.n_events}"
                f" of {device.n_events} in {len(steps)} steps{typical})"
            )
        else:
            notes.append(f"no op starts in any step; took the middle one (idx={picked.index})")
    else:
        return None
    if not picked.n_events:
        notes.append("no op starts in this step: it shows idle time only")
    return picked


def notes_beside_steps(steps: Sequence[StepEvent]) -> list[str]:
    """What no step that one could pick shows the time of."""
    notes = []
    without_ops = [step for step in steps if not step.n_events]
    if without_ops:
        idle = sum(step.duration for step in without_ops)
        notes.append(f"{len(without_ops)} of {len(steps)} steps have no op ({idle} ps)")
    between, whole = time_between(steps)
    if 100 * between > whole:
        share = percent(between, whole)
        notes.append(f"{between} ps between steps ({share} % of the capture) are in no step")
    return notes


def time_between(steps: Sequence[StepEvent]) -> tuple[int, int]:
    """How much of the time from the first start to the last end is in no step, and that time."""
    stretches = merged((step.start, step.end) for step in steps)
    if not stretches:
        return 0, 0
    whole = stretches[-1][1] - stretches[0][0]
    return whole - sum(end - start for start, end in stretches), whole


def busiest(steps: Sequence[StepEvent]) -> tuple[StepEvent, int]:
    """The typical of the busiest steps, and how many these are; the middle one if none is busy."""
    n_events = max(step.n_events for step in steps)
    if not n_events:
        return steps[len(steps) // 2], 0
    busy = [step for step in steps if step.n_events == n_events]
    busy.sort(key=lambda step: (step.duration, step.start))
    return busy[(len(busy) - 1) // 2], len(busy)


def step_not_found(steps: Sequence[StepEvent], detail: str) -> Absent:
    return Absent("step_not_found", detail=detail, available_steps=[step.name for step in steps])
