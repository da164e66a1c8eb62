"""Find the causes in a step: run all rules on the step and its programs, and rank the causes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count
from typing import Any

from _breakdown.analysis.arrays.engine import Change, Engine, Gain
from _breakdown.analysis.causes import DEVICES, PAUSES, PROGRAM, RULES, SMALLEST_PART, Rule
from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause, CausePlace, StepFacts
from _breakdown.analysis.causes.shared.sentences import line_says, listed, saved, short
from _breakdown.analysis.causes.shared.step_program import StepProgram, place_of_cause
from _breakdown.analysis.idle.periods import Periods
from _breakdown.analysis.memory.free import Freed, freed_by, sizes_after
from _breakdown.light import NamedTuple
from _breakdown.pipeline import frames
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.groups import Group, grouped, most, percent
from _breakdown.pipeline.normalize import Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    # These modules take 3 ms to import, and are needed only if pauses are long.
    from _breakdown.analysis.causes.shared.pauses import PauseGroup

Json = dict[str, Any]

N_OPS_NAMED = 10
# Memory is worth a word if it is at least 1 / `LEAST_FREED` of the program's peak.
LEAST_FREED = 50


class RankedCause(NamedTuple):
    """A cause with its gain; `after` is the gain after all causes above are removed.

    The gain is unknown if the range has no ends.
    """

    cause: Cause
    gain: Gain
    after: int | None = None

    @property
    def is_known(self) -> bool:
        return self.gain.low is not None

    @property
    def is_certain(self) -> bool:
        """Return whether even the smallest gain of the range is a gain."""
        return bool(self.gain.low)

    @property
    def affected(self) -> int:
        """Return the time of the ops that the cause affects."""
        return Group(list(self.cause.executions)).total


def causes_of(facts: StepFacts) -> list[RankedCause]:
    """Return the causes, sorted by gain, largest first.

    Causes that may gain nothing come after those that surely gain something, then causes of unknown
    gain, and then causes that cost only memory.
    """
    programs, pauses = programs_of(facts), pauses_of(facts.step, facts.periods, facts.context)
    if facts.ledger and not programs:
        names = listed([rule.name for rule in RULES if rule.needs != PROGRAM])
        facts.context.warn(
            "the capture does not contain the program of this step, so causes can only include"
            f" {names}"
        )
    engine = Engine(
        facts.ledger,
        lambda: facts.arrays,
        {program.program: program.links for program in programs}.get,
    )
    large: list[RankedCause] = []
    for rule in RULES:
        causes = [
            RankedCause(cause._replace(name=rule.name), gain_of(cause, engine))
            for cause in joined_by_line(found_by(rule, facts, programs, pauses))
        ]
        # What is omitted explains nothing to the rules below.
        new = [found for found in causes if is_large(found, facts.step)]
        facts.found[rule.name] = [found.cause for found in new]
        large += new
    large.sort(key=order_of)
    return list(with_gains_after(large, engine))


def order_of(found: RankedCause) -> tuple[bool, bool, bool, int, int]:
    """Return the key by which causes are sorted."""
    n_bytes = found.cause.gain_bytes or 0
    time = found.gain.estimate if found.is_known else found.affected
    return bool(n_bytes), not found.is_known, not found.is_certain, -time, -n_bytes


def gain_of(cause: Cause, engine: Engine) -> Gain:
    if cause.measured:
        return cause.measured
    gain = engine.without(cause.changes) if cause.changes else Gain(0, None, None)
    return gain._replace(low=0) if cause.can_lose and gain.low else gain


def with_gains_after(found: Iterable[RankedCause], engine: Engine) -> Iterator[RankedCause]:
    """Add the gain that each cause has after the causes above it are removed."""
    above: list[Change] = []
    saved = 0
    for each in found:
        if not each.is_known:
            yield each
        elif each.cause.measured:
            yield each._replace(after=each.gain.estimate)
        else:
            is_first = not above
            above += each.cause.changes
            together = each.gain.estimate if is_first else engine.without(above).estimate
            yield each._replace(after=max(0, together - saved))
            saved = together


def pauses_of(step: Step, periods: Periods | None, context: Context) -> list[PauseGroup]:
    """Return the groups of pauses between steps; none if they are too short to be a cause."""
    if not periods:
        return []
    mean_pause = periods.mean_of([*periods.pauses, *periods.inside])
    if not mean_pause * SMALLEST_PART >= periods.mean > 0:
        return []
    # Import late, because most steps have no long pauses.
    from _breakdown.analysis.causes.shared.pauses import groups_of

    return groups_of(step, periods, context)


def programs_of(facts: StepFacts) -> list[StepProgram]:
    """Return the programs of the step that take enough of its time."""
    entries_of = grouped((entry.ran.op.program_id, entry) for entry in facts.ledger)
    programs = []
    for entries in entries_of.values():
        program = entries[0].ran.op.program
        total = sum(entry.total for entry in entries)
        if program is not None and total * SMALLEST_PART >= facts.step.duration:
            programs.append(StepProgram(facts, program, entries))
    return programs


def found_by(
    rule: Rule, facts: StepFacts, programs: Sequence[StepProgram], pauses: Sequence[PauseGroup]
) -> Iterator[Cause]:
    """Yield the causes of a rule if the capture has what the rule needs."""
    if rule.needs == PROGRAM:
        for program in programs:
            yield from rule.module.find(program)
    elif rule.needs == DEVICES:
        if facts.peers:
            yield from rule.module.find(facts, facts.peers)
    elif rule.needs == PAUSES:
        if pauses:
            yield from rule.module.find(pauses)
    else:
        yield from rule.module.find(facts)


def pause_causes(step: Step, periods: Periods | None, context: Context) -> list[Cause]:
    """Return the causes of pauses that `bottleneck` shows, largest gain first."""
    groups = pauses_of(step, periods, context)
    rules = [rule for rule in RULES if rule.needs == PAUSES and groups]
    found = [
        RankedCause(cause._replace(name=rule.name), cause.measured)
        for rule in rules
        for cause in joined_by_line(rule.module.find(groups))
        if cause.measured
    ]
    found.sort(key=lambda each: -each.gain.estimate)
    return [each.cause for each in found if is_large(each, step)]


def joined_by_line(causes: Iterable[Cause]) -> Iterator[Cause]:
    """Join the causes of a rule at one line that have the same remedy: they are one fault, for
    example in the forward and the backward pass, or for arrays of several shapes."""
    apart = count()

    def key_of(cause: Cause) -> Any:
        line = cause.place and (cause.place.source_user or cause.place.source_inner)
        return (line, cause.what_helps) if line and not cause.measured else next(apart)

    # Many ops can be in the way to a place, so find it only once.
    placed = (cause._replace(place=place_of_cause(cause)) for cause in causes)
    for alike in grouped((key_of(cause), cause) for cause in placed).values():
        most_time = max(alike, key=lambda cause: Group(list(cause.executions)).total)
        yield most_time if len(alike) == 1 else joined(most_time, alike)


def joined(main: Cause, alike: Sequence[Cause]) -> Cause:
    """Join causes; the sentence and the evidence are those of `main`, which says so."""
    return main._replace(
        says=main.says.replace("<line>", f"<line> (one of {len(alike)} such places)", 1),
        confidence=max((cause.confidence for cause in alike), key=(SEEN, LIKELY).index),
        executions=list(dict.fromkeys(ran for cause in alike for ran in cause.executions)),
        changes=[change for cause in alike for change in cause.changes],
        can_lose=all(cause.can_lose for cause in alike),
        gain_bytes=sum(cause.gain_bytes or 0 for cause in alike) or None,
    )


def is_large(found: RankedCause, step: Step) -> bool:
    """Return whether a cause gains enough of the step, or affects enough of it if there is no
    estimate."""
    cause = found.cause
    duration = max(1, cause.period_ps or step.duration)
    has_estimate = cause.changes or cause.measured
    time = found.gain.estimate if has_estimate else found.affected
    return bool(cause.gain_bytes) or time * SMALLEST_PART >= duration


def freed_of(cause: Cause, facts: StepFacts) -> Freed | None:
    """Return the memory that the changes of a cause free, if it is worth a word."""
    if not cause.changes:
        return None
    sizes = sizes_after(cause.changes, facts.arrays)
    program = next(iter({value.instruction.program for value in sizes}), None)
    freed = freed_by(sizes, facts.arrays, program) if program else None
    return freed if freed and freed.n_bytes * LEAST_FREED >= freed.peak > 0 else None


def row_of(found: RankedCause, facts: StepFacts) -> Json:
    cause, gain = found.cause, found.gain
    freed = freed_of(cause, facts)
    place = place_of_cause(cause)
    duration = cause.period_ps or facts.step.duration
    is_known = gain.low is not None
    says = cause.says.replace("<line>", line_says(place) + caller_says(cause, place))
    return {
        "cause": cause.name,
        "gain_ps": gain.estimate if is_known else None,
        "gain_range_ps": [gain.low, gain.high] if is_known else None,
        "gain_after_ps": found.after,
        "gain_pct_of_step": percent(gain.estimate, duration) if is_known else None,
        "unknown_ps": None if is_known or cause.gain_bytes else found.affected,
        "gain_bytes": cause.gain_bytes,
        "frees_bytes": freed.n_bytes if freed else None,
        "source_inner": place.source_inner,
        "source_user": place.source_user,
        "scope": place.scope,
        "says": says.replace("<gain>", saved(gain, freed)),
        "what_helps": cause.what_helps,
        "evidence": evidence_row(cause),
        "confidence": cause.confidence,
    }


def caller_says(cause: Cause, place: CausePlace) -> str:
    """Return ` (called at LINE)` for a line of an installed package, if stacks contain the line of
    the user's files that leads to it."""
    if not place.source_user or not frames.package_of(place.source_user):
        return ""
    callers = [
        (line, ran.total)
        for ran in cause.executions
        if ran.op.stack and ran.op.source_user == place.source_user
        if (line := ran.op.stack.innermost_own(frames.is_in_no_package))
    ]
    return f" (called at {short(most(callers))})" if callers else ""


def evidence_row(cause: Cause) -> Json:
    of_ops = Group(sorted(cause.executions, key=lambda ran: (-ran.total, ran.op.name)))
    return {
        "ops": [member.op.name for member in of_ops.members[:N_OPS_NAMED]],
        "n_ops": len(of_ops.members),
        "dur_ps": of_ops.total,
        **{name: figure for name, figure in cause.evidence.items() if figure is not None},
    }
