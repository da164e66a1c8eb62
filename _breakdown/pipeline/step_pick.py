"""Choose the requested step, or a typical step (the stage step-pick)."""

from __future__ import annotations

from collections.abc import Sequence

from _breakdown.light import NamedTuple
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.device import CYCLES, Device, count_starts
from _breakdown.pipeline.intervals import length_of, union
from _breakdown.pipeline.names import resolve_name
from _breakdown.pipeline.no_answer import NoAnswer
from _breakdown.pipeline.step_event import StepEvent, main_kind
from _breakdown.units import counted, percentage, time

ALL_STEPS = "all"


class StepChoice(NamedTuple):
    """The requested step: an index or `all` in `position`, or a `name`. Both are None if no step is
    requested."""

    position: int | str | None = None
    name: str | None = None


def pick_step(device: Device, choice: StepChoice, context: Context) -> StepEvent | None:
    """Return the requested step or, by default, a typical step among the busiest. Return None if
    the whole capture is the step."""
    count_starts(device.steps, device.lines, device.base)
    picked = pick_among(device, choice, context)
    context.warn(*notes_without_ops(device.steps))
    if choice.position != ALL_STEPS:
        context.warn(*notes_on_time_outside(device.steps))
    return picked


def pick_among(device: Device, choice: StepChoice, context: Context) -> StepEvent | None:
    steps = device.steps
    if choice.position == ALL_STEPS:
        return None
    if isinstance(choice.position, int):
        if not -len(steps) <= choice.position < len(steps):
            n_steps = counted(len(steps), "step")
            detail = f"no step {choice.position}; the trace has {n_steps}, counted from 0"
            if any(step.name == str(choice.position) for step in steps):
                detail += (
                    f"; for the step named {choice.position}, pass --step-id {choice.position}"
                )
            raise step_not_found(steps, detail)
        picked = steps[choice.position]
    elif choice.name is not None:
        names = {step.name for step in steps if step.name is not None}
        name = resolve_name(choice.name, names, "--step-id", context)
        if name is None:
            detail = f"no step named {choice.name!r}, and {choice.name!r} is not a unique prefix"
            raise step_not_found(steps, detail)
        named = [step for step in steps if step.name == name]
        picked, n_busy = busiest(named)
        if len(named) > 1:
            which = "the typical busy step" if n_busy else "the middle step"
            context.note(
                f"{len(named)} steps are named {name!r}; using {which} (index {picked.index})"
            )
    elif device.step_source == CYCLES:
        kind = main_kind(steps)
        alike = sorted((step for step in steps if step.kind == kind), key=duration_and_start)
        picked = alike[(len(alike) - 1) // 2]
        context.note(
            f"auto-picked the cycle of median duration (index {picked.index}) among the"
            f" {len(alike)} of the kind with the most time"
        )
    elif steps:
        picked, n_busy = busiest(steps)
        if n_busy:
            typical = f"; median of {n_busy} equally busy" if n_busy > 1 else ""
            context.note(
                f"auto-picked the busiest step (index {picked.index}, {picked.n_events} of"
                f" {device.n_events} ops in {counted(len(steps), 'step')}{typical})"
            )
        else:
            context.warn(f"no op starts in any step; using the middle step (index {picked.index})")
    else:
        return None
    if not picked.n_events:
        context.warn("no op starts in this step, so the answer has only idle time")
    return picked


def notes_without_ops(steps: Sequence[StepEvent]) -> list[str]:
    """Return a note if any step contains no op."""
    without_ops = [step for step in steps if not step.n_events]
    if not without_ops:
        return []
    idle = sum(step.duration for step in without_ops)
    n_steps = counted(len(steps), "step")
    return [f"no op starts in {len(without_ops)} of {n_steps} ({time(idle)} in total)"]


def notes_on_time_outside(steps: Sequence[StepEvent]) -> list[str]:
    """Return a note if more than 1 % of the capture passes between steps."""
    between, whole = time_between(steps)
    if 100 * between <= whole:
        return []
    return [
        f"{time(between)} ({percentage(100 * between / whole)} of the capture) pass between steps;"
        " --step all includes this time"
    ]


def time_between(steps: Sequence[StepEvent]) -> tuple[int, int]:
    """Return the total time between steps, and the time from the first start to the last end."""
    stretches = union((step.start, step.end) for step in steps)
    if not stretches:
        return 0, 0
    whole = stretches[-1][1] - stretches[0][0]
    return whole - length_of(stretches), whole


def busiest(steps: Sequence[StepEvent]) -> tuple[StepEvent, int]:
    """Return the step of median duration among the steps with the most ops, and the number of these
    steps. If no step has ops, return the middle step and 0."""
    n_events = max(step.n_events for step in steps)
    if not n_events:
        return steps[len(steps) // 2], 0
    busy = [step for step in steps if step.n_events == n_events]
    busy.sort(key=duration_and_start)
    return busy[(len(busy) - 1) // 2], len(busy)


def duration_and_start(step: StepEvent) -> tuple[int, int]:
    return step.duration, step.start


def step_not_found(steps: Sequence[StepEvent], detail: str) -> NoAnswer:
    return NoAnswer("step_not_found", detail=detail, available_steps=[step.name for step in steps])
