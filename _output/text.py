"""Show an answer as text: a head, the sentences and tables of the mode, the notes.

All text comes from the object that is printed as JSON.
"""

from __future__ import annotations

from _output.characters import Characters
from _output.layout import INDENT, Says, lines_of, wrapped

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from _output.layout import Part

    Json = dict[str, Any]

# The head of modes of one step. A sentence with a field that the object lacks is left out.
HEAD = (
    Says("{mode}: {trace:file}, {device} ({device_type})"),
    Says(
        "step {step_name} (index {step_id}): {step_duration_ps:time} on the {clock}'s clock;"
        " program {program.name}",
        when="step_source",
    ),
    Says(
        "all ops of the device: {step_duration_ps:time} on the {clock}'s clock;"
        " program {program.name}",
        when="!step_source",
    ),
)
NO_ANSWER = (
    Says("{mode}: no answer for {profile_dir:file}: {reason}"),
    Says("{detail:whole}"),
    *(
        Says(f"available {what}: {{available_{what}:whole}}", when=f"available_{what}")
        for what in ("devices", "hosts", "lines", "planes", "steps", "kernels", "ops", "scopes")
    ),
)


def parts_of(mode: str) -> tuple[Part, ...]:
    """Return the sentences and tables of a mode."""
    if mode in ("compare", "spread", "anatomy"):
        from _output.text_of_captures import PARTS
    elif mode in ("comm", "memory", "idle", "program", "kernel"):
        from _output.text_of_steps import PARTS
    else:
        from _output.text_of_time import PARTS
    return PARTS[mode]


def text_of(fields: Json, encoding: str) -> str:
    """Return an answer as text for a stream with this encoding."""
    return "\n".join(paragraphs(fields, Characters(encoding))) + "\n"


def paragraphs(fields: Json, characters: Characters) -> Iterator[str]:
    parts = parts_of(fields["mode"])
    head = NO_ANSWER if fields["status"] == "absent" else HEAD
    name, file = fields["profile_dir"], fields.get("xplane_file")
    if file:
        fields = {**fields, "trace": name if name.endswith(file) else f"{name}, {file}"}
    for part in (*head, *parts):
        yield from lines_of(part, fields, characters)
    if fields["notes"]:
        yield from ("", "notes")
    for note in fields["notes"]:
        yield from wrapped(characters.seen(note), characters, f"{INDENT}- ", INDENT * 2)
