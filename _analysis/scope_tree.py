"""Build the tree of scopes, with the time of each scope including and excluding its inner scopes.

Paths can be deep, and thousands of ops can share a path. Therefore only the printed part of the
tree is built, no function is recursive, and the sums of a scope are computed from its children.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

from _pipeline.executions import Executions
from _pipeline.names import common_prefix_length, nearest_names
from _pipeline.no_answer import NoAnswer

# The parts of a scope's name, outermost first; empty for the root.
Path = tuple[str, ...]
# For each value of an op property, such as `kind`: the index of the first op with this value,
# and the total time.
Times = dict[str, tuple[int, int]]

N_LINES = 3


class Lines:
    """Time by source line, and the lines that take the most time.

    Each addition updates the longest lines, so that a scope in a deep tree need not search all
    lines of its inner scopes.
    """

    def __init__(self) -> None:
        self.times: dict[str | None, int] = {}
        self._longest: list[str | None] = []

    def add(self, times: Mapping[str | None, int]) -> None:
        for line, duration in times.items():
            self.times[line] = self.times.get(line, 0) + duration
        # Only lines whose time has increased can become longer than the longest lines so far.
        self._longest = sorted({*self._longest, *times}, key=self._rank)[:N_LINES]

    def _rank(self, line: str | None) -> tuple[int, bool, str]:
        return -self.times[line], line is None, line or ""

    @property
    def longest(self) -> list[tuple[str | None, int]]:
        return [(line, self.times[line]) for line in self._longest]


class Layer:
    """A scope, with the time of its own ops, and the total time including its inner scopes."""

    __slots__ = (
        *("children", "depth", "kinds", "lines", "longest_lines", "n", "name", "phases"),
        *("primitives", "scope", "self_total", "total"),
    )

    def __init__(self, scope: str, name: str, depth: int) -> None:
        self.scope, self.name, self.depth = scope, name, depth
        self.children: dict[str, Layer] = {}
        self.n = self.total = self.self_total = 0
        self.kinds: Times = {}
        self.phases: Times = {}
        self.primitives: dict[str | None, int] = {}
        self.lines = Lines()
        self.longest_lines: list[tuple[str | None, int]] = []

    def child(self, name: str) -> Layer:
        return Layer(f"{self.scope}/{name}" if self.depth else name, name, self.depth + 1)

    def take(self, ops: Iterable[tuple[int, Executions]], is_direct: bool) -> None:
        """Add ops, each a pair of the op's index in the step and its executions."""
        lines: dict[str | None, int] = {}
        for place, executions in ops:
            op, duration = executions.op, executions.total
            self.n += executions.n
            self.total += duration
            add(self.kinds, op.kind, place, duration)
            add(self.phases, op.phase, place, duration)
            lines[op.source_user] = lines.get(op.source_user, 0) + duration
            if is_direct:
                primitive = op.scope.primitive if op.scope else None
                self.self_total += duration
                self.primitives[primitive] = self.primitives.get(primitive, 0) + duration
        self.lines.add(lines)

    def sum_up(self) -> None:
        """Add the sums of the children. Call this method for all children before their parent."""
        for child in self.children.values():
            self.n += child.n
            self.total += child.total
            for ours, theirs in ((self.kinds, child.kinds), (self.phases, child.phases)):
                for key, (place, duration) in theirs.items():
                    add(ours, key, place, duration)
            # Add the smaller map to the larger one, so that each line is moved only O(log n) times.
            fewer, more = sorted((self.lines, child.lines), key=lambda lines: len(lines.times))
            if fewer.times:
                more.add(fewer.times)
            self.lines = child.lines = more
        self.longest_lines = self.lines.longest


def add(times: Times, key: str, place: int, duration: int) -> None:
    first, known = times.get(key, (place, 0))
    times[key] = min(first, place), known + duration


def tree_of(
    first: Path, places: Mapping[Path, Sequence[int]], deepest: int, leaves: Sequence[Executions]
) -> Layer:
    """Return the tree below the scope `first`, down to the depth `deepest`; ops in deeper scopes
    count toward their enclosing scope at this depth.

    `places` maps scopes to the indices of their ops in `leaves`.
    """
    top = Layer("/".join(first), first[-1] if first else "", len(first))
    layers = [top]
    for path, ops in places.items():
        layer = top
        for part in path[len(first) : deepest]:
            if part not in layer.children:
                layer.children[part] = layer.child(part)
                layers.append(layer.children[part])
            layer = layer.children[part]
        layer.take(((place, leaves[place]) for place in ops), len(path) <= deepest)
    # Children come after their parents in the list, so sum up in reverse order.
    for layer in reversed(layers):
        layer.sum_up()
    return top


def depth_first(top: Layer) -> Iterator[Layer]:
    waiting = [top]
    while waiting:
        layer = waiting.pop()
        yield layer
        children = sorted(layer.children.values(), key=lambda child: (-child.total, child.name))
        waiting += reversed(children)
        # Release the children, because otherwise the yielded layers would keep the entire tree in
        # memory.
        layer.children = {}


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
        available_scopes=nearest_names(name, near - {""}),
    )


def most_similar_on(asked: str, joined: str, ends: Sequence[int]) -> str:
    """Return the scope on a path whose name is most similar to `asked`; `ends` are the end
    positions of the path's parts."""
    at = joined.lower().find(asked.lower())
    reached = at + len(asked) if at >= 0 else common_prefix_length(joined, asked)
    return next((joined[:end] for end in ends if end >= reached), joined)
