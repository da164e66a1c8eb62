"""Collect the facts about a step from which rules find causes, for `bottleneck` and for records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from _breakdown.analysis.causes import DEVICES, PAUSES, PROGRAM, REGIONS, RULES, Rule
from _breakdown.analysis.causes.shared.cause import StepFacts
from _breakdown.analysis.causes.shared.find import causes_of, row_of
from _breakdown.analysis.idle.periods import periods_of
from _breakdown.analysis.kernel.kernel_regions import inside_kernels
from _breakdown.analysis.roof.costs import costs_by_kernel
from _breakdown.analysis.roof.ledger import COLLECTIVE, LedgerEntry, ledger_of
from _breakdown.analysis.roof.roofs import Roofs, roofs_of
from _breakdown.light import NamedTuple
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.device import tpus_of
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.vocabulary import COMPUTE, HOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    # These modules take 8 ms to import, and are needed only if devices are compared.
    from _breakdown.analysis.comm.peers import Peers

Json = dict[str, Any]

# Devices are compared if collectives take at least 1/_WORTH_COMPARING of the step.
_WORTH_COMPARING = 20


class FoundCauses(NamedTuple):
    """The rows of the causes of a step, and the names of all causes that its capture can show."""

    causes: list[Json]
    examined: list[str]
    facts: StepFacts


def found_by_default(step: Step, context: Context) -> FoundCauses:
    """Return the causes that `bottleneck` finds in a step if it has no options."""
    roofs = roofs_of(step.device, None, {})
    ledger = ledger_of(step, roofs, costs_by_kernel(step.by_kind[COMPUTE], (), context))
    is_compared = has_reason_to_compare(step, ledger)
    peers = read_peers(step, context)[0] if is_compared else None
    facts = facts_of(step, roofs, ledger, peers, context)
    causes = [row_of(found, facts) for found in causes_of(facts)]
    return FoundCauses(causes, [rule.name for rule in RULES if can_find(rule, facts)], facts)


def can_find(rule: Rule, facts: StepFacts) -> bool:
    """Return whether the capture has what the rule needs, so that no cause means that the step does
    not have it."""
    leaves = facts.step.leaves
    if rule.needs == PROGRAM:
        return any(ran.op.program for ran in leaves)
    if rule.needs == DEVICES:
        return facts.step.picked is not None and len(tpus_of(facts.step.device)) > 1
    if rule.needs == PAUSES:
        return facts.periods is not None
    if rule.needs == REGIONS:
        return bool(facts.inside.of_kernel) or not any(ran.op.kernel for ran in leaves)
    return True


def facts_of(
    step: Step, roofs: Roofs, ledger: Sequence[LedgerEntry], peers: Peers | None, context: Context
) -> StepFacts:
    on_time = peers.without_waits(ledger) if peers else ledger
    periods, inside = periods_of(step.device, step.picked), inside_kernels(step)
    return StepFacts(step, on_time, roofs, inside, periods, peers, context)


def has_reason_to_compare(step: Step, ledger: Sequence[LedgerEntry]) -> bool:
    """Return whether collectives take enough of a single step, and the file has other devices."""
    exposed = sum(entry.total for entry in ledger if entry.name == COLLECTIVE)
    is_worth = exposed * _WORTH_COMPARING >= step.duration > 0
    return is_worth and step.picked is not None and len(tpus_of(step.device)) > 1


def read_peers(step: Step, context: Context) -> tuple[Peers, Json | None]:
    """Read the step on the other devices. Return how long devices wait for each other, and the
    sums."""
    # Import late, because these modules are needed only if devices are compared.
    from _breakdown.analysis.comm.peer_rows import peer_totals
    from _breakdown.analysis.comm.peers import peers_of
    from _breakdown.analysis.comm.transfers import transfers_in

    transfers = transfers_in(step, lambda op: op.waits_for != HOST)
    peers = peers_of(step, context)
    return peers, peer_totals(peers, transfers)
