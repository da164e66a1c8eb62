"""Break the step down by scope: each scope's time by kind and phase.

question: how long each layer of the model takes, by scope
reads: a step
options: --depth, --below, --merge-layers
example: --depth 2 --merge-layers
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from _breakdown.analysis.scope_tree import Layer, Path, depth_first, levels_of, path_of, tree_of
from _breakdown.analysis.source.likely_lines import likely_groups
from _breakdown.analysis.source.rows import line_rows
from _breakdown.output.columns import LIKELY, RUNS, STEP_SHARE, TIME, TOTAL
from _breakdown.output.phrases import Next, bracketed, short
from _breakdown.output.screen import Column, End, Part, Says, Table
from _breakdown.pipeline.context import Context
from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.groups import Group, percent
from _breakdown.pipeline.normalize import Step
from _breakdown.pipeline.scopes import merged_layers, names_layer
from _breakdown.units import part_of, time

Json = dict[str, Any]

DEPTH = 4
NO_LAYERS = (
    "no scope names a layer, because the program does not use jax.named_scope (Flax NNX does not);"
    " --mode by_source shows the time by source line"
)


def by_scope(
    step: Step,
    context: Context,
    *,
    depth: int | str = DEPTH,
    below: str | None = None,
    merge_layers: bool = False,
) -> Json:
    paths = list(paths_of(step.leaves, merge_layers))
    first = path_of(below, [path for path, _ in paths]) if below else ()
    inside = [(path, ran) for path, ran in paths if path[: len(first)] == first]
    levels = levels_of(first, {path for path, _ in inside})
    deepest = max(levels) if isinstance(depth, str) else min(len(first) + depth, max(levels))
    if not any(names_layer(path) for path in {ran.op.path for ran in step.leaves} if path):
        context.warn(NO_LAYERS)
    top = tree_of(first, inside, deepest)
    return {
        "scopes": [scope_row(layer, step) for layer in depth_first(top)],
        "n_scopes_omitted": sum(n for level, n in levels.items() if level > deepest),
        "no_scope": no_scope_row(Group(step.leaves).where(lambda op: op.scope is None)),
    }


def paths_of(leaves: Iterable[Executions], merge_layers: bool) -> Iterator[tuple[Path, Executions]]:
    """Yield each leaf that has a scope, and the parts of the scope's name."""
    for ran in leaves:
        scope = ran.op.scope
        if scope is not None:
            path = tuple(map(merged_layers, scope.parts)) if merge_layers else scope.parts
            yield path, ran


def scope_row(layer: Layer, step: Step) -> Json:
    return {
        "scope": layer.scope,
        "name": layer.name,
        "depth": layer.depth,
        "n_executions": layer.n,
        "total_dur_ps": layer.total,
        "self_dur_ps": layer.self_total,
        "pct_of_step": percent(layer.total, step.duration),
        "kinds": nonzero(layer.kinds),
        "phases": nonzero(layer.phases),
    }


def nonzero(times: dict[str, int]) -> dict[str, int]:
    return {key: duration for key, duration in times.items() if duration}


def no_scope_row(group: Group) -> Json:
    """Return the row for ops without a scope, including their likely source lines."""
    is_known = not group.members or any(ran.op.program for ran in group.members)
    kinds = group.time_by(lambda op: op.kind)
    return {
        "n_executions": group.n,
        "dur_ps": group.total,
        "kinds": nonzero(kinds),
        "likely_sources": line_rows(likely_groups(group)) if is_known else None,
    }


# The text output; `MAIN` is the path of the table that CSV prints.
MAIN = "scopes"

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


def sentences(answer: Json) -> Iterator[str]:
    step = answer["step_duration_ps"]
    named = [row for row in answer["scopes"] if row["scope"]]
    if not named:
        yield f"No op in this {time(step)} step has a scope."
        return
    top = max(named, key=lambda row: row["total_dur_ps"])
    own = max(named, key=lambda row: row["self_dur_ps"])
    share = bracketed(top["pct_of_step"])
    yield f"Scope {short(top['scope'])} takes {part_of(top['total_dur_ps'], step)}{share}."
    if own is not top:
        yield (
            f"Excluding inner scopes, {short(own['scope'])} takes the most time:"
            f" {time(own['self_dur_ps'])}."
        )
    without = answer["no_scope"]["dur_ps"]
    if without:
        yield f"Ops without a scope take {time(without)}."


def next_steps(answer: Json) -> Iterator[Next]:
    yield Next("where the step loses time, and why", ("--mode", "bottleneck"))
