"""Leave out of an answer what says nothing new; `--all` prints it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from _breakdown.output.phrases import sentences_of
from _breakdown.units import time

Json = dict[str, Any]

# Fields of rows that are left out if they are null.
UNLESS_NULL = (
    "frees_bytes",
    "gain_bytes",
    "hideable_ps",
    "kernel",
    "loop",
    "n_executions",
    "unknown_ps",
    "waits_for",
)
# Fields of `totals` that are kept; `summary` has the sums.
TOTALS = ("common_line", "peers")
# Ops that are evidence for a cause; `n_ops` has their number.
N_OPS = 3


def without_repetition(answer: Json, lists: Sequence[str]) -> Json:
    """Return an answer whose `lists` name each line once, and say each advice once."""
    told: set[str] = set()
    totals = answer["totals"]
    return {
        **answer,
        **{name: [brief(row, told) for row in answer[name]] for name in lists},
        "budget": [without(row, nulls_of(row)) for row in answer["budget"] if row["dur_ps"]],
        "totals": {name: totals[name] for name in TOTALS if name in totals},
    }


def brief(row: Json, told: set[str]) -> Json:
    """Return a row without null figures, further names of its line, its time by class unless it
    shows what part of the cost is unknown, and advice that was `told`."""
    left_out = nulls_of(row)
    if len(row.get("classes", ())) < 2 or not {"kernel", "unjudged"} & row["classes"].keys():
        left_out.add("classes")
    if row["source_user"]:
        left_out.add("source_inner")
    if row["source_user"] or row["source_inner"]:
        left_out.add("agg_key")
    if row.get("n_scopes") == 1:
        left_out.add("n_scopes")
    if row.get("gain_after_ps") == row.get("gain_ps"):
        left_out.add("gain_after_ps")
    advice = row.get("what_helps")
    if advice in told:
        left_out.add("what_helps")
    elif advice:
        told.add(advice)
    kept = without(row, left_out)
    if "evidence" in kept:
        kept["evidence"] = {**row["evidence"], "ops": row["evidence"]["ops"][:N_OPS]}
        kept["says"] = without_gain(row)
    return kept


def without_gain(cause: Json) -> str:
    """Return what a cause says, without a second sentence that repeats the gain. What the change
    frees is not in the row."""
    if cause["frees_bytes"]:
        says: str = cause["says"]
        return says
    first, *others = sentences_of(cause["says"])
    gain = f"about {time(cause['gain_ps'])}" if cause["gain_ps"] else None
    return " ".join([first, *(text for text in others if gain is None or gain not in text)])


def nulls_of(row: Json) -> set[str]:
    return {name for name in UNLESS_NULL if row.get(name, 0) is None}


def without(row: Json, names: Collection[str]) -> Json:
    return {name: value for name, value in row.items() if name not in names}
