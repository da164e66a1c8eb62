"""Collect the facts about a step from which rules find causes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from _analysis.causes.shared.cause import StepFacts
from _analysis.idle.periods import periods_of
from _analysis.kernel.kernel_regions import inside_kernels
from _analysis.roof.ledger import COLLECTIVE, Entry
from _analysis.roof.roofs import Roofs
from _pipeline.context import Context
from _pipeline.device import tpus_of
from _pipeline.normalize import Step
from _pipeline.vocabulary import HOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    # These modules take 8 ms to import, and are needed only if devices are compared.
    from _analysis.comm.peers import Peers

Json = dict[str, Any]

# Devices are compared if collectives take at least 1/WORTH_COMPARING of the step.
WORTH_COMPARING = 20


def facts_of(
    step: Step, roofs: Roofs, ledger: Sequence[Entry], peers: Peers | None, context: Context
) -> StepFacts:
    on_time = peers.without_waits(ledger) if peers else ledger
    periods, inside = periods_of(step.device, step.picked), inside_kernels(step)
    return StepFacts(step, on_time, roofs, inside, periods, peers, context)


def has_reason_to_compare(step: Step, ledger: Sequence[Entry]) -> bool:
    """Return whether collectives take enough of a single step, and the file has other devices."""
    exposed = sum(entry.total for entry in ledger if entry.name == COLLECTIVE)
    is_worth = exposed * WORTH_COMPARING >= step.duration > 0
    return is_worth and step.picked is not None and len(tpus_of(step.device)) > 1


def read_peers(step: Step, context: Context) -> tuple[Peers, Json | None]:
    """Read the step on the other devices. Return how long devices wait for each other, and the
    sums."""
    # Import late, because these modules are needed only if devices are compared.
    from _analysis.comm.peer_rows import peer_totals
    from _analysis.comm.peers import peers_of
    from _analysis.comm.transfers import transfers_in

    transfers = transfers_in(step, lambda op: op.waits_for != HOST)
    peers = peers_of(step, transfers, context)
    return peers, peer_totals(peers, transfers)
