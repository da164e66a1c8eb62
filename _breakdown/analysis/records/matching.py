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
from functools import partial
from typing import Literal

from _breakdown.analysis.devices.recorded_steps import RecordedLine
from _breakdown.light import NamedTuple
from _breakdown.pipeline import scopes
from _breakdown.pipeline.vocabulary import LeafKind

MatchedBy = Literal[
    "same_key",
    "same_files_and_scopes",
    "same_scopes",
    "similar_scopes",
    "same_places",
    # Only after joining by user line.
    "same_user_line",
    "only_before",
    "only_after",
]

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
    before: list[RecordedLine]
    after: list[RecordedLine]

    @property
    def kind(self) -> LeafKind:
        return (self.before or self.after)[0].kind


class Traits(NamedTuple):
    """The traits by which a line is recognised on the other side."""

    line: RecordedLine
    # (file, column) of each frame whose file occurs on both sides, outermost first.
    places: tuple[tuple[str, int], ...]
    # (phase, parts of the scope, primitive) of each tf_op.
    scopes: frozenset[tuple[str, ...]]
    # The sort key for lines that look alike, and the stack's files that occur only on this side.
    order: tuple[tuple[str, int, int], ...]
    strangers: tuple[str, ...]


# Lines of both sides that belong together.
Pair = tuple[list[Traits], list[Traits]]


def matches_of(before: Sequence[RecordedLine], after: Sequence[RecordedLine]) -> list[Match]:
    """Assign each line of both sides to exactly one match."""
    left = traits_of(before, after)
    matches: list[Match] = []
    for level, pairs_of in LEVELS.items():
        pairs = list(pairs_of(*left))
        for ours, theirs in pairs:
            matches.append(
                Match(level, [our.line for our in ours], [their.line for their in theirs])
            )
        settled = {id(traits) for pair in pairs for side in pair for traits in side}
        left = [[traits for traits in side if id(traits) not in settled] for side in left]
    matches += [Match("only_before", [traits.line], []) for traits in left[0]]
    matches += [Match("only_after", [], [traits.line]) for traits in left[1]]
    return matches


def alike(
    key: Callable[[Traits], Hashable], before: Sequence[Traits], after: Sequence[Traits]
) -> Iterator[Pair]:
    """Yield the lines of the same kind with equal keys. Lines with an empty key match no line."""
    found: dict[Hashable, Pair] = defaultdict(lambda: ([], []))
    for side, lines in enumerate((before, after)):
        for traits in lines:
            if value := key(traits):
                found[traits.line.kind, value][side].append(traits)
    yield from (pair for pair in found.values() if all(pair))


def alike_in_order(
    key: Callable[[Traits], Hashable], before: Sequence[Traits], after: Sequence[Traits]
) -> Iterator[Pair]:
    """Pair lines with equal keys in the order of their lines. If this order is not clear, or if the
    sides have different numbers of these lines, put all of them into one row."""
    for ours, theirs in alike(key, before, after):
        pairs = list(zip(ordered(ours), ordered(theirs), strict=False))
        if len(ours) == len(theirs) and all(map(is_ordered, (ours, theirs))) and is_shifted(pairs):
            yield from (([our], [their]) for our, their in pairs)
        else:
            yield ours, theirs


def ordered(lines: list[Traits]) -> list[Traits]:
    return sorted(lines, key=lambda traits: traits.order)


def is_ordered(lines: list[Traits]) -> bool:
    """Return whether the lines have a unique order that does not depend on files that occur on only
    one side."""
    n_lines = len({traits.order for traits in lines})
    return n_lines == len(lines) and len({traits.strangers for traits in lines}) == 1


def is_shifted(pairs: Sequence[tuple[Traits, Traits]]) -> bool:
    """Return whether lines of one file are in one file afterwards, and all columns that changed
    moved by the same distance, as if a block was indented. Otherwise, the lines may have changed
    their order. Only innermost frames count."""
    frames = [(our.order[-1], their.order[-1]) for our, their in pairs if our.order and their.order]
    files = {(file, other) for (file, _, _), (other, _, _) in frames}
    distances = {after - before for (_, _, before), (_, _, after) in frames}
    return len({file for file, _ in files}) == len(files) and len(distances - {0}) <= 1


def similar(before: Sequence[Traits], after: Sequence[Traits]) -> Iterator[Pair]:
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
            yield [before[pair[0]]], [after[pair[1]]]


def key_without_stack(traits: Traits) -> str:
    """Return the key of a group without a stack; return an empty key for other groups.

    A number at the end is removed, so that `copy.17:` and `copy.18:` match.
    """
    group = traits.line.group
    return "" if group.agg_key_kind == "stack" else without_number(group.agg_key)


def files_and_scopes(traits: Traits) -> Hashable:
    files = frozenset(file for file, _ in traits.places)
    return files and traits.scopes and (files, traits.scopes)


def places_of(traits: Traits) -> Hashable:
    """Return files and columns of the stack, unless the innermost file occurs on only one side."""
    stack = traits.line.group.frames
    return traits.places if stack and split_frame(stack[-1])[0] not in traits.strangers else None


# The matching methods in the order in which they are tried. On recompiled edits of models, other
# orders and other methods paired less of the time right.
LEVELS: dict[MatchedBy, Callable[[list[Traits], list[Traits]], Iterator[Pair]]] = {
    "same_key": partial(alike, key_without_stack),
    "same_files_and_scopes": partial(alike_in_order, files_and_scopes),
    "same_scopes": partial(alike_in_order, lambda traits: traits.scopes),
    "similar_scopes": similar,
    "same_places": partial(alike_in_order, places_of),
}


def traits_of(before: Sequence[RecordedLine], after: Sequence[RecordedLine]) -> list[list[Traits]]:
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


def frames_of(line: RecordedLine) -> list[tuple[str, int, int]]:
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
