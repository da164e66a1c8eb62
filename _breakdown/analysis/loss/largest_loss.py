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
from _breakdown.analysis.roof.ledger import UNJUDGED, LedgerEntry
from _breakdown.analysis.roof.limits import roofs_missed
from _breakdown.analysis.source.likely_lines import NO_LINE
from _breakdown.analysis.source.rows import likely_fields, scope_fields
from _breakdown.pipeline.groups import percent

Json = dict[str, Any]
Line = Sequence[Finding]


def loss_row(lines: Sequence[Line], losses: Losses, facts: StepFacts, idle: int) -> Json | None:
    """Return the largest loss without a known cause: one that gains at least half of the loss.
    Return None if no time is lost."""
    line, of_line = largest_line(lines, losses)
    periods = facts.periods
    pause = periods.mean_pause if periods and periods.picked else 0
    explained = losses.explained_pauses
    lost = idle + pause - explained if 2 * explained < idle + pause else 0
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
    return row_of(line, of_line, facts, losses) if line else None


def row_of(line: Line, lost: int, facts: StepFacts, losses: Losses) -> Json:
    worst = max(line, key=losses.of)
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


def largest_line(lines: Sequence[Line], losses: Losses) -> tuple[Line | None, int]:
    """Return the line without a known cause that loses the most time, and that time without what
    known causes gain there."""
    found, most = None, 0
    for line in lines:
        # Lines are sorted by weight, and lose at most that.
        if weight_of(line) <= most:
            break
        if (lost := losses.without_causes(line)) > most:
            found, most = line, lost
    return found, most


class Losses:
    """Tells what lines lose, and how much of it known causes explain: causes that surely gain
    something.

    Math of unknown cost counts as lost if it is the worst of its line, unless the capture has no
    costs at all. Time in which the device waits for a late one does not count, because
    `slow_device` explains it.
    """

    def __init__(self, causes: Sequence[RankedCause], ledger: Sequence[LedgerEntry]) -> None:
        self.causes = [found for found in causes if found.is_certain]
        # A call explains a pause in which it waits, although other work may follow.
        self.explained_pauses = sum(
            found.gain.estimate
            for found in causes
            if RULE_NAMED[found.cause.name].needs == PAUSES
            and (found.is_certain or place_of_cause(found.cause).source_user)
        )
        self._places = [place_of_cause(found.cause).source_user for found in self.causes]
        self._known = {entry.ran.metadata_id: entry.lost or 0 for entry in ledger}
        self._at_most = dict(self._known)
        if any(entry.at_roof for entry in ledger):
            unjudged = (entry for entry in ledger if entry.name == UNJUDGED)
            self._at_most |= {entry.ran.metadata_id: entry.total for entry in unjudged}
        self._affected = [
            {ran.metadata_id for ran in found.cause.executions} for found in self.causes
        ]

    def without_causes(self, line: Line) -> int:
        """Return the time that a line loses without what causes gain there; 0 if a cause explains
        at least half of it."""
        ids = {ran.metadata_id for finding in line for ran in finding.group.members}
        lost_by_op = self._times(line[0])
        lost, gained = sum(map(lost_by_op.__getitem__, ids)), 0
        for found, ops, place in zip(self.causes, self._affected, self._places, strict=True):
            is_there = place == line[0].likely.line_user
            shared = sum(map(lost_by_op.__getitem__, ids & ops))
            if 2 * min(lost if is_there else shared, found.gain.estimate) >= lost:
                return 0
            gained += min(shared, found.gain.estimate)
        return max(0, lost - gained)

    def explain(self, finding: Finding) -> bool:
        """Return whether known causes explain what a finding loses."""
        return bool(self.of(finding)) and not self.without_causes([finding])

    def of(self, finding: Finding) -> int:
        lost_by_op = self._times(finding)
        return sum(lost_by_op[ran.metadata_id] for ran in finding.group.members)

    def _times(self, worst: Finding) -> dict[int, int]:
        """Return what each op loses in a line with this worst finding."""
        return self._at_most if worst.name == UNJUDGED else self._known
