"""Describe the text output of each mode; `screen.py` explains the parts of a description.

Each mode has a file that defines `PARTS`, its sentences and tables, and `MAIN`, the path of its
main table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from _breakdown.output.fill import Block, Grid, filled
from _breakdown.output.screen import Says, Section, View

Json = dict[str, Any]

# In the note about the time between steps.
PAUSES_NOTE = "pass between steps; --step all"
# Maximum number of notes without `--all`.
MOST_NOTES = 3
# The first sentences of every single-step mode. A sentence is omitted if the answer lacks one of
# its fields.
HEAD = (
    Says("{mode:word}: {trace:file}, {device} ({device_type})"),
    Section(
        (
            Says(
                "step {step_name} (index {step_id:word}): {step_duration_ps:time} on the"
                " {clock:word}'s clock",
                when="step_source",
            ),
            Says("; program {program.name}", when="step_source other_program", continues=True),
            Says("; {program.n_programs:count} programs", when="has_cycles", continues=True),
            Says(
                "; {unequal_steps.n:count} steps take {unequal_steps.min_ps:time} to"
                " {unequal_steps.max_ps:time} (median {unequal_steps.median_ps:time})",
                when="step_source unequal_steps",
                continues=True,
            ),
        )
    ),
    Says(
        "all ops of the device: {step_duration_ps:time} on the {clock:word}'s clock;"
        " program {program.name}",
        when="!step_source",
    ),
    Section(
        (
            Says(
                "a step starts every {period_ps:time} (median {period_median_ps:time}), with a"
                " pause of {between_steps_ps:time} (median {between_steps_median_ps:time})",
                when="has_pause",
            ),
        )
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


def blocks_of(fields: Json, view: View, module: Any) -> Iterator[Block]:
    """Yield the sentences and tables of an answer."""
    fields = ready(fields, module)
    head = NO_ANSWER if fields["status"] == "absent" else getattr(module, "HEAD", HEAD)
    told: set[tuple[str, ...]] = set()
    for part in (*head, *getattr(module, "PARTS", ())):
        for block in filled(part, fields, view):
            yield without_code_above(block, told)


def without_code_above(block: Block, told: set[tuple[str, ...]]) -> Block:
    """Return the block without source code that stands above it."""
    if not isinstance(block.part, Grid) or not block.part.code:
        return block
    code = {}
    for i, lines in block.part.code.items():
        if tuple(lines) not in told:
            told.add(tuple(lines))
            code[i] = lines
    return block._replace(part=block.part._replace(code=code))


def ready(fields: Json, module: Any) -> Json:
    """Return an answer with the fields that only its sentences and tables use."""
    name, file = fields["profile_dir"], fields.get("xplane_file")
    if file:
        fields = {**fields, "trace": name if name.endswith(file) else f"{name}, {file}"}
    program = fields.get("program") or {}
    is_other = program.get("name") not in (None, fields.get("step_name"))
    has_cycles = fields.get("step_source") == "cycles"
    more = {
        "unequal_steps": unequal_steps(fields),
        "other_program": is_other,
        "has_cycles": has_cycles,
        "has_pause": is_pause_worth(fields),
    }
    fields = {**fields, **more}
    prepare = getattr(module, "prepared", None)
    return prepare(fields) if prepare else fields


def is_pause_worth(fields: Json) -> bool:
    """Return whether the pauses between steps are longer than 1 % of the period."""
    return 100 * (fields.get("between_steps_ps") or 0) > (fields.get("period_ps") or 0)


def unequal_steps(fields: Json) -> Json | None:
    """Return the durations of the steps that are named like the picked step, if the longest takes
    at least 5 % longer than the shortest."""
    steps = fields.get("steps")
    if not isinstance(steps, dict) or 20 * (steps["max_ps"] - steps["min_ps"]) <= steps["min_ps"]:
        return None
    return steps


def shown_notes(fields: Json, view: View) -> tuple[list[str], int]:
    """Return the notes to show, and the number of hidden notes."""
    notes = list(dict.fromkeys(fields["notes"]))
    if is_pause_worth(fields) or fields["mode"] == "idle":
        # The screen already says how long the pauses are.
        notes = [note for note in notes if PAUSES_NOTE not in note]
    n_shown = len(notes) if view.shows_all else MOST_NOTES
    return notes[:n_shown], len(notes[n_shown:])
