"""The naive implementation's step by scope: each row is counted out of all events by itself."""

from __future__ import annotations

import re
from collections.abc import Callable

from tests.naive.op import Event, Op, duration, grouped, pct, time_by
from tests.naive.program import unique
from tests.naive.step import AbsentError, Json, Picked

Path = tuple[str, ...]


def n_alike(one: str, other: str) -> int:
    """How many characters two texts begin with together."""
    n = 0
    while one[: n + 1] == other[: n + 1] and n < min(len(one), len(other)):
        n += 1
    return n


def nearest(asked: str, names: list[str]) -> list[str]:
    """Those that hold the text come first, then those that begin most alike, then the shorter."""
    low = asked.lower()
    ranked = sorted(
        (low not in name.lower(), -n_alike(low, name.lower()), len(name), name)
        for name in set(names)
    )
    return [name for *_, name in ranked[:20]]


def without_numbers(primitive: str) -> str:
    """`add.5.clone` is `add`."""
    return re.sub(r"(?<=.)(\.(\d+|(clone|cloned|remat)\d*))+$", "", primitive)


def times_of(events: list[Event], label: Callable[[Op], str]) -> Json:
    return {key: ps for key, ps in time_by(events, label).items() if ps}


def longest(
    events: list[Event], label: Callable[[Op], str | None], n: int
) -> list[tuple[str | None, int]]:
    """By time, ties by name, none last."""
    groups = grouped(events, lambda e: label(e.op))
    ranked = sorted((-duration(groups[key]), key is None, key or "") for key in groups)
    return [(None if is_none else key, -ps) for ps, is_none, key in ranked[:n]]


class ByScope:
    def __init__(self, step: Picked) -> None:
        self.step = step
        self.options = step.options

    def path_of(self, op: Op) -> Path | None:
        if op.scope is None:
            return None
        parts = op.scope.parts
        if self.options.merge_layers:
            parts = tuple(re.sub("[0-9]+", "*", part) for part in parts)
        return parts

    def below(self, path: Path) -> list[Event]:
        """What stands in a scope or somewhere below it."""
        paths = [(e, self.path_of(e.op)) for e in self.step.leaves]
        return [e for e, its in paths if its is not None and its[: len(path)] == path]

    def right_in(self, path: Path) -> list[Event]:
        return [e for e in self.step.leaves if self.path_of(e.op) == path]

    @property
    def scopes(self) -> list[Path]:
        """All that there are, the root among them."""
        paths = [self.path_of(e.op) or () for e in self.step.leaves]
        return unique([(), *(path[:n] for path in paths for n in range(len(path) + 1))])

    def first(self) -> Path:
        named = [path for path in self.scopes if "/".join(path) == self.options.below]
        if not named:
            raise AbsentError("scope_not_found", available_scopes=self.near())
        return named[0]

    def near(self) -> list[str]:
        """Of each scope that ops stand right in the one above it, or itself, that holds the text;
        else that reaches as far as they are alike."""
        asked = self.options.below
        names = []
        for path in unique(self.path_of(e.op) for e in self.step.leaves):
            above = ["/".join((path or ())[: n + 1]) for n in range(len(path or ()))]
            holding = [name for name in above if asked.lower() in name.lower()]
            reaching = [n for n in above if len(n) >= n_alike(asked, above[-1])]
            names += (holding or reaching)[:1]
        return nearest(asked, names)

    def in_order(self, path: Path) -> list[Path]:
        """Depth first, the longest first, ties by name."""
        below = [other for other in self.scopes if other[:-1] == path and other]
        below.sort(key=lambda other: (-duration(self.below(other)), other))
        return [path, *(each for other in below for each in self.in_order(other))]

    def answer(self) -> Json:
        first = self.first()
        inside = self.in_order(first)
        depth = self.options.depth
        shown = [p for p in inside if depth == "all" or len(p) - len(first) <= int(depth)]
        return {
            "scopes": [self.row(path) for path in shown],
            "n_scopes_omitted": len(inside) - len(shown),
            "no_scope": self.no_scope(),
        }

    def row(self, path: Path) -> Json:
        events, here = self.below(path), self.right_in(path)

        def primitive(op: Op) -> str | None:
            assert op.scope is not None
            return op.scope.primitive and without_numbers(op.scope.primitive)

        return {
            "scope": "/".join(path),
            "name": path[-1] if path else "",
            "depth": len(path),
            "n_executions": len(events),
            "total_dur_ps": duration(events),
            "self_dur_ps": duration(here),
            "pct_of_step": pct(duration(events), self.step.duration),
            "kinds": times_of(events, lambda op: op.kind),
            "phases": times_of(events, lambda op: op.phase),
            "primitives": [
                {"primitive": name, "dur_ps": ps} for name, ps in longest(here, primitive, 5)
            ],
            "lines": [
                {"source_user": line, "dur_ps": ps}
                for line, ps in longest(events, lambda op: op.source_user, 3)
            ],
        }

    def no_scope(self) -> Json:
        events = [e for e in self.step.leaves if e.op.scope is None]
        return {
            "n_executions": len(events),
            "dur_ps": duration(events),
            "kinds": times_of(events, lambda op: op.kind),
            "likely_sources": self.likely(events),
        }

    def likely(self, events: list[Event]) -> list[Json] | None:
        """The own line of what has a stack, else the likely one."""
        if events and all(e.op.program is None for e in events):
            return None
        lines = longest(events, lambda op: op.row_line, len(events))
        shown = [line for line, _ in lines if line is not None][:8]
        rows = []
        for line in [*shown, None]:
            its = [e for e in events if (e.op.row_line if e.op.row_line in shown else None) == line]
            if not its:
                continue
            ways = grouped(its, lambda e: e.op.row_how)
            rows.append(
                {
                    "source_inner": line,
                    "source_user": None if line is None else its[0].op.row_user,
                    "source_is": None
                    if line is None
                    else max(ways, key=lambda way: duration(ways[way])),
                    "dur_ps": duration(its),
                    "n_executions": len(its),
                }
            )
        return rows
