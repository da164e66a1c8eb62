"""Find a device that is slower than the other devices, so that the others wait in collectives.

    device 0   |--math--|=======wait=======|--math--|=======wait=======|
    device 1   |-----------math------------|-----------math------------|

The slow device has more work (for example, an expert that receives most tokens, or a longer shard),
or its chip is slower. A device is reported by the rule of the mode `spread`: it has the largest
load (step duration minus communication), by at least 0.5 % of the step. Only one step is read on
each device, so chance is not excluded and the cause is always `likely`; `spread` reads all steps.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Final

from _analysis.causes.cause import LIKELY, Cause, Evidence, Place
from _analysis.causes.sentences import about, short
from _analysis.causes.step_program import place_of
from _analysis.comm.cohorts import Cohort, DeviceLoads, Member
from _analysis.comm.peer_devices import PeerDevice
from _analysis.comm.peers import Peers
from _analysis.comm.stragglers import costs, lead_of
from _analysis.remedies import CAUSES
from _analysis.report import program_id_of
from _pipeline.normalize import Step
from _pipeline.vocabulary import COMM
from _units import time

NAME: Final = "slow_device"


def find(step: Step, peers: Peers) -> list[Cause]:
    """Return the cause if a device is slow. Windows other than a single step have no cause, because
    captures begin and end at different times on different devices."""
    program = program_id_of(step)
    devices = {
        waits.device.name: waits.device
        for waits in peers.devices
        if program in waits.device.programs
    }
    if step.picked is None or len(devices) < 2:
        return []
    cohort = Cohort(map(member_of, devices.values()))
    suspect, median = cohort.suspect(), cohort.median()
    lead = lead_of(cohort, suspect)
    if not costs(cohort, lead):
        return []
    return [cause_of(step, devices[suspect.name[1]], devices[median.name[1]], lead)]


def member_of(device: PeerDevice) -> Member:
    """Return a device as a member of a cohort whose only step is the picked one. It has no
    records."""
    return Member(DeviceLoads("", device.name, "", None, {None: device.load}), list, 0)


def cause_of(step: Step, slow: PeerDevice, median: PeerDevice, gain: int) -> Cause:
    excess = {line: time - median.lines.get(line, 0) for line, time in slow.lines.items()}
    line = max(excess, key=excess.__getitem__, default=None)
    at_line = []
    says = (
        f"On {slow.name}, the step without communication takes {about(gain, step)} longer than on"
        " any other device"
    )
    if line and excess[line] > 0:
        says += f", and {short(line)} takes {time(excess[line])} longer than on {median.name}"
        at_line = [
            executions
            for executions in step.leaves
            if executions.op.kind != COMM and executions.op.source_user == line
        ]
    else:
        line = None
    says += ". One step can be chance; `--mode spread` compares all steps."
    longest = max(at_line, key=attrgetter("total"), default=None)
    place = place_of(longest.op) if longest else Place(line, None, None)
    return Cause(
        NAME,
        gain,
        says,
        CAUSES[NAME],
        LIKELY,
        Evidence(at_line, device=slow.name),
        *place,
    )
