"""Find cycles of programs naively, as FIELDS.md and GUIDE.md define them."""

from __future__ import annotations

import itertools
from fractions import Fraction

from tests.naive.op import Span
from tests.naive.step import Step

# The programs of an item, all of one label, by their places.
Item = list[int]


class Programs:
    """Represent the programs of a device, in order of start."""

    def __init__(self, ran: list[Step]) -> None:
        self.ran = ran
        names = [step.name for step in ran]
        functions = {name: self.function(name) for name in names}
        self.labels = []
        for name in names:
            same = [other for other in names if functions[other] == functions[name]]
            distinct = list(dict.fromkeys(same))
            repeated = distinct * len(same)
            is_fixed = len(distinct) < len(same) and repeated[: len(same)] == same
            self.labels.append((name or "") if is_fixed else functions[name])
        whole = sum(map(self.duration, range(len(ran))))
        self.items: list[Item] = []
        for place, label in enumerate(self.labels):
            its = sum(self.duration(i) for i, other in enumerate(self.labels) if other == label)
            goes_on = place > 0 and self.labels[place - 1] == label
            if goes_on and 10 * its < 9 * whole:
                self.items[-1].append(place)
            else:
                self.items.append([place])

    @staticmethod
    def function(name: str | None) -> str:
        head, bracket, tail = (name or "").rpartition("(")
        is_id = bracket and tail.endswith(")") and tail[:-1].isdecimal() and tail.isascii()
        return head if is_id else name or ""

    def duration(self, place: int) -> int:
        return self.ran[place].on_trace.duration

    def label(self, item: Item) -> str:
        return self.labels[item[0]]

    def of(self, cycle: list[Item]) -> tuple[str, ...]:
        return tuple(sorted(set(map(self.label, cycle))))

    def time_of(self, label: str) -> int:
        return sum(
            self.ran[item[-1]].on_trace.end - self.ran[item[0]].on_trace.start
            for item in self.items
            if self.label(item) == label
        )

    def number_of(self, label: str) -> int:
        return sum(self.label(item) == label for item in self.items)

    def cut(self, label: str, *, begins: bool) -> list[list[Item]]:
        cycles: list[list[Item]] = [[]]
        for item in self.items:
            is_border = self.label(item) == label
            if is_border and begins:
                cycles.append([])
            cycles[-1].append(item)
            if is_border and not begins:
                cycles.append([])
        return cycles if cycles[-1] else cycles[:-1]


def places_in(cycle: list[Item]) -> list[int]:
    return [place for item in cycle for place in item]


def kind_of(labels: tuple[str, ...], others: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the labels that are in at least half of the cycles, if a cycle has only these."""
    n = {label: sum(label in other for other in others) for label in labels}
    core = tuple(label for label in labels if n[label] * 2 >= len(others))
    return core if core in others else labels


def share_of(programs: Programs, label: str) -> Fraction:
    """Return the share of the most frequent kind among the cycles that begin with a label."""
    cycles = [programs.of(cycle) for cycle in programs.cut(label, begins=True)[1:-1]]
    kinds = [kind_of(cycle, cycles) for cycle in cycles]
    if len(kinds) == 1:
        return Fraction(1, 3)
    return Fraction(max(map(kinds.count, kinds)) - 1, len(kinds) - 1)


def anchor_of(programs: Programs) -> str | None:
    by_number: dict[int, list[str]] = {}
    for label in sorted(set(map(programs.label, programs.items))):
        by_number.setdefault(programs.number_of(label), []).append(label)
    tried = sorted((n for n in by_number if n > 1), reverse=True)[:8]
    best, best_share = None, Fraction(0)
    for n in tried:
        label = max(by_number[n], key=programs.time_of)
        share = share_of(programs, label)
        if share >= 2 * best_share and share > 0:
            best, best_share = label, share
    return best if best_share >= Fraction(1, 3) else None


def border_of(programs: Programs, anchor: str) -> tuple[str, bool]:
    cycles = programs.cut(anchor, begins=True)[1:-1]
    labels = list(map(programs.of, cycles))
    kinds = [kind_of(of_cycle, labels) for of_cycle in labels]
    usual = max(kinds, key=kinds.count)
    ran = [
        programs.label(item)
        for cycle, kind in zip(cycles, kinds, strict=True)
        if kind == usual
        for item in cycle
    ]
    once = [label for label in usual if ran.count(label) == kinds.count(usual)]
    pauses: dict[tuple[str, str], int] = {}
    for item, after in itertools.pairwise(programs.items):
        pause = programs.ran[after[0]].on_trace.start - programs.ran[item[-1]].on_trace.end
        pair = programs.label(item), programs.label(after)
        pauses[pair] = pauses.get(pair, 0) + max(0, pause)
    pauses = {
        pair: pause
        for pair, pause in pauses.items()
        if all(label in usual for label in pair) and any(label in once for label in pair)
    }
    if not pauses:
        return anchor, True
    longest = sorted(pauses.values(), reverse=True)[:2]
    if longest[0] > 2 * sum(longest[1:]):
        first, second = max(pauses, key=lambda pair: pauses[pair])
    else:
        first, second = min(pauses, key=lambda pair: (-programs.time_of(pair[1]), pair[::-1]))
    if first in once and (
        second not in once or programs.number_of(first) >= programs.number_of(second)
    ):
        return first, False
    return second, True


def whole_cycles(programs: Programs) -> list[tuple[list[int], tuple[str, ...]]]:
    """Return the places of the programs of each cycle, and its kind."""
    anchor = anchor_of(programs)
    if anchor is None:
        return []
    label, begins = border_of(programs, anchor)
    cycles = programs.cut(label, begins=begins)
    before = list(map(programs.of, cycles))
    core = {label for cycle in before for label in kind_of(cycle, before)}
    while cycles[0] and programs.label(cycles[0][0]) not in core:
        cycles[0] = cycles[0][1:]
    while cycles[-1] and programs.label(cycles[-1][-1]) not in core:
        cycles[-1] = cycles[-1][:-1]
    cycles = [cycle for cycle in cycles if cycle]

    def kind(cycle: list[Item]) -> tuple[str, ...] | None:
        labels = programs.of(cycle)
        return kind_of(labels, before) if labels in before else None

    def is_cut_off(cycle: list[Item]) -> bool:
        alike = [
            len(places_in(other))
            for other in cycles
            if other is not cycle and kind(other) == kind(cycle)
        ]
        return kind(cycle) is None or not alike or len(places_in(cycle)) < min(alike)

    cycles = [
        cycle
        for i, cycle in enumerate(cycles)
        if i not in (0, len(cycles) - 1) or not is_cut_off(cycle)
    ]
    after = list(map(programs.of, cycles))
    found = [(places_in(cycle), kind_of(programs.of(cycle), after)) for cycle in cycles]
    return found if len(found) > 1 and any(len(places) > 1 for places, _ in found) else []


def cycles_of(ran: list[Step]) -> list[Step]:
    """Return the cycles of programs as steps, or an empty list if there are none."""
    programs = Programs(ran)
    steps: list[Step] = []
    for places, labels in whole_cycles(programs):
        inside = [ran[place] for place in places]
        times = {
            one.name: sum(other.on_trace.duration for other in inside if other.name == one.name)
            for one in inside
        }
        name = max(times, key=lambda name: times[name])
        first, last = inside[0], inside[-1]
        on_device = None
        if first.on_device and last.on_device:
            on_device = Span(first.on_device.start, last.on_device.end)
        end = max(one.on_trace.end for one in inside)
        steps.append(
            Step(
                index=len(steps),
                name=name,
                on_trace=Span(first.on_trace.start, end),
                on_device=on_device,
                kind=(name, labels),
            )
        )
    return steps
