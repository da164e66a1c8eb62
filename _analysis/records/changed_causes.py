"""Find the causes that appeared, disappeared or changed in gain between two steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Json = dict[str, Any]
Cause = Mapping[str, Any]


def changed_causes(before: Sequence[Cause], after: Sequence[Cause], least: float) -> list[Json]:
    """Return the causes whose gain changes by at least `least`, largest change first.

    Causes before and after are matched by name and line. The rest are matched by name and file,
    because an edit moves the lines of a file.
    """
    left = list(before)
    rows: list[Json] = []
    pairs: dict[int, Cause] = {}
    for facts_of in (cause_at_line, cause_in_file):
        for place, cause in enumerate(after):
            same = (other for other in left if facts_of(other) == facts_of(cause))
            found = None if place in pairs else next(same, None)
            if found:
                left.remove(found)
                pairs[place] = found
    for place, cause in enumerate(after):
        rows.append(cause_row(pairs.get(place), cause))
    rows += [cause_row(cause, None) for cause in left]
    differing = [row for row in rows if abs(row["delta_ps"]) >= least]
    return sorted(differing, key=lambda row: -abs(row["delta_ps"]))


def cause_at_line(cause: Cause) -> tuple[str, str | None]:
    return cause["cause"], cause["source_user"]


def cause_in_file(cause: Cause) -> tuple[str, str]:
    return cause["cause"], (cause["source_user"] or "").rpartition(":")[0]


def cause_row(before: Cause | None, after: Cause | None) -> Json:
    shown = after or before
    assert shown
    before_ps = (before["gain_ps"] or 0) if before else 0
    after_ps = (after["gain_ps"] or 0) if after else 0
    return {
        "cause": shown["cause"],
        "source_user": after["source_user"] if after else None,
        "before_source_user": before["source_user"] if before else None,
        "before_ps": before_ps,
        "after_ps": after_ps,
        "delta_ps": after_ps - before_ps,
        "says": shown["says"],
    }
