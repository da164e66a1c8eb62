"""Find the causes in a step: run all rules on the step and its programs, and rank the causes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from _analysis.causes import DEVICES, NAMES, PAUSES, PROGRAM, Rule, rule_named
from _analysis.causes.shared.cause import SMALLEST_PART, Cause, StepFacts
from _analysis.causes.shared.sentences import about, line_says, listed
from _analysis.causes.shared.step_program import StepProgram, place_of_cause
from _pipeline.groups import Group, grouped, percent

Json = dict[str, Any]

N_OPS_NAMED = 10


def causes_of(facts: StepFacts) -> list[Json]:
    """Return a row for each cause, sorted by gain, largest first.

    Causes without a headline, such as recomputation, come after all other causes that cost time,
    because their gain can be far smaller than the estimate: in two examined pairs of captures that
    differ only in recomputation, the step without it was even slower. Causes that cost only memory
    come last.
    """
    rules = [rule_named(name) for name in NAMES]
    programs = programs_of(facts)
    for rule in rules:
        causes = found_by(rule, facts, programs)
        facts.found[rule.name] = [cause._replace(name=rule.name) for cause in causes]
    if facts.ledger and not programs:
        names = listed([rule.name for rule in rules if rule.needs != PROGRAM])
        facts.context.warn(
            "the capture does not contain the program of this step, so causes can only include"
            f" {names}"
        )
    large = [cause for name in NAMES for cause in facts.found[name] if is_large(cause, facts)]
    is_last = {rule.name: rule.headline is None for rule in rules}
    large.sort(
        key=lambda cause: (
            not cause.gain_ps,
            is_last[cause.name],
            -cause.gain_ps,
            -(cause.gain_bytes or 0),
        )
    )
    facts.context.warn(*overlap_notes(large))
    return [row_of(cause, facts) for cause in large]


def programs_of(facts: StepFacts) -> list[StepProgram]:
    """Return the programs of the step that take enough of its time."""
    entries_of = grouped((entry.executions.op.program_id, entry) for entry in facts.ledger)
    programs = []
    for entries in entries_of.values():
        program = entries[0].executions.op.program
        total = sum(entry.total for entry in entries)
        if program is not None and total * SMALLEST_PART >= facts.step.duration:
            programs.append(StepProgram(facts, program, entries))
    return programs


def found_by(rule: Rule, facts: StepFacts, programs: Sequence[StepProgram]) -> Iterator[Cause]:
    """Yield the causes of a rule if the capture has what the rule needs."""
    if rule.needs == PROGRAM:
        for program in programs:
            yield from rule.module.find(program)
    elif rule.needs == DEVICES:
        if facts.peers:
            yield from rule.module.find(facts, facts.peers)
    elif rule.needs == PAUSES:
        # Reading the host's events takes time, so read them only if there is a pause.
        periods = facts.periods
        if periods and periods.mean_pause * SMALLEST_PART >= periods.mean > 0:
            yield from rule.module.find(facts, periods)
    else:
        yield from rule.module.find(facts)


def is_large(cause: Cause, facts: StepFacts) -> bool:
    duration = cause.period_ps or facts.step.duration
    return bool(cause.gain_bytes) or cause.gain_ps * SMALLEST_PART >= max(duration, 1)


def overlap_notes(causes: Sequence[Cause]) -> list[str]:
    """Return a note that lists the causes that share executions, if there are any."""
    members = [{executions.metadata_id for executions in cause.executions} for cause in causes]
    overlapping = [
        cause.name
        for i, (cause, mine) in enumerate(zip(causes, members, strict=True))
        if any(mine & others for j, others in enumerate(members) if j != i)
    ]
    if not overlapping:
        return []
    names = listed(list(dict.fromkeys(overlapping)))
    return [f"don't add up the gains of {names}, because they share executions"]


def row_of(cause: Cause, facts: StepFacts) -> Json:
    place = place_of_cause(cause)
    duration = facts.step.duration
    says = cause.says.replace("<line>", line_says(place))
    return {
        "cause": cause.name,
        "gain_ps": cause.gain_ps,
        "gain_pct_of_step": percent(cause.gain_ps, cause.period_ps or duration) or 0.0,
        "unknown_ps": cause.unknown_ps,
        "gain_bytes": cause.gain_bytes,
        "source_inner": place.source_inner,
        "source_user": place.source_user,
        "scope": place.scope,
        "says": says.replace("<gain>", about(cause.gain_ps, duration)),
        "what_helps": cause.what_helps,
        "evidence": evidence_row(cause),
        "confidence": cause.confidence,
    }


def evidence_row(cause: Cause) -> Json:
    of_ops = Group(sorted(cause.executions, key=lambda ran: (-ran.total, ran.op.name)))
    return {
        "ops": [member.op.name for member in of_ops.members[:N_OPS_NAMED]],
        "n_ops": len(of_ops.members),
        "dur_ps": of_ops.total,
        **{name: figure for name, figure in cause.evidence.items() if figure is not None},
    }
