"""Make rows of the source lines of a kernel, and of what has no line: waits, spilled registers, and
code that the compiler adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Any

from _breakdown.analysis.kernel.line_times import Divided, Marked
from _breakdown.pipeline.executions import Executions
from _proto.llo import UNITS, Schedule, SourceLine, Span

Json = dict[str, Any]

# Kinds of rows besides `KINDS` of a schedule.
LINE, WAIT, UNKNOWN = "line", "wait", "unknown"


class KernelPart:
    """The bundles of a source line or of another kind of work."""

    def __init__(self) -> None:
        self.n_bundles = self.time = 0.0
        self.sources: dict[SourceLine, float] = {}
        self.used = dict.fromkeys(UNITS, 0.0)
        # The time of bundles whose use of units is known.
        self.time_of_used = 0.0

    def row(self, key: str, time: int) -> Json:
        primitives: Counter[str] = Counter()
        for source, time_of_source in self.sources.items():
            primitives[source.primitive] += round(time_of_source)
        outer = {source.called_from for source in self.sources} - {key}
        scopes = {source.scope for source in self.sources}
        usage = {
            unit: round(100 * used / self.time_of_used, 3)
            for unit, used in self.used.items()
            if self.time_of_used
        }
        return {
            "kind": LINE if self.sources else key,
            "line": key if self.sources else None,
            "called_from": outer.pop() if len(outer) == 1 else None,
            "primitives": [name for name, _ in primitives.most_common() if name],
            "scope": (scopes.pop() if len(scopes) == 1 else None) or None,
            "dur_ps": time,
            "n_bundles": round(self.n_bundles, 3),
            "usage": usage or None,
        }


def rows_of(
    members: Iterable[Executions],
    schedules: Mapping[int, Schedule],
    marked: Mapping[int, Marked],
) -> list[Json]:
    """Return the lines of a kernel's ops, most time first; nothing if no op has a schedule.

    Without markers, the time is divided as the schedule says.
    """
    parts: dict[str, KernelPart] = {}
    waits: Counter[str] = Counter()
    unknown = 0
    is_measured = any(ran.metadata_id in marked for ran in members)
    for ran in members:
        schedule = schedules.get(ran.metadata_id)
        if schedule is None or (is_measured and ran.metadata_id not in marked):
            unknown += ran.total
        elif is_measured:
            divided = Divided(schedule, marked[ran.metadata_id])
            waits += divided.waits
            unknown += divided.unknown
            add_parts(parts, schedule, divided.weights)
        else:
            weights = static_weights(schedule)
            scale = ran.total / sum(weights)
            add_parts(parts, schedule, [weight * scale for weight in weights])
    if not parts:
        return []
    # Round the sums, so that whole picoseconds add up.
    ends = [0, *(round(end) for end in accumulate(part.time for part in parts.values()))]
    times = (end - start for start, end in pairwise(ends))
    rows = [part.row(key, time) for (key, part), time in zip(parts.items(), times, strict=True)]
    for kind, scope, time in ((UNKNOWN, "", unknown), *((WAIT, *wait) for wait in waits.items())):
        rows.append(KernelPart().row(kind, time) | {"scope": scope or None})
    rows.sort(key=lambda row: (-row["dur_ps"], row["line"] or "", row["kind"], row["scope"] or ""))
    return [row for row in rows if row["dur_ps"] > 0]


def static_weights(schedule: Schedule) -> list[float]:
    """Return how often each bundle runs: as often as the loops around it, and once in loops with
    unknown bounds. All ifs count as taken."""
    weights = [1.0] * schedule.n_bundles
    for loop in schedule.loops:
        for bundle in range(loop.start, loop.end):
            weights[bundle] *= loop.trips or 1
    return weights


def add_parts(parts: dict[str, KernelPart], schedule: Schedule, weights: Sequence[float]) -> None:
    """Divide the time of each bundle in equal parts among what it works for."""
    units = list(schedule.units.items())
    for bundle, (works, weight) in enumerate(zip(schedule.claims, weights, strict=True)):
        share = 1 / len(works)
        time = weight * share
        for work in works:
            key = work.line if isinstance(work, SourceLine) else work
            part = parts.get(key)
            if part is None:
                part = parts[key] = KernelPart()
            part.n_bundles += share
            part.time += time
            if isinstance(work, SourceLine):
                part.sources[work] = part.sources.get(work, 0) + time
            if units:
                part.time_of_used += time
                for unit, used in units:
                    part.used[unit] += time * used[bundle]


def usage_of(schedule: Schedule, spans: Iterable[Span]) -> Json | None:
    """Return the mean use of each unit in spans of bundles, in percent."""
    bundles = [bundle for start, end in spans for bundle in range(start, end)]
    if not bundles or not schedule.units:
        return None
    return {
        unit: round(100 * sum(used[bundle] for bundle in bundles) / len(bundles), 3)
        for unit, used in schedule.units.items()
    }
