"""Say in the headline of `bottleneck` what loses the most time."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from _breakdown.output.phrases import at_line_of, bracketed, capital, pause_sentence, short
from _breakdown.units import part_of, percentage, time

Json = dict[str, Any]

# Mention a part of the step, such as communication, only above this percentage.
WORTH_A_LOOK_PCT = 3
# If nothing is large, kernels of unknown cost and communication are mentioned from this percentage.
LARGE_SHARE_PCT = 25
# How text names the classes.
CLASSES = {
    "collective": "communication",
    "host": "transfers between host and device",
    "data_movement": "copies and layout changes",
    "compute_bound": "compute-bound math",
    "memory_bound": "memory-bound math",
    "kernel": "kernels of unknown cost",
    "unjudged": "math of unknown cost",
    "other": "ops of unknown kind",
    "idle": "idle",
    "overlap": "overlap of ops",
}
IN_SENTENCES = {**CLASSES, "idle": "idle time"}


def start_at_loss(loss: Json, answer: Json) -> str:
    if loss["class"] == "idle":
        pauses = pause_sentence(answer) if mostly_pauses(answer) else ""
        return pauses or f"The device is idle for {share_of_loss(loss, answer)}."
    loses = "may lose up to" if is_unknown(loss) else "loses"
    return (
        f"Start{place_of(loss, answer)}, which {loses} {share_of_loss(loss, answer)}, mostly in"
        f" {what_loses(loss)}{waiting(loss, answer)}."
    )


def loss_sentence(loss: Json, answer: Json, before: Json | None) -> str:
    """Return a sentence about the largest loss; `before` is the cause that the sentence before it
    is about."""
    verb, up_to = ("may be", "up to ") if is_unknown(loss) else ("is", "")
    start = f"The largest loss without a known cause {verb}"
    share = f"{up_to}{share_of_loss(loss, answer)}"
    if loss["class"] == "idle":
        return f"{start} idle time: {share}."
    mostly = f"mostly in {what_loses(loss)}{waiting(loss, answer)}."
    if before and before["source_user"] and before["source_user"] == loss["source_user"]:
        loses = "may lose" if up_to else "loses"
        return f"Besides, this line {loses} {share}, {mostly}"
    return f"{start}{place_of(loss, answer)}: {share}, {mostly}"


def is_unknown(loss: Json) -> bool:
    """Return whether the loss is the whole time of ops, because their cost is unknown."""
    return bool(loss["class"] == "unjudged")


def what_loses(loss: Json) -> str:
    return IN_SENTENCES[loss["class"]] if loss["mxu_pct"] is None else "math"


def roof_sentences(loss: Json) -> Iterator[str]:
    """Yield what math reaches if neither roof limits it."""
    if loss["mxu_pct"] is not None:
        hbm, mxu = percentage(loss["hbm_pct"]), percentage(loss["mxu_pct"])
        yield (
            f"It reaches {hbm} of HBM's bandwidth and {mxu} of the MXU's peak; what limits it is"
            " not known."
        )


def place_of(loss: Json, answer: Json) -> str:
    """Return the line of a loss, or the name of the ops if they have no line."""
    line = at_line_of(loss, answer)
    return line or (f" in {short(loss['agg_key'])}" if loss["agg_key"] else "")


def share_of_loss(loss: Json, answer: Json) -> str:
    whole = answer["step_duration_ps"]
    if loss["class"] == "idle" and answer["step_id"] is not None:
        whole += answer["between_steps_ps"] or 0
    return part_of(loss["lost_ps"], whole) + bracketed(loss["lost_pct"])


def waiting(loss: Json, answer: Json) -> str:
    """Return the part of all communication that waits for late devices, or an empty text."""
    if loss["class"] != "collective" or not is_late(answer):
        return ""
    wait = answer["totals"]["peers"]["peer_wait_ps"]
    return f"; on all lines, {time(wait)} is waiting for late devices"


def is_late(answer: Json) -> bool:
    """Return whether devices wait long for late devices."""
    peers = answer["totals"]["peers"]
    wait = (peers and peers["peer_wait_ps"]) or 0
    return bool(wait * 100 >= WORTH_A_LOOK_PCT * answer["step_duration_ps"])


def shares(answer: Json) -> Iterator[str]:
    """Say which part of the step is of unknown cost or communication, from a quarter of it."""
    for name, takes in (("kernel", "take"), ("collective", "takes")):
        if share := large_share(name, answer):
            yield f"{capital(CLASSES[name])} {takes} {percentage(share)} of the step."


def large_share(name: str, answer: Json) -> float:
    """Return the percentage of the step that a class takes; 0 if it is less than a quarter."""
    share = next(row["pct_of_step"] for row in answer["budget"] if row["class"] == name) or 0
    return share if share >= LARGE_SHARE_PCT else 0


def time_of_unknown_cost(line: Json) -> int | None:
    """Return the time of a line's ops of unknown cost, if it is worth a word."""
    times = line.get("classes") or {line["class"]: line["dur_ps"]}
    unknown = sum(times.get(name, 0) for name in ("kernel", "unjudged"))
    return unknown if 100 * unknown > WORTH_A_LOOK_PCT * line["dur_ps"] else None


def mostly_pauses(answer: Json) -> bool:
    """Return whether the device is idle longer between steps than in the step."""
    idle: int = next(row["dur_ps"] for row in answer["budget"] if row["class"] == "idle")
    return (answer["between_steps_ps"] or 0) > idle
