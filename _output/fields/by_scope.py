"""Fields of `by_scope`."""

from typing import TypedDict

from .common import Lead, StepAnswer
from .rows import LikelySource
from .units import Count, Percent, Picoseconds


class Primitive(TypedDict):
    """A primitive that runs directly in a scope."""

    primitive: str | None
    """Last part of the ops' paths without a trailing number, so that `add.5` becomes `add`. Null
    for paths without a primitive."""
    dur_ps: Picoseconds
    """Total duration of the primitive's ops."""


class ScopeLine(TypedDict):
    """A source line of the ops in a scope."""

    source_user: str | None
    """Innermost line of the user's own code; null if there is none."""
    dur_ps: Picoseconds
    """Total duration of the line's ops."""


class Scope(TypedDict):
    """A scope, including all scopes inside it."""

    scope: str
    """Full name of the scope, with parts joined by `/`; empty for the root."""
    name: str
    """Last part of the scope's name."""
    depth: Count
    """Number of parts in the scope's name."""
    n_executions: Count
    """Number of executions of all ops in the scope and in scopes inside it."""
    total_dur_ps: Picoseconds
    """Total duration of all ops in the scope and in scopes inside it: `self_dur_ps` plus
    `total_dur_ps` of the child scopes."""
    self_dur_ps: Picoseconds
    """Total duration of the ops directly in this scope."""
    pct_of_step: Percent | None
    """`total_dur_ps` as a percentage of the step's duration."""
    kinds: dict[str, Picoseconds]
    """`total_dur_ps` by kind."""
    phases: dict[str, Picoseconds]
    """`total_dur_ps` by phase, as in `by_phase_rollup` of summary. Phases are taken only from the
    trace. An op whose path is only in the program therefore has phase `unknown`, unless the op's
    name contains `.remat`."""
    primitives: list[Primitive]
    """The five primitives that take the most time directly in this scope."""
    lines: list[ScopeLine]
    """The three source lines that take the most time in the scope and in scopes inside it."""


class NoScope(TypedDict):
    """Ops without a path."""

    n_executions: Count
    """Number of executions."""
    dur_ps: Picoseconds
    """Total duration of the ops without a path."""
    kinds: dict[str, Picoseconds]
    """Total duration by kind."""
    likely_sources: list[LikelySource] | None
    """Source lines of the ops that have a stack; for ops without a stack, the source lines of the
    data that the ops move or wait for. The rows add up to `dur_ps`. Null if the program is
    unknown."""


class Fields(TypedDict):
    scopes: list[Scope]
    """The tree of scopes in depth-first order. Scopes with the same parent are sorted by time,
    longest first, then by name. The first row is the root, or the scope that `--below` selects."""
    n_scopes_omitted: Count
    """Number of scopes that are omitted because they are too deep."""
    no_scope: NoScope
    """Ops of the whole step that have no path, regardless of `--below`. The times of these ops and
    of the root scope add up to `non_while_duration_ps_sum`."""


class Answer(Lead, StepAnswer, Fields):
    pass
