"""Define what a rule reads and what it returns: the facts about a step, and causes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal

from _breakdown.analysis.arrays.engine import Change, Gain
from _breakdown.analysis.arrays.of_step import StepArrays, arrays_of_step
from _breakdown.analysis.idle.periods import Periods
from _breakdown.analysis.kernel.kernel_regions import Inside
from _breakdown.analysis.roof.ledger import LedgerEntry
from _breakdown.analysis.roof.roofs import Roofs
from _breakdown.light import NamedTuple, cached_property
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.normalize import Step

TYPE_CHECKING = False
if TYPE_CHECKING:
    # These modules take 8 ms to import, and are needed only if devices are compared.
    from _breakdown.analysis.comm.peers import Peers

Confidence = Literal["seen", "likely"]
# Confidence of a cause: `seen` if what it says follows from the program (an array is computed, and
# a part of it is not used) or was measured as such. It is `likely` if it depends on what the user
# intends, or on how the compiler reacts to the change.
SEEN: Final = "seen"
LIKELY: Final = "likely"


class CausePlace(NamedTuple):
    """The source line to change in the user's code, and its scope."""

    source_user: str | None = None
    source_inner: str | None = None
    scope: str | None = None


class Cause(NamedTuple):
    """A cause of lost time, with the edits that remove it.

    The engine computes the gain from `changes`. A cause without `changes` and without `measured`
    has an unknown gain.

    In the sentence `says`, `<line>` stands for the line of the place, and `<gain>` for the gain and
    its range. Without a `place`, it is the line with the most time in `executions`.
    """

    says: str
    what_helps: str
    confidence: Confidence
    # Evidence: the ops that the cause affects.
    executions: Sequence[Executions] = ()
    changes: Sequence[Change] = ()
    # The gain that the trace shows without the engine, such as the time of pauses.
    measured: Gain | None = None
    place: CausePlace | None = None
    # Further figures of the field `evidence`; those that are None are not printed.
    evidence: Mapping[str, Any] = {}
    # Whether the change can also make the step slower, so that the least gain is 0.
    can_lose: bool = False
    # Memory that can be saved, if the cause costs memory instead of time.
    gain_bytes: int | None = None
    # Mean time from the start of a step to the start of the next step, if the cause costs time
    # outside the step, between steps.
    period_ps: int | None = None
    # Name of the rule, which `find.py` adds.
    name: str = ""


class StepFacts:
    """The facts about a step. `found` has the causes of the rules that have run."""

    def __init__(
        self,
        step: Step,
        ledger: Sequence[LedgerEntry],
        roofs: Roofs,
        inside: Inside,
        periods: Periods | None,
        peers: Peers | None,
        context: Context,
    ) -> None:
        self.step, self.ledger, self.roofs, self.inside = step, ledger, roofs, inside
        self.periods, self.peers, self.context = periods, peers, context
        self.found: dict[str, list[Cause]] = {}

    @cached_property
    def arrays(self) -> StepArrays:
        """Return the arrays that the step's ops read and write."""
        return arrays_of_step(self.step, self.ledger, self.roofs)

    def explained_by(self, *names: str, confidence: Confidence | None = None) -> set[int]:
        """Return the ids of the executions that are evidence for causes of other rules."""
        return {
            id(ran)
            for name in names
            for cause in self.found[name]
            if confidence in (None, cause.confidence)
            for ran in cause.executions
        }
