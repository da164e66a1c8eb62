"""Write the headline and next steps for mode `summary`: the step by kind of work, and the costliest
line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from _output.phrases import Next, at_line_of, bracketed, joined, pause_sentence
from _units import part_of, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.summary import Answer

KINDS: Final = {"compute": "math", "data_move": "data movement", "comm": "communication"}


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    step = answer["step_duration_ps"]
    rollup = answer["by_kind_rollup"]
    shares = [
        " of ".join((time(rollup[kind]["dur_ps"]), name))
        for kind, name in KINDS.items()
        if rollup[kind]["dur_ps"]
    ]
    idle = answer["totals"]["idle_duration_ps"]
    pause = pause_sentence(answer)
    pause_first = (answer["between_steps_ps"] or 0) > idle
    if pause_first:
        yield pause
    if idle:
        shares.append(f"{time(idle)} idle")
    yield f"The step takes {time(step)}: {', '.join(shares) or 'nothing ran in it'}."
    groups = answer["top_compute_groups"]
    if groups:
        top = groups[0]
        line = at_line_of(top, answer) or " unknown"
        taken = part_of(top["total_dur_ps"], step) + bracketed(top["pct_of_step"])
        yield f"The costliest listed line is{line}: {taken}."
    if not pause_first:
        yield pause


def next_steps(answer: Answer) -> Iterator[Next]:
    yield Next("where the step loses time, and why", ("--mode", "bottleneck"))
