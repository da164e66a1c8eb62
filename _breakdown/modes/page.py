"""Write all modes' answers for one step to an HTML file.

The step is read only once, and each mode computes as many rows as the page can show. The file
contains the answers as JSON, and the scripts that display them. With a baseline, the file also
contains the `compare` answer and one step of the baseline.

question: an HTML report with the answers of all modes above
reads: a step
options: --out, --open, --code, --baseline, --baseline-device, --baseline-host
example: --out step.html --open
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from _breakdown.analysis.idle.period_timeline import period_row
from _breakdown.analysis.kernel.kernel_details import NO_REGIONS
from _breakdown.analysis.report import head_of
from _breakdown.analysis.roof.class_times import (
    classes_of_groups,
    classes_of_scopes,
    classes_without_scope,
)
from _breakdown.analysis.roof.ledger import ledger_of
from _breakdown.analysis.roof.roofs import roofs_of
from _breakdown.analysis.roof.step_bar import Strip, strip_of
from _breakdown.analysis.source.rows import op_name
from _breakdown.modes import module_named
from _breakdown.modes.kernel import NO_KERNELS
from _breakdown.output.lead import headline_of
from _breakdown.output.page import html_of
from _breakdown.output.page_data import cut_lists
from _breakdown.output.page_sections import sections_of
from _breakdown.output.phrases import Next
from _breakdown.output.screen import Part, Says
from _breakdown.pipeline.context import DEVICE, Context
from _breakdown.pipeline.device import open_device
from _breakdown.pipeline.event_iterate import read_events
from _breakdown.pipeline.load import Candidates, opened
from _breakdown.pipeline.no_answer import BAD_ARGUMENTS, NoAnswer
from _breakdown.pipeline.normalize import Step, normalize
from _breakdown.pipeline.ops import Op
from _breakdown.pipeline.out_file import replacing
from _breakdown.pipeline.step_pick import StepChoice, pick_step
from _breakdown.pipeline.texts import cut_texts
from _breakdown.units import size
from _proto.trace import STDIN
from _proto.trace.ranks import ENVIRONMENT

Json = dict[str, Any]
Modes = dict[str, dict[str, object]]

OK = "ok"
# The modes shown on the page, with their options. Few people read more rows than these, and each
# row takes time to compute and to write.
PAGE_MODES: Modes = {
    "bottleneck": {"top": 100},
    "summary": {"top": 0},
    "by_source": {"include_data_move": True, "include_comm": True, "top": 300},
    "non_compute": {"top": 100},
    "roofline": {"top": 200},
    "comm": {"top": 100},
    "memory": {"top": 100},
    "idle": {"top": 20},
    "program": {"top": 100},
    "kernel": {"top": 50},
    "by_scope": {"depth": 12},
    "by_op": {"top": 100, "no_merge": True},
    "by_array": {"top": 50},
}
# The modes needed for the baseline's charts.
BASELINE_MODES: Modes = {
    "bottleneck": {"top": 0},
    **{mode: PAGE_MODES[mode] for mode in ("by_source", "roofline", "idle", "by_scope")},
}
TOP_OF_COMPARE = 400

# Limits: JSON size in bytes, rows per list, and length of a text. ROWS and LONGEST_TEXT are halved
# until the JSON fits.
LARGEST, ROWS, LONGEST_TEXT = 9 << 20, 1000, 4096
# Escapes for characters that could end the script element containing the JSON, or start another.
ESCAPES = {"<": r"\u003c", ">": r"\u003e", "&": r"\u0026"}


def page(
    step: Step,
    context: Context,
    *,
    out: str,
    open: bool = False,
    code: str | None = None,
    baseline: Sequence[str] = (),
    baseline_device: str = DEVICE,
    baseline_host: str | None = None,
) -> Json:
    comparison = before = None
    if baseline:
        comparison, before = read_baseline(step, baseline, baseline_device, baseline_host, context)
    modes = {**PAGE_MODES, "bottleneck": {**PAGE_MODES["bottleneck"], "code": code}}
    parts, answers = compute_answers(step, context, modes)
    if parts["memory"] != OK:
        # Allocator events are available even without a program.
        of_memory = context.with_own_notes()
        runtime = module_named("memory").fields_anyway(
            step.device.trace, step.device.plane.name, of_memory
        )
        answers["memory"] |= {**runtime, "notes": of_memory.notes}
    if comparison:
        parts["compare"], answers["compare"] = OK, comparison
    data: Json = {
        **side_of(step, context, parts, answers),
        "version": context.request.version,
        "captured_at_ns": captured_at(step),
        "before": before,
        "notes": context.notes,
        "n_warnings": len(set(context.warnings)),
    }
    says = answers["bottleneck"]["headline"]
    encoded, notes = fitted(data)
    context.warn(*notes)
    html = html_of(encoded)
    write_file(out, html)
    if open:
        open_in_browser(out, context)
    return {"out": out, "bytes": len(html), "parts": parts, "says": says}


def write_file(out: str, html: bytes) -> None:
    with replacing(out, "a page", is_page) as path, open(path, "wb") as file:
        file.write(html)


def is_page(begin: bytes) -> bool:
    return b"<title>compute breakdown</title>" in begin


def open_in_browser(out: str, context: Context) -> None:
    # Import late, because only --open needs these modules.
    import webbrowser
    from pathlib import Path

    if not webbrowser.open(Path(out).absolute().as_uri()):
        context.warn(f"--open found no browser; open {out} yourself")


def side_of(
    step: Step, context: Context, parts: dict[str, str], answers: dict[str, dict[str, Any]]
) -> Json:
    """Return the page's data for one step, and add headlines to the answers."""
    of_step = head_of(step, context)
    head = {name: value for name, value in of_step.items() if name != "notes"}
    for mode in PAGE_MODES:
        if parts.get(mode) == OK:
            totals = of_step["totals"] | answers[mode]["totals"]
            whole = head | answers[mode] | {"mode": mode, "totals": totals}
            answers[mode]["headline"] = headline_of(module_named(mode), whole)
    ledger = ledger_of(step, roofs_of(step.device, None, {}), {})
    return {
        "page": head,
        "parts": parts,
        "answers": answers,
        "classes": {
            "by_source": classes_of_groups(ledger, answers["by_source"]["groups"]),
            "by_scope": classes_of_scopes(ledger, answers["by_scope"]["scopes"]),
            "no_scope": classes_without_scope(ledger),
        },
        "strip": strip_row(strip_of(step, {entry.ran.metadata_id: entry.name for entry in ledger})),
        "period": period_row(step, context.request.mode_options.get("own") or ()),
        "left_out": {},
    }


def compute_answers(
    step: Step, context: Context, modes: Modes
) -> tuple[dict[str, str], dict[str, dict[str, Any]]]:
    """Compute the answers of all modes, and add their notes to the page's notes. Return two maps
    with modes as keys: the first has `ok` or the reason why there is no answer, and the second has
    the answers, or the details of the reason."""
    parts: dict[str, str] = {}
    answers: dict[str, dict[str, Any]] = {}
    warned: dict[str, list[str]] = {}
    noted: dict[str, list[str]] = {}
    for n_done, (name, options) in enumerate(modes.items()):
        context.show_progress("computing", n_done, len(modes))
        of_mode = context.with_own_notes()
        # If `bottleneck` compared the devices, show which device waits for which.
        has_peers = name == "comm" and answers["bottleneck"]["totals"]["peers"] is not None
        asked = {**options, "peers": True} if has_peers else options
        try:
            fields = getattr(module_named(name), name)(step, of_mode, **asked)
        except NoAnswer as failure:
            parts[name], answers[name] = failure.reason, failure.fields
            continue
        parts[name] = OK
        totals = fields.get("totals", {})
        answers[name] = {**fields, "totals": totals, "notes": of_mode.notes}
        for texts, modes_of in ((of_mode.warnings, warned), (of_mode.provenance, noted)):
            for text in texts:
                # The section about kernels already says that the step runs no kernels.
                if text != NO_KERNELS:
                    chosen = noted if text == NO_REGIONS else modes_of
                    chosen.setdefault(text, []).append(name)
    context.warn(*(f"{', '.join(modes)}: {text}" for text, modes in warned.items()))
    context.note(*(f"{', '.join(modes)}: {text}" for text, modes in noted.items()))
    return parts, answers


def captured_at(step: Step) -> int | None:
    """Return the start time of the capture in ns since 1970; None if the trace lacks it."""
    trace = step.device.trace
    rank = trace.rank_of(step.device.plane.name)
    for name in rank.named(ENVIRONMENT) if rank else ():
        start = trace.plane(name).stats().get("profile_start_time")
        if isinstance(start, int):
            return start
    return None


def read_baseline(
    step: Step, baseline: Sequence[str], device: str, host: str | None, context: Context
) -> tuple[Json, Json | None]:
    """Return the `compare` answer, and the page's data for one step of the baseline."""
    given = (context.request.profile, *baseline)
    if STDIN in given and STDIN not in context.request.in_memory:
        detail = "with --baseline, --mode page reads both captures twice; pass files instead of -"
        raise NoAnswer(BAD_ARGUMENTS, detail=detail)
    try:
        comparison = compared(baseline, device, host, context)
        return comparison, side_before(baseline[0], device, host, step.device.is_own, context)
    except NoAnswer as failure:
        failure.fields["side"] = "baseline"
        raise


def compared(
    baseline: Sequence[str], device: str, host: str | None, context: Context
) -> dict[str, Any]:
    """Return the `compare` answer, and add its notes to the page's notes."""
    of_compare = context.with_own_notes()
    of_mode = module_named("compare")
    fields = of_mode.compare(
        of_compare,
        baseline=baseline,
        baseline_device=device,
        baseline_host=host,
        top=TOP_OF_COMPARE,
    )
    context.warn(*of_compare.warnings)
    context.note(*of_compare.provenance)
    answer = {**fields, "mode": "compare"}
    return answer | {"headline": headline_of(of_mode, answer)}


def side_before(
    profile: str,
    name: str,
    host: str | None,
    is_own: Callable[[str], bool],
    context: Context,
) -> Json | None:
    """Return the page's data for one step of the baseline; None for a record, which has no ops."""
    # Import late, because only --baseline needs this module.
    from _breakdown.analysis.records.captures import (
        find_captures,
        ready_record,
        refusals_of_records,
    )

    request = context.request._replace(profile=profile, device=name, host=host)
    of_baseline = Context(request, context.on_progress)
    candidates = Candidates(find_captures(profile, of_baseline), host, of_baseline)
    for place in candidates.places:
        with candidates.attempt(place), refusals_of_records(place.path):
            if ready_record(place.path, context):
                context.warn(
                    "the baseline is a record, which has no ops, so the page lacks its charts;"
                    " pass the capture instead"
                )
                return None
            with opened(place, name, of_baseline) as trace:
                device = open_device(place.path, trace, name, [], of_baseline, is_own)
                picked = pick_step(device, StepChoice(), of_baseline)
                step = normalize(device, picked, read_events(device, picked), of_baseline)
                side = side_of(
                    step, of_baseline, *compute_answers(step, of_baseline, BASELINE_MODES)
                )
            # `compare` already warns about the baseline, so these are added as plain notes.
            context.note(*(f"baseline: {note}" for note in of_baseline.notes))
            return side
    raise candidates.no_answer()


def strip_row(strip: Strip) -> Json:
    return {
        "n_bins": strip.n_bins,
        "by_class": strip.by_class,
        "idle": strip.idle,
        "longest": strip.longest,
        "ops": [op_row(op, name) for op, name in strip.ops],
    }


def op_row(op: Op, name: str) -> Json:
    return {
        "hlo_op": op_name(op),
        "program_id": None if op.program_id is None else str(op.program_id),
        "class": name,
        "source_inner": op.source_inner,
        "source_user": op.source_user,
    }


def fitted(data: Json) -> tuple[str, list[str]]:
    """Encode the data as JSON of limited size; also return notes on omitted rows and shortened
    texts."""
    n_notes = len(data["notes"])
    rows, longest = ROWS, LONGEST_TEXT
    omit_rows(data, rows)
    while len(encoded := encode(data)) > LARGEST:
        del data["notes"][n_notes:]
        omit_rows(data, rows)
        cut_texts(data, longest)
        rows, longest = rows // 2, longest // 2
    return encoded, data["notes"][n_notes:]


def omit_rows(data: Json, rows: int) -> None:
    """Keep up to `rows` rows in each list, and add a note with the numbers of omitted rows."""
    cut_lists(data, rows)
    counts = [*data["left_out"].items()]
    if data["before"]:
        counts += ((f"before.{name}", n) for name, n in data["before"]["left_out"].items())
    if counts:
        omitted = ", ".join(f"{n} of {name}" for name, n in counts)
        data["notes"].append(f"rows omitted to keep the page small: {omitted}")


def encode(data: Json) -> str:
    """Encode the data and the sections that show it as JSON."""
    sections = sections_of(data, {mode: module_named(mode) for mode in data["parts"]})
    encoded = json.dumps({**data, "sections": sections}, separators=(",", ":"), allow_nan=False)
    for character, escape in ESCAPES.items():
        encoded = encoded.replace(character, escape)
    return encoded


# The text output.
MAIN = ""
HEAD: tuple[Part, ...] = ()
PARTS: tuple[Part, ...] = (Says("{says:whole}"),)


def sentences(answer: Json) -> Iterator[str]:
    yield f"Wrote {answer['out']} ({size(answer['bytes'])})."


def next_steps(answer: Json) -> Iterator[Next]:
    yield from ()
