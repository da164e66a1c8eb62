"""Match the lines of two captures: decide which groups on both sides are one line.

Line numbers, paths, launchers and names of single ops change without meaning. A group is therefore
recognised by the files and columns of the stack's frames, and by the scopes of the ops. Traits that
only one side has (a launcher's file, a renamed scope) are ignored. If groups still look alike, and
both sides have equally many, groups are paired in the order of their lines; otherwise they share
one row.
"""

from __future__ import annotations

import re
from collections import defaultdict
from fractions import Fraction
from itertools import chain
from typing import NamedTuple

from _pipeline import scopes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from typing import Any

    from _analysis.recorded_steps import Line
    from _output.fields.compare import MatchedBy

    Rule = Callable[[MatchedBy, list["Traits"], list["Traits"]], Iterator["Match"]]

FRAME_RE = re.compile(r"(.*?)(?::(\d{1,18}))?(?::(\d{1,18}))?", re.DOTALL)
# The expression is applied to reversed names, because a search for a suffix would start at every
# character.
SSA_SUFFIX_RE = re.compile(r"\A(:?)(?:\d+\.)+")
MOST_PARTS = 64
# Share of scopes that two lines must have in common to be one line.
MOST_SCOPES = Fraction(1, 2)


class Match(NamedTuple):
    """Lines of one kind that share one row."""

    matched_by: MatchedBy
    before: list[Line]
    after: list[Line]


class Traits(NamedTuple):
    """The traits by which a line is recognised on the other side."""

    line: Line
    # (file, column) of each frame in a file that both sides have, outermost first.
    places: tuple[tuple[str, int], ...]
    # (phase, parts of the scope, primitive) of each tf_op.
    scopes: frozenset[tuple[str, ...]]
    # The sort key among lines that look alike, and the files in this key that only one side has.
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
                # Lines with an empty key cannot be matched by this key.
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
    """Match lines that share most of their scopes, if each line is the only best match of the other
    line.

    A line has a scope for each op. If arrays have other sizes, or a loop is unrolled, the compiler
    fuses other ops of the line.
    """
    shares = {
        (i, j): Fraction(len(our.scopes & their.scopes), len(our.scopes | their.scopes))
        for i, our in enumerate(before)
        for j, their in enumerate(after)
        if our.line.kind == their.line.kind and our.scopes & their.scopes
    }
    # The shares of each line, by side.
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
    """Join matches with equal scopes if one match lacks lines and another match has too many lines.

    Such matches result from moving code to a place where the code looks like other code: to another
    file, or into a helper function.
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
    """Return the key of a group without a stack.

    If the group's tf_op is only the name of an op, such as `copy.17:`, the number is dropped.
    """
    group = traits.line.group
    return "" if group.agg_key_kind == "stack" else without_number(group.agg_key)


def files_and_scopes(traits: Traits) -> Hashable:
    files = frozenset(files_of(traits))
    return files and traits.scopes and (files, traits.scopes)


def innermost_place_and_ops(traits: Traits) -> Hashable:
    """Return the innermost frame and the primitives, which stay the same if only scopes change."""
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
    """Pair the lines of both sides in order if both sides have equally many; otherwise put all
    lines into one row."""
    if len(ours) == len(theirs) and is_ordered(ours) and is_ordered(theirs):
        for our, their in zip(ordered(ours), ordered(theirs), strict=True):
            yield Match(level, [our.line], [their.line])
    else:
        yield from pooled(level, ours, theirs)


def is_ordered(alike: list[Traits]) -> bool:
    """Return whether the lines have a unique order that does not depend on files of one side
    alone."""
    n_lines = len({traits.order for traits in alike})
    return n_lines == len(alike) and len({traits.strangers for traits in alike}) == 1


def by_places(level: MatchedBy, ours: list[Traits], theirs: list[Traits]) -> Iterator[Match]:
    """First match lines with equal files and columns. Skip this step if a block was indented,
    because then equal columns are a coincidence."""
    if not is_moved(ours, theirs):
        at = [by_place(side) for side in (ours, theirs)]
        shared = at[0].keys() & at[1].keys()
        # Some lines that look alike may have been edited, so that columns changed. If both sides
        # have equally many lines in the same files, the order of the lines is still valid.
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
    """Return whether a block was indented: compared in order, all columns stayed or moved by the
    same distance."""
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


# Ways of matching, tried in order. Each way has a function that returns the key of a line, and a
# rule that matches lines with equal keys.
LEVELS: dict[MatchedBy, tuple[Callable[[Traits], Hashable], Rule]] = {
    "same_ops": (lambda traits: (traits.line.group.ops, traits.scopes), unique),
    "same_key": (key_without_stack, pooled),
    "same_files_and_scopes": (files_and_scopes, by_places),
    "same_places": (lambda traits: traits.places, in_order),
    "same_scopes": (lambda traits: traits.scopes, in_order),
    "same_line": (innermost_place_and_ops, unique),
}
# Ways of matching, the most certain first.
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
    """Return the frames of a line's stack. In a recursion, each frame counts once, at the innermost
    place."""
    return [split_frame(frame) for frame in reversed(dict.fromkeys(reversed(line.group.frames)))]


def split_frame(frame: str) -> tuple[str, int, int]:
    """Return file, line and column of a frame."""
    found = FRAME_RE.fullmatch(frame)
    file, line, column = found.groups() if found else (frame, None, None)
    return file, int(line or 0), int(column or 0)


def scope_of(tf_op: str) -> tuple[str, tuple[str, ...], str]:
    """Return phase, path and op, such as backward, head and dot for
    `jit(f)/transpose(jvp(head))/while/body/dot:`."""
    # The phase is computed as `Op.phase`, but without `.remat` in the op's name, because records
    # have no names of ops.
    if "/rematted_computation/" in tf_op:
        phase = "recompute"
    elif "transpose(" in tf_op and "jvp" in tf_op:
        phase = "backward"
    else:
        phase = "forward" if "jvp(" in tf_op else "other"
    scope = scopes.scope_of(tf_op)
    return phase, scope.parts, without_number(scope.primitive or "")


def without_number(name: str) -> str:
    """Return a name without the number at the end: `copy:` for `copy.17:`."""
    return SSA_SUFFIX_RE.sub(r"\1", name[::-1])[::-1]


def paired_files(before: set[str], after: set[str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return, for each side, a map from the side's files to names that both sides share.

    Equal paths are one file. Other files are paired by the end of the path, because the program may
    be in another folder. Two files are paired if each file is the only best match of the other
    file.
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
    """Yield the ends of a path, longest first."""
    parts = path.split("/")
    for start in range(max(0, len(parts) - MOST_PARTS), len(parts)):
        yield "/".join(parts[start:])
