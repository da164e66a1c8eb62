"""Write the headline and next steps for mode `idle`: how long nothing runs, and the main cause."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from _output.phrases import Next, bracketed, joined, pause_sentence
from _units import part_of, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.idle import Answer

HARDLY_PCT: Final = 1


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    pause = pause_sentence(answer)
    in_step = within_step(answer, "" if pause else "only ")
    # The larger time comes first.
    if (answer["between_steps_ps"] or 0) > answer["totals"]["idle_duration_ps"]:
        yield pause
        yield from in_step
    else:
        yield from in_step
        yield pause
    capture = answer["capture"]
    if pause:
        return
    if answer["step_id"] is not None and (capture["in_no_step_pct"] or 0) > HARDLY_PCT:
        outside = part_of(capture["in_no_step_ps"], capture["dur_ps"])
        share = bracketed(capture["in_no_step_pct"])
        yield f"In this capture, {outside}{share} pass between steps."


def within_step(answer: Answer, only: str) -> Iterator[str]:
    totals = answer["totals"]
    idle = totals["idle_duration_ps"]
    taken = part_of(idle, answer["step_duration_ps"])
    where = "In this step" if answer["step_source"] else "In this capture"
    if (totals["idle_pct_of_step"] or 0) < HARDLY_PCT:
        yield f"{where}, the device is idle for {only}{taken}."
        return
    yield f"{where}, the device is idle for {taken}{bracketed(totals['idle_pct_of_step'])}."
    by_cause = answer["idle_by_cause"]
    durations = [
        (by_cause["barrier"], "waiting at barriers"),
        (by_cause["dependency"], "waiting for inputs"),
        (by_cause["in_container"], "inside loops or branches"),
        (by_cause["between_programs"], "between programs"),
        (by_cause["in_program"], "between ops"),
    ]
    longest, cause = max(durations)
    if longest:
        yield f"Most of this time is {cause}: {time(longest)}."


def next_steps(answer: Answer) -> Iterator[Next]:
    if answer["step_source"]:
        yield Next(
            "why the device is idle in the whole capture", ("--mode", "idle", "--step", "all")
        )
