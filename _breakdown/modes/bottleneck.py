"""Show where to look first: the op classes and source lines that lose the most time.

question: where to look first: why the step loses time, and on which lines
reads: a step
options: --top, --peers, --no-peers, peaks, --kernel-cost, --model-flops, --tokens,
  --flops-per-token, --params, --n-devices, --code
example: --top 5
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from _breakdown.analysis.causes import DEVICES, PAUSES, REGIONS, RULE_NAMED
from _breakdown.analysis.causes.shared.facts import facts_of, has_reason_to_compare, read_peers
from _breakdown.analysis.causes.shared.find import causes_of, row_of
from _breakdown.analysis.causes.shared.main_cause import (
    is_large_loss,
    is_nothing_large,
    is_pause,
    main_cause,
    with_one_base,
)
from _breakdown.analysis.common_line import scopes_say_more
from _breakdown.analysis.idle.periods import lower_median, steps_like
from _breakdown.analysis.loss.budget import Budget, mfu_of, notes_of_mfu, time_of_one_step
from _breakdown.analysis.loss.findings import (
    FindingRows,
    doubtful_notes,
    findings_of,
    tail_of_findings,
)
from _breakdown.analysis.loss.largest_loss import Losses, loss_row
from _breakdown.analysis.roof.costs import costs_by_kernel, declared_notes
from _breakdown.analysis.roof.hideable import Hideable
from _breakdown.analysis.roof.ledger import is_declared, ledger_of
from _breakdown.analysis.roof.roofs import roofs_of
from _breakdown.analysis.roof.tokens import model_flops_of, tokens_per_s
from _breakdown.analysis.source.loops import loops_of
from _breakdown.analysis.source.rows import chip_fields, period_fields, recompute_fields
from _breakdown.output.brief import without_repetition
from _breakdown.output.causes import (
    cause_says,
    how_it_pauses,
    on_device,
    start_at,
    told_once,
    with_sentences,
)
from _breakdown.output.code import add_code
from _breakdown.output.columns import (
    CLASS,
    LINE,
    LOOP,
    LOST,
    OP_LINE,
    PEERS,
    RUNS,
    SCOPE,
    STEP_SHARE,
    TIME,
)
from _breakdown.output.phrases import Next, at_line_of, pause_sentence
from _breakdown.output.screen import Column, Part, Says, Section, Table
from _breakdown.output.verdict import (
    CLASSES,
    WORTH_A_LOOK_PCT,
    is_late,
    large_share,
    loss_sentence,
    roof_sentences,
    shares,
    start_at_loss,
    time_of_unknown_cost,
)
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.step_durations import durations_of
from _breakdown.pipeline.vocabulary import COMPUTE
from _breakdown.units import percentage
from _proto.trace.ranks import TPU_RE

Json = dict[str, Any]

WHOLE_BAR = 40


def bottleneck(
    step: Step,
    context: Context,
    *,
    top: int = 5,
    peers: bool = False,
    no_peers: bool = False,
    chip: str | None = None,
    peaks: Sequence[tuple[str, float]] = (),
    kernel_cost: Sequence[tuple[str, int, int, Any]] = (),
    model_flops: int | None = None,
    tokens: int | None = None,
    flops_per_token: float | None = None,
    params: float | None = None,
    n_devices: int | None = None,
    code: str | None = None,
) -> Json:
    roofs = roofs_of(step.device, chip, dict(peaks))
    by_user = costs_by_kernel(step.by_kind[COMPUTE], kernel_cost, context)
    useful = model_flops_of(step, tokens, flops_per_token, params, n_devices)
    ledger = ledger_of(step, roofs, by_user)
    budget = Budget(step, ledger)
    findings, kernels, lines = findings_of(ledger, by_scope=scopes_say_more(step))
    context.note(*roofs.choice.notes)
    declared = declared_notes({entry.kernel for entry in ledger if is_declared(entry)})
    context.warn(*doubtful_notes([*findings, *kernels]), *budget.notes(), *declared)
    is_compared = peers or (not no_peers and has_reason_to_compare(step, ledger))
    read, waits = read_peers(step, context) if is_compared else (None, None)
    facts = facts_of(step, roofs, ledger, read, context)
    periods = facts.periods
    one_step = time_of_one_step(step, periods)
    mfu = mfu_of(useful or model_flops, step, one_step, roofs)
    context.warn(*notes_of_mfu(mfu))
    shown = [ran for finding in (*findings[:top], *kernels[:top]) for ran in finding.group.members]
    losses = Losses(causes := causes_of(facts), facts.ledger)
    rows = FindingRows(step, Hideable(facts.ledger), loops_of(step, shown), read, losses.explain)
    answer = {
        **period_fields(periods),
        "causes": [row_of(found, facts) for found in causes],
        "largest_loss": loss_row(lines, losses, facts, budget.idle),
        "bottleneck": budget.largest_loss(periods),
        "speed_of_light": budget.speed_of_light(),
        "mfu_at_least": budget.mfu_at_least(periods),
        "hfu_at_least": budget.utilization(periods),
        "mfu": mfu,
        "tokens_per_s": tokens_per_s(one_step, tokens),
        "over_roof": budget.over_roof_row(),
        "capture": capture_row(step),
        "steps": steps_row(step),
        "budget": budget.rows(rows.hideable),
        **recompute_fields(step),
        "findings": [rows.finding(of_line) for of_line in findings[:top]],
        "kernels_of_unknown_cost": [rows.kernel(of_line) for of_line in kernels[:top]],
        "lines": [rows.line(members) for members in lines[:top]],
        "tail": tail_of_findings(findings[top:], lines[top:], kernels[top:]),
        **chip_fields(roofs),
        "totals": {"peers": waits},
    }
    show_code(answer, code, context)
    return answer


def show_code(answer: Json, folder: str | None, context: Context) -> None:
    if folder is None:
        return
    rows = [row for name in ("causes", "findings", "lines") for row in answer[name]]
    if not add_code(rows, folder):
        context.warn(f"no line of this answer is in a file below {folder}")


def capture_row(step: Step) -> Json:
    return {
        "hosts": step.device.hosts,
        "devices": [name for name in step.device.planes if TPU_RE.match(name)],
    }


def steps_row(step: Step) -> Json | None:
    if step.picked is None:
        return None
    all_durations = durations_of(step)
    durations = [all_durations[event.index] for event in steps_like(step.device, step.picked)]
    return {
        "n": len(durations),
        "min_ps": min(durations),
        "median_ps": lower_median(durations),
        "max_ps": max(durations),
    }


def prepared(fields: Json) -> Json:
    """Add what only text shows: gains as percentages of one base, what helps at a line, and
    `hfu_if_other`, the utilization with recomputation, unless it is printed like the MFU."""
    # Import late, because JSON does not need this module.
    from _breakdown.output.figures import figure

    mfu, hfu = fields.get("mfu_at_least"), fields.get("hfu_at_least")
    is_other = mfu is not None and hfu is not None and figure(mfu, "share") != figure(hfu, "share")
    is_assumed = fields.get("chip_is_assumed")
    fields = {
        **fields,
        "hfu_if_other": hfu if is_other else None,
        "chip_words": f"{fields['chip']} (assumed)" if is_assumed else "chip",
        "mfu_is": f"MFU on a {fields['chip']} (assumed) is" if is_assumed else "MFU is",
        "mfu_mark": ", which is impossible" if (fields.get("mfu") or 0) > 1 else "",
    }
    if "causes" not in fields:
        return fields
    lines = [
        {**row, "what_helps": help_at(row, fields), "unknown_ps": time_of_unknown_cost(row)}
        for row in fields["lines"]
    ]
    # The whole capture contains the pauses.
    period_ps = None if fields["step_id"] is None else fields["period_ps"]
    return {
        **fields,
        "causes": with_one_base(fields["causes"], period_ps),
        "lines": lines,
    }


def help_at(line: Json, answer: Json) -> str | None:
    """Return what helps with the worst finding of a line, unless a cause says it."""
    same = ("class", "source_user", "source_inner")
    found = (row for row in answer["findings"] if all(row.get(n) == line.get(n) for n in same))
    helps: str | None = next((row.get("what_helps") for row in found), None)
    return None if any(row.get("what_helps") == helps for row in answer["causes"]) else helps


def with_bars(rows: list[Json]) -> list[Json]:
    """Add the class in words, and a bar whose full length stands for the step."""
    # A damaged capture can have ops that take longer than the step.
    shares = (min(100, row["pct_of_step"] or 0) for row in rows)
    bars = ("█" * max(1, round(share / 100 * WHOLE_BAR)) for share in shares)
    return [
        {**row, "class_words": CLASSES[row["class"]], "bar": bar}
        for row, bar in zip(rows, bars, strict=True)
    ]


def brief(answer: Json) -> Json:
    lists = ("causes", "findings", "lines", "kernels_of_unknown_cost")
    return without_repetition(answer, lists)


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "lines"
WHAT = Column("what", ("kernel", "waits_for", "top_signature"), "what", least=12)

PARTS: tuple[Part, ...] = (
    Table(
        "",
        "causes",
        (
            Column("gain", "gain_ps", "time", of="gain_ps"),
            Column("from", "low_ps", "time", null=""),
            Column("to", "high_ps", "time", null=""),
            Column("% step", "gain_pct_of_step", "percent", of="gain_pct_of_step"),
            Column("% period", "pct_of_period", "percent", of="pct_of_period"),
            Column("frees", "frees_bytes", "bytes", null=""),
            Column("cause", "cause", "word", also=(" ({confidence})",)),
            Column("line", ("source_user", "source_inner"), "file", null=""),
        ),
        size="gain_ps",
        part=100,
        most=3,
        what="cause",
        group=with_sentences,
        below="{in_short:whole}",
        below_all="{in_full:whole}",
    ),
    Section(
        (
            Table(
                "",
                "budget",
                (
                    Column("where the step goes", "class_words", "word"),
                    TIME,
                    STEP_SHARE,
                    Column("", "bar", "word", only="brief"),
                    Column("at roof", "at_roof_ps", "time", of="n_executions", only="all"),
                    Column("lost", "lost_ps", "time", of="n_executions", only="all"),
                    Column("hideable", "hideable_ps", "time", null="", only="all"),
                    Column("runs", "n_executions", "count", null="", only="all"),
                ),
                derive=with_bars,
                by="dur_ps",
                unless_0="dur_ps",
                size="dur_ps",
                part=100,
                what="class",
                tail={"time": ""},
            ),
            Says(
                "\nThe {chip_words} needs {speed_of_light.at_least_ps:time} to"
                " {speed_of_light.at_most_ps:time}.",
                when="speed_of_light.at_most_ps",
            ),
            Says(
                "\nThe step needs no time for math or HBM.",
                when="!speed_of_light.at_most_ps",
            ),
            Says(
                "{mfu_is} at least {mfu_at_least:share}.",
                when="mfu_at_least !hfu_if_other",
                continues=True,
            ),
            Says(
                "{mfu_is} at least {mfu_at_least:share}, or {hfu_if_other:share} with"
                " recomputation, which takes {recompute_total_dur_ps:time}.",
                when="mfu_at_least hfu_if_other",
                continues=True,
            ),
            Says(
                "MFU is unknown, because too few flops are known.",
                when="!mfu_at_least",
                continues=True,
            ),
            Says(
                "{mfu_is} {mfu:share} for the given model flops{mfu_mark}.",
                when="mfu",
                continues=True,
            ),
            Says("{tokens_per_s:number} tokens per second.", when="tokens_per_s", continues=True),
        )
    ),
    PEERS,
    Table(
        "lines by lost time, which the chip does not need; ?: time of unknown cost",
        "lines",
        (
            LOST,
            Column("?", "unknown_ps", "time", null=""),
            TIME,
            STEP_SHARE,
            LINE._replace(least=20),
            CLASS._replace(heading="loses most in"),
            Column("mostly", "mostly", "what", least=12),
            SCOPE,
        ),
        size="dur_ps",
        most=4,
        group=told_once,
        below="What to do: {advice:whole}",
        # With --all, the findings say it.
        below_all="",
        takes_top=True,
        what="line",
        omitted="tail.n_lines_omitted",
        tail={"time": "tail.lines_dur_ps", "lost": "tail.lines_lost_ps"},
    ),
    Table(
        "",
        "findings",
        (
            LOST,
            TIME,
            STEP_SHARE,
            Column("findings", LINE.path, "file", least=20),
            CLASS,
            WHAT,
            LOOP,
            SCOPE,
        ),
        size="dur_ps",
        takes_top=True,
        what="finding",
        omitted="tail.n_findings_omitted",
        tail={"time": "tail.dur_ps", "lost": "tail.lost_ps"},
        only="all",
        group=told_once,
        below_all="{shape:shape}: {advice:whole}",
    ),
    Table(
        "",
        "kernels_of_unknown_cost",
        (
            TIME,
            STEP_SHARE,
            RUNS,
            Column("kernels of unknown cost", "kernel"),
            OP_LINE,
            SCOPE,
        ),
        size="dur_ps",
        most=3,
        takes_top=True,
        what="kernel",
        omitted="tail.n_kernels_omitted",
        tail={"time": "tail.kernels_dur_ps"},
    ),
)


def sentences(answer: Json) -> Iterator[str]:
    """Say where to start, and why; also what costs most if its cause is not known."""
    loss, cause = answer["largest_loss"], main_cause(answer["causes"])
    lost = loss["lost_ps"] if loss else 0
    if is_nothing_large(answer["causes"], loss):
        parts = [(cause["gain_ps"], cause_sentence(cause, answer))] if cause else []
        parts += [(lost, loss_sentence(loss, answer, None))] if loss else []
        unknown = large_share("unjudged", answer)
        yield (
            f"Math of unknown cost takes {percentage(unknown)} of the step; what it loses is not"
            " known."
            if unknown
            else "No known loss is large."
        )
        yield from (says for _, says in sorted(parts, key=lambda part: -part[0]))
        yield from shares(answer)
    elif not cause and is_large_loss(loss):
        yield start_at_loss(loss, answer)
        yield from roof_sentences(loss)
    else:
        unsure = "It is not sure that any cause gains much."
        yield cause_sentence(cause, answer, is_first=True) if cause else unsure
        if loss and (not cause or lost > cause["gain_ps"]):
            yield loss_sentence(loss, answer, cause)
            yield from roof_sentences(loss)


def cause_sentence(cause: Json, answer: Json, *, is_first: bool = False) -> str:
    """Return a sentence about a cause, which can begin with the place to look at."""
    place = at_line_of(cause, answer) + on_device(cause)
    if is_pause(cause):
        says = how_it_pauses(cause, answer)
    else:
        what = (RULE_NAMED[cause["cause"]].headline or "") + ("" if is_first else place)
        says = cause_says(cause, what, answer["step_duration_ps"])
    return start_at(place, says) if is_first else says


def next_steps(answer: Json) -> Iterator[Next]:
    """Yield commands, the one that says most about the headline first."""
    found = dict.fromkeys((*of_headline(answer), *of_classes(answer)))
    modes: set[str] = set()
    for step in found:
        mode = step.words[1]
        if mode not in modes:
            modes.add(mode)
            yield step


def of_headline(answer: Json) -> Iterator[Next]:
    cause = main_cause(answer["causes"])
    needs = RULE_NAMED[cause["cause"]].needs if cause else None
    if needs == PAUSES:
        yield OF_PAUSES
    elif needs == DEVICES or is_late(answer):
        yield OF_DEVICES
    elif needs == REGIONS:
        yield OF_KERNELS
    elif not cause and answer["bottleneck"] in ("kernel", "idle", "collective"):
        # The commands of the classes begin with the one about this class.
        return
    yield from costliest_op(answer)


def of_classes(answer: Json) -> Iterator[Next]:
    budget = {row["class"]: row["pct_of_step"] or 0 for row in answer["budget"]}
    # `spread` has said which device is late.
    has_peers = len(answer["capture"]["devices"]) > 1 and not is_late(answer)
    steps = {
        "idle": Next("why the device is idle, and what the host does then", ("--mode", "idle")),
        "collective": OF_PEERS if has_peers else OF_COMM,
        "host": OF_COMM,
        "kernel": OF_KERNELS,
    }
    if answer["program"]["hlo"]:
        steps["memory_bound"] = Next("which arrays go through HBM", ("--mode", "by_array"))
    large = [name for name in steps if budget.get(name, 0) >= WORTH_A_LOOK_PCT]
    names = sorted(large, key=lambda name: (name != answer["bottleneck"], -budget[name]))
    yield from (steps[name] for name in names)
    if pause_sentence(answer):
        yield OF_PAUSES


OF_PAUSES = Next("what the host does between steps", ("--mode", "idle", "--step", "all"))
OF_DEVICES = Next("which device is late in all steps, and on which lines", ("--mode", "spread"))
OF_PEERS = Next(
    "whether communication waits for a slow device or for the network",
    ("--mode", "comm", "--peers"),
)
OF_COMM = Next("the time of each transfer, and how much of it is hidden", ("--mode", "comm"))
OF_KERNELS = Next("what happens inside kernels", ("--mode", "kernel"))


def costliest_op(answer: Json) -> Iterator[Next]:
    """Yield the command that shows an op of the main cause, or else of the largest loss."""
    cause = main_cause(answer["causes"])
    if cause and cause["evidence"]["ops"]:
        name, why = cause["evidence"]["ops"][0], f"details of an op of cause {cause['cause']}"
        device = cause["evidence"].get("device")
        more = ("--device", device) if device else ()
    elif answer["largest_loss"] and answer["largest_loss"]["hlo_op"]:
        name, why = answer["largest_loss"]["hlo_op"], "details of the op that loses the most time"
        more = ()
    else:
        return
    yield Next(why, ("--mode", "by_op", "--op", name, "--top", "0", *more))
