"""Lead of idle: how long nothing runs, and why."""

from __future__ import annotations

from _output.leads.phrases import Next, joined, part_of, percent, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from _output.fields.idle import Answer

HARDLY_PCT: Final = 1


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    totals = answer["totals"]
    idle = totals["idle_duration_ps"]
    taken = part_of(idle, answer["step_duration_ps"])
    if (totals["idle_pct_of_step"] or 0) < HARDLY_PCT:
        yield f"This step hardly idles: {taken}."
        return
    yield f"Nothing runs for {taken}{percent(totals['idle_pct_of_step'])} of this step."
    by_cause = answer["idle_by_cause"]
    durations = [
        (by_cause["barrier"], "waits for other devices at barriers"),
        (by_cause["dependency"], "waits for dependencies"),
        (by_cause["in_container"], "is between ops of a loop or branch"),
        (by_cause["between_programs"], "is between programs"),
        (by_cause["in_program"], "is between ops"),
    ]
    longest, cause = max(durations)
    if longest:
        yield f"Most of it, {time(longest)}, {cause}."


def next_steps(answer: Answer) -> Iterator[Next]:
    if answer["step_source"]:
        yield Next("why nothing runs in the whole capture", ("--mode", "idle", "--step", "all"))
