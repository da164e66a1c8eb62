"""Test the mode `compare`: lines match, differences are exact, and noise is not significant."""

from __future__ import annotations

import gzip
import itertools
import json
import math
import random
import sys
import unittest
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Any

from _breakdown.analysis.devices import record_format, recorded_steps as runs
from _breakdown.analysis.records import comparison, matching
from _breakdown.analysis.records.noise import noise_of, p_values_of
from _breakdown.pipeline.no_answer import NoAnswer
from tests.builders import records
from tests.builders.compared import compare, mean, op
from tests.builders.edits import busiest_file, edits_of
from tests.builders.records import DEVICE, Json, Program, groups_of, record
from tests.harness import FULL, sampled, within
from tests.shown import headline_of

KINDS = ("compute", "data_move", "comm", "other")
TOTALS = ["step_duration", "busy", "idle", *KINDS, "overlap", "wait"]
SOME_STEPS = slice(1, 4)


def totals_of(answer: Json) -> Json:
    """Return the totals without the period, which some records lack."""
    return {name: total for name, total in answer["totals"].items() if name != "period"}


def lines_of(program: Program) -> list[runs.RecordedLine]:
    run = runs.run_of(record_format.record_of(record(program)), DEVICE, slice(None))
    return run.lines()


class Judged:
    """Match a program with an edited version, and check which ops the rows have in common."""

    def __init__(self, before: Program, after: Program) -> None:
        self.groups = groups_of(before), groups_of(after)
        lines = lines_of(before), lines_of(after)
        self.matches = matching.matches_of(*lines)
        self.pairs = self.keys(self.matches)
        self.backward = self.keys(matching.matches_of(*reversed(lines)))

    @staticmethod
    def keys(matches: Sequence[matching.Match]) -> set[tuple[frozenset[Any], frozenset[Any]]]:
        def of(lines: Sequence[runs.RecordedLine]) -> frozenset[Any]:
            return frozenset((line.kind, line.group.agg_key) for line in lines)

        return {(of(match.before), of(match.after)) for match in matches}

    def origin(self, side: int, keys: frozenset[Any]) -> frozenset[int]:
        ops = (op for key in keys for op in self.groups[side][key])
        return frozenset(origin for op in ops for origin in op.origin)

    def unrelated(self) -> list[Any]:
        """Return the rows whose groups before and after have no op in common."""
        return [
            (ours, theirs)
            for ours, theirs in self.pairs
            if ours and theirs and not self.origin(0, ours) & self.origin(1, theirs)
        ]

    def counterparts(self) -> Iterator[tuple[Any, Any, Any]]:
        """Yield a group, its counterpart with exactly the same ops, and the group's row."""
        by_ops = {
            (key[0], self.origin(1, frozenset([key]))): frozenset([key]) for key in self.groups[1]
        }
        for key in self.groups[0]:
            ours = frozenset([key])
            theirs = by_ops.get((key[0], self.origin(0, ours)))
            if theirs is not None:
                yield ours, theirs, next(row for row in self.pairs if ours <= row[0])

    def lost(self) -> list[Any]:
        """Return the groups whose counterpart is in another row."""
        return [ours for ours, theirs, row in self.counterparts() if not theirs <= row[1]]

    def separate_and_pooled_times(self) -> tuple[int, int]:
        """Return a tuple: the time of groups whose row has only the group and its counterpart; and
        the time of all other groups with a counterpart."""
        times = [0, 0]
        for ours, theirs, row in self.counterparts():
            is_pooled = row != (ours, theirs)
            times[is_pooled] += sum(op.duration for op in self.groups[0][next(iter(ours))])
        return times[0], times[1]


def programs() -> dict[str, Program]:
    made_up = {f"made up {seed}": records.made_up(seed) for seed in range(4)}
    return {"demo": records.of_demo(), **made_up}


class Matching(unittest.TestCase):
    def check(self, before: Program, after: Program) -> Judged:
        judged = Judged(before, after)
        every = [set().union(*(pair[side] for pair in judged.pairs)) for side in (0, 1)]
        self.assertEqual(every, [set(groups) for groups in judged.groups])
        for side in (0, 1):
            n_groups = sum(len(pair[side]) for pair in judged.pairs)
            self.assertEqual(n_groups, len(judged.groups[side]))
        self.assertEqual(judged.unrelated(), [], "rows with unrelated sides")
        self.assertEqual(judged.lost(), [], "groups without their counterpart")
        self.assertEqual({(b, a) for a, b in judged.pairs}, judged.backward)
        return judged

    def test_lines_still_match_after_each_kind_of_edit(self) -> None:
        apart = pooled = 0
        for name, before in programs().items():
            for kind, edits in sampled(edits_of(before, seed=1).items(), 3):
                for edit in sampled(edits, 1):
                    with self.subTest(program=name, edit=kind):
                        times = self.check(before, records.renumber(edit(before)))
                        apart += times.separate_and_pooled_times()[0]
                        pooled += times.separate_and_pooled_times()[1]
        self.assertGreater(apart, 0)
        self.assertLess(pooled / (apart + pooled), 0.005)

    def test_thousand_groups_are_matched_quickly(self) -> None:
        program = records.made_up(3, 1000)
        after = records.renumber(records.shift(busiest_file(program), 2, 4)(program))
        sides = lines_of(program), lines_of(after)
        with within(1):
            matches = matching.matches_of(*sides)
        self.assertGreater(len(matches), 900)


# For each row: how its lines were matched, the lines before the change, and the lines after it. A
# line is represented by its innermost frame or its key.
Rows = list[tuple[str, list[str], list[str]]]


def matched(before: Program, after: Program) -> Rows:
    def names(lines: Sequence[runs.RecordedLine]) -> list[str]:
        return sorted(
            line.group.frames[-1] if line.group.frames else line.group.agg_key for line in lines
        )

    matches = matching.matches_of(lines_of(before), lines_of(records.renumber(after)))
    return sorted((m.matched_by, names(m.before), names(m.after)) for m in matches)


def at(*places: str) -> Program:
    """Return one op per place; its only frame is the place, in the form `file:line:column`."""
    return [op(number, place) for number, place in enumerate(places)]


def under(caller: str, *places: str) -> Program:
    """Return one op per place; the line `caller` calls all these places."""
    return [op(number, caller, place) for number, place in enumerate(places)]


FORWARD, BACKWARD = "jit(f)/jvp(h)/dot:", "jit(f)/transpose(jvp(h))/dot:"
MAIN = "m.py:1:0"
# For each case: the program before, the program after, and the expected rows, with the lines before
# and after the change.
CASES: dict[str, tuple[Program, Program, list[str]]] = {
    "equal ops at several places match by place": (
        [op(n, f"{file}.py:1:1", text="%x = a()") for n, file in enumerate("ab")],
        [op(0, "a.py:1:1", text="%x = a()")],
        ["only_before: b.py:1:1 ->", "same_files_and_scopes: a.py:1:1 -> a.py:1:1"],
    ),
    "groups without a stack match by their key": (
        [op(1, tf_op="w['a']:"), op(2, tf_op="w['b']:", kind="comm"), op(3, tf_op=None)],
        [op(1, tf_op="w['a']:"), op(2, tf_op="w['b']:", kind="comm"), op(3, tf_op=None)],
        [
            "same_key: <no source>:loop fusion -> <no source>:loop fusion",
            "same_key: tfop:w['a']: -> tfop:w['a']:",
            "same_key: tfop:w['b']: -> tfop:w['b']:",
        ],
    ),
    "equally many look-alikes match in the order of their lines": (
        under(MAIN, "a.py:10:4", "a.py:20:4", "a.py:30:4"),
        under("m.py:9:0", "a.py:9:4", "a.py:10:4", "a.py:20:4"),
        [
            "same_files_and_scopes: a.py:10:4 -> a.py:9:4",
            "same_files_and_scopes: a.py:20:4 -> a.py:10:4",
            "same_files_and_scopes: a.py:30:4 -> a.py:20:4",
        ],
    ),
    "look-alikes share a row if one side has more of them": (
        at("a.py:10:4", "a.py:20:4", "a.py:30:4"),
        at("a.py:10:4", "a.py:30:4"),
        ["same_files_and_scopes: a.py:10:4 a.py:20:4 a.py:30:4 -> a.py:10:4 a.py:30:4"],
    ),
    "look-alikes share a row if their columns changed differently": (
        at("a.py:9:13", "a.py:10:13", "a.py:11:13"),
        at("a.py:9:13", "a.py:10:18", "a.py:12:22"),
        [
            "same_files_and_scopes: a.py:10:13 a.py:11:13 a.py:9:13"
            " -> a.py:10:18 a.py:12:22 a.py:9:13"
        ],
    ),
    "a look-alike that moved to another file has no match": (
        under(MAIN, "a.py:9:13", "a.py:10:13", "a.py:11:13"),
        under(MAIN, "a.py:9:13", "a.py:10:13", "b.py:5:4"),
        [
            "only_after: -> b.py:5:4",
            "same_files_and_scopes: a.py:10:13 a.py:11:13 a.py:9:13 -> a.py:10:13 a.py:9:13",
        ],
    ),
    "lines without scopes have no look-alikes in other files": (
        [op(n, f"a.py:{n}:1", tf_op=None) for n in (1, 2)],
        [op(3, "a.py:5:1", tf_op=None), op(4, "b.py:1:1", tf_op=None)],
        ["only_after: -> b.py:1:1", "same_places: a.py:1:1 a.py:2:1 -> a.py:5:1"],
    ),
    "rows stay separate if both have fewer lines before": (
        under(MAIN, "0.py:9:4", "1.py:9:4"),
        under(MAIN, "0.py:9:4", "1.py:10:4", "0.py:11:4", "1.py:12:4"),
        [
            "same_files_and_scopes: 0.py:9:4 -> 0.py:11:4 0.py:9:4",
            "same_files_and_scopes: 1.py:9:4 -> 1.py:10:4 1.py:12:4",
        ],
    ),
    "lines that changed their order share a row": (
        at("a.py:10:4", "a.py:20:8"),
        at("a.py:20:4", "a.py:10:8"),
        ["same_files_and_scopes: a.py:10:4 a.py:20:8 -> a.py:10:8 a.py:20:4"],
    ),
    "columns of an indented block are ignored": (
        at("a.py:10:4", "a.py:20:8"),
        at("a.py:10:8", "a.py:20:12"),
        [
            "same_files_and_scopes: a.py:10:4 -> a.py:10:8",
            "same_files_and_scopes: a.py:20:8 -> a.py:20:12",
        ],
    ),
    "a block may be indented to the columns of another": (
        at("a.py:10:4", "a.py:20:8"),
        at("a.py:10:8", "a.py:20:8"),
        [
            "same_files_and_scopes: a.py:10:4 -> a.py:10:8",
            "same_files_and_scopes: a.py:20:8 -> a.py:20:8",
        ],
    ),
    "lines share a row if one is gone and another is new": (
        [op(1, "m.py:10:5"), op(2, "m.py:20:9")],
        [op(3, "m.py:5:13"), op(1, "m.py:11:5")],
        ["same_files_and_scopes: m.py:10:5 m.py:20:9 -> m.py:11:5 m.py:5:13"],
    ),
    "a line in another file does not join look-alikes": (
        [op(1, "m.py:10:5"), op(2, "m.py:20:9")],
        [op(1, "m.py:11:5"), op(2, "n.py:20:7")],
        ["only_after: -> n.py:20:7", "same_files_and_scopes: m.py:10:5 m.py:20:9 -> m.py:11:5"],
    ),
    "a line with one more op is found by its scopes": (
        [op(1, "a.py:10:4", tf_op="jit(f)/mul:")],
        [op(1, "a.py:12:4", tf_op="jit(f)/mul:"), op(2, "a.py:12:4", tf_op="jit(f)/add:")],
        ["similar_scopes: a.py:10:4 -> a.py:12:4"],
    ),
    "lines with other ops match in the order of their lines": (
        [op(n, f"a.py:{10 * n}:4", tf_op="jit(f)/mul:") for n in (1, 2)],
        [op(n, f"a.py:{10 * n + 1}:4", tf_op="jit(f)/add:") for n in (1, 2)],
        ["same_places: a.py:10:4 -> a.py:11:4", "same_places: a.py:20:4 -> a.py:21:4"],
    ),
    "files that exist on both sides are not swapped": (
        [op(1, "a.py:1:1", tf_op="head/mul:"), op(2, "b.py:2:2", tf_op="tail/exp:")],
        [op(1, "b.py:8:8", tf_op="head/mul:"), op(2, "a.py:9:9", tf_op="tail/exp:")],
        ["same_scopes: a.py:1:1 -> b.py:8:8", "same_scopes: b.py:2:2 -> a.py:9:9"],
    ),
    "calls on one line match in the order of their columns": (
        [op(1, "a.py:10:4"), op(2, "a.py:10:12")],
        [op(2, "a.py:10:16"), op(1, "a.py:10:8")],
        [
            "same_files_and_scopes: a.py:10:12 -> a.py:10:16",
            "same_files_and_scopes: a.py:10:4 -> a.py:10:8",
        ],
    ),
    "a line in a new file is found by most of its scopes": (
        [
            op(n, "a.py:10:4", tf_op=f"jit(f)/a/{name}:")
            for n, name in enumerate(("add", "mul", "exp"))
        ],
        [op(n, "b.py:20:8", tf_op=f"jit(f)/a/{name}:") for n, name in ((7, "add"), (8, "mul"))],
        ["similar_scopes: a.py:10:4 -> b.py:20:8"],
    ),
    "a line number alone matches nothing": (
        [op(1, "a.py:10:4", tf_op="jit(f)/head/mul:")],
        [op(2, "a.py:10:8", tf_op="jit(f)/tail/exp:")],
        ["only_after: -> a.py:10:8", "only_before: a.py:10:4 ->"],
    ),
    "kinds never mix": (
        [op(1, "a.py:10:4", kind="comm")],
        [op(1, "a.py:10:4", kind="compute")],
        ["only_after: -> a.py:10:4", "only_before: a.py:10:4 ->"],
    ),
    "phases never mix": (
        [op(1, "a.py:10:4", tf_op=FORWARD), op(2, "a.py:30:4", tf_op=BACKWARD)],
        [op(2, "a.py:10:4", tf_op=BACKWARD), op(1, "a.py:30:4", tf_op=FORWARD)],
        [
            "same_files_and_scopes: a.py:10:4 -> a.py:30:4",
            "same_files_and_scopes: a.py:30:4 -> a.py:10:4",
        ],
    ),
    "recursion counts a frame once": (
        [op(1, "a.py:10:4", "a.py:20:8", "b.py:1:1")],
        [op(1, "a.py:10:4", "a.py:20:8", "a.py:10:4", "a.py:20:8", "b.py:1:1")],
        ["same_files_and_scopes: b.py:1:1 -> b.py:1:1"],
    ),
}


class Levels(unittest.TestCase):
    maxDiff = None

    def test_lines_of_small_programs_match_those_in_the_table(self) -> None:
        for what, (before, after, expected) in CASES.items():
            with self.subTest(what):
                rows = [
                    f"{how}: {' '.join([*b, '->', *a])}" for how, b, a in matched(before, after)
                ]
                self.assertEqual(rows, expected)

    def test_ops_are_not_matched_by_shifted_names(self) -> None:
        """Insert an op at the start, so that each op takes the name that the next op had before."""
        scopes = ("q", "k", "v")

        def program(first: int) -> Program:
            return [
                op(n, f"a.py:{n + first}:4", tf_op=f"jit(f)/{scope}/dot:",
                   text=f"%fusion.{first + n} = f32[8] fusion(f32[8] %p.1)")
                for n, scope in enumerate(scopes)
            ]  # fmt: skip

        pairs = [
            (match.before[0].group.tf_ops, match.after[0].group.tf_ops)
            for match in matching.matches_of(lines_of(program(1)), lines_of(program(2)))
        ]
        self.assertCountEqual(pairs, [([f"jit(f)/{scope}/dot:"],) * 2 for scope in scopes])

    def test_line_in_a_new_or_removed_file_is_not_matched_by_its_caller(self) -> None:
        known = op(1, "x.py:7:7", tf_op="jit(f)/a/b/add:")
        calls = [("x.py:1:1", "m.py:3:5"), ("m.py:3:5",)]
        before = op(2, *calls[0], "old.py:1:1", tf_op="jit(f)/a/dot:")
        after = op(3, *calls[1], "new.py:1:1", tf_op="jit(f)/b/dot:")
        levels = {row[0] for row in matched([known, before], [known, after])}
        self.assertEqual(levels, {"same_files_and_scopes", "only_before", "only_after"})

    def test_lines_without_an_order_share_a_row(self) -> None:
        def n_lines(before: Program, after: Program) -> list[int]:
            return [len(row[1]) for row in matched(before, after)]

        # Two lines have no order if they are in different files on one side (before or after) and
        # the other side has neither file.
        before = under(MAIN, "a.py:10:4", "b.py:20:4")
        after = under(MAIN, "c.py:20:4", "d.py:10:4")
        ordered = under(MAIN, "a.py:10:4", "a.py:20:4")
        for sides in ((before, after), (ordered, after), (after, ordered)):
            self.assertEqual(n_lines(*sides), [2])
        # A recursive call repeats the frames of the first call, so the two lines have no order.
        deep = "a.py:10:4", "b.py:2:4"
        before = [op(1, *deep), op(2, *deep, *deep)]
        self.assertEqual(n_lines(before, before), [2])


class Names(unittest.TestCase):
    def test_files_are_paired_by_the_end_of_their_paths(self) -> None:
        def pairs(before: set[str], after: set[str]) -> set[tuple[str, str]]:
            names = matching.paired_files(before, after)
            self.assertEqual(sorted(names[0].values()), sorted(names[1].values()))
            by_name = {name: file for file, name in names[1].items()}
            return {(file, by_name[name]) for file, name in names[0].items()}

        self.assertEqual(pairs({"/a/m/x.py", "/a/y.py"}, {"/b/m/x.py", "/a/y.py"}),
                         {("/a/m/x.py", "/b/m/x.py"), ("/a/y.py", "/a/y.py")})  # fmt: skip

        # The files with the longest common end are paired, and each file is paired only once.
        self.assertEqual(pairs({"/a/m/x.py", "/a/n/x.py"}, {"/b/m/x.py"}),
                         {("/a/m/x.py", "/b/m/x.py")})  # fmt: skip

        # If two files fit equally well, neither file is paired.
        self.assertEqual(pairs({"/a/x.py", "/b/x.py"}, {"/c/x.py"}), set())
        self.assertEqual(pairs({"x.py"}, {"y.py"}), set())


def brute_force(
    samples: Sequence[Sequence[int]], n_before: int, chosen: Sequence[Sequence[int]]
) -> list[Fraction]:
    """Compute the p-values from their definition, over the assignments in `chosen`."""

    def square(x: Sequence[int], steps: Sequence[int]) -> Fraction:
        n = len(x)
        spread = n * sum(v * v for v in x) - sum(x) ** 2
        difference = n * sum(x[j] for j in steps) - n_before * sum(x)
        return Fraction(difference**2, spread) if spread else Fraction(0)

    maxima = [max((square(x, steps) for x in samples), default=0) for steps in chosen]
    observed = range(n_before)
    return [
        Fraction(sum(maximum >= square(x, observed) for maximum in maxima), len(maxima))
        for x in samples
    ]


def all_assignments(n_before: int, n_after: int) -> list[tuple[int, ...]]:
    return list(itertools.combinations(range(n_before + n_after), n_before))


class Noise(unittest.TestCase):
    def test_p_values_follow_the_definition(self) -> None:
        rng = random.Random(4)
        for _ in range(100):
            n_before, n_after = rng.choice([(1, 1), (2, 2), (3, 3), (4, 4), (3, 5), (4, 2), (1, 6)])
            # Few distinct values cause many ties, which floating-point sums would miss.
            largest = rng.choice([1, 2, 5, 10**12, 2**62])
            rows = [
                [rng.randint(0, largest) for _ in range(n_before + n_after)]
                for _ in range(rng.randint(1, 5))
            ]
            rows += [[2 * x for x in rows[0]], [2**70 + x for x in rows[0]]][: rng.randint(0, 2)]
            chosen = all_assignments(n_before, n_after)
            with self.subTest(n_before=n_before, n_after=n_after, rows=rows):
                families = [rows, rows[:1], [], rows[::-1]]
                self.assertEqual(
                    list(p_values_of(families, noise_of(n_before, n_after))),
                    [brute_force(family, n_before, chosen) for family in families],
                )

    def test_smallest_p_value_depends_on_the_number_of_steps(self) -> None:
        for sides, n, least, too_few in (
            ((1, 1), 2, Fraction(1), True),
            ((3, 3), 20, Fraction(1, 10), True),
            ((2, 4), 15, Fraction(1, 15), True),
            ((1, 19), 20, Fraction(1, 20), False),
            ((4, 4), 70, Fraction(1, 35), False),
            ((7, 7), 3432, Fraction(1, 1716), False),
            ((8, 8), 5000, Fraction(1, 5000), False),
        ):
            with self.subTest(sides=sides):
                noise = noise_of(*sides)
                found = noise.n_assignments, noise.min_p_value, noise.too_few_samples
                self.assertEqual(found, (n, least, too_few))

    def test_p_values_of_many_steps_are_computed_quickly(self) -> None:
        rng = random.Random(1)
        rows = [[round(rng.gauss(10**10, 3e8)) for _ in range(200)] for _ in range(20)]
        # In each row, a single step differs, so all assignments are equally extreme.
        ties = [[100 + (step == row) for step in range(200)] for row in range(30)]
        for family in sampled((rows, ties), 1):
            half = len(family[0]) // 2
            with within(1.5):
                list(p_values_of([family], noise_of(half, half)))

    def test_too_few_steps_give_no_p_value(self) -> None:
        program = records.made_up(0)
        slower = records.slow_down(program[0].key, 3)(program)
        answer = compare(
            record(program, 3, jitter=0.01, seed=1), record(slower, 3, jitter=0.01, seed=2)
        )
        noise = answer["noise"]
        self.assertEqual(noise["why_not"], "too_few_steps")
        for figure in (*answer["rows"], *totals_of(answer).values()):
            self.assertIsNone(figure["significant"])
            self.assertIsNone(figure["p_value"])
        self.assertIn("too few", str(answer["notes"]))

    def test_p_value_of_exactly_5_percent_is_significant(self) -> None:
        for n_after, p_value in ((19, 0.05), (20, 0.047619)):
            answer = compare(
                record([op(1, "a.py:1:1", duration=9)]),
                record([op(1, "a.py:1:1", duration=8)], n_after),
            )
            for figure in (*answer["rows"], answer["totals"]["step_duration"]):
                self.assertEqual((figure["p_value"], figure["significant"]), (p_value, True))

    def test_steps_of_one_run_rarely_differ_significantly(self) -> None:
        run = record(records.made_up(0), 40, jitter=0.04, seed=5)
        rng = random.Random(6)
        found = Counter[str]()
        n = 200 if FULL else 20
        for _ in range(n):
            steps = rng.sample(run["steps"], 8)
            answer = compare(*(with_steps(run, half) for half in (steps[:4], steps[4:])))
            found["rows"] += any(row["significant"] for row in answer["rows"])
            found["totals"] += any(total["significant"] for total in totals_of(answer).values())
        # Allow 5 % of false positives plus three standard errors.
        most = n * 0.05 + 3 * (n * 0.05 * 0.95) ** 0.5
        for what, n_found in found.items():
            self.assertLessEqual(n_found, most, what)


def with_steps(run: Json, steps: Sequence[Json]) -> Json:
    numbered = [{**step, "index": index} for index, step in enumerate(steps)]
    return {**run, "steps": numbered}


FIGURES = ("busy_ps", "comm_ps", "host_ps", "wait_ps", "durs_ps", "ns")


def times_in_steps(capture: Json, kind: str, keys: Sequence[str]) -> list[int]:
    """Return the time per step of the groups with the given keys."""
    places = [
        index
        for index, group in enumerate(capture["groups"])
        if group["kind"] == kind and group["agg_key"] in keys
    ]
    return [sum(step["durs_ps"][place] for place in places) for step in capture["steps"]]


def totals_in_steps(capture: Json) -> dict[str, list[int]]:
    """Return the values of each total, one per step."""
    keys = [group["agg_key"] for group in capture["groups"]]
    steps = capture["steps"]
    return {
        "step_duration": [step["duration_ps"] for step in steps],
        "busy": [step["busy_ps"] for step in steps],
        "idle": [step["duration_ps"] - step["busy_ps"] for step in steps],
        **{kind: times_in_steps(capture, kind, keys) for kind in KINDS},
        "overlap": [step["busy_ps"] - sum(step["durs_ps"]) for step in steps],
        "wait": [step["wait_ps"] for step in steps],
    }


class Figures(unittest.TestCase):
    before: Json
    after: Json

    @classmethod
    def setUpClass(cls) -> None:
        program = records.of_demo()
        slower = records.slow_down(program[0].key, 1.5)(records.renumber(program))
        slower = records.shift(busiest_file(program), 3)(slower)
        cls.before = record(program, 5, jitter=0.04, seed=1)
        cls.after = record(slower, 4, jitter=0.04, seed=2, idle=0.06)
        # Make some ops overlap with others.
        for step in cls.after["steps"]:
            step["busy_ps"] -= 10**8 * (1 + step["index"])

    def test_record_compared_with_itself_has_no_differences(self) -> None:
        for capture in (self.before, self.after):
            answer = compare(capture, capture)
            for figure in (*answer["rows"], *totals_of(answer).values()):
                self.assertEqual((figure["delta_ps"], figure["significant"] or False), (0, False))
                self.assertEqual(figure["before_range_ps"], figure["after_range_ps"])
            self.assertEqual(answer["before"]["program"], answer["after"]["program"])
            self.assertEqual(answer["unmatched"]["before_ps"], 0)
            self.assertEqual(answer["notes"], [])

    def test_swapping_before_and_after_negates_the_changes(self) -> None:
        there, back = compare(self.before, self.after), compare(self.after, self.before)

        def rows(answer: Json, before: str, after: str, sign: int) -> set[Any]:
            return {
                (
                    row["kind"],
                    tuple(row[f"agg_keys_{before}"]),
                    tuple(row[f"agg_keys_{after}"]),
                    sign * row["delta_ps"],
                    row["p_value"],
                )
                for row in answer["rows"]
            }

        self.assertEqual(rows(there, "before", "after", 1), rows(back, "after", "before", -1))
        for name in TOTALS:
            ours, theirs = there["totals"][name], back["totals"][name]
            self.assertEqual(ours["delta_ps"], -theirs["delta_ps"], name)
            self.assertEqual(ours["p_value"], theirs["p_value"], name)
            self.assertEqual(ours["before_range_ps"], theirs["after_range_ps"], name)

    def test_rows_and_the_tail_add_up_to_the_totals(self) -> None:
        for top in (0, 7, 10**6):
            answer = compare(self.before, self.after, top=top)
            totals, tail = answer["totals"], answer["tail"]
            self.assertEqual(len(answer["rows"]) + tail["n_rows_omitted"], 56)
            for figure in ("before_ps", "after_ps", "delta_ps"):
                of = {name: totals[name][figure] for name in TOTALS}
                self.assertEqual(of["busy"] + of["idle"], of["step_duration"])
                kinds = sum(of[kind] for kind in KINDS)
                self.assertEqual(kinds + of["overlap"], of["busy"])
                rows = sum(row[figure] for row in answer["rows"])
                self.assertEqual(rows + tail[figure], kinds)
                for kind in KINDS if top > len(answer["rows"]) else ():
                    rows = sum(row[figure] for row in answer["rows"] if row["kind"] == kind)
                    self.assertEqual(rows, of[kind], kind)

    def test_figures_of_rows_follow_their_definitions(self) -> None:
        answer = compare(self.before, self.after)
        for row in answer["rows"]:
            for side, capture in (("before", self.before), ("after", self.after)):
                keys = row[f"agg_keys_{side}"]
                times = [times_in_steps(capture, row["kind"], [key]) for key in keys]
                self.assertEqual(row[f"{side}_ps"], sum(map(mean, times)))
                sums = times_in_steps(capture, row["kind"], keys)
                self.assertEqual(row[f"{side}_range_ps"], [min(sums), max(sums)])
            delta = row["after_ps"] - row["before_ps"]
            self.assertEqual(row["delta_ps"], delta)
            self.assertEqual(row["delta_pct"], round(100 * delta / row["before_ps"], 3))
        deltas = [abs(row["delta_ps"]) for row in answer["rows"]]
        self.assertEqual(deltas, sorted(deltas, reverse=True))
        self.assertEqual(len(answer["rows"]), 56)
        totals = answer["totals"]
        self.assertEqual(list(totals_of(answer)), TOTALS)
        for side, capture in (("before", self.before), ("after", self.after)):
            for name, figures in totals_in_steps(capture).items():
                extremes = [min(figures), max(figures)]
                self.assertEqual(totals[name][f"{side}_range_ps"], extremes, name)
                # The other totals are sums of rounded means, so they can differ from the rounded
                # mean of the sums.
                if name in ("step_duration", "idle", "wait"):
                    self.assertEqual(totals[name][f"{side}_ps"], mean(figures), name)

    def test_rows_and_totals_are_corrected_for_multiple_testing_separately(self) -> None:
        answer = compare(self.before, self.after)
        tested = [row for row in answer["rows"] if row["p_value"] is not None]
        noise = {"noise_unit": "step", "n_before": 5, "n_after": 4, "why_not": None}
        self.assertEqual(answer["noise"], noise)

        def samples(row: Json) -> list[int]:
            return [
                time
                for side, capture in (("before", self.before), ("after", self.after))
                for time in times_in_steps(capture, row["kind"], row[f"agg_keys_{side}"])
            ]

        whole = sum(sum(samples(row)) for row in answer["rows"])
        for row in answer["rows"]:
            self.assertEqual(row["p_value"] is not None, 1000 * sum(samples(row)) >= whole)
            self.assertEqual(row["significant"] is None, row["p_value"] is None)
        chosen = all_assignments(5, 4)
        expected = brute_force([samples(row) for row in tested], 5, chosen)
        for row, p_value in zip(tested, expected, strict=True):
            self.assertEqual(row["p_value"], round(float(p_value), 6))
            self.assertEqual(row["significant"], p_value <= Fraction(1, 20))
        before, after = map(totals_in_steps, (self.before, self.after))
        expected = brute_force([before[name] + after[name] for name in TOTALS], 5, chosen)
        for name, p_value in zip(TOTALS, expected, strict=True):
            self.assertEqual(answer["totals"][name]["p_value"], round(float(p_value), 6), name)

    def test_option_steps_selects_steps_before_and_after(self) -> None:
        # A record of only the selected steps gives the same answer.
        narrow = [
            step
            if index in range(10)[SOME_STEPS]
            else {**step, "used": False, "why_not": "not_asked", **dict.fromkeys(FIGURES)}
            for index, step in enumerate(self.before["steps"])
        ]
        answer = compare(self.before, self.after, steps=SOME_STEPS)
        recorded = compare({**self.before, "steps": narrow}, self.after, steps=SOME_STEPS)
        self.assertEqual(recorded, answer)
        self.assertEqual(answer["before"]["n_steps"], 3)
        # A group that runs in none of the selected steps counts as missing.
        silent = json.loads(json.dumps(self.before))
        for step in silent["steps"][SOME_STEPS]:
            step["durs_ps"][0] = step["ns"][0] = 0
        first = (self.before["groups"][0][name] for name in ("kind", "agg_key"))
        rows = compare(silent, self.after, steps=SOME_STEPS)["rows"]
        keys = [(row["kind"], key) for row in rows for key in row["agg_keys_before"]]
        self.assertNotIn(tuple(first), keys)

    def test_error_says_on_which_side_a_device_or_step_is_missing(self) -> None:
        for options, reason, side in (
            ({"before_device": "/device:TPU:7"}, "device_not_found", "baseline"),
            ({"after_device": "/device:TPU:7"}, "device_not_found", None),
            ({"steps": slice(9, None)}, "step_not_found", "baseline"),
        ):
            with self.subTest(options=options), self.assertRaises(NoAnswer) as caught:
                compare(self.before, self.after, **options)
            self.assertEqual(caught.exception.reason, reason)
            self.assertEqual(caught.exception.fields.get("side"), side)
        names = [f"step {index}" for index in range(5)]
        self.assertEqual(caught.exception.fields["available_steps"], names)

    def test_line_counts_as_zero_in_steps_that_do_not_run_it(self) -> None:
        before = record([op(1, "a.py:1:1"), op(2, "b.py:1:1", tf_op=None), op(3, tf_op=None)], 3)
        after = json.loads(json.dumps(before))
        # Records omit trailing zeros. The second group takes no time; the third never runs.
        figures_of: list[tuple[list[int], list[int]]] = [([], []), ([7], [2, 1]), ([3, 0], [2])]
        for step, (durs, ns) in zip(after["steps"], figures_of, strict=True):
            step.update(durs_ps=durs, ns=ns)
        rows = {row["agg_keys_before"][0]: row for row in compare(before, after)["rows"]}
        figures = "after_ps after_range_ps".split()
        self.assertEqual(
            [[rows[group["agg_key"]][name] for name in figures] for group in before["groups"]],
            [[3, [0, 7]], [0, [0, 0]], [0, [0, 0]]],
        )

    def test_line_on_only_one_side_has_zeros_and_nulls_for_the_other_side(self) -> None:
        before = [op(1, "a.py:1:1", duration=7), op(2, tf_op="w['a']:", duration=1000)]
        sides = record(before[1:], 5), record(before, 4)
        new = next(r for r in compare(*sides)["rows"] if r["matched_by"] == "only_after")
        expected = {
            "before_ps": 0, "after_ps": 7, "delta_pct": None, "before_range_ps": [0, 0],
            "after_range_ps": [7, 7], "source_inner": "a.py:1", "source_user": "a.py:1",
            "before_source_user": None,
            "kind": "compute", "p_value": 0.007937, "significant": True,
        }  # fmt: skip
        self.assertEqual({name: new[name] for name in expected}, expected)
        without = compare(*sides[::-1])
        self.assertIn("The largest change is at a.py:1: -7 ps.", headline_of(without))
        [gone] = [row for row in without["rows"] if row["delta_ps"]]
        self.assertEqual((gone["matched_by"], gone["delta_ps"], gone["delta_pct"]),
                         ("only_before", -7, -100))  # fmt: skip
        self.assertEqual(gone["p_value"], 0.007937)
        names = "source_user", "before_source_user", "source_inner"
        self.assertEqual([gone[name] for name in names], [None, "a.py:1", "a.py:1"])


class Reading(unittest.TestCase):
    def assert_refused(self, data: bytes, what: str) -> None:
        with self.assertRaises(record_format.UnreadableRecord) as caught:
            record_format.decode(data)
        detail = str(caught.exception)
        self.assertIn(what, detail)
        self.assertLess(len(detail), 300)

    def test_gzipped_record_is_decoded_like_a_plain_record(self) -> None:
        plain = json.dumps(record(records.made_up(0), 2)).encode()
        half = len(plain) // 2
        for data in (
            gzip.compress(plain),
            gzip.compress(plain[:half]) + gzip.compress(plain[half:]),
        ):
            self.assertEqual(record_format.decode(data), record_format.decode(plain))

    def test_bytes_that_are_not_a_record_are_rejected(self) -> None:
        packed = gzip.compress(json.dumps(record(records.made_up(0))).encode())
        for data, what in (
            (b"", "not JSON"),
            (b"{", "not JSON"),
            (b"\xff\xfe\x00", "not JSON"),
            (b"[" * 10**5, "nested too deeply"),
            (b"9" * 5000, "not JSON" if hasattr(sys, "get_int_max_str_digits") else "record"),
            (packed[:-9], "cut off"),
            (packed[:50] + b"\0" * 50, "bad gzip"),
            (b"null", "record is not an object"),
            (b"{}", "record.status: is missing"),
        ):
            with self.subTest(data=data[:20]):
                self.assert_refused(data, what)

    def test_whole_share_can_be_written_without_a_point(self) -> None:
        good = record(records.made_up(1), 2)
        good["devices"][0]["mfu_at_least"] = 1
        [device] = record_format.record_of(good).devices
        self.assertEqual(device.mfu_at_least, 1.0)

    def test_record_with_an_invalid_field_is_rejected_with_the_path_of_the_field(self) -> None:
        good = record(records.made_up(1), 2)
        record_format.record_of(good)
        for path, value, what in (
            (("format",), 2, "record.format: must be one of (1,), got 2"),
            (("format",), True, "record.format"),
            (("devices", 0, "mfu_at_least"), math.nan, "must be a number of at least 0, got nan"),
            (("devices", 0, "mfu_at_least"), math.inf, "mfu_at_least"),
            (("devices", 0, "mfu_at_least"), True, "mfu_at_least"),
            (("mode",), "compare", "record.mode"),
            (("status",), "absent", "an error instead of a record"),
            (("status",), "fine", "record.status"),
            (("host",), None, "record.host: must be of type str, got None"),
            (("host",), ..., "record.host: is missing"),
            (("groups",), {}, "record.groups"),
            (("groups", 3), [], "record.groups[3] is not an object"),
            (("groups", 3, "kind"), "magic", "record.groups[3].kind: must be one of"),
            (("groups", 3, "frames"), [10**6], "record.groups[3].frames: no frame has the index"),
            (("groups", 3, "frames"), ["a"], "record.groups[3].frames"),
            (("groups", 3, "frames"), [-1], "record.groups[3].frames"),
            (("groups", 3, "tf_ops"), ["a", 1], "record.groups[3].tf_ops"),
            (("groups", 3), good["groups"][2], "two groups have the same"),
            (("devices", 0, "program"), None, "record.devices[0].program"),
            (("devices",), good["devices"] * 2, "two devices have the same"),
            (("steps", 1, "index"), 0, "is not above the index"),
            (("steps", 1, "device"), 1, "no device has the index 1"),
            (("steps", 1, "used"), 1, "record.steps[1].used"),
            *((("steps", 1, name), None, f"record.steps[1].{name}") for name in FIGURES),
            (("steps", 1, "busy_ps"), 10**25, "longer than the step"),
            (("steps", 1, "busy_ps"), True, "record.steps[1].busy_ps"),
            (("steps", 1, "duration_ps"), -1, "must be at least 0"),
            (("steps", 1, "duration_ps"), 1.5, "record.steps[1].duration_ps"),
            (("steps", 1, "duration_ps"), 10**40, "less than 2**100"),
            (("steps", 1, "durs_ps"), [1, 2.0], "record.steps[1].durs_ps"),
            (("steps", 1, "durs_ps"), [1, False], "record.steps[1].durs_ps"),
            (("steps", 1, "durs_ps"), [1, -2], "record.steps[1].durs_ps"),
            (("steps", 1, "ns"), [0] * 10**4, "record.steps[1].ns: has 10000 figures"),
        ):
            broken = json.loads(json.dumps(good))
            at = broken
            for part in path[:-1]:
                at = at[part]
            if value is ...:
                del at[path[-1]]
            else:
                at[path[-1]] = value
            with self.subTest(path=path, value=str(value)[:40]):
                self.assert_refused(json.dumps(broken).encode(), what)

    def test_damaged_record_is_compared_or_rejected_with_an_expected_reason(self) -> None:
        good = json.dumps(record(records.made_up(2), 2)).encode()
        rng = random.Random(9)
        for _ in sampled(range(300), 40):
            data = bytearray(good)
            for _ in range(rng.randint(1, 3)):
                data[rng.randrange(len(data))] = rng.choice(b'0123456789-e.,:[]{}"tn \\')
            try:
                compare_data = record_format.decode(bytes(data))
                comparison.compare_records([record_format.decode(good)], [compare_data])
            except record_format.UnreadableRecord:
                pass
            except NoAnswer as failure:
                self.assertIn(failure.reason, ("device_not_found", "step_not_found"))
