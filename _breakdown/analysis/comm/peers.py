"""Determine whether communication waits for a late device or for the network.

All devices that take part run the k-th execution of a collective together. The device that arrives
last does not wait, so its execution is the shortest and equals the transfer time. On every other
device, the rest of the execution is time spent waiting for the last device, as in this example:

    device 0   |---math---|============all-reduce============|   transfer + waiting
    device 1   |----------math----------|=====all-reduce=====|   transfer
    device 2   |---math----|===========all-reduce============|   transfer + waiting

Only durations are compared. Each core measures them with its own clock, so the devices' clocks need
not agree.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from _breakdown.analysis.comm.transfers import Transfer, transfers_in
from _breakdown.analysis.devices.peer_devices import (
    CollectiveRun,
    PeerDevice,
    executions_by_place,
    read_peers,
)
from _breakdown.analysis.roof.ledger import LedgerEntry, avoidable
from _breakdown.light import NamedTuple
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.device import Device, number_of, tpus_of
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.ops import Op, Place
from _breakdown.pipeline.vocabulary import HOST
from _proto.trace.trace import global_core_id

PERMUTE: Final = "collective-permute"
# Each of these transfers has a single partner, which the trace does not identify.
_WITHOUT_PEERS = (HOST, "send", "recv")


class Waits:
    """Sums over executions of collectives on the picked device; times are in picoseconds."""

    __slots__ = ("caused", "n_matched", "n_unmatched", "peer_wait", "transfer", "waiting")

    def __init__(self) -> None:
        self.n_matched = self.n_unmatched = self.transfer = self.peer_wait = 0
        # Waiting time of all devices that take part, in total and by the device that causes it.
        self.waiting = 0
        self.caused: Counter[str] = Counter()

    def add(self, other: Waits) -> None:
        self.n_matched += other.n_matched
        self.n_unmatched += other.n_unmatched
        self.transfer += other.transfer
        self.peer_wait += other.peer_wait
        self.waiting += other.waiting
        self.caused += other.caused

    @property
    def last_device(self) -> str | None:
        """Return the device that causes more than half of the waiting; None if no device does."""
        return next((name for name, time in self.caused.items() if 2 * time > self.waiting), None)


class DeviceWaits:
    """The time that a device waits for others, and the total time that others wait for it, in
    picoseconds."""

    def __init__(self, device: PeerDevice) -> None:
        self.device = device
        self.peer_wait = self.caused = 0
        # Number of executions in which this device alone arrived last.
        self.n_last = 0


class Peers(NamedTuple):
    """The time that devices wait for each other, by op of the picked device and by device."""

    # Waiting times at the ops of the picked device, keyed by metadata id.
    of_ops: dict[int, Waits]
    # All devices sorted by number, including the picked device.
    devices: list[DeviceWaits]
    # True if every device that takes part in a matched execution is known to be in the file.
    is_complete: bool

    def waits_of(self, transfers: Iterable[Transfer]) -> Waits:
        waits = Waits()
        for transfer in transfers:
            of_op = self.of_ops.get(transfer.ran.metadata_id)
            if of_op is None:
                # A transfer to or from the host has no peers.
                waits.n_unmatched += transfer.n
            else:
                waits.add(of_op)
                # A start waits for no other device.
                waits.transfer += transfer.begun if of_op.n_matched else 0
        return waits

    def time_waiting_in(self, metadata_ids: Iterable[int]) -> int:
        """Return how long the picked device waits for late devices in the given ops."""
        return sum(self.of_ops[i].peer_wait for i in metadata_ids if i in self.of_ops)

    def without_waits(self, ledger: Iterable[LedgerEntry]) -> list[LedgerEntry]:
        """Return the ledger as if no device were late, so collectives take as long as transfers.

        Without a collective, or if it overlaps with math, the device waits for the late device
        elsewhere.
        """
        found = []
        for entry in ledger:
            waiting = self.time_waiting_in([entry.ran.metadata_id])
            found.append(avoidable(entry.ran.without(waiting)) if waiting else entry)
        return found


def peers_of(step: Step, context: Context) -> Peers:
    """Read the other devices of the file, and match their executions with those of the step."""
    peers, notes = step.once(peers_of, lambda: _peers_of(step, context))
    context.warn(*notes)
    return peers


def _peers_of(step: Step, context: Context) -> tuple[Peers, list[str]]:
    # The host is no peer.
    transfers = transfers_in(step, lambda op: op.waits_for != HOST)
    places = {transfer.ran.metadata_id: transfer.op.place for transfer in transfers}
    found, notes = read_peers(step, context)
    devices = [DeviceWaits(peer) for peer in found]
    of_ops = {metadata_id: Waits() for metadata_id in places}
    # Metadata entries with the same program and name are the same op.
    transfer_at = {transfer.op.place: transfer for transfer in reversed(transfers)}
    groups = _Members(step.device, found)
    is_complete = True
    for place, executions in executions_by_place(step, places).items():
        names, has_all = groups.of(transfer_at[place])
        members = [member for member in devices if member.device.name in names]
        if _match(place, executions, members, of_ops):
            is_complete &= has_all
    notes += _notes(found, is_complete=is_complete)
    return Peers(of_ops, devices, is_complete), notes


def _match(
    place: Place,
    executions: Sequence[CollectiveRun],
    members: Sequence[DeviceWaits],
    of_ops: Mapping[int, Waits],
) -> bool:
    """Add a collective's executions to the sums of its ops and devices, and return True. Return
    False if there are fewer than two members, or if they ran the collective different numbers of
    times."""
    durations = [member.device.durations.get(place, []) for member in members]
    if len(members) < 2 or any(len(of_member) != len(executions) for of_member in durations):
        for execution in executions:
            of_ops[execution.metadata_id].n_unmatched += 1
        return False
    for execution, lasted in zip(executions, zip(*durations, strict=True), strict=True):
        waits = of_ops[execution.metadata_id]
        shortest = min(lasted)
        waiting = sum(lasted) - shortest * len(lasted)
        waits.n_matched += 1
        waits.transfer += shortest
        waits.peer_wait += execution.duration - shortest
        waits.waiting += waiting
        for member, duration in zip(members, lasted, strict=True):
            member.peer_wait += duration - shortest
        if lasted.count(shortest) == 1:
            last = members[lasted.index(shortest)]
            last.n_last += 1
            last.caused += waiting
            waits.caused[last.device.name] += waiting
    return True


class _Members:
    """Finds the devices that take part in a collective of the picked device."""

    def __init__(self, device: Device, peers: Sequence[PeerDevice]) -> None:
        self._device = device
        self._peers = {peer.name: peer for peer in peers}
        # For each program: the device at each position of the program's device assignment.
        self._devices_at: dict[int | None, dict[int, str]] = {}

    def of(self, transfer: Transfer) -> tuple[set[str], bool]:
        """Return the names of the devices that take part, and whether all of them are known to be
        in the file.

        If the picked device's group is unknown, return all devices that ran the program. All groups
        of a collective move the same number of bytes, so the shortest execution in any group is the
        transfer time of every group.
        """
        op, who = transfer.op, transfer.exchange.who
        is_permute = transfer.collective == PERMUTE
        if transfer.collective in _WITHOUT_PEERS or op.waits_for == HOST or not op.name:
            return set(), False
        if is_permute and not who.groups:
            return set(), False
        names = {peer.name for peer in self._peers.values() if op.program_id in peer.programs}
        # The groups of a permute, and those that list replicas, can omit devices of the program.
        n_devices = sum(map(len, who.groups or ()))
        if op.program:
            n_devices = max(n_devices, op.program.n_devices or 0)
        has_all = 0 < n_devices <= len(names)
        devices_at = self._places(op)
        own = next((i for i, name in devices_at.items() if name == self._device.plane.name), None)
        if own is not None and who.groups and (is_permute or len(who.groups) > 1):
            group = next((group for group in who.groups if own in group), (own,))
            if all(place in devices_at for place in group):
                return {devices_at[place] for place in group}, True
            has_all = False
        return (names, has_all) if who.is_even else (set(), False)

    def _places(self, op: Op) -> dict[int, str]:
        """Map positions in the program's device assignment to the devices in the file.

        Devices are identified by global id. If global ids are missing or not unique, devices are
        identified by number. This requires that the assignment consists of exactly the numbers of
        the devices in the file.
        """
        if op.program_id not in self._devices_at:
            names = tpus_of(self._device)
            ids = (op.program and op.program.device_ids) or []
            by_id = {self._core_id(name): name for name in names}
            if None in by_id or len(by_id) < len(names):
                by_id = {number_of(name): name for name in names}
                if by_id.keys() != set(ids):
                    by_id = {}
            self._devices_at[op.program_id] = {
                place: by_id[device_id]
                for place, device_id in enumerate(ids)
                if by_id.get(device_id) in self._peers
            }
        return self._devices_at[op.program_id]

    def _core_id(self, name: str) -> int | None:
        if name in self._peers:
            return self._peers[name].core_id
        # The device was left out, for example because it does not have the step.
        return global_core_id(self._device.trace.plane(name).stats())


def _notes(peers: Sequence[PeerDevice], *, is_complete: bool) -> list[str]:
    if len(peers) < 2:
        return [
            "other devices: no other device in this file has the step, so nothing can be compared"
        ]
    notes = []
    if not is_complete:
        notes.append(
            "other devices: if this file lacks devices that take part in collectives, some of the"
            " transfer may be waiting for them"
        )
    fitted = [peer.name for peer in peers if not peer.is_measured]
    if fitted:
        notes.append(
            f"other devices: {', '.join(fitted)}: the core measured no durations, so they are"
            " fitted to the host's clock and can be 0"
        )
    for note in dict.fromkeys(note for peer in peers for note in peer.notes):
        names = [peer.name for peer in peers if note in peer.notes]
        notes.append(f"other devices: {', '.join(names)}: {note}")
    return notes
