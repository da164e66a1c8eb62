"""Groups: executions that belong together, and their sums."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from fractions import Fraction
    from typing import Any, TypeVar

    from _pipeline.executions import Executions
    from _pipeline.ops import Op
    from _proto.hlo.nearest_line import How

    K = TypeVar("K")
    N = TypeVar("N", int, Fraction)


class Group:
    """Executions that belong together; times and counts are over all of them."""

    __slots__ = ("members", "n", "total")

    def __init__(self, members: list[Executions]) -> None:
        self.members = members
        self.n = sum(each.n for each in members)
        self.total = sum(each.total for each in members)

    def __repr__(self) -> str:
        return f"Group({self.members!r})"

    @property
    def op(self) -> Op:
        """The first member, which speaks for the group."""
        return self.members[0].op

    @property
    def longest(self) -> Executions:
        return max(self.members, key=lambda each: (each.longest, -each.longest_at))

    def where(self, fact: Callable[[Op], object]) -> Group:
        return Group([each for each in self.members if fact(each.op)])

    def sum_of(self, fact: Callable[[Op], int | None]) -> int | None:
        """Sum a fact over the executions that carry it; None where none does."""
        return sum_known((each.n, fact(each.op)) for each in self.members)

    def executions_by(self, fact: Callable[[Op], str]) -> dict[str, int]:
        return {key: group.n for key, group in group_by(self.members, fact).items()}

    def time_by(self, fact: Callable[[Op], str]) -> dict[str, int]:
        return {key: group.total for key, group in group_by(self.members, fact).items()}

    def hbm_bytes(self) -> int | None:
        """Bytes to and from HBM; None where a member that moves bytes doesn't say where."""
        if any(each.op.bytes_accessed and each.op.hbm_bytes is None for each in self.members):
            return None
        return self.sum_of(lambda op: op.hbm_bytes)

    def distinct(self, fact: Callable[[Op], str | None]) -> list[str]:
        return list(dict.fromkeys(x for each in self.members if (x := fact(each.op)) is not None))


def sum_known(facts: Iterable[tuple[int, int | None]]) -> int | None:
    """How much (executions, of each) make; those of which it isn't known are left out."""
    known = [n * value for n, value in facts if value is not None]
    return sum(known) if known else None


def sum_if_known(facts: Iterable[tuple[int, N | None]]) -> N | int | None:
    """How much (executions, of each) make; None where that of one isn't known."""
    total: N | int = 0
    for n, value in facts:
        if value is None:
            return None
        total += n * value
    return total


def how_most(found: Iterable[tuple[How | None, int]]) -> How | None:
    """How something is known by (way, time), where most of the time decides."""
    times: dict[How | None, int] = {}
    for how, time_so in found:
        times[how] = times.get(how, 0) + time_so
    return max(times, key=times.__getitem__)


def group_by(members: Iterable[Executions], key: Callable[[Op], K]) -> dict[K, Group]:
    """Group by a fact of the op; groups and members in order of appearance."""
    groups: dict[K, list[Executions]] = {}
    for each in members:
        groups.setdefault(key(each.op), []).append(each)
    return {of_key: Group(of_group) for of_key, of_group in groups.items()}


def ranked_by(members: Iterable[Executions], key: Callable[[Op], Any]) -> list[tuple[Any, Group]]:
    """Groups by a fact, costliest first; ties by the fact itself."""
    return sorted(group_by(members, key).items(), key=lambda item: (-item[1].total, item[0]))


SourceKey = tuple[str, str]


def source_key(op: Op) -> SourceKey:
    """Groups never mix kinds."""
    return op.agg_key, op.kind


def percent(part: float, whole: int) -> float | None:
    return round(100 * part / whole, 3) if whole else None
