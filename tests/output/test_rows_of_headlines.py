"""Test that the lines and figures in headlines stand in the rows that the headlines are about."""

from __future__ import annotations

import itertools
import re
import tempfile
import unittest
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _breakdown import units
from _breakdown.output import phrases
from tests.answers import BATCH, answers
from tests.builders.pauses import answer_of, thread
from tests.builders.xspace import op, trace
from tests.harness import STEP_MODES, Json, answer, captures, run, sampled
from tests.shown import merged_of

UNITS = dict((*units.TIMES, *units.BYTES))
NUMBER = r"\d+(?:\.\d+)?(?:e-?\d+)?"
UNIT = "|".join(UNITS)
# `6.17 of 18.3 ms` and `326.1 us of 63.5 ms` are figures of a row, and then of the step.
FIGURE_RE = re.compile(rf"(?<![\w.])({NUMBER})(?: ({UNIT}))?(?: of {NUMBER})? ({UNIT})\b")
LINE_RE = re.compile(r"(?:at|for the host at) (\S+?:\d+)(?=[\s,.:;)]|\Z)")
# Headlines of these modes contain no lines.
WITHOUT_LINES = ("spread", "record", "page", "export", "anatomy")


def rows_in(value: Any) -> Iterator[Json]:
    """Yield all objects in an answer."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    if isinstance(value, list):
        for part in value:
            yield from rows_in(part)


def rows_of(result: Json) -> Iterator[Json]:
    yield from rows_in(result)
    yield from merged_of(result)
    if result.get("peak_at"):
        yield {**result["peak_at"], "peak_bytes": result["peak_bytes"]}


def figures_of(row: Json) -> set[int]:
    """Return a row's own numbers, and the sum that `comm` shows."""
    # The changes in `compare` have signs.
    found = {abs(value) for value in row.values() if isinstance(value, int)}
    # Causes have the durations of pauses in their evidence.
    found |= {value for part in rows_in(row.get("evidence")) for value in part.values()
              if isinstance(value, int)}  # fmt: skip
    if "sync_dur_ps" in row and "wait_dur_ps" in row:
        found.add(row["sync_dur_ps"] + row["wait_dur_ps"])
    return found


def line_of(row: Json) -> str:
    """Return the line of a row as in headlines. If a row of `compare` has no line after the change,
    its line is that before the change."""
    found = phrases.at_line_of(row) or phrases.at(row.get("before_source_user"))
    # A doubtful line is marked.
    return found.removesuffix(" (?)")


def is_in(figure: str, unit: str, row: Json) -> bool:
    return figure in {units.number(value, (unit, UNITS[unit])) for value in figures_of(row)}


def clauses_of(headline: str) -> Iterator[str]:
    """Yield the parts of a headline that describe one row: parentheses, and sentences without
    them."""
    for sentence in re.split(r"(?<=[.]) (?=[A-Z])|; ", headline):
        yield from re.findall(r"\(([^()]*:\d+[^()]*)\)", sentence)
        yield re.sub(r"\([^()]*\)", "", sentence)


def claims_of(headline: str) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield each line in a headline, with the figures that stand beside it."""
    for clause in clauses_of(headline):
        for line in LINE_RE.findall(clause):
            yield line, [(figure, own or unit) for figure, own, unit in FIGURE_RE.findall(clause)]


def lines_before(row: Json) -> Json:
    """Return the line of a row of `compare` before the change, as the row's line."""
    return {"source_user": row["before_source_user"]} if "before_source_user" in row else {}


class Checks(unittest.TestCase):
    def n_lines_in_rows(self, result: Json) -> int:
        """Check that each line of a headline is the line of a row that has the figures beside it.
        Return the number of lines."""
        n = 0
        for line, figures in claims_of(result["headline"]):
            before = ({**row, **lines_before(row)} for row in rows_of(result))
            either = (*rows_of(result), *before)
            rows = [row for row in either if line_of(row) == f" at {line}"]
            # The time of the class stands beside the time of the line.
            classes = result.get("budget") or ()
            beside = [f for f in figures if not any(is_in(*f, row) for row in classes)]
            with self.subTest(mode=result["mode"], headline=result["headline"]):
                self.assertTrue(rows, f"no row has the line {line}")
                self.assertTrue(
                    any(all(is_in(*figure, row) for figure in beside) for row in rows),
                    f"no row with the line {line} has all of {beside}",
                )
            n += 1
        return n


class RowsOfHeadlines(Checks):
    batch = BATCH

    def test_lines_and_figures_in_headlines_stand_in_one_row(self) -> None:
        met: dict[str, int] = {}
        for result in answers():
            if result["mode"] not in WITHOUT_LINES and "headline" in result:
                met[result["mode"]] = met.get(result["mode"], 0) + self.n_lines_in_rows(result)
        self.assertGreater(
            min(met[mode] for mode in ("bottleneck", "by_op", "by_source", "comm", "kernel",
                                       "memory", "non_compute", "roofline", "summary")),
            0, met,
        )  # fmt: skip

    def test_lines_and_figures_in_headlines_of_captures_stand_in_one_row(self) -> None:
        for path, mode in sampled(itertools.product(captures(), STEP_MODES), 6, 100):
            if mode not in WITHOUT_LINES:
                outcome = run(path, mode)
                if outcome.object["status"] == "ok":
                    with self.subTest(path=path.name):
                        self.n_lines_in_rows(outcome.object)

    def test_headline_with_a_line_of_another_row_is_found(self) -> None:
        row = {"source_user": "a/b/model.py:1", "source_inner": "a/jax/x.py:2", "dur_ps": 5000}
        other = {"source_user": "a/b/model.py:3", "source_inner": None, "dur_ps": 7000}
        for line, figure, is_right in (
            ("…/b/model.py:1", "5.00", True),
            ("…/jax/x.py:2", "5.00", False),
            ("…/b/model.py:3", "5.00", False),
        ):
            headline = f"The largest loss is at {line}: {figure} of 9.00 ns."
            result = {"mode": "roofline", "headline": headline, "rows": [row, other]}
            probe = RowsOfHeadlines()
            if is_right:
                self.assertEqual(probe.n_lines_in_rows(result), 1)
            else:
                with self.assertRaises(AssertionError):
                    probe.n_lines_in_rows(result)


class Contradictions(Checks):
    """Test the headlines that once named another line than the table below them. Of an op whose
    innermost frame is a library's, both have to name the user's own line."""

    OWN, LIBRARY = "/home/me/model/layer.py:15", "/v/site-packages/jax/kernels/flash.py:199"
    STACK = f"{LIBRARY}:1\n{OWN}:1"

    def headline(self, mode: str, *options: str) -> str:
        ops = [
            op(f"f.{i}", "loop fusion", 100 * i, 90, shape="bf16[8]{0}", stack=self.STACK,
               flops=10, bytes_accessed=10)
            for i in range(3)
        ]  # fmt: skip
        data = trace(ops, [("0", 0, 300)])
        result = answer(data, mode, "--peak-tflops-bf16", "1", *options)
        found: str = result["headline"]
        return found

    def test_headline_of_roofline_names_the_line_of_its_row(self) -> None:
        headline = self.headline("roofline", "--peak-hbm-gibps", "1e9")
        self.assertIn("The largest listed loss is at …/model/layer.py:15: 240 ps.", headline)
        self.assertNotIn("flash.py", headline)

    def test_headline_about_a_pause_names_the_line_of_its_row(self) -> None:
        calls = (("$hooks.py:61 on_step", 75, 99), ("$fromnumeric.py:207 sum", 77, 99))
        result = answer_of(thread(*calls))
        row = next(row for row in result["causes"] if row["cause"] == "pause_between_steps")
        lines = row["source_user"], row["source_inner"]
        self.assertEqual(lines, ("hooks.py:61", "fromnumeric.py:207"))
        self.assertIn("Start at hooks.py:61: ", result["headline"])

    def test_headline_of_compare_names_the_line_of_the_other_side(self) -> None:
        steps = [(str(i), 1000 * i, 900) for i in range(4)]
        kept = [op("f", "add", 1000 * i, 100, stack="m.py:1:1") for i in range(4)]
        gone = [op("g", "sine", 1000 * i + 100, 800, stack="m.py:2:1") for i in range(4)]
        with tempfile.TemporaryDirectory() as folder:
            before = Path(folder) / "before.xplane.pb"
            before.write_bytes(trace([*kept, *gone], steps))
            result = answer(trace(kept, steps), "compare", "--baseline", str(before))
        self.assertIn(
            "The largest change is at m.py:2 and other lines: -800 ps.", result["headline"]
        )
        self.assertEqual(self.n_lines_in_rows(result), 1)

    def test_headline_of_bottleneck_names_the_line_of_its_row(self) -> None:
        headline = self.headline("bottleneck", "--peak-hbm-gibps", "1e9")
        self.assertIn("Start at …/model/layer.py:15, which loses ", headline)

    def test_headline_of_by_op_is_about_the_row_that_text_shows_first(self) -> None:
        # One op takes 100 ps, and three ops of unrolled layers take 90 ps each.
        ops = [op(f"layer.{i}", "loop fusion", 100 * i, 90, stack="m.py:1:1") for i in range(3)]
        ops.append(op("head", "loop fusion", 300, 100, stack="m.py:2:1"))
        data = trace(ops, [("0", 0, 1000)])
        result = answer(data, "by_op")
        self.assertIn("layer.*", result["headline"])
        self.assertIn("at m.py:1: 0.27 of 1.00 ns (27.0 %)", result["headline"])
        self.assertIn("in 3 executions of 3 ops.", result["headline"])
