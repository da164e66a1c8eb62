"""What compare says of two records: the same lines, the right differences, no noise for change."""

from __future__ import annotations

import gzip
import itertools
import json
import random
import re
import sys
import tracemalloc
import unittest
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

from _analysis import comparison, matching, record_format
from _analysis import recorded_steps as runs
from _analysis.noise import assignments, noise_of, p_values_of
from _pipeline.no_answer import NoAnswer
from tests.builders import records
from tests.builders.edits import busiest_file, edits_of
from tests.builders.records import DEVICE, Frame, Json, Program, groups_of, record
from tests.harness import FULL, sampled, within

TOTALS = "step_duration busy idle compute data_move comm other overlap wait".split()
SOME_STEPS = slice(1, 4)


def compare(before: Json, after: Json, **options: Any) -> Json:
    answer = comparison.compare_records(
        record_format.record_of(before), record_format.record_of(after), **{"top": 10**6, **options}
    )
    # What is printed is JSON.
    printed: Json = json.loads(json.dumps(answer, allow_nan=False))
    return printed


def lines_of(program: Program) -> list[runs.Line]:
    run = runs.run_of(record_format.record_of(record(program)), DEVICE, slice(None))
    return run.lines()


def mean(figures: Sequence[int]) -> int:
    """Rounded half up."""
    return int(Fraction(sum(figures), len(figures)) + Fraction(1, 2))


# --- matching ------------------------------------------------------------------------------------


class Judged:
    """What a matching makes of a program and its rewrite."""

    def __init__(self, before: Program, after: Program) -> None:
        self.groups = groups_of(before), groups_of(after)
        lines = lines_of(before), lines_of(after)
        self.matches = matching.matches_of(*lines)
        self.pairs = self.keys(self.matches)
        self.backward = self.keys(matching.matches_of(*reversed(lines)))

    @staticmethod
    def keys(matches: Sequence[matching.Match]) -> set[tuple[frozenset[Any], frozenset[Any]]]:
        def of(lines: Sequence[runs.Line]) -> frozenset[Any]:
            return frozenset((line.kind, line.group["agg_key"]) for line in lines)

        return {(of(match.before), of(match.after)) for match in matches}

    def origin(self, side: int, keys: frozenset[Any]) -> frozenset[int]:
        ops = (op for key in keys for op in self.groups[side][key])
        return frozenset(origin for op in ops for origin in op.origin)

    def unrelated(self) -> list[Any]:
        """Rows whose sides have no op in common."""
        return [
            (ours, theirs)
            for ours, theirs in self.pairs
            if ours and theirs and not self.origin(0, ours) & self.origin(1, theirs)
        ]

    def counterparts(self) -> Iterator[tuple[Any, Any, Any]]:
        """Groups of both sides that hold exactly the same ops, and the row that has the first."""
        by_ops = {
            (key[0], self.origin(1, frozenset([key]))): frozenset([key]) for key in self.groups[1]
        }
        for key in self.groups[0]:
            ours = frozenset([key])
            theirs = by_ops.get((key[0], self.origin(0, ours)))
            if theirs is not None:
                yield ours, theirs, next(row for row in self.pairs if ours <= row[0])

    def lost(self) -> list[Any]:
        """Groups that are not in the row of their counterpart."""
        return [ours for ours, theirs, row in self.counterparts() if not theirs <= row[1]]

    def apart_and_pooled(self) -> tuple[int, int]:
        """The time of counterparts that are alone in their row, and that of the others."""
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
        self.assertEqual(judged.unrelated(), [])
        self.assertEqual(judged.lost(), [])
        self.assertEqual({(b, a) for a, b in judged.pairs}, judged.backward)
        return judged

    def test_each_edit(self) -> None:
        apart = pooled = 0
        for name, before in programs().items():
            for kind, edits in sampled(edits_of(before, seed=1).items(), 3):
                for edit in sampled(edits, 1):
                    with self.subTest(program=name, edit=kind):
                        times = self.check(before, records.renumber(edit(before)))
                        apart += times.apart_and_pooled()[0]
                        pooled += times.apart_and_pooled()[1]
        self.assertGreater(apart, 0)
        self.assertLess(pooled / (apart + pooled), 0.0025)

    def test_some_edits_at_once(self) -> None:
        rng = random.Random(7)
        for name, before in programs().items():
            edits = edits_of(before, seed=2)
            for _ in sampled(range(12), 3):
                kinds = rng.sample(sorted(edits.keys() - {"fused", "fused and shifted"}), 3)
                after = before
                for kind in kinds:
                    after = rng.choice(edits[kind])(after)
                with self.subTest(program=name, edits=kinds):
                    self.check(before, records.renumber(after))

    def test_the_same_build_elsewhere_in_the_source(self) -> None:
        """With all texts as they were, even look-alikes of unequal number are told apart."""
        for name, before in programs().items():
            for kind, edits in sampled(edits_of(before, seed=3).items(), 4):
                if kind in ("two lines merged", "all at once", "a loop unrolled", "an op split"):
                    continue
                for edit in sampled(edits, 1):
                    with self.subTest(program=name, edit=kind):
                        judged = self.check(before, edit(before))
                        self.assertEqual(judged.apart_and_pooled()[1], 0)

    def test_a_thousand_groups(self) -> None:
        program = records.made_up(3, 1000)
        after = records.renumber(records.shift(busiest_file(program), 2, 4)(program))
        sides = lines_of(program), lines_of(after)
        with within(1):
            matches = matching.matches_of(*sides)
        self.assertGreater(len(matches), 900)


def op(
    number: int,
    *frames: str,
    tf_op: str | None = "jit(f)/dot:",
    kind: str = "compute",
    duration: int = 100,
    text: str | None = None,
) -> records.Op:
    """One op; its frames are `file:line:column`."""
    split = (frame.rsplit(":", 2) for frame in frames)
    return records.Op(
        frozenset([number]),
        kind,
        "loop fusion",
        tuple(Frame(file, int(line), int(column)) for file, line, column in split),
        tf_op,
        text or f"%fusion.{number} = f32[8] fusion()",
        "fusion [loop fusion]",
        "f32[8]",
        duration,
    )


def matched(before: Program, after: Program) -> list[tuple[str, list[str], list[str]]]:
    """(matched_by, lines before, lines after), the lines as the innermost frame or the key."""

    def names(lines: Sequence[runs.Line]) -> list[str]:
        return sorted(line.frames[-1] if line.frames else line.group["agg_key"] for line in lines)

    matches = matching.matches_of(lines_of(before), lines_of(records.renumber(after)))
    return sorted((m.matched_by, names(m.before), names(m.after)) for m in matches)


class Levels(unittest.TestCase):
    def test_same_ops_wherever_they_are(self) -> None:
        before = [op(1, "a.py:1:1", text="%x = f32[8] a()"), op(2, "a.py:2:1", text="%y = b()")]
        after = [op(2, "b.py:9:5", text="%y = b()"), op(1, "b.py:7:5", text="%x = f32[8] a()")]
        self.assertEqual(
            matched(before, after),
            [("same_ops", ["a.py:1:1"], ["b.py:7:5"]), ("same_ops", ["a.py:2:1"], ["b.py:9:5"])],
        )

    def test_names_of_ops_that_moved_on_are_no_same_ops(self) -> None:
        """With one op more before them, each is called as the next one was."""
        scopes = ("q", "k", "v")

        def program(first: int) -> Program:
            return [
                op(n, f"a.py:{n + first}:4", tf_op=f"jit(f)/{scope}/dot:",
                   text=f"%fusion.{first + n} = f32[8] fusion(f32[8] %p.1)")
                for n, scope in enumerate(scopes)
            ]  # fmt: skip

        pairs = [
            (match.before[0].group["tf_ops"], match.after[0].group["tf_ops"])
            for match in matching.matches_of(lines_of(program(1)), lines_of(program(2)))
        ]
        self.assertCountEqual(pairs, [([f"jit(f)/{scope}/dot:"],) * 2 for scope in scopes])

    def test_ops_that_are_not_the_only_ones_go_by_their_places(self) -> None:
        program = [op(n, f"{file}.py:1:1", text="%x = a()") for n, file in enumerate("ab")]
        lines = [["a.py:1:1"], ["b.py:1:1"]]
        self.assertEqual(
            matched(program, program),
            [("same_places_and_scopes", line, line) for line in lines],
        )
        stayed = ("same_places_and_scopes", lines[0], lines[0])
        self.assertEqual(matched(program, program[:1]), [("only_before", lines[1], []), stayed])
        self.assertEqual(matched(program[:1], program), [("only_after", [], lines[1]), stayed])

    def test_without_a_stack_by_the_key(self) -> None:
        before = [op(1, tf_op="w['a']:"), op(2, tf_op="w['b']:", kind="comm"), op(3, tf_op=None)]
        self.assertEqual(
            matched(before, before),
            [
                ("same_key", ["<no source>:loop fusion"], ["<no source>:loop fusion"]),
                ("same_key", ["tfop:w['a']:"], ["tfop:w['a']:"]),
                ("same_key", ["tfop:w['b']:"], ["tfop:w['b']:"]),
            ],
        )

    def test_the_number_of_an_op_is_no_name(self) -> None:
        before = [op(1, tf_op="copy.17:"), op(2, tf_op="copy.18:")]
        after = [op(1, tf_op="copy.18:"), op(2, tf_op="copy.19:"), op(3, tf_op="slice.17:")]
        rows = [(level, len(ours), len(theirs)) for level, ours, theirs in matched(before, after)]
        self.assertEqual(rows, [("only_after", 0, 1), ("same_key", 2, 2)])

    def test_look_alikes_go_by_the_order_of_their_lines(self) -> None:
        before = [op(n, "m.py:1:0", f"a.py:{line}:4") for n, line in enumerate((10, 20, 30))]
        after = [op(n, "m.py:9:0", f"a.py:{line}:4") for n, line in enumerate((9, 10, 20))]
        self.assertEqual(
            [row[1:] for row in matched(before, after)],
            [
                (["a.py:10:4"], ["a.py:9:4"]),
                (["a.py:20:4"], ["a.py:10:4"]),
                (["a.py:30:4"], ["a.py:20:4"]),
            ],
        )

    def test_look_alikes_of_unequal_number_are_one_row(self) -> None:
        before = [op(n, f"a.py:{line}:4") for n, line in enumerate((10, 20, 30))]
        after = [op(n, f"a.py:{line}:4") for n, line in enumerate((10, 30))]
        self.assertEqual(
            matched(before, after),
            [
                (
                    "same_places_and_scopes",
                    ["a.py:10:4", "a.py:20:4", "a.py:30:4"],
                    ["a.py:10:4", "a.py:30:4"],
                )
            ],
        )

    def test_some_look_alikes_were_edited(self) -> None:
        """As where of the projections q, k and v two are now arguments of other calls."""
        before = [op(n, f"a.py:{line}:13") for n, line in enumerate((9, 10, 11))]
        after = [op(0, "a.py:9:13"), op(1, "a.py:10:18"), op(2, "a.py:12:22")]
        self.assertEqual(
            matched(before, after),
            [
                ("same_files_and_scopes", ["a.py:10:13"], ["a.py:10:18"]),
                ("same_files_and_scopes", ["a.py:11:13"], ["a.py:12:22"]),
                ("same_files_and_scopes", ["a.py:9:13"], ["a.py:9:13"]),
            ],
        )

    def test_one_of_some_look_alikes_was_moved(self) -> None:
        before = [op(n, "m.py:1:0", f"a.py:{line}:13") for n, line in enumerate((9, 10, 11))]
        moved = op(2, "m.py:1:0", "b.py:5:4")
        [(level, ours, theirs)] = matched(before, [*before[:2], moved])
        self.assertEqual((level, len(ours)), ("same_scopes", 3))
        self.assertEqual(theirs, ["a.py:10:13", "a.py:9:13", "b.py:5:4"])
        # To where there are others that look like it.
        other = op(3, "m.py:1:0", "b.py:7:4")
        rows = matched([*before, other], [*before[:2], moved, other])
        self.assertEqual([(level, len(ours), len(theirs)) for level, ours, theirs in rows],
                         [("same_scopes", 4, 4)])  # fmt: skip

    def test_what_has_no_scopes_has_no_look_alikes(self) -> None:
        before = [op(n, f"a.py:{n}:1", tf_op=None) for n in (1, 2)]
        after = [op(3, "a.py:5:1", tf_op=None), op(4, "b.py:1:1", tf_op=None)]
        self.assertEqual(
            matched(before, after),
            [
                ("only_after", [], ["b.py:1:1"]),
                ("same_places", ["a.py:1:1", "a.py:2:1"], ["a.py:5:1"]),
            ],
        )

    def test_lines_that_call_each_other_the_other_way_round_have_no_order(self) -> None:
        ab = [("a.py:1:1", f"b.py:{line}:1") for line in (1, 2)]
        ba = [("b.py:9:9", f"a.py:{line}:9") for line in (1, 2)]
        before = [op(n, *frames) for n, frames in enumerate((*ab, ba[0]))]
        after = [
            op(n, *frames) for n, frames in enumerate((ab[0], ("b.py:8:8", "a.py:7:8"), ba[0]))
        ]
        self.assertEqual(sorted(len(theirs) for _, _, theirs in matched(before, after)), [1, 2])

    def test_a_line_in_a_file_of_one_side_is_not_known_by_its_caller(self) -> None:
        known = op(1, "x.py:7:7", tf_op="jit(f)/a/b/add:")
        calls = [("x.py:1:1", "m.py:3:5"), ("m.py:3:5",)]
        for inner, level in (
            ((), {"same_line"}),
            (("old.py:1:1", "new.py:1:1"), {"only_before", "only_after"}),
        ):
            before = op(2, *calls[0], *inner[:1], tf_op="jit(f)/a/dot:")
            after = op(3, *calls[1], *inner[1:], tf_op="jit(f)/b/dot:")
            rows = matched([known, before], [known, after])
            self.assertEqual({row[0] for row in rows} - {"same_places_and_scopes"}, level)

    def test_rows_that_lack_lines_on_the_same_side_stay_apart(self) -> None:
        before = [op(n, "m.py:1:0", f"{n}.py:9:4") for n in range(2)]
        after = [op(n, "m.py:1:0", f"{n % 2}.py:{n + 9}:4") for n in range(4)]
        self.assertEqual(
            [len(theirs) for level, ours, theirs in matched(before, after)],
            [2, 2],
        )

    def test_columns_tell_lines_of_another_order_apart(self) -> None:
        before = [op(1, "a.py:10:4"), op(2, "a.py:20:8")]
        after = [op(1, "a.py:20:4"), op(2, "a.py:10:8")]
        self.assertEqual(
            [row[1:] for row in matched(before, after)],
            [(["a.py:10:4"], ["a.py:20:4"]), (["a.py:20:8"], ["a.py:10:8"])],
        )

    def test_columns_that_moved_tell_nothing(self) -> None:
        before = [op(1, "a.py:10:4"), op(2, "a.py:20:8")]
        after = [op(1, "a.py:10:8"), op(2, "a.py:20:12")]
        self.assertEqual(
            matched(before, after),
            [
                ("same_files_and_scopes", ["a.py:10:4"], ["a.py:10:8"]),
                ("same_files_and_scopes", ["a.py:20:8"], ["a.py:20:12"]),
            ],
        )

    def test_a_place_that_stayed_counts_where_others_did_not(self) -> None:
        before = [op(1, "m.py:10:5"), op(2, "m.py:20:9")]
        after = [op(3, "m.py:5:13"), op(1, "m.py:11:5")]
        self.assertEqual(
            matched(before, after),
            [
                ("same_files_and_scopes", ["m.py:20:9"], ["m.py:5:13"]),
                ("same_places_and_scopes", ["m.py:10:5"], ["m.py:11:5"]),
            ],
        )

    def test_what_is_left_of_one_side_is_not_the_match_of_nothing(self) -> None:
        """It may be alike otherwise, such as by the scopes alone."""
        before = [op(1, "m.py:10:5"), op(2, "m.py:20:9")]
        after = [op(1, "m.py:11:5"), op(2, "n.py:20:7")]
        stayed = ("same_places_and_scopes", ["m.py:10:5"], ["m.py:11:5"])
        self.assertEqual(
            matched(before, after), [stayed, ("same_scopes", ["m.py:20:9"], ["n.py:20:7"])]
        )
        self.assertEqual(matched(before, after[:1]), [("only_before", ["m.py:20:9"], []), stayed])

    def test_a_place_counts_among_calls_from_another_file(self) -> None:
        before = [op(1, "a.py:1:1", "b.py:5:5"), op(2, "b.py:2:2", "a.py:6:6")]
        after = [op(3, "a.py:3:3", "b.py:7:7"), op(1, "a.py:9:1", "b.py:9:5")]
        self.assertEqual(
            matched(before, after),
            [
                ("same_files_and_scopes", ["a.py:6:6"], ["b.py:7:7"]),
                ("same_places_and_scopes", ["b.py:5:5"], ["b.py:9:5"]),
            ],
        )

    def test_a_block_that_was_indented_onto_the_place_of_another(self) -> None:
        before = [op(1, "a.py:10:4"), op(2, "a.py:20:8")]
        after = [op(1, "a.py:10:8"), op(2, "a.py:20:8")]
        self.assertEqual(
            matched(before, after),
            [
                ("same_files_and_scopes", ["a.py:10:4"], ["a.py:10:8"]),
                ("same_files_and_scopes", ["a.py:20:8"], ["a.py:20:8"]),
            ],
        )

    def test_a_line_with_another_op_is_found_at_its_place(self) -> None:
        before = [op(1, "a.py:10:4", tf_op="jit(f)/mul:")]
        after = [op(1, "a.py:12:4", tf_op="jit(f)/mul:"), op(2, "a.py:12:4", tf_op="jit(f)/add:")]
        self.assertEqual(matched(before, after), [("same_places", ["a.py:10:4"], ["a.py:12:4"])])

    def test_a_function_in_another_file_is_found_by_its_scopes(self) -> None:
        before = [op(1, "m.py:1:0", "a.py:10:4", tf_op="jit(f)/head/mul:")]
        after = [op(1, "m.py:1:0", "b.py:70:8", tf_op="jit(f)/head/mul:")]
        self.assertEqual(
            [row[1:] for row in matched(before, after)], [(["a.py:10:4"], ["b.py:70:8"])]
        )

    def test_files_that_both_sides_know_are_told_apart(self) -> None:
        before = [op(1, "a.py:1:1", tf_op="head/mul:"), op(2, "b.py:2:2", tf_op="tail/exp:")]
        after = [op(1, "b.py:8:8", tf_op="head/mul:"), op(2, "a.py:9:9", tf_op="tail/exp:")]
        self.assertEqual(
            matched(before, after),
            [("same_scopes", ["a.py:1:1"], ["b.py:8:8"]),
             ("same_scopes", ["b.py:2:2"], ["a.py:9:9"])],
        )  # fmt: skip

    def test_calls_of_one_line_go_by_their_columns(self) -> None:
        before = [op(1, "a.py:10:4"), op(2, "a.py:10:12")]
        after = [op(2, "a.py:10:16"), op(1, "a.py:10:8")]
        self.assertEqual(
            [row[1:] for row in matched(before, after)],
            [(["a.py:10:12"], ["a.py:10:16"]), (["a.py:10:4"], ["a.py:10:8"])],
        )

    def test_files_have_one_order_on_both_sides(self) -> None:
        def program(a: str, b: str, column: int) -> Program:
            there, back = [f"{a}:1:{column}", f"{b}:1:4"], [f"{b}:1:4", f"{a}:2:{column}"]
            return [op(1, *there), op(2, *back)]

        self.assertEqual(
            [row[1:] for row in matched(program("/z/a.py", "/y/b.py", 4),
                                        program("/x/a.py", "/x/b.py", 8))],
            [(["/y/b.py:1:4"], ["/x/b.py:1:4"]), (["/z/a.py:2:4"], ["/x/a.py:2:8"])],
        )  # fmt: skip

    def test_what_has_no_order_is_one_row(self) -> None:
        # Two files that only one side knows: their lines can't be compared.
        before = [op(1, "m.py:1:0", "a.py:10:4"), op(2, "m.py:1:0", "b.py:20:4")]
        after = [op(1, "m.py:1:0", "c.py:20:4"), op(2, "m.py:1:0", "d.py:10:4")]
        self.assertEqual([len(row[1]) for row in matched(before, after)], [2])
        # Or of one side, whichever it is.
        ordered = [op(n, "m.py:1:0", f"a.py:{10 * n}:4") for n in (1, 2)]
        for sides in ((ordered, after), (after, ordered)):
            self.assertEqual([len(row[1]) for row in matched(*sides)], [2])
        # One call, recursive or not.
        deep = "a.py:10:4", "b.py:2:4"
        before = [op(1, *deep), op(2, *deep, *deep)]
        self.assertEqual([len(row[1]) for row in matched(before, before)], [2])

    def test_look_alikes_with_other_ops_go_by_the_order_of_their_lines(self) -> None:
        before = [op(n, f"a.py:{10 * n}:4", tf_op="jit(f)/mul:") for n in (1, 2)]
        after = [op(n, f"a.py:{10 * n + 1}:4", tf_op="jit(f)/add:") for n in (1, 2)]
        self.assertEqual(
            matched(before, after),
            [
                ("same_places", ["a.py:10:4"], ["a.py:11:4"]),
                ("same_places", ["a.py:20:4"], ["a.py:21:4"]),
            ],
        )

    def test_a_line_with_other_callers_and_scopes(self) -> None:
        before = [op(1, "m.py:1:0", "a.py:10:4", tf_op="jit(f)/head/mul:"),
                  op(2, "m.py:2:4", tf_op="jit(f)/tail/add:")]  # fmt: skip
        after = [op(1, "a.py:12:4", tf_op="jit(f)/tail/mul:"), before[1]]
        self.assertIn(("same_line", ["a.py:10:4"], ["a.py:12:4"]), matched(before, after))
        # Another op there is another line.
        after[0] = op(3, "a.py:12:4", tf_op="jit(f)/tail/exp:")
        self.assertIn(("only_before", ["a.py:10:4"], []), matched(before, after))

    def test_a_line_number_alone_matches_nothing(self) -> None:
        before = [op(1, "a.py:10:4", tf_op="jit(f)/head/mul:")]
        after = [op(2, "a.py:10:8", tf_op="jit(f)/tail/exp:")]
        self.assertEqual(
            matched(before, after),
            [("only_after", [], ["a.py:10:8"]), ("only_before", ["a.py:10:4"], [])],
        )

    def test_kinds_never_mix(self) -> None:
        before = [op(1, "a.py:10:4", kind="comm")]
        after = [op(1, "a.py:10:4", kind="compute")]
        self.assertEqual([row[0] for row in matched(before, after)], ["only_after", "only_before"])

    def test_phases_are_told_apart(self) -> None:
        forward, backward = "jit(f)/jvp(h)/dot:", "jit(f)/transpose(jvp(h))/dot:"
        before = [op(1, "a.py:10:4", tf_op=forward), op(2, "a.py:30:4", tf_op=backward)]
        after = [op(2, "a.py:10:4", tf_op=backward), op(1, "a.py:30:4", tf_op=forward)]
        self.assertEqual(
            [row[1:] for row in matched(before, after)],
            [(["a.py:10:4"], ["a.py:30:4"]), (["a.py:30:4"], ["a.py:10:4"])],
        )

    def test_recursion_counts_a_frame_once(self) -> None:
        before = [op(1, "a.py:10:4", "a.py:20:8", "b.py:1:1")]
        after = [op(1, "a.py:10:4", "a.py:20:8", "a.py:10:4", "a.py:20:8", "b.py:1:1")]
        self.assertEqual(matched(before, after)[0][0], "same_places_and_scopes")


class Names(unittest.TestCase):
    def test_scopes(self) -> None:
        for tf_op, scope in {
            "jit(f)/jit(main)/add:": ("other", (), "add"),
            "jit(f)/jvp()/while/body/closed_call/layer/mlp/dot:": (
                "forward",
                ("layer", "mlp"),
                "dot",
            ),
            "jit(f)/transpose(jvp(head))/dot": ("backward", ("head",), "dot"),
            "jit(f)/transpose(jvp())/checkpoint/rematted_computation/a/exp:": (
                "recompute",
                ("a",),
                "exp",
            ),
            "jit(f)/jvp(jit(silu))/mul:": ("forward", ("silu",), "mul"),
            "jit(f)/jvp(layer/mlp)/dot:": ("forward", ("layer", "mlp"), "dot"),
            "head/dot:": ("other", ("head",), "dot"),
            "broadcast.47:": ("other", (), "broadcast"),
            "w['blk']['n1']:": ("other", (), "w['blk']['n1']"),
            "": ("other", (), ""),
        }.items():
            with self.subTest(tf_op=tf_op):
                self.assertEqual(matching.scope_of(tf_op), scope)

    def test_numbers_of_ops(self) -> None:
        suffix = re.compile(r"(?:\.\d+)+(?=:?\Z)")
        rng = random.Random(5)
        for _ in range(20_000):
            name = "".join(rng.choices("ax.:12\n", k=rng.randrange(12)))
            self.assertEqual(matching.without_number(name), suffix.sub("", name), name)
        with within(0.1):
            for name in ("x" + ".1" * 32_768, ".1" * 32_768 + "x", "1" * 65_536, "." * 65_536):
                matching.without_number(name)

    def test_frames(self) -> None:
        for frame, parts in {
            "/a/b.py:12:3": ("/a/b.py", 12, 3),
            "<embedded module 'm'>:153:2": ("<embedded module 'm'>", 153, 2),
            "a.py:7": ("a.py", 7, 0),
            "a.py": ("a.py", 0, 0),
            "a\nb:1:2": ("a\nb", 1, 2),
            "": ("", 0, 0),
            "a:" + "9" * 5000: ("a:" + "9" * 5000, 0, 0),
        }.items():
            with self.subTest(frame=frame):
                self.assertEqual(matching.split_frame(frame), parts)

    def test_files(self) -> None:
        def pairs(before: set[str], after: set[str]) -> set[tuple[str, str]]:
            names = matching.paired_files(before, after)
            self.assertEqual(sorted(names[0].values()), sorted(names[1].values()))
            by_name = {name: file for file, name in names[1].items()}
            return {(file, by_name[name]) for file, name in names[0].items()}

        self.assertEqual(pairs({"/a/m/x.py", "/a/y.py"}, {"/b/m/x.py", "/a/y.py"}),
                         {("/a/m/x.py", "/b/m/x.py"), ("/a/y.py", "/a/y.py")})  # fmt: skip
        # The longer tail is the better, and each file is paired once.
        self.assertEqual(pairs({"/a/m/x.py", "/a/n/x.py"}, {"/b/m/x.py"}),
                         {("/a/m/x.py", "/b/m/x.py")})  # fmt: skip
        # Two as good as each other are not guessed.
        self.assertEqual(pairs({"/a/x.py", "/b/x.py"}, {"/c/x.py"}), set())
        self.assertEqual(pairs({"x.py"}, {"y.py"}), set())


# --- noise ---------------------------------------------------------------------------------------


def brute_force(samples: Sequence[Sequence[int]], n_before: int, n_after: int) -> list[Fraction]:
    """From the definition, over all assignments."""
    n = n_before + n_after

    def square(x: Sequence[int], chosen: Sequence[int]) -> Fraction:
        spread = n * sum(v * v for v in x) - sum(x) ** 2
        difference = n * sum(x[j] for j in chosen) - n_before * sum(x)
        return Fraction(difference**2, spread) if spread else Fraction(0)

    observed = range(n_before)
    maxima = [
        max((square(x, chosen) for x in samples), default=0)
        for chosen in itertools.combinations(range(n), n_before)
    ]
    return [
        Fraction(sum(maximum >= square(x, observed) for maximum in maxima), len(maxima))
        for x in samples
    ]


class Noise(unittest.TestCase):
    def test_p_values_are_those_of_brute_force(self) -> None:
        rng = random.Random(4)
        for _ in range(150):
            n_before, n_after = rng.choice([(1, 1), (2, 2), (3, 3), (4, 4), (3, 5), (4, 2), (1, 6)])
            # Few values: many ties, which floats alone would not see.
            largest = rng.choice([1, 2, 5, 10**12, 2**62])
            rows = [
                [rng.randint(0, largest) for _ in range(n_before + n_after)]
                for _ in range(rng.randint(1, 5))
            ]
            rows += [[2 * x for x in rows[0]], [2**70 + x for x in rows[0]]][: rng.randint(0, 2)]
            with self.subTest(n_before=n_before, n_after=n_after, rows=rows):
                families = [rows, rows[:1], [], rows[::-1]]
                self.assertEqual(
                    list(p_values_of(families, noise_of(n_before, n_after))),
                    [brute_force(family, n_before, n_after) for family in families],
                )

    def test_beyond_five_thousand_assignments_are_drawn(self) -> None:
        noise = noise_of(8, 7)
        self.assertEqual((noise.n_assignments, noise.exact), (5000, False))
        chosen = list(map(list, assignments(noise)))
        rng = random.Random(0)
        drawn = [rng.sample(range(15), 8) for _ in range(4999)]
        # One by one: to show how thousands differ takes minutes.
        for ours, theirs in itertools.zip_longest(chosen, [list(range(8)), *drawn]):
            self.assertEqual(ours, theirs)
        rows = [[rng.randrange(10**6) for _ in range(15)] for _ in range(3)]
        n = 15

        def square(x: Sequence[int], steps: Sequence[int]) -> Fraction:
            spread = n * sum(v * v for v in x) - sum(x) ** 2
            return Fraction((n * sum(x[j] for j in steps) - 8 * sum(x)) ** 2, spread)

        maxima = [max(square(x, steps) for x in rows) for steps in chosen]
        [p_values] = p_values_of([rows], noise)
        self.assertEqual(
            p_values, [Fraction(sum(m >= square(x, chosen[0]) for m in maxima), 5000) for x in rows]
        )

    def test_what_so_many_steps_can_tell(self) -> None:
        for sides, n, least, too_few in (
            ((1, 1), 2, Fraction(1), True),
            ((3, 3), 20, Fraction(1, 10), True),
            ((2, 4), 15, Fraction(1, 15), True),
            ((1, 19), 20, Fraction(1, 20), False),
            ((2, 5), 21, Fraction(1, 21), False),
            ((3, 4), 35, Fraction(1, 35), False),
            ((4, 4), 70, Fraction(1, 35), False),
            ((7, 7), 3432, Fraction(1, 1716), False),
            ((8, 8), 5000, Fraction(1, 5000), False),
        ):
            with self.subTest(sides=sides):
                noise = noise_of(*sides)
                self.assertEqual(
                    (noise.n_assignments, noise.min_p_value, noise.too_few_steps),
                    (n, least, too_few),
                )

    def assert_quick(self, rows: list[list[int]], seconds: float) -> None:
        half = len(rows[0]) // 2
        with within(seconds):
            for _ in p_values_of([rows], noise_of(half, half)):
                pass

    def test_cost(self) -> None:
        rng = random.Random(1)

        def random_rows(n_rows: int, n_steps: int) -> list[list[int]]:
            mean = 10**10
            return [[round(rng.gauss(mean, 3e8)) for _ in range(n_steps)] for _ in range(n_rows)]

        self.assert_quick(random_rows(300 if FULL else 100, 14), 1)
        # Executions of a module are steps, too: there may be hundreds.
        self.assert_quick(random_rows(200 if FULL else 20, 400), 3)

    def test_ties_cost_nothing(self) -> None:
        # Rows that differ in one step are as extreme as each other in every assignment.
        n = 400 if FULL else 200
        rows = [[100 + (step == row) for step in range(n)] for row in range(60)]
        self.assert_quick(rows, 3)

    def test_too_few_steps_are_said_not_guessed(self) -> None:
        program = records.of_demo()
        slower = records.slow_down(program[0].key, 3)(program)
        answer = compare(
            record(program, 3, jitter=0.01, seed=1), record(slower, 3, jitter=0.01, seed=2)
        )
        self.assertEqual(answer["noise"]["why_not"], "too_few_steps")
        self.assertEqual(answer["noise"]["n_tested"], 0)
        self.assertEqual(answer["noise"]["min_p_value"], 0.1)
        for figure in (*answer["rows"], *answer["totals"].values()):
            self.assertIsNone(figure["significant"])
            self.assertIsNone(figure["p_value"])
        self.assertTrue(any("too few" in note for note in answer["notes"]))

    def test_a_chance_of_just_five_percent_will_do(self) -> None:
        for n_after, p_value in ((19, 0.05), (20, 0.047619)):
            answer = compare(
                record([op(1, "a.py:1:1", duration=9)]),
                record([op(1, "a.py:1:1", duration=8)], n_after),
            )
            for figure in (*answer["rows"], answer["totals"]["step_duration"]):
                self.assertEqual((figure["p_value"], figure["significant"]), (p_value, True))

    def test_halves_of_one_run_differ_by_chance_only(self) -> None:
        run = record(records.of_demo(), 40, jitter=0.04, seed=5)
        rng = random.Random(6)
        found = Counter[str]()
        n = 200 if FULL else 30
        for _ in range(n):
            steps = rng.sample(run["steps"], 8)
            answer = compare(*(with_steps(run, half) for half in (steps[:4], steps[4:])))
            found["rows"] += any(row["significant"] for row in answer["rows"])
            found["totals"] += any(each["significant"] for each in answer["totals"].values())
        # 5 %, and three standard errors.
        most = n * 0.05 + 3 * (n * 0.05 * 0.95) ** 0.5
        self.assertLessEqual(found["rows"], most)
        self.assertLessEqual(found["totals"], most)

    def test_a_median_line_that_gets_slower_is_found(self) -> None:
        """The demo has four layers; with 48, a line's executions average out what jitters."""
        program = [replace(op, n=12 * op.n, duration=12 * op.duration) for op in records.of_demo()]
        tested = [
            (sum(op.duration for op in ops), key)
            for key, ops in groups_of(program).items()
            if sum(op.duration for op in ops) * 1000 > sum(op.duration for op in program)
        ]
        _, median = sorted(tested)[len(tested) // 2]
        slower = records.slow_down(median, 1.05)(program)
        n_found = 0
        seeds = range(20 if FULL else 8)
        for seed in seeds:
            answer = compare(
                record(program, 4, jitter=0.04, seed=2 * seed),
                record(slower, 4, jitter=0.04, seed=2 * seed + 1),
            )
            [row] = [row for row in answer["rows"] if (row["kind"], median[1]) == median
                     and row["agg_keys_after"] == [median[1]]]  # fmt: skip
            n_found += bool(row["significant"] and row["delta_ps"] > 0)
        self.assertGreaterEqual(n_found, 0.9 * len(seeds))


def with_steps(run: Json, steps: Sequence[Json]) -> Json:
    numbered = [{**step, "index": index} for index, step in enumerate(steps)]
    return {**run, "steps": numbered}


# --- figures -------------------------------------------------------------------------------------


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
        # Some of it runs beside the rest.
        for step in cls.after["steps"]:
            step["busy_ps"] -= 10**8 * (1 + step["index"])

    def totals_of(self, capture: Json) -> dict[str, list[int]]:
        """What the totals are in each step."""
        of: dict[str, list[int]] = {name: [] for name in TOTALS}
        for step in capture["steps"]:
            durations = list(zip(capture["groups"], step["durs_ps"], strict=True))
            for kind in records_kinds():
                of[kind].append(sum(dur for group, dur in durations if group["kind"] == kind))
            of["step_duration"].append(step["duration_ps"])
            of["busy"].append(step["busy_ps"])
            of["idle"].append(step["duration_ps"] - step["busy_ps"])
            of["overlap"].append(step["busy_ps"] - sum(step["durs_ps"]))
            of["wait"].append(step["wait_ps"])
        return of

    def test_a_record_against_itself_is_all_zeros(self) -> None:
        for a in (self.before, self.after):
            answer = compare(a, a)
            for figure in (*answer["rows"], *answer["totals"].values()):
                self.assertEqual(figure["delta_ps"], 0)
                self.assertEqual(figure["before_ps"], figure["after_ps"])
                self.assertFalse(figure["significant"])
                self.assertEqual(figure["before_range_ps"], figure["after_range_ps"])
            self.assertTrue(answer["same_program"])
            self.assertEqual(answer["by_match"]["same_ops"]["n_rows"], len(answer["rows"]))

    def test_backwards_is_the_opposite(self) -> None:
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
            self.assertEqual(ours["delta_ps"], -theirs["delta_ps"])
            self.assertEqual(ours["p_value"], theirs["p_value"])
            self.assertEqual(ours["before_range_ps"], theirs["after_range_ps"])

    def test_everything_adds_up(self) -> None:
        for top in (0, 1, 7, 10**6):
            answer = compare(self.before, self.after, top=top)
            self.assertEqual(len(answer["rows"]) + answer["tail"]["n_rows_omitted"], 92)
            for figure in ("before_ps", "after_ps", "delta_ps"):
                for kind in records_kinds():
                    rows = [row[figure] for row in answer["rows"] if row["kind"] == kind]
                    tail = answer["tail"]["by_kind"][kind][figure]
                    self.assertEqual(sum(rows) + tail, answer["totals"][kind][figure])
                of = {name: answer["totals"][name][figure] for name in TOTALS}
                self.assertEqual(of["busy"] + of["idle"], of["step_duration"])
                kinds = sum(of[kind] for kind in records_kinds())
                self.assertEqual(kinds + of["overlap"], of["busy"])
            for figure in ("before_ps", "after_ps"):
                matched = sum(each[figure] for each in answer["by_match"].values())
                kinds = sum(answer["totals"][kind][figure] for kind in records_kinds())
                self.assertEqual(matched, kinds)
            for side, capture in (("before", self.before), ("after", self.after)):
                n_groups = sum(each[f"n_groups_{side}"] for each in answer["by_match"].values())
                self.assertEqual(n_groups, len(capture["groups"]))

    def test_figures_are_those_of_the_definitions(self) -> None:
        answer = compare(self.before, self.after)
        step = mean([each["duration_ps"] for each in self.before["steps"]])
        for row in answer["rows"]:
            for side, capture in (("before", self.before), ("after", self.after)):
                places = [
                    index
                    for index, group in enumerate(capture["groups"])
                    if group["kind"] == row["kind"] and group["agg_key"] in row[f"agg_keys_{side}"]
                ]
                self.assertEqual(len(places), row[f"n_groups_{side}"])
                durs = [[each["durs_ps"][at] for each in capture["steps"]] for at in places]
                self.assertEqual(row[f"{side}_ps"], sum(map(mean, durs)))
                sums = list(map(sum, zip(*durs, strict=True)))
                self.assertEqual(row[f"{side}_range_ps"], [min(sums), max(sums)])
                ns = sum(each["ns"][at] for each in capture["steps"] for at in places)
                self.assertEqual(row[f"n_executions_{side}"], round(ns / len(capture["steps"]), 3))
            delta = row["after_ps"] - row["before_ps"]
            self.assertEqual(row["delta_ps"], delta)
            self.assertEqual(row["delta_pct"], round(100 * delta / row["before_ps"], 3))
            self.assertEqual(row["delta_pct_of_step"], round(100 * delta / step, 3))
        deltas = [abs(row["delta_ps"]) for row in answer["rows"]]
        self.assertEqual(deltas, sorted(deltas, reverse=True))
        self.assertEqual([row["rank"] for row in answer["rows"]], list(range(1, 93)))
        totals = answer["totals"]
        self.assertEqual(list(totals), TOTALS)
        for side, capture in (("before", self.before), ("after", self.after)):
            for name, figures in self.totals_of(capture).items():
                total = totals[name]
                self.assertEqual(total[f"{side}_range_ps"], [min(figures), max(figures)], name)
                # Of the others some are sums of rounded means.
                if name in ("step_duration", "idle", "wait"):
                    self.assertEqual(total[f"{side}_ps"], mean(figures), name)

    def test_the_p_values_are_of_two_families(self) -> None:
        answer = compare(self.before, self.after)
        tested = [row for row in answer["rows"] if row["p_value"] is not None]
        noise = {
            "method": "permutation_max",
            "covers": "step_to_step",
            "alpha": 0.05,
            "n_before": 5,
            "n_after": 4,
            "n_tested": len(tested),
            "n_assignments": 126,
            "exact": True,
            "min_p_value": 0.007937,
            "why_not": None,
        }
        self.assertEqual(answer["noise"], noise)

        def samples(row: Json) -> list[int]:
            return [
                sum(
                    each["durs_ps"][index]
                    for index, group in enumerate(capture["groups"])
                    if group["kind"] == row["kind"] and group["agg_key"] in row[f"agg_keys_{side}"]
                )
                for side, capture in (("before", self.before), ("after", self.after))
                for each in capture["steps"]
            ]

        whole = sum(sum(samples(row)) for row in answer["rows"])
        for row in answer["rows"]:
            self.assertEqual(row["p_value"] is not None, 1000 * sum(samples(row)) >= whole)
            self.assertEqual(row["significant"] is None, row["p_value"] is None)
        expected = brute_force([samples(row) for row in tested], 5, 4)
        for row, p_value in zip(tested, expected, strict=True):
            self.assertEqual(row["p_value"], round(float(p_value), 6))
            self.assertEqual(row["significant"], p_value <= Fraction(1, 20))
        before, after = (self.totals_of(capture) for capture in (self.before, self.after))
        expected = brute_force([before[name] + after[name] for name in TOTALS], 5, 4)
        for name, p_value in zip(TOTALS, expected, strict=True):
            self.assertEqual(answer["totals"][name]["p_value"], round(float(p_value), 6), name)

    def test_a_thousandth_of_the_time_is_tested(self) -> None:
        for most, n_tested in ((999, 2), (1000, 1)):
            run = record([op(1, "a.py:1:1", duration=1), op(2, "b.py:1:1", duration=most)], 4)
            answer = compare(run, run)
            self.assertEqual(answer["noise"]["n_tested"], n_tested)
            tested = {row["after_ps"]: row["p_value"] for row in answer["rows"]}
            self.assertEqual(tested, {most: 1, 1: 1 if n_tested == 2 else None})

    def test_what_was_slowed_down_is_found_on_its_line(self) -> None:
        program = records.of_demo()
        for seed, op in enumerate(random.Random(3).sample(program, 5)):
            after = records.chain(
                records.slow_down(op.key, 1.1), records.shift(busiest_file(program), 3)
            )(records.renumber(program))
            answer = compare(record(program, 1), record(after, 1))
            changed = [row for row in answer["rows"] if row["delta_ps"]]
            with self.subTest(seed=seed):
                self.assertEqual([row["agg_keys_before"] for row in changed], [[op.agg_key]])
                self.assertAlmostEqual(changed[0]["delta_pct"], 10, delta=0.01)

    def test_the_order_of_groups_and_what_never_runs_does_not_matter(self) -> None:
        rng = random.Random(1)
        order = list(range(len(self.before["groups"])))
        rng.shuffle(order)
        unused = {**self.before["groups"][0], "kind": "other", "agg_key": "stack:unused"}
        shuffled = {
            **self.before,
            "groups": [*(self.before["groups"][at] for at in order), unused],
            "steps": [
                {**step, **{name: [step[name][at] for at in order] for name in ("durs_ps", "ns")}}
                for step in self.before["steps"]
            ],
        }
        self.assertEqual(compare(shuffled, self.after), compare(self.before, self.after))

    def test_steps_narrow_what_is_used(self) -> None:
        """Alike, whether the record was made with all steps or with those."""
        narrow = [
            step
            if index in range(10)[SOME_STEPS]
            else {**step, "used": False, "why_not": "not_asked", **dict.fromkeys(FIGURES)}
            for index, step in enumerate(self.before["steps"])
        ]
        answer = compare(self.before, self.after, steps=SOME_STEPS)
        self.assertEqual(compare({**self.before, "steps": narrow}, self.after, steps=SOME_STEPS),
                         answer)  # fmt: skip
        self.assertEqual([step["index"] for step in answer["before"]["steps"]], [1, 2, 3])
        self.assertEqual(answer["before"]["n_steps"], 3)
        # A group that ran in none of them is in no row.
        silent = json.loads(json.dumps(self.before))
        for step in silent["steps"][SOME_STEPS]:
            step["durs_ps"][0] = step["ns"][0] = 0
        gone = compare(silent, self.after, steps=SOME_STEPS)["by_match"]["only_after"]
        self.assertEqual(gone["n_rows"], 1)

    def test_what_is_missing_is_said(self) -> None:
        for options, reason, side in (
            ({"before_device": "/device:TPU:7"}, "device_not_found", "baseline"),
            ({"after_device": "/device:TPU:7"}, "device_not_found", None),
            ({"steps": slice(9, None)}, "step_not_found", "baseline"),
        ):
            with self.subTest(options=options), self.assertRaises(NoAnswer) as caught:
                compare(self.before, self.after, **options)
            self.assertEqual(caught.exception.reason, reason)
            self.assertEqual(caught.exception.fields.get("side"), side)
        self.assertEqual(caught.exception.fields["available_steps"],
                         [f"step {index}" for index in range(5)])  # fmt: skip

    def test_what_differs_besides_is_noted(self) -> None:
        after = json.loads(json.dumps(self.after))
        after["devices"][0].update(device_type="TPU v6e", clock="trace")
        answer = compare(self.before, after)
        self.assertFalse(answer["same_device_type"] or answer["same_program"])
        programs = [of["devices"][0]["program"] for of in (self.before, after)]
        self.assertEqual(
            answer["notes"],
            [
                comparison.RUN_TO_RUN,
                "another device_type: TPU7x before, TPU v6e after",
                "another clock: device before, trace after",
                f"another program: {programs[0]} before, {programs[1]} after",
                "another number of steps: 5 before, 4 after",
            ],
        )
        self.assertEqual(compare(after, after)["notes"], [comparison.RUN_TO_RUN])

    def test_lines_that_ran_in_some_of_the_steps(self) -> None:
        before = record([op(1, "a.py:1:1"), op(2, "b.py:1:1", tf_op=None), op(3, tf_op=None)], 3)
        after = json.loads(json.dumps(before))
        # Zeros that end a list are left out. The second takes no time, and the third never runs.
        figures_of: list[tuple[list[int], list[int]]] = [([], []), ([7], [2, 1]), ([3, 0], [2])]
        for step, (durs, ns) in zip(after["steps"], figures_of, strict=True):
            step.update(durs_ps=durs, ns=ns)
        rows = {row["agg_keys_before"][0]: row for row in compare(before, after)["rows"]}
        figures = "after_ps after_range_ps n_groups_after n_executions_after".split()
        self.assertEqual(
            [[rows[group["agg_key"]][name] for name in figures] for group in before["groups"]],
            [[3, [0, 7], 1, 1.333], [0, [0, 0], 1, 0.333], [0, [0, 0], 0, 0]],
        )

    def test_rounded_means_add_up(self) -> None:
        run = record([op(1, "a.py:1:1")], 2)
        for step, busy in zip(run["steps"], (1, 2), strict=True):
            step.update(duration_ps=2, busy_ps=busy, durs_ps=[busy])
        totals = compare(run, run)["totals"]
        means = [totals[n]["before_ps"] for n in ("step_duration", "idle", "busy", "compute")]
        self.assertEqual((*means, totals["overlap"]["before_ps"]), (2, 1, 1, 2, -1))

    def test_no_zero_is_negative(self) -> None:
        self.assertEqual(str(runs.percent(-1, 10**9)), "0.0")
        self.assertEqual(runs.percent(-1, 3), -33.333)

    def test_what_a_line_no_longer_runs_and_what_is_new(self) -> None:
        before = [replace(op(n, "a.py:1:1"), signature=f"{n} [x]") for n in range(6)]
        after = [replace(op(n, "a.py:1:1"), signature=f"{n} [x]") for n in (19, 1, 18, 17, 16, 15)]
        [row] = compare(record(before), record(after))["rows"]
        self.assertEqual(row["signatures_gone"], ["0 [x]", "2 [x]", "3 [x]", "4 [x]"])
        self.assertEqual(row["signatures_new"], ["15 [x]", "16 [x]", "17 [x]", "18 [x]"])

    def test_one_sided_rows(self) -> None:
        before = [op(1, "a.py:1:1", duration=7), op(2, tf_op="w['a']:", duration=1000)]
        sides = record(before[1:], 5), record(before, 4)
        answer = compare(*sides)
        [new] = [row for row in answer["rows"] if row["matched_by"] == "only_after"]
        self.assertEqual((new["before_ps"], new["after_ps"], new["delta_pct"]), (0, 7, None))
        self.assertEqual((new["before_range_ps"], new["after_range_ps"]), ([0, 0], [7, 7]))
        self.assertEqual((new["source_inner"], new["before_source_inner"]), ("a.py:1", None))
        self.assertEqual((new["tf_op"], new["kind"]), ("jit(f)/dot:", "compute"))
        self.assertEqual((new["signatures_gone"], new["signatures_new"]),
                         ([], ["fusion [loop fusion]"]))  # fmt: skip
        self.assertEqual((new["n_executions_before"], new["n_executions_after"]), (0, 1))
        # It is as told apart as can be.
        self.assertEqual((new["p_value"], new["significant"]), (0.007937, True))
        [gone] = [row for row in compare(*sides[::-1])["rows"] if row["delta_ps"]]
        self.assertEqual((gone["matched_by"], gone["delta_ps"], gone["delta_pct"]),
                         ("only_before", -7, -100))  # fmt: skip
        self.assertEqual((gone["tf_op"], gone["p_value"]), ("jit(f)/dot:", 0.007937))

    def test_rows_that_changed_alike_go_by_where_they_are_now(self) -> None:
        def program(*lines: int) -> Program:
            calls = [
                op(n, f"a.py:{line}:1", text=f"%x = f{n}()", duration=100 * n)
                for n, line in enumerate(lines, 1)
            ]
            return [*calls, op(8, tf_op="w['b']:"), op(9, tf_op="w['a']:")]

        gone = [op(n, tf_op=f"{key}:", duration=7) for n, key in enumerate("vu")]
        before, after = [*gone, *program(1, 2, 3)], program(6, 5, 4)
        for seed in range(4):
            shuffled = random.Random(seed).sample(before, len(before))
            rows = compare(record(shuffled), record(after))["rows"]
            self.assertEqual(
                [row["source_inner"] or row["agg_keys_after"] for row in rows[2:]],
                [["tfop:w['a']:"], ["tfop:w['b']:"], "a.py:4", "a.py:5", "a.py:6"],
            )
            self.assertEqual([row["agg_keys_before"] for row in rows[:2]],
                             [["tfop:u:"], ["tfop:v:"]])  # fmt: skip
            self.assertEqual([row["before_source_inner"] for row in rows[4:]],
                             ["a.py:3", "a.py:2", "a.py:1"])  # fmt: skip

    def test_a_row_of_many(self) -> None:
        before = [op(n, f"a.py:{n}0:4", tf_op=f"jit(f)/mul{n}:", duration=n) for n in (1, 2)]
        after = [op(n, f"a.py:{n}1:4", tf_op=f"jit(f)/add{n}:", duration=n) for n in (3, 4, 5)]
        for ours, theirs in ((before, after), (before[::-1], after[::-1])):
            answer = compare(record(ours), record(theirs))
            [row] = answer["rows"]
            names = "matched_by source_inner before_source_inner tf_op before_ps after_ps".split()
            expected = ["same_places", "a.py:31", "a.py:10", "jit(f)/add3:", 3, 12]
            self.assertEqual([row[name] for name in names], expected)
            for side, program in (("before", before), ("after", after)):
                self.assertEqual(row[f"agg_keys_{side}"], sorted(each.agg_key for each in program))
                self.assertEqual(row[f"n_executions_{side}"], len(program))
            self.assertEqual(
                answer["by_match"].pop("same_places"),
                {"n_rows": 1, "n_groups_before": 2, "n_groups_after": 3,
                 "before_ps": 3, "after_ps": 12},
            )  # fmt: skip
            self.assertFalse(any(any(each.values()) for each in answer["by_match"].values()))

    def test_sides_are_described(self) -> None:
        answer = compare(self.before, self.after, steps=slice(2, 4))
        for side, capture in (("before", self.before), ("after", self.after)):
            [device] = capture["devices"]
            step = ("index", "name", "duration_ps")
            expected = {
                **{name: capture[name] for name in ("xplane_file", "host")},
                **{name: device[name] for name in device.keys() - {"step_source"}},
                "n_steps": 2,
                "steps": [{name: each[name] for name in step} for each in capture["steps"][2:4]],
            }
            self.assertEqual(answer[side], expected)


FIGURES = ("busy_ps", "comm_ps", "host_ps", "wait_ps", "durs_ps", "ns")


def records_kinds() -> tuple[str, ...]:
    return "compute", "data_move", "comm", "other"


# --- reading -------------------------------------------------------------------------------------


class Reading(unittest.TestCase):
    def reject(self, data: bytes, what: str) -> None:
        with self.assertRaises(record_format.UnreadableRecord) as caught:
            record_format.decode(data)
        detail = str(caught.exception)
        self.assertIn(what, detail)
        self.assertLess(len(detail), 300)

    def test_plain_and_gzipped(self) -> None:
        plain = json.dumps(record(records.of_demo(), 2)).encode()
        half = len(plain) // 2
        for data in (
            gzip.compress(plain),
            gzip.compress(plain[:half]) + gzip.compress(plain[half:]),
        ):
            self.assertEqual(record_format.decode(data), record_format.decode(plain))

    def test_bytes_that_are_none(self) -> None:
        packed = gzip.compress(json.dumps(record(records.of_demo())).encode())
        for data, what in (
            (b"", "not JSON"),
            (b"{", "not JSON"),
            (b"\xff\xfe\x00", "not JSON"),
            (b"[" * 10**5, "nested too deep"),
            (b"9" * 5000, "not JSON" if hasattr(sys, "get_int_max_str_digits") else "record"),
            (packed[:-9], "ends too early"),
            (packed[:50] + b"\0" * 50, "bad gzip"),
            (b"null", "record"),
            (b"[]", "record"),
            (b"{}", "record.status"),
        ):
            with self.subTest(data=data[:20]):
                self.reject(data, what)

    def test_a_bomb(self) -> None:
        """Whatever small data expands to, and however: memory stays small."""
        spaces, lists = gzip.compress(b" " * (1 << 26)), b"[" + b"[]," * (1 << 22) + b"[]]"
        objects = b"[" + b'{"":0},' * (1 << 21) + b"0]"
        for data, what in (
            (spaces, "past the limit"),
            (spaces * 2, "past the limit"),
            (gzip.compress(lists), "brackets"),
            (gzip.compress(objects), "brackets"),
            (objects, "brackets"),
        ):
            tracemalloc.start()
            self.reject(data, what)
            peak = tracemalloc.get_traced_memory()[1]
            tracemalloc.stop()
            self.assertLess(peak, 1 << 26)

    def test_a_record_of_many_brackets(self) -> None:
        """Of a thousand groups with as many short texts as there may be: it is read."""
        large = record(records.made_up(3, 1000))
        for number, group in enumerate(large["groups"]):
            shapes = [f"f32[{number},{index}]" for index in range(32)]
            signatures = [f"fusion.{index} [loop fusion]" for index in range(32)]
            group.update(shapes=shapes, signatures=signatures)
        record_format.FEW_BRACKETS, few = 0, record_format.FEW_BRACKETS
        try:
            self.assertEqual(record_format.decode(json.dumps(large).encode()), large)
        finally:
            record_format.FEW_BRACKETS = few

    def test_a_record_of_many_devices(self) -> None:
        many = record([op(1, "a.py:1:1")])
        [device], [step] = many["devices"], many["steps"]
        many["devices"] = [device, *({**device, "device": str(n)} for n in range(5000))]
        many["steps"] = [{**step, "device": number} for number in range(5001)]
        with within(1):
            compare(many, many)

    def test_figures_that_are_left_out(self) -> None:
        """Groups by steps is far more than either is: most of the figures have to be there."""
        large = record([op(1, tf_op=None)])
        [group], [step] = large["groups"], large["steps"]
        large["groups"] = [{**group, "agg_key": str(number)} for number in range(3000)]
        large["steps"] = [{**step, "index": index} for index in range(3000)]
        record_format.record_of(large)
        large["steps"][7]["ns"] = [1] * 3000
        self.reject(json.dumps(large).encode(), "leave out most")
        large["steps"] = [{**step, "ns": [1] * 1500} for step in large["steps"]]
        large["steps"][7]["ns"] = [1] * 3000
        record_format.record_of(large)

    def test_fields_that_are_wrong(self) -> None:
        good = record(records.made_up(1), 2)
        self.assertEqual(record_format.record_of(good), good)

        def broken(path: Sequence[str | int], value: object) -> bytes:
            copy = json.loads(json.dumps(good))
            at = copy
            for part in path[:-1]:
                at = at[part]
            if value is ...:
                del at[path[-1]]
            else:
                at[path[-1]] = value
            return json.dumps(copy).encode()

        for path, value, what in (
            (("format",), 2, "record.format: it is not 1"),
            (("format",), True, "record.format"),
            (("mode",), "compare", "record.mode"),
            (("status",), "absent", "no record could be made"),
            (("status",), "fine", "record.status"),
            (("host",), None, "record.host"),
            (("host",), ..., "record.host: it is missing"),
            (("run",), 7, "record.run"),
            (("groups",), {}, "record.groups"),
            (("groups", 3), [], "record.groups[3]"),
            (("groups", 3, "kind"), "magic", "groups[3]: there is no such kind"),
            (("groups", 3, "frames"), [10**6], "groups[3]: there is no such frame"),
            (("groups", 3, "frames"), ["a"], "record.groups[3].frames"),
            (("groups", 3, "frames"), [-1], "record.groups[3].frames"),
            (("groups", 3, "tf_ops"), ["a", 1], "record.groups[3].tf_ops"),
            (("groups", 3), good["groups"][2], "one is there twice"),
            (("devices", 0, "program"), None, "record.devices[0].program"),
            (("devices",), good["devices"] * 2, "one is there twice"),
            (("steps", 1, "index"), 0, "not in the order of time"),
            (("steps", 1, "device"), 1, "there is no such device"),
            (("steps", 1, "used"), 1, "record.steps[1].used"),
            *((("steps", 1, name), None, "used and has no figures") for name in FIGURES),
            (("steps", 1, "busy_ps"), 10**25, "longer than it lasts"),
            (("steps", 1, "busy_ps"), True, "record.steps[1].busy_ps"),
            (("steps", 1, "duration_ps"), -1, "out of range"),
            (("steps", 1, "duration_ps"), 1.5, "record.steps[1].duration_ps"),
            (("steps", 1, "duration_ps"), 10**40, "out of range"),
            (("steps", 1, "durs_ps"), [1, 2.0], "record.steps[1].durs_ps"),
            (("steps", 1, "durs_ps"), [1, False], "record.steps[1].durs_ps"),
            (("steps", 1, "durs_ps"), [1, -2], "record.steps[1].durs_ps"),
            (("steps", 1, "ns"), [0] * 10**4, "more figures than groups"),
        ):
            with self.subTest(path=path, value=str(value)[:40]):
                self.reject(broken(path, value), what)

    def test_anything_at_all(self) -> None:
        """Whatever a field holds: it is read or it is refused, and compare answers."""
        good = json.dumps(record(records.made_up(2), 2)).encode()
        rng = random.Random(9)
        for _ in sampled(range(300), 40):
            data = bytearray(good)
            for _ in range(rng.randint(1, 3)):
                data[rng.randrange(len(data))] = rng.choice(b'0123456789-e.,:[]{}"tn \\')
            try:
                comparison.compare_records(
                    record_format.decode(good), record_format.decode(bytes(data))
                )
            except record_format.UnreadableRecord:
                pass
            except NoAnswer as failure:
                self.assertIn(failure.reason, ("device_not_found", "step_not_found"))


if __name__ == "__main__":
    unittest.main()
