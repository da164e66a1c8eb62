"""Test `--format markdown`: tables, and names that could be mistaken for markup."""

from __future__ import annotations

import itertools
import re
import unittest

from _breakdown.output.characters import Characters
from _breakdown.output.column_texts import columns_of
from _breakdown.output.fill import Grid
from _breakdown.output.markdown import MarkdownPage
from _breakdown.output.screen import View
from tests.answers import BATCH, answers, demo, error_answers
from tests.builders.xspace import op, trace
from tests.harness import AFTER, BEFORE, WITH_TEXT, answer
from tests.shown import blocks_of, markdown_of

PAGE = MarkdownPage(Characters("utf-8"))
# GitHub would interpret these names as tables, code, tags, emphasis, mentions or references.
HOSTILE = (
    *("a|b", "`a`", "``", "<none>", "__init__.py", "layers_*", "@x", "#1", "a\\|b", "\\", "|"),
    *("[x](y)", "*a*", "~~a~~", "&amp;", ":tada:", "http://x", "- a", "1. a", " a "),
)


def cells_in(line: str) -> list[str]:
    """Return the cells of a table row, split at each `|` that no backslash precedes."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def code_in(cell: str) -> str:
    """Return the text of a cell that is a code span, according to CommonMark."""
    html = re.fullmatch(r"<code>(.*)</code>", cell)
    if html:
        return re.sub(r"&#(\d+);", lambda match: chr(int(match[1])), html[1])
    match = re.fullmatch(r"(`+)(.*?)(?<!`)\1", cell.replace("\\|", "|"))
    assert match, cell
    text = match[2]
    if text.startswith(" ") and text.endswith(" ") and text.strip():
        text = text[1:-1]
    assert match[1] not in re.findall(r"`+", text), cell
    return text


class Names(unittest.TestCase):
    def test_names_are_written_as_code_spans(self) -> None:
        for name in HOSTILE:
            with self.subTest(name=name):
                self.assertEqual(code_in(PAGE.code(name, is_in_table=True)), name)
                self.assertEqual(cells_in(f"| {PAGE.code(name, is_in_table=True)} |").__len__(), 1)
        self.assertEqual(PAGE.code("a\nb\x1b"), "`a\\nb\\x1b`")

    def test_names_in_tables_are_complete_and_escaped(self) -> None:
        names = [name for name in HOSTILE if name.strip()]
        data = trace(
            [op(f"f.{i}", "loop fusion", 10 * i, 10, stack=f"{name * 40}:1:1")
             for i, name in enumerate(names)]
        )  # fmt: skip
        fields = answer(data, "by_source")
        lines = markdown_of(fields, "utf-8").splitlines()
        rows = [cells_in(line) for line in lines if line.startswith("| ")]
        self.assertEqual({len(row) for row in rows}, {len(rows[0])})
        found = {code_in(row[-1]) for row in rows[2:]}
        self.assertEqual(
            found,
            {
                (group["source_user"] or group["source_inner"] or group["agg_key"]).strip()
                for group in fields["groups"]
            },
        )


class Answers(unittest.TestCase):
    batch = BATCH

    def test_markdown_tables_have_the_same_cells_as_the_text(self) -> None:
        for mode in WITH_TEXT:
            options = ["--baseline", str(BEFORE)] if mode == "compare" else []
            fields = answer(AFTER, mode, *options) if options else demo(mode)
            lines = iter(markdown_of(fields, "utf-8").splitlines())
            n_tables = 0
            for block in blocks_of(fields, View()):
                if not isinstance(block.part, Grid):
                    continue
                n_tables += 1
                grid = block.part
                found = list(
                    itertools.takewhile(
                        lambda line: line.startswith("| "),
                        itertools.dropwhile(lambda line: not line.startswith("| "), lines),
                    )
                )
                columns = [
                    column.texts for column in columns_of(grid, block.unit) if not column.said
                ]
                expected = list(zip(*columns, strict=True))
                self.assertEqual(len(found), len(expected) + 2)
                for line, texts in zip(found[2:], expected, strict=True):
                    plain = [code_in(cell) if "`" in cell else cell for cell in cells_in(line)]
                    self.assertEqual(plain, [text.strip() for text in texts])
            self.assertGreater(n_tables, 0, mode)

    def test_tables_are_well_formed_and_follow_a_blank_line(self) -> None:
        n = 0
        for fields in answers():
            if fields["mode"] not in WITH_TEXT:
                continue
            text = markdown_of(fields, "utf-8", View(shows_all=True))
            for block in text.split("\n\n"):
                lines = block.splitlines()
                if lines and lines[0].startswith("| "):
                    n += 1
                    self.assertEqual({len(cells_in(line)) for line in lines[1:]},
                                     {len(cells_in(lines[0]))})  # fmt: skip
                    self.assertTrue(all(re.fullmatch(":---|---:", c) for c in cells_in(lines[1])))
        self.assertGreater(n, 30)

    def test_headline_is_the_first_paragraph(self) -> None:
        fields = demo("idle")
        first, *_ = markdown_of(fields, "utf-8").split("\n\n")
        self.assertEqual(first, PAGE.prose(fields["headline"]))

    def test_error_answer_is_a_paragraph(self) -> None:
        n = 0
        for outcome in error_answers():
            if outcome.object["mode"] in (*WITH_TEXT, None):
                n += 1
                text = markdown_of(outcome.object, "ascii")
                self.assertIn("no answer", text.split("\n\n")[0])
                self.assertIn(outcome.object["reason"], text)
        self.assertGreater(n, 15)
