"""Say in text and in headlines what costs time, and what to do about it."""

from __future__ import annotations

from typing import Any

from _breakdown.output.phrases import bracketed, sentences_of
from _breakdown.units import part_of, span, time

Json = dict[str, Any]

# What the host does in a pause, by cause.
HOST_DOES = {"host_sync": " to read a result", "recompilation": " to compile"}


def cause_says(cause: Json, what: str, step_ps: int) -> str:
    """Return a sentence about a cause; `what` names it, and can name its place."""
    probably = " probably" if cause["confidence"] == "likely" else ""
    costs = part_of(cause["gain_ps"], step_ps) + bracketed(cause["gain_pct_of_step"])
    return f"{what}{probably} costs about {costs}."


def on_device(cause: Json) -> str:
    device = cause["evidence"].get("device")
    return f" on {device.removeprefix('/device:')}" if device else ""


def start_at(place: str, says: str) -> str:
    """Put the place to look at before a sentence."""
    return f"Start{place}: {says[:1].lower()}{says[1:]}" if place else says


def how_it_pauses(cause: Json, answer: Json) -> str:
    """Return a sentence about a cause that costs time between steps."""
    # Without a step, the answer is about the whole capture, which contains the pauses.
    is_whole = answer["step_id"] is None
    share = bracketed(cause["gain_pct_of_step"])
    waits = part_of(cause["gain_ps"], answer["step_duration_ps" if is_whole else "period_ps"])
    waits += share
    probably = " probably" if cause["confidence"] == "likely" else ""
    host = f"for the host{HOST_DOES.get(cause['cause'], '')}"
    pauses = cause["evidence"].get("pauses")
    if not pauses or pauses["n"] == pauses["n_gaps"]:
        what = "programs" if pauses and pauses["when"].startswith("between") else "steps"
        return f"Between {what}, the device{probably} waits {waits} {host}."
    how_long = span(pauses["min_ps"], pauses["max_ps"])
    how_often = f"The device{probably} waits {how_long} {host} {pauses['when']}"
    if pauses["n"] == 1:
        # A pause that occurred once is not a cost of every step.
        return f"{how_often}{share}."
    return f"{how_often}, {f'{waits} in all' if is_whole else f'on average {waits} per step'}."


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
    """Add the sentences below a cause: `in_full`, and `in_short`, which has the reason of the first
    cause and of causes without a gain, and one sentence of advice for causes that have a gain or
    ops that take longer than the largest gain."""
    rows = told_once(causes)
    largest_gain = max((row["gain_ps"] or 0 for row in rows), default=0)
    for i, row in enumerate(rows):
        helps = f"What to do: {row['advice']}" if row["advice"] else ""
        also = saved_above(row)
        row["in_full"] = f"{also}{helps} Why: {row['says']}".strip()
        row["in_short"] = None
        if i == 0:
            row["in_short"] = f"{helps} Why: {sentences_of(row['says'])[0]}".strip()
        elif row["gain_ps"] is None:
            # The reason says how much time the cause takes.
            row["in_short"] = sentences_of(row["says"])[0]
            if helps and (row.get("unknown_ps") or 0) > largest_gain:
                row["in_short"] = f"{sentences_of(helps)[0]} Why: {row['in_short']}"
        elif helps or also:
            row["in_short"] = f"{also}{sentences_of(helps)[0] if helps else ''}".strip()
    return rows


def saved_above(cause: Json) -> str:
    """Say so if the causes above already save most of what a cause gains."""
    gain, after = cause["gain_ps"], cause.get("gain_after_ps")
    if gain is None or after is None or 2 * after >= gain:
        return ""
    more = f"only {time(after)}" if after else "nothing"
    return f"Part of the rows above: without what they cost, this gains {more}. "
