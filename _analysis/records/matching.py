"""Match the lines of two captures: decide which groups before and after belong to the same source
line.

Line numbers, paths, launchers and op names can change although the code is the same. A group is
therefore recognised by the files and columns of its stack frames, and by the scopes of its ops.
Files and scopes that occur on only one side (a launcher's file, a renamed scope) are ignored. If
several groups look alike and both sides have equally many of them, they are paired in the order of
their lines. Otherwise these groups share one row.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from fractions import Fraction
from itertools import chain
from typing import Any, Literal, NamedTuple

from _analysis.records.recorded_steps import Line
from _pipeline import scopes

MatchedBy = Literal[
    "same_ops",
    "same_key",
    "same_places_and_scopes",
    "same_files_and_scopes",
    "same_places",
    "same_scopes",
    "same_line",
    "similar_scopes",
    "only_before",
    "only_after",
]
Rule = Callable[[MatchedBy, list["Traits"], list["Traits"]], Iterator["Match"]]

FRAME_RE = re.compile(r"(.*?)(?::(\d{1,18}))?(?::(\d{1,18}))?", re.DOTALL)
# Match this expression against reversed names: searching for a suffix would try a match at every
# character.
SSA_SUFFIX_RE = re.compile(r"\A(:?)(?:\d+\.)+")
MOST_PARTS = 64
# Minimum share of scopes that two lines must have in common to be matched.
MOST_SCOPES = Fraction(1, 2)


class Match(NamedTuple):
    """Lines of one kind that match; each match is one row."""

    matched_by: MatchedBy
    before: list[Line]
    after: list[Line]


class Traits(NamedTuple):
    """The traits by which a line is recognised on the other side."""

    line: Line
    # (file, column) of each frame whose file occurs on both sides, outermost first.
    places: tuple[tuple[str, int], ...]
    # (phase, parts of the scope, primitive) of each tf_op.
    scopes: frozenset[tuple[str, ...]]
    # The sort key for lines that look alike, and the stack's files that occur only on this side.
    order: tuple[tuple[str, int, int], ...]
    strangers: tuple[str, ...]


def matches_of(before: Sequence[Line], after: Sequence[Line]) -> list[Match]:
    """Assign each line of both sides to exactly one match."""
    every = left = traits_of(before, after)
    matches: list[Match] = []
    for level, (key, rule) in LEVELS.items():
        alike: dict[Hashable, tuple[list[Traits], list[Traits]]] = defaultdict(lambda: ([], []))
        for side in (0, 1):
            for traits in left[side]:
                # Skip lines with an empty key: they cannot be matched on this level.
                if value := key(traits):
                    alike[traits.line.kind, value][side].append(traits)
        found: list[Match] = []
        for ours, theirs in alike.values():
            if ours and theirs:
                found += rule(level, ours, theirs)
        matches += found
        left = unsettled(left, found)
    found = list(similar(*left))
    matches += found
    left = unsettled(left, found)
    matches += [Match("only_before", [traits.line], []) for traits in left[0]]
    matches += [Match("only_after", [], [traits.line]) for traits in left[1]]
    return with_look_alikes(matches, {id(traits.line): traits.scopes for traits in chain(*every)})


def unsettled(left: list[list[Traits]], found: Sequence[Match]) -> list[list[Traits]]:
    settled = {id(line) for match in found for line in match.before + match.after}
    return [[traits for traits in side if id(traits.line) not in settled] for side in left]


def similar(before: Sequence[Traits], after: Sequence[Traits]) -> Iterator[Match]:
    """Match two lines that share at least half of their scopes, if each is the other's only best
    match.

    A line has the scopes of all its ops. If array sizes change or a loop is unrolled, the compiler
    fuses the line's ops differently, so some scopes differ.
    """
    shares = {
        (i, j): Fraction(len(our.scopes & their.scopes), len(our.scopes | their.scopes))
        for i, our in enumerate(before)
        for j, their in enumerate(after)
        if our.line.kind == their.line.kind and our.scopes & their.scopes
    }
    # For each line of each side, the shares of scopes in common with lines of the other side.
    of_line: list[dict[int, list[Fraction]]] = [defaultdict(list), defaultdict(list)]
    for pair, share in shares.items():
        for side in (0, 1):
            of_line[side][pair[side]].append(share)
    for pair, share in shares.items():
        others = [of_line[side][pair[side]] for side in (0, 1)]
        is_best = all(max(found) == share and found.count(share) == 1 for found in others)
        if is_best and share >= MOST_SCOPES:
            yield Match("similar_scopes", [before[pair[0]].line], [after[pair[1]].line])


def with_look_alikes(matches: list[Match], scopes_of: dict[int, frozenset[Any]]) -> list[Match]:
    """Join matches with equal scopes if one has more lines before and another has more lines after.

    Such matches occur if code was moved to another file or into a helper function and now looks
    like other code there.
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
    """Return the key of a group without a stack; return an empty key for other groups.

    A number at the end is removed, so that `copy.17:` and `copy.18:` match.
    """
    group = traits.line.group
    return "" if group.agg_key_kind == "stack" else without_number(group.agg_key)


def files_and_scopes(traits: Traits) -> Hashable:
    files = frozenset(files_of(traits))
    return files and traits.scopes and (files, traits.scopes)


def innermost_place_and_ops(traits: Traits) -> Hashable:
    """Return the innermost frame's file and column, and the primitives with their phases. This key
    stays the same if only scopes are renamed."""
    stack = traits.line.group.frames
    if not stack or split_frame(stack[-1])[0] in traits.strangers:
        return None
    return traits.places[-1], frozenset((scope[0], scope[-1]) for scope in traits.scopes)


def unique(level: MatchedBy, ours: list[Traits], theirs: list[Traits]) -> Iterator[Match]:
    if len(ours) == len(theirs) == 1:
        yield from pooled(level, ours, theirs)


def pooled(level: MatchedBy, ours: list[Traits], theirs: list[Traits]) -> Iterator[Match]:
    yield Match(level, [traits.line for traits in ours], [traits.line for traits in theirs])


def in_order(level: MatchedBy, ours: list[Traits], theirs: list[Traits]) -> Iterator[Match]:
    """Pair the lines in order if both sides have the same number of lines and their order is clear;
    otherwise put all of them into one row."""
    if len(ours) == len(theirs) and is_ordered(ours) and is_ordered(theirs):
        for our, their in zip(ordered(ours), ordered(theirs), strict=True):
            yield Match(level, [our.line], [their.line])
    else:
        yield from pooled(level, ours, theirs)


def is_ordered(alike: list[Traits]) -> bool:
    """Return whether the lines have a unique order that does not depend on files that occur on only
    one side."""
    n_lines = len({traits.order for traits in alike})
    return n_lines == len(alike) and len({traits.strangers for traits in alike}) == 1


def by_places(level: MatchedBy, ours: list[Traits], theirs: list[Traits]) -> Iterator[Match]:
    """Match lines with equal files and columns first, then match the remaining lines in order. If
    a block was indented, match all lines in order, because equal columns are then a coincidence."""
    if not is_moved(ours, theirs):
        at = [by_place(side) for side in (ours, theirs)]
        shared = at[0].keys() & at[1].keys()
        # Edits may have changed the columns of some of these lines. If both sides have the same
        # number of lines in the same files, the order of the lines is still reliable.
        if len(ours) == len(theirs) and len({files_of(traits) for traits in ours + theirs}) == 1:
            shared = {place for place in shared if len(at[0][place]) == len(at[1][place])}
        for place in shared:
            yield from in_order("same_places_and_scopes", at[0][place], at[1][place])
        ours = [traits for traits in ours if traits.places not in shared]
        theirs = [traits for traits in theirs if traits.places not in shared]
    if ours and theirs:
        yield from in_order(level, ours, theirs)


def by_place(alike: list[Traits]) -> dict[Hashable, list[Traits]]:
    at: dict[Hashable, list[Traits]] = defaultdict(list)
    for traits in alike:
        at[traits.places].append(traits)
    return at


def files_of(traits: Traits) -> tuple[str, ...]:
    return tuple(file for file, _ in traits.places)


def is_moved(ours: list[Traits], theirs: list[Traits]) -> bool:
    """Return whether a block was indented or unindented: if the lines are paired in order, some
    columns have changed, and all of these have changed by the same distance."""
    if len(ours) != len(theirs):
        return False
    distances = set()
    for our, their in zip(ordered(ours), ordered(theirs), strict=True):
        if files_of(our) != files_of(their):
            return False
        distances |= {b - a for (_, a), (_, b) in zip(our.places, their.places, strict=True)}
    return len(distances - {0}) == 1


def ordered(alike: list[Traits]) -> list[Traits]:
    return sorted(alike, key=lambda traits: traits.order)


# The matching methods in the order in which they are tried. Each method has a function that returns
# a line's key, and a rule that matches lines with equal keys.
LEVELS: dict[MatchedBy, tuple[Callable[[Traits], Hashable], Rule]] = {
    "same_ops": (lambda traits: (traits.line.group.ops, traits.scopes), unique),
    "same_key": (key_without_stack, pooled),
    "same_files_and_scopes": (files_and_scopes, by_places),
    "same_places": (lambda traits: traits.places, in_order),
    "same_scopes": (lambda traits: traits.scopes, in_order),
    "same_line": (innermost_place_and_ops, unique),
}
# All matching methods, most certain first.
MATCHED_BY: tuple[MatchedBy, ...] = (
    "same_ops",
    "same_key",
    "same_places_and_scopes",
    "same_files_and_scopes",
    "same_places",
    "same_scopes",
    "same_line",
    "similar_scopes",
    "only_before",
    "only_after",
)


def traits_of(before: Sequence[Line], after: Sequence[Line]) -> list[list[Traits]]:
    sides = before, after
    stacks = [[frames_of(line) for line in side] for side in sides]
    files = paired_files(*({file for stack in side for file, _, _ in stack} for side in stacks))
    paths = [[list(map(scope_of, line.group.tf_ops)) for line in side] for side in sides]
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


def frames_of(line: Line) -> list[tuple[str, int, int]]:
    """Return the frames of a line's stack; a frame that recursion repeats is kept only at its
    innermost position."""
    return [split_frame(frame) for frame in reversed(dict.fromkeys(reversed(line.group.frames)))]


def split_frame(frame: str) -> tuple[str, int, int]:
    """Return file, line and column of a frame."""
    found = FRAME_RE.fullmatch(frame)
    file, line, column = found.groups() if found else (frame, None, None)
    return file, int(line or 0), int(column or 0)


def scope_of(tf_op: str) -> tuple[str, tuple[str, ...], str]:
    """Return phase, scope path and primitive: for example `backward`, `head` and `dot` for
    `jit(f)/transpose(jvp(head))/while/body/dot:`."""
    # Unlike `Op.phase`, this does not look for `.remat` in the op's name, because records have no
    # op names.
    if "/rematted_computation/" in tf_op:
        phase = "recompute"
    elif "transpose(" in tf_op and "jvp" in tf_op:
        phase = "backward"
    else:
        phase = "forward" if "jvp(" in tf_op else "other"
    scope = scopes.scope_of(tf_op)
    return phase, scope.parts, without_number(scope.primitive or "")


def without_number(name: str) -> str:
    """Remove the number at the end of a name: `copy.17:` becomes `copy:`."""
    return SSA_SUFFIX_RE.sub(r"\1", name[::-1])[::-1]


def paired_files(before: set[str], after: set[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Map the files of each side to names that both sides share.

    Files with equal paths are the same file. Other files are paired by the longest common end of
    their paths, because the program may be in another folder. Two files are paired only if each is
    the other's only best match.
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
    """Yield the trailing parts of a path, longest first."""
    parts = path.split("/")
    for start in range(max(0, len(parts) - MOST_PARTS), len(parts)):
        yield "/".join(parts[start:])
