"""Write the headline and next steps for mode `by_scope`: the largest scope, and the scope with the
most time outside inner scopes."""

from __future__ import annotations

from collections.abc import Iterator

from _output.phrases import Next, bracketed, joined, short
from _units import part_of, time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.by_scope import Answer


def headline(answer: Answer) -> str:
    return joined(sentences(answer))


def sentences(answer: Answer) -> Iterator[str]:
    step = answer["step_duration_ps"]
    named = [row for row in answer["scopes"] if row["scope"]]
    if not named:
        yield f"No op in this {time(step)} step has a scope."
        return
    top = max(named, key=lambda row: row["total_dur_ps"])
    own = max(named, key=lambda row: row["self_dur_ps"])
    share = bracketed(top["pct_of_step"])
    yield f"Scope {short(top['scope'])} takes {part_of(top['total_dur_ps'], step)}{share}."
    if own is not top:
        yield (
            f"Excluding inner scopes, {short(own['scope'])} takes the most time:"
            f" {time(own['self_dur_ps'])}."
        )
    without = answer["no_scope"]["dur_ps"]
    if without:
        yield f"Ops without a scope take {time(without)}."


def next_steps(answer: Answer) -> Iterator[Next]:
    yield Next("where the step loses time, and why", ("--mode", "bottleneck"))
