"""The step by the program's own structure: how long each layer takes, and what it is made of."""

from __future__ import annotations

import re

from _analysis.likely_lines import likely_groups, line_of
from _analysis.report import Report
from _analysis.rows import line_rows
from _analysis.scope_tree import depth_first, levels_of, path_of, tree_of
from _pipeline.groups import Group, percent
from _proto.hlo.text import without_ssa_end

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from _analysis.scope_tree import Layer, Path, Times
    from _pipeline.context import Context
    from _pipeline.executions import Executions
    from _pipeline.normalize import Step

    Json = dict[str, Any]

DEPTH = 4
N_PRIMITIVES = 5
NUMBER_RE = re.compile(r"[0-9]+")


def by_scope(
    step: Step,
    context: Context,
    *,
    depth: int | str = DEPTH,
    below: str | None = None,
    merge_layers: bool = False,
) -> Report:
    places = places_of(step.leaves, merge_layers)
    first = path_of(below, places) if below else ()
    inside = {path: ops for path, ops in places.items() if path[: len(first)] == first}
    levels = levels_of(first, inside)
    deepest = max(levels) if isinstance(depth, str) else min(len(first) + depth, max(levels))
    top = tree_of(first, inside, deepest, step.leaves)
    return Report(
        {
            "scopes": [scope_row(layer, step) for layer in depth_first(top)],
            "n_scopes_omitted": sum(n for depth, n in levels.items() if depth > deepest),
            "no_scope": no_scope_row(Group(step.leaves).where(lambda op: op.scope is None)),
        },
    )


def places_of(leaves: Iterable[Executions], merge_layers: bool) -> dict[Path, list[int]]:
    """The scopes that ops stand right in, each with the places of these among the leaves."""
    places: dict[Path, list[int]] = {}
    # Ops share what their path is taken apart to, and it may have thousands of parts.
    known: dict[int, list[int]] = {}
    for place, each in enumerate(leaves):
        scope = each.op.scope
        if scope is not None:
            if id(scope) not in known:
                path = scope.parts
                if merge_layers:
                    path = tuple(NUMBER_RE.sub("*", part) for part in path)
                known[id(scope)] = places.setdefault(path, [])
            known[id(scope)].append(place)
    return places


def scope_row(layer: Layer, step: Step) -> Json:
    primitives: dict[str | None, int] = {}
    for primitive, duration in layer.primitives.items():
        name = primitive and without_ssa_end(primitive)
        primitives[name] = primitives.get(name, 0) + duration
    ranked = sorted(primitives.items(), key=lambda item: (-item[1], item[0] is None, item[0] or ""))
    return {
        "scope": layer.scope,
        "name": layer.name,
        "depth": layer.depth,
        "n_executions": layer.n,
        "total_dur_ps": layer.total,
        "self_dur_ps": layer.self_total,
        "pct_of_step": percent(layer.total, step.duration),
        "kinds": in_order(layer.kinds),
        "phases": in_order(layer.phases),
        "primitives": [
            {"primitive": name, "dur_ps": duration} for name, duration in ranked[:N_PRIMITIVES]
        ],
        "lines": [
            {"source_user": line, "dur_ps": duration} for line, duration in layer.longest_lines
        ],
    }


def in_order(times: Times) -> Json:
    """In order of first appearance; what took no time is left out."""
    ordered = sorted(times.items(), key=lambda item: item[1])
    return {key: duration for key, (_, duration) in ordered if duration}


def no_scope_row(group: Group) -> Json:
    """What has no path at all; and whose data that moves or waits for."""
    is_known = not group.members or any(each.op.program for each in group.members)
    kinds = group.time_by(lambda op: op.kind)
    return {
        "n_executions": group.n,
        "dur_ps": group.total,
        "kinds": {kind: duration for kind, duration in kinds.items() if duration},
        "likely_sources": line_rows(likely_groups(group, line_of)) if is_known else None,
    }
