"""What compare says of whole files: right where lines have no counterpart."""

from __future__ import annotations

import json
import random
import unittest
from pathlib import Path
from typing import Any

from tests.builders import records, rewrite
from tests.builders.edits import busiest_file, edits_of
from tests.builders.random_xspace import random_record_case
from tests.builders.records import DEVICE, Json, Program, record
from tests.harness import FULL, InFolder, answer, run, sampled
from tests.modes.test_compare import compare, op
from tests.modes.test_rewritten import small
from tests.naive.by_file import ByFile

KINDS = ("compute", "data_move", "comm", "other")
FIGURES = ("before_ps", "after_ps", "delta_ps")


def rows_of(answer: Json, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in answer["by_file"]]


class Against(InFolder):
    def assert_holds(self, before: Json, after: Json, compared: Json, device: str = DEVICE) -> None:
        """By the second reading, and with the totals."""
        naive = ByFile((before, after), (device, device), compared["rows"])
        self.assertEqual(compared["by_file"], naive.fields())
        self.assertEqual(compared["unmatched"], naive.unmatched())
        for figure in FIGURES:
            total = sum(compared["totals"][kind][figure] for kind in KINDS)
            self.assertEqual(sum(row[figure] for row in compared["by_file"]), total)
        notes = " ".join(compared["notes"])
        moved = naive.moved()
        if moved:
            was, now = (sum(row[name] for row in moved) for name in FIGURES[:2])
            self.assertIn(f"{len(moved)} rows, {was} ps before and {now} ps after", notes)
        else:
            self.assertNotIn("pair lines of different files", notes)
        parts = compared["unmatched"]["before_pct"] or 0, compared["unmatched"]["after_pct"] or 0
        self.assertEqual("lines without a counterpart" in notes, max(parts) > 5)

    def trace_of(self, name: str, program: Program, seed: int) -> tuple[Path, Json]:
        path = self.write(name, rewrite.trace(program, 4, jitter=0.01, seed=seed))
        return path, answer(path, "record")


class OfTraces(Against):
    def test_each_edit(self) -> None:
        """Edits, moves, renamed files, fused and split ops, an unrolled loop."""
        program = small(records.of_demo())
        before, ours = self.trace_of("before.xplane.pb", program, 1)
        n_moved = n_lost = 0
        for kind, edits in sampled(edits_of(program, seed=5).items(), 3):
            with self.subTest(kind):
                after, theirs = self.trace_of(
                    "after.xplane.pb", records.renumber(edits[0](program)), 2
                )
                compared = answer(after, "compare", "--baseline", str(before), "--top", "1000000")
                self.assert_holds(ours, theirs, compared)
                n_moved += "pair lines of different files" in str(compared["notes"])
                n_lost += bool(compared["unmatched"]["before_ps"])
        if FULL:
            self.assertGreater(n_moved, 0)
            self.assertGreater(n_lost, 0)

    def test_a_loop_that_was_unrolled_and_cost_time(self) -> None:
        """By 20 %, in code whose lines have no counterpart: its file says so, and no other."""
        program = small(records.of_demo())
        file = busiest_file(program)

        def rewritten(frame: records.Frame) -> records.Frame:
            """Other lines and columns."""
            is_there = frame.file == file
            return (
                frame._replace(line=700 - frame.line, column=frame.column + 1)
                if is_there
                else frame
            )

        innermost = {each.key for each in program if each.frames and each.frames[-1].file == file}
        after = records.chain(
            records.unroll(),
            *(records.slow_down(key, 1.2) for key in innermost),
        )(program)
        after = records.renumber(records.with_frames(after, rewritten))
        before, ours = self.trace_of("before.xplane.pb", program, 1)
        path, theirs = self.trace_of("after.xplane.pb", after, 2)
        compared = answer(path, "compare", "--baseline", str(before), "--top", "1000000")
        self.assert_holds(ours, theirs, compared)
        first = compared["by_file"][0]
        self.assertEqual((first["file"], first["before_file"]), (file, file))
        self.assertAlmostEqual(first["delta_pct"], 20, delta=2)
        self.assertTrue(first["significant"])
        others = [row["significant"] for row in compared["by_file"][1:]]
        self.assertNotIn(True, others)

    def test_random_pairs(self) -> None:
        n_compared = 0
        for seed in sampled(range(60), 6):
            before, options = random_record_case(random.Random(seed))
            after, _ = random_record_case(random.Random(seed + seed % 2))
            device = options.get("device") or DEVICE
            with self.subTest(seed=seed):
                sides = []
                for name, data in (("before", before), ("after", after)):
                    path = self.write(f"{name}.xplane.pb", data)
                    sides.append((path, run(path, "record", "--device", device).object))
                compared = run(
                    sides[1][0], "compare", "--baseline", str(sides[0][0]),
                    *("--device", device, "--baseline-device", device, "--top", "1000000"),
                ).object  # fmt: skip
                if compared["status"] == "ok":
                    n_compared += 1
                    self.assert_holds(sides[0][1], sides[1][1], compared, device)
        self.assertGreater(n_compared, 10 if FULL else 3)


class OfRecords(Against):
    def test_rows(self) -> None:
        before = [
            op(1, "/old/m.py:1:0", "/old/a.py:10:4", tf_op="f/x:", duration=100),
            op(2, "/old/m.py:2:0", "/old/b.py:20:4", tf_op="f/y:", duration=50),
            op(3, tf_op="w:", kind="data_move", duration=7),
        ]
        after = [
            op(1, "/new/m.py:1:0", "/new/a.py:10:4", tf_op="f/x:", duration=101),
            op(2, "/new/m.py:2:0", "/new/c.py:20:4", tf_op="f/y:", duration=70),
            op(3, tf_op="w:", kind="data_move", duration=1007),
        ]
        said = compare(record(before), record(after))
        self.assertEqual(
            rows_of(said, "file", "before_file", *FIGURES, "n_rows"),
            [
                ("/new/c.py", None, 0, 70, 70, 1),
                (None, "/old/b.py", 50, 0, -50, 1),
                ("/new/a.py", "/old/a.py", 100, 101, 1, 1),
                (None, None, 7, 1007, 1000, 1),
            ],
        )
        self.assertIn("1 rows, 50 ps before and 70 ps after, pair lines", " ".join(said["notes"]))
        zero = {"before_ps": 0, "after_ps": 0, "before_pct": 0.0, "after_pct": 0.0}
        self.assertEqual(said["unmatched"], zero)
        self.assert_holds(record(before), record(after), said)

    def test_files_pair_by_those_of_callers_too(self) -> None:
        """x/a.py is where it was, as a caller: so y/a.py is another file, not x/a.py moved."""
        before = [op(1, "x/a.py:1:1", tf_op="f/p:")]
        after = [op(2, "x/a.py:1:1", "z.py:1:1", tf_op="g/q:"), op(3, "y/a.py:1:1", tf_op="h/r:")]
        said = compare(record(before), record(after))
        self.assertEqual(
            rows_of(said, "file", "before_file"),
            [(None, "x/a.py"), ("y/a.py", None), ("z.py", None)],
        )
        self.assert_holds(record(before), record(after), said)

    def test_ties_go_by_name(self) -> None:
        before = [op(n, f"{name}.py:1:1") for n, name in enumerate("cad")]
        after = [op(n, f"{name}.py:1:1", duration=90) for n, name in enumerate("cadb")]
        said = compare(record(before), record([*after[:3], op(4, "b.py:9:9", duration=10)]))
        self.assertEqual([row["file"] for row in said["by_file"]], ["a.py", "b.py", "c.py", "d.py"])

    def test_five_percent_without_a_counterpart_are_not_many(self) -> None:
        kept = op(1, "a.py:1:1", tf_op="f/x:", duration=95_000)
        for duration, is_noted in ((5_000, False), (5_010, True)):
            gone = op(2, "b.py:1:1", tf_op="g/y:", kind="comm", duration=duration)
            for sides in (([kept, gone], [kept]), ([kept], [kept, gone])):
                notes = " ".join(compare(*map(record, sides))["notes"])
                self.assertEqual("without a counterpart" in notes, is_noted)

    def test_what_is_small_is_not_tested(self) -> None:
        def program(factor: int) -> Program:
            return [
                op(1, "a.py:1:1", duration=1_000_000),
                op(2, "b.py:1:1", duration=700 * factor, tf_op="g:"),
                op(3, "c.py:1:1", duration=100_000 * factor, tf_op="h:"),
            ]

        said = compare(*(record(program(factor), 4) for factor in (1, 2)))
        tested = {row["file"]: row["p_value"] for row in said["by_file"]}
        self.assertEqual(tested, {"a.py": 1.0, "b.py": None, "c.py": 0.028571})
        self.assertEqual(said["noise"]["n_tested"], 2)

    def test_another_family_than_rows(self) -> None:
        """Many noisy lines hide a change among rows, not among the few files that hold them."""
        rng = random.Random(3)
        sides = []
        for factor in (1.0, 1.02):
            program = [
                op(n, f"{'ab'[n % 2]}.py:{n}:{n}", tf_op=f"f/{n}:", duration=10_000)
                for n in range(200)
            ]
            made = record(program, 4)
            for step in made["steps"]:
                durs = [
                    round(d * rng.gauss(1, 0.05) * (1 if n % 2 else factor))
                    for n, d in enumerate(step["durs_ps"])
                ]
                step |= {"durs_ps": durs, "busy_ps": sum(durs), "duration_ps": 2 * sum(durs)}
            sides.append(made)
        said = compare(*sides)
        self.assertNotIn(True, [row["significant"] for row in said["rows"]])
        self.assertEqual(rows_of(said, "file", "significant"), [("a.py", True), ("b.py", False)])
        self.assert_holds(sides[0], sides[1], said)

    def test_swapped_sides(self) -> None:
        program = records.made_up(4, 80)
        after = records.renumber(edits_of(program, seed=1)["all at once"][0](program))
        there, back = (
            compare(*map(record, sides)) for sides in ((program, after), (after, program))
        )
        self.assertCountEqual(
            rows_of(there, "file", "before_file", *FIGURES, "n_rows"),
            [
                (before, file, now, was, -delta, n)
                for file, before, was, now, delta, n in rows_of(
                    back, "file", "before_file", *FIGURES, "n_rows"
                )
            ],
        )
        self.assertEqual(json.loads(json.dumps(there)), there)


if __name__ == "__main__":
    unittest.main()
