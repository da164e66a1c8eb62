"""Whoever is slow once more: the one cohort of a run whose steps are all used, by definition."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import comb
from typing import Any

Json = dict[str, Any]
Name = tuple[str, str]

FIGURES = ("step_duration", "own", "comm", "host", "idle", "load")


def half_up(number: Fraction) -> int:
    return int((number + Fraction(1, 2)) // 1)


def mean(figures: Iterable[Fraction]) -> Fraction:
    listed = list(figures)
    return sum(listed, Fraction(0)) / len(listed)


def median(figures: Sequence[Fraction]) -> Fraction:
    ranked = sorted(figures)
    return (ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]) / 2


def pct(part: Fraction, whole: Fraction) -> float | None:
    return round(float(100 * part / whole), 3) if whole else None


def named(name: Name) -> Json:
    return {"host": name[0], "device": name[1]}


def columns_of(steps: Sequence[Json]) -> dict[str, list[Fraction]]:
    """A figure of each step."""
    columns = {
        key: [Fraction(step[f"{name}_ps"]) for step in steps]
        for key, name in (
            ("step_duration", "duration"),
            ("busy", "busy"),
            ("comm", "comm"),
            ("host", "host"),
        )
    }
    tuples = list(
        zip(*(columns[n] for n in ("step_duration", "busy", "comm", "host")), strict=True)
    )
    columns["idle"] = [a - b for a, b, _, _ in tuples]
    columns["load"] = [a - c for a, _, c, _ in tuples]
    columns["own"] = [a - c - h - (a - b) for a, b, c, h in tuples]
    return columns


def lines_of(groups: Sequence[Json], steps: Sequence[Json]) -> dict[Name, Fraction]:
    """What a step spends on each line on average."""
    return {
        (group["kind"], group["agg_key"]): Fraction(
            half_up(Fraction(sum(step["durs_ps"][i] for step in steps), len(steps)))
        )
        for i, group in enumerate(groups)
        if group["kind"] != "comm"
    }


class Run:
    def __init__(self, run: Sequence[Json]) -> None:
        self.data: dict[Name, dict[str, list[Fraction]]] = {}
        self.lines: dict[Name, dict[Name, Fraction]] = {}
        for each in run:
            for at, device in enumerate(each["devices"]):
                steps = [step for step in each["steps"] if step["device"] == at]
                name = each["host"], device["device"]
                self.data[name] = columns_of(steps)
                self.lines[name] = lines_of(each["groups"], steps)
        self.names = names = sorted(self.data)
        self.hosts = {host: [name for name in names if name[0] == host] for host, _ in names}
        self.n = len(self.data[names[0]]["load"])
        self.means = {
            name: {figure: mean(self.data[name][figure]) for figure in FIGURES} for name in names
        }
        self.slowest = [
            min(names, key=lambda x: (-self.data[x]["load"][i], x)) for i in range(self.n)
        ]
        self.n_slowest = {name: self.slowest.count(name) for name in names}
        self.ranked = sorted(names, key=lambda x: (-self.means[x]["load"], x))
        by_load = sorted(names, key=lambda x: (self.means[x]["load"], x))
        self.middle = by_load[(len(names) - 1) // 2]
        self.suspect = min(names, key=lambda x: (-self.n_slowest[x], x))
        self.excess = self.means[self.suspect]["load"] - self.means[self.middle]["load"]
        self.p = self.chance_of_the_suspect()
        self.is_slow = self.p <= Fraction(1, 20) and self.excess > 0
        self.slow = self.suspect if self.is_slow else self.ranked[0]

    def chance_of_the_suspect(self) -> Fraction:
        """That some device is the slowest as often, if each step drew it."""
        n, many = self.n, len(self.names)
        tail = (
            comb(n, j) * Fraction(1, many) ** j * Fraction(many - 1, many) ** (n - j)
            for j in range(self.n_slowest[self.suspect], n + 1)
        )
        return min(Fraction(1), many * sum(tail, Fraction(0)))

    def answer(self) -> Json:
        by_load = sorted(self.hosts, key=lambda h: (-self.load_of_host(h), h))
        return {
            "n_devices": len(self.names),
            "n_hosts": len(self.hosts),
            "n_steps": self.n,
            "verdict": self.verdict(),
            "steps": self.steps(),
            "hosts": [
                {"host": host, "n_devices": len(self.hosts[host]), **self.figures(self.hosts[host])}
                for host in by_load
            ],
            "devices": [{**named(name), **self.figures([name])} for name in self.ranked],
            "tail": {"n_devices_omitted": 0, "n_slowest": 0},
            "slowest_vs_median": self.slowest_vs_median(),
        }

    def load_of_host(self, host: str) -> Fraction:
        return mean(self.means[name]["load"] for name in self.hosts[host])

    def figures(self, those: Sequence[Name]) -> Json:
        return {
            "n_steps": self.n,
            "n_slowest": sum(self.n_slowest[name] for name in those),
            **{
                f"{figure}_ps": half_up(mean(self.means[name][figure] for name in those))
                for figure in FIGURES
            },
        }

    # steps

    def loads(self, step: int) -> list[Fraction]:
        return [self.data[name]["load"][step] for name in self.names]

    def durations(self, step: int) -> list[Fraction]:
        return [self.data[name]["step_duration"][step] for name in self.names]

    def imbalance_pct(self, step: int) -> Fraction:
        win = max(self.loads(step)) - mean(self.loads(step))
        return 100 * win / mean(self.durations(step))

    def steps(self) -> list[Json]:
        rows = []
        for i, slowest in enumerate(self.slowest):
            most, mean_load = max(self.loads(i)), half_up(mean(self.loads(i)))
            durations = self.durations(i)
            rows.append(
                {
                    "name": f"step {i}",
                    "slowest": named(slowest),
                    "max_load_ps": most,
                    "mean_load_ps": mean_load,
                    "imbalance_ps": most - mean_load,
                    "imbalance_pct_of_step": round(float(self.imbalance_pct(i)), 3),
                    "step_spread_pct": pct(max(durations) - min(durations), median(durations)),
                }
            )
        return rows

    # verdict

    def verdict(self) -> Json:
        part = mean(self.imbalance_pct(i) for i in range(self.n))
        return {
            "imbalance": ("balanced", "slight", "large")[(part >= 1) + (part >= 5)],
            "straggler": named(self.suspect) if self.is_slow else None,
            "n_slowest": self.n_slowest[self.suspect],
            "n_steps": self.n,
            "p_value": round(float(self.p), 6),
            "scope": self.scope() if self.is_slow else None,
            "cause": self.cause() if self.is_slow else None,
            "uniform_pct": self.uniform_pct(),
            "slow_host": None if self.is_slow else self.slow_host(),
            "why_not": None,
        }

    def scope(self) -> str | None:
        on_host = self.hosts[self.suspect[0]]
        elsewhere = [self.means[name]["load"] for name in self.names if name not in on_host]
        if not elsewhere or len(on_host) == 1:
            return None
        middle = Fraction(median(elsewhere))
        beyond = {name: self.means[name]["load"] - middle for name in on_host}
        above = all(by > 0 and by >= beyond[self.suspect] / 2 for by in beyond.values())
        return "host" if above else "device"

    def cause(self) -> str | None:
        slow, middle = self.means[self.suspect], self.means[self.middle]
        more = {figure: slow[figure] - middle[figure] for figure in ("own", "idle", "host")}
        most = max(more, key=more.__getitem__)
        return most if more[most] >= Fraction(8, 10) * self.excess else None

    def total(self, name: Name) -> Fraction:
        return sum(self.lines[name].values(), Fraction(0))

    def uniform_pct(self) -> float | None:
        slow, middle = self.lines[self.slow], self.lines[self.middle]
        totals = self.total(self.slow), self.total(self.middle)
        if totals[0] == totals[1]:
            return None
        factor = totals[0] / totals[1]
        off = sum((abs(slow[key] - factor * middle[key]) for key in slow), Fraction(0))
        return round(max(0.0, float(100 * (1 - off / 2 / abs(totals[0] - totals[1])))), 3)

    def slow_host(self) -> Json | None:
        hosts, n = self.hosts, self.n
        sizes = {len(those) for those in hosts.values()}
        if len(hosts) == 1 or len(sizes) > 1 or sizes == {1}:
            return None
        slow = None
        for host in hosts:
            n_above = 0
            for i in range(n):
                least = {
                    h: min(self.data[x]["load"][i] for x in those) for h, those in hosts.items()
                }
                n_above += least[host] > max(least[h] for h in hosts if h != host)
            chance = sum(
                comb(n, j) * Fraction(len(hosts) - 1) ** (n - j) for j in range(n_above, n + 1)
            ) / Fraction(len(hosts)) ** (n - 1)
            if chance <= Fraction(1, 20):
                p_value = round(float(chance), 6)
                slow = {"host": host, "n_slowest": n_above, "p_value": p_value}
        return slow

    # lines

    def slowest_vs_median(self) -> Json:
        slow, middle = self.lines[self.slow], self.lines[self.middle]
        rows = sorted((-abs(slow[key] - middle[key]), *key, middle[key], slow[key]) for key in slow)
        loads = [half_up(self.means[name]["load"]) for name in (self.slow, self.middle)]
        excess = loads[0] - loads[1]
        return {
            "slow": named(self.slow),
            "median": named(self.middle),
            "excess_ps": excess,
            "factor": round(float(self.total(self.slow) / self.total(self.middle)), 6),
            "rows": [
                {
                    "kind": kind,
                    "agg_key": agg_key,
                    "median_ps": m,
                    "slow_ps": s,
                    "delta_ps": s - m,
                    "delta_pct": pct(s - m, m),
                }
                for _, kind, agg_key, m, s in rows[:20]
            ],
            "rest_ps": excess - sum(s - m for *_, m, s in rows[:20]),
        }


def cohort_of(run: Sequence[Json]) -> Json:
    printed: Json = json.loads(json.dumps(Run(run).answer(), default=int))
    return printed
