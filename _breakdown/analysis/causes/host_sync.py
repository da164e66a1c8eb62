"""Find pauses between steps in which the host reads a result of the device."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from _breakdown.analysis.causes.shared.cause import LIKELY, SEEN, Cause
from _breakdown.analysis.causes.shared.pauses import PauseGroup, cause_of
from _breakdown.analysis.idle.host_words import READING

REMEDY = (
    "Launch the next step before the result is read: read the loss of the step before, or only"
    " after many steps, and start transfers with copy_to_host_async."
)


def find(groups: Iterable[PauseGroup]) -> Iterator[Cause]:
    for group in groups:
        if group.kind == READING:
            yield cause_of(group, REMEDY, SEEN if group.host.is_certain else LIKELY)
