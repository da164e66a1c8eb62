"""Describe the output of mode `by_scope`: the tree of scopes."""

from __future__ import annotations

from typing import Final

from _output.columns import LIKELY, RUNS, STEP_SHARE, TIME, TOTAL
from _output.screen import Column, End, Part, Says, Table

MAIN: Final = "scopes"

PARTS: tuple[Part, ...] = (
    Table(
        "scopes; time includes inner scopes, self does not; recomp is recomputation",
        "scopes",
        (
            Column("scope", "name", null="(all)", depth="depth"),
            TOTAL,
            Column("self", "self_dur_ps", "time"),
            STEP_SHARE,
            Column("fwd", "phases.forward", "time", null=""),
            Column("bwd", "phases.backward", "time", null=""),
            Column("recomp", "phases.recompute", "time", null=""),
            Column("comm", "kinds.comm", "time", null=""),
        ),
        size="total_dur_ps",
        what="scope",
        tail={"self": ""},
        ends=(
            End(
                "no_scope.n_executions",
                {"scope": "(no scope)", "time": "no_scope.dur_ps", "comm": "no_scope.kinds.comm"},
            ),
        ),
    ),
    Says("deeper scopes: {n_scopes_omitted:count} (--depth all)", when="n_scopes_omitted"),
    Table(
        "ops without a scope, by the line that produces or consumes their data",
        "no_scope.likely_sources",
        (TIME, RUNS, Column("line of", "source_is", "word", null="", least=8), LIKELY),
        size="dur_ps",
        what="line",
        tail={"time": ""},
    ),
)
