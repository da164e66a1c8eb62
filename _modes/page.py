"""One step on a page to look at: what all modes of a step say, in a file that a browser draws.

It reads the step once and asks each mode for as many rows as a page holds. What they say goes into
the file as JSON, and the scripts beside it draw that: no figure is made twice.
"""

from __future__ import annotations

from _analysis.ledger import ledger_of
from _analysis.page_file import fitted, write
from _analysis.report import head_of
from _analysis.roofs import roofs_of
from _analysis.step_bar import strip_of
from _modes.bottleneck import bottleneck
from _modes.by_op import by_op
from _modes.by_scope import by_scope
from _modes.by_source import by_source
from _modes.comm import comm
from _modes.idle import idle
from _modes.memory import memory, runtime_anyway
from _modes.non_compute import non_compute
from _modes.program import program
from _modes.roofline import roofline
from _modes.summary import summary
from _output.page import html_of
from _pipeline.no_answer import NoAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Any

    from _analysis.ledger import Entry
    from _pipeline.context import Context
    from _pipeline.normalize import Step

    Json = dict[str, Any]
    # Time by class.
    Times = dict[str, int]

OK = "ok"
# The modes that the page shows, and what each is asked for.
ASKED: dict[str, tuple[Callable[..., Any], Json]] = {
    "bottleneck": (bottleneck, {"top": 400}),
    "summary": (summary, {"top": 50}),
    "by_source": (by_source, {"include_data_move": True, "include_comm": True, "top": 600}),
    "non_compute": (non_compute, {"top": 200}),
    "roofline": (roofline, {"top": 400}),
    "comm": (comm, {"top": 200}),
    "memory": (memory, {"top": 300}),
    "idle": (idle, {"top": 50}),
    "program": (program, {"top": 100}),
    "by_scope": (by_scope, {"depth": 12}),
    "by_op": (by_op, {"top": 400}),
}


def page(step: Step, context: Context, *, out: str) -> Json:
    parts: dict[str, str] = {}
    answers: Json = {}
    notes_of: dict[str, list[str]] = {}
    for name, (mode, options) in ASKED.items():
        of_mode = context.with_own_notes()
        try:
            fields: Json = mode(step, of_mode, **options)
        except NoAnswer as failure:
            parts[name] = failure.reason
            continue
        parts[name] = OK
        totals = fields.get("totals", {})
        answers[name] = {**fields, "totals": totals, "notes": of_mode.notes}
        for note in of_mode.notes:
            notes_of.setdefault(note, []).append(name)
    if "memory" not in answers:
        # The allocator's events need no program.
        of_memory = context.with_own_notes()
        runtime = runtime_anyway(step.device.trace, step.device.plane.name, of_memory)
        answers["memory"] = {**runtime, "notes": of_memory.notes}
    ledger = ledger_of(step, roofs_of(step.device, None, {}), {})
    data = {
        "parts": parts,
        "answers": answers,
        "classes": {
            "by_source": classes_of_groups(ledger, answers["by_source"]["groups"]),
            "by_scope": classes_of_scopes(ledger, answers["by_scope"]["scopes"]),
            "no_scope": classes_without_scope(ledger),
        },
        "strip": strip_of(step, {entry.executions.metadata_id: entry.name for entry in ledger}),
    }
    context.notes += [f"{', '.join(modes)}: {note}" for note, modes in notes_of.items()]
    head = {name: value for name, value in head_of(step, context).items() if name != "notes"}
    encoded, notes = fitted({"page": head, **data, "notes": context.notes})
    context.notes += notes
    html = html_of(encoded)
    write(out, html)
    return {"out": out, "bytes": len(html), "parts": parts}


def summed(entries: Iterable[Entry], key: Callable[[Entry], Any]) -> dict[Any, Times]:
    """Time by class of what has one key."""
    found: dict[Any, Times] = {}
    for entry in entries:
        times = found.setdefault(key(entry), {})
        times[entry.name] = times.get(entry.name, 0) + entry.total
    return found


def classes_of_groups(ledger: Sequence[Entry], groups: Iterable[Mapping[str, Any]]) -> list[Times]:
    """Of each group of source lines, for its colour."""
    times = summed(ledger, lambda entry: (entry.executions.op.agg_key, entry.executions.op.kind))
    return [times[group["agg_key"], group["kind"]] for group in groups]


def classes_without_scope(ledger: Sequence[Entry]) -> Times:
    return summed(ledger, lambda entry: entry.executions.op.scope is None).get(True, {})


def classes_of_scopes(ledger: Sequence[Entry], scopes: Iterable[Mapping[str, Any]]) -> list[Times]:
    """Of each scope with all below, for its colour."""
    shown: dict[str, Times] = {row["scope"]: {} for row in scopes}
    of_scope = summed(
        (entry for entry in ledger if entry.executions.op.scope),
        lambda entry: entry.executions.op.scope and entry.executions.op.scope.parts,
    )
    for parts, times in of_scope.items():
        for depth in range(len(parts) + 1):
            above = shown.get("/".join(parts[:depth]))
            # Deeper than is shown, or beyond what is.
            if above is None:
                break
            for name, duration in times.items():
                above[name] = above.get(name, 0) + duration
    return list(shown.values())
