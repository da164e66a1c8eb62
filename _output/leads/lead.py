"""Add the headline and the next steps to an answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, Final

TYPE_CHECKING = False
if TYPE_CHECKING:
    Json = dict[str, Any]

MOST_STEPS: Final = 3
# Fields that are printed before the headline and the next steps.
FIRST: Final = ("status", "mode", "schema_version")
# Answers of `record` get no headline: they are read by `compare` and `spread`, not by people.
WITHOUT_LEAD: Final = ("record",)


def headline_of(answer: Mapping[str, Any]) -> str:
    """Return one or two sentences with the answer's most important figures."""
    headline: str = import_module(f"_output.leads.{answer['mode']}").headline(answer)
    return headline


def with_lead(answer: Json, command_of: Callable[[Sequence[str], str | None], str] | None) -> Json:
    """Return the answer with a headline and next steps (an empty list if `command_of` is None)."""
    if answer["mode"] in WITHOUT_LEAD:
        return answer
    commands = []
    if command_of:
        steps = import_module(f"_output.leads.{answer['mode']}").next_steps(answer)
        steps = list(steps)[:MOST_STEPS]
        commands = [
            {"why": step.why, "command": command_of(step.words, step.profile)} for step in steps
        ]
    return {
        **{name: answer[name] for name in FIRST},
        "headline": headline_of(answer),
        "next_steps": commands,
        **{name: value for name, value in answer.items() if name not in FIRST},
    }
