"""Describe the text output of each mode; `_output/screen.py` explains the parts of a description.

Each mode has a file that defines `PARTS`, its sentences and tables, and `MAIN`, the path of its
main table.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from _output.fill import filled
from _output.screen import Says, Section

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from _output.fill import Block
    from _output.screen import Part, View

    Json = dict[str, Any]

# The first sentences of every single-step mode. A sentence is omitted if the answer lacks one of
# its fields.
HEAD = (
    Section(
        (
            Says("{mode:word}: {trace:file}, {device} ({device_type})"),
            Says(
                "; chip unknown, {chip:word} assumed (--chip)",
                when="chip_is_assumed",
                continues=True,
            ),
        )
    ),
    Says(
        "step {step_name} (index {step_id:word}): {step_duration_ps:time} on the {clock:word}'s"
        " clock; program {program.name}",
        when="step_source",
    ),
    Says(
        "all ops of the device: {step_duration_ps:time} on the {clock:word}'s clock;"
        " program {program.name}",
        when="!step_source",
    ),
    Says(
        "a step starts every {period_ps:time}, with a pause of {between_steps_ps:time}",
        when="has_pause",
    ),
)
NO_ANSWER = (
    Says("{mode:word}: no answer for {profile_dir:file}: {reason:word}", when="mode"),
    Says("no answer: {reason:word}", when="!mode"),
    Says("{detail:whole}"),
    *(
        Says(f"available {what}: {{available_{what}:whole}}", when=f"available_{what}")
        for what in ("devices", "hosts", "lines", "planes", "steps", "kernels", "ops", "scopes")
    ),
)


def blocks_of(fields: Json, view: View) -> Iterator[Block]:
    """Yield the sentences and tables of an answer."""
    is_absent = fields["status"] == "absent"
    name, file = fields["profile_dir"], fields.get("xplane_file")
    if file:
        fields = {**fields, "trace": name if name.endswith(file) else f"{name}, {file}"}
    # Hide pauses of up to 1 % of the period.
    pause = fields.get("between_steps_ps") or 0
    fields = {**fields, "has_pause": 100 * pause > (fields.get("period_ps") or 0)}
    prepare = getattr(screen_of(fields["mode"]), "prepared", None)
    if prepare:
        fields = prepare(fields)
    for part in (*(NO_ANSWER if is_absent else HEAD), *parts_of(fields["mode"])):
        yield from filled(part, fields, view)
    if is_absent:
        advice = getattr(screen_of(fields["mode"]), "WITHOUT_ANSWER", {}).get(fields["reason"])
        if advice:
            yield from filled(Says(advice), fields, view)


def screen_of(mode: str | None) -> Any:
    return import_module(f"_output.screens.{mode}") if mode else None


def has_screen(mode: str | None) -> bool:
    """Return True if the mode's answers can be shown as text."""
    return mode is None or find_spec(f"_output.screens.{mode}") is not None


def parts_of(mode: str | None) -> tuple[Part, ...]:
    """Return the sentences and tables of a mode."""
    parts: tuple[Part, ...] = screen_of(mode).PARTS if mode else ()
    return parts
