"""Find a device that is slower than the other devices, so that the others wait in collectives."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter

from _breakdown.analysis.arrays.engine import Gain
from _breakdown.analysis.causes.shared.cause import LIKELY, Cause, CausePlace, StepFacts
from _breakdown.analysis.causes.shared.sentences import short
from _breakdown.analysis.causes.shared.step_program import place_of
from _breakdown.analysis.comm.peers import Peers
from _breakdown.analysis.devices.cohort import Cohort, Member
from _breakdown.analysis.devices.peer_devices import PeerDevice
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
    ran = [waits.device for waits in peers.devices if program in waits.device.programs]
    if facts.step.picked is None or len(ran) < 2:
        return
    cohort = Cohort(Member("", device.name, {"": device.sums}) for device in ran)
    lead, slow, median = cohort.lead, cohort.ranked[0], cohort.median()
    if cohort.is_costly(lead):
        # At best, the device becomes as fast as the median of all devices. If the others take over
        # its work, all devices take the mean.
        excess = cohort.load(slow) - mean(list(map(cohort.load, cohort.members)))
        of_median = cohort.load(slow) - cohort.load(median)
        measured = Gain.between(lead, min(lead, excess), of_median)
        named = {device.name: device for device in ran}
        yield cause_of(facts.step, named[slow.device], named[median.device], measured)


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
