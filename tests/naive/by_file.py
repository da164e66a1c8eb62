"""The second reading of compare's by_file and unmatched: from two records and compare's rows."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import Any

Json = dict[str, Any]
# Of a group its key, its file, its mean, and what it took in each step.
Group = tuple[tuple[str, str], str | None, int, list[int]]


def file_of(place: str) -> str:
    """What stands before the line and the column, the latter of which may be missing."""
    for _ in range(2):
        head, colon, number = place.rpartition(":")
        if colon and number.isascii() and number.isdecimal() and len(number) <= 18:
            place = head
        else:
            break
    return place


def groups_of(record: Json, device: str) -> list[Group]:
    [number] = [i for i, each in enumerate(record["devices"]) if each["device"] == device]
    steps = [step for step in record["steps"] if step["device"] == number and step["used"]]
    groups: list[Group] = []
    for place, group in enumerate(record["groups"]):
        durs, ns = (
            [step[name][place] if place < len(step[name]) else 0 for step in steps]
            for name in ("durs_ps", "ns")
        )
        if any(durs) or any(ns):
            mean = Fraction(sum(durs), len(durs)) + Fraction(1, 2)
            file = file_of(group["source"]) if group["source"] else None
            groups.append(((group["kind"], group["agg_key"]), file, int(mean), durs))
    return groups


def files_of(record: Json, groups: Sequence[Group]) -> set[str]:
    ran = {key for key, *_ in groups}
    frames = {
        record["frames"][index]
        for group in record["groups"]
        if (group["kind"], group["agg_key"]) in ran
        for index in group["frames"]
    }
    return {file_of(frame) for frame in frames} | {file for _, file, *_ in groups if file}


def common_tail(one: str, other: str) -> int:
    pairs = zip(reversed(one.split("/")), reversed(other.split("/")), strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))


def best(file: str, others: set[str]) -> str | None:
    longest = max((common_tail(file, other) for other in others), default=0)
    found = [other for other in others if common_tail(file, other) == longest]
    return found[0] if longest and len(found) == 1 else None


def pairs_of(before: set[str], after: set[str]) -> dict[str, str]:
    """By the name before, the name after."""
    pairs = {file: file for file in before & after}
    old, new = before - after, after - before
    for file in old:
        other = best(file, new)
        if other and best(other, old) == file:
            pairs[file] = other
    return pairs


def p_values(samples: Sequence[Sequence[int]], n_before: int) -> list[float]:
    """All ways to call so many steps before: how often some row is as extreme as this one."""
    n = len(samples[0])

    def squares(chosen: Sequence[int]) -> list[Fraction]:
        found = []
        for x in samples:
            spread = n * sum(v * v for v in x) - sum(x) ** 2
            difference = n * sum(x[j] for j in chosen) - n_before * sum(x)
            found.append(Fraction(difference**2, spread) if spread else Fraction(0))
        return found

    own = squares(range(n_before))
    maxima = [max(squares(chosen)) for chosen in itertools.combinations(range(n), n_before)]
    return [round(sum(m >= mine for m in maxima) / len(maxima), 6) for mine in own]


def percent(part: int, whole: int) -> float | None:
    return round(100 * part / whole, 3) + 0.0 if whole else None


class ByFile:
    """Of the records and the rows of the devices that were compared; all the rows there are."""

    def __init__(self, records: Sequence[Json], devices: Sequence[str], rows: list[Json]) -> None:
        self.rows = rows
        self.groups = [groups_of(*each) for each in zip(records, devices, strict=True)]
        files = [files_of(*each) for each in zip(records, self.groups, strict=True)]
        pairs = pairs_of(*files)
        # Named by the pair: what has none by the one name and nothing.
        self.pair_of = (
            {file: (file, pairs.get(file)) for file in files[0]},
            {file: (None, file) for file in files[1]}
            | {after: (before, after) for before, after in pairs.items()},
        )
        self.by_key = [
            {key: self.pair_of[side][file] if file else None for key, file, *_ in self.groups[side]}
            for side in (0, 1)
        ]

    def pairs_of_row(self, row: Json) -> list[set[Any]]:
        return [
            {self.by_key[side][row["kind"], key] for key in row[f"agg_keys_{name}"]}
            for side, name in enumerate(("before", "after"))
        ]

    def fields(self) -> list[Json]:
        named = set(self.by_key[0].values()) | set(self.by_key[1].values())
        n_steps = [len(groups[0][3]) if groups else 0 for groups in self.groups]
        rows: list[Json] = []
        samples = []
        for pair in named:
            sides = [
                [group for group in self.groups[side] if self.by_key[side][group[0]] == pair]
                for side in (0, 1)
            ]
            before, after = (sum(group[2] for group in side) for side in sides)
            samples.append(
                [
                    sum(group[3][step] for group in side)
                    for side, n in zip(sides, n_steps, strict=True)
                    for step in range(n)
                ]
            )
            # Of a file that both sides know, nothing may run on one.
            was, now = ({group[1] for group in side} for side in sides)
            rows.append(
                {
                    "file": next(iter(now), None),
                    "before_file": next(iter(was), None),
                    "before_ps": before,
                    "after_ps": after,
                    "delta_ps": after - before,
                    "delta_pct": percent(after - before, before),
                    "n_rows": sum(pair in set().union(*self.pairs_of_row(r)) for r in self.rows),
                    "p_value": None,
                    "significant": None,
                }
            )
        if n_steps[0] >= 4 and n_steps[1] >= 4:
            whole = sum(map(sum, samples))
            large = [i for i, sample in enumerate(samples) if 1000 * sum(sample) >= whole]
            found = p_values([samples[i] for i in large], n_steps[0])
            for i, p_value in zip(large, found, strict=True):
                rows[i] |= {"p_value": p_value, "significant": p_value <= 0.05}
        ranked = sorted(rows, key=lambda row: row["file"] or row["before_file"] or "")
        ranked.sort(key=lambda row: -abs(row["delta_ps"]))
        ranked.sort(key=lambda row: row["file"] is None and row["before_file"] is None)
        return ranked

    def unmatched(self) -> Json:
        answer: Json = {}
        for side, groups in zip(("before", "after"), self.groups, strict=True):
            lost = [row for row in self.rows if row["matched_by"] == f"only_{side}"]
            answer[f"{side}_ps"] = sum(row[f"{side}_ps"] for row in lost)
            whole = sum(group[2] for group in groups)
            answer[f"{side}_pct"] = percent(answer[f"{side}_ps"], whole)
        return answer

    def moved(self) -> list[Json]:
        """Rows that pair lines of different files."""
        both = [row for row in self.rows if row["agg_keys_before"] and row["agg_keys_after"]]
        return [row for row in both if len({frozenset(p) for p in self.pairs_of_row(row)}) == 2]
