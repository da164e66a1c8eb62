"""Add the headline and the next steps to an answer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

Json = dict[str, Any]

MOST_STEPS: Final = 3
# Fields that are printed before the headline and the next steps.
FIRST: Final = ("status", "mode", "schema_version")


def with_lead(
    answer: Json, lead: Any, command_of: Callable[[Sequence[str], str | None], str] | None
) -> Json:
    """Return the answer with the headline and next steps from `lead`, the mode's file. The next
    steps are an empty list if `command_of` is None."""
    commands = []
    if command_of:
        steps = list(lead.next_steps(answer))[:MOST_STEPS]
        commands = [
            {"why": step.why, "command": command_of(step.words, step.profile)} for step in steps
        ]
    return {
        **{name: answer[name] for name in FIRST},
        "headline": lead.headline(answer),
        "next_steps": commands,
        **{name: value for name, value in answer.items() if name not in FIRST},
    }
