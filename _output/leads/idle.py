"""Write the headline and next steps for mode `idle`: how long nothing runs, and the main cause."""

from __future__ import annotations

from _output.leads.phrases import Next, joined, part_of, pause_sentence, percent, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from _output.fields.idle import Answer

HARDLY_PCT: Final = 1


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    yield from within_step(answer)
    yield pause_sentence(answer["period_ps"], answer["between_steps_ps"])
    capture = answer["capture"]
    if answer["step_id"] is not None and (capture["in_no_step_pct"] or 0) > HARDLY_PCT:
        outside = part_of(capture["in_no_step_ps"], capture["dur_ps"])
        share = percent(capture["in_no_step_pct"])
        yield f"In this capture, {outside}{share} pass between steps."


def within_step(answer: Answer) -> Iterator[str]:
    totals = answer["totals"]
    idle = totals["idle_duration_ps"]
    taken = part_of(idle, answer["step_duration_ps"])
    where = "In this step" if answer["step_source"] else "In this capture"
    if (totals["idle_pct_of_step"] or 0) < HARDLY_PCT:
        yield f"{where}, the device is idle for only {taken}."
        return
    yield f"{where}, the device is idle for {taken}{percent(totals['idle_pct_of_step'])}."
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
