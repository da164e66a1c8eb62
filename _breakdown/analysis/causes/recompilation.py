"""Find pauses between steps in which the host compiles a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from _breakdown.analysis.causes.shared.cause import LIKELY, Cause
from _breakdown.analysis.causes.shared.pauses import PauseGroup, cause_of
from _breakdown.analysis.idle.host_words import COMPILING

REMEDY = (
    "Use equal shapes, dtypes, shardings and static arguments in all steps, for example padded"
    " batches. Compile other programs before the loop; jax_explain_cache_misses logs why one is"
    " compiled again."
)


def find(groups: Iterable[PauseGroup]) -> Iterator[Cause]:
    for group in groups:
        if group.kind == COMPILING:
            yield cause_of(group, REMEDY, LIKELY)
