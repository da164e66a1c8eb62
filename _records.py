"""Records of runs, and what compares them.

A record is what one trace file comes down to: a JSON object of integers with a row for each
source line (group) and, for each step of each device, the time that every line took. It is small
enough to be committed, and all that two questions need:

    compare(before, after)  what did a change do? Two captures, line by line.
    spread(loaders)         which device is slow? All devices of all hosts of one run.

Values in, values out: nothing here knows a trace, opens a file or prints.
"""

from __future__ import annotations

import json
import math
import random
import re
import zlib
from bisect import bisect_left
from collections import Counter, defaultdict
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache, partial
from itertools import chain, combinations, islice, zip_longest

from _pipeline import scopes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
    from typing import Any, NoReturn

    Json = dict[str, Any]
    # As RECORD says.
    Record = Json
    Rule = Callable[[str, list["Traits"], list["Traits"]], Iterator["Match"]]

KINDS = ("compute", "data_move", "comm", "other")
DEVICE = "/device:TPU:0"
MODULES = "modules"
ALPHA = Fraction(1, 20)


class NoAnswer(Exception):
    """Records don't answer the question: why, and what else there is to say of it."""

    def __init__(self, reason: str, **fields: object) -> None:
        super().__init__(reason)
        self.reason = reason
        self.fields = fields


# ----------------------------------------------------------------------------------------------
# Records, and how they are read.

# Each field by what its value is: a type, or the one value that it can have; `(X, None)` is X or
# null, `[X]` a list of X. Other fields may stand beside them.
RECORD = {
    "status": "ok",
    "mode": "record",
    "format": 1,
    "xplane_file": str,
    "run": (str, None),
    "host": str,
    # `file:line:column`
    "frames": [str],
    "groups": [
        {
            "kind": str,
            "agg_key": str,
            "agg_key_kind": str,
            # Places in the list of frames, outermost first.
            "frames": [int],
            "source": (str, None),
            "tf_ops": [str],
            "signatures": [str],
            "ops": str,
        }
    ],
    "devices": [
        {
            "device": str,
            "device_type": (str, None),
            "clock": str,
            "step_source": (str, None),
            "program": str,
        }
    ],
    # Those of one device by time.
    "steps": [
        {
            "device": int,
            "index": int,
            "name": (str, None),
            "used": bool,
            "duration_ps": int,
            # Of used steps only; the lists by group, trailing zeros left out.
            "busy_ps": (int, None),
            "comm_ps": (int, None),
            "host_ps": (int, None),
            "wait_ps": (int, None),
            "durs_ps": ([int], None),
            "ns": ([int], None),
        }
    ],
}
# No sum of picoseconds comes near it, and floats hold its square.
INT_LIMIT = 1 << 100
# Gzipped records unpack to some 6 times their size, and have a bracket for some 50 bytes. Beyond
# these, data is made to fill the memory: that of an object takes 30 times its two brackets.
INFLATED_LIMIT = 1 << 30
INFLATED_SMALL, INFLATION = 1 << 24, 64
FEW_BRACKETS, BYTES_OF_BRACKET = 1 << 18, 16
# The steps that are used of a device run much the same ops, so few zeros are left out of them.
FEW_FIGURES, FIGURES_FILLED_IN = 1 << 20, 4
GZIP_MAGIC = b"\x1f\x8b"


def decode(data: bytes) -> Record:
    """A record from the bytes of its file, plain or gzipped."""
    if data.startswith(GZIP_MAGIC):
        data = inflate(data)
    n_brackets = data.count(b"[") + data.count(b"{")
    if n_brackets > max(FEW_BRACKETS, len(data) // BYTES_OF_BRACKET):
        raise unreadable(f"not a record: {n_brackets} brackets in {len(data)} bytes")
    try:
        return record_of(json.loads(data))
    except RecursionError:
        raise unreadable("not JSON: nested too deep") from None
    except ValueError as error:
        raise unreadable(f"not JSON: {str(error)[:200]}") from None


def inflate(data: bytes) -> bytes:
    """All members of gzip data."""
    members = []
    left = limit = min(INFLATED_LIMIT, INFLATED_SMALL + INFLATION * len(data))
    while data:
        inflater = zlib.decompressobj(wbits=31)
        try:
            members.append(inflater.decompress(data, left + 1))
        except zlib.error as error:
            raise unreadable(f"bad gzip data: {error}") from None
        left -= len(members[-1])
        if left < 0:
            raise unreadable(f"gzip data expands past the limit of {limit} bytes")
        if not inflater.eof:
            raise unreadable("bad gzip data: it ends too early")
        data = inflater.unused_data
    return b"".join(members)


def record_of(value: Any) -> Record:
    """The object that the mode `record` prints, once it is known to be one."""
    if isinstance(value, dict) and value.get("status") == "absent":
        said = [value[name] for name in ("reason", "detail") if isinstance(value.get(name), str)]
        raise unreadable(": ".join(["no record could be made", *said]))
    check(value, RECORD, "record")
    groups, devices = value["groups"], value["devices"]
    if len({(group["kind"], group["agg_key"]) for group in groups}) < len(groups):
        wrong("groups", "one is there twice")
    if len({device["device"] for device in devices}) < len(devices):
        wrong("devices", "one is there twice")
    for index, group in enumerate(groups):
        if group["kind"] not in KINDS:
            wrong(f"groups[{index}]", "there is no such kind")
        if max(group["frames"], default=-1) >= len(value["frames"]):
            wrong(f"groups[{index}]", "there is no such frame")
    last = [-1] * len(devices)
    n_figures: list[list[int]] = [[] for _ in devices]
    for index, step in enumerate(value["steps"]):
        where = f"steps[{index}]"
        if step["device"] >= len(devices):
            wrong(where, "there is no such device")
        if step["index"] <= last[step["device"]]:
            wrong(where, "it is not in the order of time")
        last[step["device"]] = step["index"]
        if step["used"]:
            if None in step.values() and any(step[name] is None for name in FIGURES):
                wrong(where, "it is used and has no figures")
            n_of_step = max(len(step["durs_ps"]), len(step["ns"]))
            if n_of_step > len(groups):
                wrong(where, "there are more figures than groups")
            n_figures[step["device"]].append(n_of_step)
            if step["busy_ps"] > step["duration_ps"]:
                wrong(where, "it is busy for longer than it lasts")
    for index, of_steps in enumerate(n_figures):
        n_all = len(of_steps) * max(of_steps, default=0)
        if n_all > max(FEW_FIGURES, FIGURES_FILLED_IN * sum(of_steps)):
            wrong(f"devices[{index}]", "its steps leave out most figures")
    record: Record = value
    return record


FIGURES = ("busy_ps", "comm_ps", "host_ps", "wait_ps", "durs_ps", "ns")


def check(value: Any, wanted: Any, where: str) -> None:
    """Raise where the value isn't what is wanted, in the notation of RECORD."""
    if isinstance(wanted, tuple):
        if value is None:
            return
        wanted = wanted[0]
    if isinstance(wanted, dict):
        check(value, dict, where)
        for name, each in wanted.items():
            check(value.get(name, ...), each, f"{where}.{name}")
    elif isinstance(wanted, list):
        check(value, list, where)
        if isinstance(wanted[0], dict):
            for index, each in enumerate(value):
                check(each, wanted[0], f"{where}[{index}]")
        # At once, since there are many.
        elif not set(map(type, value)) <= {wanted[0]}:
            wrong(where, "not all of it is of one type")
        elif value and wanted[0] is int:
            check(min(value), int, where)
            check(max(value), int, where)
    else:
        kind = wanted if isinstance(wanted, type) else type(wanted)
        # The very type: to Python, true is an int.
        if type(value) is int and not 0 <= value < INT_LIMIT:
            wrong(where, "it is out of range")
        if type(value) is not kind:
            wrong(where, "it is missing" if value is ... else "it is of another type")
        if wanted is not kind and value != wanted:
            wrong(where, f"it is not {wanted}")


def wrong(where: str, what: str) -> NoReturn:
    raise unreadable(f"not a record: {where}: {what}")


def unreadable(detail: str) -> NoAnswer:
    return NoAnswer("unreadable_record", detail=detail)


# ----------------------------------------------------------------------------------------------
# What is used of a record: steps of one device, and the lines that ran in them.


@dataclass(slots=True)
class Line:
    """A group, and what it took in each step."""

    group: Json
    frames: list[str]
    durs: tuple[int, ...]
    ns: tuple[int, ...]

    @property
    def kind(self) -> str:
        kind: str = self.group["kind"]
        return kind

    @property
    def mean(self) -> int:
        return mean(self.durs)


@dataclass(slots=True)
class Run:
    """The used steps of one device, and all its steps."""

    record: Record
    device: Json
    all_steps: list[Json]
    steps: list[Json]

    def lines(self) -> list[Line]:
        """The groups of which anything ran."""
        groups, frames = self.record["groups"], self.record["frames"]
        durs, ns = (
            zip_longest(*(step[name] for step in self.steps), fillvalue=0)
            for name in ("durs_ps", "ns")
        )
        # Groups that no step has figures of are last.
        figures_of = zip_longest(durs, ns, fillvalue=(0,) * len(self.steps))
        return [
            Line(group, [frames[index] for index in group["frames"]], *figures)
            for group, figures in zip(groups, figures_of, strict=False)
            if any(map(any, figures))
        ]


def runs_of(record: Record, asked: slice) -> list[Run]:
    """Of each device the steps that are used and asked for."""
    of_devices: list[list[Json]] = [[] for _ in record["devices"]]
    for step in record["steps"]:
        of_devices[step["device"]].append(step)
    return [
        Run(record, device, steps, [step for step in steps[asked] if step["used"]])
        for device, steps in zip(record["devices"], of_devices, strict=True)
    ]


def run_of(record: Record, device: str, asked: slice, **said: str) -> Run:
    """The used steps of a device; `said` is part of the reason if there are none."""
    runs = {run.device["device"]: run for run in runs_of(record, asked)}
    if device not in runs:
        raise NoAnswer("device_not_found", available_devices=list(runs), **said)
    run = runs[device]
    if not run.steps:
        detail = f"of {len(run.all_steps)} steps none is used and asked for"
        names = [step["name"] for step in run.all_steps]
        raise NoAnswer("step_not_found", detail=detail, available_steps=names, **said)
    return run


def mean(figures: Sequence[int]) -> int:
    return rounded_mean(sum(figures), len(figures))


def rounded_mean(total: int, n: int) -> int:
    """Half up."""
    return (2 * total + n) // (2 * n)


def percent(part: int, whole: int) -> float | None:
    return ratio(100 * part, whole, 3)


def ratio(part: int, whole: int, digits: int) -> float | None:
    # Adding 0.0 makes a zero of -0.0.
    return round(part / whole, digits) + 0.0 if whole else None


def rounded(number: Fraction | None, digits: int) -> float | None:
    return None if number is None else ratio(number.numerator, number.denominator, digits)


# ----------------------------------------------------------------------------------------------
# Matching: which groups of two captures are the same line?
#
# Line numbers, paths, launchers and the names of single ops change without meaning. So a group is
# known by the files that its calls go through, the columns they stand at, and the scopes of its
# ops. Whatever only one side knows (a launcher's file, a scope that was renamed) is left out on
# both. What then still looks alike goes by the order of its lines if both sides have as many of
# it, and else is not told apart but put into one row.

FRAME_RE = re.compile(r"(.*?)(?::(\d{1,18}))?(?::(\d{1,18}))?", re.DOTALL)
# Of a name read backwards: a search for what it ends in would start at each of its characters.
SSA_SUFFIX_RE = re.compile(r"\A(:?)(?:\d+\.)+")
MOST_PARTS = 64


@dataclass(slots=True)
class Match:
    """Lines of one kind that are one row."""

    matched_by: str
    before: list[Line]
    after: list[Line]


@dataclass(slots=True)
class Traits:
    """What a line can be known by on the other side."""

    line: Line
    # (file, column) of each frame whose file both sides know, outermost first.
    places: tuple[tuple[str, int], ...]
    # (phase, the part of the program, the op) of each tf_op.
    scopes: frozenset[tuple[str, ...]]
    # What look-alikes are ordered by, and the files in it that only this side knows.
    order: tuple[tuple[str, int, int], ...]
    strangers: tuple[str, ...]


def matches_of(before: Sequence[Line], after: Sequence[Line]) -> list[Match]:
    """Put each line of either side into exactly one match."""
    every = left = traits_of(before, after)
    matches: list[Match] = []
    for level, (key, rule) in LEVELS.items():
        alike: dict[Hashable, tuple[list[Traits], list[Traits]]] = defaultdict(lambda: ([], []))
        for side in (0, 1):
            for each in left[side]:
                # An empty key says nothing of a line.
                if value := key(each):
                    alike[each.line.kind, value][side].append(each)
        found: list[Match] = []
        for ours, theirs in alike.values():
            if ours and theirs:
                found += rule(level, ours, theirs)
        matches += found
        settled = {id(line) for match in found for line in match.before + match.after}
        left = [[each for each in side if id(each.line) not in settled] for side in left]
    matches += [Match("only_before", [each.line], []) for each in left[0]]
    matches += [Match("only_after", [], [each.line]) for each in left[1]]
    return with_look_alikes(matches, {id(each.line): each.scopes for each in chain(*every)})


def with_look_alikes(matches: list[Match], scopes_of: dict[int, frozenset[Any]]) -> list[Match]:
    """Put into one row what has the same scopes and lacks a line here that is too many there.

    Such a line was moved to where it looks like others: to another file, or behind a helper.
    """
    uneven: dict[Hashable, list[Match]] = defaultdict(list)
    for match in matches:
        if len(match.before) != len(match.after):
            lines = match.before + match.after
            keys = {(line.kind, scopes_of[id(line)]) for line in lines}
            if len(keys) == 1 and scopes_of[id(lines[0])]:
                uneven[keys.pop()].append(match)
    merged = set()
    found = []
    for those in uneven.values():
        if len({len(match.before) > len(match.after) for match in those}) == 2:
            merged |= {id(match) for match in those}
            before = [line for match in those for line in match.before]
            after = [line for match in those for line in match.after]
            found.append(Match("same_scopes", before, after))
    return [match for match in matches if id(match) not in merged] + found


def key_without_stack(traits: Traits) -> str:
    """A tf_op that is no more than the name of an op, `copy.17:`, counts without its number."""
    group = traits.line.group
    return "" if group["agg_key_kind"] == "stack" else without_number(group["agg_key"])


def files_and_scopes(traits: Traits) -> Hashable:
    files = frozenset(files_of(traits))
    return files and traits.scopes and (files, traits.scopes)


def innermost_place_and_ops(traits: Traits) -> Hashable:
    """Of a line whose scopes are others now, the ops are still the same."""
    stack = traits.line.frames
    if not stack or split_frame(stack[-1])[0] in traits.strangers:
        return None
    return traits.places[-1], frozenset((scope[0], scope[-1]) for scope in traits.scopes)


def unique(level: str, ours: list[Traits], theirs: list[Traits]) -> Iterator[Match]:
    if len(ours) == len(theirs) == 1:
        yield from pooled(level, ours, theirs)


def pooled(level: str, ours: list[Traits], theirs: list[Traits]) -> Iterator[Match]:
    yield Match(level, [each.line for each in ours], [each.line for each in theirs])


def in_order(level: str, ours: list[Traits], theirs: list[Traits]) -> Iterator[Match]:
    """As many on one side as on the other: the first is the first. Else all are one row."""
    if len(ours) == len(theirs) and is_ordered(ours) and is_ordered(theirs):
        for our, their in zip(ordered(ours), ordered(theirs), strict=True):
            yield Match(level, [our.line], [their.line])
    else:
        yield from pooled(level, ours, theirs)


def is_ordered(alike: list[Traits]) -> bool:
    """Whether their lines give an order, the same for a side that has other names for files."""
    n_lines = len({each.order for each in alike})
    return n_lines == len(alike) and len({each.strangers for each in alike}) == 1


def by_places(level: str, ours: list[Traits], theirs: list[Traits]) -> Iterator[Match]:
    """Equal places tell the most, unless columns have moved: then they are equal by chance."""
    if not is_moved(ours, theirs):
        at = [by_place(side) for side in (ours, theirs)]
        shared = at[0].keys() & at[1].keys()
        # Of look-alikes at one place some may have been edited and stand beside it now. If there
        # are as many as before, in the same files, their lines still have an order.
        if len(ours) == len(theirs) and len({files_of(each) for each in ours + theirs}) == 1:
            shared = {place for place in shared if len(at[0][place]) == len(at[1][place])}
        for place in shared:
            yield from in_order("same_places_and_scopes", at[0][place], at[1][place])
        ours = [each for each in ours if each.places not in shared]
        theirs = [each for each in theirs if each.places not in shared]
    if ours and theirs:
        yield from in_order(level, ours, theirs)


def by_place(alike: list[Traits]) -> dict[Hashable, list[Traits]]:
    at: dict[Hashable, list[Traits]] = defaultdict(list)
    for each in alike:
        at[each.places].append(each)
    return at


def files_of(traits: Traits) -> tuple[str, ...]:
    return tuple(file for file, _ in traits.places)


def is_moved(ours: list[Traits], theirs: list[Traits]) -> bool:
    """Whether a block was indented: in order, all stand where they stood or so far beside it."""
    if len(ours) != len(theirs):
        return False
    distances = set()
    for our, their in zip(ordered(ours), ordered(theirs), strict=True):
        if files_of(our) != files_of(their):
            return False
        distances |= {b - a for (_, a), (_, b) in zip(our.places, their.places, strict=True)}
    return len(distances - {0}) == 1


def ordered(alike: list[Traits]) -> list[Traits]:
    return sorted(alike, key=lambda each: each.order)


# In this order: what is alike by the key is matched by the rule.
LEVELS: dict[str, tuple[Callable[[Traits], Hashable], Rule]] = {
    "same_ops": (lambda traits: (traits.line.group["ops"], traits.scopes), unique),
    "same_key": (key_without_stack, pooled),
    "same_files_and_scopes": (files_and_scopes, by_places),
    "same_places": (lambda traits: traits.places, in_order),
    "same_scopes": (lambda traits: traits.scopes, in_order),
    "same_line": (innermost_place_and_ops, unique),
}
MATCHED_BY = (
    "same_ops same_key same_places_and_scopes same_files_and_scopes same_places same_scopes"
    " same_line only_before only_after"
).split()


def traits_of(before: Sequence[Line], after: Sequence[Line]) -> list[list[Traits]]:
    sides = before, after
    stacks = [
        # A frame counts once, at its innermost place: recursion goes through it again and again.
        [[split_frame(f) for f in reversed(dict.fromkeys(reversed(line.frames)))] for line in side]
        for side in sides
    ]
    files = paired_files(*({file for stack in side for file, _, _ in stack} for side in stacks))
    paths = [[list(map(scope_of, line.group["tf_ops"])) for line in side] for side in sides]
    parts = [{part for of in side for _, path, _ in of for part in path} for side in paths]
    known = parts[0] & parts[1]
    return [
        [
            Traits(
                line,
                places=tuple((names[file], column) for file, _, column in stack if file in names),
                scopes=frozenset(
                    (phase, *filter(known.__contains__, path), op) for phase, path, op in of
                ),
                order=tuple((names.get(file, ""), *position) for file, *position in stack),
                strangers=tuple(file for file, _, _ in stack if file not in names),
            )
            for line, stack, of in zip(*side, strict=True)
        ]
        for names, *side in zip(files, sides, stacks, paths, strict=True)
    ]


def split_frame(frame: str) -> tuple[str, int, int]:
    """File, line and column."""
    found = FRAME_RE.fullmatch(frame)
    file, line, column = found.groups() if found else (frame, None, None)
    return file, int(line or 0), int(column or 0)


def scope_of(tf_op: str) -> tuple[str, tuple[str, ...], str]:
    """Phase, path, op: of `jit(step)/transpose(jvp(head))/while/body/dot:` backward, head, dot."""
    # As the phase of an op, but for `.remat` in its name: a record has no names of ops.
    if "/rematted_computation/" in tf_op:
        phase = "recompute"
    elif "transpose(" in tf_op and "jvp" in tf_op:
        phase = "backward"
    else:
        phase = "forward" if "jvp(" in tf_op else "other"
    scope = scopes.scope_of(tf_op)
    return phase, scope.parts, without_number(scope.primitive or "")


def without_number(name: str) -> str:
    """`copy.17:` is `copy:`."""
    return SSA_SUFFIX_RE.sub(r"\1", name[::-1])[::-1]


def paired_files(before: set[str], after: set[str]) -> tuple[dict[str, str], dict[str, str]]:
    """The common name of each file that both sides know, by its name on either side.

    Equal paths are one file, and else those that are each other's best by the components that
    their paths end in: another root is the same program.
    """
    both = {file: file for file in before & after}
    names = dict(both), dict(both)
    rest = before - after, after - before
    by_tail: tuple[dict[str, list[str]], ...] = (defaultdict(list), defaultdict(list))
    for side in (0, 1):
        for file in rest[side]:
            for tail in tails(file):
                by_tail[side][tail].append(file)

    def best(file: str, other: int) -> str | None:
        found = next((by_tail[other][tail] for tail in tails(file) if tail in by_tail[other]), [])
        return found[0] if len(found) == 1 else None

    for ours in rest[0]:
        theirs = best(ours, 1)
        if theirs is not None and best(theirs, 0) == ours:
            names[0][ours] = names[1][theirs] = min(ours, theirs)
    return names


def tails(path: str) -> Iterator[str]:
    """What the path ends in, the longest first."""
    parts = path.split("/")
    for start in range(max(0, len(parts) - MOST_PARTS), len(parts)):
        yield "/".join(parts[start:])


# ----------------------------------------------------------------------------------------------
# Noise: could the steps of either side as well be those of the other?

MOST_ASSIGNMENTS = 5000


@dataclass(slots=True)
class Noise:
    """What can be told from so many steps, by all ways to say which of them are `before`."""

    n_before: int
    n_after: int
    n_assignments: int
    exact: bool
    min_p_value: Fraction

    @property
    def too_few_steps(self) -> bool:
        return self.min_p_value > ALPHA


def noise_of(n_before: int, n_after: int) -> Noise:
    n = math.comb(n_before + n_after, n_before)
    if n > MOST_ASSIGNMENTS:
        return Noise(n_before, n_after, MOST_ASSIGNMENTS, False, Fraction(1, MOST_ASSIGNMENTS))
    # Of equal sides the mirror image of an assignment is as extreme as itself.
    return Noise(n_before, n_after, n, True, Fraction(1 + (n_before == n_after), n))


def assignments(noise: Noise) -> Iterator[Sequence[int]]:
    """Which steps are called `before`; the observed assignment is the first."""
    steps = range(noise.n_before + noise.n_after)
    if noise.exact:
        every = combinations(steps, noise.n_before)
        # Of two mirror images that with step 0 will do.
        has_mirrors = noise.n_before == noise.n_after
        yield from islice(every, noise.n_assignments // 2 if has_mirrors else None)
    else:
        rng = random.Random(0)
        yield steps[: noise.n_before]
        for _ in range(1, noise.n_assignments):
            yield rng.sample(steps, noise.n_before)


@dataclass(slots=True)
class Deviations:
    """What one row took in each step beyond its least, and what its statistic needs besides."""

    of_steps: list[int]
    expected: int
    variance: int

    @classmethod
    def of(cls, sample: Sequence[int], n_chosen: int) -> Deviations:
        n, least = len(sample), min(sample)
        beyond = [x - least for x in sample]
        total = sum(beyond)
        variance = n * sum(x * x for x in beyond) - total * total
        return cls([n * x for x in beyond], n_chosen * total, variance)


def p_values_of(
    families: Sequence[Sequence[Sequence[int]]], noise: Noise
) -> Iterator[list[Fraction]]:
    """Of each row of each family: how often chance makes some row as extreme as this one is.

    The statistic of a row x under an assignment c of n_b steps is |z(c)|, z(c) the sum over c of
    z_j = (N x_j - S) / sqrt(N sum(x^2) - S^2): the difference of the means in units of the
    spread. Each assignment has the maximum over the rows; the share of assignments whose maximum
    reaches a row's own statistic is its p. Squares are compared, since they are fractions.
    """
    rows = [[Deviations.of(sample, noise.n_before) for sample in family] for family in families]
    maxima: list[list[Fraction]] = [[] for _ in families]
    for sums in chosen_sums([row.of_steps for family in rows for row in family], noise):
        for of_family, family in zip(maxima, rows, strict=True):
            of_family.append(greatest_square(family, sums))
    for of_family, family in zip(maxima, rows, strict=True):
        of_family.sort()
        own = (greatest_square([row], [sum(row.of_steps[: noise.n_before])]) for row in family)
        n = len(of_family)
        yield [Fraction(n - bisect_left(of_family, square), n) for square in own]


def chosen_sums(rows: Sequence[Sequence[int]], noise: Noise) -> Iterator[Iterator[int]]:
    """Of each assignment the sum of each row over the steps chosen.

    All rows at once: for each step a large number whose digits are what they took in it.
    """
    size = max(map(sum, rows)).bit_length() // 8 + 1
    steps = [
        int.from_bytes(b"".join(x.to_bytes(size, "little") for x in step), "little")
        for step in zip(*rows, strict=True)
    ]
    starts = range(0, size * len(rows), size)
    for chosen in assignments(noise):
        digits = sum(map(steps.__getitem__, chosen)).to_bytes(size * len(rows), "little")
        yield (int.from_bytes(digits[start : start + size], "little") for start in starts)


def greatest_square(rows: Iterable[Deviations], sums: Iterable[int]) -> Fraction:
    """The greatest statistic of these rows, squared; takes no more than their sums."""
    greatest, variance = 0, 1
    # The sums of another family may follow.
    for row, of_row in zip(rows, sums, strict=False):
        difference = of_row - row.expected
        square = difference * difference
        if square * variance > greatest * row.variance:
            greatest, variance = square, row.variance
    return Fraction(greatest, variance)


# ----------------------------------------------------------------------------------------------
# compare: what did a change do?

N_SIGNATURES = 4
# Rows below this part of the time are not tested: the fewer, the smaller a difference shows.
TESTED_PART = Fraction(1, 1000)
RUN_TO_RUN = (
    "run-to-run differences are not covered: compare two captures of the same code to see them"
)


@dataclass(slots=True)
class Figure:
    """What something takes on one side: on average, and in each step."""

    mean: int
    steps: list[int]


@dataclass(slots=True)
class Change:
    """A figure on both sides; its p is null where it isn't tested."""

    before: Figure
    after: Figure
    p_value: Fraction | None = None

    @property
    def delta(self) -> int:
        return self.after.mean - self.before.mean

    @property
    def samples(self) -> list[int]:
        return self.before.steps + self.after.steps

    def fields(self) -> Json:
        return {
            "before_ps": self.before.mean,
            "after_ps": self.after.mean,
            "delta_ps": self.delta,
            "delta_pct": percent(self.delta, self.before.mean),
            "before_range_ps": [min(self.before.steps), max(self.before.steps)],
            "after_range_ps": [min(self.after.steps), max(self.after.steps)],
            "p_value": rounded(self.p_value, 6),
            "significant": None if self.p_value is None else self.p_value <= ALPHA,
        }


@dataclass(slots=True)
class Row:
    match: Match
    change: Change

    @property
    def kind(self) -> str:
        return (self.match.before or self.match.after)[0].kind

    @property
    def order(self) -> tuple[Any, ...]:
        """The largest change first."""
        before, after = self.match.before, self.match.after
        keys = agg_keys(after), agg_keys(before), self.kind
        return -abs(self.change.delta), source_of(after) or "", *keys


def compare(
    before: Record,
    after: Record,
    *,
    before_device: str = DEVICE,
    after_device: str = DEVICE,
    steps: slice = slice(None),
    top: int = 50,
) -> Json:
    """What of the output names no paths. `steps` narrows what is used of either side."""
    runs = (
        run_of(before, before_device, steps, side="baseline"),
        run_of(after, after_device, steps),
    )
    noise = noise_of(len(runs[0].steps), len(runs[1].steps))
    lines = [run.lines() for run in runs]
    figures = [totals_of(*side) for side in zip(runs, lines, strict=True)]
    totals = {name: Change(figures[0][name], figures[1][name]) for name in figures[0]}
    rows = [row_of(match, noise) for match in matches_of(*lines)]
    rows.sort(key=lambda row: row.order)
    step = totals["step_duration"].before.mean
    tested: list[Change] = []
    if not noise.too_few_steps:
        floor = sum(sum(row.change.samples) for row in rows) * TESTED_PART
        tested = [row.change for row in rows if sum(row.change.samples) >= floor]
        families = tested, list(totals.values())
        samples = [[change.samples for change in family] for family in families]
        for family, p_values in zip(families, p_values_of(samples, noise), strict=True):
            for change, p_value in zip(family, p_values, strict=True):
                change.p_value = p_value
    return {
        "notes": notes_of(*runs, noise),
        "before": run_fields(runs[0]),
        "after": run_fields(runs[1]),
        "same_device_type": runs[0].device["device_type"] == runs[1].device["device_type"],
        "same_program": runs[0].device["program"] == runs[1].device["program"],
        "noise": {
            "method": "permutation_max",
            "covers": "step_to_step",
            "alpha": float(ALPHA),
            "n_before": noise.n_before,
            "n_after": noise.n_after,
            "n_tested": len(tested),
            "n_assignments": noise.n_assignments,
            "exact": noise.exact,
            "min_p_value": rounded(noise.min_p_value, 6),
            "why_not": "too_few_steps" if noise.too_few_steps else None,
        },
        "totals": {name: change.fields() for name, change in totals.items()},
        "by_match": {
            level: match_fields([row for row in rows if row.match.matched_by == level])
            for level in MATCHED_BY
        },
        "rows": [{"rank": rank, **row_fields(row, step)} for rank, row in enumerate(rows[:top], 1)],
        "tail": {
            "n_rows_omitted": len(rows[top:]),
            "by_kind": {
                kind: tail_fields([row for row in rows[top:] if row.kind == kind]) for kind in KINDS
            },
        },
    }


def totals_of(run: Run, lines: Sequence[Line]) -> dict[str, Figure]:
    """Of the means some are computed from others, so that they add up as those of a step do."""
    steps = run.steps
    duration, busy, wait = ([s[n] for s in steps] for n in ("duration_ps", "busy_ps", "wait_ps"))
    idle = [a - b for a, b in zip(duration, busy, strict=True)]
    leaves = figure_of(lines, len(steps))
    mean_busy = mean(duration) - mean(idle)
    return {
        "step_duration": Figure(mean(duration), duration),
        "busy": Figure(mean_busy, busy),
        "idle": Figure(mean(idle), idle),
        **{
            kind: figure_of([line for line in lines if line.kind == kind], len(steps))
            for kind in KINDS
        },
        "overlap": Figure(
            mean_busy - leaves.mean, [a - b for a, b in zip(busy, leaves.steps, strict=True)]
        ),
        "wait": Figure(mean(wait), wait),
    }


def figure_of(lines: Sequence[Line], n_steps: int) -> Figure:
    steps = list(map(sum, zip(*(line.durs for line in lines), strict=True)))
    return Figure(sum(line.mean for line in lines), steps or [0] * n_steps)


def row_of(match: Match, noise: Noise) -> Row:
    before = figure_of(match.before, noise.n_before)
    return Row(match, Change(before, figure_of(match.after, noise.n_after)))


def notes_of(before: Run, after: Run, noise: Noise) -> list[str]:
    notes = [RUN_TO_RUN]
    for name in ("device", "device_type", "clock", "program"):
        sides = before.device[name], after.device[name]
        if sides[0] != sides[1]:
            notes.append(f"another {name}: {sides[0]} before, {sides[1]} after")
    if noise.n_before != noise.n_after:
        notes.append(f"another number of steps: {noise.n_before} before, {noise.n_after} after")
    if noise.too_few_steps:
        notes.append(
            f"{noise.n_before} + {noise.n_after} steps are too few to tell a difference from"
            " noise; 4 + 4 would do"
        )
    return notes


def run_fields(run: Run) -> Json:
    device = ("device", "device_type", "clock", "program")
    step = ("index", "name", "duration_ps")
    return {
        "xplane_file": run.record["xplane_file"],
        "host": run.record["host"],
        **{name: run.device[name] for name in device},
        "n_steps": len(run.steps),
        "steps": [{name: each[name] for name in step} for each in run.steps],
    }


def row_fields(row: Row, step: int) -> Json:
    before, after = row.match.before, row.match.after
    tf_ops = [tf_op for line in after or before for tf_op in line.group["tf_ops"]]
    gone, new = ({s for line in side for s in line.group["signatures"]} for side in (before, after))
    return {
        "kind": row.kind,
        "matched_by": row.match.matched_by,
        "source_inner": source_of(after),
        "before_source_inner": source_of(before),
        "tf_op": min(tf_ops, default=None),
        "n_groups_before": len(before),
        "n_groups_after": len(after),
        "agg_keys_before": agg_keys(before),
        "agg_keys_after": agg_keys(after),
        **row.change.fields(),
        "delta_pct_of_step": percent(row.change.delta, step),
        "n_executions_before": executions(before),
        "n_executions_after": executions(after),
        "signatures_gone": sorted(gone - new)[:N_SIGNATURES],
        "signatures_new": sorted(new - gone)[:N_SIGNATURES],
    }


def source_of(lines: Sequence[Line]) -> str | None:
    sources = [line.group["source"] for line in lines]
    return min((source for source in sources if source), default=None)


def agg_keys(lines: Sequence[Line]) -> list[str]:
    return sorted(line.group["agg_key"] for line in lines)


def executions(lines: Sequence[Line]) -> float:
    """In a step, on average."""
    n_steps = len(lines[0].ns) if lines else 1
    return round(sum(sum(line.ns) for line in lines) / n_steps, 3)


def match_fields(rows: Sequence[Row]) -> Json:
    before, after = sums_of(rows)
    return {
        "n_rows": len(rows),
        "n_groups_before": sum(len(row.match.before) for row in rows),
        "n_groups_after": sum(len(row.match.after) for row in rows),
        "before_ps": before,
        "after_ps": after,
    }


def tail_fields(rows: Sequence[Row]) -> Json:
    before, after = sums_of(rows)
    return {"before_ps": before, "after_ps": after, "delta_ps": after - before}


def sums_of(rows: Sequence[Row]) -> tuple[int, int]:
    return sum(row.change.before.mean for row in rows), sum(row.change.after.mean for row in rows)


# ----------------------------------------------------------------------------------------------
# spread: which device is slow?
#
# Collectives make the steps of all devices equally long: who is slow shows in the load, the part
# of a step that is not communication. Figures are kept of all devices, lines read only of two.

N_LINES = 20
LINE_KINDS = ("compute", "data_move", "other")
# What is below so many percent of the step.
BALANCED, SLIGHT = 1, 5
CAUSES = ("own", "idle", "host")
CAUSE_COVERS = Fraction(4, 5)


@dataclass(slots=True)
class Load:
    """A step of a device, or what several take together."""

    step_name: str | None
    step_duration: int
    comm: int
    host: int
    idle: int

    @property
    def load(self) -> int:
        return self.step_duration - self.comm

    @property
    def own(self) -> int:
        return self.load - self.host - self.idle

    def means(self, n: int) -> Json:
        names = ("step_duration", "own", "comm", "host", "idle", "load")
        return {f"{name}_ps": rounded_mean(getattr(self, name), n) if n else None for name in names}


@dataclass(slots=True)
class Member:
    """A device of the run, and where its record is to be had again."""

    host: str
    device: str
    program: str
    step_source: str | None
    # By what makes them the same step on all devices.
    steps: dict[Hashable, Load]
    load_record: Callable[[], Record]

    @property
    def name(self) -> tuple[str, str]:
        return self.host, self.device

    @property
    def fields(self) -> Json:
        return {"host": self.host, "device": self.device}


def total_of(loads: Iterable[Load]) -> Load:
    columns = zip(
        *((each.step_duration, each.comm, each.host, each.idle) for each in loads), strict=True
    )
    return Load(None, *(list(map(sum, columns)) or [0, 0, 0, 0]))


@dataclass(slots=True)
class Cohort:
    """The devices of one program, by name, the steps that all of them have, and their totals."""

    members: list[Member]
    keys: list[Hashable]
    totals: dict[tuple[str, str], Load]
    # By load, most first; ties by name.
    ranked: list[Member]
    n_slowest: Counter[tuple[str, str]]

    @classmethod
    def of(cls, members: list[Member]) -> Cohort:
        members = sorted(members, key=lambda member: member.name)
        keys = [key for key in members[0].steps if all(key in each.steps for each in members)]
        totals = {each.name: total_of(each.steps[key] for key in keys) for each in members}
        ranked = sorted(members, key=lambda each: -totals[each.name].load)
        n_slowest = Counter(slowest(members, key).name for key in keys)
        return cls(members, keys, totals, ranked, n_slowest)

    def load(self, member: Member) -> int:
        return self.totals[member.name].load

    @property
    def by_host(self) -> dict[str, list[Member]]:
        hosts: dict[str, list[Member]] = defaultdict(list)
        for member in self.members:
            hosts[member.host].append(member)
        return hosts

    def median(self) -> Member:
        """Of an even number the one of less load."""
        ranked = sorted(self.members, key=self.load)
        return ranked[(len(ranked) - 1) // 2]

    def suspect(self) -> Member:
        """The slowest in most steps."""
        return max(self.members, key=lambda member: self.n_slowest[member.name])


def slowest(members: Sequence[Member], key: Hashable) -> Member:
    return max(members, key=lambda member: member.steps[key].load)


def spread(
    loaders: Iterable[Callable[[], Record]],
    *,
    device: str | None = None,
    steps: slice = slice(None),
    top: int = 50,
) -> Json:
    """What of the output names no paths.

    A loader returns a record, or raises NoAnswer where it can't be read; of each cohort those of
    two devices are called again, for their lines. `steps` narrows what is used.
    """
    crew = crew_of(loaders, device, steps)
    by_program: dict[str, list[Member]] = defaultdict(list)
    for member in crew.members.values():
        by_program[member.program].append(member)
    cohorts = sorted(by_program.items(), key=lambda each: (-len(each[1]), each[0]))
    notes = set(crew.notes)
    fields = [cohort_fields(Cohort.of(each), notes, top) for _, each in cohorts]
    return {
        "notes": [*(f"a host can't be read: {why}" for why in crew.unreadable), *sorted(notes)],
        "n_hosts": len(crew.hosts),
        "n_hosts_unreadable": len(crew.unreadable),
        "n_devices": len(crew.members),
        "cohorts": fields,
    }


@dataclass(slots=True)
class Crew:
    """All devices of the run by name, all hosts, and what is wrong with the rest."""

    members: dict[tuple[str, str], Member]
    hosts: set[str]
    unreadable: list[str]
    notes: set[str]


def crew_of(loaders: Iterable[Callable[[], Record]], device: str | None, steps: slice) -> Crew:
    crew = Crew({}, set(), [], set())
    failures: list[tuple[str, str, Json]] = []
    available = set()
    # Cohorts may be many, of devices of the same hosts.
    load_again = lru_cache(maxsize=2)(called)
    for load_record in loaders:
        try:
            record = load_record()
        except NoAnswer as failure:
            detail = str(failure.fields.get("detail", failure.reason))
            failures.append((detail, failure.reason, failure.fields))
            continue
        crew.hosts.add(record["host"])
        for run in runs_of(record, steps):
            available.add(run.device["device"])
            if device not in (None, run.device["device"]):
                continue
            member = member_of(run, partial(load_again, load_record))
            other = crew.members.setdefault(member.name, member)
            if other is not member:
                crew.notes.add(f"{member.device} of host {member.host} is there twice: taken once")
                # Whichever it is, it is the same in any order.
                is_told = identity(member) != identity(other)
                key = identity if is_told else identity_of_lines
                crew.members[member.name] = max(member, other, key=key)
    failures.sort(key=lambda each: each[0])
    crew.unreadable += (detail for detail, *_ in failures)
    if failures and not crew.hosts:
        detail, reason, fields = failures[0]
        if all(each == reason for _, each, _ in failures):
            raise NoAnswer(reason, **fields)
        raise NoAnswer("unreadable_xplane_pb", detail=detail)
    if not crew.members:
        raise NoAnswer("device_not_found", available_devices=sorted(available))
    return crew


def called(load_record: Callable[[], Record]) -> Record:
    return load_record()


def member_of(run: Run, load_record: Callable[[], Record]) -> Member:
    used = {step["index"] for step in run.steps}
    return Member(
        run.record["host"],
        run.device["device"],
        run.device["program"],
        run.device["step_source"],
        steps={
            key: Load(
                step["name"],
                step["duration_ps"],
                step["comm_ps"],
                step["host_ps"],
                step["duration_ps"] - step["busy_ps"],
            )
            for key, step in keyed_steps(run)
            if step["index"] in used
        },
        load_record=load_record,
    )


def keyed_steps(run: Run) -> Iterator[tuple[Hashable, Json]]:
    """Steps are the same by their name and its k-th time, executions of programs by their index."""
    times: Counter[str | None] = Counter()
    for step in run.all_steps:
        times[step["name"]] += 1
        is_module = run.device["step_source"] == MODULES
        yield step["index"] if is_module else (step["name"], times[step["name"]]), step


def identity(member: Member) -> tuple[Any, ...]:
    loads = [
        (each.load, each.step_duration, each.host, each.idle) for each in member.steps.values()
    ]
    names = list(map(repr, member.steps))
    return len(loads), loads, names, member.program, member.step_source or ""


def identity_of_lines(member: Member) -> tuple[Any, ...]:
    lines = lines_of(member.load_record(), member, list(member.steps)) if member.steps else {}
    return tuple(sorted((*key, line.durs, source_of([line]) or "") for key, line in lines.items()))


def cohort_fields(cohort: Cohort, notes: set[str], top: int) -> Json:
    members, n = cohort.members, len(cohort.keys)
    program = members[0].program
    n_left_out = max(len(member.steps) for member in members) - n
    if n_left_out:
        notes.add(f"program {program}: {n_left_out} steps left out that not all devices have used")
    if len(members) > 1 and any(member.step_source == MODULES for member in members):
        notes.add(
            f"program {program}: executions are aligned by their place in the capture; captures"
            " may be offset"
        )
    verdict, slowest_vs_median = verdict_of(cohort)
    hosts = host_rows(cohort)
    return {
        "program": program,
        "n_devices": len(members),
        "n_hosts": len(hosts),
        "n_steps": n,
        "verdict": verdict,
        "steps": [step_row(cohort, key) for key in cohort.keys],
        "hosts": hosts,
        "devices": [
            {
                **member.fields,
                "n_steps": n,
                "n_slowest": cohort.n_slowest[member.name],
                **cohort.totals[member.name].means(n),
            }
            for member in cohort.ranked[:top]
        ],
        "tail": {
            "n_devices_omitted": len(cohort.ranked[top:]),
            "n_slowest": sum(cohort.n_slowest[member.name] for member in cohort.ranked[top:]),
        },
        "slowest_vs_median": slowest_vs_median,
    }


def host_rows(cohort: Cohort) -> list[Json]:
    rows = []
    for host, members in cohort.by_host.items():
        total = total_of(cohort.totals[member.name] for member in members)
        n = len(cohort.keys) * len(members)
        row = {
            "host": host,
            "n_devices": len(members),
            "n_steps": len(cohort.keys),
            "n_slowest": sum(cohort.n_slowest[member.name] for member in members),
            **total.means(n),
        }
        rows.append((-Fraction(total.load, n or 1), host, row))
    return [row for _, _, row in sorted(rows, key=lambda each: each[:2])]


def step_row(cohort: Cohort, key: Hashable) -> Json:
    steps = [member.steps[key] for member in cohort.members]
    durations = [step.step_duration for step in steps]
    slow = slowest(cohort.members, key)
    largest = slow.steps[key].load
    mean_load = mean([step.load for step in steps])
    return {
        "name": steps[0].step_name,
        "slowest": slow.fields,
        "max_load_ps": largest,
        "mean_load_ps": mean_load,
        "imbalance_ps": largest - mean_load,
        "imbalance_pct_of_step": rounded(imbalance_of(steps), 3),
        "step_spread_pct": percent(2 * (max(durations) - min(durations)), twice_median(durations)),
    }


def imbalance_of(steps: Sequence[Load]) -> Fraction | None:
    """What perfect balance could win at most, in percent of the mean step."""
    loads = [step.load for step in steps]
    duration = sum(step.step_duration for step in steps)
    return Fraction(100 * (len(loads) * max(loads) - sum(loads)), duration) if duration else None


def verdict_of(cohort: Cohort) -> tuple[Json, Json | None]:
    """Who is slow and why, and the lines that tell it."""
    n, n_devices = len(cohort.keys), len(cohort.members)
    verdict: Json = dict.fromkeys(
        "imbalance straggler n_slowest n_steps p_value scope cause uniform_pct slow_host"
        " why_not".split()
    )
    verdict["n_steps"] = n
    if not n or n_devices == 1:
        verdict["why_not"] = "one_device" if n else "no_common_step"
        return verdict, None
    suspect, median = cohort.suspect(), cohort.median()
    n_slowest = cohort.n_slowest[suspect.name]
    p_value = chance_of_slowest(n_slowest, n, n_devices)
    # Where all are equal the first by name is the slowest every time, and yet nobody is slow.
    is_slow = p_value <= ALPHA and cohort.load(suspect) > cohort.load(median)
    lines, uniform = slow_vs_median(cohort, suspect if is_slow else cohort.ranked[0], median)
    verdict |= {
        "imbalance": imbalance_verdict(cohort),
        "n_slowest": n_slowest,
        "p_value": rounded(p_value, 6),
        "uniform_pct": rounded(uniform, 3),
    }
    if is_slow:
        verdict |= {
            "straggler": suspect.fields,
            "scope": scope_of_straggler(cohort, suspect),
            "cause": cause_of(cohort.totals[suspect.name], cohort.totals[median.name]),
        }
    else:
        verdict["slow_host"] = slow_host_of(cohort)
    return verdict, lines


def chance_of_slowest(k: int, n: int, n_devices: int) -> Fraction:
    """At most: that one of so many equal devices is the slowest in k or more of n steps."""
    ways, of_term = 0, 1
    # From n steps down: each term of the binomial comes from the one before.
    for i in range(n, k - 1, -1):
        ways += of_term
        of_term = of_term * i * (n_devices - 1) // (n - i + 1)
    return min(Fraction(1), n_devices * Fraction(ways, n_devices**n))


def slow_host_of(cohort: Cohort) -> Json | None:
    """The host that is slow as a whole: its devices share the steps, so that none stands out.

    So hosts are compared by their fastest device. Of fewer devices that is slower by itself: hosts
    of different sizes aren't compared.
    """
    by_host = cohort.by_host
    sizes = set(map(len, by_host.values()))
    if len(by_host) == 1 or len(sizes) > 1 or sizes == {1}:
        return None
    n_slowest: Counter[str] = Counter()
    for key in cohort.keys:
        least = {host: min(each.steps[key].load for each in own) for host, own in by_host.items()}
        first, second = sorted(by_host, key=least.__getitem__, reverse=True)[:2]
        if least[first] > least[second]:
            n_slowest[first] += 1
    host, n = max(n_slowest.items(), key=lambda each: each[1], default=("", 0))
    p_value = chance_of_slowest(n, len(cohort.keys), len(by_host))
    if p_value > ALPHA:
        return None
    return {"host": host, "n_slowest": n, "p_value": rounded(p_value, 6)}


def imbalance_verdict(cohort: Cohort) -> str | None:
    steps = [[member.steps[key] for member in cohort.members] for key in cohort.keys]
    known = [part for part in map(imbalance_of, steps) if part is not None]
    if not known:
        return None
    part = sum(known) / len(known)
    return "balanced" if part < BALANCED else "slight" if part < SLIGHT else "large"


def scope_of_straggler(cohort: Cohort, straggler: Member) -> str | None:
    own = [cohort.load(each) for each in cohort.members if each.host == straggler.host]
    others = [cohort.load(each) for each in cohort.members if each.host != straggler.host]
    if not others or len(own) == 1:
        return None
    return "host" if 2 * min(own) > twice_median(others) else "device"


def cause_of(slow: Load, median: Load) -> str | None:
    """What most of the excess is."""
    parts = {name: getattr(slow, name) - getattr(median, name) for name in CAUSES}
    largest = max(CAUSES, key=lambda name: parts[name])
    return largest if parts[largest] >= CAUSE_COVERS * (slow.load - median.load) else None


def slow_vs_median(cohort: Cohort, slow: Member, median: Member) -> tuple[Json, Fraction | None]:
    """The lines of both; and in percent how much of the excess is one factor on all of them."""
    sides = [lines_of(each.load_record(), each, cohort.keys) for each in (slow, median)]
    rows: list[Json] = []
    for kind, agg_key in sides[0].keys() | sides[1].keys():
        both = [side.get((kind, agg_key)) for side in sides]
        slow_ps, median_ps = (line.mean if line else 0 for line in both)
        rows.append(
            {
                "kind": kind,
                "agg_key": agg_key,
                "source_inner": source_of([line for line in both if line]),
                "median_ps": median_ps,
                "slow_ps": slow_ps,
                "delta_ps": slow_ps - median_ps,
                "delta_pct": percent(slow_ps - median_ps, median_ps),
            }
        )
    rows.sort(key=lambda row: (-abs(row["delta_ps"]), row["kind"], row["agg_key"]))
    top = rows[:N_LINES]
    pairs = [(row["slow_ps"], row["median_ps"]) for row in rows]
    of_slow, of_median = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    uniform = None
    if of_median and of_slow != of_median:
        off = sum(abs(ours * of_median - theirs * of_slow) for ours, theirs in pairs)
        uneven = Fraction(off, 2 * of_median * abs(of_slow - of_median))
        uniform = max(Fraction(0), 100 * (1 - uneven))
    n = len(cohort.keys)
    excess = rounded_mean(cohort.load(slow), n) - rounded_mean(cohort.load(median), n)
    fields = {
        "slow": slow.fields,
        "median": median.fields,
        "excess_ps": excess,
        "factor": ratio(of_slow, of_median, 6),
        "rows": top,
        "rest_ps": excess - sum(row["delta_ps"] for row in top),
    }
    return fields, uniform


def lines_of(
    record: Record, member: Member, keys: Sequence[Hashable]
) -> dict[tuple[str, str], Line]:
    """What ran on a device in these steps, communication aside."""
    wanted = set(keys)
    for run in runs_of(record, slice(None)):
        if run.device["device"] == member.device:
            run.steps = [s for key, s in keyed_steps(run) if key in wanted and s["used"]]
            if len(run.steps) == len(wanted):
                lines = [line for line in run.lines() if line.kind in LINE_KINDS]
                return {(line.kind, line.group["agg_key"]): line for line in lines}
    raise unreadable(f"the record of host {member.host} changed while it was read")


def twice_median(figures: Iterable[int]) -> int:
    """The two in the middle, or the one twice."""
    ranked = sorted(figures)
    return ranked[(len(ranked) - 1) // 2] + ranked[len(ranked) // 2]
