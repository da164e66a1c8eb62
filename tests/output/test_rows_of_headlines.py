"""Test that the lines and figures in headlines stand in the rows that the headlines are about."""

from __future__ import annotations

import itertools
import re
import unittest
from collections.abc import Iterator
from typing import Any

from _breakdown import units
from _breakdown.output import phrases
from tests.answers import BATCH, answers
from tests.harness import STEP_MODES, Json, captures, run, sampled
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
