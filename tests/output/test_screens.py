"""Test rules for all screens: what stands on them is readable, and they say it once."""

from __future__ import annotations

import itertools
import unittest
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

from _breakdown.output.fill import Grid
from _breakdown.output.text import SHORTEST_CUT, Style, TextPage
from _breakdown.units import Unit
from tests.answers import BATCH, answers, demo
from tests.builders.pauses import answer_of, thread
from tests.harness import BRIEF, STEP_MODES, Json, captures, run, sampled
from tests.shown import text_of

WITHOUT_TEXT = ("record", "page", "export")
MOST_LINES, MOST_NOTES = 30, 3


class Screen:
    """A rendered answer: its lines, its tables, and its cut names. A table is the number of its
    rows without sums, its columns with their headings, and the lines of its rows."""

    def __init__(self, fields: Json, width: int = 100) -> None:
        self.mode = fields["mode"]
        self.tables: list[tuple[int, list[Sequence[str]], list[str]]] = []
        self.cut: list[str] = []
        rows: list[tuple[Sequence[str], str]] = []
        lines_of_table, row, cut = TextPage.lines_of_table, TextPage.row, TextPage.cut

        def noting_table(page: TextPage, grid: Grid, unit: Unit) -> Iterator[str]:
            rows.clear()
            lines = list(lines_of_table(page, grid, unit))
            columns: list[Sequence[str]] = [*zip(*(cells for cells, _ in rows), strict=True)]
            heading, *formatted = [line for _, line in rows]
            below = lines[lines.index(heading) + 1 :]
            shown = [line for line in below if line in formatted]
            self.tables.append((len(grid.rows), columns, shown))
            yield from lines

        def noting_row(page: TextPage, cells: Sequence[str], *more: Any) -> str:
            line = row(page, cells, *more)
            rows.append((cells, line))
            return line

        def noting_cut(page: TextPage, text: str, kind: str, width: int) -> str:
            shown = cut(page, text, kind, width)
            if shown != text:
                self.cut.append(shown)
            return shown

        with (
            mock.patch.object(TextPage, "lines_of_table", noting_table),
            mock.patch.object(TextPage, "row", noting_row),
            mock.patch.object(TextPage, "cut", noting_cut),
        ):
            self.lines = text_of(fields, "utf-8", style=Style(width)).splitlines()

    def faults(self) -> Iterator[str]:
        yield from (f"cut to {shown}" for shown in self.cut if len(shown) < SHORTEST_CUT)
        for n_rows, columns, lines in self.tables:
            if self.mode == "by_array" and n_rows == 2:
                # The text below a row tells it from a row with equal figures.
                continue
            for heading, *values in columns:
                if n_rows > 1 and len(columns) > 1 and len({*values}) == 1:
                    yield f"{heading} is only {values[0]}"
            yield from (f"twice: {line}" for line in sorted({*lines}) if lines.count(line) > 1)
        if sum(line.startswith("- ") and "(--all)" not in line for line in self.lines) > MOST_NOTES:
            yield "too many notes"

    def headings(self) -> Iterator[list[str]]:
        for _, columns, _ in self.tables:
            yield [heading for heading, *_ in columns]


class Screens(unittest.TestCase):
    batch = BATCH

    def check(self, fields: Json) -> None:
        for width in sampled((100, 60), 1):
            screen = Screen(fields, width)
            with self.subTest(fields["mode"], headline=fields.get("headline"), width=width):
                self.assertEqual([*screen.faults()], [])

    def test_names_are_readable_columns_differ_and_rows_do_not_repeat(self) -> None:
        for fields in answers():
            if fields["mode"] not in WITHOUT_TEXT:
                self.check(fields)

    def test_screens_of_captures_follow_the_rules(self) -> None:
        cases = itertools.product(captures(), STEP_MODES)
        for path, mode in sampled(cases, 6, 60):
            if mode not in WITHOUT_TEXT:
                self.check(run(path, mode).object)

    def assert_classes_on_first_screen(self, fields: Json) -> None:
        lines = Screen(fields).lines
        with self.subTest(fields["profile_dir"]):
            (classes,) = [i for i, line in enumerate(lines) if "where the step goes" in line]
            self.assertLessEqual(lines.index("", classes), MOST_LINES)

    def test_first_screen_of_bottleneck_has_the_causes_and_the_classes(self) -> None:
        self.assert_classes_on_first_screen(demo("bottleneck", BRIEF))

    def test_first_screen_of_captures_has_the_causes_and_the_classes(self) -> None:
        for path in sampled(captures(), 1):
            self.assert_classes_on_first_screen(run(path, "bottleneck", BRIEF).object)

    def test_percentages_of_causes_have_one_base(self) -> None:
        pause = answer_of(thread(("$hooks.py:61 f", 75, 99), ("$hooks.py:61 f", 180, 199)))
        for fields, base in ((demo("bottleneck"), "% step"), (pause, "% period")):
            (heading,) = [names for names in Screen(fields).headings() if "cause" in names]
            self.assertEqual([name for name in heading if name.startswith("%")], [base])
