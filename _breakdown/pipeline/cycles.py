"""Find the cycles in which programs repeat, such as forward pass, sampler, forward pass, sampler.

A capture without a `Steps` line tells only which programs ran when. A program that runs several
times in a row is one item of a cycle, and the number of times may vary. But a program that takes
nearly all of the time, such as a training step between some tiny programs, begins a new cycle each
time.

One item occurs in every cycle. To find it, all items that differ in their number are tried: a cycle
is what runs from one such item to the next. The more frequent item is taken, unless twice as many
cycles of a rarer one are alike. Then the pauses decide with which item a cycle begins.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from itertools import groupby, pairwise

from _breakdown.light import NamedTuple
from _breakdown.pipeline.step_event import StepEvent
from _breakdown.units import counted, percentage, time

# Programs with the same function are the same item of a cycle, even if shapes differ.
_ID_RE = re.compile(r"\(\d+\)$")
# A program with at least 9/10 of the time begins a new cycle each time.
_DOMINANT_PCT = 90
# Try at most this many items, so that the time grows with the number of programs only.
_N_TRIED = 8
# If fewer cycles are alike, nothing repeats.
_LEAST_ALIKE = 1, 3
# A cycle begins after the longest pause if the pause is this many times as long as the next.
_CLEARLY_LONGER = 2
# A note lists at most this many kinds of cycles.
_N_KINDS = 4


class Item(NamedTuple):
    """A program, or the same program several times in a row: `programs[first:last]`."""

    label: str
    first: int
    last: int


class Cycles(NamedTuple):
    """The whole cycles of a capture, and its programs that are in none of them."""

    steps: list[StepEvent]
    note: str


# Cache results, because few programs run often.
@lru_cache(maxsize=1 << 12)
def function_of(name: str | None) -> str:
    """Return the name of a program without the id that the compiler appends."""
    return _ID_RE.sub("", name or "")


def cycles_of(programs: Sequence[StepEvent]) -> Cycles | None:
    """Return the cycles of programs, which are sorted by start. Return None if nothing repeats, or
    if every cycle is just one program."""
    items = items_of(programs)
    anchor = anchor_of(items, programs)
    if anchor is None:
        return None
    found = whole_ones(cut(items, *border_of(items, anchor, programs)))
    if len(found) < 2 or all(of_cycle[-1].last - of_cycle[0].first == 1 for of_cycle in found):
        return None
    kinds = kinds_of(map(labels_of, found))
    steps: list[StepEvent] = []
    # Programs of one function have several names, so the name tells batch sizes apart.
    kinds_by_name: dict[str | None, dict[tuple[str, ...], str]] = {}
    for of_cycle in found:
        ran = programs[of_cycle[0].first : of_cycle[-1].last]
        name = longest_of(ran)
        known = kinds_by_name.setdefault(name, {})
        more = f", kind {len(known) + 1}" if known else ""
        kind = known.setdefault(kinds[labels_of(of_cycle)], f"{name or '<none>'}{more}")
        first, last = ran[0].device_span, ran[-1].device_span
        device_span = (first[0], last[1]) if first and last else None
        end = max(program.end for program in ran)
        steps.append(StepEvent(len(steps), name, ran[0].start, end, device_span, kind, ran))
    n_inside = sum(of_cycle[-1].last - of_cycle[0].first for of_cycle in found)
    return Cycles(steps, note_on(steps, found, programs, len(programs) - n_inside))


def items_of(programs: Sequence[StepEvent]) -> list[Item]:
    labels = labels_by_name(programs)
    names = [labels[program.name] for program in programs]
    times: Counter[str] = Counter()
    for name, program in zip(names, programs, strict=True):
        times[name] += program.duration
    least = _DOMINANT_PCT * sum(times.values())
    dominant = {name for name, its in times.items() if 100 * its >= least}
    items, first = [], 0
    for name, run in groupby(names):
        last = first + sum(1 for _ in run)
        length = 1 if name in dominant else last - first
        items += [Item(name, i, i + length) for i in range(first, last, length)]
        first = last
    return items


def labels_by_name(programs: Sequence[StepEvent]) -> dict[str | None, str]:
    """Return the label of each program: its function. Programs of one function that always run in
    the same order, such as two conversions in every step, keep their names."""
    ran: dict[str, list[str | None]] = {}
    for program in programs:
        ran.setdefault(function_of(program.name), []).append(program.name)
    labels: dict[str | None, str] = {}
    for function, names in ran.items():
        distinct = list(dict.fromkeys(names))
        n = len(distinct)
        in_order = n < len(names) and all(name == distinct[i % n] for i, name in enumerate(names))
        labels |= {name: (name or "") if in_order else function for name in distinct}
    return labels


def labels_of(items: Iterable[Item]) -> tuple[str, ...]:
    return tuple(sorted({item.label for item in items}))


def anchor_of(items: Sequence[Item], programs: Sequence[StepEvent]) -> str | None:
    """Return the label with which cycles are cut, or None if too few cycles are alike."""
    counts, times = Counter(item.label for item in items), times_of(items, programs)
    ranked = sorted(counts, key=lambda label: (-counts[label], -times[label], label))
    # Items that occur equally often are mostly in the same cycles.
    to_try = [next(group) for n, group in groupby(ranked, counts.__getitem__) if n > 1]
    best, n_best, n_of_best = None, 0, 1
    for label in to_try[:_N_TRIED]:
        # The capture can cut off the cycles at its ends.
        found = cut(items, label, begins=True)[1:-1]
        kinds = kinds_of(map(labels_of, found))
        n_alike = max(Counter(kinds[labels_of(of_cycle)] for of_cycle in found).values())
        # Count the cycles that are like the first one of their kind. A single cycle is like no
        # other, so it counts only if nothing else repeats.
        n, n_of = (n_alike - 1, len(found) - 1) if len(found) > 1 else _LEAST_ALIKE
        # Fewer cycles are better only if twice as many of them are alike.
        if n * n_of_best >= 2 * n_best * n_of and n > 0:
            best, n_best, n_of_best = label, n, n_of
    return best if _LEAST_ALIKE[1] * n_best >= _LEAST_ALIKE[0] * n_of_best else None


def times_of(items: Iterable[Item], programs: Sequence[StepEvent]) -> Counter[str]:
    times: Counter[str] = Counter()
    for item in items:
        times[item.label] += programs[item.last - 1].end - programs[item.first].start
    return times


def cut(items: Sequence[Item], label: str, begins: bool) -> list[list[Item]]:
    """Cut before each item with the label or, unless it begins a cycle, after each."""
    found: list[list[Item]] = [[]]
    for item in items:
        if begins and item.label == label:
            found.append([])
        found[-1].append(item)
        if not begins and item.label == label:
            found.append([])
    return found if found[-1] else found[:-1]


def kinds_of(cycles: Iterable[tuple[str, ...]]) -> dict[tuple[str, ...], tuple[str, ...]]:
    """Return the kind of each set of labels: the labels without optional ones, which are in fewer
    than half of the cycles, if some cycle has just these labels."""
    seen = Counter(cycles)
    in_cycles: Counter[str] = Counter()
    for labels, n in seen.items():
        in_cycles.update(dict.fromkeys(labels, n))
    n_cycles = sum(seen.values())
    kinds = {}
    for labels in seen:
        core = tuple(label for label in labels if 2 * in_cycles[label] >= n_cycles)
        kinds[labels] = core if core in seen else labels
    return kinds


def border_of(
    items: Sequence[Item], anchor: str, programs: Sequence[StepEvent]
) -> tuple[str, bool]:
    """Return the label at the border of two cycles, and whether it begins a cycle or ends one.

    The border is where the pause is longest. If no pause is clearly the longest, the cycle begins
    with the item that takes the most time, because this does not depend on the capture's start.
    """
    found = cut(items, anchor, begins=True)[1:-1] or [list(items)]
    kinds = kinds_of(map(labels_of, found))
    usual = Counter(kinds[labels_of(of_cycle)] for of_cycle in found).most_common(1)[0][0]
    alike = [of_cycle for of_cycle in found if kinds[labels_of(of_cycle)] == usual]
    n_inside = Counter(item.label for of_cycle in alike for item in of_cycle)
    once = {label for label in usual if n_inside[label] == len(alike)}
    n_cycles = Counter(item.label for item in items)
    times = times_of(items, programs)
    pauses: Counter[tuple[str, str]] = Counter()
    for item, following in pairwise(items):
        pause = programs[following.first].start - programs[item.last - 1].end
        pauses[item.label, following.label] += max(0, pause)
    # Optional items are at no border, because not every cycle has them.
    borders = [pair for pair in pauses if set(pair) <= set(usual) and not once.isdisjoint(pair)]
    if not borders:
        return anchor, True
    longest, *others = sorted((pauses[pair] for pair in borders), reverse=True)
    if longest > _CLEARLY_LONGER * max(others, default=0):
        before, after = max(borders, key=pauses.__getitem__)
    else:
        before, after = min(borders, key=lambda pair: (-times[pair[1]], pair[::-1]))
    ends = before in once and (after not in once or n_cycles[before] >= n_cycles[after])
    return (before, False) if ends else (after, True)


def whole_ones(found: list[list[Item]]) -> list[list[Item]]:
    """Return the cycles without the first and the last one if the capture cuts them off: if they
    are like no other cycle, or shorter than all others like them."""
    kinds = kinds_of(map(labels_of, found))
    core = {label for kind in kinds.values() for label in kind}
    while found and found[0] and found[0][0].label not in core:
        found[0] = found[0][1:]
    while found and found[-1] and found[-1][-1].label not in core:
        found[-1] = found[-1][:-1]
    found = [of_cycle for of_cycle in found if of_cycle]

    def is_whole(place: int) -> bool:
        kind = kinds.get(labels_of(found[place]))
        alike = [
            other[-1].last - other[0].first
            for i, other in enumerate(found)
            if i != place % len(found) and kinds.get(labels_of(other)) == kind
        ]
        length = found[place][-1].last - found[place][0].first
        return kind is not None and bool(alike) and length >= min(alike)

    first = 0 if len(found) > 1 and is_whole(0) else 1
    last = len(found) if len(found) > 1 and is_whole(-1) else -1
    return found[first:last]


def longest_of(programs: Sequence[StepEvent]) -> str | None:
    """Return the name of the program with the most time."""
    times: Counter[str | None] = Counter()
    for program in programs:
        times[program.name] += program.duration
    return times.most_common(1)[0][0]


def note_on(
    steps: Sequence[StepEvent],
    cycles: Sequence[Sequence[Item]],
    programs: Sequence[StepEvent],
    n_outside: int,
) -> str:
    """Return a note on the programs of a cycle, by kind of cycle, and on programs in no cycle."""
    of_kind: dict[object, list[int]] = {}
    for place, step in enumerate(steps):
        of_kind.setdefault(step.kind, []).append(place)
    whole = sum(step.duration for step in steps)
    shares = {
        kind: sum(steps[place].duration for place in places) for kind, places in of_kind.items()
    }
    ranked = sorted(of_kind, key=lambda kind: -shares[kind])
    says = []
    for kind in ranked[:_N_KINDS]:
        times: Counter[str] = Counter()
        runs: Counter[str] = Counter()
        for place in of_kind[kind]:
            for item in cycles[place]:
                for program in programs[item.first : item.last]:
                    times[function_of(program.name)] += program.duration
                    runs[function_of(program.name)] += 1
        n = len(of_kind[kind])
        parts = [
            f"{name}{f' x {runs[name] / n:.3g}' if runs[name] != n else ''} {time(its // n)}"
            for name, its in times.items()
        ]
        share = "" if len(ranked) == 1 else f" ({percentage(100 * shares[kind] / whole)})"
        says.append(f"{counted(n, 'cycle')}{share} of {', '.join(parts)}")
    more = len(ranked) - _N_KINDS
    says += [f"{counted(more, 'more kind')}"] if more > 0 else []
    outside = f"; {counted(n_outside, 'program')} ran in no whole cycle" if n_outside else ""
    return (
        "the trace has no Steps line; its programs (XLA Modules) repeat in cycles, each of which"
        f" counts as a step: {'; '.join(says)}{outside}"
    )
