"""Lead of comm: the time for which communication stops the step, and where."""

from __future__ import annotations

from _output.leads.phrases import Next, at, joined, part_of, percent, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final

    from _output.fields.comm import Answer

WORTH_A_LOOK_PCT: Final = 3


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    step, totals, rows = answer["step_duration_ps"], answer["totals"], answer["rows"]
    exposed, host = totals["exposed_ps"], totals["host_ps"]
    if not exposed and not host:
        yield "Nothing in this step waits for communication."
    if exposed:
        share = percent(totals["exposed_pct_of_step"])
        yield f"Communication stops the step for {part_of(exposed, step)}{share}."
    if host:
        yield f"Transfers between host and device stop it for {part_of(host, step)}."
    if rows and (exposed or host):
        top = max(rows, key=lambda row: row["sync_dur_ps"] + row["wait_dur_ps"])
        line = at(top["source_user"] or top["source_inner"])
        took = time(top["sync_dur_ps"] + top["wait_dur_ps"])
        yield f"The largest part is {top['collective']}{line}: {took}."


def next_steps(answer: Answer) -> Iterator[Next]:
    if (answer["totals"]["exposed_pct_of_step"] or 0) >= WORTH_A_LOOK_PCT:
        yield Next("which device the others wait for", ("--mode", "spread"))
        yield Next("how the compiler moves each collective", ("--mode", "program"))
