"""Find a device that is slower than the other devices, so that the others wait in collectives."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from _breakdown.analysis.arrays.engine import Gain
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause, CausePlace, StepFacts
from _breakdown.analysis.causes.shared.sentences import short
from _breakdown.analysis.causes.shared.step_program import place_of
from _breakdown.analysis.comm.peers import Peers
from _breakdown.analysis.devices.peer_devices import PeerDevice
from _breakdown.analysis.devices.step_sums import is_costly
from _breakdown.analysis.report import program_id_of
from _breakdown.pipeline.groups import mean
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.vocabulary import COMM
from _breakdown.units import time

REMEDY = (
    "Share the work of this line evenly among devices (tokens per expert, sequence lengths, uneven"
    " shards). If all lines are slower by the same factor (uniform_pct in --mode spread is near"
    " 100), the chip is slow: replace it."
)


def find(facts: StepFacts, peers: Peers) -> Iterator[Cause]:
    """Yield the cause if a device is slow. Windows other than a single step have no cause, because
    captures begin and end at different times on different devices."""
    program = program_id_of(facts.step)
    devices = [waits.device for waits in peers.devices if program in waits.device.programs]
    if facts.step.picked is None or len(devices) < 2:
        return
    devices.sort(key=lambda device: (device.sums.load, device.name))
    median, (second, slow) = devices[(len(devices) - 1) // 2], devices[-2:]
    lead = slow.sums.load - second.sums.load
    if is_costly(lead, [device.sums for device in devices]):
        # At best, the device becomes as fast as the median of all devices. If the others take over
        # its work, all devices take the mean.
        excess = slow.sums.load - mean([device.sums.load for device in devices])
        measured = Gain.between(lead, min(lead, excess), slow.sums.load - median.sums.load)
        yield cause_of(facts.step, slow, median, measured)


def cause_of(step: Step, slow: PeerDevice, median: PeerDevice, measured: Gain) -> Cause:
    excess = {line: time - median.lines.get(line, 0) for line, time in slow.lines.items()}
    line = max(excess, key=excess.__getitem__, default=None)
    at_line = []
    says = (
        f"On {slow.name}, the step without communication takes {time(measured.estimate)} longer"
        " than on any other device"
    )
    # A line that explains less than half is not what makes the device slow.
    if line and 2 * excess[line] >= slow.sums.load - median.sums.load:
        says += f", and {short(line)} takes {time(excess[line])} longer than on {median.name}"
        at_line = [ran for ran in step.leaves if ran.op.kind != COMM and ran.op.source_user == line]
    else:
        line = None
    longest = max(at_line, key=attrgetter("total"), default=None)
    return Cause(
        f"{says}. Balanced devices would save <gain>, unless this step is chance (compare all steps"
        " with `--mode spread`).",
        REMEDY,
        LIKELY,
        at_line,
        measured=measured,
        place=place_of(longest.op) if longest else CausePlace(line),
        evidence={"device": slow.name},
    )
