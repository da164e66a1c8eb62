"""Build the tree of scopes, with the time of each scope including and excluding its inner scopes.

Paths can be deep, so only the printed part of the tree is built, and no function is recursive.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate

from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.names import common_prefix_length, nearest_names
from _breakdown.pipeline.no_answer import NoAnswer

# The parts of a scope's name, outermost first; empty for the root.
Path = tuple[str, ...]


class Layer:
    """A scope, with the time of its own ops, and the total time including its inner scopes."""

    def __init__(self, scope: str, name: str, depth: int) -> None:
        self.scope, self.name, self.depth = scope, name, depth
        self.children: dict[str, Layer] = {}
        self.n = self.total = self.self_total = 0
        self.kinds: Counter[str] = Counter()
        self.phases: Counter[str] = Counter()

    def child(self, name: str) -> Layer:
        if name not in self.children:
            scope = f"{self.scope}/{name}" if self.depth else name
            self.children[name] = Layer(scope, name, self.depth + 1)
        return self.children[name]

    def add(self, ran: Executions) -> None:
        op, duration = ran.op, ran.total
        self.n += ran.n
        self.total += duration
        self.kinds[op.kind] += duration
        self.phases[op.phase] += duration

    def add_own(self, ran: Executions) -> None:
        """Add an op that the scope contains directly."""
        self.self_total += ran.total


def tree_of(first: Path, leaves: Iterable[tuple[Path, Executions]], deepest: int) -> Layer:
    """Return the tree below the scope `first`, down to the depth `deepest`; ops in deeper scopes
    count toward their enclosing scope at this depth. `leaves` are the ops in `first`, with their
    scopes."""
    top = Layer("/".join(first), first[-1] if first else "", len(first))
    for path, ran in leaves:
        layer = top
        layer.add(ran)
        for part in path[len(first) : deepest]:
            layer = layer.child(part)
            layer.add(ran)
        if len(path) <= deepest:
            layer.add_own(ran)
    return top


def depth_first(top: Layer) -> Iterator[Layer]:
    waiting = [top]
    while waiting:
        layer = waiting.pop()
        yield layer
        waiting += sorted(
            layer.children.values(), key=lambda child: (-child.total, child.name), reverse=True
        )


def levels_of(first: Path, paths: Iterable[Path]) -> dict[int, int]:
    """Count the scopes at each depth, from the scope `first` downwards."""
    levels = {len(first): 1}
    before: Path = ()
    # Paths are sorted, so the scopes of a path that are already counted are all on the preceding
    # path.
    for path in sorted(paths):
        shared = max(common_prefix_length(before, path), len(first))
        for depth in range(shared + 1, len(path) + 1):
            levels[depth] = levels.get(depth, 0) + 1
        before = path
    return levels


def ends_of(path: Path) -> list[int]:
    """Return the end position of each part within the joined path."""
    return list(accumulate((len(part) + 1 for part in path), initial=-1))[1:]


def path_of(name: str, paths: Iterable[Path]) -> Path:
    """Return the path of the scope with the given printed name; raise NoAnswer if there is no such
    scope."""
    near = set()
    for path in paths:
        joined = "/".join(path)
        ends = ends_of(path)
        if f"{joined}/".startswith(f"{name}/") and len(name) in ends:
            return path[: ends.index(len(name)) + 1]
        near.add(most_similar_on(name, joined, ends))
    raise NoAnswer(
        "scope_not_found",
        detail=f"no scope is named {name!r}",
        available_scopes=nearest_names(name, sorted(near - {""})),
    )


def most_similar_on(asked: str, joined: str, ends: Sequence[int]) -> str:
    """Return the scope on a path whose name is most similar to `asked`; `ends` are the end
    positions of the path's parts."""
    at = joined.lower().find(asked.lower())
    reached = at + len(asked) if at >= 0 else common_prefix_length(joined, asked)
    return next((joined[:end] for end in ends if end >= reached), joined)
