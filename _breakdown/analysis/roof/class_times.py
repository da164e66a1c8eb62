"""Sum the times of source groups and scopes by class."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from _breakdown.analysis.roof.ledger import LedgerEntry
from _breakdown.pipeline.ops import Op

K = TypeVar("K", bound=Hashable)
# Picoseconds by class.
Times = dict[str, int]


def times_by_class(entries: Iterable[LedgerEntry], key: Callable[[Op], K]) -> dict[K, Times]:
    """Sum the ops' time by key and class."""
    found: dict[K, Times] = {}
    for entry in entries:
        times = found.setdefault(key(entry.ran.op), {})
        times[entry.name] = times.get(entry.name, 0) + entry.total
    return found


def classes_of_groups(
    ledger: Sequence[LedgerEntry], groups: Iterable[Mapping[str, Any]]
) -> list[Times]:
    times = times_by_class(ledger, lambda op: (op.agg_key, op.kind))
    return [times[group["agg_key"], group["kind"]] for group in groups]


def classes_without_scope(ledger: Sequence[LedgerEntry]) -> Times:
    return times_by_class(ledger, lambda op: op.scope is None).get(True, {})


def classes_of_scopes(
    ledger: Sequence[LedgerEntry], scopes: Iterable[Mapping[str, Any]]
) -> list[Times]:
    """Return each scope's time by class, including inner scopes."""
    shown: dict[str, Times] = {row["scope"]: {} for row in scopes}
    of_scope = times_by_class(
        (entry for entry in ledger if entry.ran.op.scope),
        lambda op: op.scope.parts if op.scope else (),
    )
    for parts, times in of_scope.items():
        for depth in range(len(parts) + 1):
            above = shown.get("/".join(parts[:depth]))
            # The scope has no row, because it is too deep or was omitted.
            if above is None:
                break
            for name, duration in times.items():
                above[name] = above.get(name, 0) + duration
    return list(shown.values())
