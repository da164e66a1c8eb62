"""A cause: a pattern in a program or trace that costs time, where to change it, and the gain."""

from __future__ import annotations

from typing import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from _analysis.causes.step_program import StepProgram
    from _pipeline.executions import Executions

    Json = dict[str, Any]

SEEN, LIKELY = "seen", "likely"
N_NAMED = 10


class Cause(NamedTuple):
    """What makes time, and the most that is gained if it is removed.

    `unknown_ps` is the time of kernels that the cause slows by an amount nobody knows;
    `gain_bytes` is for causes that cost memory instead of time. `executions` are those that the
    gain is computed from.
    """

    cause: str
    gain_ps: int
    says: str
    what_helps: str
    confidence: str
    executions: list[Executions]
    source_user: str | None = None
    source_inner: str | None = None
    scope: str | None = None
    unknown_ps: int | None = None
    gain_bytes: int | None = None
    # Figures that only this cause has.
    figures: Json | None = None
