"""Define a cause: a pattern in a program or trace that costs time, with the line to change and the
gain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from _analysis.idle.periods import Occurrences
from _pipeline.executions import Executions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _output.fields.bottleneck import CauseName, Confidence

# Confidence of a cause: `seen` if the pattern is unambiguous, `likely` if there can be another
# explanation.
SEEN: Final = "seen"
LIKELY: Final = "likely"


class Evidence(NamedTuple):
    """The evidence for a cause: the executions from which the gain is computed, and other figures.

    `by_depth` maps each nesting depth of checkpoints to the time of the ops recomputed at this
    depth. `device` is the slow device. `hbm_free` is the number of bytes of HBM that were never
    allocated. `pauses` tells how often a pause occurs.
    """

    executions: Sequence[Executions]
    shape: str | None = None
    collective: str | None = None
    n_participants: int | None = None
    trips: int | None = None
    by_depth: dict[int, int] | None = None
    device: str | None = None
    hbm_free: int | None = None
    pauses: Occurrences | None = None


class Place(NamedTuple):
    """The source line to change in the user's code, and its scope."""

    source_user: str | None
    source_inner: str | None
    scope: str | None


class Cause(NamedTuple):
    """A cause of lost time; `gain_ps` is an estimate of the time that removing it saves.

    `unknown_ps` is the time of kernels that the cause slows down by an unknown amount. `gain_bytes`
    is the memory that can be saved, for causes that cost memory instead of time. `period_ps` is the
    time from the start of a step to the start of the next step, for causes that cost time between
    steps.
    """

    cause: CauseName
    gain_ps: int
    says: str
    what_helps: str
    confidence: Confidence
    evidence: Evidence
    source_user: str | None = None
    source_inner: str | None = None
    scope: str | None = None
    unknown_ps: int | None = None
    gain_bytes: int | None = None
    period_ps: int | None = None
