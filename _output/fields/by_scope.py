"""Fields of `by_scope`."""

from typing import TypedDict

from _output.fields.common import StepAnswer
from _output.fields.rows import LikelySource
from _output.fields.units import Count, Percent, Picoseconds


class Primitive(TypedDict):
    """A primitive that runs directly in a scope."""

    primitive: str | None
    """End of the paths, without numbers at its end: `add.5` is `add`. Null for paths without a
    primitive."""
    dur_ps: Picoseconds
    """Time of its ops."""


class ScopeLine(TypedDict):
    """A source line of a scope."""

    source_user: str | None
    """Innermost line of the user's own code."""
    dur_ps: Picoseconds
    """Time of its ops."""


class Scope(TypedDict):
    """A scope with everything below it."""

    scope: str
    """Full name, parts joined by `/`; empty for the root."""
    name: str
    """Last part of the name."""
    depth: Count
    """Number of parts."""
    n_executions: Count
    """Executions of all ops here and below."""
    total_dur_ps: Picoseconds
    """Their time: `self_dur_ps` plus the totals of the scopes directly below."""
    self_dur_ps: Picoseconds
    """Time of the ops directly in this scope."""
    pct_of_step: Percent | None
    """`total_dur_ps` in percent of the step."""
    kinds: dict[str, Picoseconds]
    """`total_dur_ps` by kind."""
    phases: dict[str, Picoseconds]
    """`total_dur_ps` by phase, as in `by_phase_rollup` of summary. Phases come from the trace
    alone: if only the program has the path, the phase is `unknown`, unless the op's name contains
    `.remat`."""
    primitives: list[Primitive]
    """The five primitives that take most time directly in this scope."""
    lines: list[ScopeLine]
    """The three lines that take most time here and below."""


class NoScope(TypedDict):
    """Ops without a path, in the whole step, whatever `--below` is."""

    n_executions: Count
    """Number of executions."""
    dur_ps: Picoseconds
    """Their time."""
    kinds: dict[str, Picoseconds]
    """Time by kind."""
    likely_sources: list[LikelySource] | None
    """Lines of the ops that have a stack, and lines whose data the others move or wait for; adds up
    to `dur_ps`. Null without a program."""


class Fields(TypedDict):
    scopes: list[Scope]
    """The tree of scopes, depth first; scopes with the same parent by time, then by name. The first
    row is the root, or the scope named by `--below`."""
    n_scopes_omitted: Count
    """Scopes below the first row that are deeper than the listed ones."""
    no_scope: NoScope
    """Ops without a path. With the root they are all leaf ops (`non_while_duration_ps_sum`)."""


class Answer(StepAnswer, Fields):
    pass
