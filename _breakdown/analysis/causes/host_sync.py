"""Find pauses between steps in which the host reads a result of the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.pauses import PauseGroup, cause_of
from _breakdown.analysis.idle.host_words import READING, TRANSFERRING, kind_of

REMEDY = (
    "Launch the next step before the result is read: read the loss of the step before, or only"
    " after many steps, and start transfers with copy_to_host_async."
)
# A server moved logits over the host only to replicate them (sglang 26328).
SENDS_BACK = (
    "Leave the array on the device: here jax.device_put reads it and sends it back. Reshard it in a"
    " jitted function (out_shardings), or not at all if the next program takes it as it is."
)


def find(groups: Iterable[PauseGroup]) -> Iterator[Cause]:
    for group in groups:
        if group.kind == READING:
            # These calls are around the one that reads.
            is_sent = any(kind_of(call.name) == TRANSFERRING for call in group.host.calls)
            remedy = SENDS_BACK if is_sent else REMEDY
            yield cause_of(group, remedy, SEEN if group.host.is_certain else LIKELY)
