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

from _analysis.causes import PAUSES, rule_named
from _analysis.causes.shared.facts import facts_of, has_reason_to_compare, read_peers
from _analysis.causes.shared.find import causes_of
from _analysis.common_line import scopes_say_more
from _analysis.findings import FindingRows, doubtful_notes, findings_of, tail_of_findings
from _analysis.idle.periods import lower_median, steps_named_like
from _analysis.loops import Loops
from _analysis.roof.budget import Budget, mfu_of
from _analysis.roof.costs import costs_by_kernel, declared_notes
from _analysis.roof.hideable import Hideable
from _analysis.roof.ledger import is_declared, ledger_of
from _analysis.roof.roofs import roofs_of
from _analysis.rows import (
    chip_fields,
    period_fields,
    recompute_fields,
)
from _analysis.tokens import model_flops_of, tokens_per_s
from _output.code import add_code
from _output.columns import CLASS, LINE, LOOP, LOST, OP_LINE, PEERS, RUNS, SCOPE, STEP_SHARE, TIME
from _output.phrases import Next, at_line_of, bracketed, joined, pause_sentence, short
from _output.screen import Column, Part, Says, Section, Table
from _pipeline.context import Context
from _pipeline.normalize import Step
from _pipeline.step_durations import durations_of
from _pipeline.vocabulary import COMPUTE
from _proto.trace.ranks import TPU_RE
from _units import part_of, span, time

Json = dict[str, Any]

# The headline mentions a cause only if the low end of its gain is at least this percentage of the
# step, or of the period.
WORTH_NAMING_PCT = 2
# The end of a headline about a pause, by cause.
HOST_DOES = {"host_sync": " to read a result", "recompilation": " to compile"}
# Suggest a command about a part of the step, such as communication, only above this percentage.
WORTH_A_LOOK_PCT = 3
SLOW_DEVICE = "slow_device"
CLASSES = {
    "collective": "communication that nothing hides",
    "host": "transfers between host and device",
    "data_movement": "data movement such as copies",
    "compute_bound": "compute-bound math",
    "memory_bound": "memory-bound math",
    "kernel": "kernels of unknown cost",
    "unjudged": "math of unknown cost",
    "other": "ops of unknown kind",
    "idle": "idle time",
}


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
    context.warn(*doubtful_notes([*findings, *kernels]), *budget.notes())
    context.warn(*declared_notes({entry.kernel for entry in ledger if is_declared(entry)}))
    is_compared = peers or (not no_peers and has_reason_to_compare(step, ledger))
    read, waits = read_peers(step, context) if is_compared else (None, None)
    facts = facts_of(step, roofs, ledger, read, context)
    periods = facts.periods
    context.warn(*facts.inside.notes)
    shown = [op for finding in (*findings[:top], *kernels[:top]) for op in finding.group.members]
    hideable = Hideable(facts.ledger)
    rows = FindingRows(step, hideable, Loops(step, shown), read)
    answer = {
        **period_fields(periods),
        "causes": causes_of(facts),
        "bottleneck": budget.largest_loss(periods),
        "speed_of_light": budget.speed_of_light(),
        "mfu_at_least": budget.utilization(lambda op: op.phase != "recompute"),
        "hfu_at_least": budget.utilization(),
        "mfu": mfu_of(model_flops if useful is None else useful, step, roofs),
        "tokens_per_s": tokens_per_s(step, tokens),
        "over_roof": over_roof_row(budget),
        "capture": capture_row(step),
        "steps": steps_row(step),
        "budget": budget.rows(hideable),
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


def over_roof_row(budget: Budget) -> Json:
    over = budget.over_roof
    return {"n_ops": len(over), "dur_ps": sum(entry.total for entry in over)}


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
    durations = [all_durations[event.index] for event in steps_named_like(step.device, step.picked)]
    return {
        "n": len(durations),
        "min_ps": min(durations),
        "median_ps": lower_median(durations),
        "max_ps": max(durations),
    }


def told_once(rows: list[Json]) -> list[Json]:
    """Add `advice` to rows: what helps, unless a row above has the same advice."""
    told: set[str | None] = set()
    found = []
    for row in rows:
        advice = row.get("what_helps")
        found.append({**row, "advice": None if advice in told else advice})
        told.add(advice)
    return found


def with_sentences(causes: list[Json]) -> list[Json]:
    """Add the sentences below a cause: `in_full`, and `in_short` for the first cause and for a
    second one that gains at least 5 % of the step."""
    rows = told_once(causes)
    for i, row in enumerate(rows):
        helps = f" What helps: {row['advice']}" if row["advice"] else ""
        row["in_full"] = row["says"] + helps
        if i == 0 or (i == 1 and (row["gain_pct_of_step"] or 0) >= 5):
            first = row["says"].partition(". ")[0].removesuffix(".")
            row["in_short"] = f"{first}.{helps if i == 0 else ''}"
    return rows


def prepared(fields: Json) -> Json:
    """Add `hfu_if_other`: the utilization with recomputation, unless it is printed like the MFU."""
    # Import late, because JSON does not need this module.
    from _output.figures import figure

    mfu, hfu = fields.get("mfu_at_least"), fields.get("hfu_at_least")
    is_other = mfu is not None and hfu is not None and figure(mfu, "share") != figure(hfu, "share")
    return {**fields, "hfu_if_other": hfu if is_other else None}


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "findings"
WHAT = Column("what", ("kernel", "waits_for", "top_signature"), "what", least=12)

PARTS: tuple[Part, ...] = (
    PEERS,
    Table(
        "",
        "causes",
        (
            Column("gain", "gain_ps", "time", of="gain_ps"),
            Column("%", "gain_pct_of_step", "percent", of="gain_ps"),
            Column("cause", "cause", "word", also=(" ({confidence})",)),
            Column("line", ("source_user", "source_inner"), "file", null=""),
        ),
        size="gain_ps",
        part=100,
        most=3,
        takes_top=True,
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
                    Column("where the step goes", "class", "word"),
                    TIME,
                    STEP_SHARE,
                    Column("at roof", "at_roof_ps", "time", of="n_executions"),
                    Column("lost", "lost_ps", "time", of="n_executions"),
                    Column("hideable", "hideable_ps", "time", null=""),
                    Column("runs", "n_executions", "count", null=""),
                ),
                unless_0="dur_ps",
                size="dur_ps",
                part=100,
                what="class",
                tail={"time": ""},
            ),
            Says(
                "The chip needs {speed_of_light.at_least_ps:time} to"
                " {speed_of_light.at_most_ps:time}."
            ),
            Says(
                "MFU is at least {mfu_at_least:share}.",
                when="mfu_at_least !hfu_if_other",
                continues=True,
            ),
            Says(
                "MFU is at least {mfu_at_least:share}, or {hfu_if_other:share} with recomputation"
                " ({recompute_total_dur_ps:time}).",
                when="mfu_at_least hfu_if_other",
                continues=True,
            ),
            Says(
                "MFU is unknown, because too few flops are known.",
                when="!mfu_at_least",
                continues=True,
            ),
            Says("MFU is {mfu:share} for the given model flops.", when="mfu", continues=True),
            Says("{tokens_per_s:number} tokens per second.", when="tokens_per_s", continues=True),
        )
    ),
    Table(
        "",
        "lines",
        (
            LOST,
            TIME,
            STEP_SHARE,
            Column("lines that lose most", LINE.path, "file", least=20),
            CLASS,
            Column("mostly", "mostly", "what", least=12),
            SCOPE,
        ),
        size="dur_ps",
        most=4,
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


def headline(answer: Json) -> str:
    return joined(sentences(answer))


def sentences(answer: Json) -> Iterator[str]:
    cause = main_cause(answer)
    if cause:
        yield cause_says(cause, answer)
    # The sentence about the pauses replaces the verdict if the device is idle mostly in pauses.
    pause = "" if cause and is_pause(cause) else pause_sentence(answer)
    pause_first = answer["bottleneck"] == "idle" and mostly_pauses(answer)
    if pause_first:
        yield pause
    else:
        yield verdict(answer)
    yield from bounds(answer)
    if not pause_first:
        yield pause


def mostly_pauses(answer: Json) -> bool:
    """Return whether the device is idle longer between steps than in the step."""
    return (answer["between_steps_ps"] or 0) > time_of("idle", answer)


def cause_says(cause: Json, answer: Json) -> str:
    likely, share = cause["confidence"] == "likely", bracketed(cause["gain_pct_of_step"])
    if is_pause(cause):
        # The pause is outside the step, so its percentage is relative to the period.
        return pause_says(cause, answer["period_ps"] or 0)
    what, device = rule_named(cause["cause"]).headline, cause["evidence"].get("device")
    if device:
        what = f"{what}, {device.removeprefix('/device:')},"
    costs = "probably costs" if likely else "costs"
    gain = part_of(cause["gain_ps"], answer["step_duration_ps"])
    return f"{what}{at_line_of(cause, answer)} {costs} about {gain}{share}."


def is_pause(cause: Json) -> bool:
    """Return whether a cause costs time between steps, and not in them."""
    return rule_named(cause["cause"]).needs == PAUSES


def pause_says(cause: Json, period_ps: int) -> str:
    share = bracketed(cause["gain_pct_of_step"])
    waits = part_of(cause["gain_ps"], period_ps) + share
    probably = " probably" if cause["confidence"] == "likely" else ""
    host = f"for the host{HOST_DOES.get(cause['cause'], '')}{at_line_of(cause)}"
    pauses = cause["evidence"].get("pauses")
    if not pauses or pauses["n"] == pauses["n_gaps"]:
        return f"Between steps, the device{probably} waits {waits} {host}."
    how_long = span(pauses["min_ps"], pauses["max_ps"])
    how_often = f"The device{probably} waits {how_long} {pauses['when']}"
    if pauses["n"] == 1:
        # A pause that occurred once is not a cost of every step.
        return f"{how_often}, {host}{share}."
    return f"{how_often} {host}, on average {waits} per step."


def main_cause(answer: Json) -> Json | None:
    """Return the cause with the largest gain if even the low end of its range is worth naming. Skip
    causes without a headline."""
    period = answer["period_ps"] or 0
    for row in answer["causes"]:
        if row["gain_range_ps"] and rule_named(row["cause"]).headline:
            whole = period if is_pause(row) else answer["step_duration_ps"]
            is_large = 100 * row["gain_range_ps"][0] >= WORTH_NAMING_PCT * whole
            return row if is_large else None
    return None


def verdict(answer: Json) -> str:
    step = answer["step_duration_ps"]
    name = answer["bottleneck"]
    if name == "at_roof":
        return "The step is almost as fast as the chip allows."
    lost = time_of(name, answer)
    if name in ("kernel", "unjudged"):
        kernel = next(iter(answer["kernels_of_unknown_cost"]), None) if name == "kernel" else None
        where = f" ({time(kernel['dur_ps'])}{place(kernel, answer)})" if kernel else ""
        return f"The largest loss may be {CLASSES[name]}: {part_of(lost, step)}{where}."
    worst = next((row for row in answer["findings"] if row["class"] == name), None)
    where = ""
    if worst and worst["lost_ps"]:
        where = f" ({time(worst['lost_ps'])}{place(worst, answer)})"
    if name == "collective":
        where = waiting(answer) + where
    peaks = f" on {answer['chip']}" if answer["chip_is_assumed"] else ""
    return f"The largest loss{peaks} is {CLASSES[name]}: {part_of(lost, step)}{where}."


def waiting(answer: Json) -> str:
    """Return the part of the communication that waits for late devices, or an empty text."""
    peers = answer["totals"]["peers"]
    wait = (peers and peers["peer_wait_ps"]) or 0
    is_large = wait * 100 >= WORTH_A_LOOK_PCT * answer["step_duration_ps"]
    return f", of which {time(wait)} is waiting for late devices" if is_large else ""


def bounds(answer: Json) -> Iterator[str]:
    """Yield a sentence about how fast the chip could run the step, if a bound is known."""
    light = answer["speed_of_light"]
    if light["at_least_ps"] and answer["bottleneck"] != "at_roof":
        chip = answer["chip"] if answer["chip_is_assumed"] else "The chip"
        most = min(light["at_most_ps"], answer["step_duration_ps"])
        yield f"{chip} could run this step in {time(light['at_least_ps'])} to {time(most)}."


def time_of(name: str, answer: Json) -> int:
    row = next(row for row in answer["budget"] if row["class"] == name)
    lost: int = row["dur_ps"] if row["lost_ps"] is None else row["lost_ps"]
    return lost


def place(row: Json, answer: Json) -> str:
    line = at_line_of(row, answer)
    return f" in {short(row['kernel'])}{line}" if row["kernel"] else line


def next_steps(answer: Json) -> Iterator[Next]:
    is_late = bool(waiting(answer)) or any(row["cause"] == SLOW_DEVICE for row in answer["causes"])
    if is_late:
        yield Next("which device is late in all steps, and on which lines", ("--mode", "spread"))
    yield from costliest_op(answer)
    budget = {row["class"]: row for row in answer["budget"]}
    exposed = (budget["collective"]["pct_of_step"] or 0) >= WORTH_A_LOOK_PCT
    has_peers = len(answer["capture"]["devices"]) > 1
    if exposed and has_peers and not is_late:
        yield Next(
            "whether communication waits for a slow device or for the network",
            ("--mode", "comm", "--peers"),
        )
    if (budget["idle"]["pct_of_step"] or 0) >= WORTH_A_LOOK_PCT:
        yield Next(
            "why the device is idle, and what the host does at that time", ("--mode", "idle")
        )
    if (exposed and not has_peers) or (budget["host"]["pct_of_step"] or 0) >= WORTH_A_LOOK_PCT:
        yield Next("the time of each collective, and how much of it is hidden", ("--mode", "comm"))
    if pause_sentence(answer):
        yield Next("what the host does between steps", ("--mode", "idle", "--step", "all"))
    if (budget["kernel"]["pct_of_step"] or 0) >= WORTH_A_LOOK_PCT:
        yield Next("what happens inside kernels", ("--mode", "kernel"))


def costliest_op(answer: Json) -> Iterator[Next]:
    """Yield the command that shows an op of the main cause, or else the op that loses the most
    time."""
    cause = main_cause(answer)
    if cause and cause["evidence"]["ops"]:
        name, why = cause["evidence"]["ops"][0], f"details of an op of cause {cause['cause']}"
        device = cause["evidence"].get("device")
        more = ("--device", device) if device else ()
    elif answer["findings"]:
        name, why = answer["findings"][0]["hlo_op"], "details of the op that loses the most time"
        more = ()
    else:
        return
    yield Next(why, ("--mode", "by_op", "--op", name, "--top", "0", *more))
