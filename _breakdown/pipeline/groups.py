"""Group executions by properties of their ops, and compute the totals of each group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from _breakdown.pipeline.executions import Executions
from _breakdown.pipeline.ops import Op

TYPE_CHECKING = False
if TYPE_CHECKING:
    from fractions import Fraction

    K = TypeVar("K")
    V = TypeVar("V")
    N = TypeVar("N", int, Fraction)


class Group:
    """A group of executions, with their total time and count."""

    __slots__ = ("members", "n", "total")

    def __init__(self, members: list[Executions]) -> None:
        self.members = members
        self.n = sum([ran.n for ran in members])
        self.total = sum([ran.total for ran in members])

    @property
    def op(self) -> Op:
        """Return the first member's op as an example of the group."""
        return self.members[0].op

    @property
    def longest(self) -> Executions:
        duration = max([ran.longest for ran in self.members])
        equal = (ran for ran in self.members if ran.longest == duration)
        return min(equal, key=lambda ran: ran.longest_at)

    def where(self, is_wanted: Callable[[Op], object]) -> Group:
        return Group([ran for ran in self.members if is_wanted(ran.op)])

    def sum_of(self, value_of: Callable[[Op], int | None]) -> int | None:
        """Sum a property over all executions, skipping unknown values; return None if all are
        unknown."""
        return sum_known([(ran.n, value_of(ran.op)) for ran in self.members])

    def executions_by(self, value_of: Callable[[Op], str]) -> dict[str, int]:
        return summed((value_of(ran.op), ran.n) for ran in self.members)

    def time_by(self, value_of: Callable[[Op], str]) -> dict[str, int]:
        return summed((value_of(ran.op), ran.total) for ran in self.members)

    def distinct(self, value_of: Callable[[Op], str | None], most: int | None = None) -> list[str]:
        """Return the different known values in order of appearance, up to `most` of them."""
        found: dict[str, None] = {}
        for ran in self.members:
            if len(found) == most:
                break
            value = value_of(ran.op)
            if value is not None:
                found[value] = None
        return list(found)


def sum_known(pairs: Iterable[tuple[int, int | None]]) -> int | None:
    """Return the sum of `n * value`, skipping unknown values, or None if all are unknown."""
    known = [n * value for n, value in pairs if value is not None]
    return sum(known) if known else None


def sum_if_known(pairs: Iterable[tuple[int, N | None]]) -> N | int | None:
    """Return the sum of `n * value`, or None if any value is unknown."""
    total: N | int = 0
    for n, value in pairs:
        if value is None:
            return None
        total += n * value
    return total


def most(found: Iterable[tuple[K, int]]) -> K:
    """Return the value with the largest total time, given pairs of a value and a time."""
    times = summed(found)
    return max(times, key=times.__getitem__)


def summed(pairs: Iterable[tuple[K, int]]) -> dict[K, int]:
    """Sum figures by key, given pairs of a key and a figure; keys stay in order of appearance."""
    sums: dict[K, int] = {}
    for key, figure in pairs:
        sums[key] = sums.get(key, 0) + figure
    return sums


def grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    """Group values by key, given pairs of a key and a value; both stay in order of appearance."""
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def group_by(members: Iterable[Executions], key: Callable[[Op], K]) -> dict[K, Group]:
    """Group executions by a property of their ops; groups and members are in order of
    appearance."""
    groups: dict[K, list[Executions]] = {}
    for ran in members:
        groups.setdefault(key(ran.op), []).append(ran)
    return {value: Group(group) for value, group in groups.items()}


def ranked_by(members: Iterable[Executions], key: Callable[[Op], Any]) -> list[tuple[Any, Group]]:
    """Group executions by a property of their ops; sort groups by time, longest first, then by the
    property."""
    return sorted(group_by(members, key).items(), key=lambda item: (-item[1].total, item[0]))


SourceKey = tuple[str, str]


def source_key(op: Op) -> SourceKey:
    """Return the key that groups ops by source and kind, so that groups never mix kinds."""
    return op.agg_key, op.kind


def percent(part: float, whole: int) -> float | None:
    # Adding 0.0 turns -0.0 into 0.0.
    return round(100 * part / whole, 3) + 0.0 if whole else None


def mean(figures: Sequence[int]) -> int:
    return rounded_mean(sum(figures), len(figures))


def rounded_mean(total: int, n: int) -> int:
    """Return the mean, rounded half up."""
    return (2 * total + n) // (2 * n)
