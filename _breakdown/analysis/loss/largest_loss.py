"""Find the largest loss that no cause explains: that of a source line, or idle time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from _breakdown.analysis.causes import PAUSES, RULE_NAMED
from _breakdown.analysis.causes.shared.cause import StepFacts
from _breakdown.analysis.causes.shared.find import RankedCause
from _breakdown.analysis.causes.shared.step_program import place_of_cause
from _breakdown.analysis.loss.budget import IDLE
from _breakdown.analysis.loss.findings import Finding, weight_of
from _breakdown.analysis.roof.ledger import UNJUDGED
from _breakdown.analysis.roof.limits import roofs_missed
from _breakdown.analysis.source.likely_lines import NO_LINE
from _breakdown.analysis.source.rows import likely_fields, scope_fields
from _breakdown.pipeline.groups import percent

Json = dict[str, Any]
Line = Sequence[Finding]


def loss_row(
    lines: Sequence[Line], causes: Sequence[RankedCause], facts: StepFacts, idle: int
) -> Json | None:
    """Return the largest loss without a known cause: a cause that surely gains something, and at
    least half of the loss. Return None if no time is lost."""
    certain = [found for found in causes if found.is_certain]
    line, of_line = largest_line(lines, certain, facts)
    periods = facts.periods
    pause = periods.mean_pause if periods and periods.picked else 0
    explained = sum(
        found.gain.estimate for found in certain if RULE_NAMED[found.cause.name].needs == PAUSES
    )
    lost = idle + pause if 2 * explained < idle + pause else 0
    if lost > of_line:
        return {
            "class": IDLE,
            **likely_fields(NO_LINE),
            "scope": None,
            "n_scopes": 0,
            "agg_key": None,
            "hlo_op": None,
            "lost_ps": lost,
            "lost_pct": percent(lost, facts.step.duration + pause),
            **roofs_missed(()),
        }
    return row_of(line, of_line, facts) if line else None


def row_of(line: Line, lost: int, facts: StepFacts) -> Json:
    worst = line[0]
    return {
        "class": worst.name,
        **likely_fields(worst.likely),
        **scope_fields([ran for finding in line for ran in finding.group.members], worst.layers),
        "agg_key": worst.group.op.agg_key,
        "hlo_op": worst.costliest.ran.op.name,
        "lost_ps": lost,
        "lost_pct": percent(lost, facts.step.duration),
        **roofs_missed(worst.entries),
    }


def largest_line(
    lines: Sequence[Line], causes: Sequence[RankedCause], facts: StepFacts
) -> tuple[Line | None, int]:
    """Return the line without a known cause that loses the most time, and that time without what
    known causes gain there.

    Math of unknown cost counts as lost if it is the worst of its line, unless the capture has no
    costs at all. Time in which the device waits for a late one does not count, because
    `slow_device` explains it.
    """
    known = {entry.ran.metadata_id: entry.lost or 0 for entry in facts.ledger}
    at_most = dict(known)
    if any(entry.at_roof for entry in facts.ledger):
        unjudged = (entry for entry in facts.ledger if entry.name == UNJUDGED)
        at_most |= {entry.ran.metadata_id: entry.total for entry in unjudged}
    affected = [{ran.metadata_id for ran in found.cause.executions} for found in causes]
    places = [place_of_cause(found.cause).source_user for found in causes]

    def lost_in(line: Line) -> int:
        ids = {ran.metadata_id for finding in line for ran in finding.group.members}
        lost_by_op = at_most if line[0].name == UNJUDGED else known
        lost = sum(map(lost_by_op.__getitem__, ids))
        gained = 0
        for found, ops, place in zip(causes, affected, places, strict=True):
            is_there = place == line[0].likely.line_user
            shared = sum(map(lost_by_op.__getitem__, ids & ops))
            if 2 * min(lost if is_there else shared, found.gain.estimate) >= lost:
                return 0
            gained += min(shared, found.gain.estimate)
        return max(0, lost - gained)

    found, most = None, 0
    for line in lines:
        # Lines are sorted by weight, and lose at most that.
        if weight_of(line) <= most:
            break
        if (lost := lost_in(line)) > most:
            found, most = line, lost
    return found, most
