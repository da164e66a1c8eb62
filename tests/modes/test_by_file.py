"""Test compare's table `by_file`, which is valid even if lines have no counterpart."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

from tests.builders import records, rewrite
from tests.builders.compared import compare, op
from tests.builders.edits import busiest_file, small
from tests.builders.random_xspace import random_record_case
from tests.builders.records import DEVICE, Json, Program, record
from tests.harness import FULL, InFolder, answer, run, sampled

KINDS = ("compute", "data_move", "comm", "other")
FIGURES = ("before_ps", "after_ps", "delta_ps")


def rows_of(answer: Json, *names: str) -> list[tuple[Any, ...]]:
    return [tuple(row[name] for name in names) for row in answer["by_file"]]


def file_of(line: str | None) -> str | None:
    return line if line is None else re.sub(r"(:[0-9]+){1,2}$", "", line)


def mean_by_file(made: Json, device: str) -> Counter[str | None]:
    """Return each file's mean time per step: the sum of its groups' rounded means."""
    number = [listed["device"] for listed in made["devices"]].index(device)
    steps = [s for s in made["steps"] if s["device"] == number and s["used"]]
    means: Counter[str | None] = Counter()
    for place, group in enumerate(made["groups"]):
        whole = sum(step["durs_ps"][place] for step in steps if place < len(step["durs_ps"]))
        means[file_of(group["source"])] += int(Fraction(whole, len(steps)) + Fraction(1, 2))
    return means


class Against(InFolder):
    def assert_holds(self, before: Json, after: Json, compared: Json, device: str = DEVICE) -> None:
        """Check that `by_file` agrees with the records, the rows and the totals."""
        rows = compared["by_file"]
        for figure in FIGURES:
            total = sum(compared["totals"][kind][figure] for kind in KINDS)
            self.assertEqual(sum(row[figure] for row in rows), total, f"sum of by_file {figure}")
        sides = (before, "before_file", "before_ps"), (after, "file", "after_ps")
        for side_record, name, figure in sides:
            shown = Counter({row[name]: row[figure] for row in rows if row[name] is not None})
            expected = mean_by_file(side_record, device)
            del expected[None]
            self.assertEqual(+shown, +expected, f"{figure} of {name}")
        deltas = [abs(row["delta_ps"]) for row in rows if row["file"] or row["before_file"]]
        self.assertEqual(deltas, sorted(deltas, reverse=True), "files are ordered by change")
        for row in rows:
            self.assertEqual(row["delta_ps"], row["after_ps"] - row["before_ps"], row)
        notes, unmatched = " ".join(compared["notes"]), compared["unmatched"]
        for side in ("before", "after"):
            alone = [row for row in compared["rows"] if row["matched_by"] == f"only_{side}"]
            time = sum(row[f"{side}_ps"] for row in alone)
            self.assertEqual(unmatched[f"{side}_ps"], time, f"time without a counterpart {side}")
        sums = (sum(mean_by_file(of, device).values()) for of in (before, after))
        parts = [
            100 * unmatched[f"{side}_ps"] / total if total else 0
            for side, total in zip(("before", "after"), sums, strict=True)
        ]
        self.assertEqual("lines without a counterpart" in notes, max(parts) > 5, notes)

    def record_of(self, name: str, program: Program, seed: int) -> tuple[Path, Json]:
        made = answer(rewrite.trace(program, 4, jitter=0.01, seed=seed), "record")
        return self.write(name, json.dumps(made).encode()), made


class OfTraces(Against):
    def test_slowdown_of_lines_without_counterparts_shows_in_their_file(self) -> None:
        """Unroll loops, move all lines of one file and slow them down by 20 %."""
        program = small(records.of_demo())
        file = busiest_file(program)

        def moved(frame: records.Frame) -> records.Frame:
            if frame.file != file:
                return frame
            return frame._replace(line=700 - frame.line, column=frame.column + 1)

        innermost = {op.key for op in program if op.frames and op.frames[-1].file == file}
        slower = (records.slow_down(key, 1.2) for key in innermost)
        after = records.chain(records.unroll(), *slower)(program)
        after = records.renumber(records.with_frames(after, moved))
        before, ours = self.record_of("before.json", program, 1)
        path, theirs = self.record_of("after.json", after, 2)
        compared = answer(path, "compare", "--baseline", str(before), "--top", "1000000")
        self.assert_holds(ours, theirs, compared)
        first = compared["by_file"][0]
        self.assertEqual((first["file"], first["before_file"]), (file, file))
        self.assertAlmostEqual(first["delta_pct"], 20, delta=2)
        significant = [row["file"] for row in compared["by_file"] if row["significant"]]
        self.assertEqual(significant, [file])

    def test_by_file_agrees_with_the_records_of_random_traces(self) -> None:
        n_compared = 0
        for seed in sampled(range(60), 6):
            pair = (random_record_case(random.Random(seed + n)) for n in (0, seed % 2))
            (before, options), (after, _) = pair
            device = options.get("device") or DEVICE
            paths = [self.write(f"{i}.xplane.pb", data) for i, data in enumerate((before, after))]
            both = [run(path, "record", "--device", device).object for path in paths]
            words = ("--device", device, "--baseline-device", device, "--top", "1000000")
            compared = run(paths[1], "compare", "--baseline", str(paths[0]), *words).object
            with self.subTest(seed=seed):
                if compared["status"] == "ok":
                    n_compared += 1
                    self.assert_holds(both[0], both[1], compared, device)
        self.assertGreater(n_compared, 10 if FULL else 1)


class OfRecords(Against):
    def test_files_are_paired_and_ordered_by_change(self) -> None:
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
        result = compare(record(before), record(after))
        self.assertEqual(
            rows_of(result, "file", "before_file", *FIGURES),
            [
                ("/new/c.py", None, 0, 70, 70),
                (None, "/old/b.py", 50, 0, -50),
                ("/new/a.py", "/old/a.py", 100, 101, 1),
                (None, None, 7, 1007, 1000),
            ],
        )
        zero = {"before_ps": 0, "after_ps": 0}
        self.assertEqual(result["unmatched"], zero)
        self.assert_holds(record(before), record(after), result)

    def test_file_that_remains_as_a_caller_is_not_paired_with_a_new_file(self) -> None:
        """`x/a.py` still calls `z.py`, so it was not moved to `y/a.py`, which is a new file."""
        before = [op(1, "x/a.py:1:1", tf_op="f/p:")]
        after = [op(2, "x/a.py:1:1", "z.py:1:1", tf_op="g/q:"), op(3, "y/a.py:1:1", tf_op="h/r:")]
        result = compare(record(before), record(after))
        self.assertEqual(
            rows_of(result, "file", "before_file"),
            [(None, "x/a.py"), ("y/a.py", None), ("z.py", None)],
        )
        self.assert_holds(record(before), record(after), result)

    def test_small_files_are_not_tested_for_significance(self) -> None:
        def program(factor: int) -> Program:
            return [
                op(1, "a.py:1:1", duration=1_000_000),
                op(2, "b.py:1:1", duration=700 * factor, tf_op="g:"),
                op(3, "c.py:1:1", duration=100_000 * factor, tf_op="h:"),
            ]

        result = compare(*(record(program(factor), 4) for factor in (1, 2)))
        tested = {row["file"]: row["p_value"] for row in result["by_file"]}
        self.assertEqual(tested, {"a.py": 1.0, "b.py": None, "c.py": 0.028571})

    def test_files_and_rows_are_corrected_for_multiple_testing_separately(self) -> None:
        """Slow down 100 noisy lines by 2 %: no line is significant, but their file is."""
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
        result = compare(*sides)
        self.assertNotIn(True, [row["significant"] for row in result["rows"]])
        self.assertEqual(rows_of(result, "file", "significant"), [("a.py", True), ("b.py", False)])
        self.assert_holds(sides[0], sides[1], result)
