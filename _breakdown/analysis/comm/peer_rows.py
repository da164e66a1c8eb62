"""Build the fields that are null without `--peers`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from _breakdown.analysis.comm.transfers import Transfer
from _breakdown.pipeline.groups import percent

Json = dict[str, Any]

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _breakdown.analysis.comm.peers import DeviceWaits, Peers


def peer_fields(peers: Peers | None, transfers: Sequence[Transfer]) -> Json:
    """Return a row's fields about late devices, summed over its transfers; all fields are null
    without `--peers`."""
    waits = peers.waits_of(transfers) if peers else None
    is_matched = waits is not None and waits.n_matched > 0
    last = waits.last_device if waits else None
    return {
        "transfer_ps": waits.transfer if waits and is_matched else None,
        "peer_wait_ps": waits.peer_wait if waits and is_matched else None,
        "n_unmatched": waits.n_unmatched if waits else None,
        "last_device": last,
        "last_pct": percent(waits.caused[last], waits.waiting) if waits and last else None,
    }


def peer_totals(peers: Peers | None, transfers: Sequence[Transfer]) -> Json | None:
    """Build the totals for `--peers` from transfers between devices; None without `--peers`."""
    if peers is None:
        return None
    is_alone = len(peers.devices) == 1
    waits = peers.waits_of(transfers)
    exposed = sum(transfer.total for transfer in transfers)
    return {
        "n_devices": len(peers.devices),
        "complete": None if is_alone else peers.is_complete,
        "transfer_ps": None if is_alone else waits.transfer,
        "peer_wait_ps": None if is_alone else waits.peer_wait,
        "unmatched_ps": None if is_alone else exposed - waits.transfer - waits.peer_wait,
        "by_device": [] if is_alone else [device_row(waits) for waits in peers.devices],
    }


def device_row(waits: DeviceWaits) -> Json:
    return {
        "device": waits.device.name,
        "peer_wait_ps": waits.peer_wait,
        "n_last": waits.n_last,
        "caused_ps": waits.caused,
        "barrier_ps": waits.device.sums.barrier,
    }
