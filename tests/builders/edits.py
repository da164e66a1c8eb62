"""Generate edits of a program's source code."""

from __future__ import annotations

import itertools
import random
from collections import Counter

from _breakdown.pipeline.scopes import TRANSFORMATIONS
from tests.builders import records
from tests.builders.records import Edit, Frame, Program, groups_of

LAUNCHER = Frame("/opt/launch/run.py", 12, 4), Frame("/opt/launch/main.py", 3, 0)


def frames_of(program: Program) -> list[Frame]:
    return sorted({frame for op in program for frame in op.frames})


def busiest_file(program: Program) -> str:
    """Return the file that occurs in the most stacks."""
    passed = Counter(file for op in program for file in {frame.file for frame in op.frames})
    return passed.most_common(1)[0][0]


def line_distances(program: Program, file: str) -> list[tuple[int, int]]:
    """Return pairs of similar lines a few lines apart, as (line, distance)."""
    there = [frame for frame in frames_of(program) if frame.file == file]
    return [
        (a.line, b.line - a.line)
        for a, b in itertools.combinations(there, 2)
        if a.column == b.column and 0 < b.line - a.line < 9
    ]


def neighbour(program: Program, key: tuple[str, str]) -> tuple[str, str] | None:
    """Return the key of the nearest group with the same kind and file."""
    groups = groups_of(program)
    frame = groups[key][0].frames[-1]
    near = [
        (abs(ops[0].frames[-1].line - frame.line), other)
        for other, ops in groups.items()
        if other != key and other[0] == key[0] and ops[0].frames
        if ops[0].frames[-1].file == frame.file
    ]
    return min(near)[1] if near else None


def reindent(program: Program, file: str, rng: random.Random) -> Edit:
    """Wrap some lines in a new block: insert two lines above them, and indent them by four
    columns."""
    lines = sorted({frame.line for frame in frames_of(program) if frame.file == file})
    first = rng.choice(lines)
    last = rng.choice([line for line in lines if line >= first])
    return records.chain(
        records.shift(file, 2, after=last), records.shift(file, 2, 4, after=first - 1, until=last)
    )


# This function is long, because it lists all kinds of edits.
def edits_of(program: Program, seed: int) -> dict[str, list[Edit]]:
    """Return lists of edits, by kind of edit."""
    rng = random.Random(seed)
    files = sorted({frame.file for frame in frames_of(program)})
    main = busiest_file(program)
    middle = sorted({frame.line for frame in frames_of(program) if frame.file == main})[3]
    callers = sorted({frame for op in program for frame in op.frames[:-1]})
    scopes = sorted(
        {
            part
            for op in program
            for part in (op.tf_op or "").split("/")[1:-1]
            if "(" not in part and part not in TRANSFORMATIONS
        }
    )
    keys = [key for key, ops in groups_of(program).items() if ops[0].frames]
    distances = [(file, *pair) for file in files for pair in line_distances(program, file)]
    fusions = [(key, into) for key in keys if (into := neighbour(program, key))]
    helper = Frame("/home/dev/util.py", 30, 15)
    kinds: dict[str, list[Edit]] = {
        "3 lines more in one file": [records.shift(file, 3) for file in files],
        "3 lines more in every stack": [records.shift(main, 3)],
        "3 lines more in the middle": [records.shift(main, 3, after=middle)],
        "another root": [
            records.move_files("/home/dev", "/srv/build/x7"),
            records.move_files("/home/dev/", ""),
        ],
        "launched from elsewhere": [records.launch_from(*LAUNCHER)],
        "2 lines and 4 columns": [records.shift(file, 2, 4) for file in files],
        "2 lines and 4 columns in a block": [
            reindent(program, file, rng) for file in files for _ in range(2)
        ],
        "a helper of this file between": [
            records.insert_frame(caller, Frame(caller.file, 300, 15)) for caller in callers
        ],
        "a helper of a new file between": [
            records.insert_frame(caller, helper) for caller in callers
        ],
        "a file renamed": [
            records.move_files(file, file.rpartition("/")[0] + "/renamed.py") for file in files
        ],
        "a scope renamed": [records.rename_scope(scope, "renamed") for scope in scopes],
        "1 line less": [records.shift(file, -1) for file in files],
        "look-alikes land on each other": [
            records.shift(file, -distance) for file, _, distance in distances
        ],
        "fused": [records.fuse(*fusion) for fusion in fusions],
        "fused and shifted": [
            records.chain(records.fuse(*fusion), records.shift(main, 3)) for fusion in fusions
        ],
        "two lines merged": [
            records.shift(file, -distance, after=line) for file, line, distance in distances
        ],
        "an op split": [records.split_op(place) for place in range(len(program))],
        "a loop unrolled": [records.unroll()],
        "one line slower": [records.slow_down(key, 1.1) for key in keys],
    }
    kinds["all at once"] = [
        records.chain(
            records.split_op(rng.randrange(len(program))),
            records.insert_frame(rng.choice(callers), helper),
            records.rename_scope(rng.choice(scopes), "renamed"),
            reindent(program, rng.choice(files), rng),
            records.shift(main, 3),
            records.launch_from(*LAUNCHER),
            records.move_files("/home/dev", "/srv/build/x7"),
            records.unroll(),
        )
        for _ in range(4)
    ]
    return {kind: rng.sample(edits, min(4, len(edits))) for kind, edits in kinds.items()}


def small(program: Program) -> Program:
    """Return the longest tenth of a program's ops, plus one random op of each group."""
    rng = random.Random(4)
    kept = {id(rng.choice(ops)) for ops in groups_of(program).values()}
    longest = sorted(program, key=lambda op: -op.duration)[: len(program) // 10]
    kept |= {id(op) for op in longest}
    return [op for op in program if id(op) in kept]
