"""Find a device that is slower than the other devices, so that the others wait in collectives.

    device 0   |--math--|=======wait=======|--math--|=======wait=======|
    device 1   |-----------math------------|-----------math------------|

The slow device has more work (for example, an expert that receives most tokens, or a longer shard),
or its chip is slower. A device is reported if it has the largest load in more than half of the
steps that all devices have in common. The load is the step duration minus communication, as in the
mode `spread`. Loads are read only with `--peers`.
"""

from __future__ import annotations

from typing import NamedTuple

from _analysis.causes.cause import LIKELY, SEEN, Cause, Evidence
from _analysis.causes.sentences import about, duration, short
from _analysis.causes.step_program import Place, place_of
from _analysis.remedies import CAUSES
from _analysis.report import program_id_of
from _pipeline.units import plural
from _pipeline.vocabulary import COMM

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

    from _analysis.peer_devices import Loads, StepKey
    from _analysis.peers import Peers
    from _pipeline.normalize import Step

NAME: Final = "slow_device"
# With fewer steps, chance alone often gives one of several equal devices the largest load in most
# of them.
FEWEST_STEPS = 3


class Slow(NamedTuple):
    """The device with the largest load in most steps; times are in picoseconds."""

    device: str
    n_slowest: int
    n_steps: int
    # Median, over the steps, of this device's load minus the largest load of the other devices.
    gain: int
    median_device: str
    # Mean load of the device.
    load: int
    # The source line on which the device spends the most additional time compared with the median
    # device, and this additional time.
    line: str | None
    excess: int


def find(step: Step, peers: Peers) -> list[Cause]:
    program = program_id_of(step)
    loads = {
        waits.device.name: waits.device.loads
        for waits in peers.devices
        if waits.device.loads and program in waits.device.programs
    }
    slow = slowest_of(loads)
    return [cause_of(step, slow)] if slow and slow.gain > 0 else []


def slowest_of(loads: Mapping[str, Loads]) -> Slow | None:
    """Return the device with the largest load in more than half of the common steps; None if there
    is no such device."""
    if len(loads) < 2:
        return None
    first, *others = loads.values()
    keys = [key for key in first.steps if all(key in other.steps for other in others)]
    if not keys:
        return None
    slowest = [max(loads, key=lambda name: loads[name].steps[key]) for key in keys]
    device = max(loads, key=slowest.count)
    if 2 * slowest.count(device) <= len(keys):
        return None
    mean_load = {
        name: sum(of.steps[key] for key in keys) // len(keys) for name, of in loads.items()
    }
    ranked = sorted(loads, key=mean_load.__getitem__)
    median = ranked[(len(ranked) - 1) // 2]
    lines, usual = loads[device].lines, loads[median].lines
    excess = {line: time - usual.get(line, 0) for line, time in lines.items()}
    line = max(excess, key=excess.__getitem__, default=None)
    return Slow(
        device,
        slowest.count(device),
        len(keys),
        gain_of(device, loads, keys),
        median,
        mean_load[device],
        line if line and excess[line] > 0 else None,
        excess[line] if line else 0,
    )


def gain_of(device: str, loads: Mapping[str, Loads], keys: Sequence[StepKey]) -> int:
    gains = sorted(
        loads[device].steps[key]
        - max(of.steps[key] for name, of in loads.items() if name != device)
        for key in keys
    )
    return gains[(len(gains) - 1) // 2]


def cause_of(step: Step, slow: Slow) -> Cause:
    at_line = [
        executions
        for executions in step.leaves
        if slow.line and executions.op.kind != COMM and executions.op.source_user == slow.line
    ]
    longest = max(at_line, key=lambda executions: executions.total, default=None)
    place = place_of(longest.op) if longest else Place(slow.line, None, None)
    says = (
        f"{slow.device} has the largest load in {slow.n_slowest} of"
        f" {plural(slow.n_steps, 'step')}: without communication, it takes"
        f" {about(slow.gain, step)} longer than the next device"
    )
    if slow.line:
        says += (
            f", and {duration(slow.excess)} longer than {slow.median_device} at {short(slow.line)}"
        )
    says += "."
    is_sure = slow.n_steps >= FEWEST_STEPS
    if not is_sure:
        says += f" In fewer than {FEWEST_STEPS} steps, this can be chance."
    return Cause(
        NAME,
        slow.gain,
        says,
        CAUSES[NAME],
        SEEN if is_sure else LIKELY,
        Evidence(at_line, device=slow.device),
        *place,
    )
