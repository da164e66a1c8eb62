"""Find pauses between steps in which the device waits for the host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.pauses import OTHER, Group, cause_of

REMEDY = (
    "Let the host work ahead: load and transfer the next batch, and save checkpoints, in another"
    " thread while the step runs. Do not wait for results (block_until_ready, float(loss), logging)"
    " after each step."
)


def find(groups: Iterable[Group]) -> Iterator[Cause]:
    for group in groups:
        if group.kind == OTHER:
            # A loop around the steps runs in every pause, so it does not explain one.
            is_vague = all(call.is_loop for call in group.reason.host.calls)
            yield cause_of(group, REMEDY, LIKELY if is_vague else SEEN)
